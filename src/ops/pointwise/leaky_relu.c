/* Leaky rectifier: y = x where x > 0, else slope * x. The slope is not negative, so the output has
 * the sign of the input: backward asks it, and forward may overwrite its input. */
#include "ops/pointwise/point.h"

#ifndef MEG_F64
static const meg_param params[] = {
    {"slope", MEG_PARAM_REAL, offsetof(meg_leaky_attr, slope), "0.01", "below zero", NULL, 0, 1e15},
    {0}};

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 2 * (double)meg_box_size(&w->out);
}
#endif

static double leak(const void *attr, double x)
{
    return x < 0 ? ((const meg_leaky_attr *)attr)->slope * x : x;
}

static double pull(const void *attr, double y, double dy)
{
    return y <= 0 ? ((const meg_leaky_attr *)attr)->slope * dy : dy;
}

static void forward(const meg_call *c)
{
    meg_point_forward(c, leak);
}

static void backward(const meg_call *c)
{
    meg_point_backward(c, MEG_Y, pull);
}

MEG_KERNELS(leaky_relu) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", NULL},
                                     {"2x5x11", "slope=0.3"},
                                     {"3x16x5x7", "slope=0.2"},
                                     {"2x3x4x3x5", "slope=0"},
                                     {NULL, NULL}};

const meg_op meg_op_leaky_relu = {
    .name = "leaky_relu",
    .onnx = "LeakyRelu",
    .doc = "leaky rectifier: x, below zero slope * x",
    .paper = "Maas, Hannun, Ng, Rectifier nonlinearities improve neural network acoustic models, "
             "ICML workshop 2013",
    .params = params,
    .attr_bytes = sizeof(meg_leaky_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = meg_point_infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(leaky_relu),
    .overwrites = true,
    .samples = samples,
};
#endif
