/* The list scheduler (Graham 1969) that draws every pipeline. At each event an idle rank starts, of
 * what may start, the task that comes first in the row's order; it never idles when it may start
 * something. Pipelines need three additions:
 *
 *     queues  a rank's tasks wait in order, in one queue per lane and step (F, B, W); only heads
 *             may start. A strict row has one queue per lane for all steps.
 *     caps    the forward at the head may start only while its lane has started fewer forwards than
 *             backwards (weight gradients) plus the cap
 *     full    a backward may start only from a lane that has reached its cap
 *     width   a stage of several ranks starts on all of them at once: its task waits in a queue of
 *             each, and must be at the head of all
 *
 * Where a lane holds one stage, every edge added by order or cap comes from a smaller micro-batch,
 * so it cannot get stuck; with `full` the caps must not grow along the stages. Lanes that mix
 * stages (interleaved) can, and then say so. What becomes ready does so later than the event that
 * causes it (costs of zero aside), so the order of simultaneous events does not matter.
 */
#include "plan/schedule/schedule.h"

#include <stdlib.h>

enum {
    LANES = 2
};

typedef struct entry { /* a task in its queue */
    int64_t order;
    int queue, id; /* id = (step * stages + s) * micro + m */
} entry;

typedef struct wake { /* look at a rank at this time */
    double time;
    int rank;
} wake;

typedef struct drawing {
    const meg_draft *d;
    meg_timetable *t;
    int stages, micro, steps;
    entry *all;             /* all queues, one behind the other */
    int *zero, *head, *end; /* (ranks * LANES * MEG_STEPS) places in `all` */
    int *waits;             /* (tasks) inputs whose maker has not started */
    double *ready;          /* (tasks) when the last input is there */
    double *idle;           /* (ranks) from when on the rank is free */
    int *tail;              /* (ranks) where its next task goes */
    wake *heap;
    int wakes, made;
} drawing;

/* ---- a heap of events, the earliest on top; ranks ascend among the simultaneous ---- */

static bool sooner(wake a, wake b)
{
    return a.time < b.time || (a.time == b.time && a.rank < b.rank);
}

static void push(drawing *x, double time, int rank)
{
    wake w = {time, rank};
    int i = x->wakes++;
    for (; i > 0 && sooner(w, x->heap[(i - 1) / 2]); i = (i - 1) / 2)
        x->heap[i] = x->heap[(i - 1) / 2];
    x->heap[i] = w;
}

static wake pop(drawing *x)
{
    wake top = x->heap[0], last = x->heap[--x->wakes];
    int i = 0;
    for (int k = 1; k < x->wakes; k = 2 * i + 1) {
        if (k + 1 < x->wakes && sooner(x->heap[k + 1], x->heap[k])) k++;
        if (!sooner(x->heap[k], last)) break;
        x->heap[i] = x->heap[k];
        i = k;
    }
    x->heap[i] = last;
    return top;
}

/* ---- tasks ---- */

static int step_of(const drawing *x, int id)
{
    return id / x->micro / x->stages;
}

static int stage_of(const drawing *x, int id)
{
    return id / x->micro % x->stages;
}

static int micro_of(const drawing *x, int id)
{
    return id % x->micro;
}

static int id_of(const drawing *x, int step, int s, int m)
{
    return (step * x->stages + s) * x->micro + m;
}

/* Its first. */
static int rank_of(const drawing *x, int id)
{
    return meg_timetable_seat(x->t, x->d->direction[micro_of(x, id)], stage_of(x, id));
}

/* Behind its last. */
static int rank_end(const drawing *x, int id)
{
    int direction = x->d->direction[micro_of(x, id)];
    return rank_of(x, id) + meg_timetable_width(x->t, direction, stage_of(x, id));
}

static double cost_of(const drawing *x, int id)
{
    return x->d->cost[step_of(x, id)][stage_of(x, id)];
}

static int queue_of(const drawing *x, int rank, int lane, int step)
{
    return (rank * LANES + lane) * MEG_STEPS + (x->d->row->strict ? 0 : step);
}

static int lane_of(const drawing *x, int id)
{
    return x->d->row->lanes ? x->d->direction[micro_of(x, id)] : 0;
}

