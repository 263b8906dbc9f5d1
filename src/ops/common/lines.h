/* Lines: how kernels that sum over much keep their sums in double without keeping whole tensors so.
 *
 * A box is walked as lines of at most MEG_LINE elements along w; a kernel holds the sums of one
 * line, adds all contributions, and rounds once:
 *
 *     meg_box lines = meg_lines(&b);
 *     for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
 *         meg_box line = meg_line(&b, p);
 *         double sum[MEG_LINE] = {0};
 *         ...
 *         meg_store_line(y, &line, sum);
 *     }
 */
#ifndef MEG_OPS_COMMON_LINES_H
#define MEG_OPS_COMMON_LINES_H

#include "ops/common/runs.h"

enum {
    MEG_LINE = 128
};

static inline meg_box meg_lines(const meg_box *b)
{
    meg_box lines = *b;
    lines.lo[MEG_W] = 0;
    lines.hi[MEG_W] = (meg_extent(b, MEG_W) + MEG_LINE - 1) / MEG_LINE;
    return lines;
}

static inline meg_box meg_line(const meg_box *b, const int64_t p[MEG_AXES])
{
    meg_box line;
    for (int a = 0; a < MEG_AXES; a++)
        line.lo[a] = p[a], line.hi[a] = p[a] + 1;
    line.lo[MEG_W] = b->lo[MEG_W] + p[MEG_W] * MEG_LINE;
    line.hi[MEG_W] = line.lo[MEG_W] + MEG_LINE;
    if (line.hi[MEG_W] > b->hi[MEG_W]) line.hi[MEG_W] = b->hi[MEG_W];
    return line;
}

static inline void meg_store_line(const meg_array *t, const meg_box *line, const double sum[])
{
    real *to = meg_real_at(t, line->lo);
    for (int64_t i = 0; i < meg_extent(line, MEG_W); i++)
        to[i] = (real)sum[i];
}

static inline void meg_zero(const meg_array *t)
{
    memset(t->data, 0, (size_t)meg_box_size(&t->box) * sizeof(real));
}

/* Elements between neighbours along an axis. */
static inline int64_t meg_stride(const meg_array *t, int axis)
{
    int64_t stride[MEG_AXES];
    meg_box_strides(&t->box, stride);
    return stride[axis];
}

typedef struct meg_steps { /* of the sums and of what is added */
    int64_t to, from;
} meg_steps;

/* sum[i * to] += a * x[i * from] */
static inline void meg_add_line(double *restrict sum, double a, const real *restrict x,
                                meg_steps step, int64_t count)
{
    if (step.to == 1 && step.from == 1) {
        for (int64_t i = 0; i < count; i++)
            sum[i] += a * (double)x[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        sum[i * step.to] += a * (double)x[i * step.from];
}

/* The sum of a[i] * b[i * step]: four sums, since one would wait for each of its additions. */
static inline double meg_dot_line(const real *a, const real *b, int64_t step, int64_t count)
{
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int64_t j = 0; j < 4; j++)
            s[j] += (double)a[i + j] * (double)b[(i + j) * step];
    for (; i < count; i++)
        s[0] += (double)a[i] * (double)b[i * step];
    return s[0] + s[1] + (s[2] + s[3]);
}

#endif
