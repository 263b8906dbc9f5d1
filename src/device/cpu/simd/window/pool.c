/* Pooling over windows and over all pixels. A task is one channel block of one sample, so that no
 * two threads write to the same pixel of a gradient; of averages, a row, where windows do not overlap. Which taps of a window lie inside the input is
 * known beforehand, per axis (meg_simd_span): the loops test for nothing.
 */
#include "device/cpu/simd/vec.h"

enum {
    RUN = 256
}; /* pixels that are summed in float */

typedef struct window { /* the part of one window that lies inside the input */
    int64_t at[3];      /* input index of the first tap */
    int64_t taps[3];    /* their number */
    int64_t tap;        /* number of the first in d-h-w order of the whole window */
    int64_t count;      /* denominator of the average */
} window;

static int64_t volume(const int64_t extent[3])
{
    return extent[0] * extent[1] * extent[2];
}

MEG_INLINE window window_at(const meg_simd_pool *j, int64_t d, int64_t h, int64_t w)
{
    const meg_simd_span *s[3] = {&j->span[0][d], &j->span[1][h], &j->span[2][w]};
    window v = {.count = 1};
    for (int a = 0; a < 3; a++) {
        v.at[a] = s[a]->first;
        v.taps[a] = s[a]->hi - s[a]->lo;
        v.tap = v.tap * j->taps[a] + s[a]->lo;
        v.count *= s[a]->count;
    }
    return v;
}

/* Where the line of taps (d, h) of a window begins in a plane of the input, in floats. */
MEG_INLINE int64_t line_at(const meg_simd_pool *j, const window *v, int64_t d, int64_t h)
{
    int64_t q = v->at[0] + d * j->dilation[0], r = v->at[1] + h * j->dilation[1];
    return ((q * j->in[1] + r) * j->in[2] + v->at[2]) * B;
}

/* The number of the first tap of that line. */
MEG_INLINE int32_t tap_at(const meg_simd_pool *j, const window *v, int64_t d, int64_t h)
{
    return (int32_t)(v->tap + (d * j->taps[1] + h) * j->taps[2]);
}

/* Where row (d, h) of a plane begins in what windows make, in floats. */
MEG_INLINE int64_t row_at(const meg_simd_pool *j, int64_t plane, int64_t d, int64_t h)
{
    return j->at.first + plane / j->blocks * j->at.sample + plane % j->blocks * j->at.block +
           d * j->at.slice + h * j->at.row;
}

/* ---- max ---- */

/* The first of equals wins, and a NaN over all, as in the plain kernel. */
MEG_INLINE void max_window(const meg_simd_pool *j, const window *v, const float *x, vec *best,
                           ivec *tap)
{
    *best = load(x + line_at(j, v, 0, 0));
    *tap = (int32_t)v->tap - (ivec){0};
    for (int64_t d = 0; d < v->taps[0]; d++)
        for (int64_t h = 0; h < v->taps[1]; h++) {
            const float *line = x + line_at(j, v, d, h);
            int32_t t = tap_at(j, v, d, h);
            for (int64_t w = 0; w < v->taps[2]; w++) {
                vec a = load(line + w * j->dilation[2] * B);
                ivec larger = (a > *best) | (a != a);
                *best = (vec)pick(larger, (ivec)a, (ivec)*best);
                *tap = pick(larger, (t + (int32_t)w) - (ivec){0}, *tap);
            }
        }
}

/* Places of winning taps in their planes of the input, plain: a lane lies in each plane. */
static void put_indices(const meg_simd_pool *j, const window *v, ivec tap, int32_t *to, int lanes)
{
    int64_t first[3], left = v->tap; /* of the window's first tap, be it inside or not */
    for (int a = 2; a >= 0; a--) {
        first[a] = v->at[a] - left % j->taps[a] * j->dilation[a];
        left /= j->taps[a];
    }
    for (int l = 0; l < lanes; l++) {
        int64_t at = 0, t[3] = {tap[l] / (j->taps[1] * j->taps[2]),
                                tap[l] / j->taps[2] % j->taps[1], tap[l] % j->taps[2]};
        for (int a = 0; a < 3; a++)
            at = at * j->in[a] + first[a] + t[a] * j->dilation[a];
        to[l * volume(j->out)] = (int32_t)at;
    }
}

