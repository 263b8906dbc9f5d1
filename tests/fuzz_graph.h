/* Random graphs: small networks that mix what the zoo keeps apart. Everything follows from a seed.
 *
 *     image -> block -> block -> ... -> head -> loss      a block: convolutions, norms, pools,
 *                |  \______ skip ______/    \             residuals, branches, tied weights
 *                head -> loss                head ...
 *     tokens -> embedding -> attention and mlp blocks -> head, perhaps tied
 *
 * Names are b0.x, b1.y, ...: a block is a group, so stages can be cut between and within them.
 */
#ifndef TESTS_FUZZ_GRAPH_H
#define TESTS_FUZZ_GRAPH_H

#include "graph/op.h"

#include <stdio.h>
#include <string.h>

typedef struct fuzz_dice { /* the random numbers of a case, one after the other */
    meg_stream stream;
    uint64_t at;
} fuzz_dice;

static inline int64_t fuzz_pick(fuzz_dice *d, int64_t sides) /* 0 .. sides - 1 */
{
    int64_t k = (int64_t)(meg_random_uniform(d->stream, d->at++) * (double)sides);
    return k < sides ? k : sides - 1;
}

enum {
    FUZZ_CLASSES = 5,
    FUZZ_PAST = 64
};

typedef struct fuzz_net {
    meg_graph *g;
    fuzz_dice *dice;
    int block, layer;
    int past[FUZZ_PAST], pasts; /* values to skip from */
    int tied, tied_channels;    /* a weight of a 3x3 convolution; -1: none */
} fuzz_net;

static inline int64_t fuzz_extent(const fuzz_net *n, int x, int axis)
{
    return x < 0 ? 1 : n->g->value[x].shape.hi[axis];
}

static inline int fuzz_node(fuzz_net *n, const char *op, const char *attrs, int inputs,
                            const int in[])
{
    char name[64];
    snprintf(name, sizeof name, "b%d.%s%d", n->block, op, n->layer++);
    return meg_graph_add(n->g, op, name, attrs, inputs, in);
}

static inline int fuzz_layer(fuzz_net *n, const char *op, const char *attrs, int x)
{
    return fuzz_node(n, op, attrs, 1, &x);
}

static inline int fuzz_norm(fuzz_net *n, int x)
{
    char attrs[64];
    int64_t c = fuzz_extent(n, x, MEG_C);
    switch (fuzz_pick(n->dice, 6)) {
    case 0:
        return x;
    case 1:
        snprintf(attrs, sizeof attrs, "groups=%d", c % 2 == 0 ? 2 : 1);
        return fuzz_layer(n, "groupnorm", attrs, x);
    case 2:
        return c < 3 ? x : fuzz_layer(n, "layernorm", "", x); /* of two: always -1 and 1 */
    default:
        return fuzz_layer(n, "batchnorm", fuzz_pick(n->dice, 3) ? "" : "momentum=0.3", x);
    }
}

/* Another value where a mask of x itself holds; the larger or smaller of two. */
static inline int fuzz_choose(fuzz_net *n, int x)
{
    int mask = fuzz_layer(n, "compare", "relation=less value=0.1", x);
    int other = fuzz_layer(n, "hard_sigmoid", "alpha=0.3", x);
    switch (fuzz_pick(n->dice, 4)) {
    case 0:
        return fuzz_node(n, "where", "value=-0.5", 2, (int[]){x, mask});
    case 1:
        return fuzz_node(n, "where", "invert=1", 3, (int[]){x, mask, other});
    case 2:
        return fuzz_node(n, "max", "", 2, (int[]){x, other});
    default:
        return fuzz_node(n, "min", "", 2, (int[]){other, x});
    }
}

/* Gates by what is reduced, along the channels or all pixels: squares, or exponentials of what lies
 * below a peak. */
