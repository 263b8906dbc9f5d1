/* Vision transformers, as torchvision builds them: an image is cut into square patches, each a
 * token; one more token, the same for all images, gathers what the head reads.
 *
 *     image -> conv_proj -> [class_token, patches] + pos_embedding -> encoder layers -> ln -> head
 *                                                                                  (first token)
 *     layer:   x + self_attention(ln_1(x)),   then   x + mlp(ln_2(x))
 *
 * The class token is a parameter of one sample, and is put in front of every sample by a sum: room
 * is made for it with zeros, and class token and positions, both the same for all samples, are
 * added at once. Names of parameters are torchvision's.
 *
 * Dosovitskiy et al., "An image is worth 16x16 words: transformers for image recognition at scale",
 * ICLR 2021.
 */
#include "zoo/sequence.h"

#include <math.h>
#include <string.h>

typedef struct layout {
    int64_t patch, layers, heads, width, mlp;
} layout;

typedef struct options {
    meg_zoo_common common;
    layout own; /* 0: as the model's name says */
    double dropout;
} options;

static layout layout_of(const options *o, const layout *named)
{
    layout l = o->own;
    if (!l.patch) l.patch = named->patch;
    if (!l.layers) l.layers = named->layers;
    if (!l.heads) l.heads = named->heads;
    if (!l.width) l.width = named->width;
    if (!l.mlp) l.mlp = named->mlp;
    return l;
}

static int linear(const meg_module *m, const char *name, int64_t units, int x)
{
    return meg_zoo_linear(m, name, (meg_linear){units, ".weight", ".bias"}, x);
}

static int add_layer(const meg_module *m, const layout *l, double dropout, int x)
{
    int y = meg_zoo_layer(m, "layernorm", "ln_1", "epsilon=1e-6", x);
    y = meg_zoo_linear(m, "self_attention.in_proj", (meg_linear){3 * l->width, "_weight", "_bias"},
                       y);
    y = meg_zoo_attend(m, "self_attention", (meg_heads){l->heads, false}, y);
    y = linear(m, "self_attention.out_proj", l->width, y);
    y = meg_zoo_add_dropout(m, "dropout", dropout, y);
    x = meg_zoo_sum(m, "self_attention.add", x, y);

    y = meg_zoo_layer(m, "layernorm", "ln_2", "epsilon=1e-6", x);
    y = linear(m, "mlp.0", l->mlp, y);
    y = meg_zoo_layer(m, "gelu", "mlp.1", "", y);
    y = meg_zoo_add_dropout(m, "mlp.2", dropout, y);
    y = linear(m, "mlp.3", l->width, y);
    y = meg_zoo_add_dropout(m, "mlp.4", dropout, y);
    return meg_zoo_sum(m, "mlp.add", x, y);
}

