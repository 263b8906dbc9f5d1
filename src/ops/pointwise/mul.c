/* Product y = a b; b may be per channel, per sample or scalar (pair.h): gates and scales. */
#include "ops/pointwise/pair.h"

static double product(double a, double b)
{
    return a * b;
}

static double pull(double dy, double x, double b) /* of a */
{
    (void)x;
    return dy * b;
}

static double pull_other(double dy, double a, double b)
{
    (void)b;
    return dy * a;
}

static void forward(const meg_call *c)
{
    meg_pair_forward(c, product);
}

static void backward(const meg_call *c)
{
    static const meg_array none = {0};
    meg_pair_other(c, 1, &c->t[MEG_X], pull_other);
    meg_pair_first(c, &none, pull);
}

MEG_KERNELS(mul) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
    GRADIENTS = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)
};

static const meg_sample samples[] = {{"5x7 5x7", NULL},         {"5x7 1x7", NULL},
                                     {"2x5x11 2x5x11", NULL},   {"2x5x11 2", NULL},
                                     {"2x5x141 1x1x141", NULL}, {"3x16x5x7 3x16x5x7", NULL},
                                     {"3x16x5x7 3x16", NULL},   {"3x6x5x7 3x1x5x7", NULL},
                                     {"3x6x5x7 1x6x1x7", NULL}, {"2x3x4x3x5 1x3x1x1x1", NULL},
                                     {"2x3x4x3x5 1", NULL},     {NULL, NULL}};

const meg_op meg_op_mul = {
    .name = "mul",
    .onnx = "Mul",
    .doc = "product of two values; the second may have extents of 1",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = meg_pair_infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = GRADIENTS},
    .cheap = true,
    MEG_KERNELS_OF(mul),
    .overwrites = true,
    .samples = samples,
};
#endif
