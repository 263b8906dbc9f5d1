/* What conv and conv_transpose share. Both relate pixels q and p of two values by
 *
 *     q = p*stride - before + t*dilation
 *
 * The one reads q to make p, the other reads p to make q; their kernels are the same walks over
 * lines along w with the two sides of the window exchanged. Filters and channels come in groups that
 * do not mix; the sum box is (1, channels per group, taps), and cutting it is channel parallelism.
 */
#ifndef MEG_OPS_WINDOW_CONVOLUTION_H
#define MEG_OPS_WINDOW_CONVOLUTION_H

#include "ops/common/lines.h"
#include "ops/common/window.h"

typedef struct meg_conv_shape { /* what all kernels ask of the node */
    const meg_window *win;      /* [MEG_SPACE] */
    int64_t filters, channels;  /* of one group */
    meg_box x;                  /* the whole input */
} meg_conv_shape;

meg_conv_shape meg_conv_shape_of(const meg_graph *g, const meg_node *v);

/* ---- descriptors ---- */

/* The weight, of these extents, begins with sqrt(2 / fan_in); the bias, if there is one, with 0. */
int meg_conv_weights(const meg_graph *g, const meg_node *v, const meg_box *weight, double fan_in,
                     meg_weight_spec out[MEG_INPUTS]);
meg_status meg_conv_check(const meg_graph *g, const meg_node *v,
                          meg_error *e); /* all but windows */
meg_box meg_conv_sum(const meg_graph *g, const meg_node *v);
meg_box meg_conv_need_bias(const meg_work *w);
int64_t meg_conv_grain(const meg_graph *g, const meg_node *v, int axis);

#define MEG_CONV_FIELDS                                                                            \
    .attr_bytes = sizeof(meg_conv_attr), .data_inputs = 1, .data_inputs_max = 1,                   \
    .sum = meg_conv_sum, .grain = meg_conv_grain,                                                  \
    .reads = {[MEG_FORWARD] = 7 << MEG_X,                                                          \
              [MEG_BACKWARD] = MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY),                               \
              [MEG_WEIGHT] = MEG_BIT(MEG_X) | MEG_BIT(MEG_DY)},                                    \
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),                                                     \
               [MEG_BACKWARD] = MEG_BIT(MEG_DX),                                                   \
               [MEG_WEIGHT] = MEG_BIT(MEG_DX + 1) | MEG_BIT(MEG_DX + 2)}

/* ---- kernels ---- */

/* Adds to the sums of a line: of outputs, or of the input's gradient. */
typedef void meg_conv_line(const meg_call *c, const meg_conv_shape *s, const meg_box *line,
                           double *sum);

static inline double meg_conv_bias(const meg_call *c, int64_t k)
{
    const meg_array *bias = &c->t[MEG_X + 2];
    return bias->data && meg_first_part(&c->work) ? (double)*meg_channel_at(bias, 0, k) : 0;
}

static inline void meg_conv_forward(const meg_call *c, meg_conv_line *add)
{
    meg_conv_shape s = meg_conv_shape_of(c->graph, c->node);
    meg_box lines = meg_lines(&c->work.out);
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&c->work.out, p);
        double sum[MEG_LINE], bias = meg_conv_bias(c, p[MEG_C]);
        for (int64_t i = 0; i < meg_extent(&line, MEG_W); i++)
            sum[i] = bias;
        if (!meg_box_empty(&c->work.sum)) add(c, &s, &line, sum);
        meg_store_line(&c->t[MEG_Y], &line, sum);
    }
}

static inline void meg_conv_backward(const meg_call *c, meg_conv_line *add)
{
    meg_conv_shape s = meg_conv_shape_of(c->graph, c->node);
    const meg_array *dx = &c->t[MEG_DX];
    meg_box lines = meg_lines(&dx->box);
    int64_t p[MEG_AXES];
    for (bool on = dx->data && meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&dx->box, p);
        double sum[MEG_LINE] = {0};
        add(c, &s, &line, sum);
        meg_store_line(dx, &line, sum);
    }
}

/* The filters of a channel's group that the work has; false: none, or the line is not the work's. */
static inline bool meg_conv_filters(const meg_call *c, const meg_conv_shape *s, const meg_box *line,
                                    int64_t *lo, int64_t *hi)
{
    const meg_box *part = &c->work.sum, *out = &c->work.out;
    int64_t n = line->lo[MEG_N], channel = line->lo[MEG_C] % s->channels;
    *lo = line->lo[MEG_C] / s->channels * s->filters;
    *hi = *lo + s->filters;
    if (*lo < out->lo[MEG_C]) *lo = out->lo[MEG_C];
    if (*hi > out->hi[MEG_C]) *hi = out->hi[MEG_C];
    return n >= out->lo[MEG_N] && n < out->hi[MEG_N] && channel >= part->lo[MEG_C] &&
           channel < part->hi[MEG_C] && *lo < *hi;
}

typedef struct meg_conv_jumps {       /* from sample to sample and row to row: */
    int64_t p[MEG_AXES], q[MEG_AXES]; /* elements of the value of p, and of the q they meet */
} meg_conv_jumps;

static inline meg_conv_jumps meg_conv_jumps_of(const meg_window win[MEG_SPACE], const meg_array *p,
                                               const meg_array *q)
{
    meg_conv_jumps j;
    meg_box_strides(&p->box, j.p);
    meg_box_strides(&q->box, j.q);
    for (int i = 0; i < MEG_SPACE; i++)
        j.q[MEG_D + i] *= win[i].stride;
    return j;
}

/* The product of all p of one channel with the q that they meet through one tap. */
static inline double meg_conv_correlate(const real *p, const real *q, const meg_conv_jumps *j,
                                        const meg_box *hit)
{
    double sum = 0;
    for (int64_t n = 0; n < meg_extent(hit, MEG_N); n++)
        for (int64_t d = 0; d < meg_extent(hit, MEG_D); d++)
            for (int64_t h = 0; h < meg_extent(hit, MEG_H); h++)
                sum += meg_dot_line(p + n * j->p[MEG_N] + d * j->p[MEG_D] + h * j->p[MEG_H],
                                    q + n * j->q[MEG_N] + d * j->q[MEG_D] + h * j->q[MEG_H],
                                    j->q[MEG_W], meg_extent(hit, MEG_W));
    return sum;
}

static inline void meg_conv_bias_gradient(const meg_call *c)
{
    const meg_array *db = &c->t[MEG_DX + 2];
    if (!db->data) return;
    meg_zero(db);
    if (!meg_first_part(&c->work)) return;
    for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++) {
        meg_box part = c->work.out;
        part.lo[MEG_C] = k, part.hi[MEG_C] = k + 1;
        *meg_channel_at(db, 0, k) = (real)meg_sum_power(&c->t[MEG_DY], part, 0, 1);
    }
}

#endif
