/* Inception v3, as torchvision builds it, with its auxiliary head. Every convolution is followed by
 * a batch norm (epsilon 0.001) and a rectifier.
 *
 *     stem - 3 x A - B - 4 x C -+- D - 2 x E - mean over space - dropout - fc      weight 1
 *                               +- AuxLogits: pool 5x5/3, conv 1x1, conv 5x5, fc   weight 0.4
 *
 * A block is a table of rows: each takes the block's input or an earlier row; the rows marked OUT
 * are concatenated. The loss is main + 0.4 auxiliary, as in torchvision's reference training. (The
 * paper gives no weight; its predecessor took 0.3.) The auxiliary head has a 5x5 convolution on
 * what is left of the image, so it wants 299 pixels; without it 75 do.
 *
 * Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for computer
 * vision", CVPR 2016.
 */
#include "zoo/zoo.h"

#include <math.h>
#include <string.h>

typedef struct options {
    meg_zoo_common common;
    bool aux;
    double dropout;
    int64_t width;
} options;

enum {
    OWN = 0,
    AVG = -1,
    MAX = -2
}; /* filters that the block says; rows that pool */
enum {
    OUT = true
};
enum {
    ROWS = 12,
    BRANCHES = 6
};
enum {
    LEAST = 75,
    LEAST_AUX = 299
}; /* pixels */
enum {
    WIDTH = 32
}; /* filters of the first convolution, which the tables are written for */

typedef struct row {
    const char *name; /* NULL ends the block */
    int back;         /* takes the row so many before; 0: the block's input */
    int64_t filters;
    const char *window;
    bool out;
} row;

static const row stem[] = {
    {"Conv2d_1a_3x3", 0, 32, "kernel=3 stride=2", 0}, {"Conv2d_2a_3x3", 1, 32, "kernel=3", 0},
    {"Conv2d_2b_3x3", 1, 64, "kernel=3 pad=1", 0},    {"maxpool1", 1, MAX, "kernel=3 stride=2", 0},
    {"Conv2d_3b_1x1", 1, 80, "kernel=1", 0},          {"Conv2d_4a_3x3", 1, 192, "kernel=3", 0},
    {"maxpool2", 1, MAX, "kernel=3 stride=2", OUT},   {0},
};

static const row block_a[] = {
    {"branch1x1", 0, 64, "kernel=1", OUT},
    {"branch5x5_1", 0, 48, "kernel=1", 0},
    {"branch5x5_2", 1, 64, "kernel=5 pad=2", OUT},
    {"branch3x3dbl_1", 0, 64, "kernel=1", 0},
    {"branch3x3dbl_2", 1, 96, "kernel=3 pad=1", 0},
    {"branch3x3dbl_3", 1, 96, "kernel=3 pad=1", OUT},
    {"pool", 0, AVG, "kernel=3 stride=1 pad=1", 0},
    {"branch_pool", 1, OWN, "kernel=1", OUT},
    {0},
};

static const row block_b[] = {
    {"branch3x3", 0, 384, "kernel=3 stride=2", OUT},
    {"branch3x3dbl_1", 0, 64, "kernel=1", 0},
    {"branch3x3dbl_2", 1, 96, "kernel=3 pad=1", 0},
    {"branch3x3dbl_3", 1, 96, "kernel=3 stride=2", OUT},
    {"pool", 0, MAX, "kernel=3 stride=2", OUT},
    {0},
};

static const row block_c[] = {
    {"branch1x1", 0, 192, "kernel=1", OUT},
    {"branch7x7_1", 0, OWN, "kernel=1", 0},
    {"branch7x7_2", 1, OWN, "kernel=1x7 pad=0x3", 0},
    {"branch7x7_3", 1, 192, "kernel=7x1 pad=3x0", OUT},
    {"branch7x7dbl_1", 0, OWN, "kernel=1", 0},
    {"branch7x7dbl_2", 1, OWN, "kernel=7x1 pad=3x0", 0},
    {"branch7x7dbl_3", 1, OWN, "kernel=1x7 pad=0x3", 0},
    {"branch7x7dbl_4", 1, OWN, "kernel=7x1 pad=3x0", 0},
    {"branch7x7dbl_5", 1, 192, "kernel=1x7 pad=0x3", OUT},
    {"pool", 0, AVG, "kernel=3 stride=1 pad=1", 0},
    {"branch_pool", 1, 192, "kernel=1", OUT},
    {0},
};

static const row block_d[] = {
    {"branch3x3_1", 0, 192, "kernel=1", 0},
    {"branch3x3_2", 1, 320, "kernel=3 stride=2", OUT},
    {"branch7x7x3_1", 0, 192, "kernel=1", 0},
    {"branch7x7x3_2", 1, 192, "kernel=1x7 pad=0x3", 0},
    {"branch7x7x3_3", 1, 192, "kernel=7x1 pad=3x0", 0},
    {"branch7x7x3_4", 1, 192, "kernel=3 stride=2", OUT},
    {"pool", 0, MAX, "kernel=3 stride=2", OUT},
    {0},
};

static const row block_e[] = {
    {"branch1x1", 0, 320, "kernel=1", OUT},
    {"branch3x3_1", 0, 384, "kernel=1", 0},
    {"branch3x3_2a", 1, 384, "kernel=1x3 pad=0x1", OUT},
    {"branch3x3_2b", 2, 384, "kernel=3x1 pad=1x0", OUT},
    {"branch3x3dbl_1", 0, 448, "kernel=1", 0},
    {"branch3x3dbl_2", 1, 384, "kernel=3 pad=1", 0},
    {"branch3x3dbl_3a", 1, 384, "kernel=1x3 pad=0x1", OUT},
    {"branch3x3dbl_3b", 2, 384, "kernel=3x1 pad=1x0", OUT},
    {"pool", 0, AVG, "kernel=3 stride=1 pad=1", 0},
    {"branch_pool", 1, 192, "kernel=1", OUT},
    {0},
};

