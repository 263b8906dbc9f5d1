/* Partitions by hand, and what is known of any partition: see partition.h. The best one is found in
 * search.c.
 */
#include "plan/partition/partition.h"

#include "plan/partition/footprint.h"
#include "plan/partition/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const MEASURES[] = {"count", "compute", "memory"};

meg_status meg_balance_find(meg_error *e, const char *name, meg_balance *out)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(MEASURES[i], name) == 0) return *out = (meg_balance)i, MEG_OK;
    return meg_fail(e, MEG_EARG, "there is no measure '%s'; known: count compute memory", name);
}

/* ---- what can be wrong with the question ---- */

static meg_status check_pieces(meg_error *e, const meg_cut *c)
{
    MEG_CHECK(e, c->pieces >= 1, MEG_EARG, "%s has no %s to cut", c->model, c->noun);
    MEG_CHECK(e, c->stages >= 1 && c->stages <= c->pieces, MEG_EARG,
              "stages=%d, but %s has only %d %s: use 1..%d", c->stages, c->model, c->pieces,
              c->noun, c->pieces);
    for (int i = 0; i < c->pieces; i++) {
        const meg_piece *p = &c->piece[i];
        MEG_CHECK(e, isfinite(p->seconds) && p->seconds >= 0 && p->held >= 0 && p->kept >= 0,
                  MEG_EARG, "'%s' has a cost that is negative or no number", p->name);
    }
    for (int s = 0; c->frames && s < c->stages * (c->directions ? c->directions : 1); s++)
        MEG_CHECK(e, c->frames[s] >= 1, MEG_EARG, "stage %d has frames=%d: use 1 or more",
                  s % c->stages, c->frames[s]);
    return MEG_OK;
}

