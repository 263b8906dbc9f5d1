/* ResNets for ImageNet, as torchvision builds them: "v1.5", with the stride of a bottleneck on its
 * 3x3 convolution, and projection shortcuts where the shape changes.
 *
 *     conv 7x7/2, bn, relu, maxpool 3x3/2, 4 groups of blocks, mean over space, fc
 *
 *     basic        x - 3x3 - bn - relu - 3x3 - bn - + - relu          widths w, w
 *     bottleneck   x - 1x1 - bn - relu - 3x3 - bn - relu - 1x1 - bn - + - relu   w, w, 4w
 *
 * He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
 */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

typedef struct layout {
    bool bottleneck;
    int blocks[4];
} layout;

typedef struct block { /* one residual block */
    int64_t width;     /* of its inner convolutions */
    int stride;
    bool project; /* the shortcut is a convolution too */
} block;

static int shortcut(const meg_module *m, const block *b, int64_t filters, int x)
{
    if (!b->project) return x;
    int y = meg_zoo_add_conv(m, "downsample.0", (meg_zoo_conv){filters, 1, b->stride, false}, x);
    return meg_zoo_layer(m, "batchnorm", "downsample.1", "", y);
}

static int basic(const meg_module *m, const block *b, int x)
{
    int y = meg_zoo_add_conv(m, "conv1", (meg_zoo_conv){b->width, 3, b->stride, false}, x);
    y = meg_zoo_bn_relu(m, "bn1", "", y);
    y = meg_zoo_add_conv(m, "conv2", (meg_zoo_conv){b->width, 3, 1, false}, y);
    y = meg_zoo_layer(m, "batchnorm", "bn2", "", y);
    y = meg_zoo_sum(m, "add", y, shortcut(m, b, b->width, x));
    return meg_zoo_layer(m, "relu", "relu", "", y);
}

static int bottleneck(const meg_module *m, const block *b, int x)
{
    int y = meg_zoo_add_conv(m, "conv1", (meg_zoo_conv){b->width, 1, 1, false}, x);
    y = meg_zoo_bn_relu(m, "bn1", "", y);
    y = meg_zoo_add_conv(m, "conv2", (meg_zoo_conv){b->width, 3, b->stride, false}, y);
    y = meg_zoo_bn_relu(m, "bn2", "", y);
    y = meg_zoo_add_conv(m, "conv3", (meg_zoo_conv){4 * b->width, 1, 1, false}, y);
    y = meg_zoo_layer(m, "batchnorm", "bn3", "", y);
    y = meg_zoo_sum(m, "add", y, shortcut(m, b, 4 * b->width, x));
    return meg_zoo_layer(m, "relu", "relu", "", y);
}

static int build(meg_graph *g, const meg_model *model, const void *options, int x)
{
    const meg_zoo_common *o = options;
    const layout *l = model->layout;
    const meg_module top = {g, ""};

    x = meg_zoo_add_conv(&top, "conv1", (meg_zoo_conv){64, 7, 2, false}, x);
    x = meg_zoo_bn_relu(&top, "bn1", "", x);
    x = meg_zoo_layer(&top, "maxpool", "maxpool", "kernel=3 stride=2 pad=1", x);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < l->blocks[s]; i++) {
            char path[32];
            snprintf(path, sizeof path, "layer%d.%d", s + 1, i);
            const meg_module m = {g, path};
            block b = {.width = 64 << s, .stride = s > 0 && i == 0 ? 2 : 1};
            b.project = i == 0 && (s > 0 || l->bottleneck);
            x = l->bottleneck ? bottleneck(&m, &b, x) : basic(&m, &b, x);
        }
    x = meg_zoo_layer(&top, "gap", "avgpool", "", x);
    return meg_zoo_add_dense(&top, "fc", o->classes, x);
}

static void start(meg_graph *g, const void *options)
{
    (void)options;
    meg_zoo_start_normal(g, "conv", MEG_FAN_OUT, sqrt(2));
}

static const meg_param params[] = {MEG_ZOO_PARAMS("3x224x224", "1000"), {.name = NULL}};

#define RESNET(depth, ...)                                                                         \
    {                                                                                              \
        .name = "resnet" #depth, .doc = "ResNet-" #depth " v1.5 for ImageNet",                     \
        .paper = "He et al., Deep residual learning for image recognition, CVPR 2016",             \
        .params = params, .option_bytes = sizeof(meg_zoo_common), .build = build, .start = start,  \
        .layout = &(const layout)                                                                  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const meg_model meg_models_resnet[] = {
    RESNET(18, false, {2, 2, 2, 2}),  RESNET(34, false, {3, 4, 6, 3}),
    RESNET(50, true, {3, 4, 6, 3}),   RESNET(101, true, {3, 4, 23, 3}),
    RESNET(152, true, {3, 8, 36, 3}), {.name = NULL},
};
