/* Timetables on a virtual clock: how long a step takes, and who waits. For tests of schedules. */
#ifndef MEG_TESTS_REPLAY_H
#define MEG_TESTS_REPLAY_H

#include "plan/schedule/timetable.h"

#include <stdlib.h>
#include <string.h>

typedef struct meg_skip { /* a value made in stage `from` and read in `to` > from + 1 */
    int from, to;
    double seconds; /* of its message */
} meg_skip;

typedef struct meg_costs {   /* of one micro-batch */
    const double *f, *b, *w; /* (stages) seconds; a B takes b + w */
    const double *message;   /* (stages - 1) from stage s to s + 1, and of the gradient back; NULL:
                                no time */
    const meg_skip *skip;    /* (skips) these go straight from producer to consumer */
    int skips;
} meg_costs;

typedef struct meg_replay {
    double makespan; /* of one step alone */
    double period;   /* of a further step, when steps follow without barrier */
    double *idle;    /* (ranks) makespan less work */
} meg_replay;

typedef struct meg_links { /* stage s sends forward to to[first[s]] .. to[first[s + 1] - 1] */
    int *first, *stage;
    double *seconds;
} meg_links;

/* ---- links ---- */

static void put_link(meg_links *l, int *fill, int at, int stage, double seconds)
{
    int i = l->first[at] + fill[at]++;
    l->stage[i] = stage;
    l->seconds[i] = seconds;
}

/* Of the links s -> s + 1 and the skips, those that leave (or reach) each stage. */
static void collect(meg_pool *pool, const meg_timetable *t, const meg_costs *c, bool out,
                    meg_links *l)
{
    size_t stages = (size_t)t->stages, links = stages + (size_t)c->skips;
    int *fill = meg_pool_alloc(pool, stages * sizeof *fill);
    l->first = meg_pool_alloc(pool, (stages + 1) * sizeof *l->first);
    l->stage = meg_pool_alloc(pool, links * sizeof *l->stage);
    l->seconds = meg_pool_alloc(pool, links * sizeof *l->seconds);
    for (int s = 0; s + 1 < t->stages; s++)
        l->first[(out ? s : s + 1) + 1]++;
    for (int i = 0; i < c->skips; i++)
        l->first[(out ? c->skip[i].from : c->skip[i].to) + 1]++;
    for (int s = 0; s < t->stages; s++)
        l->first[s + 1] += l->first[s];
    for (int s = 0; s + 1 < t->stages; s++)
        put_link(l, fill, out ? s : s + 1, out ? s + 1 : s, c->message ? c->message[s] : 0);
    for (int i = 0; i < c->skips; i++) {
        const meg_skip *k = &c->skip[i];
        put_link(l, fill, out ? k->from : k->to, out ? k->to : k->from, k->seconds);
    }
}

/* out: receivers of each stage's forward; in: its senders. Backward goes the other way. */
static inline meg_status meg_links_new(meg_error *e, meg_pool *pool, const meg_timetable *t,
                                       const meg_costs *costs, meg_links *out, meg_links *in)
{
    for (int i = 0; i < costs->skips; i++)
        MEG_CHECK(e,
                  costs->skip[i].from >= 0 && costs->skip[i].to < t->stages &&
                      costs->skip[i].to - costs->skip[i].from > 1,
                  MEG_EARG, "a skip from stage %d to %d, of %d stages: it must pass over one",
                  costs->skip[i].from, costs->skip[i].to, t->stages);
    collect(pool, t, costs, true, out);
    collect(pool, t, costs, false, in);
    return MEG_OK;
}

/* ---- replay ---- */

typedef struct virtual_clock {
    const meg_timetable *t;
    const meg_costs *c;
    meg_links out, in;
    double *end;               /* (steps, stages, micro) of this step; < 0: not yet */
    int *next;                 /* (ranks) place in the list */
    double *free;              /* (ranks) */
    int *todo, *queued, count; /* (ranks) ranks to look at */
} virtual_clock;

static double *end_of(const virtual_clock *x, int step, int s, int m)
{
    return &x->end[((size_t)step * (size_t)x->t->stages + (size_t)s) * (size_t)x->t->micro +
                   (size_t)m];
}

static double seconds_of(const virtual_clock *x, const meg_task *k)
{
    const meg_costs *c = x->c;
    switch (k->kind) {
    case MEG_TASK_F:
        return c->f[k->stage];
    case MEG_TASK_B:
        return c->b[k->stage] + c->w[k->stage];
    case MEG_TASK_BI:
        return c->b[k->stage];
    default:
        return c->w[k->stage];
    }
}

/* Where the task's ranks begin and end. */
static void ranks_of(const virtual_clock *x, const meg_task *k, int *first, int *end)
{
    *first = meg_timetable_seat(x->t, k->direction, k->stage);
    *end = *first + meg_timetable_width(x->t, k->direction, k->stage);
}

/* When all ranks of the stage are free for the task; < 0: one is not there yet. */
static double free_for(const virtual_clock *x, const meg_task *k)
{
    int first, end;
    double at = 0;
    ranks_of(x, k, &first, &end);
    for (int r = first; r < end; r++) {
        const meg_task *next = &x->t->task[x->next[r]];
        bool same = x->next[r] < x->t->first[r + 1] && next->kind == k->kind &&
                    next->stage == k->stage && next->micro == k->micro;
        if (!same) return -1;
        if (x->free[r] > at) at = x->free[r];
    }
    return at;
}

