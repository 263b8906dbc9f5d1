/* The engine: see engine.h. It walks an entry (plan/program/walk.h) and issues what it meets: kernels to
 * the device, messages to the traffic list. It runs ahead of the device as far as the
 * queue has room, and waits where a kernel needs memory that traffic holds, where the queue is full,
 * and at the end of the step. Receives are posted
 * as soon as their frame is free, so that the sender finds them: a long skip's gradient comes back
 * long before it is wanted, and its sender needs the memory.
 */
#include "exec/engine.h"
#include "exec/compile.h"
#include "exec/prove.h"
#include "exec/traffic.h"
#include "plan/program/staging.h"
#include "plan/program/tags.h"
#include "plan/program/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUTCOMES = 3, /* numbers that ranks tell each other after a step */
    TOLD = 2      /* steps of which they are under way */
};

typedef struct telling { /* what a rank tells, then what all together have told */
    double sum[OUTCOMES], scratch[OUTCOMES];
    meg_reduction_spec spec;
} telling;

struct meg_engine {
    meg_plan *plan;
    meg_device *device;
    meg_comm *comm, *own; /* own: made here, where none was given */
    meg_traffic_list *traffic;
    meg_arena *arena;
    int fill;
    meg_compiled entry[MEG_ENTRIES];
    int64_t steps, asked; /* run; whose outcomes were asked for */
    telling told[TOLD];
    int last;           /* entry of the last step; -1: none */
    struct run *paused; /* a step that has gone forward and waits to go back; NULL: none */
};

typedef struct run { /* one step of an entry */
    meg_engine *x;
    const meg_entry *entry;
    meg_compiled *compiled;
    const meg_feed *feed;
    int loads, reductions; /* used so far */
    meg_walk walk;
    bool waits;   /* what the walk has come to is still to be done */
    char *states; /* running statistics as they were before; NULL: nobody asked */
} run;

/* ---- making ---- */

static meg_status make_arena(meg_engine *x, meg_error *e)
{
    bool far = meg_device_kind_of(x->device)->far;
    meg_staging staging = far ? meg_plan_staging(x->plan) : (meg_staging){0};
    meg_arena_spec spec = {x->plan->arena, x->fill, &staging};
    meg_status status = meg_arena_new(x->device, e, &spec, &x->arena);
    free(staging.stretch);
    return status;
}

static meg_status build(meg_engine *x, meg_error *e)
{
    int ranks = meg_comm_size(x->comm), rank = meg_comm_rank(x->comm);
    const meg_world *w = &x->plan->world;
    MEG_CHECK(e, w->ranks == ranks && w->rank == rank, MEG_EARG,
              "the plan is for rank %d of %d, but this is rank %d of %d", w->rank, w->ranks, rank,
              ranks);
    MEG_CHECK(e, ranks == 1 || x->plan->tags < meg_comm_tags(x->comm), MEG_EUNSUPPORTED,
              "the plan tells %d kinds of messages apart, but %s has tags for %d: use fewer "
              "micro-batches, or fewer stages",
              x->plan->tags, meg_comm_library(x->comm), meg_comm_tags(x->comm) - 1);
    MEG_TRY(e, meg_prove(x->comm, e, x->plan));
    MEG_TRY(e, make_arena(x, e));
    x->traffic = meg_traffic_new(x->comm, x->device, x->arena);
    meg_site site = {x->device, x->comm};
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (x->plan->entry[i].batch) MEG_TRY(e, meg_compile(&x->entry[i], e, x->plan, i, &site));
    return MEG_OK;
}

meg_status meg_engine_new(meg_plan *p, meg_device *d, meg_comm *comm, meg_error *e, int fill,
                          meg_engine **out)
{
    meg_engine *x = calloc(1, sizeof *x);
    if (!x) return meg_fail(e, MEG_ENOMEM, "no memory for an engine");
    *x = (meg_engine){.plan = p, .device = d, .comm = comm, .fill = fill, .last = -1};
    meg_status status = comm ? MEG_OK : meg_comm_alone(e, &x->own);
    if (!comm) x->comm = x->own;
    if (status == MEG_OK) status = build(x, e);
    if (status == MEG_OK) *out = x;
    else meg_engine_free(x);
    return status;
}

