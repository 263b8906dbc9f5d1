/* AmoebaNet-D: a stem, then cells that evolution found, L normal ones in three groups with
 * reductions in front; any number of layers L = 3n and filters D. c = D/4 doubles in each reduction.
 *
 *     stem 3x3/2 - R - R - n x N - R - n x N - R - n x N - mean over space - fc
 *
 * A cell reads the cell before (state 0) and the one before that (state 1), brings both to c
 * channels, and appends the sums of five pairs of operations as states 2 to 6; some states, end to
 * end, are its output:
 *
 *     normal       2 = conv1x1(1) + maxpool3(1)       5 = maxpool3(2) + 2
 *                  3 = 1 + conv1x7-7x1(0)             6 = avgpool3(1) + conv1x1(5)
 *                  4 = conv1x1(0) + conv1x7-7x1(0)    out 0 3 4 6
 *     reduction    2 = maxpool2(0)/2 + maxpool3(0)/2  5 = 3 + maxpool2(1)/2
 *                  3 = 2 + conv3x3(1)/2               6 = avgpool3(2) + conv1x1(3)
 *                  4 = conv1x7-7x1(2) + maxpool3(2)   out 4 5 6
 *
 * The paper has out 4 5 6 for normal cells, too; this is what the authors' published code has, and
 * what gives the parameter counts of the GPipe paper: 81,505,540 for (18, 208). Parameters cannot
 * tell how maxpool3 pools. The genotype's name says by maximum, our default; torchgpipe, whose
 * measurements are compared with most, takes averages: pool=avg.
 *
 * Real, Aggarwal, Huang, Le, "Regularized evolution for image classifier architecture search", AAAI
 * 2019; Huang et al., "GPipe", NeurIPS 2019.
 */
#include "zoo/zoo.h"

#include <string.h>

typedef struct options {
    meg_zoo_common common;
    int64_t layers, filters;
    int pool; /* how maxpool3 pools: 0 max, 1 avg */
} options;

enum {
    STATES = 7,
    PAIRS = STATES - 2,
    REDUCTIONS = 4,
    DIVISOR = 2 << REDUCTIONS /* of the image: the stem halves it, too */
};

typedef struct cell {
    const meg_module *m; /* "cells.3" */
    const options *o;
    int64_t channels;
    int state[STATES], rectified[STATES]; /* rectified: 0 until someone asks */
} cell;

/* Operation `number` of a cell: on a state, at a stride. */
typedef int operation(cell *c, const meg_module *m, int state, int stride);

typedef struct step {
    int state;
    operation *op;
} step;

typedef struct genotype {
    bool reduction; /* operations on states 0 and 1 stride */
    step steps[2 * PAIRS];
    int outs, out[STATES];
} genotype;

/* ---- operations ---- */

/* Several operations rectify the same state: once is enough. */
static int rectified(cell *c, int state)
{
    if (!c->rectified[state]) {
        char name[16];
        snprintf(name, sizeof name, "relu%d", state);
        c->rectified[state] = meg_zoo_layer(c->m, "relu", name, "", c->state[state]);
    }
    return c->rectified[state];
}

typedef struct conv { /* with its batch norm */
    int number;       /* "conv2", "bn2" */
    int64_t filters;
    const char *window;
    bool last; /* of its operation: not rectified */
} conv;

static int add_conv(const meg_module *m, conv k, int x)
{
    char name[24], attrs[96];
    snprintf(name, sizeof name, "conv%d", k.number);
    snprintf(attrs, sizeof attrs, "filters=%lld bias=0 %s", (long long)k.filters, k.window);
    x = meg_zoo_layer(m, "conv", name, attrs, x);
    snprintf(name, sizeof name, "bn%d", k.number);
    return k.last ? meg_zoo_layer(m, "batchnorm", name, "", x) : meg_zoo_bn_relu(m, name, "", x);
}

static int none(cell *c, const meg_module *m, int state, int stride)
{
    (void)m, (void)stride; /* the genotype has it on states of the cell's own alone */
    return c->state[state];
}

static int conv1x1(cell *c, const meg_module *m, int state, int stride)
{
    (void)stride; /* likewise */
    return add_conv(m, (conv){1, c->channels, "kernel=1", true}, rectified(c, state));
}

static int conv3x3(cell *c, const meg_module *m, int state, int stride)
{
    int64_t inside = c->channels / 4;
    char window[32];
    snprintf(window, sizeof window, "kernel=3 pad=1 stride=%d", stride);
    int x = add_conv(m, (conv){1, inside, "kernel=1", false}, rectified(c, state));
    x = add_conv(m, (conv){2, inside, window, false}, x);
    return add_conv(m, (conv){3, c->channels, "kernel=1", true}, x);
}

