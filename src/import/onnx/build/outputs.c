/* A layer becomes a node of the graph, and a name of the file its output: see build.h. */
#include "import/onnx/build/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void meg_onnx_attr(meg_onnx_layer *l, const char *format, ...)
{
    size_t used = strlen(l->attrs);
    va_list args;
    va_start(args, format);
    vsnprintf(l->attrs + used, sizeof l->attrs - used, format, args);
    va_end(args);
}

/* The operator itself knows what its weights look like. */
static meg_status add_weights(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l,
                              int in[MEG_INPUTS])
{
    meg_weight_spec spec[MEG_INPUTS] = {0};
    meg_node v = {.op = meg_op_find(l->op), .name = l->op, .inputs = l->inputs};
    v.attr = meg_pool_alloc(b->graph->pool, v.op->attr_bytes + 1);
    memcpy(v.in, l->in, sizeof v.in);
    if (v.op->params)
        MEG_TRY(b->error, meg_options_parse(b->error, v.op->params, l->op, l->attrs, v.attr));
    int count = v.op->weights ? v.op->weights(b->graph, &v, spec) : 0;
    if (count != l->weights)
        return meg_onnx_refuse(b, n, "%d weights, but %s takes %d", l->weights, l->op, count);
    for (int i = 0; i < count; i++)
        MEG_TRY(b->error, meg_onnx_leaf(b, n, &l->weight[i], &spec[i], &in[l->inputs + i]));
    return MEG_OK;
}

meg_status meg_onnx_add(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l)
{
    int in[MEG_INPUTS];
    if (!meg_op_find(l->op)) return meg_onnx_refuse(b, n, "there is no operator %s yet", l->op);
    memcpy(in, l->in, sizeof in);
    MEG_TRY(b->error, add_weights(b, n, l, in));
    const char *name = meg_onnx_layer_name(b, n, l);
    int value = meg_graph_add(b->graph, l->op, name, l->attrs, l->inputs + l->weights, in);
    if (value < 0) return b->graph->error.status;
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && l->front && b->graph->value[value].rank > 2) y->front = value;
    else if (y) y->value = value;
    return MEG_OK;
}

void meg_onnx_bind(meg_onnx_build *b, const meg_onnx_node *n, int i, int value)
{
    meg_onnx_symbol *s = i < n->outputs ? meg_onnx_symbol_of(b, n->out[i]) : NULL;
    if (s) s->value = value;
}

void meg_onnx_bind_same(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (!y) return;
    y->constant = s->constant;
    y->trained = s->constant && meg_onnx_is_weight(s); /* before it has numbers of its own */
    y->kind = y->trained ? MEG_ONNX_UNSAID : s->kind;
    y->turned = s->turned;
    y->of = s->of;
    y->value = s->value;
    y->front = s->front;
    y->view = s->view;
    y->rank = s->rank;
}