/* (n, c, h, w) -> (n, width, 1 + patches): the class token first, positions added. */
static int add_tokens(meg_graph *g, const layout *l, int x)
{
    const meg_module top = {g, ""}, encoder = {g, "encoder"};
    char attrs[96];
    snprintf(attrs, sizeof attrs, "filters=%lld kernel=%lld stride=%lld", (long long)l->width,
             (long long)l->patch, (long long)l->patch);
    x = meg_zoo_layer(&top, "conv", "conv_proj", attrs, x);
    x = meg_zoo_layer(&top, "reshape", "tokens", "dims=0x0x-1", x);
    if (x < 0) return -1;
    int64_t patches = g->value[x].shape.hi[MEG_W];
    x = meg_zoo_layer(&top, "pad", "tokens.room", "pad=1:0", x);
    int first = meg_zoo_rows(&top, "class_token", 1, l->width, 0);
    int rows = meg_zoo_rows(&encoder, "pos_embedding", patches + 1, l->width, 0.02);
    snprintf(attrs, sizeof attrs, "pad=0:%lldx0:0", (long long)patches);
    first = meg_zoo_layer(&top, "pad", "class_token.row", attrs, first);
    rows = meg_zoo_sum(&encoder, "rows", rows, first);
    return meg_zoo_add_rows(&encoder, "tokens", rows, x);
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    const options *o = settings;
    const layout l = layout_of(o, model->layout);
    const meg_axes *image = &o->common.image;
    for (int i = 1; i < image->count; i++)
        if (image->at[i] % l.patch) {
            meg_fail(&g->error, MEG_EARG,
                     "%s: image has an extent of %lld, but is cut into patches of %lld: use a "
                     "multiple of it",
                     model->name, (long long)image->at[i], (long long)l.patch);
            return -1;
        }

    x = add_tokens(g, &l, x);
    x = meg_zoo_add_dropout(&(meg_module){g, "encoder"}, "dropout", o->dropout, x);
    for (int64_t i = 0; i < l.layers; i++) {
        char path[64];
        snprintf(path, sizeof path, "encoder.layers.encoder_layer_%lld", (long long)i);
        x = add_layer(&(meg_module){g, path}, &l, o->dropout, x);
    }
    x = meg_zoo_layer(&(meg_module){g, "encoder"}, "layernorm", "ln", "epsilon=1e-6", x);
    x = meg_zoo_layer(&(meg_module){g, "heads"}, "slice", "token", "axes=2 begin=0 end=1", x);
    return meg_zoo_add_dense(&(meg_module){g, "heads"}, "head", o->common.classes, x);
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
 * AISTATS 2010: uniform, by both fans. */
static void start_glorot(meg_value *w)
{
    w->start = MEG_UNIFORM;
    w->bound = sqrt(6 / (double)(w->shape.hi[MEG_N] + w->shape.hi[MEG_C]));
}

static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    for (int i = 0; i < g->values; i++) {
        meg_value *w = &g->value[i];
        if (w->kind != MEG_PARAMETER) continue;
        bool mlp = has(w->name, ".mlp."), bias = has(w->name, "bias");
        if (has(w->name, "heads.") || (bias && !mlp)) w->start = MEG_ZEROS;
        else if (bias) w->start = MEG_NORMAL, w->bound = 1e-6;
        else if (mlp || has(w->name, "in_proj_weight")) start_glorot(w);
        else if (has(w->name, "conv_proj"))
            w->start = MEG_NORMAL,
            w->bound = 1 / sqrt((double)(meg_box_size(&w->shape) / w->shape.hi[MEG_N]));
    }
}

#define OWN(word, most, doc)                                                                       \
    {                                                                                              \
#word, MEG_PARAM_INT, offsetof(options, own.word), "0",                                    \
            doc "; 0: as the model's name says", NULL, 0, most                                     \
    }

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x224x224", "1000"),
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0", "rate; 0: none", NULL, 0, 0.99},
    OWN(patch, 1 << 12, "extent of a patch"),
    OWN(layers, 1 << 16, "of the encoder"),
    OWN(heads, 1 << 16, "of the attention"),
    OWN(width, 1 << 20, "features of a token"),
    OWN(mlp, 1 << 20, "features inside the perceptrons"),
    {.name = NULL},
};

#define VIT(size, text, patch, ...)                                                                \
    {                                                                                              \
        .name = "vit_" #size "_" #patch,                                                           \
        .doc = "vision transformer, " text ", patches of " #patch,                                 \
        .paper = "Dosovitskiy et al., An image is worth 16x16 words: transformers for image "      \
                 "recognition at scale, ICLR 2021",                                                \
        .params = params, .option_bytes = sizeof(options), .build = build, .start = start,         \
        .layout = &(const layout)                                                                  \
        {                                                                                          \
            patch, __VA_ARGS__                                                                     \
        }                                                                                          \
    }

const meg_model meg_models_vit[] = {
    VIT(b, "base", 16, 12, 12, 768, 3072),
    VIT(b, "base", 32, 12, 12, 768, 3072),
    VIT(l, "large", 16, 24, 16, 1024, 4096),
    {.name = NULL},
};
