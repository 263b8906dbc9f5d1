/* Batch normalisation, training and given statistics, forward and backward, rectifier included.
 *
 * An *item* is one channel block of one group: all that its statistics need. An item's samples are
 * cut into *parts*, a part into *runs* that stay in the first cache. Within a run sums are floats,
 * across runs and parts doubles, always in the same order:
 *
 *     item   | sample 0      | sample 1      | ...
 *     part   | p0    | p1    | p0    | p1    |         at most PART vectors
 *     run    |r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|         at most RUN vectors
 *
 * Mean and variance: simd/moments.h.
 *
 * A thread takes whole items where these go around, since the second sweep then finds the end of
 * the item in its cache; else threads share the parts of all items, with barriers in between.
 */
#include "device/cpu/simd/moments.h"

#include <math.h>

typedef struct constants {            /* of an item */
    float mean[B], scale[B], bias[B]; /* y = (x - mean) * scale + bias */
    float offset[B], slope[B];        /* dx = scale * (g - offset - (x - mean) * slope) */
    double inverse[B];                /* 1 / sqrt(variance + epsilon) */
    double dbias[B], dweight[B];
} constants;

typedef struct phases { /* of a kernel, in this order; NULL: nothing to do */
    void (*open)(const meg_simd_norm *j, int64_t item);
    void (*sum)(const meg_simd_norm *j, int64_t item, int64_t part);
    void (*close)(const meg_simd_norm *j, int64_t item);
    void (*apply)(const meg_simd_norm *j, int64_t item, int64_t part);
} phases;

/* How a loop is specialised: rectified; two gradients; stores go past the caches. */
enum {
    RELU = 1,
    SECOND = 2,
    PAST = 4
};

typedef struct reach { /* where a part lies */
    int64_t at;        /* first float */
    int64_t count;     /* vectors */
} reach;

/* ---- geometry ---- */

static int64_t items_of(const meg_simd_norm *j)
{
    return j->groups * j->blocks;
}

static int64_t samples_of(const meg_simd_norm *j, int64_t item) /* the last group may be smaller */
{
    int64_t first = item / j->blocks * j->norm;
    return least(j->norm, j->samples - first);
}

static int64_t parts_of(const meg_simd_norm *j, int64_t item)
{
    return samples_of(j, item) * j->parts;
}

static reach reach_of(const meg_simd_norm *j, int64_t item, int64_t part)
{
    int64_t n = item / j->blocks * j->norm + part / j->parts, b = item % j->blocks;
    int64_t length = (j->pixels + j->parts - 1) / j->parts;
    int64_t lo = least(part % j->parts * length, j->pixels);
    int64_t hi = least(lo + length, j->pixels);
    return (reach){((n * j->blocks + b) * j->pixels + lo) * B, hi - lo};
}

static constants *constants_of(const meg_simd_norm *j, int64_t item)
{
    return (constants *)j->scratch + item;
}

static totals *totals_of(const meg_simd_norm *j, int64_t item, int64_t part)
{
    totals *all = (totals *)((constants *)j->scratch + items_of(j));
    return all + item * j->norm * j->parts + part;
}

/* ---- the walk over items and parts ---- */

static void walk_item(const meg_simd_norm *j, const phases *f, int64_t item)
{
    int64_t parts = parts_of(j, item);
    if (f->open) f->open(j, item);
    for (int64_t p = 0; f->sum && p < parts; p++)
        f->sum(j, item, p);
    if (f->close) f->close(j, item);
    for (int64_t p = parts - 1; f->apply && p >= 0; p--) /* what is still in the cache first */
        f->apply(j, item, p);
}

static void walk_parts(const meg_simd_norm *j, const phases *f)
{
    int64_t items = items_of(j), most = j->norm * j->parts;
#pragma omp parallel num_threads(j->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++)
            if (f->open) f->open(j, i);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < items * most; k++)
            if (f->sum && k % most < parts_of(j, k / most)) f->sum(j, k / most, k % most);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++)
            if (f->close) f->close(j, i);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < items * most; k++)
            if (f->apply && k % most < parts_of(j, k / most)) f->apply(j, k / most, k % most);
    }
}

static void walk(const meg_simd_norm *j, const phases *f)
{
    int64_t items = items_of(j);
    if (items % j->threads != 0 && items < 8 * j->threads) {
        walk_parts(j, f);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t i = 0; i < items; i++)
        walk_item(j, f, i);
}

/* ---- given statistics ---- */

