/* Weights and constants that nodes compute with before they meet data, by more than arithmetic of single
 * numbers (arithmetic.c):
 *
 *     Gather of a table by constants, Reshape, Transpose       the relative positions of Swin transformers
 *     MatMul of constants and a weight, Relu, MatMul, ..       those of its second version, by a small network
 *
 * They become data of one sample (ops/shape/lift.c), of which the file knows nothing: a view (build/view.h) whose
 * axes are all but the batch. Views are read as they always are (through_views.c); what comes out is the same in all
 * samples, until it is added to data or multiplied with it.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

/* An atom for each extent above 1. */
static meg_onnx_view view_of(int value, int rank, const int64_t dims[])
{
    meg_onnx_view v = {.value = value, .atoms = 1, .extent = {1}, .axes = rank};
    for (int k = 0, at = 0; k < rank; k++) {
        if (dims[k] > 1) v.order[at++] = v.atoms, v.extent[v.atoms++] = dims[k];
        v.begin[k + 1] = at;
    }
    return v;
}

meg_status meg_onnx_lifted(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s, int *out)
{
    const meg_onnx_tensor *t = s->constant;
    meg_weight_spec spec = {.kind = MEG_PARAMETER, .shape = meg_box_of(1, 1, 1, 1, 1)};
    if (t->rank < 1 || t->rank >= MEG_AXES || s->turned)
        return meg_onnx_refuse(b, n, "'%.*s', a constant of %d axes%s: 1 to %d are supported here",
                               MEG_SPAN_TEXT(s->name), t->rank, s->turned ? ", transposed" : "",
                               MEG_AXES - 1);
    spec.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        spec.dims[i] = spec.shape.hi[MEG_AXES - t->rank + i] = t->dims[i];
    meg_onnx_weight w = {.symbol = meg_onnx_owner(b, s), .flat = true};
    return meg_onnx_leaf(b, n, &w, &spec, out);
}

meg_status meg_onnx_lift(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    char words[128] = "dims=";
    int leaf;
    MEG_TRY(b->error, meg_onnx_lifted(b, n, s, &leaf));
    for (int i = 0; i < t->rank; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%" PRId64, i ? "x" : "",
                 t->dims[i]);
    int value = meg_graph_add(b->graph, "lift", meg_onnx_fresh(b, "lift"), words, 1, &leaf);
    if (value < 0) return b->graph->error.status;
    s->view = meg_pool_alloc(b->file->pool, sizeof *s->view);
    *s->view = view_of(value, t->rank, t->dims);
    return MEG_OK;
}

static bool is_trained(const meg_onnx_symbol *s)
{
    return s && s->constant && meg_onnx_is_weight(s);
}

/* Does it take other rows of a table than the first, in their order? Those are a weight still. */
static bool takes_rows(const meg_onnx_node *n, const meg_onnx_symbol *table,
                       const meg_onnx_symbol *index)
{
    const meg_onnx_tensor *t = index ? index->constant : NULL;
    int64_t at;
    if (!is_trained(table) || !t || table->turned) return false;
    if (table->constant->rank != 2 || meg_onnx_int(n, "axis", 0) != 0) return true;
    for (int64_t i = 0; i < t->size; i++)
        if (!meg_onnx_whole(t, i, &at) || at != i) return true;
    return t->size > table->constant->dims[0];
}

/* Constants times a weight, (.., k) x (k, j): the constants are the data. */
static bool multiplies(const meg_onnx_symbol *x, const meg_onnx_symbol *w)
{
    return x && x->constant && !meg_onnx_is_weight(x) && x->constant->rank > 1 && is_trained(w) &&
           w->constant->rank == 2;
}

bool meg_onnx_stands_alone(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *x = meg_onnx_in(b, n, 0), *y = meg_onnx_in(b, n, 1);
    if (meg_bytes_is(n->op, "Gather")) return takes_rows(n, x, y);
    if (meg_bytes_is(n->op, "Clip")) return is_trained(x) && x->constant->rank > 0;
    return meg_bytes_is(n->op, "MatMul") && multiplies(x, y);
}

/* Reads the node as if its first input were data. */
meg_status meg_onnx_read_alone(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    const meg_onnx_tensor *constant = s->constant;
    MEG_TRY(b->error, meg_onnx_lift(b, n, s));
    s->constant = NULL;
    meg_status status = meg_onnx_read_view(b, n, row);
    s->constant = constant;
    s->view = NULL;
    return status;
}
