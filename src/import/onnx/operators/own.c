/* Operators of ours by their own names. Two ways to say so:
 *
 *     notes       files of this framework: of a group of nodes that are one operator together, the last one
 *                 notes which (import/onnx/write/parts.c). The note wins: the group is read as that operator,
 *                 what led to it is not needed any more
 *     a domain    nodes of domain "megalith" are called as our operators are, and have their words in the
 *                 attribute "words": what captures networks writes what ONNX has no name for (roll, take, lstm)
 *
 * Inputs are the operator's: data as it has them, features on axis 1, then weights.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

static const char *const OWN[] = {"attention",   "adaptive_avgpool",
                                  "gather",      "max_unpool",
                                  "maxpool",     "layernorm",
                                  "groupnorm",   "instancenorm",
                                  "dropout",     "peak",
                                  "roll",        "take",
                                  "lift",        "lstm",
                                  "gru",         "weightnorm",
                                  "spectralnorm"};

static bool in_domain(const meg_onnx_node *n)
{
    return meg_bytes_is(n->domain, "megalith");
}

/* Losses and their like are no part of a file. */
static const char *domain_operator(const meg_onnx_node *n)
{
    const meg_op *op;
    for (int i = 0; (op = meg_op_at(i)); i++)
        if (meg_bytes_is(n->op, op->name) && !op->no_gradient && !op->per_step && !op->real_target)
            return op->name;
    return NULL;
}

static const char *own_operator(const meg_onnx_node *n)
{
    if (in_domain(n)) return domain_operator(n);
    meg_bytes note = meg_onnx_note(n, "megalith.op");
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++)
        if (meg_bytes_is(note, OWN[i])) return OWN[i];
    return NULL;
}

bool meg_onnx_is_own(const meg_onnx_node *n)
{
    return own_operator(n) != NULL;
}

/* The inputs become those of the whole group. */
static void take_inputs(meg_onnx_build *b, meg_onnx_node *n)
{
    meg_bytes s = meg_onnx_note(n, "megalith.inputs");
    meg_bytes *in = meg_pool_alloc(b->file->pool, MEG_INPUTS * sizeof *in);
    int count = 0;
    while (s.at < s.end && count < MEG_INPUTS) {
        const uint8_t *end = memchr(s.at, '\n', (size_t)(s.end - s.at));
        if (!end) end = s.end;
        in[count++] = (meg_bytes){s.at, end};
        s.at = end < s.end ? end + 1 : end;
    }
    if (!count) return;
    n->in = in;
    n->inputs = count;
}

void meg_onnx_find_own(meg_onnx_build *b)
{
    for (size_t i = 0; i < b->file->nodes; i++)
        if (meg_onnx_is_own(&b->file->node[i])) take_inputs(b, &b->file->node[i]);
}

/* Inputs behind the data are weights. */
static meg_status read_inputs(meg_onnx_build *b, const meg_onnx_node *n, const meg_op *op,
                              meg_onnx_layer *l)
{
    for (int i = 0; i < n->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (op->weights && i >= op->data_inputs && s && s->constant)
            MEG_TRY(b->error, meg_onnx_want_weight(b, n, i, &l->weight[l->weights++].symbol));
        else if (s && s->constant && strcmp(op->name, "lift") == 0)
            MEG_TRY(b->error, meg_onnx_lifted(b, n, meg_onnx_in(b, n, i), &l->in[l->inputs++]));
        else if (l->weights) return meg_onnx_refuse(b, n, "input %d must be a weight", i);
        else MEG_TRY(b->error, meg_onnx_data(b, n, i, &l->in[l->inputs++]));
    }
    return MEG_OK;
}

meg_status meg_onnx_read_own(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = own_operator(n)};
    meg_bytes words = in_domain(n) ? meg_onnx_text(n, "words") : meg_onnx_note(n, "megalith.words");
    if (meg_bytes_bytes(words) >= (int64_t)sizeof l.attrs || n->inputs > MEG_INPUTS)
        return meg_onnx_refuse(b, n, "its note is too long");
    meg_onnx_attr(&l, "%.*s", MEG_SPAN_TEXT(words));
    const meg_op *op = meg_op_find(l.op);
    MEG_TRY(b->error, read_inputs(b, n, op, &l));
    if (l.inputs < op->data_inputs || l.inputs > op->data_inputs_max)
        return meg_onnx_refuse(b, n, "%d inputs for %s", l.inputs, l.op);
    /* It was written with its features last. */
    l.front = strcmp(l.op, "layernorm") == 0 && !in_domain(n);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    const meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    const meg_node *v = y && y->value >= 0 ? &b->graph->node[b->graph->value[y->value].maker]
                                           : NULL;
    for (int i = 1; v && i < v->outputs; i++)
        meg_onnx_bind(b, n, i, v->out[i]);
    return MEG_OK;
}
