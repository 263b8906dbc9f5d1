/* Files of this framework: groups of nodes whose last one notes which operator they are together
 * (import/onnx/write/parts.c). The note wins: the group is read as that operator, what led to it is not
 * needed any more.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

static const char *const OWN[] = {
    "attention", "adaptive_avgpool", "gather",       "max_unpool", "maxpool",
    "layernorm", "groupnorm",        "instancenorm", "dropout",    "peak"};

static const char *own_operator(const meg_onnx_node *n)
{
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

meg_status meg_onnx_read_own(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = own_operator(n)};
    meg_bytes words = meg_onnx_note(n, "megalith.words");
    if (meg_bytes_bytes(words) >= (int64_t)sizeof l.attrs || n->inputs > MEG_INPUTS)
        return meg_onnx_refuse(b, n, "its note is too long");
    meg_onnx_attr(&l, "%.*s", MEG_SPAN_TEXT(words));
    for (; l.inputs < n->inputs; l.inputs++)
        MEG_TRY(b->error, meg_onnx_data(b, n, l.inputs, &l.in[l.inputs]));
    const meg_op *op = meg_op_find(l.op);
    if (l.inputs < op->data_inputs || l.inputs > op->data_inputs_max)
        return meg_onnx_refuse(b, n, "%d inputs for %s", l.inputs, l.op);
    l.front = strcmp(l.op, "layernorm") == 0; /* it was written with its features last */
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    const meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    const meg_node *v = y && y->value >= 0 ? &b->graph->node[b->graph->value[y->value].maker]
                                           : NULL;
    for (int i = 1; v && i < v->outputs; i++)
        meg_onnx_bind(b, n, i, v->out[i]);
    return MEG_OK;
}
