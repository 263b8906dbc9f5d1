/* The best cut into stages, by dynamic programming over the pieces in order.
 *
 *     worst(s, b) = min over a < b of max(worst(s - 1, a), measure of stage s = pieces a .. b-1)
 *
 * gives the smallest largest stage; a second pass of the same form, over stages no larger than
 * that, finds the fewest bytes received, and among those the least sum of squares. The last stage
 * is tried from its smallest size on, and no larger than its compute or memory alone allows, so
 * that a pass takes about N^2 log S steps rather than S N^2, for N pieces.
 *
 * That is for ranks of one stage. Where a rank has several, memory is no measure of a stage alone, and
 * this cut is where shared.c begins.
 */
#include "plan/partition/search.h"
#include "plan/partition/shared.h"
#include "plan/partition/sweep.h"

#include <math.h>
#include <string.h>

enum {
    HALVINGS = 20
};

typedef struct score { /* of the second pass: lexicographic */
    bool possible;
    int64_t bytes;
    double squares;
} score;

typedef struct search {
    const meg_cut *c;
    double *seconds;      /* (pieces + 1) sums of all before */
    int64_t *held, *kept; /* the same */
    meg_sweep sweep;
    double bound; /* no worse than this: of some cut */
} search;

static search search_new(meg_pool *pool, const meg_cut *c)
{
    search x = {.c = c, .sweep = meg_sweep_new(pool, c)};
    size_t sums = (size_t)c->pieces + 1;
    x.seconds = meg_pool_alloc(pool, sums * sizeof *x.seconds);
    x.held = meg_pool_alloc(pool, sums * sizeof *x.held);
    x.kept = meg_pool_alloc(pool, sums * sizeof *x.kept);
    for (int i = 0; i < c->pieces; i++) {
        x.seconds[i + 1] = x.seconds[i] + c->piece[i].seconds;
        x.held[i + 1] = x.held[i] + c->piece[i].held;
        x.kept[i + 1] = x.kept[i] + c->piece[i].kept;
    }
    return x;
}

/* ---- the measure of one stage ---- */

static int64_t least_bytes(const search *x, int s, int a, int b)
{
    meg_footprint f = {.held = x->held[b] - x->held[a],
                       .frame = x->kept[b] - x->kept[a],
                       .peak = x->kept[b] - x->kept[a]};
    return meg_station_bytes(x->c, 0, s, &f);
}

/* Without messages and what is temporary: grows as the stage grows. */
static double least_of(const search *x, int s, int a, int b)
{
    if (x->c->limit && least_bytes(x, s, a, b) > x->c->limit) return INFINITY;
    if (x->c->measure == MEG_MEASURE_COUNT) return b - a;
    if (x->c->measure == MEG_MEASURE_MEMORY) return (double)least_bytes(x, s, a, b);
    return x->seconds[b] - x->seconds[a];
}

/* With all that belongs to it: of the stage that the sweep has come to. */
static double whole_of(const search *x, int s, double least)
{
    int64_t bytes = x->sweep.weighs ? meg_station_bytes(x->c, 0, s, &x->sweep.now) : 0;
    if (x->c->limit && bytes > x->c->limit) return INFINITY;
    if (x->c->measure == MEG_MEASURE_MEMORY) return (double)bytes;
    if (x->c->measure == MEG_MEASURE_COUNT) return least;
    return least + x->c->seconds_per_byte * (double)x->sweep.received;
}

/* ---- a bound ---- */

/* Each stage is as large as `most` allows, by its pieces alone. False: the last one is not. */
static bool fill(const search *x, double most, int stage[])
{
    int s = 0, first = 0, pieces = x->c->pieces, stages = x->c->stages;
    for (int i = 0; i < pieces; i++) {
        bool full = i > first && (double)least_bytes(x, s, first, i + 1) > most;
        bool must = pieces - i <= stages - 1 - s && i > first; /* a piece for each that is left */
        if ((full || must) && s < stages - 1) s++, first = i;
        else if (full) return false;
        stage[i] = s;
    }
    return true;
}

/* By halving; it spares the first stages, which nothing else bounds, most of the sweep. */
static double bound_of(meg_pool *pool, const search *x)
{
    const meg_cut *c = x->c;
    int *stage = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *stage);
    meg_footprint *of = meg_pool_alloc(pool, (size_t)c->stages * sizeof *of);
    double low = 0, high = 0, best = INFINITY;
    if (c->measure != MEG_MEASURE_MEMORY || c->stages == 1) return INFINITY;
    for (int s = 0; s < c->stages; s++)
        high = fmax(high, (double)least_bytes(x, s, 0, c->pieces));
    for (int k = 0; k < HALVINGS; k++) {
        double middle = (low + high) / 2;
        bool fits = fill(x, middle, stage);
        if (fits) best = fmin(best, (double)meg_plain_bytes(c, stage, of));
        *(fits ? &high : &low) = middle;
    }
    return best;
}

