/* Point by point, whatever the format: activations, products and differences, and their gradients.
 * Padding lanes are written as 0, whatever a function makes of 0 (sigmoid: 0.5).
 */
#include "device/simd/math.h"

enum {
    TILE = 4096
}; /* floats */

typedef vec point_fn(const meg_simd_point *j, vec a, vec b);

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

/* ---- loops ---- */

MEG_INLINE void vector_at(const meg_simd_point *j, int64_t i, point_fn *f, ivec mask, bool past)
{
    vec a = load(j->a + i), b = {0};
    if (j->a2) a += load(j->a2 + i);
    if (j->b) b = load(j->b + i);
    put(j->y + i, keep(mask, f(j, a, b)), past);
}

/* The last elements of a plain tensor, fewer than a vector: the same function on a copy. */
MEG_INLINE void rest_at(const meg_simd_point *j, int64_t i, int64_t count, point_fn *f)
{
    size_t bytes = (size_t)count * sizeof(float);
    float a[B] = {0}, a2[B] = {0}, b[B] = {0}, y[B];
    memcpy(a, j->a + i, bytes);
    if (j->a2) memcpy(a2, j->a2 + i, bytes);
    if (j->b) memcpy(b, j->b + i, bytes);
    vec sum = load(a);
    if (j->a2) sum += load(a2); /* not 0 added: -0 stays */
    store(y, f(j, sum, load(b)));
    memcpy(j->y + i, y, bytes);
}

MEG_INLINE void tile(const meg_simd_point *j, int64_t lo, int64_t hi, point_fn *f, bool past)
{
    int64_t i = lo;
    while (i < hi) {
        int64_t row = i / j->row, end = least(hi, (row + 1) * j->row);
        ivec mask = lane_mask((row + 1) % j->blocks == 0 ? j->lanes : B);
        for (; i + B <= end; i += B)
            vector_at(j, i, f, mask, past);
        if (i < end) rest_at(j, i, end - i, f);
        i = end;
    }
}

typedef void tile_fn(const meg_simd_point *j, int64_t lo, int64_t hi, bool past);

/* One copy of the loops for each function, so that it is inlined into them. */
#define MEG_POINT(kind, function)                                                                  \
    static void function##_tile(const meg_simd_point *j, int64_t lo, int64_t hi, bool past)        \
    {                                                                                              \
        if (past) tile(j, lo, hi, function, true);                                                 \
        else tile(j, lo, hi, function, false);                                                     \
    }
#include "device/simd/points.def"
#undef MEG_POINT

static tile_fn *const tiles[MEG_POINTS] = {
#define MEG_POINT(kind, function) [MEG_POINT_##kind] = function##_tile,
#include "device/simd/points.def"
#undef MEG_POINT
};

void MEG_SIMD(point)(const meg_simd_point *j);

void MEG_SIMD(point)(const meg_simd_point *j)
{
    int64_t count = (j->count + TILE - 1) / TILE;
    bool in_place = j->y == j->a || j->y == j->a2 || j->y == j->b;
    bool past = !in_place && far_away(j->y, j->count);
#pragma omp parallel for schedule(static) num_threads(j->threads) if (count > 1)
    for (int64_t t = 0; t < count; t++) {
        tiles[j->kind](j, t * TILE, least(t * TILE + TILE, j->count), past);
        flush();
    }
}
