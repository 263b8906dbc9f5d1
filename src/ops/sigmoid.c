/* Logistic sigmoid: y = 1 / (1 + exp(-x)). Backward needs the output alone: dx = dy y (1 - y). */
#include "ops/point.h"

#ifndef MEG_F64
static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 3 : 22) * (double)meg_box_size(&w->out); /* exp() is 20 */
}
#endif

static double squash(const void *attr, double x)
{
    (void)attr;
    return 1 / (1 + exp(-x));
}

static double pull(const void *attr, double y, double dy)
{
    (void)attr;
    return dy * y * (1 - y);
}

static void forward(const meg_call *c)
{
    meg_point_forward(c, squash);
}

static void backward(const meg_call *c)
{
    meg_point_backward(c, MEG_Y, pull);
}

MEG_KERNELS(sigmoid) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"5x7", NULL}, {"2x5x11", NULL}, {"3x16x5x7", NULL}, {"2x3x4x3x5", NULL}, {NULL, NULL}};

const meg_op meg_op_sigmoid = {
    .name = "sigmoid",
    .onnx = "Sigmoid",
    .doc = "logistic function: 1 / (1 + exp(-x))",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = meg_point_infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(sigmoid),
    .samples = samples,
};
#endif
