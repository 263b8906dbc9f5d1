/* Operators. One const descriptor each, in one file of ops/, one line in ops/ops.def.
 *
 * An operator is an iteration space: output box x sum box (input channels and taps of a
 * convolution, pixels of a mean, classes of a softmax). A *work* is a part of both:
 *
 *     cut of the output box -> the value is cut, inputs get halos
 *     cut of the sum box    -> the value is partial
 *     cut of neither        -> the value is copied
 *
 * `need` says which box of an input a work reads; it may stick out of the value, and the overhang
 * is padding. From it alone follow halos, redistribution, streaming tiles and, by its adjoint,
 * every backward message.
 *
 * Plain-C kernels, written once over `real` (ops/common/real.h) and compiled for float and double, are
 * the definition that every device is judged against. They *set* what they write: outputs over the
 * work's box, gradients over the whole box of the tensor they are given (zero where nothing
 * contributes); sums of several contributions are the plan's business.
 */
#ifndef MEG_GRAPH_OP_H
#define MEG_GRAPH_OP_H

#include "base/option.h"
#include "base/random.h"
#include "graph/graph.h"

typedef struct meg_work {
    meg_box out, sum;
} meg_work;

/* Passes. FORWARD trains (batch statistics, dropout on); EVAL does not; REPLAY recomputes the
 * outputs in backward from inputs and aux (kept statistics: it never reduces); STATE adds the
 * work's share to the running statistics, once per step; BACKWARD makes the gradients of the data inputs (and
 * of small weights that fall out of it: batch norm); WEIGHT those of the weights. */
typedef enum meg_pass {
    MEG_FORWARD,
    MEG_EVAL,
    MEG_REPLAY,
    MEG_STATE_PASS,
    MEG_BACKWARD,
    MEG_WEIGHT,
    MEG_PASSES
} meg_pass;

/* Operands of a kernel, by position. A gradient has its value's box. */
enum {
    MEG_X = 0,                         /* inputs, weights among them        */
    MEG_Y = MEG_X + MEG_INPUTS,        /* outputs                           */
    MEG_AUX = MEG_Y + MEG_OUTPUTS,     /* small extras kept for backward    */
    MEG_DY = MEG_AUX + MEG_AUXES,      /* gradients of the outputs          */
    MEG_DX = MEG_DY + MEG_OUTPUTS,     /* gradients of the inputs           */
    MEG_SCRATCH = MEG_DX + MEG_INPUTS, /* working memory of the kernel      */
    MEG_OPERANDS
};

typedef uint32_t meg_mask; /* of operands */
#define MEG_BIT(operand) ((meg_mask)1 << (operand))

typedef struct meg_moment { /* when and where in the data set a kernel runs */
    uint64_t seed, step;
    int64_t sample;  /* global index, within the step's batch, of the graph's sample 0 */
    int64_t samples; /* of the whole step; 0: those of the graph */
} meg_moment;

typedef struct meg_call { /* what a plain-C kernel is given */
    const meg_graph *graph;
    const meg_node *node;
    meg_work work;
    meg_array t[MEG_OPERANDS]; /* data == NULL: this pass has no such operand */
    meg_moment moment;
} meg_call;

typedef void meg_kernel_fn(const meg_call *c);

typedef struct meg_kernels {
    meg_kernel_fn *run[MEG_PASSES]; /* NULL: the op has no such pass; EVAL falls back to FORWARD,
                                       REPLAY to FORWARD */
} meg_kernels;

typedef struct meg_sample { /* a case of the conformance tests */
    const char *shapes;     /* of the data inputs: "2x3x9x7 2x4x9x7"; "4@10": labels below 10 */
    const char *attrs;
} meg_sample;

