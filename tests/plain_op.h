/* One operator on whole tensors, through its plain-C kernels: what the golden test and
 * tools/dump_samples.c share. Operands are numbered as in graph/op.h; the real ones hold `real`,
 * float or double; all start as zeros.
 */
#ifndef MEG_TESTS_PLAIN_OP_H
#define MEG_TESTS_PLAIN_OP_H

#include "numbers_help.h"

#include <stdlib.h>
#include <string.h>

typedef struct plain_op {
    meg_graph *graph;
    const meg_node *node;
    int data; /* inputs before the weights */
    meg_dtype real;
    meg_dtype type[MEG_OPERANDS];
    meg_array t[MEG_OPERANDS]; /* data NULL: the node has none */
} plain_op;

/* "2x3x9x7 4@10": adds the inputs, sets their ids and returns how many. */
static inline int plain_inputs(meg_graph *g, const char *shapes, int in[MEG_INPUTS])
{
    int count = 0;
    while (*shapes && count < MEG_INPUTS) {
        int64_t dims[MEG_AXES];
        int rank = 0;
        char name[16], *end = NULL;
        for (; rank < MEG_AXES; shapes = end + 1) {
            dims[rank++] = strtoll(shapes, &end, 10);
            if (*end != 'x') break;
        }
        snprintf(name, sizeof name, "x%d", count);
        in[count++] = *end == '@' ? meg_graph_label(g, name, rank, dims)
                                  : meg_graph_input(g, name, rank, dims);
        shapes = end + strcspn(end, " ");
        shapes += strspn(shapes, " ");
    }
    return count;
}

static inline void plain_room(plain_op *p, int operand, meg_box box, meg_dtype type)
{
    p->type[operand] = type == MEG_F32 ? p->real : type;
    size_t bytes = (size_t)(meg_box_size(&box) * meg_dtype_bytes(p->type[operand]));
    p->t[operand] = (meg_array){box, calloc(1, bytes)};
}

/* The value that an operand of X, Y, DX or DY belongs to; -1: none (aux). */
static inline int plain_value(const plain_op *p, int operand)
{
    const meg_node *v = p->node;
    if (operand < MEG_Y) return operand < v->inputs ? v->in[operand] : -1;
    if (operand < MEG_AUX) return operand - MEG_Y < v->outputs ? v->out[operand - MEG_Y] : -1;
    if (operand >= MEG_DY && operand < MEG_DX)
        return operand - MEG_DY < v->outputs ? v->out[operand - MEG_DY] : -1;
    if (operand >= MEG_DX && operand < MEG_SCRATCH)
        return operand - MEG_DX < v->inputs ? v->in[operand - MEG_DX] : -1;
    return -1;
}

static inline meg_status plain_open(meg_error *e, const char *op, const meg_sample *s,
                                    meg_dtype real, plain_op *p)
{
    int in[MEG_INPUTS];
    *p = (plain_op){.graph = meg_graph_create("sample"), .real = real};
    p->data = plain_inputs(p->graph, s->shapes, in);
    if (meg_graph_add(p->graph, op, op, s->attrs ? s->attrs : "", p->data, in) < 0) {
        *e = p->graph->error;
        meg_graph_destroy(p->graph);
        return e->status;
    }
    p->node = &p->graph->node[0];
    for (int i = 0; i < MEG_OPERANDS; i++) {
        int id = plain_value(p, i);
        if (id >= 0) plain_room(p, i, p->graph->value[id].shape, p->graph->value[id].dtype);
    }
    meg_work whole = meg_op_whole(p->graph, p->node);
    for (int i = 0; i < p->node->op->auxes; i++) {
        meg_box box;
        meg_dtype type;
        p->node->op->aux(p->graph, p->node, &whole, i, &box, &type);
        plain_room(p, MEG_AUX + i, box, type);
    }
    return MEG_OK;
}

static inline void plain_close(plain_op *p)
{
    for (int i = 0; i < MEG_OPERANDS; i++)
        free(p->t[i].data);
    meg_graph_destroy(p->graph);
}

/* Runs a pass on the operands it reads and writes; false if the operator has none. */
static inline bool plain_run(plain_op *p, meg_pass pass)
{
    const meg_op *op = p->node->op;
    if (!meg_op_has(op, pass)) return false;
    meg_call c = {.graph = p->graph, .node = p->node, .moment = {.seed = 1, .step = 1}};
    c.work = meg_op_whole(p->graph, p->node);
    meg_mask used = meg_op_reads(op, pass) | meg_op_writes(op, pass);
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (used & MEG_BIT(i)) c.t[i] = p->t[i];
    meg_op_kernel(op, pass, p->real)(&c);
    return true;
}

static inline double plain_get(const plain_op *p, int operand, int64_t i)
{
    return number_get(p->type[operand], p->t[operand].data, i);
}

static inline void plain_set(plain_op *p, int operand, int64_t i, double value)
{
    number_set(p->type[operand], p->t[operand].data, i, value);
}

#endif
