/* ResNets for small images (CIFAR, Fashion-MNIST): three groups of n blocks at widths w, 2w, 4w.
 *
 *     version 1   depth 6n+2: conv 3x3, bn, relu; basic blocks; mean over space, fc. He et al.,
 *                 "Deep residual learning for image recognition", CVPR 2016, section 4.2, with
 *                 1x1 projections where the shape changes.
 *     version 2   depth 9n+2: the Keras example's bottlenecks with pre-activation, biases and all;
 *                 depth=110 has its 3,302,442 parameters. He et al., "Identity mappings in deep
 *                 residual networks", ECCV 2016.
 *
 *     block of 2  x - bn - relu - 1x1/stride - bn - relu - 3x3 - bn - relu - 1x1 - +
 *                 The very first has no leading bn and relu: the stem ends with them. The first
 *                 block of each group projects its shortcut by a 1x1 convolution without bn.
 */
#include "zoo/zoo.h"

#include <math.h>

typedef struct options {
    meg_zoo_common common;
    int64_t depth, version, width;
} options;

typedef struct block {
    int group, index;
    int64_t inside, outside; /* filters */
    int stride;
    bool project;
} block;

static const char keras[] = "epsilon=1e-3 momentum=0.01 variance=population";

static int block_v1(const meg_module *m, const block *b, int x)
{
    int y = meg_zoo_add_conv(m, "conv1", (meg_zoo_conv){b->inside, 3, b->stride, false}, x);
    y = meg_zoo_bn_relu(m, "bn1", "", y);
    y = meg_zoo_add_conv(m, "conv2", (meg_zoo_conv){b->outside, 3, 1, false}, y);
    y = meg_zoo_layer(m, "batchnorm", "bn2", "", y);
    if (b->project) {
        meg_zoo_conv c = {b->outside, 1, b->stride, false};
        x = meg_zoo_add_conv(m, "downsample.0", c, x);
        x = meg_zoo_layer(m, "batchnorm", "downsample.1", "", x);
    }
    y = meg_zoo_sum(m, "add", y, x);
    return meg_zoo_layer(m, "relu", "relu", "", y);
}

static int block_v2(const meg_module *m, const block *b, int x)
{
    bool first = b->group == 0 && b->index == 0;
    int y = first ? x : meg_zoo_bn_relu(m, "bn1", keras, x);
    y = meg_zoo_add_conv(m, "conv1", (meg_zoo_conv){b->inside, 1, b->stride, true}, y);
    y = meg_zoo_bn_relu(m, "bn2", keras, y);
    y = meg_zoo_add_conv(m, "conv2", (meg_zoo_conv){b->inside, 3, 1, true}, y);
    y = meg_zoo_bn_relu(m, "bn3", keras, y);
    y = meg_zoo_add_conv(m, "conv3", (meg_zoo_conv){b->outside, 1, 1, true}, y);
    if (b->project) {
        meg_zoo_conv c = {b->outside, 1, b->stride, true};
        x = meg_zoo_add_conv(m, "downsample", c, x);
    }
    return meg_zoo_sum(m, "add", x, y);
}

/* What differs between the versions. */
typedef struct version {
    int convs; /* of a block, with three groups of n: depth is 3 * convs * n + 2 */
    int (*add)(const meg_module *m, const block *b, int x);
    int widen; /* outside / inside of the first group, in version 2; later ones double */
    bool bias;
    const char *norm;
} version;

static const version versions[] = {
    {.convs = 2, .add = block_v1, .widen = 1, .bias = false, .norm = ""},
    {.convs = 3, .add = block_v2, .widen = 4, .bias = true, .norm = keras},
};

static int add_group(meg_graph *g, const version *v, block b, int64_t blocks, int x)
{
    bool project = b.project;
    int stride = b.stride;
    for (b.index = 0; b.index < blocks; b.index++) {
        char path[32];
        snprintf(path, sizeof path, "layer%d.%d", b.group + 1, b.index);
        b.stride = b.index ? 1 : stride;
        b.project = !b.index && project;
        x = v->add(&(meg_module){g, path}, &b, x);
    }
    return x;
}

/* Blocks per group; -1 with the error set if the depth has no such number. */
static int64_t blocks_of(meg_graph *g, const options *o, const version *v)
{
    int64_t per = 3 * v->convs, n = (o->depth - 2) / per;
    if (o->depth >= per + 2 && o->depth == per * n + 2) return n;
    if (n < 1) n = 1;
    meg_fail(&g->error, MEG_EARG,
             "resnet-cifar: depth=%lld, but version %lld has %lldn+2 layers: use %lld or %lld",
             (long long)o->depth, (long long)o->version, (long long)per, (long long)(per * n + 2),
             (long long)(per * (n + 1) + 2));
    return -1;
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    (void)model;
    const options *o = settings;
    const version *v = &versions[o->version - 1];
    const meg_module top = {g, ""};
    int64_t blocks = blocks_of(g, o, v);
    if (blocks < 0) return -1;

    x = meg_zoo_add_conv(&top, "conv1", (meg_zoo_conv){o->width, 3, 1, v->bias}, x);
    x = meg_zoo_bn_relu(&top, "bn1", v->norm, x);
    int64_t filters = o->width; /* of x in version 1, of the next group's inside in version 2 */
    for (int s = 0; s < 3; s++) {
        block b = {.group = s, .stride = s ? 2 : 1, .project = s > 0 || v->widen > 1};
        b.outside = filters * (s ? 2 : v->widen);
        b.inside = v->widen > 1 ? filters : b.outside;
        x = add_group(g, v, b, blocks, x);
        filters = b.outside;
    }
    if (o->version == 2) x = meg_zoo_bn_relu(&top, "bn2", keras, x);
    x = meg_zoo_layer(&top, "gap", "avgpool", "", x);
    return meg_zoo_add_dense(&top, "fc", o->common.classes, x);
}

/* Keras: he_normal everywhere, biases at 0. Version 1 starts as torchvision's ResNets do. */
static void start(meg_graph *g, const void *settings)
{
    const options *o = settings;
    meg_zoo_start_normal(g, "conv", o->version == 2 ? MEG_FAN_IN : MEG_FAN_OUT, sqrt(2));
    if (o->version == 2) meg_zoo_start_normal(g, "dense", MEG_FAN_IN, sqrt(2));
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x32x32", "10"),
    {"depth", MEG_PARAM_INT, offsetof(options, depth), "20",
     "layers: 6n+2 in version 1, 9n+2 in version 2", NULL, 8, 1 << 16},
    {"version", MEG_PARAM_INT, offsetof(options, version), "1",
     "1: basic blocks; 2: bottlenecks with pre-activation", NULL, 1, 2},
    {"width", MEG_PARAM_INT, offsetof(options, width), "16", "filters of the first layer", NULL, 1,
     1 << 16},
    {.name = NULL},
};

const meg_model meg_models_resnet_cifar[] = {
    {.name = "resnet-cifar",
     .doc = "ResNet for small images, version 1 or 2",
     .paper = "He et al., Identity mappings in deep residual networks, ECCV 2016",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start},
    {.name = NULL},
};
