/* Costs of messages and sums: see transit.h. */
#include "plan/replay/transit.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

enum {
    ADDING = 3 /* bytes that memory moves for each one that is added */
};

static const double MEMORY = 10e9; /* bytes a second of a core, where the machine does not say */

meg_transit meg_transit_message(const meg_machine *m, int from, int to, int64_t bytes)
{
    bool inside = meg_machine_node(m, from) == meg_machine_node(m, to);
    const meg_link *l = inside ? &m->inside : &m->between;
    double rate = meg_link_bandwidth(l, bytes);
    meg_transit t = {.latency = l->latency, .seconds = (double)bytes / rate, .looks = 1};
    if (from == to) return (meg_transit){0}; /* a copy within the rank */
    *(inside ? &t.inside : &t.out) = rate;
    t.cpu = l->cpu;
    return t;
}

/* ---- sums ---- */

typedef struct volume {  /* of the ranks on the first one's node, in all steps */
    double steps, looks; /* of the first rank */
    double out, inside;  /* bytes sent by all of them */
} volume;

static void add_step(const meg_machine *m, const meg_transit_sum *s, int place,
                     const meg_allreduce_step *step, volume *v)
{
    if (step->to < 0 || step->send.count == 0) return;
    double bytes = (double)(step->send.count * s->element_bytes);
    bool inside = meg_machine_node(m, s->rank[place]) == meg_machine_node(m, s->rank[step->to]);
    *(inside ? &v->inside : &v->out) += bytes;
    if (place > 0) return;
    v->steps++;
    v->looks += ceil(bytes / (double)(s->piece * s->pieces));
}

static volume volume_of(const meg_machine *m, const meg_transit_sum *s, const meg_allreduce *first)
{
    volume v = {0};
    for (int i = 0; i < s->ranks; i++) {
        if (meg_machine_node(m, s->rank[i]) != meg_machine_node(m, s->rank[0])) break;
        meg_allreduce view = *first;
        meg_allreduce_step step;
        view.rank = i;
        for (int k = 0; s->kind->step(&view, k, &step); k++)
            add_step(m, s, i, &step, &v);
    }
    return v;
}

/* The most that the algorithm's first rank sends in a step. */
static int64_t message_of(const meg_transit_sum *s, const meg_allreduce *first)
{
    meg_allreduce_step step;
    int64_t most = 1;

    for (int k = 0; s->kind->step(first, k, &step); k++)
        if (step.to >= 0 && step.send.count * s->element_bytes > most)
            most = step.send.count * s->element_bytes;
    return most;
}

static meg_topology *nodes_of(const meg_machine *m, const meg_transit_sum *s)
{
    int *node = malloc((size_t)s->ranks * sizeof *node);
    if (!node) abort();
    for (int i = 0; i < s->ranks; i++)
        node[i] = meg_machine_node(m, s->rank[i]);
    meg_topology *t = meg_topology_new(s->ranks, node);
    free(node);
    return t;
}

/* What a byte of a step takes on a link, with its addition where that was measured together. */
static double byte_of(const meg_link *l, int64_t message, int64_t piece, double adding)
{
    double sum = meg_link_sum(l, message);
    int64_t at_once = message < piece ? message : piece;
    return sum > 0 ? fmax(1 / sum - adding, 0) : 1 / meg_link_bandwidth(l, at_once);
}

/* The library's own allreduce is taken to be as good as the best of ours: halving and doubling. */
meg_transit meg_transit_of_sum(const meg_machine *m, const meg_transit_sum *s)
{
    if (s->ranks < 2 || s->count == 0) return (meg_transit){0};
    meg_transit_sum known = *s;
    if (!known.kind->step) known.kind = &meg_allreduce_halving_doubling;
    meg_topology *groups = nodes_of(m, s);
    meg_allreduce first = {.ranks = s->ranks, .rank = 0, .count = s->count, .groups = groups};
    int64_t message = message_of(&known, &first);
    double memory = m->bandwidth > 0 ? m->bandwidth : MEMORY;
    meg_allreduce_rates still = {.alpha = {meg_link_hop(&m->inside), meg_link_hop(&m->between)}},
                        rates = still;
    rates.gamma = ADDING / memory;
    rates.beta[0] = byte_of(&m->inside, message, s->piece, rates.gamma / 2);
    rates.beta[1] = byte_of(&m->between, message, s->piece, rates.gamma / 2);
    double latency = known.kind->cost(&first, s->element_bytes, &still);
    meg_transit t = {.latency = latency,
                     .seconds = known.kind->cost(&first, s->element_bytes, &rates) - latency};
    volume v = volume_of(m, &known, &first);
    int reach = meg_allreduce_reach(&first);
    t.looks = v.looks;
    t.out = v.out / t.seconds;
    t.inside = v.inside / t.seconds;
    t.cpu = reach ? m->between.cpu : m->inside.cpu;
    meg_topology_free(groups);
    return t;
}

/* ---- sums that are known ---- */

typedef struct meg_known_sum known_sum;

static bool is_same(const meg_transit_sum *a, const meg_transit_sum *b)
{
    return a->kind == b->kind && a->rank == b->rank && a->ranks == b->ranks &&
           a->count == b->count && a->element_bytes == b->element_bytes && a->piece == b->piece &&
           a->pieces == b->pieces;
}

/* Its place, or the free one where it belongs. */
static known_sum *place_of(const meg_transits *t, const meg_transit_sum *s)
{
    uint64_t h = meg_hash_word((uint64_t)(uintptr_t)s->rank, (uint64_t)s->count);
    h = meg_hash_word(h, (uint64_t)(uintptr_t)s->kind);
    size_t i = h & (t->room - 1);
    while (t->at[i].sum.kind && !is_same(&t->at[i].sum, s))
        i = (i + 1) & (t->room - 1);
    return &t->at[i];
}

static void enlarge(meg_transits *t)
{
    meg_transits more = {t->count, t->room ? 2 * t->room : 64, NULL};
    more.at = calloc(more.room, sizeof *more.at);
    if (!more.at) abort();
    for (size_t i = 0; i < t->room; i++)
        if (t->at[i].sum.kind) *place_of(&more, &t->at[i].sum) = t->at[i];
    free(t->at);
    *t = more;
}

meg_transit meg_transits_of_sum(meg_transits *t, const meg_machine *m, const meg_transit_sum *s)
{
    if (2 * t->count >= t->room) enlarge(t);
    known_sum *k = place_of(t, s);
    if (k->sum.kind) return k->costs;
    *k = (known_sum){*s, meg_transit_of_sum(m, s)};
    t->count++;
    return k->costs;
}

void meg_transits_free(meg_transits *t)
{
    free(t->at);
    *t = (meg_transits){0};
}
