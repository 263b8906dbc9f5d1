/* Quotient y = a / b; b may be per channel, per sample or scalar (pair.h). Backward asks the
 * output, db = -dy y / b, so that forward may overwrite a. */
#include "ops/pointwise/pair.h"

static double quotient(double a, double b)
{
    return a / b;
}

static double pull(double dy, double x, double b) /* of a */
{
    (void)x;
    return dy / b;
}

static double pull_other(double dy, double y, double b)
{
    return -dy * y / b;
}

static void forward(const meg_call *c)
{
    meg_pair_forward(c, quotient);
}

static void backward(const meg_call *c)
{
    static const meg_array none = {0};
    meg_pair_other(c, 1, &c->t[MEG_Y], pull_other);
    meg_pair_first(c, &none, pull);
}

MEG_KERNELS(div) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x7", NULL},          {"5x7 1x7", NULL},
                                     {"2x5x11 2x5", NULL},       {"3x16x5x7 3x16x5x7", NULL},
                                     {"3x16x5x7 3x1x5x7", NULL}, {"2x3x4x3x5 1x1x4x1x5", NULL},
                                     {"2x3x4x3x5 1", NULL},      {NULL, NULL}};

const meg_op meg_op_div = {
    .name = "div",
    .onnx = "Div",
    .doc = "quotient of two values; the second may have extents of 1",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = meg_pair_infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)},
    .cheap = true,
    MEG_KERNELS_OF(div),
    .overwrites = true,
    .samples = samples,
};
#endif
