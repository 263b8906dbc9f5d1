/* Random convolutional graphs for plans that cut inside layers: windows of every kind (kernels 1-7,
 * strides, dilations, groups, uneven padding, transposed), pools, resizes, skips, norms, heads. Extents
 * stay above a floor that the plan's meshes ask for, so that most plans are possible.
 *
 * No maximum is taken of what was interpolated or averaged before: of pixels that are equal (maxima of
 * overlapping windows, copies at an edge, holes of a transposed convolution), such a mean differs by the
 * last bit, and that bit, which any order of summation changes, would choose whose the gradient is.
 */
#ifndef TESTS_FUZZ_CONV_H
#define TESTS_FUZZ_CONV_H

#include "fuzz_graph.h"

typedef struct conv_net {
    fuzz_net net;
    int space;               /* axes: 2, 3 */
    int64_t floor[MEG_AXES]; /* no extent below */
    bool mixed;              /* something was interpolated or averaged: no more maxima */
} conv_net;

enum {
    CONV_LARGEST = 24 /* pixels of an axis */
};

/* One number per spatial axis: "3x5". */
static inline void conv_word(char *text, size_t size, const char *word, int space,
                             const int64_t number[])
{
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, " %s=", word);
    for (int i = 0; i < space; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "x" : "",
                                 (long long)number[i]);
}

static inline void conv_pads(char *text, size_t size, int space, const int64_t before[],
                             const int64_t after[])
{
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, " pad=");
    for (int i = 0; i < space; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld:%lld", i ? "x" : "",
                                 (long long)before[i], (long long)after[i]);
}

static inline int64_t conv_extent(const conv_net *n, int x, int i)
{
    return fuzz_extent(&n->net, x, MEG_AXES - n->space + i);
}

static inline int64_t conv_floor(const conv_net *n, int i)
{
    return n->floor[MEG_AXES - n->space + i];
}

typedef struct conv_window {
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
} conv_window;

/* A window whose outputs are at least as many as the floor; a plain one after some tries. */
static inline conv_window conv_window_of(conv_net *n, int x, bool strides, bool dilates)
{
    fuzz_dice *d = n->net.dice;
    conv_window w = {{0}, {0}, {0}, {0}, {0}};
    for (int i = 0; i < n->space; i++) {
        int64_t extent = conv_extent(n, x, i), out = 0;
        for (int tries = 0; tries < 8 && out < conv_floor(n, i); tries++) {
            int64_t k = w.kernel[i] = 1 + fuzz_pick(d, fuzz_pick(d, 3) ? 3 : 7);
            w.stride[i] = strides ? 1 + fuzz_pick(d, 3) : 1;
            w.dilation[i] = dilates && k > 1 ? 1 + fuzz_pick(d, 3) : 1;
            int64_t reach = (k - 1) * w.dilation[i];
            w.before[i] = fuzz_pick(d, 2) ? reach / 2 : fuzz_pick(d, k);
            w.after[i] = fuzz_pick(d, 2) ? reach / 2 : fuzz_pick(d, k);
            int64_t room = extent + w.before[i] + w.after[i] - reach - 1;
            bool sees = w.before[i] < extent && w.after[i] < extent && reach < extent;
            out = room < 0 || !sees ? 0 : room / w.stride[i] + 1;
            if (out > CONV_LARGEST) out = 0;
        }
        if (out >= conv_floor(n, i)) continue;
        w.kernel[i] = w.stride[i] = w.dilation[i] = 1;
        w.before[i] = w.after[i] = 0;
    }
    return w;
}

static inline void conv_words(const conv_net *n, const conv_window *w, char *text, size_t size)
{
    conv_word(text, size, "kernel", n->space, w->kernel);
    conv_word(text, size, "stride", n->space, w->stride);
    conv_word(text, size, "dilation", n->space, w->dilation);
    conv_pads(text, size, n->space, w->before, w->after);
}

static inline int64_t conv_groups(conv_net *n, int64_t in, int64_t out)
{
    int64_t most = in < out ? in : out, groups = 1 + fuzz_pick(n->net.dice, most);
    if (fuzz_pick(n->net.dice, 3)) return 1;
    while (in % groups || out % groups)
        groups--;
    return groups;
}

static inline int conv_conv(conv_net *n, int x, int64_t filters, bool strides)
{
    char attrs[256];
    conv_window w = conv_window_of(n, x, strides, true);
    snprintf(attrs, sizeof attrs, "filters=%lld groups=%lld bias=%d", (long long)filters,
             (long long)conv_groups(n, fuzz_extent(&n->net, x, MEG_C), filters),
             (int)fuzz_pick(n->net.dice, 2));
    conv_words(n, &w, attrs, sizeof attrs);
    return fuzz_layer(&n->net, "conv", attrs, x);
}