static const row aux_rows[] = {
    {"pool", 0, AVG, "kernel=5 stride=3", 0},
    {"conv0", 1, 128, "kernel=1", 0},
    {"conv1", 1, 768, "kernel=5", OUT},
    {0},
};

typedef struct block {
    const char *path;
    const row *rows;
    int64_t own; /* filters of the rows that leave them to the block */
} block;

static const block trunk[] = {
    {"", stem, 0},
    {"Mixed_5b", block_a, 32},
    {"Mixed_5c", block_a, 64},
    {"Mixed_5d", block_a, 64},
    {"Mixed_6a", block_b, 0},
    {"Mixed_6b", block_c, 128},
    {"Mixed_6c", block_c, 160},
    {"Mixed_6d", block_c, 160},
    {"Mixed_6e", block_c, 192},
    {.path = NULL},
};

static const block top[] = {
    {"Mixed_7a", block_d, 0},
    {"Mixed_7b", block_e, 0},
    {"Mixed_7c", block_e, 0},
    {.path = NULL},
};

static int add_row(const meg_module *m, const row *r, const options *o, int64_t own, int x)
{
    if (r->filters < 0)
        return meg_zoo_layer(m, r->filters == AVG ? "avgpool" : "maxpool", r->name, r->window, x);
    char attrs[96], path[64];
    int64_t filters = (r->filters == OWN ? own : r->filters) * o->width / WIDTH;
    snprintf(attrs, sizeof attrs, "filters=%lld bias=0 %s", (long long)(filters ? filters : 1),
             r->window);
    snprintf(path, sizeof path, "%s%s%s", m->path, m->path[0] ? "." : "", r->name);
    const meg_module conv = {m->graph, path};
    x = meg_zoo_layer(&conv, "conv", "conv", attrs, x);
    return meg_zoo_bn_relu(&conv, "bn", "epsilon=0.001", x);
}

static int add_block(meg_graph *g, const block *b, const options *o, int x)
{
    const meg_module m = {g, b->path};
    int value[ROWS], out[BRANCHES], outs = 0;
    for (int i = 0; b->rows[i].name; i++) {
        const row *r = &b->rows[i];
        value[i] = add_row(&m, r, o, b->own, r->back ? value[i - r->back] : x);
        if (r->out) out[outs++] = value[i];
    }
    if (outs == 1) return out[0];
    return meg_graph_add(g, "concat", meg_pool_text(g->pool, "%s.concat", b->path), "", outs, out);
}

static int add_blocks(meg_graph *g, const block *b, const options *o, int x)
{
    for (; b->path; b++)
        x = add_block(g, b, o, x);
    return x;
}

static int add_aux(meg_graph *g, const options *o, int x)
{
    const meg_module m = {g, "AuxLogits"};
    x = add_block(g, &(block){m.path, aux_rows, 0}, o, x);
    x = meg_zoo_layer(&m, "gap", "avgpool", "", x);
    return meg_zoo_add_dense(&m, "fc", o->common.classes, x);
}

static bool fits(meg_graph *g, const options *o)
{
    const meg_axes *image = &o->common.image;
    int least = o->aux ? LEAST_AUX : LEAST;
    for (int i = 1; i < image->count; i++) {
        if (image->at[i] >= least) continue;
        meg_fail(&g->error, MEG_EARG,
                 "inception-v3: image has an extent of %lld, but wants %d or more%s",
                 (long long)image->at[i], least,
                 o->aux ? " for its auxiliary head (75 or more with aux=0)" : "");
        return false;
    }
    return true;
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    (void)model;
    const options *o = settings;
    const meg_module m = {g, ""};
    if (!fits(g, o)) return -1;

    x = add_blocks(g, trunk, o, x);
    int aux = o->aux ? add_aux(g, o, x) : -1;
    x = add_blocks(g, top, o, x);
    x = meg_zoo_layer(&m, "gap", "avgpool", "", x);
    x = meg_zoo_add_dropout(&m, "dropout", o->dropout, x);
    x = meg_zoo_add_dense(&m, "fc", o->common.classes, x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1.0);
    if (o->aux) meg_graph_add_loss(g, "softmax_xent", "", aux, 0.4);
    return x;
}

/* torchvision's: normal with deviation 0.1, cut off at 20 deviations, which is never. The batch
 * norms make it matter little. */
static void start(meg_graph *g, const void *settings)
{
    (void)settings;
    meg_zoo_start_normal(g, "conv", MEG_FAN_ONE, 0.1);
    meg_zoo_start_normal(g, "dense", MEG_FAN_ONE, 0.1);
    int aux = meg_graph_find_value(g, "AuxLogits.fc.weight");
    if (aux >= 0) g->value[aux].bound = 0.001;
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x299x299", "1000"),
    {"aux", MEG_PARAM_BOOL, offsetof(options, aux), "1",
     "auxiliary head, whose loss counts 0.4; images of 299 pixels or more", NULL, 0, 0},
    {"dropout", MEG_PARAM_REAL, offsetof(options, dropout), "0.5", "rate in the head; 0: none",
     NULL, 0, 0.99},
    {"width", MEG_PARAM_INT, offsetof(options, width), "32",
     "filters of the first convolution; all others in proportion", NULL, 1, 1 << 16},
    {.name = NULL},
};

const meg_model meg_models_inception[] = {
    {.name = "inception-v3",
     .doc = "Inception v3 for ImageNet, with its auxiliary head",
     .paper = "Szegedy et al., Rethinking the Inception architecture for computer vision, "
              "CVPR 2016",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build,
     .start = start},
    {.name = NULL},
};
