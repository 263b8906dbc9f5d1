/* Sum of 2 to 8 values of one shape, rectified on request (the join of a residual block). Every
 * input gets the same gradient: that of the output, masked by the output where it is rectified. */
#include "ops/attrs.h"
#include "ops/runs.h"
#include "ops/shape.h"

#ifndef MEG_F64
static const meg_param params[] = {
    {"relu", MEG_PARAM_BOOL, offsetof(meg_add_attr, relu), "0", "rectify the sum", NULL, 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]];
    for (int i = 0; i < v->inputs; i++) {
        const meg_value *other = &g->value[v->in[i]];
        char first[96], text[96];
        meg_shape_text(x, first);
        meg_shape_text(other, text);
        MEG_TRY(e, meg_want_real(g, v, e, i));
        MEG_CHECK(e, meg_box_equal(&x->shape, &other->shape), MEG_EARG,
                  "%s: '%s' is %s, but '%s' is %s: add wants equal shapes", v->name, x->name, first,
                  other->name, text);
    }
    meg_shape_like(&out[0], x);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g;
    return (double)meg_box_size(&w->out) * (p == MEG_BACKWARD ? 1 : v->inputs);
}
#endif

/* y = a + b; y may be a */
static void add_row(real *y, const real *a, const real *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

static void rectify_row(real *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static void forward(const meg_call *c)
{
    const meg_add_attr *attr = c->node->attr;
    const meg_tensor *y = &c->t[MEG_Y], *all[MEG_INPUTS + 1] = {y};
    int64_t p[MEG_AXES];
    int inputs = c->node->inputs;
    for (int i = 0; i < inputs; i++)
        all[i + 1] = &c->t[MEG_X + i];
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, inputs + 1, all);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(y, p);
        add_row(to, meg_real_at(all[1], p), meg_real_at(all[2], p), r.length);
        for (int i = 2; i < inputs; i++)
            add_row(to, to, meg_real_at(all[i + 1], p), r.length);
        if (attr->relu) rectify_row(to, r.length);
    }
}

/* dx = dy, or the part of it that passes the rectifier (y == NULL: there is none) */
static void pass_row(real *dx, const real *dy, const real *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        dx[i] = y && y[i] <= 0 ? 0 : dy[i];
}

static void backward(const meg_call *c)
{
    const meg_add_attr *attr = c->node->attr;
    const meg_tensor *dy = &c->t[MEG_DY], *y = attr->relu ? &c->t[MEG_Y] : dy;
    int64_t p[MEG_AXES];
    for (int i = 0; i < c->node->inputs; i++) {
        const meg_tensor *dx = &c->t[MEG_DX + i];
        if (!dx->data) continue;
        meg_clear_beyond(dx, &c->work.out);
        meg_runs r = meg_runs_of(c->work.out, 3, (const meg_tensor *[]){dy, y, dx});
        for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
            pass_row(meg_real_at(dx, p), meg_real_at(dy, p), attr->relu ? meg_real_at(y, p) : NULL,
                     r.length);
    }
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
                                     {NULL, NULL}};

const meg_op meg_op_add = {
    .name = "add",
    .onnx = "Add",
    .doc = "sum of 2 to 8 values of one shape",
    .params = params,
    .attr_bytes = sizeof(meg_add_attr),
    .data_inputs = 2,
    .data_inputs_max = MEG_INPUTS,
    .infer = infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = ALL_X, [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = ALL_DX},
    .skips = skips,
    .cheap = true,
    MEG_KERNELS_OF(add),
    .samples = samples,
};
#endif
