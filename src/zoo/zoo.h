/* The zoo: networks by name. A family of models is one file of this folder and one line in
 * models.def; a model is one row of its family's table.
 *
 * Layers carry the names that torchvision (or tools/torch_models.py) gives its modules, so that
 * weights are copied by name in both directions. Builders stay simple: convolution, normalisation
 * and rectifier are nodes of their own; fusing them is the planner's business.
 */
#ifndef MEG_ZOO_ZOO_H
#define MEG_ZOO_ZOO_H

#include "base/option.h"
#include "graph/graph.h"

typedef struct meg_model {
    const char *name; /* NULL ends a family's table */
    const char *doc, *paper;
    const meg_param *params; /* of a struct that begins with meg_zoo_common */
    size_t option_bytes;
    bool tokens; /* a sample is a row of ids below `classes`, not an image */
    /* Adds the layers to the graph and returns the logits; -1 with g->error set on error. Softmax
     * cross entropy follows, unless the builder added losses of its own. */
    int (*build)(meg_graph *g, const struct meg_model *m, const void *options, int image);
    /* Sets how the weights start, if not as the operators would have it; may be NULL. */
    void (*start)(meg_graph *g, const void *options);
    const void *layout; /* of the family: what tells its models apart */
} meg_model;

typedef struct meg_zoo_common { /* options of all models, the first two rows of their tables */
    meg_axes image;             /* channels first: CxHxW or CxDxHxW; of tokens: how many */
    int64_t classes;            /* of tokens: how many there are to tell apart */
} meg_zoo_common;

#define MEG_ZOO_PARAMS(image_, classes_)                                                           \
    {"image",                                                                                      \
     MEG_PARAM_AXES,                                                                               \
     offsetof(meg_zoo_common, image),                                                              \
     image_,                                                                                       \
     "extents of a sample, CxHxW or CxDxHxW",                                                      \
     NULL,                                                                                         \
     1,                                                                                            \
     1 << 24},                                                                                     \
    {                                                                                              \
        "classes", MEG_PARAM_INT, offsetof(meg_zoo_common, classes), classes_,                     \
            "classes to tell apart", NULL, 2, 1 << 24                                              \
    }

#define MEG_ZOO_TOKEN_PARAMS(tokens_, classes_)                                                    \
    {                                                                                              \
        "tokens",                                                                                  \
        MEG_PARAM_AXES,                                                                            \
        offsetof(meg_zoo_common, image),                                                           \
        tokens_,                                                                                   \
        "tokens of a sample",                                                                      \
        NULL,                                                                                      \
        1,                                                                                         \
        1 << 24},                                                                                  \
    {                                                                                              \
        "classes", MEG_PARAM_INT, offsetof(meg_zoo_common, classes), classes_, "kinds of tokens",  \
            NULL, 2, 1 << 24                                                                       \
    }

const meg_model *meg_zoo_find(const char *name); /* NULL: unknown */
const meg_model *meg_zoo_at(int i);              /* NULL past the end */
const char *meg_zoo_name(int i);                 /* likewise */

/* The network `model` for one sample, its loss included; its input is "image" or "tokens".
 * meg_graph_rebatch gives it a batch. */
meg_status meg_zoo_build(meg_error *e, const char *model, const char *options, meg_graph **out);

/* ---- for builders ---- */

typedef struct meg_module { /* where layers go */
    meg_graph *graph;
    const char *path; /* "layer1.0", put before the names of layers; "": nothing */
} meg_module;

typedef struct meg_zoo_conv { /* padded by kernel/2: the extent is that of the input / stride */
    int64_t filters;
    int kernel, stride;
    bool bias;
} meg_zoo_conv;

/* One layer on `x`; returns its value. */
int meg_zoo_layer(const meg_module *m, const char *op, const char *name, const char *attrs, int x);
int meg_zoo_add_conv(const meg_module *m, const char *name, meg_zoo_conv c, int x);
int meg_zoo_add_dense(const meg_module *m, const char *name, int64_t units, int x);
int meg_zoo_add_dropout(const meg_module *m, const char *name, double rate, int x); /* 0: none */
int meg_zoo_sum(const meg_module *m, const char *name, int a, int b);
/* Normalises and rectifies; the rectifier's name is "relu" + what follows "bn". */
int meg_zoo_bn_relu(const meg_module *m, const char *bn, const char *attrs, int x);

/* All weights of an operator ("conv", "dense") start normal, with deviation gain / sqrt(fan), and
 * its biases at 0: He et al., "Delving deep into rectifiers", ICCV 2015. */
typedef enum meg_fan {
    MEG_FAN_IN,
    MEG_FAN_OUT,
    MEG_FAN_ONE
} meg_fan;
void meg_zoo_start_normal(meg_graph *g, const char *op, meg_fan fan, double gain);

#endif
