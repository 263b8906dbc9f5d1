/* Difference y = a - b; b may be per channel, per sample or scalar (pair.h). */
#include "ops/pointwise/pair.h"

static const meg_array NONE = {0};

static double difference(double a, double b)
{
    return a - b;
}

static double pull(double dy, double x, double b) /* of a */
{
    (void)x, (void)b;
    return dy;
}

static double pull_other(double dy, double x, double b)
{
    (void)x, (void)b;
    return -dy;
}

static void forward(const meg_call *c)
{
    meg_pair_forward(c, difference);
}

static void backward(const meg_call *c)
{
    meg_pair_other(c, 1, &NONE, pull_other);
    meg_pair_first(c, &NONE, pull);
}

MEG_KERNELS(sub) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x7", NULL},
                                     {"5x7 5x1", NULL},
                                     {"2x5x11 1x5", NULL},
                                     {"3x16x5x7 3x16x5x7", NULL},
                                     {"3x16x5x7 3", NULL},
                                     {"3x6x5x7 1x1x5x7", NULL},
                                     {"2x3x4x3x5 2x3x1x3x1", NULL},
                                     {"2x3x4x3x5 1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_sub = {
    .name = "sub",
    .onnx = "Sub",
    .doc = "difference of two values; the second may have extents of 1",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = meg_pair_infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads =
        {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)},
    .cheap = true,
    MEG_KERNELS_OF(sub),
    .overwrites = true,
    .samples = samples,
};
#endif
