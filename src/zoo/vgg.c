/* VGG nets, as torchvision builds them: 3x3 convolutions in five groups, each ending in a 2x2
 * max-pool, then three dense layers with dropout between them.
 *
 * The head is made for the image's own extent: at 224 the last group leaves 7x7 pixels, as in the
 * paper; other extents get another first dense layer instead of torchvision's adaptive pooling.
 *
 * Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition",
 * ICLR 2015.
 */
#include "zoo/zoo.h"

#include <math.h>

enum {
    GROUPS = 5
};

typedef struct layout {
    int convs[GROUPS];
} layout;

typedef struct options {
    meg_zoo_common common;
    bool bn;
    double dropout;
    int64_t hidden, width;
} options;

/* Modules of torchvision's `features` are numbered through: conv, [bn,] relu, ..., pool. */
static int add_conv(meg_graph *g, bool bn, int64_t filters, int *number, int x)
{
    const meg_module m = {g, "features"};
    char name[16];
    snprintf(name, sizeof name, "%d", (*number)++);
    x = meg_zoo_add_conv(&m, name, (meg_zoo_conv){filters, 3, 1, true}, x);
    if (bn) {
        snprintf(name, sizeof name, "%d", (*number)++);
        x = meg_zoo_layer(&m, "batchnorm", name, "", x);
    }
    snprintf(name, sizeof name, "%d", (*number)++);
    return meg_zoo_layer(&m, "relu", name, "", x);
}

static int add_head(meg_graph *g, const options *o, int x)
{
    const meg_module m = {g, "classifier"};
    x = meg_zoo_layer(&(meg_module){g, ""}, "flatten", "flatten", "", x);
    x = meg_zoo_add_dense(&m, "0", o->hidden, x);
    x = meg_zoo_layer(&m, "relu", "1", "", x);
    x = meg_zoo_add_dropout(&m, "2", o->dropout, x);
    x = meg_zoo_add_dense(&m, "3", o->hidden, x);
    x = meg_zoo_layer(&m, "relu", "4", "", x);
    x = meg_zoo_add_dropout(&m, "5", o->dropout, x);
    return meg_zoo_add_dense(&m, "6", o->common.classes, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    static const int64_t times[GROUPS] = {1, 2, 4, 8, 8};
    const options *o = settings;
    const layout *l = model->layout;
    const meg_axes *image = &o->common.image;
    for (int i = 1; i < image->count; i++)
        if (image->at[i] < 1 << GROUPS) {
            meg_fail(&g->error, MEG_EARG,
                     "%s: image has an extent of %lld, but is halved %d times: use %d or more",
                     model->name, (long long)image->at[i], GROUPS, 1 << GROUPS);
            return -1;
        }

    int number = 0;
    for (int s = 0; s < GROUPS; s++) {
        for (int i = 0; i < l->convs[s]; i++)
            x = add_conv(g, o->bn, times[s] * o->width, &number, x);
        char pool[24];
        snprintf(pool, sizeof pool, "features.%d", number++);
        x = meg_zoo_layer(&(meg_module){g, ""}, "maxpool", pool, "kernel=2", x);
    }
    return add_head(g, o, x);
}

static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_OUT, sqrt(2));
    meg_zoo_start_normal(g, "dense", MEG_FAN_ONE, 0.01);
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x224x224", "1000"),
    {"bn", MEG_PARAM_BOOL, offsetof(options, bn), "0", "batch norm after each convolution", NULL, 0,
     0},
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0.5", "rate in the head; 0: none",
     NULL, 0, 0.99},
    {"hidden", MEG_PARAM_INT, offsetof(options, hidden), "4096", "units of the first dense layers",
     NULL, 1, 1 << 24},
    {"width", MEG_PARAM_INT, offsetof(options, width), "64",
     "filters of the first convolution; all others in proportion", NULL, 1, 1 << 16},
    {.name = NULL},
};

#define VGG(depth, ...)                                                                            \
    {                                                                                              \
        .name = "vgg" #depth, .doc = "VGG-" #depth " for ImageNet",                                \
        .paper = "Simonyan and Zisserman, Very deep convolutional networks for large-scale image " \
                 "recognition, ICLR 2015",                                                         \
        .params = params, .option_bytes = sizeof(options), .build = build, .start = start,         \
        .layout = &(const layout)                                                                  \
        {                                                                                          \
            {                                                                                      \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    }

const meg_model meg_models_vgg[] = {
    VGG(11, 1, 1, 2, 2, 2), VGG(13, 2, 2, 2, 2, 2), VGG(16, 2, 2, 3, 3, 3),
    VGG(19, 2, 2, 4, 4, 4), {.name = NULL},
};
