/* Training steps of a network on several ranks, threads of this process, and what all of them
 * together know of it: gradients and running statistics by name. Ranks that hold the same value must
 * hold the same bits (of sums over ranks) or the same number (of what each computes for itself).
 * Messages are of the rendezvous kind, so that a program that relies on buffers hangs here.
 */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "compare.h"
#include "exec/alike.h"

#include <pthread.h>
#include <unistd.h>

enum {
    RANKS_MOST = 16
};

typedef struct ranks_case {
    const meg_graph *graph;
    const char *plan, *device;
    int ranks;
    int steps;       /* gradients are the last one's */
    double rate;     /* of learning; 0: the usual */
    int64_t samples; /* of the data set: a partial last batch follows the steps */
    bool eval;     /* then a batch is evaluated; its loss counts (else it only takes its memory) */
    int threads;   /* of a rank; 0: one */
    uint64_t seed; /* of the first weights */
    bool weights;  /* compared instead of gradients, which are not kept */
} ranks_case;

typedef struct ranks_one { /* one rank's work */
    const ranks_case *c;
    meg_comm *comm;
    meg_error error;
    network_result *result;
    bool *has; /* of the result's tensors */
    int plain; /* weights that became plain, since ranks are unlike */
} ranks_one;

/* Does a stage of this rank compute with the value? Told from the stages of the nodes and the
 * places of the stages, not from what the plan made of them. */
static inline bool ranks_uses(const meg_plan *p, int value)
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    bool two = strstr("mast master chimera", p->options.schedule) != NULL;
    for (int i = 0; i < (two ? 2 : 1) * t->graph->nodes; i++) {
        int v = i % t->graph->nodes, at = (i / t->graph->nodes) * (int)p->options.stages;
        int local = p->world.rank % p->each - p->place[at + t->stage[v]];
        if (local < 0 || local >= p->segment[t->segment_of[v]].size) continue;
        for (int k = 0; k < t->graph->node[v].inputs; k++)
            if (t->graph->node[v].in[k] == value) return true;
    }
    return false;
}

/* A rank holds what its stages use, weights with gradient and optimizer state, and nothing else.
 * Counts what is wrong. */
static inline int ranks_check_held(const meg_plan *p)
{
    const meg_graph *g = p->entry[MEG_ENTRY_TRAIN].graph;
    int states = meg_optimizer_states(p->optimizer, p->settings), wrong = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        bool weight = v->kind == MEG_PARAMETER;
        int want = (weight ? 2 + states : meg_kind_lasts(v->kind)) * ranks_uses(p, i), held = 0;
        for (int k = 0; k < p->held_slots; k++)
            held += p->held[k].value == i;
        bool part = p->options.zero && weight; /* its part of the states, or of all, may be empty */
        bool all = p->options.zero == MEG_ZERO_ALL;
        if (held == want || (part && want && (held == 2 || (all && held == 0)))) continue;
        fprintf(stderr, "rank %d: %d held slots of %s, expected %d\n", p->world.rank, held, v->name,
                want);
        wrong++;
    }
    return wrong;
}

static inline void ranks_take(meg_engine *x, ranks_one *one, int value, meg_role role)
{
    const meg_value *v = &meg_engine_graph(x)->value[value];
    network_result *r = one->result;
    int at = r->tensors++;
    if (at >= NETWORK_TENSORS) abort();
    snprintf(r->name[at], sizeof r->name[at], "%s%s", v->name,
             role == MEG_ROLE_STATE ? " (optimizer)" : "");
    r->gradient[at] = v->kind == MEG_PARAMETER && role != MEG_ROLE_STATE; /* or the weight */
    r->count[at] = meg_box_size(&v->shape);
    r->data[at] = calloc((size_t)r->count[at], sizeof(double));
    for (int64_t k = 0; k < r->count[at]; k++)
        r->data[at][k] = NAN; /* a rank may hold a part */
    network_sink s = {v, r->data[at], meg_engine_real(x)};
    one->has[at] = meg_engine_get(x, value, role, 0, network_take, &s);
}

