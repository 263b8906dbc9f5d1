/* Rectifier with learned slopes, one per channel or one for all, and their gradient: the sum of
 * dy * x where x is below 0. A task is a part of one channel block of one sample; sums run in float
 * over RUN pixels, in double across, and parts are added in their order.
 */
#include "device/cpu/simd/point/prelu.h"
#include "device/cpu/simd/math.h"

enum {
    RUN = 256
};

typedef struct part {
    int64_t at, count; /* first float; vectors */
    vec slope;         /* 0 in the padding */
} part;

static int64_t parts_of(const meg_simd_prelu *j)
{
    return (j->pixels + MEG_SIMD_PART - 1) / MEG_SIMD_PART;
}

static part part_of(const meg_simd_prelu *j, int64_t task)
{
    int64_t plane = task / parts_of(j), first = task % parts_of(j) * MEG_SIMD_PART;
    int64_t b = plane % j->blocks;
    part p = {(plane * j->pixels + first) * B, least(MEG_SIMD_PART, j->pixels - first), {0}};
    for (int l = 0; l < lanes_of(j->channels, b); l++)
        p.slope[l] = j->slope[j->single ? 0 : b * B + l];
    return p;
}

static int64_t tasks_of(const meg_simd_prelu *j)
{
    return j->samples * j->blocks * parts_of(j);
}

int64_t MEG_SIMD(prelu_bytes)(const meg_simd_prelu *j);
void MEG_SIMD(prelu)(const meg_simd_prelu *j);
void MEG_SIMD(prelu_back)(const meg_simd_prelu *j);

int64_t MEG_SIMD(prelu_bytes)(const meg_simd_prelu *j)
{
    return tasks_of(j) * B * (int64_t)sizeof(double);
}

MEG_INLINE void bend(const float *x, float *y, const part *p, bool past)
{
    for (int64_t i = 0; i < p->count; i++) {
        vec v = load(x + i * B);
        put(y + i * B, choose(v < 0, p->slope * v, v), past);
    }
}

void MEG_SIMD(prelu)(const meg_simd_prelu *j)
{
    int64_t tasks = tasks_of(j);
    bool past = j->y != j->x && far_away(j->y, j->samples * j->blocks * j->pixels * B);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++) {
        part p = part_of(j, t);
        if (past) bend(j->x + p.at, j->y + p.at, &p, true);
        else bend(j->x + p.at, j->y + p.at, &p, false);
        flush();
    }
}

/* One run: its part of dx, if wanted, and of the slopes' gradient. dx may lie on dy. */
MEG_INLINE vec pull(const meg_simd_prelu *j, int64_t at, int64_t count, vec slope)
{
    vec sum = {0};
    for (int64_t i = 0; i < count; i++) {
        vec x = load(j->x + at + i * B), dy = load(j->dy + at + i * B);
        if (j->dy2) dy += load(j->dy2 + at + i * B);
        sum += keep(x < 0, dy * x);
        if (j->dx) store(j->dx + at + i * B, choose(x <= 0, slope * dy, dy));
    }
    return sum;
}

static void pull_part(const meg_simd_prelu *j, int64_t task)
{
    part p = part_of(j, task);
    double *total = (double *)j->scratch + task * B;
    for (int l = 0; l < B; l++)
        total[l] = 0;
    for (int64_t i = 0; i < p.count; i += RUN) {
        vec sum = pull(j, p.at + i * B, least(RUN, p.count - i), p.slope);
        for (int l = 0; l < B; l++)
            total[l] += (double)sum[l];
    }
}

/* The sum of one lane of block b, over samples and parts. */
static double lane_sum(const meg_simd_prelu *j, int64_t b, int lane)
{
    double sum = 0;
    int64_t parts = parts_of(j);
    for (int64_t n = 0; n < j->samples; n++)
        for (int64_t i = 0; i < parts; i++)
            sum += ((const double *)j->scratch)[((n * j->blocks + b) * parts + i) * B + lane];
    return sum;
}

void MEG_SIMD(prelu_back)(const meg_simd_prelu *j)
{
    int64_t tasks = tasks_of(j);
    double all = 0;
#pragma omp parallel for schedule(static) num_threads(j->threads) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++)
        pull_part(j, t);
    for (int64_t c = 0; j->dslope && c < j->channels; c++) {
        double sum = lane_sum(j, c / B, (int)(c % B));
        all += sum;
        j->dslope[j->single ? 0 : c] = (float)(j->single ? all : sum);
    }
}
