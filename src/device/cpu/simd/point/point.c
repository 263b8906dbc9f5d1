/* Point by point, whatever the format: activations, products, differences, masks (choice.h), and
 * their gradients. Padding lanes are written as 0, whatever a function makes of 0 (sigmoid: 0.5).
 */
#include "device/cpu/simd/choice.h"
#include "device/cpu/simd/log.h"

enum {
    TILE = 4096
}; /* floats */

typedef vec point_fn(const meg_simd_point *j, vec a, vec b, vec c);

/* ---- the functions: a is x or dy, b the second input, or y or x of a gradient ---- */

MEG_INLINE vec pass(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return a;
}

MEG_INLINE vec negate(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return -a;
}

MEG_INLINE vec multiply(const meg_simd_point *j, vec a, vec b)
{
    (void)j;
    return a * b;
}

MEG_INLINE vec subtract(const meg_simd_point *j, vec a, vec b)
{
    (void)j;
    return a - b;
}

MEG_INLINE vec leak(const meg_simd_point *j, vec a, vec b)
{
    (void)b;
    return choose(a < 0, splat(j->lo) * a, a);
}

MEG_INLINE vec leak_back(const meg_simd_point *j, vec dy, vec y)
{
    return choose(y <= 0, splat(j->lo) * dy, dy);
}

MEG_INLINE vec clip(const meg_simd_point *j, vec a, vec b)
{
    (void)b;
    a = choose(a < splat(j->lo), splat(j->lo), a);
    return choose(a > splat(j->hi), splat(j->hi), a);
}

MEG_INLINE vec clip_back(const meg_simd_point *j, vec dy, vec y)
{
    return keep(~((y <= splat(j->lo)) | (y >= splat(j->hi))), dy);
}

MEG_INLINE vec sigmoid(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return sigmoid_of(a);
}

MEG_INLINE vec sigmoid_back(const meg_simd_point *j, vec dy, vec y)
{
    (void)j;
    return dy * y * (splat(1) - y);
}

MEG_INLINE vec hyperbolic(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return tanh_of(a);
}

MEG_INLINE vec hyperbolic_back(const meg_simd_point *j, vec dy, vec y)
{
    (void)j;
    return dy * (splat(1) - y * y);
}

MEG_INLINE vec gelu(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return a * normal_of(a, bell_of(a));
}

MEG_INLINE vec gelu_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    vec bell = bell_of(x);
    return dy * (normal_of(x, bell) + splat(0x1.988454p-2f) * x * bell); /* 1 / sqrt(2 pi) */
}

/* sqrt(8 / pi), and that times 0.044715: Phi(x) ~ sigmoid(LINE x + CUBE x^3) */
static const float LINE = 0x1.988454p+0f, CUBE = 0x1.2444f2p-4f;

MEG_INLINE vec gelu_tanh(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return a * sigmoid_of(a * (splat(LINE) + splat(CUBE) * a * a));
}

MEG_INLINE vec gelu_tanh_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    vec z = x * x, s = sigmoid_of(x * (splat(LINE) + splat(CUBE) * z));
    return dy * (s + x * s * (splat(1) - s) * (splat(LINE) + splat(3 * CUBE) * z));
}

/* ---- those of ops/pointwise/functions.c ---- */

MEG_INLINE vec absolute(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return size_of(a);
}

MEG_INLINE vec absolute_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    return choose(x > 0, dy, choose(x < 0, -dy, x * dy));
}

MEG_INLINE vec exponential(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return exp_of(a);
}

MEG_INLINE vec logarithmic(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return log_of(a);
}

MEG_INLINE vec divide(const meg_simd_point *j, vec a, vec b)
{
    (void)j;
    return a / b;
}

MEG_INLINE vec inverse(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return splat(1) / a;
}

MEG_INLINE vec inverse_back(const meg_simd_point *j, vec dy, vec y)
{
    (void)j;
    return -dy * y * y;
}

MEG_INLINE vec root(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return root_of(a);
}

MEG_INLINE vec root_back(const meg_simd_point *j, vec dy, vec y)
{
    (void)j;
    return splat(0.5f) * dy / y;
}

MEG_INLINE vec square(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return a * a;
}

MEG_INLINE vec square_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    return splat(2) * dy * x;
}

MEG_INLINE vec cube(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return a * a * a;
}

MEG_INLINE vec cube_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    return splat(3) * dy * x * x;
}

MEG_INLINE vec power(const meg_simd_point *j, vec a, vec b) /* lo: the exponent */
{
    (void)b;
    return power_of(a, j->lo);
}

MEG_INLINE vec power_back(const meg_simd_point *j, vec dy, vec x) /* hi: the exponent less 1 */
{
    if (j->lo == 0) return splat(0);
    return splat(j->lo) * dy * power_of(x, j->hi);
}

MEG_INLINE vec softplus(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    return softplus_of(a);
}

MEG_INLINE vec softplus_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    return dy * sigmoid_of(x);
}

/* tanh(softplus(x)) is u / (u + v), without a logarithm: of w = exp(x), u = w (w + 2) and v = 2, both
 * divided by w^2 where that is large. */
typedef struct gate {
    vec u, v;
} gate;

MEG_INLINE gate gate_of(vec x, vec e) /* e: exp(-|x|) */
{
    return (gate){choose(x < 0, e * (e + splat(2)), splat(1) + splat(2) * e),
                  choose(x < 0, splat(2), splat(2) * e * e)};
}

MEG_INLINE vec mish(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    gate g = gate_of(a, exp_of(-size_of(a)));
    return a * (g.u / (g.u + g.v));
}

MEG_INLINE vec mish_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    gate g = gate_of(x, exp_of(-size_of(x)));
    vec inverse = splat(1) / (g.u + g.v), t = g.u * inverse;
    return dy * (t + x * (g.v * inverse) * (splat(1) + t) * sigmoid_of(x));
}