static inline void ranks_collect(meg_engine *x, ranks_one *one)
{
    const meg_graph *g = meg_engine_graph(x);
    const meg_plan *p = meg_engine_plan(x);
    bool states = meg_optimizer_states(p->optimizer, p->settings) > 0;
    for (int i = 0; i < g->values; i++) {
        meg_kind kind = g->value[i].kind;
        if (kind == MEG_STATE || kind == MEG_FIXED) ranks_take(x, one, i, MEG_ROLE_VALUE);
        if (kind != MEG_PARAMETER) continue;
        ranks_take(x, one, i, one->c->weights ? MEG_ROLE_VALUE : MEG_ROLE_GRADIENT);
        if (states) ranks_take(x, one, i, MEG_ROLE_STATE);
    }
}

/* One step; losses of several are told apart by a factor. */
static inline meg_status ranks_step(ranks_one *one, meg_engine *x, int entry, int number)
{
    const meg_entry *t = &meg_engine_plan(x)->entry[entry];
    meg_feed f;
    meg_outcome o = {0};
    network_feed(one->c->graph, t->batch, &f);
    f.step = (uint64_t)number;
    if (one->c->rate > 0) f.scalars.lr = one->c->rate;
    meg_status status = meg_engine_step(x, &one->error, entry, &f, &o);
    network_unfeed(&f);
    one->result->loss += (1 + number) * o.loss;
    one->result->correct += o.correct;
    one->result->error += (1 + number) * o.error;
    return status;
}

static inline meg_status ranks_steps(ranks_one *one, meg_device *d, meg_plan *p)
{
    const ranks_case *c = one->c;
    meg_engine *x = NULL;
    int number = 0;
    meg_status status = meg_engine_new(p, d, one->comm, &one->error, MEG_FILL, &x);
    if (status == MEG_OK) meg_engine_start(x, 5 + c->seed);
    for (; number < c->steps && status == MEG_OK; number++)
        status = ranks_step(one, x, MEG_ENTRY_TRAIN, number);
    if (status == MEG_OK && p->entry[MEG_ENTRY_TRAIN_TAIL].batch)
        status = ranks_step(one, x, MEG_ENTRY_TRAIN_TAIL, number++);
    network_result *r = one->result;
    double loss = r->loss, correct = r->correct, error = r->error;
    if (status == MEG_OK) status = ranks_step(one, x, MEG_ENTRY_EVAL, number);
    if (!c->eval) r->loss = loss, r->correct = correct, r->error = error;
    if (status == MEG_OK) {
        one->result->predicted = p->arena;
        one->result->touched = meg_engine_touched(x);
        ranks_collect(x, one);
    }
    meg_engine_free(x);
    return status;
}

/* ./do fuzz --far: many ranks in double are on `far`, and still judged by one on ref64. */
static inline const char *ranks_device(const ranks_case *c)
{
    bool far = c->ranks > 1 && strcmp(c->device, "ref64") == 0 && getenv("MEGALITH_TESTS_FAR");
    return far ? "far" : c->device;
}

static inline void ranks_run_rank(ranks_one *one)
{
    meg_error *e = &one->error;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    char options[512];
    snprintf(options, sizeof options, "keep_grads=%d %s", !one->c->weights, one->c->plan);
    meg_status status = meg_device_open(e, ranks_device(one->c),
                                        one->c->threads ? one->c->threads : 1, &d);
    meg_world world = {meg_comm_rank(one->comm), meg_comm_size(one->comm)};
    if (status == MEG_OK) {
        meg_profile profile = meg_profile_of(d);
        meg_plan_input in = {&profile, &world, options, one->c->samples, NULL};
        meg_alike alike = {0};
        status = meg_plan_alike(one->comm, e, one->c->graph, &in, &alike);
        p = alike.plan;
        one->plain = alike.plain;
    }
    if (status == MEG_OK && !one->c->weights && ranks_check_held(p) > 0)
        status = meg_fail(e, MEG_EARG, "it holds what it should not, or too little");
    if (status == MEG_OK) status = ranks_steps(one, d, p);
    if (status != MEG_OK) { /* the others would wait for ever */
        fprintf(stderr, "rank %d, %s: %s\n", world.rank, one->c->plan, e->message);
        _exit(1);
    }
    meg_plan_destroy(p);
    meg_device_close(d);
}

