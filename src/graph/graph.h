/* The graph: nodes and values. No device, no ranks, no plan.
 *
 *     value   one tensor: an input, a label, a weight, a state (running statistics), a fixed one (what
 *             nothing changes), or made by a node
 *     node    one application of an operator (graph/op.h) to values
 *
 * Nodes are kept in topological order: a node's inputs exist before it does. Shapes are those of
 * the whole batch, `batch` samples; meg_graph_rebatch infers them anew for another one.
 * Names are module paths ("layer1.0.conv1"); a weight's is its node's plus ".weight".
 *
 * Building is poisoned like NaN: after the first error every call returns -1 and the error stays.
 */
#ifndef MEG_GRAPH_GRAPH_H
#define MEG_GRAPH_GRAPH_H

#include "base/pool.h"
#include "base/status.h"
#include "graph/box.h"
#include "graph/stored.h"

enum {
    MEG_INPUTS = 8,
    MEG_OUTPUTS = 4,
    MEG_AUXES = 3,
    MEG_LOSSES = 4
};

typedef enum meg_kind {
    MEG_INPUT, /* samples */
    MEG_LABEL, /* what the losses compare with */
    MEG_PARAMETER,
    MEG_STATE, /* changed by forward in training, not by gradients: running statistics */
    MEG_FIXED, /* changed by nobody: constants, buffers, frozen weights, weights of classes */
    MEG_MADE
} meg_kind;

/* Parameters, states, fixed values: what lasts from step to step. */
static inline bool meg_kind_lasts(meg_kind kind)
{
    return kind == MEG_PARAMETER || kind == MEG_STATE || kind == MEG_FIXED;
}

/* How a parameter or state starts. Uniform and normal draw from the counter-based generator, keyed
 * by the value's name and the element's global index. */
typedef enum meg_start {
    MEG_ZEROS,
    MEG_ONES,
    MEG_UNIFORM,
    MEG_NORMAL,
    MEG_CONSTANT
} meg_start;

typedef struct meg_value {
    int id;
    const char *name;
    meg_kind kind;
    meg_dtype dtype;        /* MEG_F32 means real: a device may compute in MEG_F64 */
    meg_box shape;          /* whole, from the origin */
    int rank;               /* axes in files: 1 to 5; of what lasts, 0: one number */
    int64_t dims[MEG_AXES]; /* their extents, in file order (a dense weight after flatten: 2) */
    int maker;              /* node; -1: none */
    meg_start start;        /* parameters, states */
    double bound;      /* MEG_UNIFORM: (-bound, bound); deviation of MEG_NORMAL; MEG_CONSTANT */
    meg_stored stored; /* parameters, states: takes the place of `start` where there is data */
    bool unsaved;      /* fixed: a constant of the network's code, which no file of weights has */
    bool turned;       /* files of weights have the transpose of this matrix, `dims` are theirs */
} meg_value;

typedef struct meg_node {
    int id;
    const char *name;
    const struct meg_op *op;
    void *attr; /* the op's attribute struct */
    int inputs, in[MEG_INPUTS];
    int outputs, out[MEG_OUTPUTS];
} meg_node;

typedef struct meg_loss {
    int value; /* of one element: this part of the batch's share of the loss */
    double weight;
} meg_loss;

struct meg_graph {
    meg_pool *pool;
    const char *name;
    int64_t batch;
    int nodes, values;
    meg_node *node; /* arrays grow: keep ids, not pointers, across additions */
    meg_value *value;
    size_t node_room, value_room;
    int *by_name; /* (name_room) values by the hash of their name: id + 1, 0: free */
    size_t name_room;
    int losses;
    meg_loss loss[MEG_LOSSES];
    int correct;                      /* the value that counts right answers, or, of real targets,
                                         is their mean absolute error; -1: none */
    meg_error error;                  /* the first, if any */
    void *owner;                      /* of the public interface: its context */
    int outputs, output[MEG_OUTPUTS]; /* of a graph from a file, in its order; logits, if it has
                                         a loss; of an entry, what meg_graph_results says of its source */
    bool last[MEG_OUTPUTS];           /* in the file, axis 1 of that output is the last one */
    void *file;                       /* that `stored` numbers lie in; copies of the graph borrow */
    void (*close_file)(void *file);
};

