/* AlexNet, as torchvision builds it: the widths of the second paper, which put the halves that the
 * first one had on two GPUs back into one column.
 *
 *     conv 11x11/4, pool, conv 5x5, pool, three convs 3x3, pool, mean over 6x6 bins, 3 dense layers
 *
 * At 224 pixels the bins hold one pixel each; smaller images repeat pixels, larger ones average.
 *
 * Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks",
 * NIPS 2012; Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
 */
#include "zoo/zoo.h"

#include "graph/op.h"

#include <math.h>
#include <string.h>

typedef struct options {
    meg_zoo_common common;
    double dropout;
    int64_t hidden;
} options;

enum {
    LEAST = 63 /* pixels that leave one for the last pool */
};

typedef struct stage { /* a convolution and its rectifier */
    int number;        /* of the convolution among torchvision's `features` */
    const char *attrs;
    bool pool; /* 3x3/2 follows */
} stage;

static const stage stages[] = {
    {0, "filters=64 kernel=11 stride=4 pad=2", true}, {3, "filters=192 kernel=5 pad=2", true},
    {6, "filters=384 kernel=3 pad=1", false},         {8, "filters=256 kernel=3 pad=1", false},
    {10, "filters=256 kernel=3 pad=1", true},
};

static int add_stage(meg_graph *g, const stage *s, int x)
{
    const meg_module m = {g, "features"};
    char name[3][16];
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof name[i], "%d", s->number + i);
    x = meg_zoo_layer(&m, "conv", name[0], s->attrs, x);
    x = meg_zoo_layer(&m, "relu", name[1], "", x);
    return s->pool ? meg_zoo_layer(&m, "maxpool", name[2], "kernel=3 stride=2", x) : x;
}

static int add_head(meg_graph *g, const options *o, int x)
{
    const meg_module top = {g, ""}, m = {g, "classifier"};
    x = meg_zoo_layer(&top, "adaptive_avgpool", "avgpool", "size=6", x);
    x = meg_zoo_layer(&top, "flatten", "flatten", "", x);
    x = meg_zoo_add_dropout(&m, "0", o->dropout, x);
    x = meg_zoo_add_dense(&m, "1", o->hidden, x);
    x = meg_zoo_layer(&m, "relu", "2", "", x);
    x = meg_zoo_add_dropout(&m, "3", o->dropout, x);
    x = meg_zoo_add_dense(&m, "4", o->hidden, x);
    x = meg_zoo_layer(&m, "relu", "5", "", x);
    return meg_zoo_add_dense(&m, "6", o->common.classes, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const meg_axes *image = &o->common.image;
    for (int i = 1; i < image->count; i++)
        if (image->at[i] < LEAST) {
            meg_fail(&g->error, MEG_EARG,
                     "%s: image has an extent of %lld, which its pools use up: use %d or more",
                     model->name, (long long)image->at[i], LEAST);
            return -1;
        }
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        x = add_stage(g, &stages[i], x);
    return add_head(g, o, x);
}

/* As PyTorch starts its layers, which torchvision leaves alone: weights and biases uniform, within
 * 1 / sqrt(inputs of an output). Wider ones make the logits of this net without norms start far
 * apart. */
static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        if (strcmp(v->op->name, "conv") && strcmp(v->op->name, "dense")) continue;
        const meg_box *w = &g->value[v->in[1]].shape;
        double inputs = (double)meg_box_size(w) / (double)meg_extent(w, MEG_N);
        for (int k = 1; k < v->inputs; k++) {
            g->value[v->in[k]].start = MEG_UNIFORM;
            g->value[v->in[k]].bound = 1 / sqrt(inputs);
        }
    }
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x224x224", "1000"),
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0.5", "rate in the head; 0: none",
     NULL, 0, 0.99},
    {"hidden", MEG_PARAM_INT, offsetof(options, hidden), "4096", "units of the first dense layers",
     NULL, 1, 1 << 24},
    {.name = NULL},
};

const meg_model meg_models_alexnet[] = {
    {.name = "alexnet",
     .doc = "AlexNet in one column, for ImageNet",
     .paper = "Krizhevsky et al., ImageNet classification with deep convolutional neural networks, "
              "NIPS 2012",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start},
    {.name = NULL},
};
