/* Element by element, whatever the format: sums with an optional rectifier, and gradients through
 * it. NaN passes both, as in the plain kernels. Work is cut into tiles that stay in the first
 * cache, so that further outputs (equal gradients) are copies of warm memory.
 */
#include "device/simd/vec.h"

enum { TILE = 4096 }; /* floats */

MEG_INLINE vec rectify(vec v)
{
    return keep(~(v < 0), v);
}

/* y = sum of the inputs; y may be one of them */
MEG_INLINE void add_tile(const meg_simd_flat *j, int64_t lo, int64_t hi, bool relu)
{
    float *y = j->y[0];
    int64_t i = lo;
    for (; i + B <= hi; i += B) {
        vec sum = load(j->x[0] + i);
        for (int k = 1; k < j->inputs; k++) sum += load(j->x[k] + i);
        store(y + i, relu ? rectify(sum) : sum);
    }
    for (; i < hi; i++) {
        float sum = j->x[0][i];
        for (int k = 1; k < j->inputs; k++) sum += j->x[k][i];
        y[i] = relu && sum < 0 ? 0 : sum;
    }
}

/* The usual residual join: two inputs, no inner loop. */
MEG_INLINE void add_two(const meg_simd_flat *j, int64_t lo, int64_t hi, bool relu)
{
    const float *a = j->x[0], *b = j->x[1];
    float *y = j->y[0];
    int64_t i = lo;
    for (; i + B <= hi; i += B) {
        vec sum = load(a + i) + load(b + i);
        store(y + i, relu ? rectify(sum) : sum);
    }
    for (; i < hi; i++) {
        float sum = a[i] + b[i];
        y[i] = relu && sum < 0 ? 0 : sum;
    }
}

static void add_range(const meg_simd_flat *j, int64_t lo, int64_t hi)
{
    if (j->inputs == 2 && j->relu) add_two(j, lo, hi, true);
    else if (j->inputs == 2) add_two(j, lo, hi, false);
    else if (j->relu) add_tile(j, lo, hi, true);
    else add_tile(j, lo, hi, false);
}

/* y = sign > 0 ? a + b : 0; sign and b may be NULL, y may be a */
MEG_INLINE void mask_tile(const meg_simd_flat *j, int64_t lo, int64_t hi, bool second)
{
    const float *a = j->x[0], *b = j->x[1], *sign = j->sign;
    float *y = j->y[0];
    int64_t i = lo;
    for (; i + B <= hi; i += B) {
        vec g = load(a + i);
        if (second) g += load(b + i);
        store(y + i, keep(~(load(sign + i) <= 0), g));
    }
    for (; i < hi; i++) {
        float g = second ? a[i] + b[i] : a[i];
        y[i] = sign[i] <= 0 ? 0 : g;
    }
}

static void repeat_tile(const meg_simd_flat *j, int64_t lo, int64_t hi)
{
    for (int k = 1; k < j->outputs; k++)
        memcpy(j->y[k] + lo, j->y[0] + lo, (size_t)(hi - lo) * sizeof(float));
}

void MEG_SIMD(add)(const meg_simd_flat *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t lo = t * TILE, hi = least(lo + TILE, j->count);
        if (j->inputs > 1 || j->relu || j->y[0] != j->x[0]) add_range(j, lo, hi);
        repeat_tile(j, lo, hi);
    }
}

void MEG_SIMD(mask)(const meg_simd_flat *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t lo = t * TILE, hi = least(lo + TILE, j->count);
        if (j->inputs > 1) mask_tile(j, lo, hi, true);
        else mask_tile(j, lo, hi, false);
        repeat_tile(j, lo, hi);
    }
}