static inline int fuzz_reduce(fuzz_net *n, int x)
{
    static const char *const pixels[] = {"axes=1", "axes=2", "axes=2x3", "axes=2x3x4"};
    int rank = x < 0 ? 2 : n->g->value[x].rank;
    const char *axes = rank < 3 || fuzz_pick(n->dice, 2) ? pixels[0] : pixels[rank - 2];
    char mean[32];
    snprintf(mean, sizeof mean, "%s mean=1", axes);
    if (fuzz_pick(n->dice, 2)) {
        int size = fuzz_layer(n, "sum", mean, fuzz_layer(n, "pow", "exponent=2", x));
        return fuzz_node(n, "div", "", 2, (int[]){x, fuzz_layer(n, "softplus", "", size)});
    }
    int peak = fuzz_layer(n, "peak", axes, x);
    int below = fuzz_layer(n, "exp", "", fuzz_node(n, "sub", "", 2, (int[]){x, peak}));
    int height = fuzz_layer(n, "log", "", fuzz_layer(n, "sum", axes, below));
    height = fuzz_node(n, "add", "", 2, (int[]){height, peak});
    return fuzz_node(n, "mul", "", 2, (int[]){x, fuzz_layer(n, "sigmoid", "", height)});
}

static inline int fuzz_act(fuzz_net *n, int x)
{
    static const char *const act[] = {
        "relu", "relu", "prelu",      "leaky_relu", "gelu",         "tanh", "sigmoid",
        "elu",  "selu", "hard_swish", "softplus",   "hard_sigmoid", "mish", "neg"};
    int64_t k = fuzz_pick(n->dice, 17);
    if (k == 14) return fuzz_choose(n, x);
    if (k == 15) return fuzz_reduce(n, x);
    return k == 16 ? x : fuzz_layer(n, act[k], "", x);
}

/* Keeps the extent, unless it strides. */
static inline int fuzz_conv(fuzz_net *n, int x, int64_t filters, int stride)
{
    char attrs[160];
    int64_t c = fuzz_extent(n, x, MEG_C), h = fuzz_extent(n, x, MEG_H);
    int kernel = fuzz_pick(n->dice, 3) ? 3 : 1, dilation = 1 + (int)fuzz_pick(n->dice, 2);
    int groups = c % 2 == 0 && filters % 2 == 0 && fuzz_pick(n->dice, 4) == 0 ? 2 : 1;
    if (h < 5 || kernel == 1) dilation = 1;
    snprintf(attrs, sizeof attrs,
             "filters=%lld kernel=%d stride=%d dilation=%d pad=%d groups=%d bias=%d",
             (long long)filters, kernel, stride, dilation, kernel / 2 * dilation, groups,
             (int)fuzz_pick(n->dice, 2));
    return fuzz_layer(n, "conv", attrs, x);
}

static inline int fuzz_residual(fuzz_net *n, int x)
{
    int64_t c = fuzz_extent(n, x, MEG_C);
    int y = fuzz_act(n, fuzz_norm(n, fuzz_conv(n, x, c, 1)));
    y = fuzz_norm(n, fuzz_conv(n, y, c, 1));
    return fuzz_act(n, fuzz_node(n, "add", "", 2, (int[]){x, y}));
}

static inline int fuzz_branches(fuzz_net *n, int x)
{
    int a = fuzz_act(n, fuzz_norm(n, fuzz_conv(n, x, 3, 1)));
    int b = fuzz_layer(n, fuzz_pick(n->dice, 2) ? "maxpool" : "avgpool", "kernel=3 stride=1 pad=1",
                       x);
    b = fuzz_conv(n, b, 1 + fuzz_pick(n->dice, 3), 1);
    int c = fuzz_pick(n->dice, 2) ? x : fuzz_conv(n, fuzz_act(n, a), 2, 1);
    return fuzz_node(n, "concat", "", 3, (int[]){a, b, c});
}

