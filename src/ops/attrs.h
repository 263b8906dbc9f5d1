/* The attributes of operators, as their files and the devices' kernels read them.
 *
 * Lists that users write ("kernel=3", "stride=2x1") are resolved by `infer` into one window per
 * spatial axis; axes that the value does not have get the neutral window {1, 1, 1, 0, 0}.
 */
#ifndef MEG_OPS_ATTRS_H
#define MEG_OPS_ATTRS_H

#include "base/option.h"
#include "graph/box.h"

enum {
    MEG_SPACE = 3
}; /* d, h, w: window i belongs to axis MEG_D + i */

typedef struct meg_window { /* along one axis: output p reads p*stride - before + t*dilation */
    int64_t taps, stride, dilation, before, after;
} meg_window;

typedef struct meg_conv_attr {
    int64_t filters, groups;
    meg_axes kernel, stride, dilation;
    meg_pads pad;
    bool bias;
    meg_axes output_pad;       /* conv_transpose only; taken off `after` of its windows */
    meg_window win[MEG_SPACE]; /* resolved */
} meg_conv_attr; /* inputs: x, weight (filters, channels/groups, d, h, w)[, bias (c = filters)];
                    conv_transpose: weight (channels, filters/groups, d, h, w) */

typedef struct meg_pool_attr {
    meg_axes kernel, stride, dilation; /* stride defaults to the kernel */
    meg_pads pad;
    bool ceil;      /* output extent rounds up; a last window wholly outside is dropped */
    bool count_pad; /* average: padding counts in the denominator (not the ceil overhang) */
    bool indices;   /* maxpool: a second output says where each maximum was, flat in (d, h, w) */
    meg_window win[MEG_SPACE];
} meg_pool_attr; /* maxpool aux 0: winning tap, d-h-w order, u8 (i32 above 256 taps) */

typedef struct meg_unpool_attr { /* max_unpool: x, indices */
    meg_axes size;               /* of the output; without: what pooling with these made x of: */
    meg_axes kernel, stride;
    meg_pads pad;
} meg_unpool_attr;

typedef struct meg_spans { /* along one axis: which pixels each output reads (ops/common/spans.h) */
    int kind;              /* meg_span_kind */
    int rounding;          /* of nearest: 0 floor, 1 ceil, 2 and 3 to the nearest, ties down, up */
    int64_t in, out;       /* extents */
    double num, den;       /* output p lies at p * num / den of the input, */
    bool half;             /* or, counted from the pixels' middles, (p + 1/2) * num / den - 1/2 */
} meg_spans;

typedef enum meg_span_kind {
    MEG_SPAN_NEAREST,
    MEG_SPAN_LINEAR,
    MEG_SPAN_CUBIC,
    MEG_SPAN_BINS
} meg_span_kind;

typedef struct meg_resize_attr {
    int mode;             /* meg_span_kind; adaptive_avgpool: MEG_SPAN_BINS */
    int coords, rounding; /* as ops/window/resize.c and meg_spans number them */
    meg_axes size;
    char scale[MEG_TEXT];
    meg_spans spans[MEG_SPACE]; /* resolved */
} meg_resize_attr;              /* of resize and adaptive_avgpool */

typedef struct meg_dense_attr {
    int64_t units;
    bool bias;
} meg_dense_attr; /* a full-extent convolution: x (n,c,d,h,w), weight (units,c,d,h,w)[, bias] */

typedef struct meg_norm_attr {
    double epsilon;
    double momentum; /* running = (1 - momentum) * running + momentum * batch, as PyTorch has it */
    int variance;    /* running variance: 0 unbiased (PyTorch), 1 population (Keras) */
    int64_t norm;    /* samples per group, counted from the work's sample 0; 0: all of the work */
    bool relu;       /* rectifies the output; backward finds the mask from the input */
} meg_norm_attr;     /* batchnorm: x, weight, bias, running_mean, running_var (all on c);
                    aux 0 mean (n = groups, c), aux 1 biased variance.
                    norm: x, mean, var, weight, bias, running_mean, running_var */

typedef struct meg_mean_attr { /* a set: what has one mean */
    int64_t norm;              /* its samples; 0: all */
    int64_t channels;          /* its channels; 0: all */
    bool pixels;               /* it has one pixel; else all */
} meg_mean_attr;               /* mean: x; var: x, mean */

