/* Plans: see plan.h. */
#include "plan/plan.h"
#include "base/nearest.h"
#include "base/registry.h"
#include "comm/allreduce/allreduce.h"
#include "plan/distribute/distribute.h"
#include "plan/lower/lower.h"
#include "plan/partition/placement.h"
#include "plan/partition/segments.h"
#include "plan/partition/stages.h"
#include "plan/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static MEG_REGISTRY_NAME(allreduce_name, meg_allreduce_at)

    /* ---- normalisation groups ---- */

    bool meg_graph_normalises(const meg_graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op->norm_at) return true;
    return false;
}

/* The library's own reduction matches calls by their order, in which stages differ. */
static meg_status check_allreduce(const meg_plan_options *o, meg_error *e)
{
    const meg_allreduce_kind *kind = meg_allreduce_find(o->allreduce);
    if (!kind) return meg_unknown(e, "unknown allreduce", o->allreduce, allreduce_name);
    MEG_CHECK(e, kind->step || o->stages == 1, MEG_EARG,
              "allreduce=%s works on all ranks in one order, but stages=%" PRId64
              " reduce each on their own: use stages=1, or allreduce=ring",
              kind->name, o->stages);
    return MEG_OK;
}

static meg_status check_options(const meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    MEG_TRY(e, check_allreduce(o, e));
    int64_t each = o->batch / o->micro, near = o->micro < o->batch ? o->micro : o->batch;
    while (o->batch % near != 0)
        near--;
    MEG_CHECK(e, o->batch % o->micro == 0, MEG_EARG,
              "micro=%" PRId64 " does not divide batch=%" PRId64 ": use micro=%" PRId64
              ", or another batch",
              o->micro, o->batch, near);
    if (!meg_graph_normalises(p->source)) return MEG_OK;
    int64_t group = o->norm ? o->norm : o->batch;
    MEG_CHECK(e, each % group == 0 || o->micro == 1, MEG_EARG,
              "micro=%" PRId64 " splits the normalisation groups of %" PRId64
              " samples: use norm=%" PRId64 " or a divisor of it, or micro=1",
              o->micro, group, each);
    return MEG_OK;
}

/* Running statistics are sums over the groups of one node (ops/norm/norm.h). Of two nodes, one after the
 * other is right only where each has the whole step at once. */
static meg_status check_states(const meg_plan *p, meg_error *e)
{
    const meg_graph *g = p->source;
    int *writer = meg_pool_alloc(p->pool, ((size_t)g->values + 1) * sizeof *writer);
    bool parts = p->options.micro > 1 || p->world.ranks > 1;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        if (!meg_op_has(v->op, MEG_STATE_PASS) || !(parts || v->op->state_first)) continue;
        meg_mask writes = meg_node_writes(v, MEG_STATE_PASS);
        for (int k = 0; k < v->inputs; k++) {
            if (!(writes & MEG_BIT(MEG_X + k))) continue;
            int other = writer[v->in[k]] - 1;
            MEG_CHECK(e, other < 0 || !v->op->state_first, MEG_EUNSUPPORTED,
                      "%s and %s both go on with %s: give each layer a %s of its own",
                      g->node[other < 0 ? 0 : other].name, v->name, g->value[v->in[k]].name,
                      v->op->name);
            MEG_CHECK(e, other < 0, MEG_EUNSUPPORTED,
                      "%s and %s both change %s, which needs each whole batch on one rank: use "
                      "micro=1 on one rank, or give them running statistics of their own",
                      g->node[other < 0 ? 0 : other].name, v->name, g->value[v->in[k]].name);
            writer[v->in[k]] = i + 1;
        }
    }
    return MEG_OK;
}

/* ---- ranks ---- */

/* Do normalisation groups spread over ranks? */
static bool spreads(const meg_plan *p, int64_t count)
{
    int64_t norm = p->options.norm;
    bool spread = false;
    for (int i = 0; i < p->segments; i++) {
        int parts = p->replicas * p->segment[i].dim[MEG_N];
        spread = spread || p->segment[i].size > p->segment[i].dim[MEG_N];
        for (int k = 1; k < parts; k++)
            spread = spread || !norm || count / norm < parts;
    }
    return spread;
}

/* In how many lists a micro-batch of the first direction comes. */
static int seats_taken(const meg_timetable *t)
{
    int count = 0;
    for (int s = 0; s < t->stages; s++)
        count += meg_timetable_width(t, 0, s);
    return count;
}

