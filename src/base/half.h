/* Real numbers of 16 bits: IEEE 754 binary16 (sign, 5 bits of exponent, 10 of fraction), and bfloat16, the
 * upper half of a float. */
#ifndef MEG_BASE_HALF_H
#define MEG_BASE_HALF_H

#include <stdint.h>
#include <string.h>

/* Exponent and fraction move to where a float has them, which makes a number 2^112 times too small,
 * denormal ones too; inf and nan keep an exponent of ones. No branch: loops over it are vectorised. */
static inline float meg_float_of_half(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t ones = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign | ones;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float meg_brain(uint16_t brain)
{
    uint32_t bits = (uint32_t)brain << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
