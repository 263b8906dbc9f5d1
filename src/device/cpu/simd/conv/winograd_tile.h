/* The transforms of Winograd's convolution, one tile of one block of channels at a time.
 *
 * A convolution of 4 outputs with 3 taps (or of 3 outputs with 4 taps: the weight gradient) is a
 * product of polynomials, found from its values at 6 points (Winograd 1980; Lavin and Gray 2016):
 *
 *     out = A^T [ (G g) . (B^T d) ]        d: 6 inputs, g: 3 or 4 taps, out: 4 or 3
 *
 * in both directions of the plane: 36 products for 16 outputs, where 144 were. The points are 0,
 * +-sqrt(1/2), +-sqrt(2) and infinity: with squares that are each other's inverse, rounding errors
 * are half of those that the usual 0, +-1, +-2 give.
 */
#ifndef MEG_DEVICE_CPU_SIMD_CONV_WINOGRAD_TILE_H
#define MEG_DEVICE_CPU_SIMD_CONV_WINOGRAD_TILE_H

#include "device/cpu/simd/conv/winograd.h"
#include "device/cpu/simd/vec.h"

enum {
    TILE = MEG_WINOGRAD_TILE,
    SIDE = MEG_WINOGRAD_SIDE,
    POINTS = MEG_WINOGRAD_POINTS,
    TAPS = 3
};

static const float near = 0.70710678118654752440F; /* sqrt(1/2): its square is 0.5 */
static const float away = 1.41421356237309504880F; /* sqrt(2): its square is 2 */

/* ---- along one direction; `s`, `q`: vectors from one element to the next ---- */

/* B^T: inputs to values */
MEG_INLINE void to_points(vec *o, int q, const vec *d, int s)
{
    vec a0 = d[4 * s] - 2 * d[2 * s], a1 = near * (d[3 * s] - 2 * d[s]);
    vec b0 = d[4 * s] - 0.5F * d[2 * s], b1 = away * (d[3 * s] - 0.5F * d[s]);
    o[0] = d[0] + (d[4 * s] - 2.5F * d[2 * s]);
    o[q] = a0 + a1;
    o[2 * q] = a0 - a1;
    o[3 * q] = b0 + b1;
    o[4 * q] = b0 - b1;
    o[5 * q] = d[s] + (d[5 * s] - 2.5F * d[3 * s]);
}

/* G: `taps` coefficients to values, over the product of the differences of the points */
MEG_INLINE void taps_to_points(vec *o, int q, const vec *g, int s, const int taps)
{
    vec a0 = g[0] + 0.5F * g[2 * s], a1 = g[s];
    vec b0 = g[0] + 2 * g[2 * s], b1 = g[s];
    if (taps == 4) {
        a1 += 0.5F * g[3 * s];
        b1 += 2 * g[3 * s];
    }
    o[0] = g[0];
    o[q] = (-2.0F / 3) * (a0 + near * a1);
    o[2 * q] = (-2.0F / 3) * (a0 - near * a1);
    o[3 * q] = (1.0F / 6) * (b0 + away * b1);
    o[4 * q] = (1.0F / 6) * (b0 - away * b1);
    o[5 * q] = g[(taps - 1) * s];
}

/* A^T: products at the points to `count` outputs */
MEG_INLINE void from_points(vec *o, int q, const vec *m, int s, const int count)
{
    vec a0 = m[s] + m[2 * s], a1 = near * (m[s] - m[2 * s]);
    vec b0 = m[3 * s] + m[4 * s], b1 = away * (m[3 * s] - m[4 * s]);
    o[0] = m[0] + a0 + b0;
    o[q] = a1 + b1;
    o[2 * q] = 0.5F * a0 + 2 * b0;
    if (count == 4) o[3 * q] = 0.5F * a1 + 2 * b1 + m[5 * s];
    else o[2 * q] += m[5 * s];
}

/* ---- where tiles are ---- */

typedef struct tile {
    int64_t plane; /* of y, over all samples */
    int64_t row, column;
} tile;

static inline tile tile_at(const meg_winograd *j, int64_t i)
{
    int64_t plane = j->rows * j->columns, rest = i % plane;
    return (tile){i / plane, rest / j->columns, rest % j->columns};
}

static inline void tile_next(const meg_winograd *j, tile *t)
{
    if (++t->column < j->columns) return;
    t->column = 0;
    if (++t->row < j->rows) return;
    t->row = 0;
    t->plane++;
}

typedef struct pixels { /* vectors, B apart in a row */
    const float *at;
    int64_t row; /* floats to the next */
} pixels;

