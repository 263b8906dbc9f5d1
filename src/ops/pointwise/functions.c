/* Functions of one input, point by point (point.h): two functions and one row of the table each.
 *
 *     y = NAME_of(x)       dx = NAME_pull(x or y, dy)       from: which of both backward reads
 *
 * Kinks have PyTorch's derivatives: |x| has 0 at 0; elu, celu and selu belong to their left side
 * there, and the hard functions are flat at both ends of their slope.
 */
#include "ops/pointwise/point.h"

static double abs_of(const void *attr, double x)
{
    (void)attr;
    return fabs(x);
}

static double abs_pull(const void *attr, double x, double dy)
{
    (void)attr;
    return x > 0 ? dy : x < 0 ? -dy : x * dy; /* 0, or NaN */
}

static double exp_of(const void *attr, double x)
{
    (void)attr;
    return exp(x);
}

static double exp_pull(const void *attr, double y, double dy)
{
    (void)attr;
    return dy * y;
}

static double log_of(const void *attr, double x)
{
    (void)attr;
    return log(x);
}

static double log_pull(const void *attr, double x, double dy)
{
    (void)attr;
    return dy / x;
}

static double neg_of(const void *attr, double x)
{
    (void)attr;
    return -x;
}

static double neg_pull(const void *attr, double unused, double dy)
{
    (void)attr, (void)unused;
    return -dy;
}

static double reciprocal_of(const void *attr, double x)
{
    (void)attr;
    return 1 / x;
}

static double reciprocal_pull(const void *attr, double y, double dy)
{
    (void)attr;
    return -dy * y * y;
}

static double sqrt_of(const void *attr, double x)
{
    (void)attr;
    return sqrt(x);
}

static double sqrt_pull(const void *attr, double y, double dy)
{
    (void)attr;
    return dy / (2 * y);
}

static double pow_of(const void *attr, double x)
{
    return pow(x, ((const meg_point_attr *)attr)->alpha);
}

static double pow_pull(const void *attr, double x, double dy)
{
    double exponent = ((const meg_point_attr *)attr)->alpha;
    return exponent == 0 ? 0 : dy * exponent * pow(x, exponent - 1);
}

