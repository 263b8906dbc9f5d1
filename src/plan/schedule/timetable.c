/* Timetables: frames, picture, replay on a virtual clock. See timetable.h. */
#include "plan/schedule/timetable.h"

#include <math.h>
#include <string.h>

/* ---- frames ---- */

static bool ends_frame(const meg_timetable *t, const meg_task *k)
{
    return meg_task_step(k->kind) == (t->split ? 2 : 1);
}

/* A rank's list alone decides: the frame is taken where its forward stands in it, and is free again
 * for what follows the last of its backward. */
void meg_timetable_assign_frames(meg_pool *pool, meg_timetable *t)
{
    size_t stages = (size_t)(t->directions * t->stages), micro = (size_t)t->micro;
    t->frames = meg_pool_alloc(pool, stages * sizeof *t->frames);
    t->frame = meg_pool_alloc(pool, (size_t)t->stages * micro * sizeof *t->frame);
    t->peak = meg_pool_alloc(pool, (size_t)t->ranks * sizeof *t->peak);
    meg_pool *work = meg_pool_new();
    bool *taken = meg_pool_alloc(work, stages * micro * sizeof *taken); /* (stages, frame) */
    for (int r = 0; r < t->ranks; r++) {
        int live = 0;
        for (int i = t->first[r]; i < t->first[r + 1]; i++) {
            meg_task *k = &t->task[i];
            int at = k->direction * t->stages + k->stage;
            int *frame = &t->frame[(size_t)k->stage * micro + (size_t)k->micro];
            bool *mine = taken + (size_t)at * micro;
            if (k->kind == MEG_TASK_F) {
                for (*frame = 0; mine[*frame];)
                    ++*frame;
                if (*frame >= t->frames[at]) t->frames[at] = *frame + 1;
                if (++live > t->peak[r]) t->peak[r] = live;
            }
            k->frame = *frame;
            mine[*frame] = !ends_frame(t, k);
            live -= ends_frame(t, k);
        }
    }
    meg_pool_free(work);
}

/* ---- picture ---- */

static int digits(int n)
{
    return snprintf(NULL, 0, "%d", n);
}

/* "F12^": what the task is called in the picture. */
static int label(const meg_timetable *t, const meg_task *k, char *text, size_t size)
{
    static const char letter[] = {'F', 'B', 'B', 'W'};
    char mark[2] = "";
    int chunk = k->stage / t->ranks;
    if (k->direction) mark[0] = '^';
    if (t->stages > t->ranks) mark[0] = (char)(chunk < 26 ? 'a' + chunk : '?');
    return snprintf(text, size, "%c%d%s", letter[k->kind], k->micro, mark);
}

static void print_rank(const meg_timetable *t, int r, int width, FILE *out)
{
    int column = 0, behind = 0; /* ticks printed; characters of the last label */
    char text[32];
    fprintf(out, "  %*d |", digits(t->ranks - 1), r);
    for (int i = t->first[r]; i < t->first[r + 1]; i++) {
        const meg_task *k = &t->task[i];
        int from = (int)lround(k->start / t->tick), to = (int)lround(k->end / t->tick);
        int used = label(t, k, text, sizeof text);
        for (int at = from; at < to; at++) {
            int gap = (at - column) * width + (column ? width - behind : 0);
            fprintf(out, "%*s%s", gap, "", text);
            behind = used;
            column = at + 1;
        }
    }
    fputc('\n', out);
}

void meg_timetable_print(const meg_timetable *t, FILE *out)
{
    int marks = t->directions > 1 || t->stages > t->ranks;
    fprintf(out, "%s: %d stages on %d ranks, %d micro-batches: time %g, frames", t->schedule,
            t->stages, t->ranks, t->micro, t->makespan);
    for (int d = 0; d < t->directions; d++) {
        for (int s = 0; s < t->stages; s++)
            fprintf(out, " %d", meg_timetable_frames(t, d, s));
        if (d + 1 < t->directions) fputs(" and", out);
    }
    fputc('\n', out);
    for (int r = 0; r < t->ranks; r++)
        print_rank(t, r, 2 + digits(t->micro - 1) + marks, out);
}

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

meg_status meg_links_new(meg_error *e, meg_pool *pool, const meg_timetable *t,
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

typedef struct replay {
    const meg_timetable *t;
    const meg_costs *c;
    meg_links out, in;
    double *end;               /* (steps, stages, micro) of this step; < 0: not yet */
    int *next;                 /* (ranks) place in the list */
    double *free;              /* (ranks) */
    int *todo, *queued, count; /* (ranks) ranks to look at */
} replay;

static double *end_of(const replay *x, int step, int s, int m)
{
    return &x->end[((size_t)step * (size_t)x->t->stages + (size_t)s) * (size_t)x->t->micro +
                   (size_t)m];
}

static double seconds_of(const replay *x, const meg_task *k)
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
static void ranks_of(const replay *x, const meg_task *k, int *first, int *end)
{
    *first = meg_timetable_seat(x->t, k->direction, k->stage);
    *end = *first + meg_timetable_width(x->t, k->direction, k->stage);
}

/* When all ranks of the stage are free for the task; < 0: one is not there yet. */
static double free_for(const replay *x, const meg_task *k)
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
static double start_of(const replay *x, const meg_task *k)
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

static void look_at(replay *x, int rank)
{
    if (x->queued[rank]) return;
    x->queued[rank] = 1;
    x->todo[x->count++] = rank;
}

static void run_rank(replay *x, int r)
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

static meg_status one_step(meg_error *e, replay *x)
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

static double latest(const replay *x)
{
    double last = 0;
    for (int r = 0; r < x->t->ranks; r++)
        if (x->free[r] > last) last = x->free[r];
    return last;
}

static meg_status three_steps(meg_error *e, meg_pool *pool, replay *x, meg_replay *out)
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

meg_status meg_timetable_replay(meg_error *e, meg_pool *pool, const meg_timetable *t,
                                const meg_costs *costs, meg_replay *out)
{
    meg_pool *work = meg_pool_new();
    replay x = {.t = t, .c = costs};
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
