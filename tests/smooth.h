/* A network without kinks, for comparisons in float (tests/compare.h).
 *
 * A rectifier whose input lies within rounding of zero, or a max-pool whose two largest lie as near, goes
 * the other way on another plan, and then gradients differ by up to a percent though nobody erred. No
 * tolerance tells that from a mistake. So the test's network is rewritten before it is run, the judge's
 * as well as the other's:
 *
 *     batchnorm -> relu, leaky_relu, prelu    stays; the norm's bias starts at 4. What comes out of a norm
 *                                             is rarely below -4, and seldom enough within rounding of it
 *                                             (a normal distribution has 1.3e-4 there: of a million
 *                                             activations and an error of 1e-6, one in 3,700 runs). So the
 *                                             fused kernels and their formats are still tested.
 *     other rectifiers                        gelu, or what is most like them
 *     maxpool, max_unpool                     avgpool, resize to the nearest pixel
 *     compare, where; max, min                no masks; gelu or a difference
 *
 * And a bias in front of a batch or instance norm, straight or with convolutions and the like between, is not trained:
 * its true gradient is zero (or little, of the image's border), what float has of it is rounding, which depends on
 * the order of sums and has no digit to compare.
 *
 * What this does not cover in float: the gradient of such a bias; whether a rectifier cuts and a max-pool
 * finds the right pixel. The
 * networks as they are do so in double, to 1e-10, under the same plans; each kernel of the cpu does so for
 * itself (t330-cpu-own, t331-cpu-elements, t332-cpu-parts).
 */
#ifndef TESTS_SMOOTH_H
#define TESTS_SMOOTH_H

#include "network.h"
#include "ops/attrs.h"

static const double smooth_bias = 4;

typedef struct smooth_word {
    const char *kinked, *smooth;
    bool rectifies; /* behind a batch norm its bias will do */
} smooth_word;

static const smooth_word smooth_words[] = {
    {"relu", "gelu", true},          {"leaky_relu", "gelu", true},
    {"prelu", "gelu", true},         {"selu", "gelu", false},
    {"hard_swish", "gelu", false},   {"hard_sigmoid", "sigmoid", false},
    {"clip", "tanh", false},         {"abs", "gelu", false},
    {"max", "sub", false},           {"min", "sub", false},
    {"maxpool", "avgpool", false},   {"max_unpool", "resize", false},
    {"where", "gelu or sub", false}, {"compare", "nothing", false},
};

static inline const smooth_word *smooth_word_of(const meg_node *v)
{
    for (size_t i = 0; i < sizeof smooth_words / sizeof *smooth_words; i++)
        if (strcmp(smooth_words[i].kinked, v->op->name) == 0) return &smooth_words[i];
    return NULL;
}

static inline bool smooth_is(const meg_node *v, const char *op)
{
    return strcmp(v->op->name, op) == 0;
}

/* The batch norm whose output a rectifier takes; NULL: none. */
static inline const meg_node *smooth_norm(const meg_graph *g, const meg_node *v)
{
    const smooth_word *w = smooth_word_of(v);
    int maker = g->value[v->in[0]].maker;
    if (!w || !w->rectifies || maker < 0 || !smooth_is(&g->node[maker], "batchnorm")) return NULL;
    return &g->node[maker];
}

typedef struct smooth_copy {
    const meg_graph *old;
    meg_graph *new;
    int *map; /* values of the old graph -> of the new; -1: not there */
} smooth_copy;

/* Leaves come with their first reader: what only a replaced node read is left out. */
static inline int smooth_value(smooth_copy *c, int value)
{
    const meg_value *v = &c->old->value[value];
    if (c->map[value] < 0 && v->kind != MEG_MADE)
        c->map[value] = meg_graph_add_leaf_like(c->new, v);
    return c->map[value];
}

static inline int smooth_pool(smooth_copy *c, const meg_node *v)
{
    meg_pool_attr attr = *(const meg_pool_attr *)v->attr;
    meg_node like = {.name = v->name, .op = meg_op_find("avgpool"), .attr = &attr, .inputs = 1};
    attr.indices = attr.count_pad = false;
    return meg_graph_add_like(c->new, &like, (int[]){smooth_value(c, v->in[0])});
}

static inline int smooth_resize(smooth_copy *c, const meg_node *v)
{
    const meg_value *y = &c->old->value[v->out[0]];
    char size[96] = "size=";
    for (int i = 2; i < y->rank; i++)
        snprintf(size + strlen(size), sizeof size - strlen(size), i > 2 ? "x%lld" : "%lld",
                 (long long)y->dims[i]);
    return meg_graph_add(c->new, "resize", v->name, size, 1, (int[]){smooth_value(c, v->in[0])});
}