static double softplus_of(const void *attr, double x)
{
    (void)attr;
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double softplus_pull(const void *attr, double x, double dy)
{
    (void)attr;
    return dy / (1 + exp(-x));
}

static double mish_of(const void *attr, double x)
{
    return x * tanh(softplus_of(attr, x));
}

static double mish_pull(const void *attr, double x, double dy)
{
    double t = tanh(softplus_of(attr, x));
    return dy * (t + x * (1 - t * t) / (1 + exp(-x)));
}

/* ---- exponential linear units: scale * (x, or alpha * (exp(x / width) - 1) where x <= 0) ---- */

static double bend(double x, double alpha, double width)
{
    return x > 0 ? x : alpha * expm1(x / width);
}

static double bend_pull(double x, double alpha, double width)
{
    return x > 0 ? 1 : alpha / width * exp(x / width);
}

static double elu_of(const void *attr, double x)
{
    return bend(x, ((const meg_point_attr *)attr)->alpha, 1);
}

static double elu_pull(const void *attr, double x, double dy)
{
    return dy * bend_pull(x, ((const meg_point_attr *)attr)->alpha, 1);
}

static double celu_of(const void *attr, double x)
{
    double alpha = ((const meg_point_attr *)attr)->alpha;
    return bend(x, alpha, alpha);
}

static double celu_pull(const void *attr, double x, double dy)
{
    double alpha = ((const meg_point_attr *)attr)->alpha;
    return dy * bend_pull(x, alpha, alpha);
}

static double selu_of(const void *attr, double x)
{
    const meg_point_attr *a = attr;
    return a->beta * bend(x, a->alpha, 1);
}

static double selu_pull(const void *attr, double x, double dy)
{
    const meg_point_attr *a = attr;
    return dy * a->beta * bend_pull(x, a->alpha, 1);
}

/* ---- hard functions: straight lines in place of exponentials ---- */

static double hard_sigmoid_of(const void *attr, double x)
{
    const meg_point_attr *a = attr;
    double y = a->alpha * x + a->beta;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

static double hard_sigmoid_pull(const void *attr, double y, double dy)
{
    return y <= 0 || y >= 1 ? 0 : dy * ((const meg_point_attr *)attr)->alpha;
}

static double hard_swish_of(const void *attr, double x)
{
    (void)attr;
    return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
}

static double hard_swish_pull(const void *attr, double x, double dy)
{
    (void)attr;
    return x <= -3 ? 0 : x >= 3 ? dy : dy * (2 * x + 3) / 6;
}

/* ---- the table: name, ONNX's name, where backward reads, cost of an element, its words, text ---- */

#define NONE MEG_DY
#define POINTS(ROW)                                                                                \
    ROW(abs, "Abs", MEG_X, 1, no, "absolute value")                                                \
    ROW(celu, "Celu", MEG_X, 24, alpha,                                                            \
        "exponential linear unit of continuous slope: x, or alpha (exp(x / alpha) - 1) below 0")   \
    ROW(elu, "Elu", MEG_X, 24, alpha, "exponential linear unit: x, or alpha (exp(x) - 1) below 0") \
    ROW(exp, "Exp", MEG_Y, 20, no, "exponential")                                                  \
    ROW(hard_sigmoid, "HardSigmoid", MEG_Y, 4, hard, "alpha x + beta, clipped to 0..1")            \
    ROW(hard_swish, "HardSwish", MEG_X, 5, no, "x times x / 6 + 1 / 2, clipped to 0..1")           \
    ROW(log, "Log", MEG_X, 20, no, "natural logarithm")                                            \
    ROW(mish, "Mish", MEG_X, 60, no, "x tanh(softplus(x))")                                        \
    ROW(neg, "Neg", NONE, 1, no, "-x")                                                             \
    ROW(pow, "Pow", MEG_X, 40, pow, "x to a fixed power")                                          \
    ROW(reciprocal, "Reciprocal", MEG_Y, 4, no, "1 / x")                                           \
    ROW(selu, "Selu", MEG_X, 24, selu, "gamma times elu")                                          \
    ROW(softplus, "Softplus", MEG_X, 40, no, "log(1 + exp(x))")                                    \
    ROW(sqrt, "Sqrt", MEG_Y, 6, no, "square root")

#define KERNELS(name, onnx, from, cost, words, text)                                               \
    static void name##_forward(const meg_call *c)                                                  \
    {                                                                                              \
        meg_point_forward(c, name##_of);                                                           \
    }                                                                                              \
    static void name##_backward(const meg_call *c)                                                 \
    {                                                                                              \
        meg_point_backward(c, from, name##_pull);                                                  \
    }                                                                                              \
    MEG_KERNELS(name) = {.run = {[MEG_FORWARD] = name##_forward, [MEG_BACKWARD] = name##_backward}};
POINTS(KERNELS)

#ifndef MEG_F64
#define REAL(word, field, initial, text)                                                           \
    {                                                                                              \
        word, MEG_PARAM_REAL, offsetof(meg_point_attr, field), initial, text, NULL, 0, 0           \
    }

static const meg_param no_words[] = {{0}};
static const meg_param alpha_words[] = {
    REAL("alpha", alpha, "1", "what it approaches far below 0, negated"), {0}};
static const meg_param hard_words[] = {REAL("alpha", alpha, "0.16666666666666666", "the slope"),
                                       REAL("beta", beta, "0.5", "the output at 0"),
                                       {0}};
static const meg_param pow_words[] = {REAL("exponent", alpha, "2", "the power"), {0}};
static const meg_param selu_words[] = {
    REAL("alpha", alpha, "1.6732632423543772", "of elu"),
    REAL("gamma", beta, "1.0507009873554805", "that it is multiplied by"),
    {0}};

static const meg_sample no_samples[] = {
    {"5x7", NULL}, {"2x5x11", NULL}, {"3x16x5x7", NULL}, {"2x3x4x3x5", NULL}, {NULL, NULL}};
static const meg_sample alpha_samples[] = {{"5x7", NULL},
                                           {"2x5x11", "alpha=0.5"},
                                           {"3x16x5x7", "alpha=1.5"},
                                           {"2x3x4x3x5", NULL},
                                           {NULL, NULL}};
static const meg_sample hard_samples[] = {{"5x7", NULL},
                                          {"2x5x11", "alpha=0.5 beta=0.4"},
                                          {"3x16x5x7", "alpha=0.4"},
                                          {"2x3x4x3x5", NULL},
                                          {NULL, NULL}};
static const meg_sample pow_samples[] = {{"5x7", NULL},
                                         {"2x5x11", "exponent=3"},
                                         {"3x16x5x7", "exponent=0.5"},
                                         {"2x9x5x6", "exponent=-0.75"},
                                         {"2x3x4x3x5", "exponent=2.5"},
                                         {NULL, NULL}};
static const meg_sample selu_samples[] = {{"5x7", NULL},
                                          {"2x5x11", "alpha=0.5"},
                                          {"3x16x5x7", "alpha=1.5 gamma=0.8"},
                                          {"2x3x4x3x5", NULL},
                                          {NULL, NULL}};

static double all_flops(const meg_work *w, meg_pass p, double each)
{
    return (p == MEG_BACKWARD ? each + 2 : each) * (double)meg_box_size(&w->out);
}

#define DESCRIPTOR(op, from_onnx, from, cost, words, text)                                         \
    static double op##_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p) \
    {                                                                                              \
        (void)g, (void)v;                                                                          \
        return all_flops(w, p, cost);                                                              \
    }                                                                                              \
    const meg_op meg_op_##op = {                                                                   \
        .name = #op,                                                                               \
        .onnx = from_onnx,                                                                         \
        .doc = text,                                                                               \
        .params = words##_words,                                                                   \
        .attr_bytes = sizeof(meg_point_attr),                                                      \
        .data_inputs = 1,                                                                          \
        .data_inputs_max = 1,                                                                      \
        .infer = meg_point_infer,                                                                  \
        .need = meg_need_same,                                                                     \
        .flops = op##_flops,                                                                       \
        .reads =                                                                                   \
            {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(from) | MEG_BIT(MEG_DY)},    \
        .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},              \
        .cheap = true,                                                                             \
        .overwrites = true,                                                                        \
        MEG_KERNELS_OF(op),                                                                        \
        .samples = words##_samples,                                                                \
    };
POINTS(DESCRIPTOR)
#endif
