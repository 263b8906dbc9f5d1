/* The pieces that rows of schedules.def are made of, and how a row becomes a timetable: see
 * schedule.h. Costs of one micro-batch and one stage are the unit of everything here.
 */
#include "plan/schedule/schedule.h"
#include "base/nearest.h"
#include "base/registry.h"

#include <math.h>
#include <string.h>

/* ---- groups of micro-batches that a strict row finishes one after the other ---- */

static int groups_one(const meg_pipe *p)
{
    (void)p;
    return 1;
}

static int groups_two(const meg_pipe *p)
{
    (void)p;
    return 2;
}

static int groups_micro(const meg_pipe *p)
{
    return p->micro;
}

static int groups_eta(const meg_pipe *p)
{
    return p->replications ? p->replications : p->micro;
}

/* ---- orders: the smaller number goes first ---- */

/* Place within a step: micro-batch by micro-batch, directions in turn, stages as they are met. */
static int64_t in_step(const meg_draft *d, int step, int s, int m)
{
    int stages = d->pipe.stages, met = step == 0 ? s : stages - 1 - s;
    int64_t nth = (int64_t)d->nth[m] * d->row->directions + d->direction[m];
    return nth * stages + met;
}

/* More than any in_step. */
static int64_t all(const meg_draft *d)
{
    return (int64_t)d->pipe.stages * (d->pipe.micro + 1) * 2;
}

static int64_t order_group(const meg_draft *d, int step, int s, int m)
{
    return (2 * (int64_t)d->group[m] + step) * all(d) + in_step(d, step, s, m);
}

static int64_t order_backward_first(const meg_draft *d, int step, int s, int m)
{
    static const int class[MEG_STEPS] = {1, 0, 2};
    return class[step] * all(d) + in_step(d, step, s, m);
}

/* Groups of R micro-batches; within a group all of the first chunk, then all of the second, ... */
static int64_t order_loop(const meg_draft *d, int step, int s, int m)
{
    int ranks = d->pipe.ranks, chunk = s / ranks;
    int64_t turn = step == 0 ? chunk : d->chunks - 1 - chunk;
    int64_t place = ((int64_t)(m / ranks) * d->chunks + turn) * ranks + m % ranks;
    return (step == 0) * all(d) + place;
}

/* ---- caps: how many forwards a lane may be ahead of its own backwards or weight gradients ---- */

static int cap_depth(const meg_draft *d, int s, int step)
{
    return step == 1 ? d->pipe.stages - s : d->pipe.stages;
}

static int cap_loop(const meg_draft *d, int s, int step)
{
    (void)step;
    int ranks = d->pipe.ranks;
    return 2 * (ranks - 1 - s % ranks) + (d->chunks - 1) * ranks + 1;
}

static int cap_half(const meg_draft *d, int s, int step)
{
    (void)step;
    int half = d->pipe.stages / 2, depth = d->pipe.stages - s;
    return depth < half ? depth : half;
}

/* ---- what a row cannot do, and what would do ---- */

static meg_status check_straight(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    if (p->seat) return MEG_OK;
    MEG_CHECK(e, p->stages <= p->ranks, MEG_EARG,
              "%s has one stage per rank, but stages=%d and ranks=%d: use stages=%d, or "
              "schedule=interleaved with stages a multiple of ranks",
              row->name, p->stages, p->ranks, p->ranks);
    MEG_CHECK(e, p->stages == p->ranks, MEG_EARG,
              "%s has one stage per rank, but stages=%d and ranks=%d leaves %d without: use "
              "stages=%d or ranks=%d",
              row->name, p->stages, p->ranks, p->ranks - p->stages, p->ranks, p->stages);
    return MEG_OK;
}

static meg_status check_loop(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    int chunks = p->stages / p->ranks;
    MEG_CHECK(e, p->stages % p->ranks == 0 && chunks >= 2, MEG_EARG,
              "%s needs the same number of stages, 2 or more, on each rank, but stages=%d and "
              "ranks=%d: use stages=%d, or schedule=1f1b with stages=%d",
              row->name, p->stages, p->ranks, (chunks < 2 ? 2 : chunks) * p->ranks, p->ranks);
    MEG_CHECK(e, p->micro % p->ranks == 0, MEG_EARG,
              "%s works in groups of as many micro-batches as ranks, but micro=%d and ranks=%d: "
              "use micro=%d",
              row->name, p->micro, p->ranks, (p->micro / p->ranks + 1) * p->ranks);
    return MEG_OK;
}

