/* Logistic sigmoid: y = 1 / (1 + exp(-x)). Backward needs the output alone: dx = dy y (1 - y). */
#include "ops/pointwise/point.h"

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
const meg_op meg_op_sigmoid = {
    .name = "sigmoid",
    .onnx = "Sigmoid",
    .doc = "logistic function: 1 / (1 + exp(-x))",
    MEG_SQUASH_FIELDS,
    MEG_KERNELS_OF(sigmoid),
};
#endif
