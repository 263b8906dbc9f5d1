/* Layer normalisation over the channels of each pixel, forward and backward. A *tile* of pixels is
 * swept several times, block by block, while it lies in the cache: mean, squares about it, result.
 *
 *     x[n]    block 0 | p0 p1 ... | tile | ... |       a pixel's channels: one vector of each block
 *             block 1 | p0 p1 ... | tile | ... |
 *
 * Sums over blocks are floats, over the lanes of a vector doubles. A task is a part of the pixels
 * of one sample, cut at fixed places; the gradients of weight and bias are summed per task in double
 * and added up in order, so that threads do not change the result.
 */
#include "device/cpu/simd/vec.h"

#include <math.h>

enum {
    TILE = 16,
    PART = 256 /* pixels of a task: whole tiles */
};

typedef struct tile {
    int64_t x;     /* float where block 0 of its first pixel lies */
    int64_t pixel; /* the first, of all samples */
    int64_t count; /* pixels */
} tile;

/* ---- sums over channels ---- */

static double lanes_sum(vec v)
{
    double sum = 0;
    for (int l = 0; l < B; l++)
        sum += (double)v[l];
    return sum;
}

/* Lanes of block b that exist, as a mask. */
MEG_INLINE ivec exists(const meg_simd_setnorm *j, int64_t b)
{
    return lane_mask(lanes_of(j->channels, b));
}

static void tile_mean(const meg_simd_setnorm *j, const tile *t)
{
    vec sum[TILE] = {{0}};
    for (int64_t b = 0; b < j->blocks; b++)
        for (int64_t i = 0; i < t->count; i++)
            sum[i] += load(j->x + t->x + (b * j->pixels + i) * B);
    for (int64_t i = 0; i < t->count; i++)
        j->mean[t->pixel + i] = (float)(lanes_sum(sum[i]) / (double)j->channels);
}

/* The sum of deviations corrects what rounding left in the mean. */
static void tile_variance(const meg_simd_setnorm *j, const tile *t)
{
    vec sum[TILE] = {{0}}, squares[TILE] = {{0}};
    for (int64_t b = 0; b < j->blocks; b++) {
        ivec real = exists(j, b);
        for (int64_t i = 0; i < t->count; i++) {
            vec d = load(j->x + t->x + (b * j->pixels + i) * B) - j->mean[t->pixel + i];
            d = keep(real, d);
            sum[i] += d, squares[i] += d * d;
        }
    }
    for (int64_t i = 0; i < t->count; i++) {
        double rest = lanes_sum(sum[i]) / (double)j->channels;
        double variance = lanes_sum(squares[i]) / (double)j->channels - rest * rest;
        j->variance[t->pixel + i] = (float)(variance < 0 ? 0 : variance); /* NaN stays */
    }
}

/* ---- forward ---- */

static void load_rates(const meg_simd_setnorm *j, const tile *t, float rate[TILE])
{
    for (int64_t i = 0; i < t->count; i++)
        rate[i] = (float)(1 / sqrt((double)j->variance[t->pixel + i] + j->epsilon));
}

/* A block's weights or biases; `initial` where there are none, 0 in the padding. */
MEG_INLINE vec affine(const float *from, int64_t b, int lanes, float initial)
{
    vec v = {0};
    for (int l = 0; l < lanes; l++)
        v[l] = from ? from[b * B + l] : initial;
    return v;
}

static void tile_apply(const meg_simd_setnorm *j, const tile *t)
{
    float rate[TILE];
    load_rates(j, t, rate);
    for (int64_t b = 0; b < j->blocks; b++) {
        int lanes = lanes_of(j->channels, b);
        vec weight = affine(j->weight, b, lanes, 1), bias = affine(j->bias, b, lanes, 0);
        for (int64_t i = 0; i < t->count; i++) {
            int64_t at = t->x + (b * j->pixels + i) * B;
            vec hat = (load(j->x + at) - j->mean[t->pixel + i]) * rate[i];
            store(j->y + at, hat * weight + bias);
        }
    }
}

/* ---- backward ---- */

typedef struct means { /* of g = weight dy and of g x^, of each pixel */
    float g[TILE], dot[TILE];
} means;

MEG_INLINE vec gradient(const meg_simd_setnorm *j, int64_t at)
{
    vec g = load(j->dy + at);
    if (j->dy2) g += load(j->dy2 + at);
    return g;
}

