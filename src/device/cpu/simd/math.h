/* Functions of a vector. Errors are relative, measured against double (t331 holds them): sigmoid
 * and tanh 3e-7, the normal distribution 5e-7 down to -4, where exp(-x^2 / 2) begins to amplify the
 * rounding of its argument. NaN stays NaN. The polynomials are our own fits.
 */
#ifndef MEG_DEVICE_CPU_SIMD_MATH_H
#define MEG_DEVICE_CPU_SIMD_MATH_H

#include "device/cpu/simd/exp.h"

MEG_INLINE vec choose(ivec mask, vec a, vec b) /* a where the mask is set, else b */
{
    return (vec)pick(mask, (ivec)a, (ivec)b);
}

MEG_INLINE vec size_of(vec x) /* |x| */
{
    return (vec)((ivec)x & 0x7fffffff);
}

/* exp() of what is not positive only: both sides keep all digits. */
MEG_INLINE vec sigmoid_of(vec x)
{
    vec e = exp_of(-size_of(x));
    return choose(x < 0, e, splat(1)) / (splat(1) + e);
}

/* Near 0, x + x^3 P(x^2): the other form would cancel. */
MEG_INLINE vec tanh_of(vec x)
{
    vec z = x * x, e = exp_of(splat(-2) * size_of(x));
    vec p = splat(-0x1.830be6p-8f);
    p = p * z + splat(0x1.54e014p-6f);
    p = p * z + splat(-0x1.b89ed8p-5f);
    p = p * z + splat(0x1.1109dcp-3f);
    p = p * z + splat(-0x1.55553ep-2f);
    vec far = (splat(1) - e) / (splat(1) + e);
    far = (vec)((ivec)far | ((ivec)x & (ivec)splat(-0.f)));
    return choose(size_of(x) < splat(0.6f), x + x * (z * p), far);
}

/* exp(-x^2 / 2), which is sqrt(2 pi) times the density of the normal distribution. */
MEG_INLINE vec bell_of(vec x)
{
    return exp_of(splat(-0.5f) * x * x);
}

/* The normal distribution (1 + erf(x / sqrt 2)) / 2, given bell_of(x). Its tail is the bell times a
 * function that falls slowly: a polynomial in t = (|x| - 3) / (|x| + 3), to 7e-9. */
MEG_INLINE vec normal_of(vec x, vec bell)
{
    vec u = size_of(x), t = (u - splat(3)) / (u + splat(3));
    vec p = splat(0x1.c65540p-15f);
    p = p * t + splat(0x1.e6c436p-14f);
    p = p * t + splat(-0x1.646c92p-12f);
    p = p * t + splat(-0x1.02003cp-10f);
    p = p * t + splat(0x1.7cb992p-9f);
    p = p * t + splat(0x1.91e102p-8f);
    p = p * t + splat(-0x1.7a9458p-5f);
    p = p * t + splat(0x1.f8baccp-4f);
    p = p * t + splat(-0x1.a6b66ap-3f);
    p = p * t + splat(0x1.f1b89cp-4f);
    vec tail = bell * p;
    tail = choose(u > splat(14), splat(0), tail); /* and infinity: t is not a number there */
    return choose(x < 0, tail, splat(1) - tail);
}

#endif