static inline int smooth_node(smooth_copy *c, const meg_node *v)
{
    const smooth_word *w = smooth_word_of(v);
    int in[MEG_INPUTS];
    if (w && smooth_is(v, "compare")) return -1;
    if (w && smooth_is(v, "maxpool")) return smooth_pool(c, v);
    if (w && smooth_is(v, "max_unpool")) return smooth_resize(c, v);
    if (w && !smooth_norm(c->old, v)) { /* where: x, mask, other */
        bool two = strcmp(w->smooth, "sub") == 0 || (smooth_is(v, "where") && v->inputs == 3);
        const char *op = smooth_is(v, "where") ? two ? "sub" : "gelu" : w->smooth;
        in[0] = smooth_value(c, v->in[0]);
        if (two) in[1] = smooth_value(c, v->in[v->inputs - 1]);
        return meg_graph_add(c->new, op, v->name, "", two ? 2 : 1, in);
    }
    for (int i = 0; i < v->inputs; i++)
        in[i] = smooth_value(c, v->in[i]);
    return meg_graph_add_like(c->new, v, in);
}

static inline void smooth_biases(smooth_copy *c)
{
    for (int i = 0; i < c->old->nodes; i++) {
        const meg_node *norm = smooth_norm(c->old, &c->old->node[i]);
        if (!norm) continue;
        meg_value *bias = &c->new->value[c->map[norm->in[2]]];
        assert_non_null(strstr(bias->name, "bias"));
        bias->start = MEG_CONSTANT;
        bias->bound = smooth_bias;
    }
}

/* Does it pass a number that is added to a channel on as one that is added to each channel, but for the image's
 * border? A rectifier behind a batch norm passes nearly all. */
static inline bool smooth_shifts(const meg_graph *g, const meg_node *v)
{
    return smooth_is(v, "conv") || smooth_is(v, "dense") || smooth_is(v, "avgpool") ||
           smooth_is(v, "resize") || smooth_is(v, "conv_transpose") || smooth_norm(g, v);
}

/* Is all that is read of the value, there or further on, its difference from the mean of its channel? */
static inline bool smooth_is_centred(const meg_graph *g, int value)
{
    int readers = 0;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++) {
            if (g->node[i].in[k] != value) continue;
            const meg_node *v = &g->node[i];
            bool centres = smooth_is(v, "batchnorm") || smooth_is(v, "instancenorm");
            bool later = smooth_shifts(g, v) && smooth_is_centred(g, v->out[0]);
            if (k > 0 || !(centres || later)) return false;
            readers++;
        }
    return readers > 0;
}

static inline void smooth_idle_biases(meg_graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        bool sums = smooth_is(v, "conv") || smooth_is(v, "conv_transpose") ||
                    smooth_is(v, "dense") || smooth_is(v, "batchnorm");
        if (!sums || v->inputs < 3 || !smooth_is_centred(g, v->out[0])) continue;
        if (g->value[v->in[2]].kind == MEG_PARAMETER) g->value[v->in[2]].kind = MEG_FIXED;
    }
}

/* Takes the graph's place, which is freed. */
static inline meg_graph *smooth_network(meg_graph *g)
{
    smooth_copy c = {g, meg_graph_create(g->name), malloc((size_t)g->values * sizeof(int))};
    c.new->batch = g->batch;
    for (int i = 0; i < g->values; i++)
        c.map[i] = -1;
    for (int i = 0; i < g->nodes && c.new->error.status == MEG_OK; i++) {
        const meg_node *v = &g->node[i];
        int out = c.map[v->out[0]] = smooth_node(&c, v);
        for (int k = 1; k < v->outputs && out >= 0 && !smooth_is(v, "maxpool"); k++)
            c.map[v->out[k]] = c.new->node[c.new->nodes - 1].out[k];
    }
    if (c.new->error.status != MEG_OK) fail_msg("%s", c.new->error.message);
    smooth_biases(&c);
    smooth_idle_biases(c.new);
    c.new->losses = g->losses;
    for (int i = 0; i < g->losses; i++)
        c.new->loss[i] = (meg_loss){c.map[g->loss[i].value], g->loss[i].weight};
    c.new->correct = g->correct >= 0 ? c.map[g->correct] : -1;
    free(c.map);
    meg_graph_destroy(g);
    return c.new;
}

#endif
