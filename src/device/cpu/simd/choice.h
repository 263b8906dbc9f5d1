/* Points that choose (point.c): comparisons, which make masks of 0 and 1, the larger and the smaller
 * of two, and choices by a mask, which holds where it is above 0.
 */
#ifndef MEG_DEVICE_CPU_SIMD_CHOICE_H
#define MEG_DEVICE_CPU_SIMD_CHOICE_H

#include "device/cpu/simd/math.h"

#define RELATION(name, sign)                                                                       \
    MEG_INLINE vec name(const meg_simd_point *j, vec a, vec b)                                     \
    {                                                                                              \
        (void)j;                                                                                   \
        return keep(a sign b, splat(1));                                                           \
    }
RELATION(less, <)
RELATION(less_equal, <=)
RELATION(greater, >)
RELATION(greater_equal, >=)
RELATION(equal, ==)
RELATION(not_equal, !=)
#undef RELATION

MEG_INLINE vec larger(const meg_simd_point *j, vec a, vec b)
{
    (void)j;
    return choose((a > b) | (a != a), a, b);
}

MEG_INLINE vec smaller(const meg_simd_point *j, vec a, vec b)
{
    (void)j;
    return choose((a < b) | (a != a), a, b);
}

/* The gradient of b, of which c is the other: half of it where both are equal. */
MEG_INLINE vec larger_back(const meg_simd_point *j, vec dy, vec b, vec c)
{
    (void)j;
    return keep(~(b < c), choose(b > c, dy, splat(0.5f) * dy));
}

MEG_INLINE vec smaller_back(const meg_simd_point *j, vec dy, vec b, vec c)
{
    (void)j;
    return keep(~(b > c), choose(b < c, dy, splat(0.5f) * dy));
}

MEG_INLINE vec masked(const meg_simd_point *j, vec a, vec mask)
{
    (void)j;
    return keep(mask > 0, a);
}

MEG_INLINE vec unmasked(const meg_simd_point *j, vec a, vec mask)
{
    (void)j;
    return keep(~(mask > 0), a);
}

MEG_INLINE vec where(const meg_simd_point *j, vec a, vec b, vec mask)
{
    (void)j;
    return choose(mask > 0, b, a);
}

MEG_INLINE vec where_not(const meg_simd_point *j, vec a, vec b, vec mask)
{
    (void)j;
    return choose(mask > 0, a, b);
}

#endif
