/* Weighted sums over spans of pixels: resize and adaptive average pooling, forward and backward.
 * Both gather: an output from the pixels of its spans, a pixel's gradient from the outputs that
 * read it. Which those are is known beforehand, per axis. Rows are summed first, then weighted by
 * what the outer axes say. A task is one channel block of one sample.
 */
#include "device/cpu/simd/vec.h"

static int64_t volume(const int64_t extent[3])
{
    return extent[0] * extent[1] * extent[2];
}

MEG_INLINE float weight_of(const meg_simd_reach *s, int64_t q)
{
    if (s->cubic) return s->each[q - s->lo];
    return q == s->lo ? s->first : s->rest;
}

/* ---- forward ---- */

MEG_INLINE vec read_row(const float *row, const meg_simd_reach *w)
{
    vec sum = weight_of(w, w->lo) * load(row + w->lo * B);
    for (int64_t q = w->lo + 1; q < w->hi; q++)
        sum += weight_of(w, q) * load(row + q * B);
    return sum;
}

static void read_line(const meg_simd_spans *j, const float *x, const int64_t at[2], float *y)
{
    const meg_simd_reach *d = &j->reach[0][at[0]], *h = &j->reach[1][at[1]];
    for (int64_t w = 0; w < j->out[2]; w++, y += B) {
        vec sum = {0};
        for (int64_t q = d->lo; q < d->hi; q++)
            for (int64_t r = h->lo; r < h->hi; r++) {
                const float *row = x + (q * j->in[1] + r) * j->in[2] * B;
                sum += weight_of(d, q) * weight_of(h, r) * read_row(row, &j->reach[2][w]);
            }
        store(y, sum);
    }
}

void MEG_SIMD(spans)(const meg_simd_spans *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++) {
        const float *x = j->x + p * volume(j->in) * B;
        float *y = j->y + p * volume(j->out) * B;
        for (int64_t d = 0; d < j->out[0]; d++)
            for (int64_t h = 0; h < j->out[1]; h++, y += j->out[2] * B)
                read_line(j, x, (const int64_t[]){d, h}, y);
    }
}

/* ---- backward ---- */

/* What pixel q of a row gets of a row of outputs. */
MEG_INLINE vec pull_row(const meg_simd_spans *j, int64_t row, int64_t q)
{
    const int64_t *readers = j->readers[2] + 2 * q;
    vec sum = {0};
    for (int64_t p = readers[0]; p < readers[1]; p++) {
        vec g = load(j->dy + (row + p) * B);
        if (j->dy2) g += load(j->dy2 + (row + p) * B);
        sum += weight_of(&j->reach[2][p], q) * g;
    }
    return sum;
}

/* A line of pixels; `plane`: the first output of its plane. */
static void pull_line(const meg_simd_spans *j, int64_t plane, const int64_t at[2], float *dx)
{
    const int64_t *d = j->readers[0] + 2 * at[0], *h = j->readers[1] + 2 * at[1];
    for (int64_t q = 0; q < j->in[2]; q++, dx += B) {
        vec sum = {0};
        for (int64_t p = d[0]; p < d[1]; p++)
            for (int64_t r = h[0]; r < h[1]; r++) {
                float weight = weight_of(&j->reach[0][p], at[0]) *
                               weight_of(&j->reach[1][r], at[1]);
                sum += weight * pull_row(j, plane + (p * j->out[1] + r) * j->out[2], q);
            }
        store(dx, sum);
    }
}

void MEG_SIMD(spans_back)(const meg_simd_spans *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++) {
        float *dx = j->dx + p * volume(j->in) * B;
        for (int64_t d = 0; d < j->in[0]; d++)
            for (int64_t h = 0; h < j->in[1]; h++, dx += j->in[2] * B)
                pull_line(j, p * volume(j->out), (const int64_t[]){d, h}, dx);
    }
}
