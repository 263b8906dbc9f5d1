/* Softmax cross-entropy of many pixels: a vector holds neighbouring pixels of one class, since logits
 * are plain (samples, classes, pixels) here. As ops/loss/softmax_xent.c has it,
 *
 *     q[c] = weight[c] (sure 1[c = label] + spread)
 *     loss = sum of q * log sum exp(x - top) - sum of q (x - top)     per pixel
 *     dx   = scale (sum of q * softmax(x) - q)
 *
 * and nothing where the label does not count. The loss is summed in double, in parts of fixed size
 * that are added in their order.
 */
#include "device/cpu/simd/math.h"

#include <math.h>

typedef struct spot { /* up to B pixels */
    const float *x;   /* class 0 */
    int lanes;
    ivec label, counts;
    vec top, expsum, aim; /* aim: the sum of q */
} spot;

int64_t MEG_SIMD(xent_bytes)(const meg_simd_xent *j);
void MEG_SIMD(xent)(const meg_simd_xent *j);
void MEG_SIMD(xent_back)(const meg_simd_xent *j);

static int64_t parts_of(const meg_simd_xent *j)
{
    return (j->pixels + MEG_SIMD_PART - 1) / MEG_SIMD_PART;
}

int64_t MEG_SIMD(xent_bytes)(const meg_simd_xent *j)
{
    return j->samples * parts_of(j) * (int64_t)sizeof(double);
}

MEG_INLINE vec load_some(const float *p, int lanes)
{
    vec v = {0};
    if (lanes == B) return load(p);
    memcpy(&v, p, (size_t)lanes * sizeof(float));
    return v;
}

MEG_INLINE vec aim_at(const meg_simd_xent *j, const spot *s, int64_t c)
{
    ivec is = s->label == (ivec)((int32_t)c - (ivec){0});
    float weight = j->weights ? j->weights[c] : 1;
    return splat(weight) * (keep(is, splat(j->sure)) + splat(j->spread));
}

MEG_INLINE spot spot_at(const meg_simd_xent *j, int64_t n, int64_t pixel)
{
    spot s = {.x = j->x + n * j->classes * j->pixels + pixel, .top = splat(-INFINITY)};
    s.lanes = (int)least(B, j->pixels - pixel);
    s.label = (ivec){0} - 1;
    memcpy(&s.label, j->label + n * j->pixels + pixel, (size_t)s.lanes * sizeof(int32_t));
    s.counts = (s.label >= 0) & (s.label < (int32_t)j->classes) & (s.label != j->ignore);
    for (int64_t c = 0; c < j->classes; c++) {
        vec x = load_some(s.x + c * j->pixels, s.lanes);
        s.top = choose(x > s.top, x, s.top);
    }
    for (int64_t c = 0; c < j->classes; c++) {
        s.expsum += exp_of(load_some(s.x + c * j->pixels, s.lanes) - s.top);
        s.aim += aim_at(j, &s, c);
    }
    return s;
}

static double loss_at(const meg_simd_xent *j, int64_t n, int64_t pixel)
{
    spot s = spot_at(j, n, pixel);
    vec hit = {0};
    double sum = 0;
    for (int64_t c = 0; c < j->classes; c++)
        hit += aim_at(j, &s, c) * (load_some(s.x + c * j->pixels, s.lanes) - s.top);
    for (int l = 0; l < s.lanes; l++)
        if (s.counts[l]) sum += (double)s.aim[l] * log((double)s.expsum[l]) - (double)hit[l];
    return sum;
}

void MEG_SIMD(xent)(const meg_simd_xent *j)
{
    int64_t parts = parts_of(j), tasks = j->samples * parts;
    double *total = j->scratch, loss = 0;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t first = t % parts * MEG_SIMD_PART;
        total[t] = 0;
        for (int64_t i = first; i < least(first + MEG_SIMD_PART, j->pixels); i += B)
            total[t] += loss_at(j, t / parts, i);
    }
    for (int64_t t = 0; t < tasks; t++)
        loss += total[t];
    *j->y = (float)(loss * j->scale);
}

static void pull_at(const meg_simd_xent *j, int64_t n, int64_t pixel)
{
    spot s = spot_at(j, n, pixel);
    float *dx = j->dx + n * j->classes * j->pixels + pixel;
    vec scale = splat((float)j->scale), share = s.aim / s.expsum;
    for (int64_t c = 0; c < j->classes; c++) {
        vec e = exp_of(load_some(s.x + c * j->pixels, s.lanes) - s.top);
        vec g = keep(s.counts, scale * (share * e - aim_at(j, &s, c)));
        memcpy(dx + c * j->pixels, &g, (size_t)s.lanes * sizeof(float));
    }
}

void MEG_SIMD(xent_back)(const meg_simd_xent *j)
{
    int64_t each = (j->pixels + B - 1) / B, tasks = j->samples * each;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++)
        pull_at(j, t / each, t % each * B);
}
