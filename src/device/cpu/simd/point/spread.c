/* A value of one sample added to all samples, whatever the format: the positions of a transformer.
 * Backward passes the gradient on and sums it over the samples.
 *
 *     samples  0  [ tile 0 | tile 1 | ... ]     a thread has a tile of all samples: b and the sum
 *              1  [ tile 0 | tile 1 | ... ]     stay in its first cache, and each sum is made in
 *              :                                one order, whatever the number of threads
 */
#include "device/cpu/simd/vec.h"

enum {
    TILE = 2048
}; /* floats */

typedef struct part { /* floats lo .. hi-1 of sample n */
    int64_t n, lo, hi;
} part;

static void add_part(const meg_simd_spread *j, part p)
{
    const float *a = j->a + p.n * j->count;
    float *y = j->y + p.n * j->count;
    int64_t i = p.lo;
    for (; i + B <= p.hi; i += B) {
        vec sum = load(a + i) + load(j->b + i);
        store(y + i, j->relu ? keep(~(sum < 0), sum) : sum);
    }
    for (; i < p.hi; i++) {
        float sum = a[i] + j->b[i];
        y[i] = j->relu && sum < 0 ? 0 : sum;
    }
}

void MEG_SIMD(spread)(const meg_simd_spread *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++)
        for (int64_t n = 0; n < j->samples; n++)
            add_part(j, (part){n, t * TILE, least(t * TILE + TILE, j->count)});
}

/* y = the gradient that passes; sum = it, or that added */
static void pass_part(const meg_simd_spread *j, part p)
{
    int64_t at = p.n * j->count, i = p.lo;
    for (; i + B <= p.hi; i += B) {
        vec g = load(j->a + at + i);
        if (j->a2) g += load(j->a2 + at + i);
        if (j->sign) g = keep(~(load(j->sign + at + i) <= 0), g);
        if (j->y) store(j->y + at + i, g);
        if (j->sum && p.n) g += load(j->sum + i);
        if (j->sum) store(j->sum + i, g);
    }
    for (; i < p.hi; i++) {
        float g = j->a[at + i] + (j->a2 ? j->a2[at + i] : 0);
        if (j->sign && j->sign[at + i] <= 0) g = 0;
        if (j->y) j->y[at + i] = g;
        if (j->sum) j->sum[i] = p.n ? j->sum[i] + g : g;
    }
}

void MEG_SIMD(spread_back)(const meg_simd_spread *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++)
        for (int64_t n = 0; n < j->samples; n++)
            pass_part(j, (part){n, t * TILE, least(t * TILE + TILE, j->count)});
}