static int conv1x7_7x1(cell *c, const meg_module *m, int state, int stride)
{
    (void)stride; /* likewise */
    int64_t inside = c->channels / 4;
    int x = add_conv(m, (conv){1, inside, "kernel=1", false}, rectified(c, state));
    x = add_conv(m, (conv){2, inside, "kernel=1x7 pad=0x3", false}, x);
    x = add_conv(m, (conv){3, inside, "kernel=7x1 pad=3x0", false}, x);
    return add_conv(m, (conv){4, c->channels, "kernel=1", true}, x);
}

static int maxpool2(cell *c, const meg_module *m, int state, int stride)
{
    char attrs[32];
    snprintf(attrs, sizeof attrs, "kernel=2 stride=%d", stride);
    return meg_zoo_layer(m, "maxpool", "maxpool", attrs, c->state[state]);
}

static int average(cell *c, const meg_module *m, int state, int stride)
{
    char attrs[48];
    snprintf(attrs, sizeof attrs, "kernel=3 pad=1 count_pad=0 stride=%d", stride);
    return meg_zoo_layer(m, "avgpool", "avgpool", attrs, c->state[state]);
}

static int maxpool3(cell *c, const meg_module *m, int state, int stride)
{
    if (c->o->pool) return average(c, m, state, stride);
    char attrs[48];
    snprintf(attrs, sizeof attrs, "kernel=3 pad=1 stride=%d", stride);
    return meg_zoo_layer(m, "maxpool", "maxpool", attrs, c->state[state]);
}

/* ---- cells ---- */

static const genotype normal = {
    false,
    {{1, conv1x1},
     {1, maxpool3},
     {1, none},
     {0, conv1x7_7x1},
     {0, conv1x1},
     {0, conv1x7_7x1},
     {2, maxpool3},
     {2, none},
     {1, average},
     {5, conv1x1}},
    4,
    {0, 3, 4, 6},
};

static const genotype reduction = {
    true,
    {{0, maxpool2},
     {0, maxpool3},
     {2, none},
     {1, conv3x3},
     {2, conv1x7_7x1},
     {2, maxpool3},
     {3, none},
     {1, maxpool2},
     {2, average},
     {3, conv1x1}},
    3,
    {4, 5, 6},
};

static int64_t channels_of(const meg_graph *g, int value)
{
    return value < 0 ? 0 : g->value[value].shape.hi[MEG_C];
}

/* Half of the filters see the pixels at even places, half those at odd ones, so that the stride
 * does not lose the whole lot of the latter. */
static int factorized_reduce(const meg_module *m, int64_t filters, int x)
{
    char attrs[64];
    meg_graph *g = m->graph;
    snprintf(attrs, sizeof attrs, "filters=%lld bias=0 kernel=1", (long long)(filters / 2));
    x = meg_zoo_layer(m, "relu", "relu", "", x);
    int odd = meg_zoo_layer(m, "slice", "odd", "axes=2x3 begin=1 step=2", x);
    int half[2];
    half[1] = meg_zoo_layer(m, "conv", "conv2", attrs, odd);
    strcat(attrs, " stride=2");
    half[0] = meg_zoo_layer(m, "conv", "conv1", attrs, x);
    x = meg_graph_add(g, "concat", meg_pool_text(g->pool, "%s.concat", m->path), "", 2, half);
    return meg_zoo_layer(m, "batchnorm", "bn1", "", x);
}

/* Brings an input of the cell to its number of channels. */
static int reduce(const cell *c, const char *name, int x)
{
    meg_graph *g = c->m->graph;
    const meg_module m = {g, meg_pool_text(g->pool, "%s.%s", c->m->path, name)};
    x = meg_zoo_layer(&m, "relu", "relu", "", x);
    return add_conv(&m, (conv){1, c->channels, "kernel=1", true}, x);
}

/* The cell before the last: larger by two if that one reduced, and of the right width in between
 * like cells. */
static int reduce_older(const cell *c, bool after_reduction, int x)
{
    meg_graph *g = c->m->graph;
    if (channels_of(g, x) == c->channels && !after_reduction) return x;
    if (!after_reduction) return reduce(c, "reduce2", x);
    const meg_module m = {g, meg_pool_text(g->pool, "%s.reduce2", c->m->path)};
    return factorized_reduce(&m, c->channels, x);
}

