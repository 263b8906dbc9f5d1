/* A small plain network to begin with: seconds per epoch on 28x28 images.
 *
 *     2 x (conv 3x3, bn, relu), maxpool 2, 2 x (conv 3x3, bn, relu), maxpool 2,
 *     fc1, relu, dropout, fc2                                       widths w w 2w 2w, 8w
 */
#include "zoo/zoo.h"

#include <math.h>

typedef struct options {
    meg_zoo_common common;
    int64_t width;
    double dropout;
} options;

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    (void)model;
    const options *o = settings;
    const meg_module m = {g, ""};
    for (int i = 0; i < 4; i++) {
        char conv[16], bn[16], pool[16];
        snprintf(conv, sizeof conv, "conv%d", i + 1);
        snprintf(bn, sizeof bn, "bn%d", i + 1);
        snprintf(pool, sizeof pool, "pool%d", i / 2 + 1);
        meg_zoo_conv c = {.filters = o->width * (1 + i / 2), .kernel = 3, .stride = 1};
        x = meg_zoo_add_conv(&m, conv, c, x);
        x = meg_zoo_bn_relu(&m, bn, "", x);
        if (i % 2) x = meg_zoo_layer(&m, "maxpool", pool, "kernel=2", x);
    }
    x = meg_zoo_layer(&m, "flatten", "flatten", "", x);
    x = meg_zoo_add_dense(&m, "fc1", 8 * o->width, x);
    x = meg_zoo_layer(&m, "relu", "relu5", "", x);
    x = meg_zoo_add_dropout(&m, "dropout", o->dropout, x);
    return meg_zoo_add_dense(&m, "fc2", o->common.classes, x);
}

static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_OUT, sqrt(2));
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("1x28x28", "10"),
    {"width", MEG_PARAM_INT, offsetof(options, width), "16", "filters of the first layer", NULL, 1,
     1 << 16},
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0.25", "rate in the head; 0: none",
     NULL, 0, 0.99},
    {.name = NULL},
};

const meg_model meg_models_cnn[] = {
    {.name = "cnn",
     .doc = "four convolutions and two dense layers, for small images",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start},
    {.name = NULL},
};
