/* Gather: along one axis, the entries that whole numbers name, each sample its own.
 *
 *     y(n, .., j, ..) = x(n, .., index(n, j), ..)        index: (n, m), so y has m along the axis
 *
 * An index below 0 takes nothing: zeros, and no gradient. One too large has no right answer: NaN,
 * which the loss will show. The gradient scatters: it adds up where an entry was taken twice.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"

#include <math.h>

typedef struct gather_attr {
    int64_t axis;
    int slot; /* resolved: MEG_C ... */
} gather_attr;

static int64_t index_at(const meg_call *c, int64_t n, int64_t j)
{
    const meg_array *t = &c->t[MEG_X + 1];
    int64_t p[MEG_AXES] = {n, 0, 0, 0, j};
    return ((const int32_t *)t->data)[meg_box_at(&t->box, p)];
}

/* One output: copied or, `back`, added to the gradient of what it was taken from. */
static void take(const meg_array *x, const int64_t q[MEG_AXES], real *y, bool back)
{
    if (back) *meg_real_at(x, q) += *y;
    else *y = *meg_real_at(x, q);
}

static void walk(const meg_call *c, bool back)
{
    const gather_attr *a = c->node->attr;
    const meg_array *x = &c->t[back ? MEG_DX : MEG_X], *y = &c->t[back ? MEG_DY : MEG_Y];
    int64_t length = c->graph->value[c->node->in[0]].shape.hi[a->slot];
    int64_t p[MEG_AXES], q[MEG_AXES];
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        int64_t index = index_at(c, p[MEG_N], p[a->slot]);
        real *to = meg_real_at(y, p);
        memcpy(q, p, sizeof q);
        q[a->slot] = index;
        if (index >= 0 && index < length) take(x, q, to, back);
        else if (!back) *to = index < 0 ? 0 : (real)NAN;
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

MEG_KERNELS(gather) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"axis", MEG_PARAM_INT, offsetof(gather_attr, axis), "-1",
                                    "of the input: 1 is the channels, -1 the last", NULL, -MEG_AXES,
                                    MEG_AXES - 1},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    gather_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]], *index = &g->value[v->in[1]];
    int64_t dims[MEG_AXES];
    int axis = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_TRY(e, meg_want_axis(g, v, e, a->axis, &axis));
    MEG_CHECK(e, index->dtype == MEG_I32 && index->rank == 2, MEG_EARG,
              "%s: indices '%s' are %s of rank %d, but must be i32 of rank 2: some for each sample",
              v->name, index->name, meg_dtype_name(index->dtype), index->rank);
    MEG_CHECK(e, index->shape.hi[MEG_N] == x->shape.hi[MEG_N], MEG_EARG,
              "%s: '%s' and its indices '%s' must have as many samples", v->name, x->name,
              index->name);
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = index->shape.hi[MEG_W];
    meg_shape_dims(out, x->rank, dims);
    a->slot = meg_axis_slot(x->rank, axis);
    return MEG_OK;
}

/* Any entry of the axis may be named. */
static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const gather_attr *a = v->attr;
    meg_box in = w->out;
    if (input == 0) {
        in.lo[a->slot] = 0, in.hi[a->slot] = g->value[v->in[0]].shape.hi[a->slot];
        return in;
    }
    in = meg_box_of(w->out.hi[MEG_N], 1, 1, 1, w->out.hi[a->slot]);
    in.lo[MEG_N] = w->out.lo[MEG_N], in.lo[MEG_W] = w->out.lo[a->slot];
    return in;
}

static const meg_sample samples[] = {{"3x7 3x4@7", "axis=1"},        {"2x5x9 2x13@9", ""},
                                     {"2x5x9 2x3@5", "axis=1"},      {"2x3x5x7 2x6@5", "axis=2"},
                                     {"1x3x4x7 1x5@7", ""},          {"2x2x3x4x5 2x4@3", "axis=-3"},
                                     {"1x16x3x3 1x16@16", "axis=1"}, {0}};

const meg_op meg_op_gather = {
    .name = "gather",
    .onnx = "Gather",
    .doc = "entries of an axis, named by whole numbers (n, m)",
    .params = params,
    .attr_bytes = sizeof(gather_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .need = need,
    .flops = meg_no_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(gather),
    .samples = samples,
};

#endif
