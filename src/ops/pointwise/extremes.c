/* The larger and the smaller of two values, the second of which may be spread over the first
 * (pair.h). NaN wins. The gradient goes to the one that was chosen; of equal ones each gets half, as
 * PyTorch's maximum and minimum have it. */
#include "ops/pointwise/pair.h"

static double max_of(double a, double b)
{
    return a > b || a != a ? a : b;
}

static double min_of(double a, double b)
{
    return a < b || a != a ? a : b;
}

/* of a, and of b */
static double max_pull(double dy, double a, double b)
{
    return a > b ? dy : a < b ? 0 : dy / 2;
}

static double min_pull(double dy, double a, double b)
{
    return a < b ? dy : a > b ? 0 : dy / 2;
}

static void max_forward(const meg_call *c)
{
    meg_pair_forward(c, max_of);
}

static void min_forward(const meg_call *c)
{
    meg_pair_forward(c, min_of);
}

static void max_backward(const meg_call *c)
{
    meg_pair_other(c, 1, &c->t[MEG_X], min_pull); /* b has it where a is smaller */
    meg_pair_first(c, &c->t[MEG_X], max_pull);
}

static void min_backward(const meg_call *c)
{
    meg_pair_other(c, 1, &c->t[MEG_X], max_pull);
    meg_pair_first(c, &c->t[MEG_X], min_pull);
}

MEG_KERNELS(max) = {.run = {[MEG_FORWARD] = max_forward, [MEG_BACKWARD] = max_backward}};
MEG_KERNELS(min) = {.run = {[MEG_FORWARD] = min_forward, [MEG_BACKWARD] = min_backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
    GRADIENTS = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)
};

static const meg_sample samples[] = {{"5x7 5x7", NULL},          {"5x7 1x7", NULL},
                                     {"2x5x11 2x5", NULL},       {"3x16x5x7 3x16x5x7", NULL},
                                     {"3x16x5x7 3x1x5x7", NULL}, {"2x3x4x3x5 1x1x4x1x5", NULL},
                                     {"2x3x4x3x5 1", NULL},      {NULL, NULL}};

#define EXTREME_FIELDS                                                                             \
    .data_inputs = 2, .data_inputs_max = 2, .infer = meg_pair_infer, .need = meg_pair_need,        \
    .flops = meg_pair_flops,                                                                       \
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},                  \
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = GRADIENTS}, .cheap = true,         \
    .overwrites = true, .samples = samples

const meg_op meg_op_max = {
    .name = "max",
    .onnx = "Max",
    .doc = "the larger of two values; the second may have extents of 1",
    EXTREME_FIELDS,
    MEG_KERNELS_OF(max),
};

const meg_op meg_op_min = {
    .name = "min",
    .onnx = "Min",
    .doc = "the smaller of two values; the second may have extents of 1",
    EXTREME_FIELDS,
    MEG_KERNELS_OF(min),
};
#endif
