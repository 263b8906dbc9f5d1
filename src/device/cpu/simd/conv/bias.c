/* A bias that is added to every pixel of its channel, and its gradient, where the kernel before it
 * (oneDNN's backward of convolution, as transposed convolution uses it) cannot do so itself. Values
 * are blocked or plain. Sums run in float over RUN pixels and in double across.
 */
#include "device/cpu/simd/vec.h"

enum {
    RUN = 256
};

static void add_blocked(const meg_simd_bias *j, int64_t plane)
{
    float *y = j->y + plane * j->pixels * B;
    int64_t b = plane % j->blocks;
    vec bias = {0}; /* padding stays 0 */
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        bias[l] = j->bias[b * B + l];
    for (int64_t i = 0; i < j->pixels; i++)
        store(y + i * B, load(y + i * B) + bias);
}

static void add_plain(const meg_simd_bias *j, int64_t plane)
{
    float *y = j->y + plane * j->pixels, bias = j->bias[plane % j->channels];
    for (int64_t i = 0; i < j->pixels; i++)
        y[i] += bias;
}

void MEG_SIMD(bias)(const meg_simd_bias *j)
{
    int64_t planes = j->samples * j->blocks;
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t p = 0; p < planes; p++)
        if (j->block == B) add_blocked(j, p);
        else add_plain(j, p);
}

static void sum_blocked(const meg_simd_bias *j, int64_t b)
{
    double sum[B] = {0};
    for (int64_t n = 0; n < j->samples; n++) {
        const float *dy = j->dy + (n * j->blocks + b) * j->pixels * B;
        for (int64_t i = 0; i < j->pixels; i += RUN) {
            int64_t end = least(i + RUN, j->pixels), k = i;
            vec s0 = {0}, s1 = {0};
            for (; k + 2 <= end; k += 2) {
                s0 += load(dy + k * B);
                s1 += load(dy + (k + 1) * B);
            }
            if (k < end) s0 += load(dy + k * B);
            s0 += s1;
            for (int l = 0; l < B; l++)
                sum[l] += (double)s0[l];
        }
    }
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        j->dbias[b * B + l] = (float)sum[l];
}

static void sum_plain(const meg_simd_bias *j, int64_t c)
{
    double sum = 0;
    for (int64_t n = 0; n < j->samples; n++)
        for (int64_t i = 0; i < j->pixels; i++)
            sum += (double)j->dy[(n * j->channels + c) * j->pixels + i];
    j->dbias[c] = (float)sum;
}

void MEG_SIMD(bias_back)(const meg_simd_bias *j)
{
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int64_t b = 0; b < j->blocks; b++)
        if (j->block == B) sum_blocked(j, b);
        else sum_plain(j, b);
}
