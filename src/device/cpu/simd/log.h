/* Logarithms and powers of a vector. Errors are relative, measured against double (t331 holds them):
 * the logarithm 2e-7, log(1 + e) 2e-7, exp(x) - 1 below 0 4e-7, a power 3e-7 and 5e-8 times its
 * exponent. Series of the inverse hyperbolic tangent: log m = 2 atanh((m - 1) / (m + 1)).
 */
#ifndef MEG_DEVICE_CPU_SIMD_LOG_H
#define MEG_DEVICE_CPU_SIMD_LOG_H

#include "device/cpu/simd/math.h"

typedef double wide __attribute__((vector_size(8 * MEG_BLOCK), aligned(4)));

/* x = 2^power * (what makes) part = log of the rest, which lies between sqrt(1/2) and sqrt(2) */
typedef struct logarithm {
    vec power, part;
} logarithm;

MEG_INLINE logarithm log_parts(vec x) /* of positive, finite numbers */
{
    ivec tiny = x < splat(0x1p-126f);
    x = choose(tiny, x * splat(0x1p23f), x);
    ivec bits = (ivec)x - (ivec)splat(0x1.6a09e6p-1f); /* counts octaves from sqrt(1/2) */
    ivec power = bits >> 23;
    vec m = (vec)((ivec)x - (power << 23));
    vec s = (m - splat(1)) / (m + splat(1)), z = s * s;
    vec p = splat(2.f / 9);
    p = p * z + splat(2.f / 7);
    p = p * z + splat(2.f / 5);
    p = p * z + splat(2.f / 3);
    logarithm l = {__builtin_convertvector(power, vec), s * splat(2) + s * (z * p)};
    l.power -= keep(tiny, splat(23));
    return l;
}

/* What only rounding made of numbers that have no logarithm is put right here. */
MEG_INLINE vec log_of(vec x)
{
    logarithm l = log_parts(x);
    vec y = l.power * splat(0x1.62e4p-1f) + (l.power * splat(0x1.7f7d1cp-20f) + l.part);
    y = choose(x == 0, splat(-__builtin_inff()), y);
    y = choose(x == splat(__builtin_inff()), x, y);
    y = choose(x < 0, splat(__builtin_nanf("")), y);
    return choose(x == x, y, x);
}

MEG_INLINE vec log1p_of(vec e) /* log(1 + e), e from 0 to 1 */
{
    vec s = e / (e + splat(2)), z = s * s;
    vec p = splat(2.f / 15);
    p = p * z + splat(2.f / 13);
    p = p * z + splat(2.f / 11);
    p = p * z + splat(2.f / 9);
    p = p * z + splat(2.f / 7);
    p = p * z + splat(2.f / 5);
    p = p * z + splat(2.f / 3);
    return s * splat(2) + s * (z * p);
}

MEG_INLINE vec softplus_of(vec x)
{
    return choose(x > 0, x, keep(x != x, x)) + log1p_of(exp_of(-size_of(x)));
}

/* exp(x) - 1 of what is not positive: 2 t / (1 - t), t = tanh(x / 2), cancels nothing. */
MEG_INLINE vec expm1_of(vec x)
{
    vec t = tanh_of(splat(0.5f) * x);
    return splat(2) * t / (splat(1) - t);
}

/* The exponent of exp() is summed in double: its whole part alone has many digits. */
MEG_INLINE vec power_of_size(vec x, float exponent) /* |x|^exponent */
{
    vec u = size_of(x);
    logarithm l = log_parts(u);
    wide t = __builtin_convertvector(l.power, wide) * 0x1.62e42fefa39efp-1 +
             __builtin_convertvector(l.part, wide);
    t *= (double)exponent;
    vec hi = __builtin_convertvector(t, vec);
    vec lo = __builtin_convertvector(t - __builtin_convertvector(hi, wide), vec);
    vec y = exp_of(hi), inf = splat(__builtin_inff());
    y += y * keep(y < inf, lo);
    y = choose(u == 0, exponent > 0 ? splat(0) : inf, y);
    y = choose(u == inf, exponent > 0 ? inf : splat(0), y);
    return choose(x == x, y, x);
}

MEG_INLINE vec power_of(vec x, float exponent)
{
    if (exponent == 0) return splat(1);
    vec y = power_of_size(x, exponent);
    float half = exponent / 2, whole = __builtin_truncf(exponent);
    if (exponent != whole) return choose(x < 0, splat(__builtin_nanf("")), y);
    return half == __builtin_truncf(half) ? y : choose(x < 0, -y, y);
}

MEG_INLINE vec root_of(vec x)
{
    float a[B];
    store(a, x);
    for (int l = 0; l < B; l++)
        a[l] = __builtin_sqrtf(a[l]);
    return load(a);
}

#endif
