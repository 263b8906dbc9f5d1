/* The softmax of attention, tile by tile: exponentials against the largest product so far, and what
 * that makes of the sums before (Milakov, Gimelshein, Online normalizer calculation for softmax,
 * 2018). One thread works on a tile; threads share the tiles.
 */
#include "device/cpu/simd/exp.h"
#include "device/cpu/simd/tile.h"

void MEG_SIMD(tile)(const meg_tile *t);
void MEG_SIMD(tile_back)(const meg_tile *t);

static ivec lanes_below(int64_t count) /* those of a vector at 0; all or none far from it */
{
    return lane_mask(count > B ? B : (int)count);
}

static float top_of(vec v)
{
    float top = v[0];
    for (int l = 1; l < B; l++)
        top = v[l] > top ? v[l] : top;
    return top;
}

static float sum_of(vec v)
{
    float sum = 0;
    for (int l = 0; l < B; l++)
        sum += v[l];
    return sum;
}

/* Columns that row r sees. */
static int64_t seen_by(const meg_tile *t, int64_t r)
{
    return least(t->cols, t->seen + r);
}

static float row_top(const float *s, int64_t count)
{
    const vec none = splat(-__builtin_inff());
    vec top = none;
    for (int64_t j = 0; j < count; j += B) {
        vec x = load(s + j);
        if (count - j < B) x = (vec)pick(lanes_below(count - j), (ivec)x, (ivec)none);
        top = (vec)pick(x > top, (ivec)x, (ivec)top);
    }
    return top_of(top);
}

/* s = exp(s - top), 0 behind what the row sees; returns the sum */
static float row_exp(float *s, int64_t count, int64_t cols, float top)
{
    vec sum = splat(0), shift = splat(top);
    for (int64_t j = 0; j < cols; j += B) {
        vec y = splat(0);
        if (j < count) y = exp_of(load(s + j) - shift);
        if (j < count && count - j < B) y = keep(lanes_below(count - j), y);
        store(s + j, y);
        sum += y;
    }
    return sum_of(sum);
}

void MEG_SIMD(tile)(const meg_tile *t)
{
    for (int64_t r = 0; r < t->rows; r++) {
        float *s = t->s + r * MEG_TILE_COLS;
        int64_t count = seen_by(t, r);
        float top = row_top(s, count);
        if (top < t->top[r]) top = t->top[r];
        t->scale[r] = exp_of(splat(t->top[r] - top))[0];
        t->sum[r] = t->sum[r] * t->scale[r] + row_exp(s, count, t->cols, top);
        t->top[r] = top;
    }
}

void MEG_SIMD(tile_back)(const meg_tile *t)
{
    for (int64_t r = 0; r < t->rows; r++) {
        float *s = t->s + r * MEG_TILE_COLS, *ds = t->ds + r * MEG_TILE_COLS;
        int64_t count = seen_by(t, r);
        row_exp(s, count, t->cols, t->z[r]);
        vec mean = splat(t->mean[r]), factor = splat(t->factor);
        for (int64_t j = 0; j < t->cols; j += B)
            store(ds + j, load(s + j) * (load(ds + j) - mean) * factor);
    }
}
