/* The weight gradient of a convolution between blocked tensors, taken directly: what its kernel is
 * told. device/cpu/onednn/conv.c fills it in, simd/direct.c says what the loops are.
 */
#ifndef MEG_DEVICE_CPU_SIMD_CONV_DIRECT_H
#define MEG_DEVICE_CPU_SIMD_CONV_DIRECT_H

#include <stdint.h>

enum {
    MEG_DIRECT_PANEL = 3 /* blocks of filters that the innermost loop sums at once */
};

typedef struct meg_direct {
    int64_t samples, channels, filters;
    int64_t in[3], out[3]; /* d, h, w */
    int64_t taps[3], stride[3], dilation[3], before[3];
    int threads;
    const float *x;  /* (samples, blocks of channels, in, block) */
    const float *dy; /* (samples, blocks of filters, out, block) */
    float *dweight;  /* (k blocks, c blocks, taps, block of c, block of k): OIx8i8o, OIx16i16o */
    float *dbias;    /* (filters); NULL: not wanted */
    float *scratch;  /* meg_direct_floats */
} meg_direct;

static inline int64_t meg_direct_lines(const meg_direct *j) /* of the output, in all samples */
{
    return j->samples * j->out[0] * j->out[1];
}

static inline int64_t meg_direct_weights(const meg_direct *j, int block) /* floats */
{
    int64_t from = (j->channels + block - 1) / block, to = (j->filters + block - 1) / block;
    return to * from * j->taps[0] * j->taps[1] * j->taps[2] * block * block;
}

/* Blocks of channels that one piece of work sums: as many as leave its sums in a cache. */
static inline int64_t meg_direct_group(const meg_direct *j, int block)
{
    enum {
        SUMS = 64 << 10 /* floats */
    };
    int64_t from = (j->channels + block - 1) / block;
    int64_t sums = j->taps[0] * j->taps[1] * j->taps[2] * block * block * MEG_DIRECT_PANEL;
    int64_t group = SUMS / sums < 1 ? 1 : SUMS / sums;
    int64_t groups = (from + group - 1) / group;
    return (from + groups - 1) / groups;
}

/* Shares of the lines, each summed apart. They follow from the shapes alone, so that the result does
 * not depend on the number of threads: as many as give 64 pieces of work, if they have pixels enough
 * to pay for their sums and the sums are small. */
static inline int64_t meg_direct_shares(const meg_direct *j, int block)
{
    enum {
        PIECES = 64,
        PIXELS = 2048,
        MOST = 4 << 20 /* floats of sums */
    };
    int64_t from = (j->channels + block - 1) / block, to = (j->filters + block - 1) / block;
    int64_t group = meg_direct_group(j, block), groups = (from + group - 1) / group;
    int64_t pieces = groups * ((to + MEG_DIRECT_PANEL - 1) / MEG_DIRECT_PANEL);
    int64_t shares = (PIECES + pieces - 1) / pieces, lines = meg_direct_lines(j);
    int64_t limit[] = {lines, lines * j->out[2] / PIXELS, MOST / meg_direct_weights(j, block)};
    for (int i = 0; i < 3; i++)
        if (shares > limit[i]) shares = limit[i];
    return shares < 1 ? 1 : shares;
}

/* Sums of the weights of all shares but the first, which has dweight; of the biases of all. */
static inline int64_t meg_direct_floats(const meg_direct *j, int block)
{
    int64_t shares = meg_direct_shares(j, block), to = (j->filters + block - 1) / block;
    return (shares - 1) * meg_direct_weights(j, block) + shares * to * block;
}

#endif