/* Evaluation: one micro-batch through all stages, which sit as in training. */
static meg_timetable *forward_only(const meg_plan *p)
{
    const meg_timetable *train = p->entry[MEG_ENTRY_TRAIN].timetable;
    int stages = train->stages;
    meg_timetable *t = meg_pool_alloc(p->pool, sizeof *t);
    *t = (meg_timetable){.schedule = "forward",
                         .stages = stages,
                         .ranks = p->tracks,
                         .micro = 1,
                         .directions = 1,
                         .seat = train->seat,
                         .width = train->width};
    t->direction = meg_pool_alloc(p->pool, sizeof(int));
    t->first = meg_pool_alloc(p->pool, ((size_t)p->tracks + 1) * sizeof(int));
    t->task = meg_pool_alloc(p->pool, (size_t)seats_taken(train) * sizeof *t->task);
    int count = 0;
    for (int r = 0; r < p->tracks; r++) {
        for (int s = 0; s < stages; s++)
            if (meg_timetable_sits(t, 0, s, r))
                t->task[count++] = (meg_task){.kind = MEG_TASK_F, .stage = s};
        t->first[r + 1] = count;
    }
    return t;
}

/* One micro-batch after the other, forward and back, by the first of the directions: for tails that
 * the schedule cannot have. Stages sit as in training; the inverted ones only share the update. */
static meg_timetable *one_way(const meg_plan *p, int micro)
{
    const meg_timetable *train = p->entry[MEG_ENTRY_TRAIN].timetable;
    int stages = train->stages, count = 0;
    size_t copies = (size_t)(train->directions * stages);
    meg_timetable *t = meg_pool_alloc(p->pool, sizeof *t);
    *t = (meg_timetable){.schedule = "serial",
                         .stages = stages,
                         .ranks = p->tracks,
                         .micro = micro,
                         .directions = train->directions,
                         .seat = train->seat,
                         .width = train->width};
    t->direction = meg_pool_alloc(p->pool, (size_t)micro * sizeof(int));
    t->first = meg_pool_alloc(p->pool, ((size_t)p->tracks + 1) * sizeof(int));
    t->task = meg_pool_alloc(p->pool, (size_t)(2 * micro * seats_taken(train)) * sizeof *t->task);
    t->frames = meg_pool_alloc(p->pool, copies * sizeof(int));
    for (size_t i = 0; i < copies; i++)
        t->frames[i] = 1;
    for (int r = 0; r < p->tracks; r++) {
        for (int i = 0; i < 2 * stages * micro; i++) {
            int m = i / (2 * stages), k = i % (2 * stages);
            int s = k < stages ? k : 2 * stages - 1 - k;
            if (meg_timetable_sits(t, 0, s, r))
                t->task[count++] = (meg_task){
                    .kind = k < stages ? MEG_TASK_F : MEG_TASK_B, .stage = s, .micro = m};
        }
        t->first[r + 1] = count;
    }
    return t;
}

/* Where the stages sit. */
static void sit(const meg_plan *p, meg_pipe *pipe)
{
    size_t bytes = (size_t)(p->directions * pipe->stages) * sizeof(int);
    int *seat = meg_pool_alloc(p->pool, bytes), *width = meg_pool_alloc(p->pool, bytes);
    meg_plan_tracks(p, p->directions, seat, width);
    pipe->seat = seat;
    pipe->width = width;
}

static meg_status schedule(meg_plan *p, meg_error *e, meg_entry *out)
{
    const meg_plan_options *o = &p->options;
    const meg_row *row;
    const char *name = o->schedule;
    if (!out->train) {
        out->timetable = forward_only(p);
        return MEG_OK;
    }
    if (strcmp(name, "auto") == 0 && o->micro > 1 && meg_graph_late(p->source)) name = "gpipe";
    if (strcmp(name, "auto") == 0)
        name = o->stages == 1 ? "serial" : o->chunks > 1 ? "interleaved" : "1f1b";
    MEG_TRY(e, meg_row_find(e, name, &row));
    meg_pipe pipe = {.stages = (int)o->stages,
                     .ranks = p->tracks,
                     .micro = out->micro,
                     .replications = (int)o->replications};
    if (o->chunks == 1) sit(p, &pipe);
    meg_timetable *t = NULL;
    meg_error why; /* a tail may have fewer micro-batches than the schedule wants */
    bool tail = out == &p->entry[MEG_ENTRY_TRAIN_TAIL];
    if (tail && meg_row_check(&why, row, &pipe) != MEG_OK) {
        out->timetable = one_way(p, out->micro);
        return MEG_OK;
    }
    MEG_TRY(e, meg_timetable_draw(e, p->pool, row, &pipe, &t));
    out->timetable = t;
    return MEG_OK;
}

