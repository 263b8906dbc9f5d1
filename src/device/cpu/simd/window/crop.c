/* Crops of blocked values: consecutive pixels along d, h and w, all channels. Rows are copied; the
 * gradient is zero around them. A task is one row of what is written.
 */
#include "device/cpu/simd/vec.h"

void MEG_SIMD(crop)(const meg_simd_crop *j);
void MEG_SIMD(crop_back)(const meg_simd_crop *j);

/* Pixel (d, h, 0) of plane p. */
static int64_t row_at(const int64_t extent[3], int64_t p, int64_t d, int64_t h)
{
    return ((p * extent[0] + d) * extent[1] + h) * extent[2] * B;
}

void MEG_SIMD(crop)(const meg_simd_crop *j)
{
    int64_t rows = j->planes * j->out[0] * j->out[1];
    size_t bytes = (size_t)(j->out[2] * B) * sizeof(float);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (rows > 1)
    for (int64_t r = 0; r < rows; r++) {
        int64_t h = r % j->out[1], d = r / j->out[1] % j->out[0], p = r / j->out[1] / j->out[0];
        int64_t from = row_at(j->in, p, d + j->begin[0], h + j->begin[1]) + j->begin[2] * B;
        memcpy(j->to + r * j->out[2] * B, j->from + from, bytes);
    }
}

static void row_back(const meg_simd_crop *j, int64_t r)
{
    int64_t h = r % j->in[1] - j->begin[1], d = r / j->in[1] % j->in[0] - j->begin[0];
    int64_t p = r / j->in[1] / j->in[0], left = j->begin[2] * B, middle = j->out[2] * B;
    float *to = j->to + r * j->in[2] * B;
    bool hit = d >= 0 && d < j->out[0] && h >= 0 && h < j->out[1];
    if (!hit) {
        memset(to, 0, (size_t)(j->in[2] * B) * sizeof *to);
        return;
    }
    memset(to, 0, (size_t)left * sizeof *to);
    memcpy(to + left, j->from + row_at(j->out, p, d, h), (size_t)middle * sizeof *to);
    memset(to + left + middle, 0, (size_t)(j->in[2] * B - left - middle) * sizeof *to);
}

void MEG_SIMD(crop_back)(const meg_simd_crop *j)
{
    int64_t rows = j->planes * j->in[0] * j->in[1];
#pragma omp parallel for schedule(static) num_threads(j->threads) if (rows > 1)
    for (int64_t r = 0; r < rows; r++)
        row_back(j, r);
}
