/* Hyperbolic tangent. Backward needs the output alone: dx = dy (1 - y^2). */
#include "ops/pointwise/point.h"

static double squash(const void *attr, double x)
{
    (void)attr;
    return tanh(x);
}

static double pull(const void *attr, double y, double dy)
{
    (void)attr;
    return dy * (1 - y * y);
}

static void forward(const meg_call *c)
{
    meg_point_forward(c, squash);
}

static void backward(const meg_call *c)
{
    meg_point_backward(c, MEG_Y, pull);
}

MEG_KERNELS(tanh) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
const meg_op meg_op_tanh = {
    .name = "tanh",
    .onnx = "Tanh",
    .doc = "hyperbolic tangent",
    MEG_SQUASH_FIELDS,
    MEG_KERNELS_OF(tanh),
};
#endif
