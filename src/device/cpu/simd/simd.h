/* Our own kernels of the cpu device: one table per instruction set.
 *
 * The files of this folder are written over vectors of MEG_BLOCK floats, one channel per lane, and
 * compiled once per set (MEG_ISA: portable, avx2, avx512). A kernel is given a *job*: sizes fixed
 * when it is prepared, pointers set at each launch. Tensors are blocked,
 *
 *     x[n][blocks][pixels][block]      channels = blocks * block - padding, padding lanes are 0
 *
 * and every kernel writes zeros to the padding. Threads share the work by static schedules, and
 * sums are cut at fixed places: the result does not depend on the number of threads.
 */
#ifndef MEG_DEVICE_CPU_SIMD_SIMD_H
#define MEG_DEVICE_CPU_SIMD_SIMD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MEG_SIMD_INPUTS = 8, /* of add and concat, as graph/graph.h has it */
    MEG_SIMD_PART = 4096 /* pixels that one thread sums: fixed, so that threads do not matter */
};

/* A part of tensors that may be larger, each in its own way: rows of `width` floats that lie side by
 * side. Row (n, b, d, h) of a tensor begins at
 *
 *     first + n * sample + b * block + d * slice + h * row
 */
typedef struct meg_simd_part {
    int64_t samples, blocks, slices, rows, width;
} meg_simd_part;

typedef struct meg_simd_side {
    int64_t first, sample, block, slice, row; /* floats */
} meg_simd_side;

/* Element by element, any format: `count` floats of each. */
typedef struct meg_simd_flat {
    int64_t count;
    int threads;
    bool relu;
    int inputs, outputs;
    const float *x[MEG_SIMD_INPUTS]; /* add: what is summed */
    const float *sign;               /* mask: nothing passes where this is <= 0 */
    float *y[MEG_SIMD_INPUTS];       /* all get the same; any may be x[0] */
} meg_simd_flat;

typedef struct meg_simd_flat_part { /* the same of a part; job.count: all its floats */
    meg_simd_flat job;
    meg_simd_part part;
    meg_simd_side x[MEG_SIMD_INPUTS], sign, y[MEG_SIMD_INPUTS];
    bool even; /* rows begin and end at whole vectors */
} meg_simd_flat_part;

/* A value of one sample added to every sample, any format: positions, learned or not. */
typedef struct meg_simd_spread {
    int64_t samples, count; /* floats of a sample */
    int threads;
    bool relu;
    const float *a, *a2; /* (samples, count): x; or dy and a second one, NULL: there is none */
    const float *b;      /* (count) */
    const float *sign;   /* (samples, count): no gradient passes where this is <= 0; NULL: all */
    float *y;            /* (samples, count); may be a; NULL: not wanted */
    float *sum;          /* (count): of y over the samples; NULL: not wanted */
} meg_simd_spread;

typedef enum meg_simd_kind { /* MEG_POINT_SIGMOID, ... */
#define MEG_POINT(kind, function)  MEG_POINT_##kind,
#define MEG_CHOICE(kind, function) MEG_POINT_##kind,
#include "device/cpu/simd/points.def"
#undef MEG_POINT
#undef MEG_CHOICE
    MEG_POINTS
} meg_simd_kind;

/* Point by point, any format: rows of `row` floats, of which every blocks-th, the last of a sample,
 * has only `lanes` channels: the others are written as 0. Plain: one row, all lanes. */
typedef struct meg_simd_point {
    meg_simd_kind kind;
    int64_t count, row, blocks;
    int lanes, threads;
    float lo, hi, rate;  /* numbers of the kind: see its function */
    const float *a, *a2; /* a2 is added to a; NULL: nothing is */
    const float *b;      /* NULL: lo takes its place */
    const float *c;      /* NULL: the kind has none */
    float *y;            /* may be a */
} meg_simd_point;

/* Batch normalisation; a group of `norm` samples has its own statistics. */
typedef struct meg_simd_norm {
    int64_t samples, norm, groups;
    int64_t channels, blocks, pixels;
    int64_t parts; /* that a sample is cut into: MEG_SIMD_PART pixels or fewer each */
    int threads;
    bool relu;
    double epsilon;
    const float *x;             /* (samples, blocks, pixels, block) */
    const float *weight, *bias; /* (channels) */
    float *mean, *variance;     /* (groups, channels) */
    const float *dy, *dy2;      /* as x; dy2 NULL: only one gradient */
    float *y;                   /* as x; may be x */
    float *dx;                  /* as x; may be dy; NULL: not wanted */
    float *dweight, *dbias;     /* (channels); NULL: not wanted */
    void *scratch;              /* norm_bytes */
} meg_simd_norm;

