/* The job of the kernels of prelu: a rectifier with learned slopes. */
#ifndef MEG_DEVICE_CPU_SIMD_POINT_PRELU_H
#define MEG_DEVICE_CPU_SIMD_POINT_PRELU_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_simd_prelu {
    int64_t samples, channels, blocks, pixels;
    bool single; /* one slope for all channels */
    int threads;
    const float *x;        /* (samples, blocks, pixels, block) */
    const float *slope;    /* (channels), or one */
    float *y;              /* as x; may be x */
    const float *dy, *dy2; /* as x; dy2 NULL: only one gradient */
    float *dx;             /* as x; may be dy; NULL: not wanted */
    float *dslope;         /* as slope; NULL: not wanted */
    void *scratch;         /* prelu_bytes */
} meg_simd_prelu;

#endif