static void set_norm(meg_graph *g, int64_t norm)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op->norm_at)
            *(int64_t *)(void *)((char *)g->node[i].attr + g->node[i].op->norm_at - 1) = norm;
}

/* ---- entries ---- */

/* Micro-batches of a partial batch: none larger than usual, none that splits a group. */
static int tail_micro(const meg_plan *p, int64_t batch)
{
    int64_t most = p->options.batch / p->options.micro;
    for (int64_t k = (batch + most - 1) / most; k <= batch; k++) {
        if (batch % k) continue;
        bool whole = !meg_graph_normalises(p->source) || k == 1 ||
                     (p->options.norm && batch / k % p->options.norm == 0);
        if (whole) return (int)k;
    }
    return 1;
}

/* Which segment and stage each node of the fused graph is in; moves between them. */
static meg_status place_nodes(const meg_plan *p, meg_error *e, meg_entry *out, meg_graph *fused)
{
    out->graph = fused;
    if (p->segments == 1) {
        out->origin = meg_pool_alloc(p->pool, ((size_t)fused->nodes + 1) * sizeof(int));
        memcpy(out->origin, out->segment_of, (size_t)fused->nodes * sizeof(int));
    }
    for (int i = 0; i < fused->nodes; i++)
        out->segment_of[i] = p->segment_of[out->segment_of[i]];
    if (p->segments > 1) {
        meg_parting parting = {p->segments, p->feeder};
        meg_status status = meg_graph_moves(fused, e, parting, &out->graph, &out->segment_of);
        if (status != MEG_OK) return status;
        meg_graph_destroy(fused);
    }
    out->stage = calloc((size_t)out->graph->nodes + 1, sizeof *out->stage);
    if (!out->stage) abort();
    for (int i = 0; i < out->graph->nodes; i++)
        out->stage[i] = p->segment[out->segment_of[i]].stage;
    return MEG_OK;
}

/* Are layers cut along this axis? */
static bool cuts(const meg_plan *p, int axis)
{
    for (int i = 0; i < p->segments; i++)
        if (p->segment[i].dim[axis] > 1) return true;
    return false;
}

static meg_status make_entry(meg_plan *p, meg_error *e, int which, int64_t batch, int micro)
{
    static const char *const names[] = {"train", "tail", "eval"};
    meg_entry *out = &p->entry[which];
    bool train = which == MEG_ENTRY_TRAIN || which == MEG_ENTRY_TRAIN_TAIL;
    meg_graph *source = meg_graph_copy(p->source);
    set_norm(source, p->options.norm);
    bool spread = spreads(p, batch / micro);
    meg_phases phases = spread && train ? MEG_PHASED_NORMS : MEG_FUSED;
    if (cuts(p, MEG_D) || cuts(p, MEG_H) || cuts(p, MEG_W)) phases = MEG_PHASED_PIXELS;
    if (cuts(p, MEG_C) || (p->options.phases && train)) phases = MEG_PHASED;
    meg_status status = meg_graph_rebatch(source, e, batch / micro);
    meg_graph *fused = NULL;
    if (status == MEG_OK) status = meg_graph_fuse(source, e, phases, &fused, &out->segment_of);
    meg_graph_destroy(source);
    if (status != MEG_OK) return status;
    MEG_TRY(e, place_nodes(p, e, out, fused));
    out->name = names[which];
    out->train = train;
    out->batch = batch;
    out->micro = micro;
    MEG_TRY(e, schedule(p, e, out));
    return meg_entry_distribute(p, out, e);
}

/* The part of the plan's rank. */
static meg_status lower_entry(meg_plan *p, meg_error *e, meg_entry *out)
{
    const int64_t *cut = meg_plan_samples(p, out->batch / out->micro, p->replicas);
    out->idle = cut[p->replica] == cut[p->replica + 1];
    MEG_TRY(e, meg_plan_lower(p, e, out));
    for (int r = MEG_STEP; r < MEG_REGIONS; r++)
        if (out->bytes[r] > p->bytes[r]) p->bytes[r] = out->bytes[r];
    return MEG_OK;
}

static meg_status make_entries(meg_plan *p, meg_error *e, int64_t samples, bool step_only)
{
    int64_t batch = p->options.batch, tail = step_only ? 0 : samples % batch;
    int micro = (int)p->options.micro;
    /* No step would be the one that was planned. */
    MEG_CHECK(e, samples == 0 || samples >= batch, MEG_EARG,
              "batch=%" PRId64 ", but the data set has only %" PRId64
              " sample%s: use batch=%" PRId64 " or less",
              batch, samples, samples == 1 ? "" : "s", samples);
    MEG_TRY(e, make_entry(p, e, MEG_ENTRY_TRAIN, batch, micro));
    if (tail) MEG_TRY(e, make_entry(p, e, MEG_ENTRY_TRAIN_TAIL, tail, tail_micro(p, tail)));
    if (step_only) return MEG_OK;
    return make_entry(p, e, MEG_ENTRY_EVAL, batch / micro, 1);
}

