/* Convolution from plain images of few channels to blocked ones: forward and weight gradient. */
#ifndef MEG_DEVICE_CPU_SIMD_CONV_THIN_H
#define MEG_DEVICE_CPU_SIMD_CONV_THIN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_thin {
    int64_t samples, channels, filters;
    int64_t in[3], out[3]; /* d, h, w */
    int64_t taps[3], stride[3], dilation[3], before[3];
    int threads;
    const float *x;      /* (samples, channels, in) */
    const float *weight; /* (blocks, taps, channels, block): format Oxi8o or Oxi16o */
    const float *bias;   /* (filters); NULL: none */
    float *y;            /* (samples, blocks, out, block) */
    const float *dy;     /* as y */
    float *dweight;      /* as weight */
    float *dbias;        /* (filters); NULL: not wanted */
    float *scratch;      /* meg_thin_floats */
} meg_thin;

/* Pixels of the output that are worked on at a time. */
enum {
    MEG_THIN_CHUNK = 64
};

/* Per thread: the chunk's columns, and (weight gradient) sums of all weights and biases. */
static inline int64_t meg_thin_floats(const meg_thin *j, int block, bool gradient)
{
    int64_t rows = j->taps[0] * j->taps[1] * j->taps[2] * j->channels + 1;
    int64_t blocks = (j->filters + block - 1) / block;
    return j->threads * rows * (MEG_THIN_CHUNK + (gradient ? blocks * block : 0));
}

#endif