typedef struct meg_setnorm_attr {
    double epsilon;
    int64_t groups; /* groupnorm */
    int axes;       /* layernorm: 0 c, 1 all */
    bool affine;    /* has weight and bias, */
    bool lone;      /* or the weight alone */
    bool relu;      /* as in batch norm */
    int64_t width;  /* resolved: channels of a set */
    bool pixels;    /* resolved: each pixel has sets of its own; else a set has all pixels */
    bool elements;  /* resolved: weight and bias per element (c, d, h, w); else per channel */
} meg_setnorm_attr; /* groupnorm, instancenorm, layernorm: x[, weight, bias]; aux 0 mean, aux 1
                       biased variance, one per set: (n, groups on c) or (n, 1, d, h, w).
                       setnorm: x, mean, var[, weight, bias] */

typedef struct meg_add_attr {
    bool relu; /* rectifies the sum; backward finds the mask from the output */
} meg_add_attr;

typedef enum meg_drop_per { /* what is dropped or kept together */
    MEG_DROP_ELEMENT,
    MEG_DROP_CHANNEL, /* of a sample */
    MEG_DROP_SAMPLE,
    MEG_DROP_BATCH
} meg_drop_per;

typedef struct meg_dropout_attr {
    double rate; /* of zeros; the rest is scaled by 1 / (1 - rate) */
    int per;     /* meg_drop_per */
} meg_dropout_attr;

typedef struct meg_softmax_attr { /* softmax, and expdiv, its last phase */
    bool log;                     /* of the probabilities */
} meg_softmax_attr;

typedef enum meg_beyond {
    MEG_BEYOND_CONSTANT,
    MEG_BEYOND_REFLECT,
    MEG_BEYOND_EDGE,
    MEG_BEYOND_WRAP
} meg_beyond;

typedef struct meg_pick { /* along one axis: output p reads begin + p*step (ops/common/picks.h) */
    int64_t begin, step, length; /* length: of the input */
    meg_beyond beyond;           /* what lies around the input */
} meg_pick;

typedef struct meg_picks {
    meg_pick at[MEG_AXES];
} meg_picks;

typedef struct meg_slice_attr {
    meg_axes axes, begin, end, step;
    meg_picks picks; /* resolved */
} meg_slice_attr;

typedef struct meg_pad_attr {
    meg_pads pad; /* of the last axes */
    int mode;     /* meg_beyond */
    double value; /* the constant */
    meg_picks picks;
} meg_pad_attr;

typedef struct meg_attention_attr {
    int64_t heads;
    bool causal;      /* token i sees tokens 0..i */
    double scale;     /* of the products; 0: 1 / sqrt(features of a head) */
} meg_attention_attr; /* inputs: q, k, v (n, heads * features on c, tokens on w);
                         aux 0: log of the sum of exponentials of each row, (n, heads on c, w) */
typedef struct meg_leaky_attr {
    double slope; /* below zero; not negative */
} meg_leaky_attr;

typedef struct meg_gelu_attr {
    int approximate; /* 0 none, 1 tanh */
} meg_gelu_attr;

typedef struct meg_clip_attr {
    double lo, hi;
} meg_clip_attr;

typedef struct meg_reduce_attr { /* sum, peak */
    meg_axes axes;               /* as files count them */
    bool mean;
    bool gone[MEG_AXES]; /* resolved */
} meg_reduce_attr;

typedef struct meg_where_attr {
    double
        value; /* that is put where the mask holds, if there is no third input; may be infinite */
    bool invert;
} meg_where_attr; /* inputs: x, mask[, other] */

typedef struct meg_compare_attr {
    int relation; /* 0 less, 1 less_equal, 2 greater, 3 greater_equal, 4 equal, 5 not_equal */
    double value; /* that is compared with, if there is no second input */
} meg_compare_attr;

typedef struct
    meg_point_attr { /* the numbers of a row of ops/pointwise/functions.c, as its words name them */
    double alpha, beta;
} meg_point_attr;

typedef struct meg_label_attr { /* label_count, correct */
    int64_t ignore;             /* this label does not count; those below 0 never do */
} meg_label_attr;

typedef struct meg_xent_attr {
    int64_t ignore;
    double smoothing; /* this share of every label is spread over all classes */
} meg_xent_attr;      /* softmax_xent: x, labels, count[, class weights (1, c)];
                    xent: x, top, z, labels, count[, class weights] */

typedef struct meg_dice_attr {
    int64_t ignore;
    int mode; /* 0 softmax, 1 sigmoid */
    double epsilon;
} meg_dice_attr;

/* Window of one axis for an attribute list; resolves counts of 1 to all axes of the value. */
#endif
