/* Sum of 2 to 8 values, rectified on request (the join of a residual block). The first has the
 * shape of the sum; the others may be spread over it (pair.h): a learned number per position, a
 * value per channel or sample. Every input gets the same gradient, that of the output, masked by
 * the output where it is rectified; what is spread gets its sum.
 */
#include "ops/attrs.h"
#include "ops/pointwise/pair.h"

#ifndef MEG_F64
static const meg_param params[] = {
    {"relu", MEG_PARAM_BOOL, offsetof(meg_add_attr, relu), "0", "rectify the sum", NULL, 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    for (int i = 1; i < v->inputs; i++)
        MEG_TRY(e, meg_pair_fits(g, v, e, i));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g;
    return (double)meg_box_size(&w->out) * (p == MEG_BACKWARD ? 1 : v->inputs);
}
#endif

/* Whether an input is smaller than the sum. */
static bool spread(const meg_call *c, int i)
{
    for (int a = 0; a < MEG_AXES; a++)
        if (meg_pair_spread(c, i, a)) return true;
    return false;
}

/* y = a + b, b moving along by `step`, 1 or 0; y may be a */
static void add_row(real *y, const real *a, const real *b, int64_t step, int64_t count)
{
    if (step == 1)
        for (int64_t i = 0; i < count; i++)
            y[i] = a[i] + b[i];
    else
        for (int64_t i = 0; i < count; i++)
            y[i] = a[i] + b[0];
}

static void rectify_row(real *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

/* y = x + input i; x is the first input, or y */
static void add_input(const meg_call *c, const meg_array *x, int i)
{
    const meg_array *y = &c->t[MEG_Y];
    int64_t p[MEG_AXES];
    meg_pair_runs r = meg_pair_runs_of(c, i, (const meg_array *[]){x, y, NULL});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        add_row(meg_real_at(y, p), meg_real_at(x, p), meg_pair_input(c, i, p), r.step, r.length);
}

static void rectify(const meg_call *c)
{
    const meg_array *y = &c->t[MEG_Y];
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(c->work.out, 1, &y);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        rectify_row(meg_real_at(y, p), r.length);
}

static void forward(const meg_call *c)
{
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (int i = 1; i < c->node->inputs; i++)
        add_input(c, &c->t[i == 1 ? MEG_X : MEG_Y], i);
    if (((const meg_add_attr *)c->node->attr)->relu) rectify(c);
}

/* dx = dy, or the part of it that passes the rectifier (y == NULL: there is none) */
static void pass_row(real *dx, const real *dy, const real *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        dx[i] = y && y[i] <= 0 ? 0 : dy[i];
}

static void pass(const meg_call *c, const meg_array *dx, const meg_array *y)
{
    const meg_array *dy = &c->t[MEG_DY];
    int64_t p[MEG_AXES];
    if (!dx->data) return;
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 3, (const meg_array *[]){dy, y->data ? y : dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        pass_row(meg_real_at(dx, p), meg_real_at(dy, p), meg_pair_at(y, p), r.length);
}

static double pull(double dy, double x, double b)
{
    (void)x, (void)b;
    return dy;
}

static double pull_rectified(double dy, double y, double b)
{
    (void)b;
    return y <= 0 ? 0 : dy;
}

/* The sums first: the other gradients may lie on dy. */
static void backward(const meg_call *c)
{
    const meg_add_attr *attr = c->node->attr;
    const meg_array none = {0}, *y = attr->relu ? &c->t[MEG_Y] : &none;
    for (int i = 1; i < c->node->inputs; i++)
        if (spread(c, i)) meg_pair_other(c, i, y, attr->relu ? pull_rectified : pull);
    for (int i = 0; i < c->node->inputs; i++)
        if (!spread(c, i)) pass(c, &c->t[MEG_DX + i], y);
}

MEG_KERNELS(add) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    ALL_X = 0xff << MEG_X,
    ALL_DX = 0xff << MEG_DX
};

/* Without a rectifier there is no mask to find in the output. */
static meg_mask skips(const meg_node *v, meg_pass p)
{
    const meg_add_attr *attr = v->attr;
    return p == MEG_BACKWARD && !attr->relu ? MEG_BIT(MEG_Y) : 0;
}

static const meg_sample samples[] = {{"3x7 3x7", NULL},
                                     {"2x5x9 2x5x9", "relu=1"},
                                     {"2x16x5x7 2x16x5x7", "relu=1"},
                                     {"2x3x5x4 2x3x5x4 2x3x5x4", NULL},
                                     {"1x3x2x3x5 1x3x2x3x5 1x3x2x3x5 1x3x2x3x5", "relu=1"},
                                     {"2x3 2x3 2x3 2x3 2x3 2x3 2x3 2x3", NULL},
                                     {"3x7 1x7", NULL},
                                     {"3x5x9 1x5x9", NULL},
                                     {"3x21x5x7 1x21x5x7", "relu=1"},
                                     {"2x5x141 1x1x141", "relu=1"},
                                     {"3x16x5x7 3x16", NULL},
                                     {"3x6x5x7 1x6x1x7 3x6x5x7 1", "relu=1"},
                                     {"2x3x4x3x5 1x3x1x1x1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_add = {
    .name = "add",
    .relu_at = 1 + offsetof(meg_add_attr, relu),
    .adds = true,
    .onnx = "Add",
    .doc = "sum of 2 to 8 values; all but the first may have extents of 1",
    .params = params,
    .attr_bytes = sizeof(meg_add_attr),
    .data_inputs = 2,
    .data_inputs_max = MEG_INPUTS,
    .infer = infer,
    .need = meg_pair_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = ALL_X, [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = ALL_DX},
    .skips = skips,
    .cheap = true,
    MEG_KERNELS_OF(add),
    .overwrites = true,
    .samples = samples,
};
#endif