/* Sums of a tile over its channels, and what it adds to the gradients of weight and bias. */
static void tile_reduce(const meg_simd_setnorm *j, const tile *t, const float rate[TILE],
                        double *partial, means *m)
{
    vec sum[TILE] = {{0}}, dots[TILE] = {{0}};
    for (int64_t b = 0; b < j->blocks; b++) {
        vec weight = affine(j->weight, b, lanes_of(j->channels, b), 1);
        vec dweight = {0}, dbias = {0};
        for (int64_t i = 0; i < t->count; i++) {
            int64_t at = t->x + (b * j->pixels + i) * B;
            vec hat = (load(j->x + at) - j->mean[t->pixel + i]) * rate[i], g = gradient(j, at);
            dweight += g * hat, dbias += g;
            sum[i] += weight * g, dots[i] += weight * g * hat;
        }
        for (int l = 0; l < B; l++) {
            partial[2 * b * B + l] += (double)dweight[l];
            partial[(2 * b + 1) * B + l] += (double)dbias[l];
        }
    }
    for (int64_t i = 0; i < t->count; i++) {
        m->g[i] = (float)(lanes_sum(sum[i]) / (double)j->channels);
        m->dot[i] = (float)(lanes_sum(dots[i]) / (double)j->channels);
    }
}

/* dx = rate (g - mean of g - x^ mean of g x^) */
static void tile_pull(const meg_simd_setnorm *j, const tile *t, const float rate[TILE],
                      const means *m)
{
    for (int64_t b = 0; b < j->blocks; b++) {
        int lanes = lanes_of(j->channels, b);
        vec weight = affine(j->weight, b, lanes, 1);
        ivec real = lane_mask(lanes);
        for (int64_t i = 0; i < t->count; i++) {
            int64_t at = t->x + (b * j->pixels + i) * B;
            vec hat = (load(j->x + at) - j->mean[t->pixel + i]) * rate[i];
            vec dx = rate[i] * (weight * gradient(j, at) - m->g[i] - hat * m->dot[i]);
            store(j->dx + at, keep(real, dx));
        }
    }
}

static void tile_back(const meg_simd_setnorm *j, const tile *t, double *partial)
{
    float rate[TILE];
    means m;
    load_rates(j, t, rate);
    tile_reduce(j, t, rate, partial, &m);
    if (j->dx) tile_pull(j, t, rate, &m);
}

/* The sum over the tasks, in ascending order. */
static void weight_gradients(const meg_simd_setnorm *j, int64_t tasks)
{
    const double *partial = j->scratch;
    int64_t room = 2 * j->blocks * B;
    for (int64_t c = 0; c < j->channels; c++) {
        int64_t at = 2 * (c / B) * B + c % B;
        double dweight = 0, dbias = 0;
        for (int64_t k = 0; k < tasks; k++) {
            dweight += partial[k * room + at];
            dbias += partial[k * room + at + B];
        }
        if (j->dweight) j->dweight[c] = (float)dweight;
        if (j->dbias) j->dbias[c] = (float)dbias;
    }
}

/* ---- the kernels ---- */

static int64_t parts_of(const meg_simd_setnorm *j)
{
    return (j->pixels + PART - 1) / PART;
}

static void train_tile(const meg_simd_setnorm *j, const tile *t, double *partial)
{
    (void)partial;
    tile_mean(j, t);
    tile_variance(j, t);
    tile_apply(j, t);
}

static void apply_tile(const meg_simd_setnorm *j, const tile *t, double *partial)
{
    (void)partial;
    tile_apply(j, t);
}

static void walk(const meg_simd_setnorm *j,
                 void (*work)(const meg_simd_setnorm *j, const tile *t, double *partial))
{
    int64_t parts = parts_of(j), room = 2 * j->blocks * B;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t k = 0; k < j->samples * parts; k++) {
        int64_t n = k / parts, lo = k % parts * PART, hi = least(lo + PART, j->pixels);
        double *partial = work == tile_back ? (double *)j->scratch + k * room : NULL;
        if (partial) memset(partial, 0, (size_t)room * sizeof *partial);
        for (int64_t p = lo; p < hi; p += TILE) {
            tile t = {(n * j->blocks * j->pixels + p) * B, n * j->pixels + p, least(TILE, hi - p)};
            work(j, &t, partial);
        }
    }
}

void MEG_SIMD(layernorm_train)(const meg_simd_setnorm *j)
{
    walk(j, train_tile);
}

void MEG_SIMD(layernorm_apply)(const meg_simd_setnorm *j)
{
    walk(j, apply_tile);
}

void MEG_SIMD(layernorm_back)(const meg_simd_setnorm *j)
{
    walk(j, tile_back);
    weight_gradients(j, j->samples * parts_of(j));
}

int64_t MEG_SIMD(layernorm_bytes)(const meg_simd_setnorm *j)
{
    return j->samples * parts_of(j) * 2 * j->blocks * B * (int64_t)sizeof(double);
}
