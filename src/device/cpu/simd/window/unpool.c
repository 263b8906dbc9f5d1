/* Max-unpooling: pixels go where their indices say. Indices are plain, values blocked: each lane of
 * a block has its own place, so that this is a scatter, and its gradient a gather. A task is one
 * channel block of one sample. An index outside the plane moves nothing.
 */
#include "device/cpu/simd/vec.h"

void MEG_SIMD(unpool)(const meg_simd_unpool *j);
void MEG_SIMD(unpool_back)(const meg_simd_unpool *j);

static const int32_t *index_of(const meg_simd_unpool *j, int64_t plane, int lane)
{
    int64_t n = plane / j->blocks, b = plane % j->blocks;
    return j->index + (n * j->channels + b * B + lane) * j->in;
}

static bool inside(const meg_simd_unpool *j, int32_t at)
{
    return at >= 0 && at < j->out;
}

static void scatter(const meg_simd_unpool *j, int64_t plane)
{
    float *y = j->y + plane * j->out * B;
    const float *x = j->x + plane * j->in * B;
    int lanes = lanes_of(j->channels, plane % j->blocks);
    memset(y, 0, (size_t)(j->out * B) * sizeof *y);
    const int32_t *index = index_of(j, plane, 0);
    for (int64_t i = 0; i < j->in; i++)
        for (int l = 0; l < lanes; l++) {
            int32_t at = index[l * j->in + i];
            if (inside(j, at)) y[(int64_t)at * B + l] = x[i * B + l];
        }
}

static void collect(const meg_simd_unpool *j, int64_t plane)
{
    const float *dy = j->dy + plane * j->out * B;
    float *dx = j->dx + plane * j->in * B;
    int lanes = lanes_of(j->channels, plane % j->blocks);
    const int32_t *index = index_of(j, plane, 0);
    for (int64_t i = 0; i < j->in; i++) {
        float line[B] = {0};
        for (int l = 0; l < lanes; l++) {
            int32_t at = index[l * j->in + i];
            if (inside(j, at)) line[l] = dy[(int64_t)at * B + l];
        }
        store(dx + i * B, load(line));
    }
}

void MEG_SIMD(unpool)(const meg_simd_unpool *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (planes > 1)
    for (int64_t p = 0; p < planes; p++)
        scatter(j, p);
}

void MEG_SIMD(unpool_back)(const meg_simd_unpool *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (planes > 1)
    for (int64_t p = 0; p < planes; p++)
        collect(j, p);
}
