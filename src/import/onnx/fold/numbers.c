/* Operators of ONNX on single numbers, for constants (fold.c): in double, or in 64 bits, where a
 * result that does not fit is none.
 */
#include "import/onnx/fold/fold.h"

#include <math.h>

static double add_r(double a, double c)
{
    return a + c;
}
static double sub_r(double a, double c)
{
    return a - c;
}
static double mul_r(double a, double c)
{
    return a * c;
}
static double div_r(double a, double c)
{
    return a / c;
}
static double equal_r(double a, double c)
{
    return !(a < c) && !(a > c);
}
static double less_r(double a, double c)
{
    return a < c;
}
static double greater_r(double a, double c)
{
    return a > c;
}
static double sqrt_r(double a, double c)
{
    return (void)c, sqrt(a);
}
static double neg_r(double a, double c)
{
    return (void)c, -a;
}
static double inverse_r(double a, double c)
{
    return (void)c, 1 / a;
}
static double floor_r(double a, double c)
{
    return (void)c, floor(a);
}

static double exp_r(double a, double c)
{
    return (void)c, exp(a);
}
static double log_r(double a, double c)
{
    return (void)c, log(a);
}
static double abs_r(double a, double c)
{
    return (void)c, fabs(a);
}
static double ceil_r(double a, double c)
{
    return (void)c, ceil(a);
}
static double round_r(double a, double c)
{
    return (void)c, nearbyint(a); /* halves to even */
}
static double sin_r(double a, double c)
{
    return (void)c, sin(a);
}
static double cos_r(double a, double c)
{
    return (void)c, cos(a);
}
static double tanh_r(double a, double c)
{
    return (void)c, tanh(a);
}
static double sigmoid_r(double a, double c)
{
    return (void)c, 1 / (1 + exp(-a));
}
static double less_equal_r(double a, double c)
{
    return a <= c;
}
static double greater_equal_r(double a, double c)
{
    return a >= c;
}
static double max_r(double a, double c)
{
    return isnan(a) || isnan(c) ? NAN : a > c ? a : c;
}
static double min_r(double a, double c)
{
    return isnan(a) || isnan(c) ? NAN : a < c ? a : c;
}

static bool abs_i(int64_t a, int64_t c, int64_t *out)
{
    if (a < 0) return !__builtin_sub_overflow(0, a, out);
    return (void)c, *out = a, true;
}
static bool less_equal_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a <= c, true;
}
static bool greater_equal_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a >= c, true;
}
static bool max_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a > c ? a : c, true;
}
static bool min_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a < c ? a : c, true;
}
static bool add_i(int64_t a, int64_t c, int64_t *out)
{
    return !__builtin_add_overflow(a, c, out);
}
static bool sub_i(int64_t a, int64_t c, int64_t *out)
{
    return !__builtin_sub_overflow(a, c, out);
}
static bool mul_i(int64_t a, int64_t c, int64_t *out)
{
    return !__builtin_mul_overflow(a, c, out);
}
static bool equal_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a == c, true;
}
static bool less_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a < c, true;
}
static bool greater_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a > c, true;
}
static bool and_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a && c, true;
}
static bool or_i(int64_t a, int64_t c, int64_t *out)
{
    return *out = a || c, true;
}
static bool not_i(int64_t a, int64_t c, int64_t *out)
{
    return (void)c, *out = !a, true;
}
static bool neg_i(int64_t a, int64_t c, int64_t *out)
{
    return (void)c, !__builtin_sub_overflow(0, a, out);
}

static bool div_i(int64_t a, int64_t c, int64_t *out)
{
    if (c == 0 || (a == INT64_MIN && c == -1)) return false;
    *out = a / c;
    return true;
}

/* The sign of the divisor, as in Python. */
static bool mod_i(int64_t a, int64_t c, int64_t *out)
{
    if (c == 0 || (a == INT64_MIN && c == -1)) return false;
    *out = a % c;
    if (*out && (*out < 0) != (c < 0)) *out += c;
    return true;
}

const meg_onnx_computing meg_onnx_computings[] = {
    {"Add", 2, false, false, add_r, add_i},
    {"Sub", 2, false, false, sub_r, sub_i},
    {"Mul", 2, false, false, mul_r, mul_i},
    {"Div", 2, false, false, div_r, div_i},
    {"Mod", 2, false, false, NULL, mod_i},
    {"Pow", 2, false, true, pow, NULL},
    {"Equal", 2, true, false, equal_r, equal_i},
    {"Less", 2, true, false, less_r, less_i},
    {"Greater", 2, true, false, greater_r, greater_i},
    {"And", 2, false, false, NULL, and_i},
    {"Or", 2, false, false, NULL, or_i},
    {"Not", 1, false, false, NULL, not_i},
    {"Neg", 1, false, false, neg_r, neg_i},
    {"Sqrt", 1, false, true, sqrt_r, NULL},
    {"Reciprocal", 1, false, true, inverse_r, NULL},
    {"Floor", 1, false, true, floor_r, NULL},
    {"Ceil", 1, false, true, ceil_r, NULL},
    {"Round", 1, false, true, round_r, NULL},
    {"Exp", 1, false, true, exp_r, NULL},
    {"Log", 1, false, true, log_r, NULL},
    {"Sin", 1, false, true, sin_r, NULL},
    {"Cos", 1, false, true, cos_r, NULL},
    {"Tanh", 1, false, true, tanh_r, NULL},
    {"Sigmoid", 1, false, true, sigmoid_r, NULL},
    {"Abs", 1, false, false, abs_r, abs_i},
    {"Max", 2, false, false, max_r, max_i},
    {"Min", 2, false, false, min_r, min_i},
    {"LessOrEqual", 2, true, false, less_equal_r, less_equal_i},
    {"GreaterOrEqual", 2, true, false, greater_equal_r, greater_equal_i},
    {0}};
