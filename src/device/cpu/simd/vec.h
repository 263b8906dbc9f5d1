/* Vectors of MEG_BLOCK floats in the compiler's own notation, so that one source serves every
 * instruction set. A vector may lie at any float: the plan's slots and tails are not aligned to it.
 */
#ifndef MEG_DEVICE_CPU_SIMD_VEC_H
#define MEG_DEVICE_CPU_SIMD_VEC_H

#include "device/cpu/simd/simd.h"

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* Vectors pass between inline functions only, so how the ABI passes them does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum {
    B = MEG_BLOCK
};

typedef float vec __attribute__((vector_size(4 * MEG_BLOCK), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * MEG_BLOCK), aligned(4), may_alias));
typedef uint8_t bvec __attribute__((vector_size(MEG_BLOCK), aligned(1), may_alias));

/* MEG_SIMD(pack) is meg_pack_avx2 in the build for AVX2. */
#define MEG_SIMD_PASTE(name, isa)  meg_##name##_##isa
#define MEG_SIMD_EXPAND(name, isa) MEG_SIMD_PASTE(name, isa)
#define MEG_SIMD(name)             MEG_SIMD_EXPAND(name, MEG_ISA)

#define MEG_INLINE static inline __attribute__((always_inline))

MEG_INLINE vec load(const float *p)
{
    return *(const vec *)p;
}

MEG_INLINE void store(float *p, vec v)
{
    *(vec *)p = v;
}

/* Past the caches: what is written is neither read first nor kept. Pays for tensors that will not
 * be in a cache when they are read next: 1.4 to 1.9 times as fast from 16 MB on, reading them back
 * included; slower below 8 MB. `p` must be aligned to the vector, and a `flush` must follow. */
enum {
    FAR = 16 << 20
}; /* bytes */

MEG_INLINE void stream(float *p, vec v)
{
#if defined __AVX512F__
    _mm512_stream_ps(p, (__m512)v);
#elif defined __AVX__
    _mm256_stream_ps(p, (__m256)v);
#else
    store(p, v);
#endif
}

MEG_INLINE void put(float *p, vec v, bool past)
{
    if (past) stream(p, v);
    else store(p, v);
}

MEG_INLINE void flush(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* Whether `floats` at p should be streamed. */
static inline bool far_away(const float *p, int64_t floats)
{
    return floats * (int64_t)sizeof(float) >= FAR && (uintptr_t)p % sizeof(vec) == 0;
}

MEG_INLINE vec splat(float a)
{
    return a - (vec){0};
}

MEG_INLINE vec keep(ivec mask, vec v) /* 0 where the mask is 0 */
{
    return (vec)(mask & (ivec)v);
}

MEG_INLINE ivec pick(ivec mask, ivec a, ivec b) /* a where the mask is set, else b */
{
    return (mask & a) | (~mask & b);
}

/* The channels of block b that exist: all but in the last. */
static inline int lanes_of(int64_t channels, int64_t b)
{
    int64_t rest = channels - b * B;
    return rest < B ? (int)rest : B;
}

static inline ivec lane_mask(int lanes)
{
    ivec m;
    for (int l = 0; l < B; l++)
        m[l] = l < lanes ? -1 : 0;
    return m;
}

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