/* What waits for the task: the same step of the next stage, and the next step of its own. */
static int successors(const drawing *x, int id, int next[2])
{
    int step = step_of(x, id), s = stage_of(x, id), m = micro_of(x, id), n = 0;
    if (step == 0 && s + 1 < x->stages) next[n++] = id_of(x, 0, s + 1, m);
    if (step == 1 && s > 0) next[n++] = id_of(x, 1, s - 1, m);
    if (step + 1 < x->steps) next[n++] = id_of(x, step + 1, s, m);
    return n;
}

/* ---- queues ---- */

static int by_queue(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->queue != y->queue) return x->queue < y->queue ? -1 : 1;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void fill(drawing *x)
{
    int tasks = x->steps * x->stages * x->micro, count = 0, next[2];
    for (int id = 0; id < tasks; id++) {
        int step = step_of(x, id), s = stage_of(x, id), m = micro_of(x, id);
        int64_t order = x->d->row->order(x->d, step, s, m);
        for (int r = rank_of(x, id); r < rank_end(x, id); r++)
            x->all[count++] = (entry){order, queue_of(x, r, lane_of(x, id), step), id};
        for (int n = successors(x, id, next); n-- > 0;)
            x->waits[next[n]]++;
    }
    qsort(x->all, (size_t)count, sizeof *x->all, by_queue);
    for (int i = 0; i < count; i++) {
        int q = x->all[i].queue;
        if (i == 0 || x->all[i - 1].queue != q) x->head[q] = x->zero[q] = i;
        x->end[q] = i + 1;
        x->t->first[q / (LANES * MEG_STEPS) + 1]++;
    }
    for (int r = 0; r < x->t->ranks; r++) {
        x->tail[r] = x->t->first[r];
        x->t->first[r + 1] += x->t->first[r];
    }
}

/* ---- the rules ---- */

/* Forwards that the lane has started and that `step` has not followed yet. */
static int ahead(const drawing *x, int rank, int lane, int step)
{
    int f = queue_of(x, rank, lane, 0), b = queue_of(x, rank, lane, step);
    return (x->head[f] - x->zero[f]) - (x->head[b] - x->zero[b]);
}

static bool may_start(const drawing *x, int id, double time)
{
    const meg_row *row = x->d->row;
    if (x->waits[id] || x->ready[id] > time) return false;
    if (!row->cap) return true;
    int rank = rank_of(x, id), lane = lane_of(x, id), s = stage_of(x, id), step = step_of(x, id);
    int f = queue_of(x, rank, lane, 0);
    if (step == 1 && row->full && x->head[f] < x->end[f])
        return ahead(x, rank, lane, 1) >= row->cap(x->d, s, 1);
    for (int k = 1; step == 0 && k < x->steps; k++)
        if (ahead(x, rank, lane, k) >= row->cap(x->d, s, k)) return false;
    return true;
}

/* Are all ranks of the stage free for it? */
static bool together(const drawing *x, int id, double time)
{
    for (int r = rank_of(x, id); r < rank_end(x, id); r++) {
        int q = queue_of(x, r, lane_of(x, id), step_of(x, id));
        if (x->idle[r] > time || x->all[x->head[q]].id != id) return false;
    }
    return true;
}

/* What the rank should start now; -1: nothing. */
static int pick(const drawing *x, int rank, double time)
{
    const entry *best = NULL;
    for (int q = rank * LANES * MEG_STEPS; q < (rank + 1) * LANES * MEG_STEPS; q++) {
        const entry *head = x->all + x->head[q];
        if (x->head[q] == x->end[q] || (best && best->order <= head->order)) continue;
        if (may_start(x, head->id, time) && together(x, head->id, time)) best = head;
    }
    return best ? best->id : -1;
}

/* ---- events ---- */

