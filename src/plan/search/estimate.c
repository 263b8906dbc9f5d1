/* Estimates: see estimate.h. What a node takes and needs is read off one lowering of a sample on one rank; what a
 * stage takes is the sum over its nodes, cut as plans cut them.
 */
#include "plan/search/estimate.h"
#include "machine/prices.h"
#include "plan/partition/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct load {             /* of a node, or a stage: for one sample */
    double seconds, launches;     /* of kernels, without their launches */
    double weight, state;         /* bytes: weights and their gradients; states of the optimizer */
    double gradient, kept, large; /* of all, for backward; of the largest value */
    double stays[2],
        lasts[2];     /* of kept and of seconds, what a mesh of pixels, of channels does not cut */
    double sum, sums; /* bytes and number of values that a cut of channels adds up */
    double halo[MEG_AXES],
        halos[MEG_AXES]; /* likewise of two rows of neighbours, if cut along the axis */
    double arrives;      /* bytes from stages before */
} load;

typedef struct stages { /* the network in so many stages */
    int count;
    const int *stage; /* (nodes) */
    load *load;       /* NULL: it cannot be cut so */
} stages;

struct meg_estimator {
    const meg_search_ask *ask;
    meg_pool *pool;
    meg_plan_options given;
    load *node; /* (nodes of the source) */
    double launch;
    stages *cut; /* (MEG_STAGES + 1) by number; count 0: not looked at yet */
};

enum {
    PIXELS,
    CHANNELS
};

/* ---- nodes ---- */

static bool lives_on(const meg_station *t, const meg_slot *s)
{
    const meg_block *forward = &t->block[MEG_BLOCK_FORWARD];
    int end = forward->first + forward->count;
    bool framed = (s->region == MEG_FRAME || s->region == MEG_TEMPORARY) && s->born >= 0;
    return framed && s->born < end && s->dies >= end;
}

static int maker_of(const meg_entry *e, const meg_slot *s)
{
    if (s->role == MEG_ROLE_AUX || s->role == MEG_ROLE_SCRATCH) return s->value;
    return s->value < 0 ? -1 : e->graph->value[s->value].maker;
}

static void weigh_program(const meg_estimator *x, const meg_plan *p, load *node)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    const meg_station *t = &e->station[0];
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *in = &t->instr[i];
        if (in->node < 0 || in->seconds <= 0) continue;
        load *l = &node[e->origin[in->node]];
        l->seconds += fmax(0, in->seconds - x->launch);
        l->launches++;
    }
    for (int i = 0; i < t->slots; i++) {
        int maker = maker_of(e, &t->slot[i]);
        if (maker < 0 || !lives_on(t, &t->slot[i])) continue;
        node[e->origin[maker]].kept += (double)t->slot[i].bytes;
    }
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *h = &p->held[i];
        if (e->reader_first[h->value] == e->reader_first[h->value + 1]) continue;
        load *l = &node[e->origin[e->reader[e->reader_first[h->value]]]];
        double bytes = (double)h->bytes;
        *(h->role == MEG_ROLE_STATE ? &l->state : &l->weight) += bytes;
        if (h->role == MEG_ROLE_GRADIENT) l->gradient += bytes;
    }
}

/* Rows that half of a node's output needs beyond half of its input. */
static void weigh_halo(load *l, const meg_graph *g, const meg_node *v, int axis)
{
    const meg_box *in = &g->value[v->in[0]].shape;
    meg_work w = meg_op_whole(g, v);
    int64_t whole = meg_extent(in, axis);
    if (!v->op->linear || meg_extent(&w.out, axis) < 2 || whole < 2) return;
    w.out.hi[axis] = (w.out.lo[axis] + w.out.hi[axis]) / 2;
    meg_box need = meg_op_need(g, v, 0, &w);
    double rows = (double)meg_extent(&need, axis) - (double)whole / 2;
    if (rows < 1) return;
    l->halos[axis]++;
    l->halo[axis] += 2 * rows / (double)whole * (double)meg_box_size(in);
}