void meg_engine_free(meg_engine *x)
{
    if (!x) return;
    meg_device_wait(x->device);
    if (x->paused) free(x->paused->states);
    free(x->paused);
    meg_traffic_free(x->traffic); /* before the memory that messages use */
    for (int i = 0; i < MEG_ENTRIES; i++)
        meg_compiled_clear(&x->entry[i]);
    meg_arena_free(x->arena);
    meg_comm_free(x->own);
    free(x);
}

/* ---- running ---- */

/* Of an operand's slot; -1: there is none. */
static int64_t place(const run *r, const meg_walk *w, int operand)
{
    int slot = w->instr->slot[operand];
    return slot < 0 ? -1 : meg_slot_place(r->x->plan, w->station, &w->station->slot[slot], w->line);
}

/* Until a kernel may touch these operands, and the queue has room. */
static meg_status wait_for(run *r, meg_error *e, const meg_station *t, const meg_instr *in,
                           const int64_t at[MEG_OPERANDS])
{
    for (;;) {
        bool held = !meg_device_look(r->x->device).room;
        for (int o = 0; o < MEG_OPERANDS && !held; o++) {
            bool writes = in->written & MEG_BIT(o);
            held = at[o] >= 0 &&
                   meg_traffic_holds(r->x->traffic, at[o], t->slot[in->slot[o]].bytes, writes);
        }
        if (!held) return MEG_OK;
        MEG_TRY(e, meg_traffic_wait(r->x->traffic, e));
    }
}

static void post_traffic(run *r, const meg_walk *w)
{
    meg_engine *x = r->x;
    const meg_line *line = w->line;
    const meg_instr *in = w->instr;
    int operand = in->code == MEG_RECV ? MEG_Y : MEG_X;
    const meg_slot *slot = &w->station->slot[in->slot[operand]];
    meg_frame_use *frame = meg_compiled_frame(r->compiled, w->station, line->frame);
    meg_traffic_item item = {
        .code = in->code,
        .peer = in->peer,
        .tag = in->code == MEG_REDUCE ? in->tag : in->tag + line->micro,
        .at = place(r, w, operand),
        .bytes = slot->bytes,
        .after = in->code == MEG_RECV ? frame->last : meg_device_look(x->device).put,
        .micro = line->micro,
        .gradient = slot->role == MEG_ROLE_GRADIENT,
        .what = slot->value < 0 ? "gradients" : r->entry->graph->value[slot->value].name};
    if (in->code == MEG_REDUCE) {
        meg_reduction_spec *s = &r->compiled->reduction[r->reductions++];
        int64_t scratch = place(r, w, MEG_SCRATCH);
        *s = meg_compiled_reduction(r->compiled, &r->entry->team[in->peer], in, slot);
        s->data.data = meg_arena_staging(x->arena, item.at);
        s->scratch = scratch < 0 ? NULL : meg_arena_staging(x->arena, scratch);
        item.reduce = s;
    }
    meg_traffic_add(x->traffic, &item);
}

static void issue_load(run *r, const meg_walk *w, int64_t to)
{
    meg_load *l = &r->compiled->load[r->loads++];
    const meg_slot *slot = &w->station->slot[w->instr->slot[MEG_Y]];
    meg_stretch memory = {to, to + meg_load_bytes(w->station, slot)};
    const meg_fed *fed = slot->role == MEG_ROLE_VALUE ? r->compiled->fed[slot->value] : NULL;
    *l = (meg_load){r->entry, w->station, slot, r->feed, fed, w->line->micro};
    meg_arena_load(r->x->arena, &memory, meg_load_run, l);
}