static inline void *ranks_run_one(void *argument)
{
    ranks_one *one = argument;
    ranks_run_rank(one);
    meg_comm_free(one->comm);
    return NULL;
}

/* What one rank holds joins what others do. */
static inline void ranks_join(double to[], const double from[], int64_t count, int rank,
                              const char *name)
{
    double scale = 1e-300;
    for (int64_t k = 0; k < count; k++)
        if (!isnan(from[k])) scale = fmax(scale, fabs(from[k]));
    for (int64_t k = 0; k < count; k++) {
        if (isnan(from[k])) continue;
        if (isnan(to[k])) to[k] = from[k];
        double apart = fabs(from[k] - to[k]) / scale;
        if (apart > 1e-12) fail_msg("rank %d differs by %g in %s", rank, apart, name);
    }
}

/* Everything that any rank knows. */
static inline network_result *ranks_merge(ranks_one one[], int ranks)
{
    network_result *all = calloc(1, sizeof *all);
    all->loss = one[0].result->loss;
    all->correct = one[0].result->correct;
    all->error = one[0].result->error;
    all->tensors = one[0].result->tensors;
    for (int i = 0; i < all->tensors; i++) {
        memcpy(all->name[i], one[0].result->name[i], sizeof all->name[i]);
        all->count[i] = one[0].result->count[i];
        all->gradient[i] = one[0].result->gradient[i];
        all->data[i] = calloc((size_t)all->count[i], sizeof(double));
        for (int64_t k = 0; k < all->count[i]; k++)
            all->data[i][k] = NAN;
        for (int r = 0; r < ranks; r++)
            if (one[r].has[i])
                ranks_join(all->data[i], one[r].result->data[i], all->count[i], r, all->name[i]);
        for (int64_t k = 0; k < all->count[i]; k++)
            if (isnan(all->data[i][k])) fail_msg("nobody has all of %s", all->name[i]);
    }
    return all;
}

static inline network_result *ranks_run(const ranks_case *c)
{
    meg_error e;
    meg_comm *comm[RANKS_MOST];
    pthread_t thread[RANKS_MOST];
    ranks_one one[RANKS_MOST] = {{0}};
    meg_threads_options o = {.ranks = c->ranks, .rendezvous = true};
    if (meg_comm_threads(&e, &o, comm) != MEG_OK) fail_msg("%s", e.message);
    for (int r = 0; r < c->ranks; r++) {
        one[r] = (ranks_one){.c = c,
                             .comm = comm[r],
                             .result = calloc(1, sizeof(network_result)),
                             .has = calloc(NETWORK_TENSORS, sizeof(bool))};
        if (pthread_create(&thread[r], NULL, ranks_run_one, &one[r])) fail_msg("no thread");
    }
    for (int r = 0; r < c->ranks; r++)
        pthread_join(thread[r], NULL);
    network_result *all = ranks_merge(one, c->ranks);
    for (int r = 0; r < c->ranks; r++) {
        if (one[r].result->predicted != one[r].result->touched)
            fail_msg("%s: rank %d: predicted %lld bytes, measured %lld", c->plan, r,
                     (long long)one[r].result->predicted, (long long)one[r].result->touched);
        network_free(one[r].result);
        free(one[r].has);
    }
    return all;
}

/* ---- comparison (tests/compare.h) ---- */

static inline network_result *ranks_run_own(const void *context)
{
    return ranks_run(context);
}

/* Many ranks give the answer of the judge: one rank on ref64. */
static inline bool ranks_agree(const ranks_case *judge, const ranks_case *many, const char *what)
{
    ranks_case alone = *judge, phased;
    char words[1024];
    alone.device = many->device;
    phased = alone;
    phased.plan = words;
    bool same = strstr(judge->plan, "phases=") != NULL;
    snprintf(words, sizeof words, "%s phases=yes", judge->plan);
    compare_own own = {.run = ranks_run_own, .context = &alone, .phased = same ? NULL : &phased};
    assert_string_equal(judge->device, "ref64");
    network_result *a = ranks_run(judge), *b = ranks_run(many);
    bool exact = strcmp(many->device, "ref64") == 0;
    bool good = exact ? compare_same(a, b, what) : compare_near(a, b, &own, what);
    network_free(a);
    network_free(b);
    return good;
}

#endif