static void max_plane(const meg_simd_pool *j, int64_t plane)
{
    const float *x = j->x + plane * volume(j->in) * B;
    uint8_t *winner = j->winner ? j->winner + plane * volume(j->out) * B : NULL;
    int64_t n = plane / j->blocks, b = plane % j->blocks;
    int lanes = lanes_of(j->channels, b);
    int32_t *index = j->index ? j->index + (n * j->channels + b * B) * volume(j->out) : NULL;
    ivec real = lane_mask(lanes);
    for (int64_t d = 0; d < j->out[0]; d++)
        for (int64_t h = 0; h < j->out[1]; h++)
            for (int64_t w = 0; w < j->out[2]; w++) {
                window v = window_at(j, d, h, w);
                vec best;
                ivec tap;
                max_window(j, &v, x, &best, &tap);
                store(j->y + row_at(j, plane, d, h) + w * B, best);
                if (index) put_indices(j, &v, tap, index++, lanes);
                if (!winner) continue;
                *(bvec *)winner = __builtin_convertvector(tap & real, bvec);
                winner += B;
            }
}

void MEG_SIMD(maxpool)(const meg_simd_pool *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        max_plane(j, p);
}

MEG_INLINE void max_scatter(const meg_simd_pool *j, const window *v, float *dx, vec g, ivec tap)
{
    for (int64_t d = 0; d < v->taps[0]; d++)
        for (int64_t h = 0; h < v->taps[1]; h++) {
            float *line = dx + line_at(j, v, d, h);
            int32_t t = tap_at(j, v, d, h);
            for (int64_t w = 0; w < v->taps[2]; w++) {
                float *to = line + w * j->dilation[2] * B;
                store(to, load(to) + keep(tap == t + (int32_t)w, g));
            }
        }
}

MEG_INLINE vec gradient(const meg_simd_pool *j, int64_t at)
{
    vec g = load(j->dy + at);
    if (j->dy2) g += load(j->dy2 + at);
    return g;
}

static void max_plane_back(const meg_simd_pool *j, int64_t plane)
{
    const uint8_t *winner = j->winner + plane * volume(j->out) * B;
    float *dx = j->dx + plane * volume(j->in) * B;
    memset(dx, 0, (size_t)(volume(j->in) * B) * sizeof(float));
    for (int64_t d = 0; d < j->out[0]; d++)
        for (int64_t h = 0; h < j->out[1]; h++)
            for (int64_t w = 0; w < j->out[2]; w++, winner += B) {
                window v = window_at(j, d, h, w);
                ivec tap = __builtin_convertvector(*(const bvec *)winner, ivec);
                max_scatter(j, &v, dx, gradient(j, row_at(j, plane, d, h) + w * B), tap);
            }
}

void MEG_SIMD(maxpool_back)(const meg_simd_pool *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        max_plane_back(j, p);
}

/* ---- average ---- */

MEG_INLINE vec sum_window(const meg_simd_pool *j, const window *v, const float *x)
{
    vec sum = {0};
    for (int64_t d = 0; d < v->taps[0]; d++)
        for (int64_t h = 0; h < v->taps[1]; h++) {
            const float *line = x + line_at(j, v, d, h);
            for (int64_t w = 0; w < v->taps[2]; w++)
                sum += load(line + w * j->dilation[2] * B);
        }
    return sum;
}

/* One row of outputs. Planes may be fewer than threads: a volume of 16 channels is one. */
static void avg_row(const meg_simd_pool *j, int64_t row)
{
    int64_t h = row % j->out[1], d = row / j->out[1] % j->out[0];
    int64_t plane = row / j->out[1] / j->out[0];
    const float *x = j->x + plane * volume(j->in) * B;
    float *y = j->y + row_at(j, plane, d, h);
    for (int64_t w = 0; w < j->out[2]; w++, y += B) {
        window v = window_at(j, d, h, w);
        store(y, sum_window(j, &v, x) / (float)v.count);
    }
}

void MEG_SIMD(avgpool)(const meg_simd_pool *j)
{
    int64_t rows = j->samples * j->blocks * j->out[0] * j->out[1];
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t r = 0; r < rows; r++)
        avg_row(j, r);
}