/* What would fit is another question: advice.h. */
static meg_status check_budget(const meg_plan *p, meg_error *e)
{
    int64_t missing = p->arena - p->options.budget;
    if (p->options.budget == 0 || missing <= 0) return MEG_OK;
    char need[32], have[32];
    meg_print_bytes(p->arena, need);
    meg_print_bytes(p->options.budget, have);
    return meg_fail(e, MEG_EBUDGET,
                    "%s needs %" PRId64 " bytes (%s) at batch=%" PRId64 " micro=%" PRId64
                    ", but the budget is %s: %" PRId64 " bytes are missing",
                    p->source->name, p->arena, need, p->options.batch, p->options.micro, have,
                    missing);
}

/* ---- balance=memory ---- */

/* A plan with the same words, to be changed. */
static meg_plan *plan_like(const meg_plan *p)
{
    meg_pool *pool = meg_pool_new();
    meg_plan *q = meg_pool_alloc(pool, sizeof *q);
    *q = (meg_plan){.owner = p->owner,
                    .pool = pool,
                    .lowered = meg_pool_new(),
                    .source = p->source,
                    .options = p->options,
                    .optimizer = p->optimizer,
                    .settings = p->settings,
                    .profile = p->profile,
                    .world = p->world,
                    .plain = p->plain};
    q->options.feed = MEG_FEED_EACH; /* who has the data does not say where stages begin */
    return q;
}

static void make_held(meg_plan *p)
{
    size_t keys = (size_t)(p->source->values + 1) * MEG_HELD_KEYS;
    p->held_at = meg_pool_alloc(p->lowered, keys * sizeof(int));
}

/* Where stages of like seconds sit, and the timetable of a step. */
static meg_status make_even(meg_plan *q, meg_error *e)
{
    meg_entry *step = &q->entry[MEG_ENTRY_TRAIN];
    q->options.balance = 0;
    MEG_TRY(e, meg_plan_stages(q, e, NULL));
    MEG_TRY(e, meg_plan_segments(q, e));
    MEG_TRY(e, meg_plan_places(q, e));
    step->train = true;
    step->micro = (int)q->options.micro;
    return schedule(q, e, step);
}

/* A micro-batch of a replica, on one rank. Two of them where gradients are summed over micro-batches
 * or ranks, since they are held then. */
static meg_status make_whole(meg_plan *q, meg_error *e, const meg_plan *even)
{
    meg_plan_options *o = &q->options;
    bool split = even->entry[MEG_ENTRY_TRAIN].timetable->split;
    int64_t each = (o->batch / o->micro + even->replicas - 1) / even->replicas;
    int64_t micro = o->micro > 1 || even->replicas > 1 ? 2 : 1;
    q->world = (meg_world){0, 1};
    o->batch = each * micro;
    o->micro = micro;
    o->norm = meg_graph_normalises(q->source) ? each : 0;
    o->stages = o->chunks = o->replicas = o->wide = 1;
    o->replications = 0;
    o->zero = MEG_ZERO_NOTHING;
    if (o->recompute == MEG_RECOMPUTE_BLOCKS) o->recompute = MEG_RECOMPUTE_CHEAP;
    o->assign = "";
    o->mesh = "1";
    if (!split) strcpy(o->schedule, "serial");
    MEG_TRY(e, meg_plan_stages(q, e, NULL));
    MEG_TRY(e, meg_plan_segments(q, e));
    MEG_TRY(e, meg_plan_places(q, e));
    make_held(q);
    MEG_TRY(e, make_entry(q, e, MEG_ENTRY_TRAIN, o->batch, (int)micro));
    return lower_entry(q, e, &q->entry[MEG_ENTRY_TRAIN]);
}

static meg_status stages_by_memory(meg_plan *p, meg_error *e)
{
    meg_plan *even = plan_like(p), *whole = plan_like(p);
    meg_status status = make_even(even, e);
    if (status == MEG_OK) status = make_whole(whole, e, even);
    if (status == MEG_OK) status = meg_plan_stages(p, e, &(meg_trial){even, whole});
    meg_plan_destroy(whole);
    meg_plan_destroy(even);
    return status;
}