static int add_operations(cell *c, const genotype *t)
{
    meg_graph *g = c->m->graph;
    for (int pair = 0; pair < PAIRS; pair++) {
        int x[2];
        for (int i = 0; i < 2; i++) {
            const step *s = &t->steps[2 * pair + i];
            const char *path = meg_pool_text(g->pool, "%s.ops.%d", c->m->path, 2 * pair + i);
            x[i] = s->op(c, &(meg_module){g, path}, s->state, t->reduction && s->state < 2 ? 2 : 1);
        }
        char name[16];
        snprintf(name, sizeof name, "sums.%d", pair);
        c->state[2 + pair] = meg_zoo_sum(c->m, name, x[0], x[1]);
    }
    int out[STATES];
    for (int i = 0; i < t->outs; i++)
        out[i] = c->state[t->out[i]];
    return meg_graph_add(g, "concat", meg_pool_text(g->pool, "%s.concat", c->m->path), "", t->outs,
                         out);
}

/* ---- the network ---- */

typedef struct chain { /* cells so far */
    meg_graph *graph;
    const options *o;
    int64_t channels;
    int number;
    int last, older;   /* values */
    bool last_reduced; /* the last cell was a reduction */
} chain;

static void add_cell(chain *n, const genotype *t)
{
    char path[32];
    snprintf(path, sizeof path, "cells.%d", n->number++);
    const meg_module m = {n->graph, path};
    if (t->reduction) n->channels *= 2;
    cell c = {.m = &m, .o = n->o, .channels = n->channels};
    c.state[0] = reduce(&c, "reduce1", n->last);
    c.state[1] = reduce_older(&c, n->last_reduced, n->older);
    n->older = n->last;
    n->last = add_operations(&c, t);
    n->last_reduced = t->reduction;
}

static bool fits(meg_graph *g, const options *o)
{
    const meg_axes *image = &o->common.image;
    int64_t down = o->layers / 3 * 3;
    if (o->layers != down || o->layers == 0) {
        meg_fail(&g->error, MEG_EARG,
                 "amoebanet-d: layers=%lld, but there are three equal groups: use %lld or %lld",
                 (long long)o->layers, (long long)(down ? down : 3),
                 (long long)(down ? down + 3 : 6));
        return false;
    }
    for (int i = 1; i < image->count; i++)
        if (image->at[i] % DIVISOR) {
            meg_fail(&g->error, MEG_EARG,
                     "amoebanet-d: image has an extent of %lld, but is halved %d times: use a "
                     "multiple of %d",
                     (long long)image->at[i], REDUCTIONS + 1, DIVISOR);
            return false;
        }
    return true;
}

static int build(meg_graph *g, const meg_model *model, const void *settings, int x)
{
    (void)model;
    const options *o = settings;
    const meg_module top = {g, ""}, stem = {g, "stem"};
    if (!fits(g, o)) return -1;

    chain n = {.graph = g, .o = o, .channels = o->filters / 4};
    x = meg_zoo_layer(&stem, "relu", "relu", "", x);
    x = add_conv(&stem, (conv){1, n.channels, "kernel=3 stride=2 pad=1", true}, x);
    n.last = n.older = x;
    add_cell(&n, &reduction);
    for (int group = 0; group < 3; group++) {
        add_cell(&n, &reduction);
        for (int64_t i = 0; i < o->layers / 3; i++)
            add_cell(&n, &normal);
    }
    x = meg_zoo_layer(&top, "gap", "avgpool", "", n.last);
    return meg_zoo_add_dense(&top, "fc", o->common.classes, x);
}

static const meg_param params[] = {
    MEG_ZOO_PARAMS("3x224x224", "1000"),
    {"layers", MEG_PARAM_INT, offsetof(options, layers), "18", "normal cells, a multiple of 3",
     NULL, 1, 1 << 16},
    {"filters", MEG_PARAM_INT, offsetof(options, filters), "208",
     "four times the channels of the stem", NULL, 8, 1 << 16},
    {"pool", MEG_PARAM_CHOICE, offsetof(options, pool), "max",
     "how the genotype's max_pool_3x3 pools; torchgpipe's takes averages", "max|avg", 0, 0},
    {.name = NULL},
};

const meg_model meg_models_amoebanet[] = {
    {.name = "amoebanet-d",
     .doc = "AmoebaNet-D, any layers and filters",
     .paper = "Real et al., Regularized evolution for image classifier architecture search, "
              "AAAI 2019",
     .params = params,
     .option_bytes = sizeof(options),
     .build = build},
    {.name = NULL},
};