static void weigh_graph(meg_estimator *x, double number)
{
    const meg_graph *g = x->ask->graph;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        load *l = &x->node[i];
        double bytes = (double)meg_box_size(&g->value[v->out[0]].shape) * number;
        l->large = bytes;
        if (v->inputs == 0) continue;
        if (v->op->linear) l->sum = bytes / 2, l->sums = 0.5; /* every second one */
        for (int a = MEG_D; a < MEG_AXES; a++) {
            weigh_halo(l, g, v, a);
            l->halo[a] *= number;
        }
    }
}

/* What two ranks of a mesh both have, they would have of any: of x whole and y on one of two, 2 y - x. */
static void weigh_mesh(meg_estimator *x, const char *options, int way)
{
    const meg_search_ask *q = x->ask;
    size_t bytes = ((size_t)q->graph->nodes + 1) * sizeof(load);
    load *half = meg_pool_alloc(x->pool, bytes);
    meg_plan *p = NULL;
    meg_error e;
    bool cut = meg_plan_make_for(q->graph, &e, q->profile, &(meg_world){1, 2}, options, 0, &p) ==
               MEG_OK;
    if (cut) weigh_program(x, p, half);
    for (int i = 0; i < q->graph->nodes; i++) {
        load *l = &x->node[i];
        if (!cut) half[i] = *l;
        l->stays[way] = fmin(l->kept, fmax(0, 2 * half[i].kept - l->kept));
        l->lasts[way] = fmin(l->seconds, fmax(0, 2 * half[i].seconds - l->seconds));
    }
    meg_plan_destroy(p);
}

/* A micro-batch of one sample; two of them, so that gradients are held. */
static meg_status weigh_nodes(meg_estimator *x, meg_error *e, const char *options)
{
    const meg_search_ask *q = x->ask;
    meg_plan *p = NULL;
    MEG_TRY(e, meg_plan_make(q->graph, e, q->profile, options, 0, &p));
    weigh_program(x, p, x->node);
    meg_plan_destroy(p);
    weigh_graph(x, (double)meg_dtype_bytes(q->profile->real));
    const meg_box *image = NULL;
    for (int i = q->graph->values - 1; i >= 0; i--)
        if (q->graph->value[i].kind == MEG_INPUT) image = &q->graph->value[i].shape;
    bool tall = image && meg_extent(image, MEG_H) > 1;
    const char *pixels = tall ? "mesh=h2" : "mesh=w2";
    weigh_mesh(x, meg_pool_text(x->pool, "%s %s", options, pixels), PIXELS);
    weigh_mesh(x, meg_pool_text(x->pool, "%s mesh=c2", options), CHANNELS);
    return MEG_OK;
}

meg_status meg_estimator_new(const meg_search_ask *ask, meg_error *e, meg_pool *pool,
                             const char *options, meg_estimator **out)
{
    meg_estimator *x = meg_pool_alloc(pool, sizeof *x);
    const meg_prices *prices = ask->profile->prices ? ask->profile->prices : meg_prices_builtin();
    *x = (meg_estimator){.ask = ask, .pool = pool};
    x->launch = meg_prices_head_of(prices)->rates.launch;
    x->node = meg_pool_alloc(pool, ((size_t)ask->graph->nodes + 1) * sizeof *x->node);
    x->cut = meg_pool_alloc(pool, (MEG_STAGES + 1) * sizeof *x->cut);
    MEG_TRY(e, meg_plan_options_read(pool, e, ask->options, &x->given));
    MEG_TRY(e, weigh_nodes(x, e, options));
    *out = x;
    return MEG_OK;
}

/* ---- stages ---- */

static void add_load(load *to, const load *from)
{
    to->seconds += from->seconds;
    to->launches += from->launches;
    to->weight += from->weight;
    to->state += from->state;
    to->gradient += from->gradient;
    to->kept += from->kept;
    for (int i = 0; i < 2; i++) {
        to->stays[i] += from->stays[i];
        to->lasts[i] += from->lasts[i];
    }
    to->large = fmax(to->large, from->large);
    to->sum += from->sum;
    to->sums += from->sums;
    for (int a = 0; a < MEG_AXES; a++) {
        to->halo[a] += from->halo[a];
        to->halos[a] += from->halos[a];
    }
}