/* ---- first pass: how small can the largest stage be ---- */

static double worst_at(search *x, int s, int b, const double *before)
{
    double best = INFINITY;
    if (s == 0 && !x->sweep.weighs) return least_of(x, 0, 0, b); /* nothing is received */
    meg_sweep_begin(&x->sweep, b);
    for (int a = b - 1; a >= s; a--) {
        double least = least_of(x, s, a, b);
        if (least >= best || least > x->bound) break;
        meg_sweep_add(&x->sweep, a);
        if (s == 0 && a > 0) continue;
        best = fmin(best, fmax(s ? before[a] : 0, whole_of(x, s, least)));
    }
    return best;
}

static double smallest_worst(meg_pool *pool, search *x)
{
    int pieces = x->c->pieces, stages = x->c->stages;
    double *row[2];
    for (int k = 0; k < 2; k++)
        row[k] = meg_pool_alloc(pool, ((size_t)pieces + 1) * sizeof(double));
    for (int s = 0; s < stages; s++)
        for (int b = s + 1; b <= pieces - (stages - 1 - s); b++)
            row[s % 2][b] = worst_at(x, s, b, row[1 - s % 2]);
    return row[(stages - 1) % 2][pieces];
}

/* ---- second pass: of the cuts that reach it, the one with the fewest bytes, the most even ---- */

static bool better(score a, score b)
{
    if (!a.possible || !b.possible) return a.possible && !b.possible;
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    return a.squares < b.squares;
}

static score score_at(search *x, int s, int b, double worst, const score *before, int *from)
{
    score best = {.possible = false};
    meg_sweep_begin(&x->sweep, b);
    for (int a = b - 1; a >= s; a--) {
        double least = least_of(x, s, a, b);
        if (least > worst) break;
        meg_sweep_add(&x->sweep, a);
        double all = whole_of(x, s, least);
        if (all > worst || (s == 0 && a > 0) || (s > 0 && !before[a].possible)) continue;
        score next = {true, x->sweep.received, all * all};
        if (s > 0) next.bytes += before[a].bytes;
        if (s > 0) next.squares += before[a].squares;
        if (better(next, best)) best = next, *from = a;
    }
    return best;
}

static void cut_at(meg_pool *pool, search *x, double worst, int *stage)
{
    int pieces = x->c->pieces, stages = x->c->stages;
    score *row[2];
    int **from = meg_pool_alloc(pool, (size_t)stages * sizeof *from); /* first piece of stage s */
    for (int k = 0; k < 2; k++)
        row[k] = meg_pool_alloc(pool, ((size_t)pieces + 1) * sizeof(score));
    for (int s = 0; s < stages; s++) {
        from[s] = meg_pool_alloc(pool, ((size_t)pieces + 1) * sizeof(int));
        for (int b = s + 1; b <= pieces - (stages - 1 - s); b++)
            row[s % 2][b] = score_at(x, s, b, worst, row[1 - s % 2], &from[s][b]);
    }
    for (int s = stages - 1, b = pieces; s >= 0; s--) {
        int a = from[s][b];
        while (b > a)
            stage[--b] = s;
    }
}

/* ---- both ---- */

/* The cut of the dynamic programming, as if each stage had a rank of its own. */
static bool search_plain(const meg_cut *c, int stage[])
{
    meg_pool *pool = meg_pool_new();
    search x = search_new(pool, c);
    x.bound = bound_of(pool, &x);
    double worst = smallest_worst(pool, &x);
    if (isfinite(worst)) cut_at(pool, &x, worst, stage);
    meg_pool_free(pool);
    return isfinite(worst);
}

/* Of a rank with several stages the first guess is that stages are alike. */
static bool search_shared(const meg_cut *c, int stage[])
{
    meg_cut guess = *c;
    guess.measure = MEG_MEASURE_MEMORY;
    guess.limit = 0;
    search_plain(&guess, stage);
    int64_t bytes = meg_partition_shared(&guess, stage);
    return c->limit == 0 || bytes <= c->limit;
}

bool meg_partition_search(const meg_cut *c, int stage[])
{
    if (c->measure == MEG_MEASURE_MEMORY && !meg_cut_is_plain(c)) return search_shared(c, stage);
    return search_plain(c, stage);
}

int64_t meg_partition_least_bytes(meg_pool *pool, const meg_cut *c)
{
    meg_cut any = *c;
    int *stage = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *stage);
    meg_footprint *of = meg_pool_alloc(pool, (size_t)c->stages * sizeof *of);
    any.measure = MEG_MEASURE_MEMORY;
    any.limit = 0;
    meg_partition_search(&any, stage);
    return meg_cut_bytes(c, stage, of);
}