MEG_INLINE void avg_scatter(const meg_simd_pool *j, const window *v, float *dx, vec g)
{
    for (int64_t d = 0; d < v->taps[0]; d++)
        for (int64_t h = 0; h < v->taps[1]; h++) {
            float *line = dx + line_at(j, v, d, h);
            for (int64_t w = 0; w < v->taps[2]; w++) {
                float *to = line + w * j->dilation[2] * B;
                store(to, load(to) + g);
            }
        }
}

static void avg_plane_back(const meg_simd_pool *j, int64_t plane)
{
    float *dx = j->dx + plane * volume(j->in) * B;
    memset(dx, 0, (size_t)(volume(j->in) * B) * sizeof(float));
    for (int64_t d = 0; d < j->out[0]; d++)
        for (int64_t h = 0; h < j->out[1]; h++)
            for (int64_t w = 0; w < j->out[2]; w++) {
                window v = window_at(j, d, h, w);
                int64_t at = row_at(j, plane, d, h) + w * B;
                avg_scatter(j, &v, dx, gradient(j, at) / (float)v.count);
            }
}

/* Whether windows lie side by side from the first pixel on: each pixel has one at most. */
static bool is_tiled(const meg_simd_pool *j)
{
    for (int a = 0; a < 3; a++)
        for (int64_t p = 0; p < j->out[a]; p++) {
            const meg_simd_span *s = &j->span[a][p];
            if (s->first != p * j->taps[a] || s->lo != 0 || s->hi != j->taps[a]) return false;
            if (j->dilation[a] != 1) return false;
        }
    return true;
}

/* One row of pixels under tiles: every pixel is written once, and not read. */
static void avg_row_back(const meg_simd_pool *j, int64_t row)
{
    int64_t h = row % j->in[1] / j->taps[1], d = row / j->in[1] % j->in[0] / j->taps[0];
    int64_t plane = row / j->in[1] / j->in[0], covered = j->out[2] * j->taps[2];
    float *dx = j->dx + row * j->in[2] * B;
    if (d >= j->out[0] || h >= j->out[1]) covered = 0;
    int64_t at = row_at(j, plane, d, h);
    for (int64_t w = 0; w < covered; w += j->taps[2], at += B) {
        window v = window_at(j, d, h, w / j->taps[2]);
        vec g = gradient(j, at) / (float)v.count;
        for (int64_t t = 0; t < j->taps[2]; t++)
            store(dx + (w + t) * B, g);
    }
    memset(dx + covered * B, 0, (size_t)((j->in[2] - covered) * B) * sizeof(float));
}

void MEG_SIMD(avgpool_back)(const meg_simd_pool *j)
{
    int64_t planes = j->samples * j->blocks, rows = planes * j->in[0] * j->in[1];
    if (is_tiled(j)) {
#pragma omp parallel for schedule(static) num_threads(j->threads)
        for (int64_t r = 0; r < rows; r++)
            avg_row_back(j, r);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        avg_plane_back(j, p);
}

/* ---- mean over all pixels ---- */

static void mean_plane(const meg_simd_mean *j, int64_t plane)
{
    const float *x = j->x + plane * j->pixels * B;
    int64_t n = plane / j->blocks, b = plane % j->blocks;
    double sum[B] = {0};
    for (int64_t i = 0; i < j->pixels; i += RUN) {
        int64_t end = least(i + RUN, j->pixels), k = i;
        vec s0 = {0}, s1 = {0};
        for (; k + 2 <= end; k += 2) {
            s0 += load(x + k * B);
            s1 += load(x + (k + 1) * B);
        }
        if (k < end) s0 += load(x + k * B);
        s0 += s1;
        for (int l = 0; l < B; l++)
            sum[l] += (double)s0[l];
    }
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        j->y[n * j->channels + b * B + l] = (float)(sum[l] / j->count);
}

void MEG_SIMD(mean)(const meg_simd_mean *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        mean_plane(j, p);
}

static void mean_plane_back(const meg_simd_mean *j, int64_t plane)
{
    float *dx = j->dx + plane * j->pixels * B;
    int64_t n = plane / j->blocks, b = plane % j->blocks;
    vec g = {0};
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        g[l] = (float)((double)j->dy[n * j->channels + b * B + l] / j->count);
    for (int64_t i = 0; i < j->pixels; i++)
        store(dx + i * B, g);
}

void MEG_SIMD(mean_back)(const meg_simd_mean *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        mean_plane_back(j, p);
}