/* A value of before with the same pixels: added if it has the same channels, else appended. */
static inline int fuzz_skip(fuzz_net *n, int x)
{
    for (int i = 0; i < n->pasts; i++) {
        int p = n->past[i];
        bool pixels = fuzz_extent(n, p, MEG_H) == fuzz_extent(n, x, MEG_H) &&
                      fuzz_extent(n, p, MEG_W) == fuzz_extent(n, x, MEG_W);
        if (p == x || !pixels) continue;
        bool same = fuzz_extent(n, p, MEG_C) == fuzz_extent(n, x, MEG_C);
        if (same && fuzz_pick(n->dice, 2))
            return fuzz_node(n, fuzz_pick(n->dice, 3) ? "add" : "mul", "", 2, (int[]){p, x});
        return fuzz_conv(n, fuzz_node(n, "concat", "", 2, (int[]){x, p}), 4, 1);
    }
    return fuzz_residual(n, x);
}

/* A convolution with the weight of an earlier one. */
static inline int fuzz_tied(fuzz_net *n, int x)
{
    int64_t c = fuzz_extent(n, x, MEG_C);
    char attrs[64];
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=3 pad=1 bias=0", (long long)c);
    if (n->tied >= 0 && c == n->tied_channels)
        return fuzz_act(n, fuzz_node(n, "conv", attrs, 2, (int[]){x, n->tied}));
    int y = fuzz_layer(n, "conv", attrs, x);
    if (y < 0) return y;
    n->tied = n->g->node[n->g->value[y].maker].in[1];
    n->tied_channels = (int)c;
    return fuzz_act(n, y);
}

static inline int fuzz_shrink(fuzz_net *n, int x)
{
    bool large = fuzz_extent(n, x, MEG_H) > 5 && fuzz_extent(n, x, MEG_W) > 5;
    if (!large) return fuzz_residual(n, x);
    switch (fuzz_pick(n->dice, 3)) {
    case 0:
        return fuzz_layer(n, "maxpool", "kernel=3 stride=2 pad=1", x);
    case 1:
        return fuzz_layer(n, "avgpool", "kernel=2 stride=2", x);
    default:
        return fuzz_conv(n, x, fuzz_extent(n, x, MEG_C) + 2, 2);
    }
}

static inline int fuzz_block(fuzz_net *n, int x)
{
    switch (fuzz_pick(n->dice, 8)) {
    case 0:
        return fuzz_act(n, fuzz_norm(n, fuzz_conv(n, x, 4 + 2 * fuzz_pick(n->dice, 3), 1)));
    case 1:
        return fuzz_residual(n, x);
    case 2:
        return fuzz_branches(n, x);
    case 3:
        return fuzz_shrink(n, x);
    case 4:
        return fuzz_skip(n, x);
    case 5:
        return fuzz_tied(n, x);
    case 6:
        return fuzz_conv(n, fuzz_layer(n, "dropout", "rate=0.3", x), 6, 1);
    default:
        return fuzz_norm(n, fuzz_residual(n, x));
    }
}

/* Classes of a sample, or of each pixel. */
static inline void fuzz_head(fuzz_net *n, int x, bool pixels, double weight)
{
    static const char *const loss[] = {"softmax_xent", "softmax_xent", "bce_logits", "mse", "dice"};
    char attrs[32];
    int64_t which = fuzz_pick(n->dice, pixels ? 5 : 4);
    n->block++;
    snprintf(attrs, sizeof attrs, "units=%d", FUZZ_CLASSES);
    if (pixels) {
        x = fuzz_layer(n, "conv", "filters=5 kernel=1", x);
    } else {
        x = fuzz_pick(n->dice, 2) ? fuzz_layer(n, "gap", "", x) : fuzz_layer(n, "flatten", "", x);
        x = fuzz_layer(n, "dense", attrs, x);
    }
    const char *options = which < 2 && fuzz_pick(n->dice, 3) == 0 ? "weighted=1" : "";
    meg_graph_add_loss(n->g, loss[which], options, x, weight);
}

