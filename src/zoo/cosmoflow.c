/* CosmoFlow: a few numbers of the universe from its matter in a cube; seven 3-D convolutions, six of
 * them followed by a 2x2x2 average pool, then three dense layers; mean squared error.
 *
 * Mathuriya et al., SC 2018, gave it; layers and widths here are those of the ParaDL study (Kahira
 * et al., HPDC 2021), which has them without biases (2,128,064 weights) and for two extents, each of
 * which leaves one voxel to the first dense layer. We add a third for the 128^3 of the benchmarks:
 *
 *     form   convolutions     of stride 2   voxels along an axis
 *     512    no padding       the third     512 510|255 253|126 62|31 29|14 13|6 5|2 1
 *     256    padded, but the  the fourth    256 256|128 128|64 64|32 16|8 8|4 4|2 1
 *     128    last not         none          128 128|64 64|32 32|16 16|8 8|4 4|2 1
 *
 * Other extents do, if they are large enough (pools=): the first dense layer fits what is left.
 */
#include "zoo/zoo.h"

enum {
    CONVS = 7,
    WIDTH = 16 /* filters of the first, which the others' are written for */
};

static const struct {
    int filters, kernel;
} layers[CONVS] = {{16, 3}, {32, 3}, {64, 3}, {128, 3}, {256, 2}, {256, 2}, {128, 2}};

typedef struct form {
    bool padded; /* all but the last */
    int strided; /* the convolution of stride 2; -1: none */
} form;

static const form forms[] = {{true, -1}, {true, 3}, {false, 2}};

typedef struct options {
    meg_zoo_common common;
    int form;
    int64_t pools;
    bool bias;
    double dropout;
    int64_t width;
} options;

/* Voxels that the convolutions leave along an axis; below 1: it is too short. */
static int64_t left_of(const options *o, int64_t extent)
{
    const form *f = &forms[o->form];
    for (int i = 0; i < CONVS; i++) {
        bool padded = f->padded && i + 1 < CONVS;
        if (!padded) extent -= layers[i].kernel - 1;
        if (i == f->strided) extent = (extent + 1) / 2;
        if (i < o->pools) extent /= 2;
        if (extent < 1) return 0;
    }
    return extent;
}

static int64_t scaled(const options *o, int64_t units)
{
    int64_t n = units * o->width / WIDTH;
    return n ? n : 1;
}

static bool check_image(meg_graph *g, const meg_model *model, const options *o)
{
    const meg_axes *image = &o->common.image;
    for (int i = 1; i < image->count; i++) {
        if (image->count == 4 && left_of(o, image->at[i]) > 0) continue;
        int64_t least = 1;
        while (left_of(o, least) < 1)
            least++;
        meg_fail(
            &g->error, MEG_EARG,
            "%s: this form with %lld pools wants volumes CxDxHxW, %lld voxels or more each way",
            model->name, (long long)o->pools, (long long)least);
        return false;
    }
    return true;
}

static int add_convs(const meg_module *m, const options *o, int x)
{
    const form *f = &forms[o->form];
    for (int i = 0; i < CONVS; i++) {
        char conv[16], relu[16], pool[16], attrs[96];
        const char *same = layers[i].kernel == 3 ? "1" : "0:1";
        snprintf(conv, sizeof conv, "conv%d", i + 1);
        snprintf(relu, sizeof relu, "relu%d", i + 1);
        snprintf(pool, sizeof pool, "pool%d", i + 1);
        snprintf(attrs, sizeof attrs, "filters=%lld kernel=%d stride=%d pad=%s bias=%d",
                 (long long)scaled(o, layers[i].filters), layers[i].kernel, i == f->strided ? 2 : 1,
                 f->padded && i + 1 < CONVS ? same : "0", o->bias);
        x = meg_zoo_layer(m, "conv", conv, attrs, x);
        x = meg_zoo_layer(m, "leaky_relu", relu, "slope=0.2", x);
        if (i < o->pools) x = meg_zoo_layer(m, "avgpool", pool, "kernel=2", x);
    }
    return x;
}

static int add_dense(const meg_module *m, const options *o, const char *name, int64_t units, int x)
{
    char attrs[48];
    snprintf(attrs, sizeof attrs, "units=%lld bias=%d", (long long)units, o->bias);
    return meg_zoo_layer(m, "dense", name, attrs, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const meg_module m = {g, ""};
    if (!check_image(g, model, o)) return -1;
    x = add_convs(&m, o, x);
    x = meg_zoo_layer(&m, "flatten", "flatten", "", x);
    x = add_dense(&m, o, "fc1", scaled(o, 2048), x);
    x = meg_zoo_layer(&m, "leaky_relu", "relu8", "slope=0.2", x);
    x = meg_zoo_add_dropout(&m, "dropout1", o->dropout, x);
    x = add_dense(&m, o, "fc2", scaled(o, 256), x);
    x = meg_zoo_layer(&m, "leaky_relu", "relu9", "slope=0.2", x);
    x = meg_zoo_add_dropout(&m, "dropout2", o->dropout, x);
    x = add_dense(&m, o, "fc3", o->common.classes, x);
    meg_graph_add_loss(g, "mse", "", x, 1.0);
    return x;
}

/* LeCun's deviation, 1 / sqrt(fan in), which ParaDL's framework starts with. */
static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_IN, 1);
    meg_zoo_start_normal(g, "dense", MEG_FAN_IN, 1);
}

#define AT(field) offsetof(options, field)

static const meg_param params[] = {
    {"image", MEG_PARAM_AXES, AT(common.image), "4x128x128x128", "extents of a sample, CxDxHxW",
     NULL, 1, 1 << 24},
    {"targets", MEG_PARAM_INT, AT(common.classes), "4", "numbers to tell", NULL, 1, 1 << 24},
    {"form", MEG_PARAM_CHOICE, AT(form), "128", "the extent whose paddings and strides to take",
     "128|256|512", 0, 0},
    {"pools", MEG_PARAM_INT, AT(pools), "6", "of the first convolutions; fewer suit small volumes",
     NULL, 0, 6},
    {"bias", MEG_PARAM_BOOL, AT(bias), "1", "of all layers", NULL, 0, 0},
    {"dropout", MEG_PARAM_REAL, AT(dropout), "0", "rate in the head; 0: none", NULL, 0, 0.99},
    {"width", MEG_PARAM_INT, AT(width), "16",
     "filters of the first convolution; all others, and units, in proportion", NULL, 1, 1 << 16},
    {.name = NULL},
};

const meg_model meg_models_cosmoflow[] = {
    {.name = "cosmoflow",
     .doc = "CosmoFlow: a few real numbers from a volume",
     .paper = "Mathuriya et al., CosmoFlow: using deep learning to learn the universe at scale, "
              "SC 2018; layers as in Kahira et al., An oracle for guiding large-scale model/hybrid "
              "parallel training of convolutional neural networks, HPDC 2021",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start},
    {.name = NULL},
};
