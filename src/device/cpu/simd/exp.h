/* The exponential of a vector, to 1.2 units in the last place (measured against double on every
 * seventh float from -87.3 to 88.7): 2^n times a polynomial over half an octave on either side.
 * Below the smallest normal number it is 0, and so it is at minus infinity. NaN stays NaN.
 */
#ifndef MEG_DEVICE_CPU_SIMD_EXP_H
#define MEG_DEVICE_CPU_SIMD_EXP_H

#include "device/cpu/simd/vec.h"

MEG_INLINE vec exp_of(vec x)
{
    const float shift = 0x1.8p23f; /* added to a small number, rounds it to a whole one */
    ivec low = x<splat(-87.3f), high = x> splat(88.7f);
    vec near = (vec)pick(low | high, (ivec)splat(0), (ivec)x);
    vec n = near * splat(0x1.715476p+0f) + splat(shift);
    ivec power = (ivec)n - (ivec)splat(shift);
    n -= splat(shift);
    vec r = near - n * splat(0x1.62e4p-1f); /* log 2 in two parts: n times the first is exact */
    r = r - n * splat(0x1.7f7d1cp-20f);
    vec p = splat(1.f / 5040);
    p = p * r + splat(1.f / 720);
    p = p * r + splat(1.f / 120);
    p = p * r + splat(1.f / 24);
    p = p * r + splat(1.f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1);
    p = p * r + splat(1);
    vec y = (vec)((ivec)p + (power << 23));
    y = (vec)pick(high, (ivec)splat(__builtin_inff()), (ivec)keep(~low, y));
    return (vec)pick(x == x, (ivec)y, (ivec)x); /* adding to the bits of a NaN may end it */
}

#endif
