/* Transpose: output axis i is input axis axes[i], as files count them; the numbers really move. The
 * batch stays first. A box stays a box, so any axis may be cut.
 *
 *     transpose axes=0x2x1          (n, c, w) -> (n, w, c)
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"

typedef struct transpose_attr {
    meg_axes axes;
    int from[MEG_AXES]; /* resolved: the input's axis of n, c, d, h, w of the output */
} transpose_attr;

/* Copies x to y or, `back`, dy to dx, a row of y at a time. */
static void walk(const meg_call *c, bool back)
{
    const transpose_attr *a = c->node->attr;
    const meg_array *x = &c->t[back ? MEG_DX : MEG_X], *y = &c->t[back ? MEG_DY : MEG_Y];
    meg_box rows = c->work.out;
    int64_t p[MEG_AXES], q[MEG_AXES], count = meg_extent(&rows, MEG_W);
    int64_t step = meg_stride(x, a->from[MEG_W]);
    if (meg_box_empty(&rows)) return;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        for (int i = 0; i < MEG_AXES; i++)
            q[a->from[i]] = p[i];
        real *in = meg_real_at(x, q), *out = meg_real_at(y, p);
        for (int64_t i = 0; i < count; i++)
            if (back) in[i * step] = out[i];
            else out[i] = in[i * step];
    }
}

static void forward(const meg_call *c)
{
    walk(c, false);
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    walk(c, true);
}

MEG_KERNELS(transpose) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"axes", MEG_PARAM_AXES, offsetof(transpose_attr, axes), NULL,
                                    "the input's axis of each output axis: 0x2x1", NULL, 0,
                                    MEG_AXES - 1},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    transpose_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int64_t dims[MEG_AXES];
    int seen = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_CHECK(e, a->axes.count == x->rank, MEG_EARG,
              "%s: transpose names %d axes, but '%s' has %d: name each once", v->name,
              a->axes.count, x->name, x->rank);
    MEG_CHECK(e, a->axes.at[0] == 0, MEG_EARG,
              "%s: axis 0 is the batch and must stay first: axes=0x...", v->name);
    for (int i = 0; i < MEG_AXES; i++)
        a->from[i] = i;
    for (int i = 0; i < x->rank; i++) {
        int axis = (int)a->axes.at[i];
        MEG_CHECK(e, axis < x->rank && !(seen & 1 << axis), MEG_EARG,
                  "%s: axis %d is %s: transpose wants each of 0 to %d once", v->name, axis,
                  axis < x->rank ? "named twice" : "not there", x->rank - 1);
        seen |= 1 << axis;
        dims[i] = x->dims[axis];
        a->from[meg_axis_slot(x->rank, i)] = meg_axis_slot(x->rank, axis);
    }
    meg_shape_dims(out, x->rank, dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const transpose_attr *a = v->attr;
    meg_box in;
    (void)g, (void)input;
    for (int i = 0; i < MEG_AXES; i++)
        in.lo[a->from[i]] = w->out.lo[i], in.hi[a->from[i]] = w->out.hi[i];
    return in;
}

static const meg_sample samples[] = {{"3x5", "axes=0x1"},
                                     {"2x5x7", "axes=0x2x1"},
                                     {"2x3x5x7", "axes=0x2x3x1"},
                                     {"2x16x3x5", "axes=0x1x3x2"},
                                     {"1x7x5x3", "axes=0x3x2x1"},
                                     {"1x2x3x4x5", "axes=0x4x2x1x3"},
                                     {"2x3x2x5x4", "axes=0x3x1x4x2"},
                                     {0}};

const meg_op meg_op_transpose = {
    .name = "transpose",
    .onnx = "Transpose",
    .doc = "axes in another order; the batch stays first",
    .params = params,
    .attr_bytes = sizeof(transpose_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    MEG_KERNELS_OF(transpose),
    .samples = samples,
};

#endif