/* Keeps the extents. */
static inline int conv_same(conv_net *n, int x, int64_t filters)
{
    static const int64_t kernels[] = {1, 3, 3, 5, 2};
    fuzz_dice *d = n->net.dice;
    char attrs[256];
    conv_window w;
    for (int i = 0; i < n->space; i++) {
        w.kernel[i] = kernels[fuzz_pick(d, 5)];
        w.stride[i] = 1;
        w.dilation[i] = 1 + (w.kernel[i] > 1) * fuzz_pick(d, 2);
        int64_t reach = (w.kernel[i] - 1) * w.dilation[i];
        w.before[i] = fuzz_pick(d, reach + 1);
        w.after[i] = reach - w.before[i];
    }
    snprintf(attrs, sizeof attrs, "filters=%lld groups=%lld", (long long)filters,
             (long long)conv_groups(n, fuzz_extent(&n->net, x, MEG_C), filters));
    conv_words(n, &w, attrs, sizeof attrs);
    return fuzz_layer(&n->net, "conv", attrs, x);
}

static inline int conv_up(conv_net *n, int x)
{
    fuzz_dice *d = n->net.dice;
    int64_t filters = 2 + fuzz_pick(d, 4), zero[3] = {0, 0, 0}, output[3] = {0, 0, 0};
    conv_window w;
    for (int i = 0; i < n->space; i++) {
        int64_t extent = conv_extent(n, x, i);
        w.kernel[i] = 1 + fuzz_pick(d, fuzz_pick(d, 4) ? 4 : 7);
        w.stride[i] = extent * 3 < CONV_LARGEST ? 1 + fuzz_pick(d, 3) : 1;
        w.dilation[i] = w.kernel[i] > 1 ? 1 + fuzz_pick(d, 3) : 1;
        w.before[i] = fuzz_pick(d, w.kernel[i]) / 2;
        w.after[i] = fuzz_pick(d, w.kernel[i]) / 2;
        if (w.stride[i] > 1 && fuzz_pick(d, 2)) output[i] = 1;
        int64_t out = (extent - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
        if (out - w.before[i] - w.after[i] < conv_floor(n, i)) w.before[i] = w.after[i] = 0;
    }
    char attrs[256];
    snprintf(attrs, sizeof attrs, "filters=%lld groups=%lld bias=%d", (long long)filters,
             (long long)conv_groups(n, fuzz_extent(&n->net, x, MEG_C), filters),
             (int)fuzz_pick(d, 2));
    conv_words(n, &w, attrs, sizeof attrs);
    if (memcmp(output, zero, sizeof zero) != 0)
        conv_word(attrs, sizeof attrs, "output_pad", n->space, output);
    return fuzz_layer(&n->net, "conv_transpose", attrs, x);
}

/* A pool takes maxima, or else means. */
static inline bool conv_maximum(conv_net *n)
{
    bool max = fuzz_pick(n->net.dice, 2) && !n->mixed;
    n->mixed = !max;
    return max;
}

static inline int conv_pool(conv_net *n, int x)
{
    fuzz_dice *d = n->net.dice;
    bool max = conv_maximum(n);
    char attrs[256] = "";
    conv_window w = conv_window_of(n, x, true, fuzz_pick(d, 3) == 0);
    for (int i = 0; i < n->space; i++) { /* no window sees padding alone */
        if (w.before[i] > (w.kernel[i] - 1) / 2) w.before[i] = (w.kernel[i] - 1) / 2;
        if (w.after[i] > (w.kernel[i] - 1) / 2) w.after[i] = (w.kernel[i] - 1) / 2;
    }
    conv_words(n, &w, attrs, sizeof attrs);
    size_t used = strlen(attrs);
    snprintf(attrs + used, sizeof attrs - used, "%s%s", fuzz_pick(d, 4) ? "" : " ceil=1",
             !max && fuzz_pick(d, 2) ? " count_pad=0" : "");
    return fuzz_layer(&n->net, max ? "maxpool" : "avgpool", attrs, x);
}

/* Maxima, and back to where they were. */
static inline int conv_unpool(conv_net *n, int x)
{
    char name[64], attrs[64] = "kernel=2 indices=1", back[64] = "";
    int64_t size[3];
    for (int i = 0; i < n->space; i++) {
        size[i] = conv_extent(n, x, i);
        if (n->mixed || size[i] / 2 < conv_floor(n, i)) return x;
    }
    snprintf(name, sizeof name, "b%d.pool%d", n->net.block, n->net.layer++);
    int y = meg_graph_add(n->net.g, "maxpool", name, attrs, 1, &x);
    if (y < 0) return y;
    int which = n->net.g->node[n->net.g->value[y].maker].out[1];
    if (fuzz_pick(n->net.dice, 2)) y = fuzz_layer(&n->net, "relu", "", y);
    conv_word(back, sizeof back, "size", n->space, size);
    return fuzz_node(&n->net, "max_unpool", back + 1, 2, (int[]){y, which});
}

static inline int conv_resize(conv_net *n, int x, const int64_t size[])
{
    static const char *const mode[] = {"mode=nearest", "mode=linear",
                                       "mode=linear coords=align_corners",
                                       "mode=nearest coords=half_pixel round=up"};
    char attrs[128];
    int64_t which = fuzz_pick(n->net.dice, 4);
    n->mixed = n->mixed || which == 1 || which == 2;
    snprintf(attrs, sizeof attrs, "%s", mode[which]);
    conv_word(attrs, sizeof attrs, "size", n->space, size);
    return fuzz_layer(&n->net, "resize", attrs, x);
}

static inline int conv_other_size(conv_net *n, int x)
{
    int64_t size[3];
    for (int i = 0; i < n->space; i++) {
        int64_t least = conv_floor(n, i) > 2 ? conv_floor(n, i) : 2;
        size[i] = least + fuzz_pick(n->net.dice, 12);
    }
    return conv_resize(n, x, size);
}

/* None over a few values: their deviation may be next to nothing, and the norm then magnifies the
 * rounding of any order of summation, of one rank as of many. */
static inline int conv_norm(conv_net *n, int x)
{
    int64_t pixels = 1;
    for (int i = 0; i < n->space; i++)
        pixels *= conv_extent(n, x, i);
    if (pixels < 8) return x;
    if (fuzz_pick(n->net.dice, 5) == 0) return fuzz_layer(&n->net, "instancenorm", "", x);
    return fuzz_norm(&n->net, x);
}

/* A value of before: brought to the same pixels, then added or appended. */
static inline int conv_skip(conv_net *n, int x)
{
    fuzz_net *net = &n->net;
    if (net->pasts == 0) return x;
    int p = net->past[fuzz_pick(net->dice, net->pasts)];
    int64_t size[3];
    bool same = true;
    for (int i = 0; i < n->space; i++) {
        size[i] = conv_extent(n, x, i);
        same = same && conv_extent(n, p, i) == size[i];
    }
    if (!same) p = conv_resize(n, p, size);
    if (p < 0 || p == x) return x;
    bool channels = fuzz_extent(net, p, MEG_C) == fuzz_extent(net, x, MEG_C);
    if (channels && fuzz_pick(net->dice, 2))
        return fuzz_node(net, fuzz_pick(net->dice, 3) ? "add" : "mul", "", 2, (int[]){p, x});
    x = fuzz_node(net, "concat", "", 2, (int[]){x, p});
    return fuzz_pick(net->dice, 2) ? conv_same(n, x, 2 + fuzz_pick(net->dice, 5)) : x;
}

static inline int conv_residual(conv_net *n, int x)
{
    int64_t c = fuzz_extent(&n->net, x, MEG_C);
    int y = fuzz_act(&n->net, conv_norm(n, conv_same(n, x, c)));
    y = conv_norm(n, conv_same(n, y, c));
    return fuzz_act(&n->net, fuzz_node(&n->net, "add", "", 2, (int[]){x, y}));
}

/* A residual block that strides, with a projection beside it. */
static inline int conv_shrink(conv_net *n, int x)
{
    fuzz_dice *d = n->net.dice;
    int64_t stride[3], filters = 2 + fuzz_pick(d, 5);
    char window[256], beside[256];
    for (int i = 0; i < n->space; i++) {
        stride[i] = 1 + fuzz_pick(d, 3);
        while (stride[i] > 1 && (conv_extent(n, x, i) - 1) / stride[i] + 1 < conv_floor(n, i))
            stride[i]--;
    }
    snprintf(beside, sizeof beside, "filters=%lld bias=0 kernel=1", (long long)filters);
    snprintf(window, sizeof window, "filters=%lld bias=0 kernel=3 pad=1", (long long)filters);
    conv_word(beside, sizeof beside, "stride", n->space, stride);
    conv_word(window, sizeof window, "stride", n->space, stride);
    int y = fuzz_act(&n->net, conv_norm(n, fuzz_layer(&n->net, "conv", window, x)));
    y = conv_norm(n, conv_same(n, y, filters));
    int skip = conv_norm(n, fuzz_layer(&n->net, "conv", beside, x));
    return fuzz_act(&n->net, fuzz_node(&n->net, "add", "", 2, (int[]){y, skip}));
}

static inline int conv_branches(conv_net *n, int x)
{
    fuzz_net *net = &n->net;
    int a = fuzz_act(net, conv_norm(n, conv_same(n, x, 1 + fuzz_pick(net->dice, 4))));
    int b = fuzz_layer(net, conv_maximum(n) ? "maxpool" : "avgpool", "kernel=3 stride=1 pad=1", x);
    int c = fuzz_pick(net->dice, 2) ? x : conv_same(n, a, 2);
    return fuzz_node(net, "concat", "", 3, (int[]){a, b, c});
}

static inline int conv_pad(conv_net *n, int x)
{
    static const char *const mode[] = {"constant", "reflect", "edge"};
    char attrs[64];
    for (int i = 0; i < n->space; i++)
        if (conv_extent(n, x, i) < 3) return x;
    snprintf(attrs, sizeof attrs, "pad=%d:%d mode=%s", (int)fuzz_pick(n->net.dice, 3),
             (int)fuzz_pick(n->net.dice, 3), mode[fuzz_pick(n->net.dice, 3)]);
    return fuzz_layer(&n->net, "pad", attrs, x);
}

static inline int conv_block(conv_net *n, int x)
{
    fuzz_net *net = &n->net;
    int64_t filters = 2 + fuzz_pick(net->dice, 6);
    switch (fuzz_pick(net->dice, 14)) {
    case 0:
    case 1:
        return fuzz_act(net, conv_norm(n, conv_conv(n, x, filters, true)));
    case 2:
        return conv_residual(n, x);
    case 3:
        return conv_branches(n, x);
    case 4:
        return conv_pool(n, x);
    case 5:
    case 6:
        return conv_skip(n, conv_conv(n, x, filters, false));
    case 7:
        return fuzz_act(net, conv_up(n, x));
    case 8:
        return conv_other_size(n, x);
    case 9:
        return conv_same(n, fuzz_layer(net, "dropout", "rate=0.3", x), filters);
    case 10:
        return conv_unpool(n, x);
    case 11:
        return conv_same(n, conv_pad(n, x), filters);
    case 12:
        return conv_shrink(n, x);
    default:
        return n->space == 2 ? fuzz_tied(net, x) : conv_residual(n, x);
    }
}

static inline bool conv_small(const conv_net *n, int x)
{
    int64_t size = fuzz_extent(&n->net, x, MEG_C);
    for (int i = 0; i < n->space; i++)
        size *= conv_extent(n, x, i);
    return size < 12000;
}

static inline void conv_head(conv_net *n, int x, bool pixels, double weight)
{
    fuzz_net *net = &n->net;
    if (pixels || fuzz_pick(net->dice, 3)) {
        fuzz_head(net, x, pixels, weight);
        return;
    }
    net->block++;
    x = fuzz_layer(net, fuzz_pick(net->dice, 2) ? "gap" : "flatten", "", x);
    x = fuzz_act(net, fuzz_layer(net, "dense", "units=6", x));
    x = fuzz_layer(net, "dense", "units=5", x);
    meg_graph_add_loss(net->g, "softmax_xent", "", x, weight);
}

/* A graph of one sample: b0, b1, ... are its blocks; `blocks` says how many. */
static inline meg_graph *conv_graph(fuzz_dice *d, int space, const int64_t floor[], int *blocks)
{
    conv_net n = {.net = {.g = meg_graph_create("fuzz"), .dice = d, .tied = -1}, .space = space};
    memcpy(n.floor, floor, sizeof n.floor);
    int64_t dims[5] = {1, 1 + fuzz_pick(d, 4)};
    for (int i = 0; i < space; i++)
        dims[2 + i] = (conv_floor(&n, i) > 5 ? conv_floor(&n, i) : 5) +
                      fuzz_pick(d, space == 3 ? 4 : 10);
    int x = meg_graph_input(n.net.g, "image", 2 + space, dims), count = 3 + (int)fuzz_pick(d, 5);
    bool pixels = fuzz_pick(d, 3) == 0, early = fuzz_pick(d, 4) == 0;
    x = fuzz_act(&n.net, conv_norm(&n, conv_conv(&n, x, 3 + fuzz_pick(d, 4), false)));
    for (int i = 1; i < count && x >= 0; i++) {
        n.net.block++;
        int y = conv_block(&n, x);
        if (y >= 0 && !conv_small(&n, y)) y = conv_pool(&n, y);
        x = y;
        if (x >= 0 && n.net.pasts < FUZZ_PAST) n.net.past[n.net.pasts++] = x;
        if (i == 2 && early) conv_head(&n, x, pixels, 0.4);
    }
    conv_head(&n, x, pixels, 1);
    *blocks = n.net.block + 1;
    return n.net.g;
}

#endif
