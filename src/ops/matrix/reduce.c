/* Reductions along axes behind the batch, which stay with extent 1: their sum or mean, and their
 * largest number. Where such an axis is cut, a work has the partial sum, or the largest of its part.
 *
 *     sum     linear; a mean is divided by the whole count, so that partial means add up
 *     peak    carries no gradient: what wants one takes it from where x equals the peak
 *
 * Others are made of them: norms of powers, the logarithm of a sum of exponentials of x - peak, and
 * the maximum, the mean of those that equal the peak, which spreads its gradient evenly over them.
 */
#include "ops/attrs.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"

#include <math.h>

#ifndef MEG_F64
#define AXES                                                                                       \
    {                                                                                              \
        "axes", MEG_PARAM_AXES, offsetof(meg_reduce_attr, axes), NULL,                             \
            "that are reduced, counted as in files: 1 is the channels", NULL, 1, MEG_AXES - 1      \
    }

static const meg_param sum_params[] = {AXES,
                                       {"mean", MEG_PARAM_BOOL, offsetof(meg_reduce_attr, mean),
                                        "0", "divide by the count", NULL, 0, 0},
                                       {0}};
static const meg_param peak_params[] = {AXES, {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_reduce_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_like(&out[0], x);
    for (int i = 0; i < a->axes.count; i++) {
        int64_t axis = a->axes.at[i];
        MEG_CHECK(e, axis < x->rank, MEG_EARG, "%s: axis %lld of a value that has %d: use 1..%d",
                  v->name, (long long)axis, x->rank, x->rank - 1);
        int slot = axis < 2 ? (int)axis : MEG_AXES - x->rank + (int)axis;
        a->gone[slot] = true;
        out[0].dims[axis] = 1;
        out[0].shape.hi[slot] = 1;
    }
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}

static meg_box sum_box(const meg_graph *g, const meg_node *v)
{
    const meg_reduce_attr *a = v->attr;
    meg_box sum = g->value[v->in[0]].shape;
    for (int i = 0; i < MEG_AXES; i++)
        if (!a->gone[i]) sum.hi[i] = 1;
    return sum;
}
#endif

/* A box of the output with the sum's extents along what is gone. */
static meg_box inside(const meg_node *v, meg_box out, const meg_box *sum)
{
    const meg_reduce_attr *a = v->attr;
    for (int i = 0; i < MEG_AXES; i++)
        if (a->gone[i]) out.lo[i] = sum->lo[i], out.hi[i] = sum->hi[i];
    return out;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)input;
    return meg_box_empty(&w->out) ? w->out : inside(v, w->out, &w->sum);
}

static double divisor(const meg_call *c)
{
    const meg_reduce_attr *a = c->node->attr;
    const meg_box *x = &c->graph->value[c->node->in[0]].shape;
    double count = 1;
    for (int i = 0; a->mean && i < MEG_AXES; i++)
        if (a->gone[i]) count *= (double)x->hi[i];
    return count;
}

/* Puts a row of the input into the results of a line: element by element, or all into one. */
typedef void join_row(double *to, const real *from, int64_t count, bool along);

static void add_row(double *to, const real *from, int64_t count, bool along)
{
    if (along) to[0] += meg_dot_line(from, (const real[]){1}, 0, count);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] += (double)from[i];
}

static void raise_row(double *to, const real *from, int64_t count, bool along)
{
    for (int64_t i = 0; i < count; i++) {
        double *best = &to[along ? 0 : i], x = (double)from[i];
        if (x > *best || x != x) *best = x; /* NaN shows */
    }
}

static void reduce(const meg_call *c, double start, join_row *join)
{
    int64_t p[MEG_AXES], q[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    bool along = ((const meg_reduce_attr *)c->node->attr)->gone[MEG_W];
    double by = divisor(c);
    meg_box lines = meg_lines(&c->work.out);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&c->work.out, p), rows = inside(c->node, line, &c->work.sum);
        int64_t length = meg_extent(&rows, MEG_W);
        double result[MEG_LINE];
        for (int i = 0; i < MEG_LINE; i++)
            result[i] = start;
        rows.hi[MEG_W] = length > 0 ? rows.lo[MEG_W] + 1 : rows.lo[MEG_W];
        for (bool go = meg_box_first(&rows, q); go; go = meg_box_next(&rows, q))
            join(result, meg_real_at(x, q), length, along);
        for (int64_t i = 0; i < meg_extent(&line, MEG_W); i++)
            result[i] /= by;
        meg_store_line(y, &line, result);
    }
}

static void sum_forward(const meg_call *c)
{
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    reduce(c, 0, add_row);
}

static void peak_forward(const meg_call *c)
{
    meg_fill_part(&c->t[MEG_Y], c->t[MEG_Y].box, (real)-INFINITY); /* what a maximum starts from */
    reduce(c, -INFINITY, raise_row);
}

static void sum_backward(const meg_call *c)
{
    int64_t p[MEG_AXES], q[MEG_AXES];
    const meg_reduce_attr *a = c->node->attr;
    const meg_array *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    double by = divisor(c);
    meg_box all = need(c->graph, c->node, 0, &c->work), rows = all;
    int64_t length = meg_extent(&all, MEG_W);
    meg_clear_beyond(dx, &all);
    if (meg_box_empty(&all)) return;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        for (int i = 0; i < MEG_AXES; i++)
            q[i] = a->gone[i] ? 0 : p[i];
        const real *from = meg_real_at(dy, q);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < length; i++)
            to[i] = (real)((double)from[a->gone[MEG_W] ? 0 : i] / by);
    }
}

MEG_KERNELS(sum) = {.run = {[MEG_FORWARD] = sum_forward, [MEG_BACKWARD] = sum_backward}};
MEG_KERNELS(peak) = {.run = {[MEG_FORWARD] = peak_forward}};

#ifndef MEG_F64
static const meg_sample sum_samples[] = {{"5x7", "axes=1"},
                                         {"2x5x141", "axes=1 mean=1"},
                                         {"2x5x141", "axes=2"},
                                         {"3x16x5x7", "axes=2x3"},
                                         {"3x6x5x7", "axes=1x3 mean=1"},
                                         {"2x3x4x3x5", "axes=1x2x3x4"},
                                         {"2x3x4x3x5", "axes=2"},
                                         {NULL, NULL}};
static const meg_sample peak_samples[] = {
    {"5x7", "axes=1"},       {"2x5x141", "axes=1"},         {"3x16x5x7", "axes=2x3"},
    {"3x6x5x7", "axes=1x3"}, {"2x3x4x3x5", "axes=1x2x3x4"}, {NULL, NULL}};

#define REDUCE_FIELDS                                                                              \
    .attr_bytes = sizeof(meg_reduce_attr), .data_inputs = 1, .data_inputs_max = 1, .infer = infer, \
    .sum = sum_box, .need = need, .flops = flops

const meg_op meg_op_sum = {
    .name = "sum",
    .onnx = "ReduceSum",
    .doc = "sum or mean along axes, which stay with extent 1",
    .params = sum_params,
    REDUCE_FIELDS,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(sum),
    .samples = sum_samples,
};

const meg_op meg_op_peak = {
    .name = "peak",
    .doc = "largest number along axes, which stay with extent 1; it carries no gradient",
    .params = peak_params,
    REDUCE_FIELDS,
    .max = true,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .no_gradient = true,
    MEG_KERNELS_OF(peak),
    .samples = peak_samples,
};
#endif