/* Memory that a message still reads is left as it is. To wait for the message would be a deadlock
 * where its receiver needs this rank to go on, or is this rank itself. */
static meg_status issue_free(run *r, meg_error *e, const meg_walk *w)
{
    meg_engine *x = r->x;
    int64_t bytes = w->station->slot[w->instr->slot[MEG_X]].bytes, at = place(r, w, MEG_X);
    while (!meg_traffic_idle(x->traffic) && !meg_device_look(x->device).room)
        MEG_TRY(e, meg_traffic_wait(x->traffic, e));
    if (!meg_traffic_holds(x->traffic, at, bytes, true)) meg_arena_release(x->arena, at, bytes);
    return MEG_OK;
}

static meg_status issue_kernel(run *r, meg_error *e, const meg_walk *w)
{
    meg_engine *x = r->x;
    int64_t at[MEG_OPERANDS];
    meg_moment moment = {r->feed->seed, r->feed->step,
                         r->entry->batch / r->entry->micro * w->line->micro, r->entry->batch};
    for (int o = 0; o < MEG_OPERANDS; o++)
        at[o] = place(r, w, o);
    if (!meg_traffic_idle(x->traffic)) MEG_TRY(e, wait_for(r, e, w->station, w->instr, at));
    if (w->instr->code == MEG_LOAD) issue_load(r, w, at[MEG_Y]);
    else
        meg_arena_launch(x->arena, meg_compiled_kernel(r->compiled, w->station, w->at), at,
                         &moment);
    return MEG_OK;
}

static meg_status issue(run *r, meg_error *e, const meg_walk *w)
{
    bool moved;
    meg_code code = w->instr->code;
    if (code == MEG_SEND || code == MEG_REDUCE) post_traffic(r, w);
    else if (code != MEG_FREE) MEG_TRY(e, issue_kernel(r, e, w));
    else if (meg_device_releases(r->x->device)) MEG_TRY(e, issue_free(r, e, w));
    if (meg_traffic_idle(r->x->traffic)) return MEG_OK;
    return meg_traffic_advance(r->x->traffic, e, &moved);
}

static meg_status do_one(run *r, meg_error *e)
{
    const meg_walk *w = &r->walk;
    switch (w->what) {
    case MEG_WALK_POST:
        post_traffic(r, w);
        break;
    case MEG_WALK_ISSUE:
        return issue(r, e, w);
    case MEG_WALK_END:
        meg_compiled_frame(r->compiled, w->station, w->line->frame)->last =
            meg_device_look(r->x->device).put;
    }
    return MEG_OK;
}

/* To the end of the step, or until it is about to go back: the receives of that are posted by then. */
static meg_status go_on(run *r, meg_error *e, bool forward)
{
    if (r->waits) MEG_TRY(e, do_one(r, e));
    r->waits = false;
    while (meg_walk_next(&r->walk)) {
        bool back = r->walk.what == MEG_WALK_ISSUE && r->walk.line->block > MEG_BLOCK_FORWARD;
        r->waits = forward && back;
        if (r->waits) return MEG_OK;
        MEG_TRY(e, do_one(r, e));
    }
    return MEG_OK;
}

/* ---- results ---- */

static void read_totals(run *r)
{
    int64_t bytes = meg_dtype_bytes(r->entry->real);
    for (int i = 0; i < r->compiled->totals; i++)
        meg_arena_read(r->x->arena, r->compiled->total[i].at, bytes, &r->compiled->total[i].number);
}

static double number_of(const meg_total *t, meg_dtype real)
{
    float small;
    if (real == MEG_F64) return t->number;
    memcpy(&small, &t->number, sizeof small);
    return (double)small;
}

/* Losses and right answers of all ranks: every station has its own share. Their sum is under way
 * while the next step runs, so that no rank waits for another at the end of a step. */