/* The phases of batch normalisation, of a part of a value (simd/phases.c). A group of `norm` samples
 * has its own moments; `skipped` of the first group's lie before the part. */
typedef struct meg_simd_phase {
    meg_simd_part part;
    meg_simd_side at_x, at_y, at_dy, at_dx;
    int64_t channels, norm, groups, skipped;
    const double *count; /* (groups): elements of each that all ranks have of a channel */
    int threads;
    bool relu;
    double epsilon;
    const float *x;
    const float *mean, *variance; /* (groups, channels); NULL: the phase has none */
    const float *weight, *bias;   /* (channels) */
    float *moment;                /* (groups, channels): what mean and var make */
    const float *dmoment;         /* its gradient */
    const float *dy, *dy2;        /* dy2 NULL: only one gradient */
    float *y, *dx;                /* may be x, dy; dx NULL: not wanted */
    float *dmean, *dvariance;     /* (groups, channels); NULL: not wanted */
    float *dweight, *dbias;       /* (channels); NULL: not wanted */
    void *scratch;                /* phase_bytes */
} meg_simd_phase;

/* Normalisation inside samples, of groups of channels or of pixels (ops/norm/setnorm.h). */
typedef struct meg_simd_setnorm {
    int64_t samples, channels, blocks, pixels;
    int64_t parts; /* groups: that a block is cut into: MEG_SIMD_PART pixels or fewer each */
    int64_t width; /* groups: channels of each */
    int threads;
    bool relu; /* groups */
    double epsilon;
    const float *x;             /* (samples, blocks, pixels, block) */
    const float *weight, *bias; /* (channels); NULL: ones, zeros */
    float *mean, *variance;     /* (samples, groups) or (samples, pixels) */
    const float *dy, *dy2;      /* as x; dy2 NULL: only one gradient */
    float *y;                   /* as x; may be x */
    float *dx;                  /* as x; may be dy; NULL: not wanted */
    float *dweight, *dbias;     /* (channels); NULL: not wanted */
    void *scratch;              /* groupnorm_bytes, layernorm_bytes */
} meg_simd_setnorm;

/* What an output index reads along one axis. */
typedef struct meg_simd_span {
    int64_t first;  /* input index of tap `lo` */
    int32_t lo, hi; /* taps that lie inside the input */
    int32_t count;  /* of the average's denominator */
} meg_simd_span;

typedef struct meg_simd_pool { /* windows over d, h, w; max, average */
    int64_t samples, channels, blocks;
    int64_t in[3], out[3], taps[3], dilation[3];
    const meg_simd_span *span[3]; /* of every output index */
    meg_simd_side at;             /* of y and dy, which may have halos */
    int threads;
    const float *x;  /* (samples, blocks, in, block) */
    float *y;        /* (samples, blocks, out, block) */
    uint8_t *winner; /* (samples, blocks, out, block): number of the largest tap, in d-h-w order */
    int32_t *index;  /* (samples, channels, out): its place in (in); NULL: not wanted */
    const float *dy, *dy2; /* as y; dy2 NULL: only one gradient */
    float *dx;             /* as x */
} meg_simd_pool;

typedef struct meg_simd_mean { /* over the pixels of each channel; the mean is in plain format */
    int64_t samples, channels, blocks, pixels;
    double count; /* that sums are divided by: of all pixels, where these are a part */
    int threads;
    const float *x;  /* (samples, blocks, pixels, block) */
    float *y;        /* (samples, channels) */
    const float *dy; /* (samples, channels) */
    float *dx;       /* as x */
} meg_simd_mean;

typedef struct meg_simd_reach { /* the pixels lo .. hi-1 that an output reads along one axis */
    int64_t lo, hi;
    float first, rest; /* weight of lo; of each of the others */
    bool cubic;        /* or, instead, of each of up to four: */
    float each[4];
} meg_simd_reach;

