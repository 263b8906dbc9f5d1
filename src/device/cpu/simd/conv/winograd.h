/* Winograd's convolution of 3 x 3 taps with stride 1: what its kernels are told. One job serves
 * forward, backward (dy takes the place of x, dx that of y) and the weight gradient; device/
 * cpu_winograd.c fills it in, simd/winograd.c says what the loops are.
 *
 * Volumes are planes, each of which sums over the planes of x around it. To the kernels block c of
 * x at depth tap t is *layer* c * depths + t, one more block of channels, so that nothing but where
 * a layer's plane and weights lie differs from images:
 *
 *     x   block 0: plane d-1, d, d+1   block 1: plane d-1, d, d+1       3 depths, 2 blocks:
 *              0         1    2                    3   4    5           6 layers
 *
 * A plane is transformed anew for each depth: less than the products that follow cost.
 */
#ifndef MEG_DEVICE_CPU_SIMD_CONV_WINOGRAD_H
#define MEG_DEVICE_CPU_SIMD_CONV_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MEG_WINOGRAD_TILE = 4, /* outputs of a tile, along h and along w */
    MEG_WINOGRAD_SIDE = 6, /* inputs it reads */
    MEG_WINOGRAD_POINTS = MEG_WINOGRAD_SIDE * MEG_WINOGRAD_SIDE,
    MEG_WINOGRAD_PAD = 16, /* floats between the points' matrices: powers of two share cache sets */
    MEG_WINOGRAD_ALIGN = 64
};

typedef struct meg_winograd {
    int threads;
    bool turned; /* backward: the weight's c and k exchanged, taps in reverse */
    int64_t samples;
    int64_t in[2], out[2]; /* h, w of x and y */
    int64_t before[2];     /* padding */
    int64_t depths;        /* taps along d; images: 1 */
    int64_t planes[2];     /* d of x and y */
    int64_t above;         /* padding along d */
    int64_t from, to;      /* layers of x, blocks of y */
    int64_t filters;       /* numbers of a bias */
    int64_t rows, columns; /* of tiles in a plane */
    int64_t tiles;         /* of all planes of all samples */

    /* How the work is cut: see simd/winograd.c, simd/winograd_weight.c. */
    bool by_filters;
    int64_t batch; /* tiles transformed at a time */
    int64_t part;  /* tiles of it that one thread works on at a time */
    int64_t depth; /* layers of x at a time */
    int64_t width; /* blocks of y at a time */
    int shares;    /* weight gradient: of the tiles, each summed by one thread; 1: by all.
                      No more than tiles */

    const float *x;      /* (samples, blocks, planes, in, block) */
    const float *weight; /* (k blocks, c blocks, depths, 3, 3, block of c, block of k) */
    const float *bias;   /* (filters); NULL: none */
    float *y;            /* (samples, to, planes, out, block) */
    const float *dy;     /* as y */
    float *dweight;      /* as weight */
    float *dbias;        /* (filters); NULL: not wanted */
    float *scratch;      /* meg_winograd_floats or meg_winograd_weight_floats */
} meg_winograd;

/* Tiles that the innermost loop multiplies at once: 12 x 2 vectors of the 32 of AVX-512, 6 x 2
 * of the 16 of AVX2. */
static inline int64_t meg_winograd_group(int block)
{
    return block * 3 / 4;
}

/* ---- scratch memory, in floats: of each point, times POINTS ---- */

static inline int64_t meg_winograd_inputs(const meg_winograd *j, int block)
{
    return j->batch * j->from * block + MEG_WINOGRAD_PAD;
}

static inline int64_t meg_winograd_weights(const meg_winograd *j, int block)
{
    return j->depth * j->width * block * block + MEG_WINOGRAD_PAD;
}

static inline int64_t meg_winograd_outputs(const meg_winograd *j, int block)
{
    return j->part * j->width * block + MEG_WINOGRAD_PAD;
}

/* Outputs are each thread's own; inputs (by tiles) or weights (by filters), too. */
static inline int64_t meg_winograd_floats(const meg_winograd *j, int block)
{
    int64_t inputs = meg_winograd_inputs(j, block), weights = meg_winograd_weights(j, block);
    int64_t shared = j->by_filters ? inputs : weights, own = j->by_filters ? weights : inputs;
    own += meg_winograd_outputs(j, block);
    return MEG_WINOGRAD_ALIGN + MEG_WINOGRAD_POINTS * (shared + j->threads * own);
}

/* Weight gradient, each share: inputs, gradients of `width` blocks, products of both, and sums of
 * the bias, one for each part of a batch. */
static inline int64_t meg_winograd_gradients(const meg_winograd *j, int block)
{
    return j->batch * j->width * block + MEG_WINOGRAD_PAD;
}

static inline int64_t meg_winograd_products(const meg_winograd *j, int block)
{
    return j->from * j->width * block * block + MEG_WINOGRAD_PAD;
}

static inline int64_t meg_winograd_share(const meg_winograd *j, int block)
{
    int64_t point = meg_winograd_inputs(j, block) + meg_winograd_gradients(j, block) +
                    meg_winograd_products(j, block);
    int64_t parts = (j->batch + j->part - 1) / j->part;
    return MEG_WINOGRAD_POINTS * point + parts * j->width * block + MEG_WINOGRAD_PAD;
}

static inline int64_t meg_winograd_weight_floats(const meg_winograd *j, int block)
{
    return MEG_WINOGRAD_ALIGN + j->shares * meg_winograd_share(j, block);
}

#endif