static inline void fuzz_image(fuzz_net *n)
{
    fuzz_dice *d = n->dice;
    int64_t dims[] = {1, 1 + fuzz_pick(d, 4), 5 + fuzz_pick(d, 9), 5 + fuzz_pick(d, 9)};
    int x = meg_graph_input(n->g, "image", 4, dims), blocks = 3 + (int)fuzz_pick(d, 5);
    bool pixels = fuzz_pick(d, 4) == 0, early = fuzz_pick(d, 3) == 0;
    x = fuzz_act(n, fuzz_norm(n, fuzz_conv(n, x, 4 + fuzz_pick(d, 4), 1)));
    for (int i = 1; i < blocks; i++) {
        n->block++;
        x = fuzz_block(n, x);
        if (n->pasts < FUZZ_PAST) n->past[n->pasts++] = x;
        if (i == 2 && early) fuzz_head(n, x, pixels, 0.4);
    }
    fuzz_head(n, x, pixels, 1);
}

/* ---- tokens ---- */

static inline int fuzz_attention(fuzz_net *n, int x)
{
    int part[3], norm = fuzz_layer(n, "layernorm", "", x);
    int y = fuzz_layer(n, "conv", "filters=24 kernel=1", norm);
    meg_graph_split(n->g, y, 1, 3, part);
    y = fuzz_node(n, "attention", fuzz_pick(n->dice, 2) ? "heads=2 causal=1" : "heads=4", 3, part);
    y = fuzz_layer(n, "conv", "filters=8 kernel=1", y);
    if (fuzz_pick(n->dice, 2)) y = fuzz_layer(n, "dropout", "rate=0.2", y);
    return fuzz_node(n, "add", "", 2, (int[]){x, y});
}

static inline int fuzz_mlp(fuzz_net *n, int x)
{
    int y = fuzz_layer(n, "layernorm", "", x);
    y = fuzz_act(n, fuzz_layer(n, "conv", "filters=16 kernel=1", y));
    y = fuzz_layer(n, "conv", "filters=8 kernel=1", y);
    return fuzz_node(n, "add", "", 2, (int[]){x, y});
}

static inline void fuzz_tokens(fuzz_net *n)
{
    fuzz_dice *d = n->dice;
    int64_t dims[] = {1, 3 + fuzz_pick(d, 6)};
    int ids = meg_graph_input_typed(n->g, "tokens", MEG_I32, 2, dims);
    int x = fuzz_layer(n, "embedding", "vocabulary=5 features=8 deviation=0.5", ids);
    int rows = x < 0 ? -1 : n->g->node[n->g->value[x].maker].in[1];
    int blocks = 2 + (int)fuzz_pick(d, 5);
    if (fuzz_pick(d, 2)) x = fuzz_layer(n, "position", "deviation=0.5", x);
    for (int i = 0; i < blocks; i++) {
        n->block++;
        x = fuzz_pick(d, 2) ? fuzz_attention(n, x) : fuzz_mlp(n, x);
    }
    n->block++;
    x = fuzz_layer(n, "layernorm", "", x);
    if (fuzz_pick(d, 2)) x = fuzz_node(n, "conv", "filters=5 kernel=1 bias=0", 2, (int[]){x, rows});
    else x = fuzz_layer(n, "conv", "filters=5 kernel=1", x);
    meg_graph_add_loss(n->g, "softmax_xent", fuzz_pick(d, 2) ? "smoothing=0.1" : "", x, 1);
}

/* A graph of one sample. Its error, if any, is in it. */
static inline meg_graph *fuzz_graph(fuzz_dice *d)
{
    fuzz_net n = {.g = meg_graph_create("fuzz"), .dice = d, .tied = -1};
    if (fuzz_pick(d, 4) == 0) fuzz_tokens(&n);
    else fuzz_image(&n);
    return n.g;
}

#endif
