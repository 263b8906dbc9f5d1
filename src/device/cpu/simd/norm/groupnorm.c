/* Group normalisation (with it instance normalisation, and layer normalisation over whole samples),
 * forward and backward, rectifier included. Lanes are channels, so the statistics of a *block* of
 * channels are taken lane by lane; then the channels of each group are joined, wherever in their
 * blocks they lie:
 *
 *     block   |  lanes of b0  |  lanes of b1  |      sums per lane, by parts of pixels
 *     group   |  g0 |  g1 |  g2 |  g3 |              joined per sample
 *
 * A thread takes whole samples where these go around; else threads share the parts of all blocks,
 * with barriers in between. Parts are cut at fixed places: threads do not change the result.
 */
#include "device/cpu/simd/moments.h"

#include <math.h>

typedef struct constants {            /* of a block of a sample */
    float mean[B], scale[B], bias[B]; /* y = (x - mean) * scale + bias */
    float offset[B], slope[B];        /* dx = scale * g - offset - (x - mean) * slope */
    double inverse[B];                /* 1 / sqrt(variance + epsilon) */
    double dbias[B], dweight[B];      /* of this sample */
} constants;

typedef struct phases { /* of a kernel, in this order; NULL: nothing to do */
    void (*open)(const meg_simd_setnorm *j, int64_t n);
    void (*sum)(const meg_simd_setnorm *j, int64_t item, int64_t part); /* item: n, block */
    void (*close)(const meg_simd_setnorm *j, int64_t n);
    void (*apply)(const meg_simd_setnorm *j, int64_t item, int64_t part);
} phases;

typedef struct reach { /* where a part lies */
    int64_t at;        /* first float */
    int64_t count;     /* vectors */
} reach;

/* ---- geometry ---- */

static reach reach_of(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    int64_t lo = least(part * MEG_SIMD_PART, j->pixels);
    int64_t hi = least(lo + MEG_SIMD_PART, j->pixels);
    return (reach){(item * j->pixels + lo) * B, hi - lo};
}

static constants *constants_of(const meg_simd_setnorm *j, int64_t n, int64_t c)
{
    return (constants *)j->scratch + n * j->blocks + c / B;
}

static totals *totals_of(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    totals *all = (totals *)((constants *)j->scratch + j->samples * j->blocks);
    return all + item * j->parts + part;
}

/* ---- the walk ---- */

static void walk_sample(const meg_simd_setnorm *j, const phases *f, int64_t n)
{
    if (f->open) f->open(j, n);
    for (int64_t k = 0; f->sum && k < j->blocks * j->parts; k++)
        f->sum(j, n * j->blocks + k / j->parts, k % j->parts);
    if (f->close) f->close(j, n);
    for (int64_t k = j->blocks * j->parts - 1; f->apply && k >= 0; k--) /* what is still cached */
        f->apply(j, n * j->blocks + k / j->parts, k % j->parts);
}

static void walk_parts(const meg_simd_setnorm *j, const phases *f)
{
    int64_t all = j->samples * j->blocks * j->parts;
#pragma omp parallel num_threads(j->threads)
    {
#pragma omp for schedule(static)
        for (int64_t n = 0; n < j->samples; n++)
            if (f->open) f->open(j, n);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < all; k++)
            if (f->sum) f->sum(j, k / j->parts, k % j->parts);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < j->samples; n++)
            if (f->close) f->close(j, n);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < all; k++)
            if (f->apply) f->apply(j, k / j->parts, k % j->parts);
    }
}

static void walk(const meg_simd_setnorm *j, const phases *f)
{
    if (j->samples % j->threads != 0 && j->samples < 8 * j->threads) {
        walk_parts(j, f);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t n = 0; n < j->samples; n++)
        walk_sample(j, f, n);
}

/* ---- given statistics ---- */

/* Padding lanes get zeros throughout. */
static void set_constants(const meg_simd_setnorm *j, int64_t n)
{
    memset(constants_of(j, n, 0), 0, (size_t)j->blocks * sizeof(constants));
    for (int64_t c = 0; c < j->channels; c++) {
        constants *k = constants_of(j, n, c);
        int64_t l = c % B, at = n * (j->channels / j->width) + c / j->width;
        double weight = j->weight ? (double)j->weight[c] : 1;
        k->mean[l] = j->mean[at];
        k->inverse[l] = 1 / sqrt((double)j->variance[at] + j->epsilon);
        k->scale[l] = (float)(weight * k->inverse[l]);
        k->bias[l] = j->bias ? j->bias[c] : 0;
    }
}

/* Forward and backward must agree on the sign of this to the last bit: one expression for both. */
MEG_INLINE vec normalised(vec centred, vec scale, vec bias)
{
    return centred * scale + bias;
}

MEG_INLINE void apply_part(const meg_simd_setnorm *j, int64_t item, int64_t part, bool relu)
{
    const constants *k = (const constants *)j->scratch + item;
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    reach r = reach_of(j, item, part);
    const float *x = j->x + r.at;
    float *y = j->y + r.at; /* may be x */
    for (int64_t i = 0; i < r.count; i++) {
        vec v = normalised(load(x + i * B) - mean, scale, bias);
        store(y + i * B, relu ? keep(~(v < 0), v) : v);
    }
}

static void apply(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    if (j->relu) apply_part(j, item, part, true);
    else apply_part(j, item, part, false);
}

/* ---- statistics ---- */

static void sum_forward(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    reach r = reach_of(j, item, part);
    measure(j->x + r.at, r.count, totals_of(j, item, part));
}