static void add_arrivals(const meg_estimator *x, const int stage[], load *list)
{
    const meg_graph *g = x->ask->graph;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++) {
            int maker = g->value[g->node[i].in[k]].maker;
            if (maker < 0 || stage[maker] == stage[i]) continue;
            list[stage[i]].arrives += x->node[maker].large;
        }
}

/* Cut as a plan of these words cuts it. */
static const stages *stages_of(meg_estimator *x, int count)
{
    stages *s = &x->cut[count];
    meg_error e;
    if (s->count) return s;
    meg_plan p = {.pool = x->pool, .source = x->ask->graph, .options = x->given};
    p.options.stages = count;
    s->count = count;
    if (meg_plan_stages(&p, &e, NULL) != MEG_OK) return s;
    s->stage = p.stage;
    s->load = meg_pool_alloc(x->pool, (size_t)count * sizeof *s->load);
    for (int i = 0; i < x->ask->graph->nodes; i++)
        add_load(&s->load[p.stage[i]], &x->node[i]);
    add_arrivals(x, p.stage, s->load);
    return s;
}

const int *meg_estimator_stages(meg_estimator *x, int count)
{
    return stages_of(x, count)->stage;
}

void meg_estimator_seconds(const meg_estimator *x, double samples, double out[])
{
    for (int i = 0; i < x->ask->graph->nodes; i++)
        out[i] = x->node[i].seconds * samples + x->node[i].launches * x->launch;
}

/* ---- messages ---- */

typedef struct way {      /* of messages among so many ranks in a row */
    double latency, pace; /* pace: seconds of a byte */
} way;

static way way_of(const meg_machine *m, double ranks)
{
    bool inside = ranks <= (double)m->ranks;
    const meg_link *l = inside ? &m->inside : &m->between;
    double bandwidth = meg_link_bandwidth(l, 1 << 20);
    if (l->all > 0) bandwidth = fmin(bandwidth, l->all / (double)m->ranks);
    return (way){l->latency, 1 / bandwidth};
}

/* ---- a shape ---- */

typedef struct share { /* what a shape leaves for a rank */
    const meg_shape *s;
    double samples;                /* of a micro-batch */
    double pixels, channels, size; /* ranks of a mesh along them; in all */
    double copies;                 /* ranks that share a weight */
    int zero;
    double again; /* of all blocks, so many are run again: 0 .. 1 */
} share;

static share share_of(const meg_estimator *x, const meg_shape *s, const char *words)
{
    share h = {.s = s, .pixels = 1, .channels = s->parts[MEG_C]};
    int64_t each = x->given.batch / s->micro;
    for (int a = MEG_D; a < MEG_AXES; a++)
        h.pixels *= s->parts[a];
    h.size = h.pixels * h.channels;
    h.samples = ceil((double)each / s->replicas);
    h.copies = s->replicas * h.pixels;
    h.zero = strstr(words, "zero=3") ? 3 : strstr(words, "zero=1") ? 1 : 0;
    if (h.zero == 3 && s->directions == 2) h.zero = 1; /* that is what it does there */
    return h;
}

/* What a rank of the mesh has of something. */
static double part_of(const share *h, double whole, const double fixed[2])
{
    if (h->size == 1) return whole;
    double stays = fixed[h->channels > 1 ? CHANNELS : PIXELS];
    return stays + (whole - stays) / h->size;
}

