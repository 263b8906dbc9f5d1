/* Parametric rectifier: y = x where x > 0, else slope * x, the slope learned: one per channel, or
 * one for all. To the kernels the slope is a second input that is spread (pair.h). Slopes may
 * become negative, so backward asks the input. */
#include "ops/pointwise/pair.h"

#ifndef MEG_F64
typedef struct meg_prelu_attr {
    bool single; /* one slope for all channels; else one each */
} meg_prelu_attr;

static const meg_param params[] = {{"single", MEG_PARAM_BOOL, offsetof(meg_prelu_attr, single), "0",
                                    "one slope for all channels", NULL, 0, 0},
                                   {0}};

static int64_t slopes(const meg_graph *g, const meg_node *v)
{
    const meg_prelu_attr *attr = v->attr;
    return attr->single ? 1 : g->value[v->in[0]].shape.hi[MEG_C];
}

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    int64_t count = slopes(g, v);
    out[0] = (meg_weight_spec){.suffix = "weight",
                               .kind = MEG_PARAMETER,
                               .shape = meg_box_of(1, count, 1, 1, 1),
                               .rank = 1,
                               .dims = {count},
                               .start = MEG_CONSTANT,
                               .bound = 0.25};
    return 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_pair_infer(g, v, e, out));
    return meg_want_shape(g, v, e, 1, meg_box_of(1, slopes(g, v), 1, 1, 1));
}
#endif

static double bend(double x, double slope)
{
    return x < 0 ? slope * x : x;
}

static double pull(double dy, double x, double slope)
{
    return x <= 0 ? slope * dy : dy;
}

static double pull_slope(double dy, double x, double slope)
{
    (void)slope;
    return x < 0 ? dy * x : 0;
}

static void forward(const meg_call *c)
{
    meg_pair_forward(c, bend);
}

static void backward(const meg_call *c)
{
    meg_pair_other(c, 1, &c->t[MEG_X], pull_slope);
    meg_pair_first(c, &c->t[MEG_X], pull);
}

MEG_KERNELS(prelu) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
    GRADIENTS = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)
};

static const meg_sample samples[] = {
    {"5x7", NULL},     {"2x5x11", "single=1"},    {"3x16x5x7", NULL},
    {"2x1x5x7", NULL}, {"2x3x4x3x5", "single=1"}, {NULL, NULL}};

const meg_op meg_op_prelu = {
    .name = "prelu",
    .onnx = "PRelu",
    .doc = "rectifier with a learned slope below zero",
    .paper = "He, Zhang, Ren, Sun, Delving deep into rectifiers, ICCV 2015",
    .params = params,
    .attr_bytes = sizeof(meg_prelu_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = GRADIENTS},
    .cheap = true,
    MEG_KERNELS_OF(prelu),
    .overwrites = true,
    .samples = samples,
};
#endif
