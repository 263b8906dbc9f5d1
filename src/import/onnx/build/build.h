/* A graph on its way out of an ONNX file: what all readers of operators share.
 *
 * Every name of the file is a symbol: a value of the graph, or a constant. A constant becomes a
 * parameter when an operator takes it for a weight.
 *
 * Files of transformers (and Keras) have features last, (n, t, c); operators here have them first,
 * (n, c, t). A symbol therefore has up to two values, and is transposed only when someone asks for
 * the one that is not there:
 *
 *     value   as the file has it          Conv, Reshape, Slice, ...
 *     front   the last axis moved to 1    MatMul by a weight, LayerNormalization, Softmax, ...
 *     either                              Relu, Add, ...
 */
#ifndef MEG_IMPORT_ONNX_BUILD_BUILD_H
#define MEG_IMPORT_ONNX_BUILD_BUILD_H

#include "graph/op.h"
#include "import/onnx/build/options.h"
#include "import/onnx/wire/file.h"

typedef struct meg_onnx_draw meg_onnx_draw;           /* random numbers: see fold/draws.c */
typedef struct meg_onnx_attention meg_onnx_attention; /* nodes: see operators/attention.c */

typedef enum meg_onnx_kind { /* of initializers: kinds.h */
    MEG_ONNX_UNSAID,
    MEG_ONNX_PARAMETER,
    MEG_ONNX_BUFFER,
    MEG_ONNX_CONSTANT
} meg_onnx_kind;

typedef struct meg_onnx_said { /* in our own files: a weight as files of weights have it */
    int rank;
    int64_t dims[MEG_AXES];
    bool turned;
} meg_onnx_said;

typedef struct meg_onnx_names { /* for a message */
    int count;
    const char *text; /* NULL: none */
} meg_onnx_names;

typedef struct meg_onnx_symbol {
    meg_bytes name;
    meg_bytes label;                  /* of a weight: what it was called before its axes moved */
    meg_onnx_kind kind;               /* of an initializer, and what else is known of it: */
    const meg_onnx_said *said;        /* NULL: nothing */
    bool guessed;                     /* its kind is only a guess, by its name */
    bool doubtful;                    /* and it is no layer's weight, but part of arithmetic */
    bool looked_at;                   /* for numbers that are not finite */
    bool folded;                      /* PyTorch's optimizer moved the axes of `label` */
    bool computed;                    /* or computed it of parameters */
    bool unsaved;                     /* files of weights do not have it */
    const meg_onnx_tensor *constant;  /* NULL: is none */
    bool turned;                      /* a constant: the transpose of this matrix */
    const struct meg_onnx_symbol *of; /* the same: whose numbers it has; NULL: its own */
    int value, front;                 /* of the graph; -1: none (yet) */
    struct meg_onnx_view *view;       /* where the batch is not the first axis: see view.h */
    meg_onnx_draw *draw;              /* of random numbers; NULL: is none */
    const meg_onnx_node *arithmetic;  /* of weights: see arithmetic.c; NULL: is none */
    int *parts, part_count;           /* of a sequence: what SequenceAt takes */
    int parameter;                    /* made of the constant; -1: none */
    int maker;                        /* node of the file; -1: none */
    int uses;                         /* inputs of needed nodes, outputs of the graph */
    int user;                         /* one of those nodes; -1: none */
    int rank;                         /* in the file, where it is not that of the value; 0: it is */
    bool parts_front;                 /* each has its last axis in front */
    bool needed, output;
    bool trained; /* a constant that a node made of a weight: it is one, too */
} meg_onnx_symbol;

typedef struct meg_onnx_build {
    meg_error *error;
    meg_onnx_file *file;
    meg_graph *graph;
    meg_onnx_options options;
    const meg_onnx_listener *listener;
    meg_onnx_symbol *symbol;
    int symbols, symbol_room;
    int *place; /* hash table of symbols */
    size_t places;
    bool *skip;                     /* nodes that are not needed, or went into another one */
    meg_onnx_attention **attention; /* of each node that ends one; NULL: does not */
    int still;                      /* batch normalisations without training, for a warning */
    int folded;                     /* convolutions that look as if they had swallowed one */
    int drops;
    int drawn_alone;                       /* masks of one sample: perhaps for all of a batch */
    int merged;                            /* scales of normalisations that several of them share */
    meg_onnx_names lost, counted, missing; /* weights without their names; computed; not there */
    meg_onnx_names reshaped; /* of which a part, or another shape, is trained in their stead */
    int64_t weights;         /* numbers that the file stores */
    int64_t computed;        /* and that its nodes made or went through: work.c */
} meg_onnx_build;

/* One row per ONNX operator. */
typedef struct meg_onnx_row {
    const char *op;
    const char *attributes; /* that are understood, between blanks; others are refused */
    int inputs, inputs_max;
    meg_status (*read)(meg_onnx_build *b, const meg_onnx_node *n);
} meg_onnx_row;

/* ---- symbols.c ---- */

/* Makes a symbol of every name of the file. */
meg_status meg_onnx_name_all(meg_onnx_build *b);

meg_onnx_symbol *meg_onnx_symbol_of(const meg_onnx_build *b, meg_bytes name); /* NULL: unknown */

/* A new symbol, of a name that nothing else has; there is room for three of each node. */
meg_status meg_onnx_define(meg_onnx_build *b, meg_bytes name, int maker,
                           const meg_onnx_tensor *constant);

/* The symbol of input i; NULL: absent. */
meg_onnx_symbol *meg_onnx_in(const meg_onnx_build *b, const meg_onnx_node *n, int i);

