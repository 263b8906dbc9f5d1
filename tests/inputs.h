/* A network with several inputs, read in several stages, and several losses with targets of their own:
 *
 *     image --- a (conv) -- b (tanh) --+-- both -- c (conv) -- d (batchnorm) --+-- pixels: loss per pixel
 *     more ----------------------------+                                       |
 *     ids  --- words (embedding) -- told (gap) --------------------------------+-- sum -- head:  loss, target=kind
 *     meta --- facts (dense) --------------------------------------------------+       +- other: loss, target=sort
 *                                                                                      +- where: mse, target=where
 */
#ifndef TESTS_INPUTS_H
#define TESTS_INPUTS_H

#include "ranks.h"

static inline int inputs_layer(meg_graph *g, const char *op, const char *name, const char *attrs,
                               int x)
{
    return meg_graph_add(g, op, name, attrs, 1, (int[]){x});
}

static inline meg_graph *inputs_network(bool norm)
{
    meg_graph *g = meg_graph_create("inputs");
    int image = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 8, 6});
    int more = meg_graph_input(g, "more", 4, (int64_t[]){1, 2, 8, 6});
    int meta = meg_graph_input(g, "meta", 2, (int64_t[]){1, 7});
    int ids = meg_graph_input_typed(g, "ids", MEG_I32, 2, (int64_t[]){1, 5});
    int a = inputs_layer(g, "conv", "a", "filters=4 kernel=3 pad=1", image);
    int b = inputs_layer(g, "tanh", "b", "", a);
    int both = meg_graph_add(g, "concat", "both", "", 2, (int[]){b, more});
    int c = inputs_layer(g, "conv", "c", "filters=4 kernel=3 pad=1", both);
    int d = norm ? inputs_layer(g, "batchnorm", "d", "", c) : inputs_layer(g, "tanh", "d", "", c);
    int words = inputs_layer(g, "embedding", "words", "vocabulary=11 features=4", ids);
    int told = inputs_layer(g, "gap", "told", "", words);
    int facts = inputs_layer(g, "dense", "facts", "units=4", meta);
    int seen = inputs_layer(g, "gap", "seen", "", d);
    int sum = meg_graph_add(g, "add", "sum", "", 3, (int[]){seen, told, facts});
    meg_graph_add_loss(g, "softmax_xent", "target=kind",
                       inputs_layer(g, "dense", "head", "units=5", sum), 1);
    meg_graph_add_loss(g, "softmax_xent", "target=sort",
                       inputs_layer(g, "dense", "other", "units=5", sum), 0.5);
    meg_graph_add_loss(g, "mse", "target=where", inputs_layer(g, "dense", "place", "units=3", sum),
                       0.7);
    meg_graph_add_loss(g, "softmax_xent", "target=marks",
                       inputs_layer(g, "conv", "pixels", "filters=3 kernel=1", d), 0.3);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

typedef struct inputs_plan {
    const char *one, *more; /* the plan of one rank, and what many add to it */
    int ranks, samples;
} inputs_plan;

static const inputs_plan inputs_plans[] = {
    {"batch=4 norm=2", "micro=2", 1, 0},
    {"batch=4 norm=2", "replicas=2", 2, 0},
    {"batch=12 norm=2 micro=2", "replicas=3", 3, 14}, /* with a partial batch, then evaluation */
    /* inputs that only late stages read; an image that the first reads, its labels in the last */
    {"batch=4 norm=2", "stages=2 micro=2 level=layer assign=both", 2, 0},
    {"batch=4 norm=2", "stages=3 micro=2 level=layer assign=both,seen", 3, 0},
    {"batch=8 norm=2 micro=4", "stages=3 schedule=1f1b level=layer assign=both,words", 3, 10},
    {"batch=8 norm=2", "stages=2 micro=4 schedule=zb_h1 level=layer assign=both", 2, 0},
    {"batch=8 norm=2", "stages=2 micro=4 schedule=chimera level=layer assign=both", 2, 0},
    {"batch=8 norm=2", "stages=3 micro=4 schedule=mast level=layer assign=both,seen", 3, 0},
    {"batch=8 norm=2", "stages=3 micro=4 schedule=mast level=layer assign=both,seen replicas=2", 6,
     0},
    {"batch=8 norm=2",
     "stages=4 chunks=2 micro=4 schedule=interleaved level=layer "
     "assign=both,d,sum",
     2, 0},
    {"batch=4 norm=2", "mesh=2x1", 2, 0},
    {"batch=4 norm=2", "mesh=2x2", 4, 0},
    {"batch=4 norm=2", "mesh=c2", 2, 0},
    {"batch=4 norm=2", "mesh=1x2 stages=2 micro=2 level=layer assign=both replicas=2", 8, 0},
    {"batch=8 norm=2", "mesh=2x1,1x2 stages=2 micro=2 schedule=mast level=layer assign=both", 4, 0},
    {"batch=4 norm=2", "mesh=2x1 recompute=segments level=layer", 2, 0},
    {"batch=4 norm=2", "replicas=2 zero=3", 2, 0},
};

enum {
    INPUTS_PLANS = sizeof inputs_plans / sizeof *inputs_plans
};

#endif