typedef struct meg_simd_spans { /* resize, adaptive average pooling */
    int64_t samples, blocks;
    int64_t in[3], out[3];
    const meg_simd_reach *reach[3]; /* of every output index */
    const int64_t *readers[3];      /* (in, 2): the outputs that read a pixel begin and end */
    int threads;
    const float *x;        /* (samples, blocks, in, block) */
    float *y;              /* (samples, blocks, out, block) */
    const float *dy, *dy2; /* as y; dy2 NULL: only one gradient */
    float *dx;             /* as x */
} meg_simd_spans;

typedef struct meg_simd_bias { /* one number per channel; values blocked, or plain: blocks of 1 */
    int64_t samples, channels, blocks, pixels;
    int block;
    int threads;
    const float *bias; /* (channels) */
    float *y;          /* (samples, blocks, pixels, block): the bias is added to it */
    const float *dy;   /* as y */
    float *dbias;      /* (channels) */
} meg_simd_bias;

/* Builds a blocked tensor from lanes of others: concat, and its backward. The pieces of block b
 * are piece[first[b]] .. piece[first[b + 1] - 1]; lanes that none fills are padding. */
typedef struct meg_simd_piece {
    int source;          /* which tensor */
    int64_t block;       /* of the source */
    int lane, to, lanes; /* source lanes lane.. go to lanes to.. of the target */
} meg_simd_piece;

typedef struct meg_simd_gather {
    meg_simd_part part; /* blocks: of the target */
    int threads;
    const meg_simd_piece *piece;
    const int64_t *first;               /* (blocks + 1) */
    const float *from[MEG_SIMD_INPUTS]; /* blocked, as is `to` */
    meg_simd_side from_at[MEG_SIMD_INPUTS], to_at;
    float *to;
} meg_simd_gather;

typedef struct meg_simd_copy { /* between plain and blocked */
    int64_t samples, channels, blocks, pixels;
    int threads;
    const float *from;
    float *to;
} meg_simd_copy;

typedef struct meg_simd_unpool { /* pixels go to places; values blocked, places plain */
    int64_t samples, channels, blocks;
    int64_t in, out; /* pixels */
    int threads;
    const int32_t *index; /* (samples, channels, in) */
    const float *x;       /* (samples, blocks, in, block) */
    float *y;             /* (samples, blocks, out, block) */
    const float *dy;      /* as y */
    float *dx;            /* as x */
} meg_simd_unpool;

typedef struct meg_simd_crop { /* all channels of some consecutive pixels */
    int64_t planes;            /* samples * blocks */
    int64_t in[3], out[3], begin[3];
    int threads;
    const float *from; /* (planes, in, block); back: (planes, out, block) */
    float *to;         /* the other */
} meg_simd_crop;

typedef struct meg_simd_xent { /* softmax cross-entropy; values plain */
    int64_t samples, classes, pixels;
    int threads;
    float sure, spread;   /* of a label: at its class, and at every class */
    int32_t ignore;       /* label that does not count */
    double scale;         /* of the sum: 1 / count; back: times dy */
    const float *x;       /* (samples, classes, pixels) */
    const int32_t *label; /* (samples, pixels) */
    const float *weights; /* (classes); NULL: all 1 */
    float *y;             /* one */
    float *dx;            /* as x */
    void *scratch;        /* xent_bytes */
} meg_simd_xent;

struct meg_direct;
struct meg_thin;
struct meg_winograd;
struct meg_tile;

#define MEG_SIMD_RUN(name, job)   struct job;
#define MEG_SIMD_BYTES(name, job) struct job;
#include "device/cpu/simd/kernels.def"
#undef MEG_SIMD_RUN
#undef MEG_SIMD_BYTES

typedef struct meg_simd {
    const char *name; /* "avx512" */
    int block;
#define MEG_SIMD_RUN(name, job)   void (*name)(const struct job *j);
#define MEG_SIMD_BYTES(name, job) int64_t (*name)(const struct job *j);
#include "device/cpu/simd/kernels.def"
#undef MEG_SIMD_RUN
#undef MEG_SIMD_BYTES
} meg_simd;

extern const meg_simd meg_simd_portable; /* runs everywhere */
extern const meg_simd meg_simd_avx2, meg_simd_avx512;

#endif