/* When the task can start; < 0: an input or a rank is not there. */
static double start_of(const virtual_clock *x, const meg_task *k)
{
    int step = meg_task_step(k->kind), own = meg_timetable_seat(x->t, k->direction, k->stage);
    double at = free_for(x, k);
    if (at < 0) return -1;
    if (step > 0) {
        double before = *end_of(x, step - 1, k->stage, k->micro);
        if (before < 0) return -1;
        if (before > at) at = before;
    }
    const meg_links *l = step == 0 ? &x->in : &x->out;
    for (int i = l->first[k->stage]; step < 2 && i < l->first[k->stage + 1]; i++) {
        double made = *end_of(x, step, l->stage[i], k->micro);
        if (made < 0) return -1;
        if (meg_timetable_seat(x->t, k->direction, l->stage[i]) != own) made += l->seconds[i];
        if (made > at) at = made;
    }
    return at;
}

static void look_at(virtual_clock *x, int rank)
{
    if (x->queued[rank]) return;
    x->queued[rank] = 1;
    x->todo[x->count++] = rank;
}

static void run_rank(virtual_clock *x, int r)
{
    while (x->next[r] < x->t->first[r + 1]) {
        const meg_task *k = &x->t->task[x->next[r]];
        int step = meg_task_step(k->kind), first, end;
        double at = start_of(x, k);
        if (at < 0) return;
        ranks_of(x, k, &first, &end);
        *end_of(x, step, k->stage, k->micro) = at + seconds_of(x, k);
        for (int i = first; i < end; i++) {
            x->free[i] = at + seconds_of(x, k);
            x->next[i]++;
            if (i != r) look_at(x, i);
        }
        const meg_links *l = step == 0 ? &x->out : &x->in;
        for (int i = l->first[k->stage]; step < 2 && i < l->first[k->stage + 1]; i++)
            look_at(x, meg_timetable_seat(x->t, k->direction, l->stage[i]));
    }
}

static meg_status one_step(meg_error *e, virtual_clock *x)
{
    const meg_timetable *t = x->t;
    size_t tasks = (size_t)MEG_STEPS * (size_t)t->stages * (size_t)t->micro;
    for (size_t i = 0; i < tasks; i++)
        x->end[i] = -1;
    for (int r = t->ranks - 1; r >= 0; r--) {
        x->next[r] = t->first[r];
        look_at(x, r);
    }
    while (x->count > 0) {
        int r = x->todo[--x->count];
        x->queued[r] = 0;
        run_rank(x, r);
    }
    for (int r = 0; r < t->ranks; r++)
        MEG_CHECK(e, x->next[r] == t->first[r + 1], MEG_EARG,
                  "timetable %s: rank %d waits for ever at its task %d of %d", t->schedule, r,
                  x->next[r] - t->first[r], t->first[r + 1] - t->first[r]);
    return MEG_OK;
}

static double latest(const virtual_clock *x)
{
    double last = 0;
    for (int r = 0; r < x->t->ranks; r++)
        if (x->free[r] > last) last = x->free[r];
    return last;
}

static meg_status three_steps(meg_error *e, meg_pool *pool, virtual_clock *x, meg_replay *out)
{
    double end = 0, before = 0;
    meg_replay result = {.idle = meg_pool_alloc(pool, (size_t)x->t->ranks * sizeof(double))};
    for (int step = 0; step < 3; step++) {
        MEG_TRY(e, one_step(e, x));
        before = end;
        end = latest(x);
        if (step == 0) result.makespan = end;
    }
    result.period = end - before;
    for (int r = 0; r < x->t->ranks; r++) {
        result.idle[r] = result.makespan;
        for (int i = x->t->first[r]; i < x->t->first[r + 1]; i++)
            result.idle[r] -= seconds_of(x, &x->t->task[i]);
    }
    *out = result;
    return MEG_OK;
}

/* Replays the lists on a virtual clock: a rank runs them in order, each task as soon as the rank is
 * free and the messages are there; messages cost the rank no time and do not slow each other.
 * Reductions and updates are not in it. Fails where the lists cannot be executed. */
static inline meg_status meg_timetable_replay(meg_error *e, meg_pool *pool, const meg_timetable *t,
                                              const meg_costs *costs, meg_replay *out)
{
    meg_pool *work = meg_pool_new();
    virtual_clock x = {.t = t, .c = costs};
    size_t ranks = (size_t)t->ranks;
    size_t tasks = (size_t)MEG_STEPS * (size_t)t->stages * (size_t)t->micro;
    x.end = meg_pool_alloc(work, tasks * sizeof *x.end);
    x.next = meg_pool_alloc(work, ranks * sizeof *x.next);
    x.free = meg_pool_alloc(work, ranks * sizeof *x.free);
    x.todo = meg_pool_alloc(work, ranks * sizeof *x.todo);
    x.queued = meg_pool_alloc(work, ranks * sizeof *x.queued);
    meg_status status = meg_links_new(e, work, t, costs, &x.out, &x.in);
    if (status == MEG_OK) status = three_steps(e, pool, &x, out);
    meg_pool_free(work);
    return status;
}

#endif