static void join_group(const meg_simd_setnorm *j, int64_t n, int64_t group)
{
    double mean = 0, squares = 0, have = 0;
    for (int64_t c = group * j->width; c < (group + 1) * j->width; c++)
        for (int64_t p = 0; p < j->parts; p++) {
            int64_t item = n * j->blocks + c / B;
            const totals *t = totals_of(j, item, p);
            double more = (double)reach_of(j, item, p).count, all = have + more;
            double delta = t->a[c % B] - mean;
            mean += delta * more / all;
            squares += t->b[c % B] + delta * delta * have * more / all;
            have = all;
        }
    int64_t at = n * (j->channels / j->width) + group;
    j->mean[at] = (float)mean;
    j->variance[at] = (float)(squares / have);
}

static void close_forward(const meg_simd_setnorm *j, int64_t n)
{
    for (int64_t g = 0; g < j->channels / j->width; g++)
        join_group(j, n, g);
    set_constants(j, n);
}

/* ---- backward ---- */

/* The gradient that reaches the normalisation: of both consumers, through the rectifier. */
MEG_INLINE vec gradient(const meg_simd_setnorm *j, int64_t at, vec y, bool relu)
{
    vec g = load(j->dy + at);
    if (j->dy2) g += load(j->dy2 + at);
    return relu ? keep(~(y <= 0), g) : g;
}

MEG_INLINE void sum_part(const meg_simd_setnorm *j, int64_t item, int64_t part, bool relu)
{
    const constants *k = (const constants *)j->scratch + item;
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    totals *t = totals_of(j, item, part);
    reach r = reach_of(j, item, part);
    memset(t, 0, sizeof *t);
    for (int64_t i = 0; i < r.count; i += RUN) {
        int64_t end = least(i + RUN, r.count);
        vec sum = {0}, product = {0}; /* of g and of g * (x - mean) */
        for (int64_t v = i; v < end; v++) {
            int64_t at = r.at + v * B;
            vec d = load(j->x + at) - mean;
            vec g = gradient(j, at, normalised(d, scale, bias), relu);
            sum += g, product += g * d;
        }
        for (int l = 0; l < B; l++) {
            t->a[l] += (double)sum[l];
            t->b[l] += (double)product[l];
        }
    }
}

static void sum_backward(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    if (j->relu) sum_part(j, item, part, true);
    else sum_part(j, item, part, false);
}

/* Sums of the channels first, then what the group takes off each gradient. */
static void close_group(const meg_simd_setnorm *j, int64_t n, int64_t group)
{
    double sum = 0, dot = 0, count = (double)(j->width * j->pixels);
    int64_t lo = group * j->width, hi = lo + j->width;
    for (int64_t c = lo; c < hi; c++) {
        constants *k = constants_of(j, n, c);
        int64_t l = c % B;
        double weight = j->weight ? (double)j->weight[c] : 1;
        for (int64_t p = 0; p < j->parts; p++) {
            const totals *t = totals_of(j, n * j->blocks + c / B, p);
            k->dbias[l] += t->a[l];
            k->dweight[l] += t->b[l] * k->inverse[l];
        }
        sum += weight * k->dbias[l];
        dot += weight * k->dweight[l];
    }
    for (int64_t c = lo; c < hi; c++) {
        constants *k = constants_of(j, n, c);
        double rate = k->inverse[c % B];
        k->offset[c % B] = (float)(rate * sum / count);
        k->slope[c % B] = (float)(rate * rate * dot / count);
    }
}

static void close_backward(const meg_simd_setnorm *j, int64_t n)
{
    for (int64_t g = 0; g < j->channels / j->width; g++)
        close_group(j, n, g);
}

MEG_INLINE void back_part(const meg_simd_setnorm *j, int64_t item, int64_t part, bool relu)
{
    const constants *k = (const constants *)j->scratch + item;
    vec mean = load(k->mean), scale = load(k->scale), bias = load(k->bias);
    vec offset = load(k->offset), slope = load(k->slope);
    reach r = reach_of(j, item, part);
    for (int64_t i = 0; i < r.count; i++) {
        int64_t at = r.at + i * B;
        vec d = load(j->x + at) - mean;
        vec g = gradient(j, at, normalised(d, scale, bias), relu);
        store(j->dx + at, scale * g - offset - d * slope);
    }
}

static void apply_backward(const meg_simd_setnorm *j, int64_t item, int64_t part)
{
    if (j->relu) back_part(j, item, part, true);
    else back_part(j, item, part, false);
}

/* Of a weight: the sum over the samples, in ascending order. */
static void weight_gradients(const meg_simd_setnorm *j)
{
    for (int64_t c = 0; c < j->channels; c++) {
        double dweight = 0, dbias = 0;
        for (int64_t n = 0; n < j->samples; n++) {
            const constants *k = constants_of(j, n, c);
            dweight += k->dweight[c % B];
            dbias += k->dbias[c % B];
        }
        if (j->dweight) j->dweight[c] = (float)dweight;
        if (j->dbias) j->dbias[c] = (float)dbias;
    }
}

/* ---- the kernels ---- */

void MEG_SIMD(groupnorm_train)(const meg_simd_setnorm *j)
{
    walk(j, &(phases){.sum = sum_forward, .close = close_forward, .apply = apply});
}

void MEG_SIMD(groupnorm_apply)(const meg_simd_setnorm *j)
{
    walk(j, &(phases){.open = set_constants, .apply = apply});
}

void MEG_SIMD(groupnorm_back)(const meg_simd_setnorm *j)
{
    walk(j, &(phases){.open = set_constants,
                      .sum = sum_backward,
                      .close = close_backward,
                      .apply = j->dx ? apply_backward : NULL});
    weight_gradients(j);
}

int64_t MEG_SIMD(groupnorm_bytes)(const meg_simd_setnorm *j)
{
    int64_t items = j->samples * j->blocks;
    return items * (int64_t)sizeof(constants) + items * j->parts * (int64_t)sizeof(totals);
}
