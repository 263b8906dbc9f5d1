/* Element by element, whatever the format: sums with an optional rectifier, and gradients through
 * it. NaN passes both, as in the plain kernels. Work is cut into tiles that stay in the first
 * cache, so that further outputs (equal gradients) are copies of warm memory.
 */
#include "device/cpu/simd/vec.h"

enum {
    TILE = 4096
}; /* floats */

MEG_INLINE vec rectify(vec v)
{
    return keep(~(v < 0), v);
}

/* How a loop is specialised. */
enum {
    RELU = 1,
    TWO = 2,
    PAST = 4
}; /* rectified; two inputs; stores go past the caches */

/* y = sum of the inputs; y may be one of them */
MEG_INLINE void add_tile(const meg_simd_flat *j, int64_t lo, int64_t hi, int how)
{
    const float *a = j->x[0], *b = j->x[1];
    float *y = j->y[0];
    int64_t i = lo;
    for (; i + B <= hi; i += B) {
        vec sum = load(a + i);
        if (how & TWO) sum += load(b + i);
        for (int k = 1; !(how & TWO) && k < j->inputs; k++)
            sum += load(j->x[k] + i);
        put(y + i, how & RELU ? rectify(sum) : sum, how & PAST);
    }
    for (; i < hi; i++) {
        float sum = a[i];
        for (int k = 1; k < j->inputs; k++)
            sum += j->x[k][i];
        y[i] = (how & RELU) && sum < 0 ? 0 : sum;
    }
}

static void add_range(const meg_simd_flat *j, int64_t lo, int64_t hi, int how)
{
    switch (how) {
    case 0:
        add_tile(j, lo, hi, 0);
        break;
    case RELU:
        add_tile(j, lo, hi, RELU);
        break;
    case TWO:
        add_tile(j, lo, hi, TWO);
        break;
    case RELU | TWO:
        add_tile(j, lo, hi, RELU | TWO);
        break;
    case PAST:
        add_tile(j, lo, hi, PAST);
        break;
    case RELU | PAST:
        add_tile(j, lo, hi, RELU | PAST);
        break;
    case TWO | PAST:
        add_tile(j, lo, hi, TWO | PAST);
        break;
    default:
        add_tile(j, lo, hi, RELU | TWO | PAST);
        break;
    }
}

/* y = sign > 0 ? a [+ b] : 0; y may be a */
MEG_INLINE void mask_tile(const meg_simd_flat *j, int64_t lo, int64_t hi, int how)
{
    const float *a = j->x[0], *b = j->x[1], *sign = j->sign;
    float *y = j->y[0];
    int64_t i = lo;
    for (; i + B <= hi; i += B) {
        vec g = load(a + i);
        if (how & TWO) g += load(b + i);
        put(y + i, keep(~(load(sign + i) <= 0), g), how & PAST);
    }
    for (; i < hi; i++) {
        float g = how & TWO ? a[i] + b[i] : a[i];
        y[i] = sign[i] <= 0 ? 0 : g;
    }
}

static void mask_range(const meg_simd_flat *j, int64_t lo, int64_t hi, int how)
{
    switch (how) {
    case 0:
        mask_tile(j, lo, hi, 0);
        break;
    case TWO:
        mask_tile(j, lo, hi, TWO);
        break;
    case PAST:
        mask_tile(j, lo, hi, PAST);
        break;
    default:
        mask_tile(j, lo, hi, TWO | PAST);
        break;
    }
}

/* Further outputs are copies, while the first is still in the cache. */
static void repeat_tile(const meg_simd_flat *j, int64_t lo, int64_t hi)
{
    for (int k = 1; k < j->outputs; k++)
        memcpy(j->y[k] + lo, j->y[0] + lo, (size_t)(hi - lo) * sizeof(float));
}

static int how_of(const meg_simd_flat *j)
{
    bool past = j->outputs == 1 && far_away(j->y[0], j->count);
    for (int k = 0; k < j->inputs; k++)
        if (j->y[0] == j->x[k]) past = false;
    return (j->inputs == 2 ? TWO : 0) | (past ? PAST : 0);
}

void MEG_SIMD(add)(const meg_simd_flat *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
    int how = how_of(j) | (j->relu ? RELU : 0);
    bool nothing = j->inputs == 1 && !j->relu && j->y[0] == j->x[0];
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t lo = t * TILE, hi = least(lo + TILE, j->count);
        if (!nothing) add_range(j, lo, hi, how);
        repeat_tile(j, lo, hi);
        flush();
    }
}

void MEG_SIMD(mask)(const meg_simd_flat *j)
{
    int64_t tiles = (j->count + TILE - 1) / TILE;
    int how = how_of(j);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tiles > 1)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t lo = t * TILE, hi = least(lo + TILE, j->count);
        mask_range(j, lo, hi, how);
        repeat_tile(j, lo, hi);
        flush();
    }
}

/* ---- parts ---- */

MEG_INLINE int64_t place(const meg_simd_side *s, const int64_t at[4])
{
    return s->first + at[0] * s->sample + at[1] * s->block + at[2] * s->slice + at[3] * s->row;
}

/* One row as a job of its own. */
static meg_simd_flat row_of(const meg_simd_flat_part *j, int64_t row)
{
    const meg_simd_part *p = &j->part;
    int64_t at[4] = {row / (p->rows * p->slices * p->blocks),
                     row / (p->rows * p->slices) % p->blocks, row / p->rows % p->slices,
                     row % p->rows};
    meg_simd_flat f = j->job;
    f.count = p->width;
    for (int k = 0; k < f.inputs; k++)
        f.x[k] += place(&j->x[k], at);
    for (int k = 0; k < f.outputs; k++)
        f.y[k] += place(&j->y[k], at);
    if (f.sign) f.sign += place(&j->sign, at);
    return f;
}

typedef void range(const meg_simd_flat *j, int64_t lo, int64_t hi, int how);

static void walk_part(const meg_simd_flat_part *j, range *over, int how)
{
    const meg_simd_part *p = &j->part;
    int64_t tiles = (p->width + TILE - 1) / TILE;
    int64_t tasks = p->samples * p->blocks * p->slices * p->rows * tiles;
    if (!j->even) how &= ~PAST;
#pragma omp parallel for schedule(static) num_threads(j->job.threads) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t lo = t % tiles * TILE, hi = least(lo + TILE, p->width);
        meg_simd_flat row = row_of(j, t / tiles);
        over(&row, lo, hi, how);
        repeat_tile(&row, lo, hi);
        flush();
    }
}

void MEG_SIMD(add_part)(const meg_simd_flat_part *j)
{
    walk_part(j, add_range, how_of(&j->job) | (j->job.relu ? RELU : 0));
}

void MEG_SIMD(mask_part)(const meg_simd_flat_part *j)
{
    walk_part(j, mask_range, how_of(&j->job));
}
