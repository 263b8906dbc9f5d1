/* Gaussian error linear unit: y = x Phi(x), Phi the normal distribution,
 *
 *     none   Phi(x) = (1 + erf(x / sqrt 2)) / 2
 *     tanh   Phi(x) ~ (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 = sigmoid(2 ...)
 *
 * It is not monotonous, so backward must have the input.
 */
#include "ops/pointwise/point.h"

static const double CUBE = 0.044715;

#ifndef MEG_F64
static const meg_param params[] = {{"approximate", MEG_PARAM_CHOICE,
                                    offsetof(meg_gelu_attr, approximate), "none",
                                    "of the normal distribution", "none|tanh", 0, 0},
                                   {0}};

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 48 : 28) * (double)meg_box_size(&w->out); /* exp() is 20 */
}
#endif

static double share(double x) /* of the tanh form */
{
    return 1 / (1 + exp(-2 * M_2_SQRTPI * M_SQRT1_2 * (x + CUBE * x * x * x)));
}

static double exact(const void *attr, double x)
{
    (void)attr;
    return x * 0.5 * erfc(-x * M_SQRT1_2);
}

static double pull_exact(const void *attr, double x, double dy)
{
    (void)attr;
    double density = 0.5 * M_2_SQRTPI * M_SQRT1_2 * exp(-0.5 * x * x);
    return dy * (0.5 * erfc(-x * M_SQRT1_2) + x * density);
}

static double approximate(const void *attr, double x)
{
    (void)attr;
    return x * share(x);
}

static double pull_approximate(const void *attr, double x, double dy)
{
    (void)attr;
    double s = share(x);
    double slope = 2 * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * CUBE * x * x);
    return dy * (s + x * s * (1 - s) * slope);
}

static bool is_exact(const meg_call *c)
{
    return ((const meg_gelu_attr *)c->node->attr)->approximate == 0;
}

static void forward(const meg_call *c)
{
    if (is_exact(c)) meg_point_forward(c, exact);
    else meg_point_forward(c, approximate);
}

static void backward(const meg_call *c)
{
    if (is_exact(c)) meg_point_backward(c, MEG_X, pull_exact);
    else meg_point_backward(c, MEG_X, pull_approximate);
}

MEG_KERNELS(gelu) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", NULL},       {"2x5x11", "approximate=tanh"},
                                     {"3x16x5x7", NULL},  {"2x16x3x4", "approximate=tanh"},
                                     {"2x3x4x3x5", NULL}, {NULL, NULL}};

const meg_op meg_op_gelu = {
    .name = "gelu",
    .onnx = "Gelu",
    .doc = "Gaussian error linear unit: x Phi(x)",
    .paper = "Hendrycks, Gimpel, Gaussian error linear units, arXiv:1606.08415, 2016",
    .params = params,
    .attr_bytes = sizeof(meg_gelu_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = meg_point_infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(gelu),
    .overwrites = true,
    .samples = samples,
};
#endif