/* Padding lanes get zeros throughout, whatever epsilon is. */
static void set_constants(const meg_simd_norm *j, int64_t item)
{
    constants *k = constants_of(j, item);
    int64_t g = item / j->blocks, b = item % j->blocks;
    int lanes = lanes_of(j->channels, b);
    memset(k, 0, sizeof *k);
    for (int l = 0; l < lanes; l++) {
        int64_t c = b * B + l, at = g * j->channels + c;
        k->mean[l] = j->mean[at];
        k->inverse[l] = 1 / sqrt((double)j->variance[at] + j->epsilon);
        k->scale[l] = (float)((double)j->weight[c] * k->inverse[l]);
        k->bias[l] = j->bias[c];
    }
}

/* Forward and backward must agree on the sign of this to the last bit: one expression for both. */
MEG_INLINE vec normalised(vec centred, vec scale, vec bias)
{
    return centred * scale + bias;
}

MEG_INLINE void apply_part(const meg_simd_norm *j, int64_t item, int64_t part, int how)
{
    const constants *k = constants_of(j, item);
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    reach r = reach_of(j, item, part);
    const float *x = j->x + r.at;
    float *y = j->y + r.at; /* may be x */
    for (int64_t i = 0; i < r.count; i++) {
        vec v = normalised(load(x + i * B) - mean, scale, bias);
        put(y + i * B, how & RELU ? keep(~(v < 0), v) : v, how & PAST);
    }
    if (how & PAST) flush();
}

static bool past(const meg_simd_norm *j, const float *to, const float *from)
{
    return to != from && far_away(to, j->samples * j->blocks * j->pixels * B);
}

static void apply(const meg_simd_norm *j, int64_t item, int64_t part)
{
    switch ((j->relu ? RELU : 0) | (past(j, j->y, j->x) ? PAST : 0)) {
    case 0:
        apply_part(j, item, part, 0);
        break;
    case RELU:
        apply_part(j, item, part, RELU);
        break;
    case PAST:
        apply_part(j, item, part, PAST);
        break;
    default:
        apply_part(j, item, part, RELU | PAST);
        break;
    }
}

/* ---- statistics ---- */

static void sum_forward(const meg_simd_norm *j, int64_t item, int64_t part)
{
    reach r = reach_of(j, item, part);
    measure(j->x + r.at, r.count, totals_of(j, item, part));
}

static void close_forward(const meg_simd_norm *j, int64_t item)
{
    totals all = {{0}, {0}};
    double have = 0;
    int64_t parts = parts_of(j, item), b = item % j->blocks;
    for (int64_t p = 0; p < parts; p++) {
        const totals *t = totals_of(j, item, p);
        double more = (double)reach_of(j, item, p).count;
        if (more > 0) join(&all, have, t->a, t->b, more);
        have += more;
    }
    for (int l = 0; l < lanes_of(j->channels, b); l++) {
        int64_t at = item / j->blocks * j->channels + b * B + l;
        j->mean[at] = (float)all.a[l];
        j->variance[at] = (float)(all.b[l] / have);
    }
    set_constants(j, item);
}

/* ---- backward ---- */

/* The gradient that reaches the normalisation: of both consumers, through the rectifier. */
MEG_INLINE vec gradient(const meg_simd_norm *j, int64_t at, vec y, int how)
{
    vec g = load(j->dy + at);
    if (how & SECOND) g += load(j->dy2 + at);
    return how & RELU ? keep(~(y <= 0), g) : g;
}

MEG_INLINE void sum_part(const meg_simd_norm *j, int64_t item, int64_t part, int how)
{
    const constants *k = constants_of(j, item);
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    totals *t = totals_of(j, item, part);
    reach r = reach_of(j, item, part);
    memset(t, 0, sizeof *t);
    for (int64_t i = 0; i < r.count; i += RUN) {
        int64_t at = r.at + i * B, count = least(RUN, r.count - i);
        vec s0 = {0}, s1 = {0}, p0 = {0}, p1 = {0}; /* sums of g and of g * (x - mean) */
        for (int64_t v = 0; v + 2 <= count; v += 2) {
            int64_t even = at + v * B, odd = even + B;
            vec d0 = load(j->x + even) - mean, d1 = load(j->x + odd) - mean;
            vec g0 = gradient(j, even, normalised(d0, scale, bias), how);
            vec g1 = gradient(j, odd, normalised(d1, scale, bias), how);
            s0 += g0, s1 += g1;
            p0 += g0 * d0, p1 += g1 * d1;
        }
        if (count % 2) {
            int64_t last = at + (count - 1) * B;
            vec d = load(j->x + last) - mean;
            vec g = gradient(j, last, normalised(d, scale, bias), how);
            s0 += g, p0 += g * d;
        }
        vec sum = s0 + s1, product = p0 + p1;
        for (int l = 0; l < B; l++) {
            t->a[l] += (double)sum[l];
            t->b[l] += (double)product[l];
        }
    }
}