/* The only node that reads the node's first output; NULL: there are others, or an output. */
const meg_onnx_node *meg_onnx_after(const meg_onnx_build *b, const meg_onnx_node *n);

/* The symbol whose numbers a constant has. */
meg_onnx_symbol *meg_onnx_owner(const meg_onnx_build *b, meg_onnx_symbol *s);

/* ---- messages.c, work.c ---- */

/* Says what cannot be done with this node; names it. */
meg_status meg_onnx_refuse(const meg_onnx_build *b, const meg_onnx_node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void meg_onnx_warn(const meg_onnx_build *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a name to a list for a message, which has the first few and the count of all. */
void meg_onnx_list_name(meg_onnx_build *b, meg_onnx_names *list, meg_bytes name);

/* Counts numbers of constants that the node's reader goes through; refuses the node where they are
 * too many for the size of the file, so that time is bounded. */
meg_status meg_onnx_work(meg_onnx_build *b, const meg_onnx_node *n, int64_t numbers);
bool meg_onnx_affords(meg_onnx_build *b, int64_t numbers); /* the same; false: too many */

/* ---- inputs.c ---- */

/* Input i as a value of the graph, as the file has it, or with its last axis in front (of rank 2:
 * the same). */
meg_status meg_onnx_data(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);
meg_status meg_onnx_data_front(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);

meg_status meg_onnx_data_any(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);

/* Is only the value with its last axis in front at hand? */
bool meg_onnx_is_front(const meg_onnx_symbol *s);

/* The symbol's value as the file has it. */
meg_status meg_onnx_straighten(meg_onnx_build *b, meg_onnx_symbol *s, int *out);
/* With its last axis in front. */
meg_status meg_onnx_to_front(meg_onnx_build *b, meg_onnx_symbol *s, int *out);

/* Input i as a constant; *out is NULL where it is absent. */
meg_status meg_onnx_constant(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                             const meg_onnx_tensor **out);

/* Input i as a weight: the owner of a constant that is there, and is not turned. */
meg_status meg_onnx_want_weight(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                                meg_onnx_symbol **out);

typedef struct meg_onnx_list { /* of whole numbers: axes, a shape */
    int count;
    int64_t at[MEG_ONNX_RANK];
} meg_onnx_list;

/* A list that is an attribute (older sets) or input i (newer ones); count -1: absent. */
meg_status meg_onnx_list_of(const meg_onnx_build *b, const meg_onnx_node *n, const char *attribute,
                            int i, meg_onnx_list *out);

/* Input i as one number; `absent` where it is not there. */
meg_status meg_onnx_scalar(const meg_onnx_build *b, const meg_onnx_node *n, int i, double absent,
                           double *out);

/* Extents of a value as the file has them; returns the rank. */
int meg_onnx_dims(const meg_onnx_build *b, const meg_onnx_symbol *s, int64_t out[MEG_ONNX_RANK]);
int meg_onnx_rank(const meg_onnx_build *b, const meg_onnx_symbol *s);

/* ---- axes.c ---- */

/* An axis as the file counts, from the end if negative; -1: there is no such axis. */
int meg_onnx_axis(int64_t axis, int rank);

/* A transpose that exchanges axis 1 and another one; its own inverse. -1 on error. */
int meg_onnx_swap(meg_onnx_build *b, int x, int axis);

/* A reshape to these extents behind the batch; x itself where it has them. -1 on error. */
int meg_onnx_shaped(meg_onnx_build *b, int x, int rank, const int64_t dims[]);

/* ---- outputs.c ---- */

typedef struct meg_onnx_weight {
    meg_onnx_symbol *symbol; /* of a constant */
    bool transposed;         /* the file has (columns, rows) */
    double scale;            /* 0: none */
    bool flat;               /* its numbers in their order, whatever its axes */
} meg_onnx_weight;

typedef struct meg_onnx_layer { /* a node of the graph to be */
    const char *op;
    char attrs[512];
    int inputs, in[MEG_INPUTS];
    int weights;
    meg_onnx_weight weight[MEG_INPUTS];
    bool front; /* its output is that of the file with the last axis in front */
} meg_onnx_layer;

void meg_onnx_attr(meg_onnx_layer *l, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* adds words */

/* Adds the layer and binds the node's first output to it. */
meg_status meg_onnx_add(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l);

/* Binds output i of the node to a value, or the first to all that a symbol is. A constant becomes
 * one of its own: PyTorch writes Identity where two weights only begin with the same numbers. */
void meg_onnx_bind(meg_onnx_build *b, const meg_onnx_node *n, int i, int value);
void meg_onnx_bind_same(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s);

/* ---- leaves.c ---- */

/* The value of a constant: made once, shared by all that read it; a parameter, or fixed. */
meg_status meg_onnx_leaf(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_weight *w,
                         const meg_weight_spec *spec, int *out);

/* ---- names.c ---- */

/* The module of a node, as torch.export noted it; NULL: it did not. */
const char *meg_onnx_torch_scope(const meg_onnx_build *b, const meg_onnx_node *n);

/* A name for a node that the file does not have. */
const char *meg_onnx_fresh(const meg_onnx_build *b, const char *op);

/* A name for the layer that a node becomes, and what a weight was called before its axes moved. */
const char *meg_onnx_layer_name(const meg_onnx_build *b, const meg_onnx_node *n,
                                const meg_onnx_layer *l);
meg_bytes meg_onnx_weight_name(const meg_onnx_symbol *s);

#endif
