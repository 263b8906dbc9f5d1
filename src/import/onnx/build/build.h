/* A graph on its way out of an ONNX file: what onnx_read.c and the operators (onnx_ops.c and its
 * neighbours) share.
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

typedef struct meg_onnx_draw meg_onnx_draw;           /* random numbers: see onnx_draws.c */
typedef struct meg_onnx_attention meg_onnx_attention; /* nodes: see onnx_attention.c */

typedef enum meg_onnx_kind { /* of initializers: onnx_kinds.c */
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
    meg_span name;
    meg_span label;                   /* of a weight: what it was called before its axes moved */
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
    struct meg_onnx_view *view;       /* where the batch is not the first axis: see onnx_view.c */
    meg_onnx_draw *draw;              /* of random numbers; NULL: is none */
    const meg_onnx_node *arithmetic;  /* of weights: see onnx_arithmetic.c; NULL: is none */
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
    int drawn_alone;  /* masks of one sample: perhaps for all of a batch */
    int merged;                            /* scales of normalisations that several of them share */
    meg_onnx_names lost, counted, missing; /* weights without their names; computed; not there */
    meg_onnx_names reshaped; /* of which a part, or another shape, is trained in their stead */
    int64_t weights;                       /* numbers that the file stores */
    int64_t computed; /* and that its nodes made or went through: onnx_fold.c */
} meg_onnx_build;

/* One row per ONNX operator. */
typedef struct meg_onnx_row {
    const char *op;
    const char *attributes; /* that are understood, between blanks; others are refused */
    int inputs, inputs_max;
    meg_status (*read)(meg_onnx_build *b, const meg_onnx_node *n);
} meg_onnx_row;

/* What the file says of its initializers, after find_needs; and what has to be told of them when the
 * graph is there: see onnx_kinds.c. */
meg_status meg_onnx_find_kinds(meg_onnx_build *b);
void meg_onnx_tell_kinds(meg_onnx_build *b);
bool meg_onnx_is_initializer(const meg_onnx_symbol *s); /* NULL is none */
meg_status meg_onnx_read_exported(meg_onnx_build *b,
                                  meg_span signature); /* PyTorch's: onnx_torch.c */
void meg_onnx_read_script(meg_onnx_build *b);

/* Initializers of which nothing is said and that can have no gradient are buffers: onnx_smooth.c. */
void meg_onnx_find_smooth(meg_onnx_build *b);
bool meg_onnx_nameless(meg_span s); /* what PyTorch's exporters call the numbers they computed */
void meg_onnx_list_name(meg_onnx_build *b, meg_onnx_names *list, meg_span name);

bool meg_onnx_is_fused(const meg_onnx_node *n); /* PyTorch's optimizer noted a batch norm inside */

/* A constant beside data, of which only a name says that it is trained. */
void meg_onnx_doubt(meg_onnx_build *b, meg_onnx_symbol *s);

/* Numbers that are trained, as the file has it or by rule; buffers that files of weights have. */
bool meg_onnx_is_weight(const meg_onnx_symbol *s);
bool meg_onnx_is_buffer(const meg_onnx_symbol *s);

/* Tables of rows; each ends with a row without op. */
extern const meg_onnx_row meg_onnx_layers[], meg_onnx_products[], meg_onnx_norms[],
    meg_onnx_points[], meg_onnx_functions[], meg_onnx_masks[], meg_onnx_shapes[],
    meg_onnx_constants[], meg_onnx_helpers[], meg_onnx_draws[], meg_onnx_reduces[];

const meg_onnx_row *meg_onnx_row_of(const meg_onnx_node *n); /* NULL: there is none */

/* Refuses the file where operators are not supported; names all of them: see onnx_lacks.c. */
meg_status meg_onnx_check_operators(meg_onnx_build *b);

/* Groups of nodes that this framework wrote for one operator: see onnx_own.c. */
void meg_onnx_find_own(meg_onnx_build *b);
bool meg_onnx_is_own(const meg_onnx_node *n);
meg_status meg_onnx_read_own(meg_onnx_build *b, const meg_onnx_node *n);

/* Makes one node of groups that are one operator here. */
void meg_onnx_find_patterns(meg_onnx_build *b);

meg_onnx_symbol *meg_onnx_symbol_of(const meg_onnx_build *b, meg_span name); /* NULL: unknown */

/* A new symbol, of a name that nothing else has; there is room for two of each node. */
meg_status meg_onnx_define(meg_onnx_build *b, meg_span name, int maker,
                           const meg_onnx_tensor *constant);