/* The plane of x that layer c of a plane of y is; NULL: it lies in the padding. */
static inline const float *plane_of_layer(const meg_winograd *j, int64_t plane, int64_t c)
{
    int64_t n = plane / j->planes[1], d = plane % j->planes[1] - j->above + c % j->depths;
    int64_t blocks = j->from / j->depths;
    if (d < 0 || d >= j->planes[0]) return NULL;
    return j->x + ((n * blocks + c / j->depths) * j->planes[0] + d) * j->in[0] * j->in[1] * B;
}

/* Where plane `plane` of block k of y, or dy, begins: floats. */
static inline int64_t plane_of_block(const meg_winograd *j, int64_t plane, int64_t k)
{
    int64_t n = plane / j->planes[1], d = plane % j->planes[1];
    return ((n * j->to + k) * j->planes[1] + d) * j->out[0] * j->out[1] * B;
}

/* `side` x `side` pixels of a plane (extent, B) from (y, x) on: where they are if all lie inside,
 * else copied to `room` with zeros around. */
MEG_INLINE pixels pixels_of(const float *plane, const int64_t extent[2], const int64_t yx[2],
                            const int side, float *room)
{
    int64_t y = yx[0], x = yx[1], h = extent[0], w = extent[1];
    if (y >= 0 && x >= 0 && y + side <= h && x + side <= w)
        return (pixels){plane + (y * w + x) * B, w * B};
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            bool inside = y + i >= 0 && y + i < h && x + k >= 0 && x + k < w;
            store(room + (i * side + k) * B,
                  inside ? load(plane + ((y + i) * w + x + k) * B) : splat(0));
        }
    return (pixels){room, side * B};
}

/* ---- in the plane; `step`: floats from one point to the next ---- */

/* SIDE x SIDE inputs */
MEG_INLINE void data_tile(float *restrict out, int64_t step, pixels p)
{
    vec half[POINTS];
#pragma GCC unroll 36
    for (int k = 0; k < SIDE; k++) {
        vec d[SIDE];
#pragma GCC unroll 36
        for (int i = 0; i < SIDE; i++)
            d[i] = load(p.at + i * p.row + k * B);
        to_points(half + k, SIDE, d, 1);
    }
#pragma GCC unroll 36
    for (int i = 0; i < SIDE; i++) {
        vec o[SIDE];
        to_points(o, 1, half + i * SIDE, 1);
#pragma GCC unroll 36
        for (int k = 0; k < SIDE; k++)
            store(out + (i * SIDE + k) * step, o[k]);
    }
}

/* Of tile `at` of layer c; y, x of its first output are a multiple of the tile. */
MEG_INLINE void layer_tile(const meg_winograd *j, float *restrict out, int64_t step, const tile *at,
                           int64_t c)
{
    float room[POINTS * B];
    const float *plane = plane_of_layer(j, at->plane, c);
    int64_t yx[] = {at->row * TILE - j->before[0], at->column * TILE - j->before[1]};
    if (plane) data_tile(out, step, pixels_of(plane, j->in, yx, SIDE, room));
    for (int i = 0; !plane && i < POINTS; i++)
        store(out + i * step, splat(0));
}

/* taps x taps coefficients: weights, or a tile of dy */
MEG_INLINE void taps_tile(float *restrict out, int64_t step, const vec *g, const int taps)
{
    vec half[SIDE * TILE];
#pragma GCC unroll 36
    for (int k = 0; k < taps; k++)
        taps_to_points(half + k, taps, g + k, taps, taps);
#pragma GCC unroll 36
    for (int i = 0; i < SIDE; i++) {
        vec o[SIDE];
        taps_to_points(o, 1, half + i * taps, 1, taps);
#pragma GCC unroll 36
        for (int k = 0; k < SIDE; k++)
            store(out + (i * SIDE + k) * step, o[k]);
    }
}

/* out (count, count) of the products at all points */
MEG_INLINE void result_tile(vec *out, const float *restrict m, int64_t step, const int count)
{
    vec half[TILE * SIDE];
#pragma GCC unroll 36
    for (int k = 0; k < SIDE; k++) {
        vec column[SIDE];
#pragma GCC unroll 36
        for (int i = 0; i < SIDE; i++)
            column[i] = load(m + (i * SIDE + k) * step);
        from_points(half + k, SIDE, column, 1, count);
    }
#pragma GCC unroll 36
    for (int i = 0; i < count; i++)
        from_points(out + i * count, 1, half + i * SIDE, 1, count);
}

/* ---- memory ---- */

static inline float *aligned(float *scratch)
{
    uintptr_t unit = MEG_WINOGRAD_ALIGN, at = (uintptr_t)scratch;
    return scratch + (unit - at % unit) % unit / sizeof(float);
}

#endif
