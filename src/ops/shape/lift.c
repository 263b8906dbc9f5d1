/* Lift: what lasts (a weight, a table, a constant) as data of one sample, with axes of its own:
 *
 *     lift dims=49x2            a table (49, 2) becomes (1, 49, 2)
 *
 * The numbers stay in row-major order. Operators that know no weights (take, transpose, matmul) then compute with
 * it, and its gradient comes back through them. What is made so is the same in all samples: on many ranks it
 * is copied, and the shares of its gradient are summed.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"

#include <inttypes.h>

typedef struct lift_attr {
    meg_axes dims;
} lift_attr;

static void forward(const meg_call *c)
{
    memcpy(c->t[MEG_Y].data, c->t[MEG_X].data, (size_t)meg_box_size(&c->work.out) * sizeof(real));
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    memcpy(c->t[MEG_DX].data, c->t[MEG_DY].data, (size_t)meg_box_size(&c->work.out) * sizeof(real));
}

MEG_KERNELS(lift) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"dims", MEG_PARAM_AXES, offsetof(lift_attr, dims), NULL,
                                    "extents behind the one sample: 49x2", NULL, 1, 0x1p40},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const lift_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int64_t dims[MEG_AXES] = {1}, size = 1;
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, a->dims.count < MEG_AXES, MEG_EARG,
              "%s: %d extents, but there are %d axes behind the samples'", v->name, a->dims.count,
              MEG_AXES - 1);
    for (int i = 0; i < a->dims.count; i++)
        size *= dims[i + 1] = a->dims.at[i];
    MEG_CHECK(e, size == meg_box_size(&x->shape), MEG_EARG,
              "%s: dims has %" PRId64 " numbers, but '%s' has %" PRId64, v->name, size, x->name,
              meg_box_size(&x->shape));
    meg_shape_dims(out, a->dims.count + 1, dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)w;
    return g->value[v->in[input]].shape;
}

/* In one piece. */
static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    (void)g, (void)v, (void)axis;
    return 0;
}

static const meg_sample samples[] = {{"1x6", "dims=2x3"}, {"1x4x9", "dims=36"}, {0}};

const meg_op meg_op_lift = {
    .name = "lift",
    .doc = "a weight or constant as data of one sample",
    .params = params,
    .attr_bytes = sizeof(lift_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    .grain = grain,
    MEG_KERNELS_OF(lift),
    .samples = samples,
};

#endif