/* What meg_op.weights says of each weight that a layer brings along. */
typedef struct meg_weight_spec {
    const char *suffix; /* "weight", "bias", "running_mean" */
    meg_kind kind;      /* one that lasts */
    meg_box shape;      /* conv: (filters, channels per group, d, h, w); per channel: on c */
    int rank;
    int64_t dims[MEG_AXES]; /* as files and PyTorch have them */
    meg_start start;
    double bound;
} meg_weight_spec;

meg_graph *meg_graph_create(const char *name);
void meg_graph_destroy(meg_graph *g);
meg_graph *meg_graph_copy(const meg_graph *g); /* deep; `owner` is kept */

/* Leaves. `rank` counts n: an image has rank 4. */
int meg_graph_input(meg_graph *g, const char *name, int rank, const int64_t dims[]);
int meg_graph_label(meg_graph *g, const char *name, int rank, const int64_t dims[]); /* i32 */
/* An input of whole numbers (MEG_I32: ids of tokens) has no channels, as labels have none: rank 2
 * is n w. No gradient flows to it. */
int meg_graph_input_typed(meg_graph *g, const char *name, meg_dtype dtype, int rank,
                          const int64_t dims[]);
int meg_graph_parameter(meg_graph *g, const char *name, const meg_weight_spec *spec);

/* Adds a node. Weights that the operator wants beyond `in` are made with it ("<name>.<suffix>").
 * Returns the first output's value; -1 on error. An empty name is replaced by op and number. */
int meg_graph_add(meg_graph *g, const char *op, const char *name, const char *attrs, int inputs,
                  const int in[]);

/* Cuts x into `parts` equal parts along an axis of its file (1: channels): that many slices, named
 * "<x>.part0" and on. Sets `out`, all -1 on error. */
void meg_graph_split(meg_graph *g, int x, int axis, int parts, int out[]);

/* Adds a node of the same operator, attributes and name as `like` (of another graph). */
int meg_graph_add_like(meg_graph *g, const meg_node *like, const int in[]);

/* Adds a leaf (input, label, parameter, state, fixed) like one of another graph. */
int meg_graph_add_leaf_like(meg_graph *g, const meg_value *like);

/* Makes labels (or real targets, where the loss wants such), the denominator and the loss of
 * `logits`, and counts right answers, if there are any. Options are the loss's; weighted=1 adds a
 * fixed value "<loss>.weight" on c, which starts with ones: the weights of the classes (of positives, for
 * bce_logits). */
int meg_graph_add_loss(meg_graph *g, const char *op, const char *attrs, int logits, double weight);

/* What the network is asked for: the logits of its losses; without one, its outputs, or what the last node
 * makes. Returns how many. */
int meg_graph_results(const meg_graph *g, int out[MEG_OUTPUTS]);

bool meg_graph_late(const meg_graph *g); /* Is a loss of it computed outside? */
/* Does the value come when all forwards of a step are done? The target of a loss outside, which nothing else reads. */
bool meg_graph_awaits(const meg_graph *g, int value);

/* Infers all shapes for another batch. */
meg_status meg_graph_rebatch(meg_graph *g, meg_error *e, int64_t batch);

int64_t meg_graph_trainable(const meg_graph *g);                /* elements of all parameters */
int meg_graph_find_value(const meg_graph *g, const char *name); /* -1: none */
/* Numbers that a leaf of whole numbers may have, 0 and on: rows of the smallest table in which its ids are
 * looked up, classes that the losses over its labels tell apart. 0: any. */
int64_t meg_graph_kinds(const meg_graph *g, int value);
int meg_graph_consumers(const meg_graph *g, int value); /* how many (node, input) read it */

#endif