static meg_status check_two(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    MEG_CHECK(e, p->micro >= 2, MEG_EARG,
              "%s needs a micro-batch for each of its two directions, but micro=%d: use micro=2 or "
              "more, or schedule=serial",
              row->name, p->micro);
    return check_straight(e, p, row);
}

static meg_status check_mast(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    MEG_CHECK(e, p->replications == 0 || p->replications == 2, MEG_EARG,
              "mast is two replications, but replications=%d: use 2, or schedule=master",
              p->replications);
    return check_two(e, p, row);
}

static meg_status check_master(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    MEG_TRY(e, check_two(e, p, row));
    MEG_CHECK(e, p->replications != 1, MEG_EARG,
              "master alternates its direction, but replications=1: use 2..%d, or schedule=gpipe",
              p->micro);
    MEG_CHECK(e, p->replications <= p->micro, MEG_EARG,
              "each replication of master needs a micro-batch, but replications=%d and micro=%d: "
              "use replications=2..%d",
              p->replications, p->micro, p->micro);
    return MEG_OK;
}

static meg_status check_chimera(meg_error *e, const meg_pipe *p, const meg_row *row)
{
    MEG_CHECK(e, p->stages % 2 == 0, MEG_EARG,
              "chimera needs an even number of stages, but stages=%d: use %d or %d, or "
              "schedule=1f1b",
              p->stages, p->stages > 1 ? p->stages - 1 : 2, p->stages > 1 ? p->stages + 1 : 4);
    return check_two(e, p, row);
}

/* ---- the rows ---- */

static const meg_row ROWS[] = {
#define MEG_SCHEDULE(name_, doc_, paper_, ...)                                                     \
    {.name = name_, .doc = doc_, .paper = paper_, __VA_ARGS__},
#include "plan/schedule/schedules.def"
#undef MEG_SCHEDULE
};

const meg_row *meg_row_at(int i)
{
    return i >= 0 && i < (int)(sizeof ROWS / sizeof *ROWS) ? &ROWS[i] : NULL;
}

static MEG_REGISTRY_NAME(name_at, meg_row_at)

    static MEG_REGISTRY_FIND(meg_row, row_of, meg_row_at)

        meg_status meg_row_find(meg_error *e, const char *name, const meg_row **out)
{
    const meg_row *found = row_of(name);
    if (!found) return meg_unknown(e, "there is no schedule", name, name_at);
    *out = found;
    return MEG_OK;
}

static meg_status check_costs(meg_error *e, const meg_pipe *p)
{
    const double *cost[MEG_STEPS] = {p->f, p->b, p->w};
    bool none = !p->f && !p->b && !p->w, given = p->f && p->b && p->w;
    MEG_CHECK(e, none || given, MEG_EARG, "costs: give all of f, b and w, or none");
    for (int k = 0; given && k < MEG_STEPS; k++)
        for (int s = 0; s < p->stages; s++)
            MEG_CHECK(e, isfinite(cost[k][s]) && cost[k][s] >= 0, MEG_EARG,
                      "cost %c of stage %d is %g: costs are finite and not negative", "fbw"[k], s,
                      cost[k][s]);
    return MEG_OK;
}

meg_status meg_row_check(meg_error *e, const meg_row *row, const meg_pipe *p)
{
    enum {
        MOST = 1 << 26 /* tasks; an int counts them, and their list fits a machine */
    };
    MEG_CHECK(e, p->stages >= 1 && p->ranks >= 1 && p->micro >= 1, MEG_EARG,
              "stages=%d ranks=%d micro=%d: each must be 1 or more", p->stages, p->ranks, p->micro);
    MEG_CHECK(e, (int64_t)p->stages * p->micro <= MOST / MEG_STEPS, MEG_EARG,
              "stages=%d with micro=%d are more tasks than a schedule can have: use micro=%d or "
              "less",
              p->stages, p->micro, MOST / MEG_STEPS / p->stages);
    MEG_CHECK(e, p->directions == 0 || p->directions == row->directions, MEG_EARG,
              "schedule=%s has directions=%d, not %d: use directions=%d, or schedule=%s", row->name,
              row->directions, p->directions, row->directions,
              row->directions == 1 ? "mast, master or chimera" : "serial, gpipe or 1f1b");
    MEG_CHECK(e, p->replications == 0 || row->groups == groups_eta || row->groups == groups_two,
              MEG_EARG, "replications=%d is for schedule=master, not %s: leave it out",
              p->replications, row->name);
    MEG_CHECK(e, p->replications >= 0, MEG_EARG,
              "replications=%d: use 2..%d, or 0 for one per micro-batch", p->replications,
              p->micro);
    MEG_TRY(e, row->check(e, p, row));
    return check_costs(e, p);
}