static int how_back(const meg_simd_norm *j)
{
    return (j->relu ? RELU : 0) | (j->dy2 ? SECOND : 0);
}

static void sum_backward(const meg_simd_norm *j, int64_t item, int64_t part)
{
    switch (how_back(j)) {
    case 0:
        sum_part(j, item, part, 0);
        break;
    case RELU:
        sum_part(j, item, part, RELU);
        break;
    case SECOND:
        sum_part(j, item, part, SECOND);
        break;
    default:
        sum_part(j, item, part, RELU | SECOND);
        break;
    }
}

static void close_backward(const meg_simd_norm *j, int64_t item)
{
    constants *k = constants_of(j, item);
    double count = (double)(samples_of(j, item) * j->pixels);
    int64_t parts = parts_of(j, item);
    for (int64_t p = 0; p < parts; p++) {
        const totals *t = totals_of(j, item, p);
        for (int l = 0; l < B; l++) {
            k->dbias[l] += t->a[l];
            k->dweight[l] += t->b[l] * k->inverse[l];
        }
    }
    for (int l = 0; l < B; l++) {
        k->offset[l] = (float)(k->dbias[l] / count);
        k->slope[l] = (float)(k->dweight[l] * k->inverse[l] / count);
    }
}

MEG_INLINE void back_part(const meg_simd_norm *j, int64_t item, int64_t part, int how)
{
    const constants *k = constants_of(j, item);
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    vec offset = load(k->offset), slope = load(k->slope);
    reach r = reach_of(j, item, part);
    for (int64_t i = 0; i < r.count; i++) {
        int64_t at = r.at + i * B;
        vec d = load(j->x + at) - mean;
        vec g = gradient(j, at, normalised(d, scale, bias), how);
        put(j->dx + at, scale * (g - offset - d * slope), how & PAST);
    }
    if (how & PAST) flush();
}

static void apply_backward(const meg_simd_norm *j, int64_t item, int64_t part)
{
    switch (how_back(j) | (past(j, j->dx, j->dy) ? PAST : 0)) {
    case 0:
        back_part(j, item, part, 0);
        break;
    case RELU:
        back_part(j, item, part, RELU);
        break;
    case SECOND:
        back_part(j, item, part, SECOND);
        break;
    case RELU | SECOND:
        back_part(j, item, part, RELU | SECOND);
        break;
    case PAST:
        back_part(j, item, part, PAST);
        break;
    case RELU | PAST:
        back_part(j, item, part, RELU | PAST);
        break;
    case SECOND | PAST:
        back_part(j, item, part, SECOND | PAST);
        break;
    default:
        back_part(j, item, part, RELU | SECOND | PAST);
        break;
    }
}

/* Of a weight: the sum over the groups, in ascending order. */
static void weight_gradients(const meg_simd_norm *j)
{
    for (int64_t c = 0; c < j->channels; c++) {
        double dweight = 0, dbias = 0;
        for (int64_t g = 0; g < j->groups; g++) {
            const constants *k = constants_of(j, g * j->blocks + c / B);
            dweight += k->dweight[c % B];
            dbias += k->dbias[c % B];
        }
        if (j->dweight) j->dweight[c] = (float)dweight;
        if (j->dbias) j->dbias[c] = (float)dbias;
    }
}

/* ---- the kernels ---- */

void MEG_SIMD(norm_train)(const meg_simd_norm *j)
{
    walk(j, &(phases){.sum = sum_forward, .close = close_forward, .apply = apply});
}

void MEG_SIMD(norm_apply)(const meg_simd_norm *j)
{
    walk(j, &(phases){.open = set_constants, .apply = apply});
}

void MEG_SIMD(norm_back)(const meg_simd_norm *j)
{
    walk(j, &(phases){.open = set_constants,
                      .sum = sum_backward,
                      .close = close_backward,
                      .apply = j->dx ? apply_backward : NULL});
    weight_gradients(j);
}

int64_t MEG_SIMD(norm_bytes)(const meg_simd_norm *j)
{
    int64_t items = items_of(j);
    return items * (int64_t)sizeof(constants) +
           items * j->norm * j->parts * (int64_t)sizeof(totals);
}