typedef struct meg_op {
    const char *name, *onnx, *doc, *paper; /* onnx, paper: NULL if none */
    const meg_param *params;               /* NULL: no attributes */
    size_t attr_bytes;
    int data_inputs, data_inputs_max; /* before the weights; max > min for add, concat */

    /* The weights after the data inputs: how many; sets `out`. NULL: none. Optional ones (bias)
     * depend on the attributes. Called with the data inputs in place. */
    int (*weights)(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS]);

    /* Checks the inputs' shapes and sets rank, dims, shape and dtype of the outputs (and
     * v->outputs). Messages name the node. */
    meg_status (*infer)(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS]);

    meg_box (*sum)(const meg_graph *g, const meg_node *v); /* the whole sum box; NULL: nothing */
    meg_box (*need)(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
    bool max; /* its "sum" is a maximum, which carries no gradient */

    double (*flops)(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

    meg_mask reads[MEG_PASSES], writes[MEG_PASSES]; /* weights and aux included */
    /* Operands of those masks that this node does not touch (add without relu: Y). May be NULL. */
    meg_mask (*skips)(const meg_node *v, meg_pass p);
    int auxes;
    void (*aux)(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type); /* MEG_F32 means real */
    bool cheap;                   /* bandwidth-bound: recomputing it costs little */
    /* Its plain kernels let Y lie on X0, and DX0 on DY: they sum first, if at all, and then read
     * element i before they write element i. */
    bool overwrites;
    bool
        state_first; /* its STATE pass looks at weights and states alone: every rank that holds them makes the same of
                         them, once, before the first forward of a step, and nothing is summed */
    bool per_step;    /* its value sums over the micro-batches before anyone reads it */
    bool no_gradient; /* its outputs carry none (counts) */
    bool real_target; /* a loss whose labels are real and have the shape of its first input */
    bool late;        /* a loss whose target comes when all forwards of the step are done */
    bool report;      /* is no part of what the network is: fingerprints leave it out */

    /* What plans and devices ask of an operator, so that they need not know any by name. */
    size_t
        relu_at; /* 1 + offset of the attribute (bool) by which it rectifies its output; 0: none */
    size_t
        norm_at; /* 1 + offset of the attribute (int64_t), the samples that it normalises together,
                        of the whole batch's; 0: it does not look at other samples */
    bool rectifier; /* is relu: may melt into what makes its input */
    bool flattens;  /* is no work of its own in front of an operator that... */
    bool takes_all; /* ...reads channels and space as one axis */
    bool linear;    /* in its input's channels: filters may be cut, or the sum over channels */
    bool selects;   /* channels of its input: parts of a product that is cut by heads */
    bool
        by_pixels; /* each pixel for itself, or their sum: need not be taken apart to be cut there */
    bool adds;     /* its inputs of equal shape get the same gradient */
    bool looks_up;   /* its first input are numbers of rows of its second */
    bool by_sigmoid; /* a loss of logits whose chances are their sigmoids */

    /* May this axis of the output be cut, and in multiples of what? 0: no. NULL: any, by 1. */
    int64_t (*grain)(const meg_graph *g, const meg_node *v, int axis);

    /* Replaces the node by its phases (batch norm: mean, var, norm) in a graph under
     * construction; returns the value that takes the place of output 0. NULL: has none. */
    int (*expand)(meg_graph *g, const meg_node *v, const int in[]);

    const meg_kernels *f32, *f64;
    const meg_sample *samples; /* ends with .shapes == NULL */
} meg_op;

const meg_op *meg_op_find(const char *name); /* NULL: unknown */
const meg_op *meg_op_at(int i);              /* NULL past the end */
const char *meg_op_name(int i);              /* likewise */

/* need, clipped to the input; empty where the work is empty */
meg_box meg_op_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
meg_work meg_op_whole(const meg_graph *g, const meg_node *v); /* all of its work */
meg_kernel_fn *meg_op_kernel(const meg_op *op, meg_pass pass, meg_dtype real);
bool meg_op_has(const meg_op *op, meg_pass pass);
meg_mask meg_op_reads(const meg_op *op, meg_pass pass); /* with the fallbacks of EVAL, REPLAY */
meg_mask meg_op_writes(const meg_op *op, meg_pass pass);
meg_mask meg_node_reads(const meg_node *v, meg_pass pass); /* less absent inputs and skips */
meg_mask meg_node_writes(const meg_node *v, meg_pass pass);
const char *meg_pass_name(meg_pass pass); /* "fwd" "eval" "replay" "state" "bwd" "wgt" */

#endif