/* The symbol of input i; NULL: absent. */
meg_onnx_symbol *meg_onnx_in(const meg_onnx_build *b, const meg_onnx_node *n, int i);

/* The only node that reads the node's first output; NULL: there are others, or an output. */
const meg_onnx_node *meg_onnx_after(const meg_onnx_build *b, const meg_onnx_node *n);

/* Input i as a value of the graph, as the file has it, or with its last axis in front (of rank 2:
 * the same). */
meg_status meg_onnx_data(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);
meg_status meg_onnx_data_front(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);

meg_status meg_onnx_data_any(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out);

/* Is only the value with its last axis in front at hand? */
bool meg_onnx_is_front(const meg_onnx_symbol *s);

/* The symbol's value as the file has it. */
meg_status meg_onnx_straighten(meg_onnx_build *b, meg_onnx_symbol *s, int *out);

/* Input i as a constant; *out is NULL where it is absent. */
meg_status meg_onnx_constant(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                             const meg_onnx_tensor **out);

/* The symbol whose numbers a constant has. */
meg_onnx_symbol *meg_onnx_owner(const meg_onnx_build *b, meg_onnx_symbol *s);

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

/* Says what cannot be done with this node; names it. */
meg_status meg_onnx_refuse(const meg_onnx_build *b, const meg_onnx_node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void meg_onnx_warn(const meg_onnx_build *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

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

/* The value of a constant: made once, shared by all that read it; a parameter, or fixed. */
meg_status meg_onnx_leaf(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_weight *w,
                         const meg_weight_spec *spec, int *out);

/* The module of a node, as torch.export noted it; NULL: it did not. */
const char *meg_onnx_torch_scope(const meg_onnx_build *b, const meg_onnx_node *n);

/* A name for a node that the file does not have. */
const char *meg_onnx_fresh(const meg_onnx_build *b, const char *op);

/* A layer of one input that works point by point, in either order of the axes. */
meg_status meg_onnx_point(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l);
bool meg_onnx_is_function(const meg_onnx_node *n); /* of the table in onnx_functions.c */

/* Data as a mask: 1 where it is not 0. */
meg_status meg_onnx_mask_of(meg_onnx_build *b, const meg_onnx_node *n);

/* Inputs i and k, if both are data, must have the same axes. */
meg_status meg_onnx_line_up(const meg_onnx_build *b, const meg_onnx_node *n, int i, int k);
void meg_onnx_widest_first(const meg_onnx_build *b, int in[2]);

/* A constant that is spread over another value, as a parameter, or as it is. */
meg_status meg_onnx_spread(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s, int other,
                           int *out);

/* Entries of an axis of data behind the batch, named by a constant: see onnx_entries.c. */
meg_status meg_onnx_gather_entries(meg_onnx_build *b, const meg_onnx_node *n, int x, int axis);
meg_status meg_onnx_read_expand(meg_onnx_build *b, const meg_onnx_node *n);

/* Adds the layer and binds the node's first output to it. */
meg_status meg_onnx_add(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l);

/* Binds output i of the node to a value, or the first to all that a symbol is. A constant becomes
 * one of its own: PyTorch writes Identity where two weights only begin with the same numbers. */
void meg_onnx_bind(meg_onnx_build *b, const meg_onnx_node *n, int i, int value);
void meg_onnx_bind_same(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s);

/* Extents of a value as the file has them; returns the rank. */
int meg_onnx_dims(const meg_onnx_build *b, const meg_onnx_symbol *s, int64_t out[MEG_ONNX_RANK]);
int meg_onnx_rank(const meg_onnx_build *b, const meg_onnx_symbol *s);

/* A transpose that exchanges axis 1 and another one; its own inverse. -1 on error. */
int meg_onnx_swap(meg_onnx_build *b, int x, int axis);

/* A reshape to these extents behind the batch; x itself where it has them. -1 on error. */
int meg_onnx_shaped(meg_onnx_build *b, int x, int rank, const int64_t dims[]);

/* Resolves 0 and -1 of a new shape; false: it does not fit. */
bool meg_onnx_resolve(const int64_t from[], int rank, bool zeros, meg_onnx_list *to);

/* Reshape, Squeeze, Unsqueeze, Flatten of a weight: the same numbers, other extents. */
meg_status meg_onnx_reshape_weight(meg_onnx_build *b, const meg_onnx_node *n);

/* Slice of a weight that takes all of it: learned positions, up to the tokens that there are. */
meg_status meg_onnx_slice_weight(meg_onnx_build *b, const meg_onnx_node *n);

/* An axis as the file counts, from the end if negative; -1: there is no such axis. */
int meg_onnx_axis(int64_t axis, int rank);

#endif