static meg_status tell(run *r, meg_error *e)
{
    meg_engine *x = r->x;
    telling *t = &x->told[x->steps++ % TOLD];
    bool wish = r->feed->wish && r->feed->wish(r->feed->context);
    *t = (telling){.sum = {0, 0, wish}};
    for (int i = 0; i < r->compiled->totals; i++) {
        const meg_total *total = &r->compiled->total[i];
        t->sum[total->sum] += total->weight * number_of(total, r->entry->real);
    }
    if (meg_comm_size(x->comm) == 1) return MEG_OK;
    t->spec = (meg_reduction_spec){.algorithm = &meg_allreduce_halving_doubling,
                                   .ranks = meg_comm_size(x->comm),
                                   .data = {t->sum, OUTCOMES, MEG_NUMBER_F64},
                                   .scratch = t->scratch,
                                   .tag = MEG_TAG_OUTCOME};
    meg_traffic_item item = {.code = MEG_REDUCE,
                             .tag = MEG_TAG_OUTCOME,
                             .host = t->sum,
                             .bytes = sizeof t->sum,
                             .reduce = &t->spec,
                             .what = "losses",
                             .lasting = true};
    bool moved;
    meg_traffic_add(x->traffic, &item);
    return meg_traffic_advance(x->traffic, e, &moved);
}

int meg_engine_waiting(const meg_engine *x)
{
    return (int)(x->steps - x->asked);
}

meg_status meg_engine_outcome(meg_engine *x, meg_error *e, meg_outcome *out)
{
    MEG_CHECK(e, x->asked < x->steps, MEG_EARG, "no step was run whose outcome is not known");
    const telling *t = &x->told[x->asked++ % TOLD];
    while (meg_traffic_has(x->traffic, t->sum))
        MEG_TRY(e, meg_traffic_wait(x->traffic, e));
    const meg_graph *g = x->plan->source;
    bool real = g->correct >= 0 && g->node[g->value[g->correct].maker].op->real_target;
    *out = (meg_outcome){.loss = t->sum[0], .wish = t->sum[2] > 0};
    *(real ? &out->error : &out->correct) = t->sum[1];
    MEG_CHECK(e, isfinite(out->loss), MEG_ENAN, "the loss is %f", out->loss);
    return MEG_OK;
}

static meg_status begin(meg_engine *x, meg_error *e, int which, const meg_feed *feed, run *out)
{
    const meg_entry *entry = &x->plan->entry[which];
    meg_engine_give_up(x);
    MEG_TRY(e, meg_compiled_feed(&x->entry[which], e, feed));
    MEG_CHECK(e, meg_engine_waiting(x) < TOLD, MEG_EARG,
              "the outcomes of %d steps are not asked for yet: ask before the next", TOLD);
    *out = (run){.x = x, .entry = entry, .compiled = &x->entry[which], .feed = feed};
    out->walk = meg_walk_new(entry);
    x->last = which;
    return MEG_OK;
}

static meg_status end(run *r, meg_error *e)
{
    meg_engine *x = r->x;
    while (!meg_traffic_idle(x->traffic))
        MEG_TRY(e, meg_traffic_wait(x->traffic, e));
    read_totals(r);
    meg_device_wait(x->device);
    return tell(r, e);
}

meg_status meg_engine_run(meg_engine *x, meg_error *e, int which, const meg_feed *feed)
{
    run r;
    MEG_TRY(e, begin(x, e, which, feed, &r));
    MEG_TRY(e, go_on(&r, e, false));
    return end(&r, e);
}

/* ---- in two halves ---- */

