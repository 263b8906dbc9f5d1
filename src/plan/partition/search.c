/* The best cut into stages, by dynamic programming over the pieces in order.
 *
 *     worst(s, b) = min over a < b of max(worst(s - 1, a), measure of stage s = pieces a .. b-1)
 *
 * gives the smallest largest stage; a second pass of the same form, over stages no larger than
 * that, finds the fewest bytes received, and among those the least sum of squares. The last stage
 * is tried from its smallest size on, and no larger than its compute or memory alone allows, so
 * that a pass takes about N^2 log S steps rather than S N^2, for N pieces.
 *
 * What a stage receives is kept up to date as its first piece a moves down: what a reads from
 * before comes in, what a makes itself no longer does.
 */
#include "plan/partition/search.h"

#include <math.h>
#include <string.h>

typedef struct inflow { /* what piece i reads or makes: entries first[i] .. first[i + 1] - 1 */
    int *first, *value;
} inflow;

typedef struct score { /* of the second pass: lexicographic */
    bool possible;
    int64_t bytes;
    double squares;
} score;

typedef struct search {
    const meg_cut *c;
    double *seconds;      /* (pieces + 1) sums of all before */
    int64_t *held, *kept; /* the same */
    inflow reads, makes;
    int64_t *bytes; /* (values) */
    int *inside;    /* (values) the sweep that counts it among the received */
    int sweep;
    int64_t received; /* of pieces a .. b-1, in this sweep */
} search;

/* ---- tables ---- */

/* Numbers the values 0, 1, ... as the flows, sorted by value, bring them. */
static int number_values(meg_pool *pool, const meg_cut *c, int **number)
{
    int n = 0;
    *number = meg_pool_alloc(pool, (size_t)c->flows * sizeof **number);
    for (int i = 0; i < c->flows; i++) {
        if (i > 0 && c->flow[i].value != c->flow[i - 1].value) n++;
        (*number)[i] = n;
    }
    return c->flows ? n + 1 : 0;
}

static inflow list_values(meg_pool *pool, const meg_cut *c, const int *number, bool reads)
{
    inflow l;
    size_t pieces = (size_t)c->pieces;
    int *fill = meg_pool_alloc(pool, pieces * sizeof *fill);
    l.first = meg_pool_alloc(pool, (pieces + 1) * sizeof *l.first);
    l.value = meg_pool_alloc(pool, (size_t)c->flows * sizeof *l.value);
    for (int i = 0; i < c->flows; i++)
        l.first[(reads ? c->flow[i].to : c->flow[i].from) + 1]++;
    for (int i = 0; i < c->pieces; i++)
        l.first[i + 1] += l.first[i];
    for (int i = 0; i < c->flows; i++) {
        int piece = reads ? c->flow[i].to : c->flow[i].from;
        l.value[l.first[piece] + fill[piece]++] = number[i];
    }
    return l;
}

static search search_new(meg_pool *pool, const meg_cut *c)
{
    search x = {.c = c};
    size_t sums = (size_t)c->pieces + 1;
    int *number, values = number_values(pool, c, &number);
    x.seconds = meg_pool_alloc(pool, sums * sizeof *x.seconds);
    x.held = meg_pool_alloc(pool, sums * sizeof *x.held);
    x.kept = meg_pool_alloc(pool, sums * sizeof *x.kept);
    x.reads = list_values(pool, c, number, true);
    x.makes = list_values(pool, c, number, false);
    x.bytes = meg_pool_alloc(pool, (size_t)values * sizeof *x.bytes);
    x.inside = meg_pool_alloc(pool, (size_t)values * sizeof *x.inside);
    for (int i = 0; i < c->flows; i++)
        x.bytes[number[i]] = c->flow[i].bytes;
    for (int i = 0; i < c->pieces; i++) {
        x.seconds[i + 1] = x.seconds[i] + c->piece[i].seconds;
        x.held[i + 1] = x.held[i] + c->piece[i].held;
        x.kept[i + 1] = x.kept[i] + c->piece[i].kept;
    }
    return x;
}

/* ---- the measure of one stage ---- */

static void sweep_begin(search *x)
{
    x->sweep++;
    x->received = 0;
}

/* Piece a joins the stage, below those that are in it. */
static void sweep_add(search *x, int a)
{
    for (int i = x->makes.first[a]; i < x->makes.first[a + 1]; i++) {
        int v = x->makes.value[i];
        if (x->inside[v] == x->sweep) x->received -= x->bytes[v];
        if (x->inside[v] == x->sweep) x->inside[v] = 0;
    }
    for (int i = x->reads.first[a]; i < x->reads.first[a + 1]; i++) {
        int v = x->reads.value[i];
        if (x->inside[v] != x->sweep) x->received += x->bytes[v];
        x->inside[v] = x->sweep;
    }
}

static int64_t bytes_of(const search *x, int s, int a, int b)
{
    int frames = x->c->frames ? x->c->frames[s] : 1;
    return x->held[b] - x->held[a] + frames * (x->kept[b] - x->kept[a]);
}

/* Without messages: grows as the stage grows. */
static double least_of(const search *x, int s, int a, int b)
{
    if (x->c->limit && bytes_of(x, s, a, b) > x->c->limit) return INFINITY;
    if (x->c->measure == MEG_MEASURE_COUNT) return b - a;
    if (x->c->measure == MEG_MEASURE_MEMORY) return (double)bytes_of(x, s, a, b);
    return x->seconds[b] - x->seconds[a];
}

static double with_messages(const search *x, double least)
{
    if (x->c->measure != MEG_MEASURE_COMPUTE) return least;
    return least + x->c->seconds_per_byte * (double)x->received;
}

/* ---- first pass: how small can the largest stage be ---- */

static double worst_at(search *x, int s, int b, const double *before)
{
    double best = INFINITY;
    if (s == 0) return least_of(x, 0, 0, b); /* nothing is received */
    sweep_begin(x);
    for (int a = b - 1; a >= s; a--) {
        double least = least_of(x, s, a, b);
        if (least >= best) break;
        sweep_add(x, a);
        best = fmin(best, fmax(before[a], with_messages(x, least)));
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
    sweep_begin(x);
    for (int a = b - 1; a >= s; a--) {
        double least = least_of(x, s, a, b);
        if (least > worst) break;
        sweep_add(x, a);
        double all = with_messages(x, least);
        if (all > worst || (s == 0 && a > 0) || (s > 0 && !before[a].possible)) continue;
        score next = {true, x->received, all * all};
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

bool meg_partition_search(const meg_cut *c, int stage[])
{
    meg_pool *pool = meg_pool_new();
    search x = search_new(pool, c);
    double worst = smallest_worst(pool, &x);
    if (isfinite(worst)) cut_at(pool, &x, worst, stage);
    meg_pool_free(pool);
    return isfinite(worst);
}

int64_t meg_partition_least_bytes(const meg_cut *c)
{
    meg_cut free = *c;
    meg_pool *pool = meg_pool_new();
    free.measure = MEG_MEASURE_MEMORY;
    free.limit = 0;
    search x = search_new(pool, &free);
    double worst = smallest_worst(pool, &x);
    meg_pool_free(pool);
    return (int64_t)worst;
}