/* ---- drawing ---- */

/* Which micro-batches are inverted: see schedule.h. */
static void assign_directions(meg_draft *d)
{
    int micro = d->pipe.micro, stages = d->pipe.stages, seen[2] = {0, 0};
    int groups = d->row->groups ? d->row->groups(&d->pipe) : 0;
    for (int m = 0; m < micro; m++) {
        int unit = m / stages * stages, size = micro - unit < stages ? micro - unit : stages;
        if (groups) d->group[m] = (int)((int64_t)m * groups / micro);
        if (d->row->directions == 2)
            d->direction[m] = groups ? d->group[m] % 2 : m - unit >= (size + 1) / 2;
        d->nth[m] = seen[d->direction[m]]++;
    }
}

/* Costs per stage of the three steps; without split, the second is b + w. */
static void assign_costs(meg_pool *pool, meg_draft *d)
{
    const double *given[MEG_STEPS] = {d->pipe.f, d->pipe.b, d->pipe.w};
    for (int k = 0; k < MEG_STEPS; k++) {
        double *cost = meg_pool_alloc(pool, (size_t)d->pipe.stages * sizeof *cost);
        for (int s = 0; s < d->pipe.stages; s++) {
            cost[s] = given[k] ? given[k][s] : d->row->unit[k];
            if (k == 1 && !d->row->split) cost[s] += given[2] ? given[2][s] : d->row->unit[2];
        }
        d->cost[k] = cost;
    }
}

static double smallest(const meg_draft *d)
{
    double least = INFINITY;
    for (int k = 0; k < (d->row->split ? 3 : 2); k++)
        for (int s = 0; s < d->pipe.stages; s++)
            if (d->cost[k][s] > 0 && d->cost[k][s] < least) least = d->cost[k][s];
    return least < INFINITY ? least : 1;
}

static meg_timetable *table_new(meg_pool *pool, const meg_draft *d)
{
    const meg_pipe *p = &d->pipe;
    meg_timetable *t = meg_pool_alloc(pool, sizeof *t);
    *t = (meg_timetable){.schedule = d->row->name,
                         .stages = p->stages,
                         .ranks = p->ranks,
                         .micro = p->micro,
                         .directions = d->row->directions,
                         .split = d->row->split,
                         .tick = smallest(d)};
    int places = t->directions * t->stages;
    t->seat = meg_pool_alloc(pool, (size_t)places * sizeof *t->seat);
    t->width = meg_pool_alloc(pool, (size_t)places * sizeof *t->width);
    t->direction = d->direction;
    for (int i = 0; i < places; i++) {
        int at = i % p->stages % p->ranks;
        t->seat[i] = p->seat ? p->seat[i] : i < p->stages ? at : p->ranks - 1 - at;
        t->width[i] = p->width ? p->width[i] : 1;
    }
    return t;
}

meg_status meg_timetable_draw(meg_error *e, meg_pool *pool, const meg_row *row, const meg_pipe *p,
                              meg_timetable **out)
{
    MEG_TRY(e, meg_row_check(e, row, p));
    meg_draft d = {.row = row, .pipe = *p, .chunks = p->stages / p->ranks};
    size_t bytes = (size_t)p->micro * sizeof(int);
    d.direction = meg_pool_alloc(pool, bytes);
    d.group = meg_pool_alloc(pool, bytes);
    d.nth = meg_pool_alloc(pool, bytes);
    assign_directions(&d);
    assign_costs(pool, &d);
    meg_timetable *t = table_new(pool, &d);
    MEG_TRY(e, meg_draft_draw(e, pool, &d, t));
    meg_timetable_assign_frames(pool, t);
    *out = t;
    return MEG_OK;
}