static int by_value(const void *a, const void *b)
{
    const meg_flow *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Also sorts a copy of them by value, then reader. */
static meg_status check_flows(meg_error *e, meg_pool *pool, const meg_cut *c, meg_flow **out)
{
    meg_flow *f = meg_pool_alloc(pool, (size_t)c->flows * sizeof *f);
    for (int i = 0; i < c->flows; i++) {
        f[i] = c->flow[i];
        MEG_CHECK(e,
                  f[i].from >= 0 && f[i].from < c->pieces && f[i].to >= 0 && f[i].to < c->pieces &&
                      f[i].value >= 0 && f[i].bytes >= 0 && f[i].stash >= 0 && f[i].sent >= 0 &&
                      f[i].arrived >= 0 && f[i].returned >= 0,
                  MEG_EARG, "flow %d, from %d to %d: %s has the %s 0..%d", i, f[i].from, f[i].to,
                  c->model, c->noun, c->pieces - 1);
        MEG_CHECK(e, f[i].from < f[i].to, MEG_EARG,
                  "'%s' reads '%s', which does not come before it: the %s of %s must be in "
                  "topological order",
                  c->piece[f[i].to].name, c->piece[f[i].from].name, c->noun, c->model);
    }
    qsort(f, (size_t)c->flows, sizeof *f, by_value);
    for (int i = 1; i < c->flows; i++)
        MEG_CHECK(e,
                  f[i].value != f[i - 1].value ||
                      (f[i].from == f[i - 1].from && f[i].bytes == f[i - 1].bytes),
                  MEG_EARG,
                  "value %d is made by '%s' and by '%s', or with two sizes: a value has one",
                  f[i].value, c->piece[f[i - 1].from].name, c->piece[f[i].from].name);
    *out = f;
    return MEG_OK;
}

/* ---- what follows from the stage of every piece ---- */

static int by_stages(const void *a, const void *b)
{
    const meg_crossing *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* One crossing per value and stage that reads it; flow: sorted by value. */
static int count_messages(const meg_partition *p, int flows, const meg_flow *flow, int *seen,
                          meg_crossing *all)
{
    int n = 0; /* seen[stage]: the value that last reached it, + 1 */
    for (int i = 0; i < flows; i++) {
        int from = p->stage[flow[i].from], to = p->stage[flow[i].to];
        if (from == to || seen[to] == flow[i].value + 1) continue;
        seen[to] = flow[i].value + 1;
        all[n++] = (meg_crossing){from, to, 1, flow[i].bytes};
        p->received[to] += flow[i].bytes;
    }
    return n;
}

static void join_crossings(meg_partition *p, int messages)
{
    meg_crossing *all = p->crossing;
    int n = 0;
    qsort(all, (size_t)messages, sizeof *all, by_stages);
    for (int i = 0; i < messages; i++) {
        if (n > 0 && by_stages(&all[n - 1], &all[i]) == 0) {
            all[n - 1].values++;
            all[n - 1].bytes += all[i].bytes;
        } else {
            all[n++] = all[i];
        }
    }
    p->crossings = n;
}

static double measure_of(const meg_cut *c, const meg_partition *p, int s, int count)
{
    if (c->measure == MEG_MEASURE_COUNT) return count;
    if (c->measure == MEG_MEASURE_MEMORY) return (double)p->bytes[s];
    return p->seconds[s] + c->seconds_per_byte * (double)p->received[s];
}

/* c: with its flows sorted by value. */
static meg_partition *describe(meg_pool *pool, const meg_cut *c, const int *stage)
{
    size_t stages = (size_t)c->stages;
    meg_footprint *of = meg_pool_alloc(pool, stages * sizeof *of);
    meg_partition *p = meg_pool_alloc(pool, sizeof *p);
    int *count = meg_pool_alloc(pool, stages * sizeof *count);
    int *seen = meg_pool_alloc(pool, stages * sizeof *seen);
    *p = (meg_partition){.stages = c->stages, .pieces = c->pieces};
    p->stage = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *p->stage);
    p->seconds = meg_pool_alloc(pool, stages * sizeof *p->seconds);
    p->bytes = meg_pool_alloc(pool, stages * sizeof *p->bytes);
    p->received = meg_pool_alloc(pool, stages * sizeof *p->received);
    p->crossing = meg_pool_alloc(pool, (size_t)c->flows * sizeof *p->crossing);
    for (int i = 0; i < c->pieces; i++) {
        int s = p->stage[i] = stage[i];
        p->seconds[s] += c->piece[i].seconds;
        count[s]++;
    }
    join_crossings(p, count_messages(p, c->flows, c->flow, seen, p->crossing));
    for (int s = 0; s < c->stages; s++)
        of[s] = meg_footprint_of(c, stage, s);
    for (int s = 0; s < c->stages; s++) {
        p->bytes[s] = meg_stage_bytes(c, s, of, c->stages);
        p->worst = fmax(p->worst, measure_of(c, p, s, count[s]));
    }
    return p;
}

/* ---- by hand ---- */

static meg_status check_given(meg_error *e, const meg_cut *c, const int *stage)
{
    for (int i = 0; i < c->pieces; i++)
        MEG_CHECK(e, stage[i] >= 0 && stage[i] < c->stages, MEG_EARG,
                  "'%s' is given to stage %d, but there are %d stages: use 0..%d", c->piece[i].name,
                  stage[i], c->stages, c->stages - 1);
    for (int s = 0; s < c->stages; s++) {
        int i = 0;
        while (i < c->pieces && stage[i] != s)
            i++;
        MEG_CHECK(e, i < c->pieces, MEG_EARG,
                  "stage %d of %d has none of the %d %s of %s: give it one, or use stages=%d", s,
                  c->stages, c->pieces, c->noun, c->model, c->stages - 1);
    }
    for (int i = 0; i < c->flows; i++) {
        const meg_flow *f = &c->flow[i];
        MEG_CHECK(e, stage[f->from] <= stage[f->to], MEG_EARG,
                  "'%s' in stage %d reads '%s' in stage %d: a stage may read only from itself and "
                  "from those before it",
                  c->piece[f->to].name, stage[f->to], c->piece[f->from].name, stage[f->from]);
    }
    return MEG_OK;
}

meg_status meg_partition_given(meg_error *e, meg_pool *pool, const meg_cut *c, const int stage[],
                               meg_partition **out)
{
    meg_flow *flow;
    MEG_TRY(e, check_pieces(e, c));
    MEG_TRY(e, check_flows(e, pool, c, &flow));
    MEG_TRY(e, check_given(e, c, stage));
    meg_cut sorted = *c;
    sorted.flow = flow;
    meg_partition *p = describe(pool, &sorted, stage);
    for (int s = 0; c->limit && s < c->stages; s++)
        MEG_CHECK(e, p->bytes[s] <= c->limit, MEG_EBUDGET,
                  "stage %d needs %lld bytes, %lld more than there are: give some of its %s to "
                  "another",
                  s, (long long)p->bytes[s], (long long)(p->bytes[s] - c->limit), c->noun);
    *out = p;
    return MEG_OK;
}

meg_status meg_partition_firsts(meg_error *e, meg_pool *pool, const meg_cut *c, const int first[],
                                meg_partition **out)
{
    MEG_TRY(e, check_pieces(e, c));
    MEG_CHECK(e, first[0] == 0, MEG_EARG,
              "stage 0 begins at %s %d, and '%s' would have no stage: "
              "begin at 0",
              c->noun, first[0], c->piece[0].name);
    for (int s = 1; s < c->stages; s++) {
        MEG_CHECK(e, first[s] >= 0 && first[s] < c->pieces, MEG_EARG,
                  "stage %d begins at %d, but the %s of %s are 0..%d", s, first[s], c->noun,
                  c->model, c->pieces - 1);
        MEG_CHECK(e, first[s] > first[s - 1], MEG_EARG,
                  "stage %d begins at '%s' (%d), which leaves nothing for stage %d, that begins at "
                  "'%s' (%d): stages begin in ascending order",
                  s, c->piece[first[s]].name, first[s], s - 1, c->piece[first[s - 1]].name,
                  first[s - 1]);
    }
    int *stage = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *stage);
    for (int i = 0, s = 0; i < c->pieces; i++) {
        while (s + 1 < c->stages && first[s + 1] <= i)
            s++;
        stage[i] = s;
    }
    return meg_partition_given(e, pool, c, stage, out);
}

/* ---- the best ---- */

meg_status meg_partition_best(meg_error *e, meg_pool *pool, const meg_cut *c, meg_partition **out)
{
    meg_flow *flow;
    MEG_TRY(e, check_pieces(e, c));
    MEG_TRY(e, check_flows(e, pool, c, &flow));
    int *stage = meg_pool_alloc(pool, (size_t)c->pieces * sizeof *stage);
    meg_cut sorted = *c;
    sorted.flow = flow;
    if (!meg_partition_search(&sorted, stage)) {
        int64_t least = meg_partition_least_bytes(pool, &sorted);
        return meg_fail(e, MEG_EBUDGET,
                        "no cut of %s into %d stages fits: at best the largest stage needs %lld "
                        "bytes, %lld more than there are; use more stages, fewer micro-batches in "
                        "flight or smaller ones",
                        c->model, c->stages, (long long)least, (long long)(least - c->limit));
    }
    *out = describe(pool, &sorted, stage);
    return MEG_OK;
}