/* Of a micro-batch in a stage, in both passes. */
static double stage_seconds(const meg_estimator *x, const share *h, const load *l)
{
    const meg_machine *m = x->ask->machine;
    way near = way_of(m, h->size), far = way_of(m, 2 * h->size);
    double again = 1 + h->again / 3; /* forward is a third of a step */
    double t = again * (part_of(h, l->seconds, l->lasts) * h->samples + l->launches * x->launch);
    for (int a = MEG_D; a < MEG_AXES; a++) {
        if (h->s->parts[a] == 1) continue;
        double bytes = l->halo[a] * h->samples * h->s->parts[a] / h->size;
        t += 2 * (bytes * near.pace + 2 * l->halos[a] * near.latency);
    }
    if (h->channels > 1) {
        double bytes = 2 * l->sum * h->samples / h->pixels * (h->channels - 1) / h->channels;
        t += 2 * (bytes * near.pace + 2 * l->sums * (h->channels - 1) * near.latency);
    }
    if (h->zero == 3) {
        way all = way_of(m, x->ask->ranks);
        t += 1.5 * l->weight / h->channels * all.pace;
    }
    return t + (l->arrives > 0 ? l->arrives * h->samples / h->size * far.pace + far.latency : 0);
}

/* Of the sums over all that share a weight; half of it is taken to be hidden. */
static double sum_seconds(const meg_estimator *x, const share *h, const load *l)
{
    way all = way_of(x->ask->machine, x->ask->ranks);
    double bytes = 2 * l->gradient / h->channels * (h->copies - 1) / h->copies;
    double buckets = ceil(l->gradient / h->channels / fmax(1, (double)x->given.bucket));
    if (h->copies == 1 || h->zero == 3) return 0;
    return 0.5 * (bytes * all.pace + 2 * buckets * (h->copies - 1) * all.latency);
}

static double stage_bytes(const share *h, const load *l, double frames)
{
    double part = h->samples / h->size, weight = l->weight / h->channels;
    double state = l->state / h->channels, kept = part_of(h, l->kept, l->stays) * h->samples;
    double spared = h->channels > 1 ? 0.4 : 0.75; /* what was summed over ranks is not made again */
    if (h->zero) state /= h->copies;
    if (h->zero == 3) weight /= h->copies;
    return weight + state + 3 * l->large * part + frames * kept * (1 - spared * h->again);
}

/* Stages of a rank: those of its chunks, and of both directions. */
static double rank_bytes(const share *h, const stages *cut, int rank)
{
    const meg_shape *s = h->s;
    double bytes = 0;
    for (int c = 0; c < s->chunks; c++) {
        int at = rank + c * s->pipe, back = s->stages - 1 - at;
        bytes += stage_bytes(h, &cut->load[at], s->frames ? s->frames[at] : 1);
        if (s->directions == 2)
            bytes += stage_bytes(h, &cut->load[back], s->frames[s->stages + back]);
    }
    return bytes;
}

static double most_bytes(const share *h, const stages *cut)
{
    double most = 0;
    for (int r = 0; r < h->s->pipe; r++)
        most = fmax(most, rank_bytes(h, cut, r));
    return most;
}

/* As many blocks are run again as the memory asks for. */
static void run_again(const meg_estimator *x, share *h, const stages *cut)
{
    double all = most_bytes(h, cut), limit = (double)x->ask->memory;
    h->again = 1;
    double least = most_bytes(h, cut);
    if (limit > least && all > least) h->again = fmin(1, fmax(0, (all - limit) / (all - least)));
}

meg_estimate meg_estimate_of(meg_estimator *x, const meg_shape *s, const char *words)
{
    share h = share_of(x, s, words);
    const stages *cut = s->known ? stages_of(x, s->stages) : NULL;
    meg_estimate out = {.seconds = s->bound};
    double longest = 0, sums = 0;
    if (!cut || !cut->load) return out;
    if (strstr(words, "recompute=segments")) run_again(x, &h, cut);
    for (int i = 0; i < s->stages; i++) {
        longest = fmax(longest, stage_seconds(x, &h, &cut->load[i]));
        sums = fmax(sums, sum_seconds(x, &h, &cut->load[i]));
    }
    out.seconds = fmax(s->bound, longest * s->chunks * (double)s->micro * s->longer + sums);
    out.bytes = (int64_t)most_bytes(&h, cut);
    return out;
}
