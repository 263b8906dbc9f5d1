/* Mean and squares about it, of every lane of many vectors, for the normalisations.
 *
 * Vectors are taken in *runs* that stay in the first cache: two passes over a run (its mean, then
 * squares about it), then runs are joined by the formula of Chan, Golub, LeVeque ("Updating
 * formulae and a pairwise algorithm for computing sample variances", 1979). So x comes from memory
 * once for the statistics, and there is no cancellation. Within a run sums are floats, across runs
 * doubles, always in the same order.
 */
#ifndef MEG_DEVICE_CPU_SIMD_MOMENTS_H
#define MEG_DEVICE_CPU_SIMD_MOMENTS_H

#include "device/cpu/simd/vec.h"

enum {
    RUN = 256
};

typedef struct totals { /* of a part. Forward: mean, squares about it; backward: dbias, dweight */
    double a[B], b[B];
} totals;

MEG_INLINE vec run_sum(const float *x, int64_t count)
{
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        s0 += load(x + i * B);
        s1 += load(x + (i + 1) * B);
        s2 += load(x + (i + 2) * B);
        s3 += load(x + (i + 3) * B);
    }
    for (; i < count; i++)
        s0 += load(x + i * B);
    return (s0 + s1) + (s2 + s3);
}

/* Sums of d = x - center and of its square. The first corrects what rounding left in center. */
MEG_INLINE void run_moments(const float *x, int64_t count, vec center, vec moment[2])
{
    vec s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        vec d0 = load(x + i * B) - center, d1 = load(x + (i + 1) * B) - center;
        vec d2 = load(x + (i + 2) * B) - center, d3 = load(x + (i + 3) * B) - center;
        s0 += d0 + d1, s1 += d2 + d3;
        q0 += d0 * d0, q1 += d1 * d1, q2 += d2 * d2, q3 += d3 * d3;
    }
    for (; i < count; i++) {
        vec d = load(x + i * B) - center;
        s0 += d, q0 += d * d;
    }
    moment[0] = s0 + s1;
    moment[1] = (q0 + q1) + (q2 + q3);
}

/* Joins `more` elements (their mean, their squares about it) to the `have` that t holds. */
static inline void join(totals *t, double have, const double mean[B], const double squares[B],
                        double more)
{
    double all = have + more, share = more / all, weight = have * share;
    for (int l = 0; l < B; l++) {
        double delta = mean[l] - t->a[l];
        t->a[l] += delta * share;
        t->b[l] += squares[l] + delta * delta * weight;
    }
}

static inline void measure(const float *x, int64_t vectors, totals *t)
{
    memset(t, 0, sizeof *t);
    for (int64_t i = 0; i < vectors; i += RUN) {
        const float *run = x + i * B;
        int64_t count = least(RUN, vectors - i);
        vec moment[2], center = run_sum(run, count) / (float)count;
        double mean[B], squares[B];
        run_moments(run, count, center, moment);
        for (int l = 0; l < B; l++) {
            double rest = (double)moment[0][l] / (double)count;
            mean[l] = (double)center[l] + rest;
            squares[l] = (double)moment[1][l] - rest * (double)moment[0][l];
            if (squares[l] < 0) squares[l] = 0; /* by rounding; NaN stays */
        }
        join(t, (double)i, mean, squares, (double)count);
    }
}

#endif
