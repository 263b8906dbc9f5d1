/* PRelu of ONNX: our prelu where the slopes are one for all or one per channel, else several nodes. */
#include "import/onnx/operators/operators.h"

/* Slopes that are spread otherwise, or are data: max(x, 0) + slope * (x - max(x, 0)). */
static meg_status spread_prelu(meg_onnx_build *b, const meg_onnx_node *n, int x)
{
    meg_graph *g = b->graph;
    meg_onnx_layer l = {.op = "add", .inputs = 2};
    meg_onnx_symbol *s = meg_onnx_in(b, n, 1);
    int slope;
    int up = meg_graph_add(g, "relu", meg_onnx_fresh(b, "relu"), "", 1, &x);
    int down = meg_graph_add(g, "sub", meg_onnx_fresh(b, "sub"), "", 2, (int[]){x, up});
    if (down < 0) return g->error.status;
    if (s && s->constant) MEG_TRY(b->error, meg_onnx_spread(b, n, s, down, &slope));
    else {
        MEG_TRY(b->error, meg_onnx_data(b, n, 1, &slope));
        MEG_TRY(b->error, meg_onnx_line_up(b, n, 0, 1));
    }
    l.in[0] = up;
    l.in[1] = meg_graph_add(g, "mul", meg_onnx_fresh(b, "mul"), "", 2, (int[]){down, slope});
    if (l.in[1] < 0) return g->error.status;
    return meg_onnx_add(b, n, &l);
}

/* A slope per channel, or one for all. */
static meg_status read_prelu(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "prelu", .inputs = 1, .weights = 1};
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    const meg_onnx_symbol *slope = meg_onnx_in(b, n, 1);
    if (slope && !slope->constant) return spread_prelu(b, n, l.in[0]);
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    const meg_value *x = &b->graph->value[l.in[0]];
    int channels = t ? t->rank - x->rank + 1 : -1; /* the slope's axis of channels */
    bool single = t && t->size == 1;
    bool each = t && channels >= 0 && t->size == t->dims[channels] && x->rank > 1 &&
                t->size == x->dims[1];
    if (!t) return meg_onnx_refuse(b, n, "the slope is missing");
    if (!single && !each) return spread_prelu(b, n, l.in[0]);
    l.weight[0].symbol = meg_onnx_owner(b, meg_onnx_in(b, n, 1));
    meg_onnx_attr(&l, "single=%d", single);
    return meg_onnx_add(b, n, &l);
}

const meg_onnx_row meg_onnx_reads_prelu[] = {{"PRelu", "", 2, 2, read_prelu}, {0}};
