/* Weight normalisation: the rows of a layer's weight v have lengths of their own, g.
 *
 *     w(k, ..) = g(k) v(k, ..) / |v(k, ..)|        |..|: over all but the first axis
 *
 * A layer is linear in its weight, so the layer itself takes v, without a bias, and this operator, behind it,
 * multiplies its output by s(k) = g(k) / |v(k, ..)|, channel by channel; of a transposed convolution, whose first
 * axis are the input's channels, it stands in front. v is shared with the layer: its gradients add up.
 *
 *     dg(k) = t(k) / |v(k)|,  dv(k, ..) = - t(k) g(k) v(k, ..) / |v(k)|^3,  t(k) = sum of dy(k) x(k)
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <inttypes.h>
#include <math.h>

typedef struct weightnorm_attr {
    meg_axes shape;
} weightnorm_attr;

enum {
    V = MEG_X + 1,
    G
};

/* Row k of the weight. */
static meg_box row_of(const meg_call *c, int64_t k)
{
    meg_box row = c->graph->value[c->node->in[V]].shape;
    row.lo[MEG_N] = k, row.hi[MEG_N] = k + 1;
    return row;
}

static double length_of(const meg_call *c, int64_t k)
{
    return sqrt(meg_sum_power(&c->t[V], row_of(c, k), 0, 2));
}

static meg_box channel_of(const meg_box *all, int64_t k)
{
    meg_box part = *all;
    part.lo[MEG_C] = k, part.hi[MEG_C] = k + 1;
    return part;
}

/* to = scale * from, over channel k */
static void scale_channel(const meg_call *c, int64_t k, double scale, const int operand[2])
{
    const meg_array *t[] = {&c->t[operand[0]], &c->t[operand[1]]};
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(channel_of(&c->work.out, k), 2, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(t[0], p);
        const real *from = meg_real_at(t[1], p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)(scale * (double)from[i]);
    }
}

static void forward(const meg_call *c)
{
    for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++) {
        double g = (double)*meg_channel_at(&c->t[G], 0, k);
        scale_channel(c, k, g / length_of(c, k), (const int[]){MEG_Y, MEG_X});
    }
}

/* t(k) */
static double product(const meg_call *c, int64_t k)
{
    const meg_array *t[] = {&c->t[MEG_X], &c->t[MEG_DY]};
    int64_t p[MEG_AXES];
    double sum = 0;
    meg_runs r = meg_runs_of(channel_of(&c->work.out, k), 2, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        sum += meg_dot_line(meg_real_at(t[0], p), meg_real_at(t[1], p), 1, r.length);
    return sum;
}

/* dv of row k: v times this */
static void pull_row(const meg_call *c, int64_t k, double scale)
{
    const meg_array *t[] = {&c->t[MEG_DX + V], &c->t[V]};
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(row_of(c, k), 2, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(t[0], p);
        const real *from = meg_real_at(t[1], p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)(scale * (double)from[i]);
    }
}

static void backward(const meg_call *c)
{
    for (int i = 0; i <= G; i++)
        if (c->t[MEG_DX + i].data) meg_zero(&c->t[MEG_DX + i]);
    if (meg_box_empty(&c->work.out)) return;
    for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++) {
        double g = (double)*meg_channel_at(&c->t[G], 0, k), length = length_of(c, k);
        double sum = product(c, k);
        if (c->t[MEG_DX].data) scale_channel(c, k, g / length, (const int[]){MEG_DX, MEG_DY});
        if (c->t[MEG_DX + V].data) pull_row(c, k, -sum * g / (length * length * length));
        if (c->t[MEG_DX + G].data) *meg_channel_at(&c->t[MEG_DX + G], 0, k) = (real)(sum / length);
    }
}

MEG_KERNELS(weightnorm) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"shape", MEG_PARAM_AXES, offsetof(weightnorm_attr, shape), NULL,
                                    "of the layer's weight: 16x3x3x3", NULL, 1, 0x1p40},
                                   {0}};

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const meg_axes *shape = &((const weightnorm_attr *)v->attr)->shape;
    meg_value layer = {0};
    (void)g;
    meg_shape_dims(&layer, shape->count, shape->at);
    out[0] = (meg_weight_spec){.suffix = "weight_v",
                               .kind = MEG_PARAMETER,
                               .shape = layer.shape,
                               .rank = shape->count,
                               .start = MEG_UNIFORM,
                               .bound = 1};
    memcpy(out[0].dims, layer.dims, sizeof out[0].dims);
    out[1] = (meg_weight_spec){.suffix = "weight_g",
                               .kind = MEG_PARAMETER,
                               .shape = meg_box_of(1, shape->at[0], 1, 1, 1),
                               .rank = 1,
                               .dims = {shape->at[0]},
                               .start = MEG_ONES};
    return 2;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_axes *shape = &((const weightnorm_attr *)v->attr)->shape;
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_CHECK(e, shape->count >= 2 && shape->at[0] == x->dims[1], MEG_EARG,
              "%s: shape has %d extents, the first %" PRId64 ", but '%s' has %" PRId64
              " channels: weightnorm wants the shape of the layer's weight, a row for each channel",
              v->name, shape->count, shape->at[0], x->name, x->dims[1]);
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_like(out, x);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = w->out;
    if (input == 0) return in;
    in = g->value[v->in[input]].shape;
    in.lo[input == V ? MEG_N : MEG_C] = w->out.lo[MEG_C];
    in.hi[input == V ? MEG_N : MEG_C] = w->out.hi[MEG_C];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 3 : 1) * (double)meg_box_size(&w->out);
}

static const meg_sample samples[] = {
    {"3x5", "shape=5x4"},           {"2x3x4", "shape=3x2x3"},         {"2x6x3x5", "shape=6x2x3x3"},
    {"1x16x4x3", "shape=16x8x1x1"}, {"1x4x2x3x2", "shape=4x3x1x2x3"}, {0}};

enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(V) | MEG_BIT(G),
    GRADIENTS = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + V) | MEG_BIT(MEG_DX + G)
};

const meg_op meg_op_weightnorm = {
    .name = "weightnorm",
    .doc = "behind a layer without bias: as if the rows of its weight had these lengths",
    .paper = "Salimans, Kingma, Weight normalization, NeurIPS 2016",
    .params = params,
    .attr_bytes = sizeof(weightnorm_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = GRADIENTS},
    MEG_KERNELS_OF(weightnorm),
    .samples = samples,
};

#endif