/* elu, celu, selu: hi x above 0, lo (exp(rate x) - 1) below */
MEG_INLINE vec bend(const meg_simd_point *j, vec a, vec b)
{
    (void)b;
    vec below = choose(a > 0, splat(0), a);
    return choose(a > 0, splat(j->hi) * a, splat(j->lo) * expm1_of(splat(j->rate) * below));
}

MEG_INLINE vec bend_back(const meg_simd_point *j, vec dy, vec x)
{
    vec slope = splat(j->lo * j->rate) * exp_of(splat(j->rate) * x);
    return dy * choose(x > 0, splat(j->hi), slope);
}

MEG_INLINE vec hard_sigmoid(const meg_simd_point *j, vec a, vec b) /* lo a + hi */
{
    (void)b;
    vec y = splat(j->lo) * a + splat(j->hi);
    y = choose(y < 0, splat(0), y);
    return choose(y > splat(1), splat(1), y);
}

MEG_INLINE vec hard_sigmoid_back(const meg_simd_point *j, vec dy, vec y)
{
    return keep(~((y <= 0) | (y >= splat(1))), splat(j->lo) * dy);
}

MEG_INLINE vec hard_swish(const meg_simd_point *j, vec a, vec b)
{
    (void)j, (void)b;
    vec between = a * (a + splat(3)) * splat(1.f / 6);
    return keep(~(a <= splat(-3)), choose(a >= splat(3), a, between));
}

MEG_INLINE vec hard_swish_back(const meg_simd_point *j, vec dy, vec x)
{
    (void)j;
    vec between = dy * (x * splat(1.f / 3) + splat(0.5f));
    return keep(~(x <= splat(-3)), choose(x >= splat(3), dy, between));
}

/* ---- loops ---- */

MEG_INLINE void vector_at(const meg_simd_point *j, int64_t i, point_fn *f, ivec mask, bool past)
{
    vec a = load(j->a + i), b = splat(j->lo), c = {0};
    if (j->a2) a += load(j->a2 + i);
    if (j->b) b = load(j->b + i);
    if (j->c) c = load(j->c + i);
    put(j->y + i, keep(mask, f(j, a, b, c)), past);
}

MEG_INLINE void tile(const meg_simd_point *j, int64_t lo, int64_t hi, point_fn *f, bool past)
{
    int64_t i = lo;
    while (i < hi) {
        int64_t row = i / j->row, end = least(hi, (row + 1) * j->row);
        ivec mask = lane_mask((row + 1) % j->blocks == 0 ? j->lanes : B);
        for (; i < end; i += B)
            vector_at(j, i, f, mask, past);
    }
}

typedef void tile_fn(const meg_simd_point *j, int64_t lo, int64_t hi, bool past);

/* One copy of the loops for each function, so that it is inlined into them. */
#define MEG_CHOICE(kind, function)                                                                 \
    static void function##_tile(const meg_simd_point *j, int64_t lo, int64_t hi, bool past)        \
    {                                                                                              \
        if (past) tile(j, lo, hi, function, true);                                                 \
        else tile(j, lo, hi, function, false);                                                     \
    }
#define MEG_POINT(kind, function)                                                                  \
    MEG_INLINE vec function##_alone(const meg_simd_point *j, vec a, vec b, vec c)                  \
    {                                                                                              \
        (void)c;                                                                                   \
        return function(j, a, b);                                                                  \
    }                                                                                              \
    static void function##_tile(const meg_simd_point *j, int64_t lo, int64_t hi, bool past)        \
    {                                                                                              \
        if (past) tile(j, lo, hi, function##_alone, true);                                         \
        else tile(j, lo, hi, function##_alone, false);                                             \
    }
#include "device/cpu/simd/points.def"
#undef MEG_POINT
#undef MEG_CHOICE

static tile_fn *const tiles[MEG_POINTS] = {
#define MEG_POINT(kind, function)  [MEG_POINT_##kind] = function##_tile,
#define MEG_CHOICE(kind, function) [MEG_POINT_##kind] = function##_tile,
#include "device/cpu/simd/points.def"
#undef MEG_POINT
#undef MEG_CHOICE
};

/* The last elements of a plain tensor, fewer than a vector: the same function on a copy. */
static void rest(const meg_simd_point *j, int64_t from)
{
    size_t bytes = (size_t)(j->count - from) * sizeof(float);
    float a[B] = {0}, a2[B] = {0}, b[B] = {0}, c[B] = {0}, y[B];
    meg_simd_point copy = *j;
    memcpy(a, j->a + from, bytes);
    if (j->a2) memcpy(a2, j->a2 + from, bytes);
    if (j->b) memcpy(b, j->b + from, bytes);
    if (j->c) memcpy(c, j->c + from, bytes);
    copy.a = a, copy.a2 = j->a2 ? a2 : NULL;
    copy.b = j->b ? b : NULL, copy.c = j->c ? c : NULL;
    copy.y = y;
    tiles[j->kind](&copy, 0, B, false);
    memcpy(j->y + from, y, bytes);
}

void MEG_SIMD(point)(const meg_simd_point *j);

void MEG_SIMD(point)(const meg_simd_point *j)
{
    int64_t whole = j->count / B * B, count = (whole + TILE - 1) / TILE;
    bool in_place = j->y == j->a || j->y == j->a2 || j->y == j->b || j->y == j->c;
    bool past = !in_place && far_away(j->y, j->count);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (count > 1)
    for (int64_t t = 0; t < count; t++) {
        tiles[j->kind](j, t * TILE, least(t * TILE + TILE, whole), past);
        flush();
    }
    if (whole < j->count) rest(j, whole);
}
