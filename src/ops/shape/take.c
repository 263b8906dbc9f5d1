/* Take: along one axis, the entries that a fixed list names, the same in all samples.
 *
 *     y(n, .., j, ..) = x(n, .., index(j), ..)        index: (m), so y has m along the axis
 *
 * The list is a value like a weight, but fixed: whole numbers, kept as real ones (float has all up to 2^24).
 * Negative ones count from the end. Its first numbers are 0, which a file replaces. The relative positions of Swin transformers read a table so.
 * The gradient scatters: it adds up where an entry was taken twice.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/window.h"

#include <math.h>

typedef struct take_attr {
    int64_t axis, count;
    int slot; /* resolved: MEG_C ... */
} take_attr;

enum {
    INDEX = MEG_X + 1
};

/* Counted from the end where it is negative; -1: an axis of this length has no such entry. */
static int64_t index_at(const meg_call *c, int64_t j, int64_t length)
{
    double at = (double)*meg_channel_at(&c->t[INDEX], 0, j);
    if (at < -0.5) at += (double)length;
    return at > -0.5 && at < (double)length - 0.5 ? (int64_t)(at + 0.5) : -1;
}

/* Copies x to y or, `back`, adds dy to dx, a row of y at a time; entries of w one by one. */
static void walk(const meg_call *c, bool back)
{
    const take_attr *a = c->node->attr;
    const meg_array *x = &c->t[back ? MEG_DX : MEG_X], *y = &c->t[back ? MEG_DY : MEG_Y];
    int64_t length = c->graph->value[c->node->in[0]].shape.hi[a->slot];
    bool single = a->slot == MEG_W;
    meg_box rows = c->work.out;
    int64_t p[MEG_AXES], q[MEG_AXES], count = single ? 1 : meg_extent(&rows, MEG_W);
    if (meg_box_empty(&rows)) return;
    if (!single) rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        memcpy(q, p, sizeof q);
        q[a->slot] = index_at(c, p[a->slot], length);
        real *own = q[a->slot] < 0 ? NULL : meg_real_at(x, q), *all = meg_real_at(y, p);
        for (int64_t i = 0; i < count; i++)
            if (!back) all[i] = own ? own[i] : (real)NAN;
            else if (own) own[i] += all[i];
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

MEG_KERNELS(take) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(take_attr, field)

static const meg_param params[] = {
    {"axis", MEG_PARAM_INT, AT(axis), "-1", "of the input: 1 is the channels, -1 the last", NULL,
     -MEG_AXES, MEG_AXES - 1},
    {"count", MEG_PARAM_INT, AT(count), NULL, "entries of the list", NULL, 1, 1 << 24},
    {0}};

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    int64_t count = ((const take_attr *)v->attr)->count;
    (void)g;
    out[0] = (meg_weight_spec){.suffix = "index",
                               .kind = MEG_FIXED,
                               .shape = meg_box_of(1, count, 1, 1, 1),
                               .rank = 1,
                               .dims = {count},
                               .start = MEG_ZEROS};
    return 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    take_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int64_t dims[MEG_AXES];
    int axis = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_TRY(e, meg_want_axis(g, v, e, a->axis, &axis));
    MEG_TRY(e, meg_want_weights(g, v, e));
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = a->count;
    meg_shape_dims(out, x->rank, dims);
    a->slot = meg_axis_slot(x->rank, axis);
    return MEG_OK;
}

/* Any entry of the axis may be named. */
static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const take_attr *a = v->attr;
    meg_box in = w->out;
    if (input == 0) {
        in.lo[a->slot] = 0, in.hi[a->slot] = g->value[v->in[0]].shape.hi[a->slot];
        return in;
    }
    in = meg_box_of(1, w->out.hi[a->slot], 1, 1, 1);
    in.lo[MEG_C] = w->out.lo[a->slot];
    return in;
}

static const meg_sample samples[] = {
    {"3x7", "axis=1 count=4"},        {"2x5x9", "count=13"},
    {"2x5x9", "axis=1 count=3"},      {"1x3x5x7", "axis=2 count=6"},
    {"1x2x3x4x5", "axis=-3 count=4"}, {0}};

const meg_op meg_op_take = {
    .name = "take",
    .doc = "entries of an axis that a fixed list names, the same in all samples",
    .params = params,
    .attr_bytes = sizeof(take_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = meg_no_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(INDEX),
              [MEG_BACKWARD] = MEG_BIT(INDEX) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(take),
    .samples = samples,
};

#endif