/* Forward changes them, and on many ranks they are whole again only when the step is done. */
static int64_t copy_states(meg_engine *x, char *buffer, bool back)
{
    const meg_graph *g = meg_engine_graph(x);
    int64_t used = 0;
    for (int i = 0; i < x->plan->held_slots; i++) {
        const meg_held_slot *h = &x->plan->held[i];
        if (h->role != MEG_ROLE_VALUE || g->value[h->value].kind != MEG_STATE) continue;
        meg_mapping m = {.at = meg_plan_base(x->plan, MEG_HELD) + h->offset,
                         .bytes = h->bytes,
                         .reads = !back,
                         .writes = back};
        if (buffer) {
            meg_arena_map(x->arena, &m);
            if (back) memcpy(m.data, buffer + used, (size_t)h->bytes);
            else memcpy(buffer + used, m.data, (size_t)h->bytes);
            meg_arena_unmap(x->arena, &m);
        }
        used += h->bytes;
    }
    return used;
}

/* The run that is to be paused; NULL after an error. */
static run *begin_half(meg_engine *x, meg_error *e, int which, const meg_feed *feed)
{
    run *r = calloc(1, sizeof *r);
    char *states = malloc((size_t)copy_states(x, NULL, false) + 1);
    meg_status status = r && states ? begin(x, e, which, feed, r)
                                    : meg_fail(e, MEG_ENOMEM, "no memory for a step");
    if (status != MEG_OK) {
        free(r);
        free(states);
        return NULL;
    }
    copy_states(x, states, false);
    r->states = states;
    return r;
}

meg_status meg_engine_forward(meg_engine *x, meg_error *e, int which, const meg_feed *feed)
{
    run *r = begin_half(x, e, which, feed);
    if (!r) return e->status;
    x->paused = r;
    MEG_TRY(e, go_on(r, e, true));
    while (meg_traffic_gives(x->traffic))
        MEG_TRY(e, meg_traffic_wait(x->traffic, e));
    meg_device_wait(x->device);
    return MEG_OK;
}

int meg_engine_last(const meg_engine *x)
{
    return x->last;
}

bool meg_engine_paused(const meg_engine *x)
{
    return x->paused != NULL;
}

void meg_engine_give_up(meg_engine *x)
{
    if (!x->paused) return;
    meg_traffic_give_up(x->traffic);
    if (x->paused->states) copy_states(x, x->paused->states, true);
    free(x->paused->states);
    free(x->paused);
    x->paused = NULL;
}

meg_status meg_engine_backward(meg_engine *x, meg_error *e)
{
    MEG_CHECK(e, x->paused, MEG_EARG, "no step has gone forward that could go back");
    run r = *x->paused;
    free(r.states);
    free(x->paused);
    x->paused = NULL;
    MEG_TRY(e, go_on(&r, e, false));
    return end(&r, e);
}

meg_status meg_engine_step(meg_engine *x, meg_error *e, int which, const meg_feed *feed,
                           meg_outcome *out)
{
    MEG_CHECK(e, meg_engine_waiting(x) == 0, MEG_EARG,
              "the outcome of the step before is not asked for yet");
    MEG_TRY(e, meg_engine_run(x, e, which, feed));
    return meg_engine_outcome(x, e, out);
}

/* ---- looking inside ---- */

int64_t meg_engine_touched(meg_engine *x)
{
    return meg_arena_touched(x->arena);
}

void meg_engine_observe(meg_engine *x, meg_traffic_observer *observer, void *context)
{
    meg_traffic_observe(x->traffic, observer, context);
}

double meg_engine_exposed(const meg_engine *x)
{
    return meg_traffic_exposed(x->traffic);
}

const meg_graph *meg_engine_graph(const meg_engine *x)
{
    return x->plan->entry[MEG_ENTRY_TRAIN].graph;
}

meg_dtype meg_engine_real(const meg_engine *x)
{
    return x->plan->profile.real;
}

meg_arena *meg_engine_arena(const meg_engine *x)
{
    return x->arena;
}

meg_device *meg_engine_device(const meg_engine *x)
{
    return x->device;
}

meg_plan *meg_engine_plan(const meg_engine *x)
{
    return x->plan;
}

void meg_engine_watchdog(meg_engine *x, double seconds)
{
    meg_traffic_watchdog(x->traffic, seconds);
}