/* By hand, stages are what they are. */
static meg_status make_stages(meg_plan *p, meg_error *e)
{
    const meg_plan_options *o = &p->options;
    bool memory = o->balance == 1 && o->stages > 1 && !o->assign[0];
    return memory ? stages_by_memory(p, e) : meg_plan_stages(p, e, NULL);
}

/* All that is this rank's alone. */
static meg_status lower_all(meg_plan *p, meg_error *e)
{
    make_held(p);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) MEG_TRY(e, lower_entry(p, e, &p->entry[i]));
    for (int r = 0; r < MEG_REGIONS; r++)
        if (p->bytes[r]) p->arena = meg_plan_base(p, (meg_region)r) + p->bytes[r];
    p->seconds = p->entry[MEG_ENTRY_TRAIN].seconds;
    return check_budget(p, e);
}

static meg_status make(meg_plan *p, meg_error *e, const meg_plan_input *in, bool step_only)
{
    MEG_CHECK(e, p->source->losses > 0, MEG_EARG, "%s has no loss to train for", p->source->name);
    MEG_TRY(e, meg_plan_parse(p, e, in->options));
    p->samples = in->samples;
    MEG_TRY(e, check_options(p, e));
    MEG_TRY(e, check_states(p, e));
    MEG_TRY(e, make_stages(p, e));
    MEG_TRY(e, meg_plan_segments(p, e));
    MEG_TRY(e, meg_plan_places(p, e));
    return make_entries(p, e, in->samples, step_only);
}

meg_status meg_plan_turn(meg_plan *p, meg_error *e, int rank)
{
    for (int i = 0; i < MEG_ENTRIES; i++) {
        meg_entry *out = &p->entry[i];
        meg_entry_clear_stations(out);
        out->lines = 0;
        memset(out->bytes, 0, sizeof out->bytes);
    }
    p->held_slots = p->tags = 0;
    memset(p->bytes, 0, sizeof p->bytes);
    p->arena = 0;
    meg_pool_free(p->lowered);
    p->lowered = meg_pool_new();
    meg_plan_seat(p, rank);
    return lower_all(p, e);
}

meg_status meg_plan_make(const meg_graph *g, meg_error *e, const meg_profile *profile,
                         const char *options, int64_t samples, meg_plan **out)
{
    return meg_plan_make_for(g, e, profile, &(meg_world){0, 1}, options, samples, out);
}

meg_status meg_plan_make_for(const meg_graph *g, meg_error *e, const meg_profile *profile,
                             const meg_world *world, const char *options, int64_t samples,
                             meg_plan **out)
{
    return meg_plan_from(g, e, &(meg_plan_input){profile, world, options, samples, NULL}, out);
}

meg_status meg_plan_begin(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          bool step_only, meg_plan **out)
{
    meg_pool *pool = meg_pool_new();
    meg_plan *p = meg_pool_alloc(pool, sizeof *p);
    bool *plain = meg_pool_alloc(pool, (size_t)g->values + 1);
    if (in->plain) memcpy(plain, in->plain, (size_t)g->values * sizeof *plain);
    *p = (meg_plan){.owner = g->owner,
                    .pool = pool,
                    .lowered = meg_pool_new(),
                    .source = g,
                    .profile = *in->profile,
                    .world = *in->world,
                    .plain = plain};
    meg_status status = make(p, e, in, step_only);
    if (status == MEG_OK) *out = p;
    else meg_plan_destroy(p);
    return status;
}

meg_status meg_plan_from(const meg_graph *g, meg_error *e, const meg_plan_input *in, meg_plan **out)
{
    meg_plan *p = NULL;
    MEG_TRY(e, meg_plan_begin(g, e, in, false, &p));
    meg_status status = lower_all(p, e);
    if (status == MEG_OK) *out = p;
    else meg_plan_destroy(p);
    return status;
}

void meg_plan_destroy(meg_plan *p)
{
    if (!p) return;
    for (int i = 0; i < MEG_ENTRIES; i++)
        meg_entry_clear(&p->entry[i]);
    free(p->held);
    meg_pool_free(p->lowered);
    meg_pool_free(p->pool);
}

/* ---- profile without a device ---- */

static void describe_plain(void *context, const meg_request *r, meg_spec *s)
{
    (void)context; /* plain formats, nothing in place, no scratch: all zero */
    strcpy(s->impl, "plain");
    s->flops = meg_request_flops(r);
    s->traffic = meg_request_traffic(r, s, 0);
}

const meg_profile meg_profile_plain = {NULL, describe_plain, MEG_F64, false, NULL};