static void start(drawing *x, int id, double time)
{
    static const meg_task_kind whole[] = {MEG_TASK_F, MEG_TASK_B};
    static const meg_task_kind parted[] = {MEG_TASK_F, MEG_TASK_BI, MEG_TASK_BW};
    int step = step_of(x, id), m = micro_of(x, id), next[2];
    double end = time + cost_of(x, id);
    meg_task task = {.kind = x->steps == 3 ? parted[step] : whole[step],
                     .stage = stage_of(x, id),
                     .micro = m,
                     .direction = x->d->direction[m],
                     .start = time,
                     .end = end};
    for (int r = rank_of(x, id); r < rank_end(x, id); r++) {
        x->t->task[x->tail[r]++] = task;
        x->head[queue_of(x, r, lane_of(x, id), step)]++;
        x->idle[r] = end;
        push(x, end, r);
    }
    x->made++;
    if (end > x->t->makespan) x->t->makespan = end;
    for (int n = successors(x, id, next); n-- > 0;) {
        if (end > x->ready[next[n]]) x->ready[next[n]] = end;
        if (--x->waits[next[n]] == 0) push(x, x->ready[next[n]], rank_of(x, next[n]));
    }
}

/* A direction takes in a micro-batch every so many ticks: what its slowest stage needs for one. */
static double pace_of(const drawing *x)
{
    double slowest = 0;
    for (int s = 0; s < x->stages && x->d->row->pace; s++) {
        double both = x->d->cost[0][s] + x->d->cost[1][s];
        if (both > slowest) slowest = both;
    }
    return slowest;
}

static void run(drawing *x)
{
    double pace = pace_of(x);
    for (int m = 0; m < x->micro; m++) {
        int id = id_of(x, 0, 0, m);
        x->ready[id] = pace * x->d->nth[m];
        push(x, x->ready[id], rank_of(x, id));
    }
    while (x->wakes > 0) {
        wake w = pop(x);
        int id = x->idle[w.rank] > w.time ? -1 : pick(x, w.rank, w.time);
        if (id >= 0) start(x, id, w.time);
    }
}

static meg_status stuck(meg_error *e, const drawing *x)
{
    int r = 0;
    while (x->tail[r] == x->t->first[r + 1])
        r++;
    return meg_fail(
        e, MEG_EUNSUPPORTED,
        "schedule %s gets stuck with stages=%d ranks=%d micro=%d: rank %d has run %d of "
        "its %d tasks; use another number of micro-batches, or schedule=1f1b",
        x->d->row->name, x->stages, x->t->ranks, x->micro, r, x->tail[r] - x->t->first[r],
        x->t->first[r + 1] - x->t->first[r]);
}

meg_status meg_draft_draw(meg_error *e, meg_pool *pool, const meg_draft *d, meg_timetable *t)
{
    drawing x = {.d = d, .t = t, .stages = t->stages, .micro = t->micro, .steps = t->split ? 3 : 2};
    size_t tasks = (size_t)x.steps * (size_t)x.stages * (size_t)x.micro, ranks = (size_t)t->ranks;
    size_t queues = ranks * LANES * MEG_STEPS, places = 0;
    for (int m = 0; m < x.micro; m++)
        for (int s = 0; s < x.stages; s++)
            places += (size_t)(x.steps * meg_timetable_width(t, d->direction[m], s));
    meg_pool *work = meg_pool_new();
    t->first = meg_pool_alloc(pool, (ranks + 1) * sizeof *t->first);
    t->task = meg_pool_alloc(pool, places * sizeof *t->task);
    x.all = meg_pool_alloc(work, places * sizeof *x.all);
    x.zero = meg_pool_alloc(work, queues * sizeof *x.zero);
    x.head = meg_pool_alloc(work, queues * sizeof *x.head);
    x.end = meg_pool_alloc(work, queues * sizeof *x.end);
    x.waits = meg_pool_alloc(work, tasks * sizeof *x.waits);
    x.ready = meg_pool_alloc(work, tasks * sizeof *x.ready);
    x.idle = meg_pool_alloc(work, ranks * sizeof *x.idle);
    x.tail = meg_pool_alloc(work, ranks * sizeof *x.tail);
    /* none is more: of a task, each rank's end, and that it may start */
    x.heap = meg_pool_alloc(work, (places + tasks + (size_t)x.micro) * sizeof *x.heap);
    fill(&x);
    run(&x);
    meg_status status = x.made == (int)tasks ? MEG_OK : stuck(e, &x);
    meg_pool_free(work);
    return status;
}
