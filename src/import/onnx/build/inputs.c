/* Inputs of a node: as values of the graph in the order of axes that its operator wants, as weights, as
 * lists and numbers; and how many axes and of which extents a name of the file has.
 */
#include "import/onnx/build/kinds.h"
#include "import/onnx/build/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static meg_status missing(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    if (i >= n->inputs || n->in[i].at == n->in[i].end)
        return meg_onnx_refuse(b, n, "input %d is missing", i);
    return meg_fail(b->error, MEG_EDATA,
                    "%s: %.*s '%.*s' reads '%.*s', which nothing before it makes: the name is "
                    "wrong, or the nodes run in a circle",
                    b->file->path, MEG_SPAN_TEXT(n->op), MEG_SPAN_TEXT(n->name),
                    MEG_SPAN_TEXT(n->in[i]));
}

static bool is_made(const meg_onnx_symbol *s)
{
    return s && (s->value >= 0 || s->front >= 0 || s->view);
}

bool meg_onnx_is_front(const meg_onnx_symbol *s)
{
    return s && s->value < 0 && s->front >= 0;
}

static int add_transpose(meg_onnx_build *b, int x, bool to_front)
{
    char axes[32] = "axes=0";
    int rank = b->graph->value[x].rank;
    if (to_front) snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "x%d", rank - 1);
    for (int i = 1; i < rank - 1; i++)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "x%d", to_front ? i : i + 1);
    if (!to_front) strcat(axes, "x1");
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), axes, 1, &x);
}

meg_status meg_onnx_straighten(meg_onnx_build *b, meg_onnx_symbol *s, int *out)
{
    if (s->value < 0) s->value = add_transpose(b, s->front, false);
    *out = s->value;
    return b->graph->error.status;
}

meg_status meg_onnx_to_front(meg_onnx_build *b, meg_onnx_symbol *s, int *out)
{
    if (s->front < 0) s->front = add_transpose(b, s->value, true);
    *out = s->front;
    return b->graph->error.status;
}

/* In files of this framework operators may read weights as data: rows that are the same for all
 * samples. */
static meg_status lift(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    meg_weight_spec spec = {
        .kind = MEG_PARAMETER, .rank = t->rank, .shape = meg_box_of(1, 1, 1, 1, 1)};
    for (int i = 0; i < t->rank; i++) {
        spec.dims[i] = t->dims[i];
        spec.shape.hi[i < 2 ? i : MEG_AXES - t->rank + i] = t->dims[i];
    }
    return meg_onnx_leaf(b, n, &(meg_onnx_weight){.symbol = s}, &spec, &s->value);
}

static bool lifts(const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s ? s->constant : NULL;
    return t && meg_bytes_bytes(meg_onnx_note(n, "megalith.scope")) > 0 && meg_onnx_is_weight(s) &&
           t->rank >= 2 && t->rank <= MEG_AXES && t->dims[0] == 1 && t->type == MEG_ONNX_FLOAT &&
           !s->turned && !s->of;
}

static meg_status want_data(meg_onnx_build *b, const meg_onnx_node *n, int i, meg_onnx_symbol **out)
{
    meg_onnx_symbol *s = *out = meg_onnx_in(b, n, i);
    if (lifts(n, s)) return lift(b, n, s);
    if (s && s->constant)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is a constant, but must depend on the data",
                               i, MEG_SPAN_TEXT(s->name));
    if (s && s->view) MEG_TRY(b->error, meg_onnx_settle(b, n, s));
    if (s && s->view)
        return meg_onnx_refuse(b, n, "the batch must be the first axis of '%.*s'",
                               MEG_SPAN_TEXT(s->name));
    if (s && s->draw)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is random", i, MEG_SPAN_TEXT(s->name));
    if (s && s->parts)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is a sequence", i, MEG_SPAN_TEXT(s->name));
    return is_made(s) ? MEG_OK : missing(b, n, i);
}

meg_status meg_onnx_data(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    return meg_onnx_straighten(b, s, out);
}

meg_status meg_onnx_data_any(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    *out = s->value >= 0 ? s->value : s->front;
    return MEG_OK;
}

meg_status meg_onnx_data_front(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    if (s->front >= 0 || b->graph->value[s->value].rank > 2) return meg_onnx_to_front(b, s, out);
    *out = s->value;
    return MEG_OK;
}

meg_status meg_onnx_constant(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                             const meg_onnx_tensor **out)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    *out = s ? s->constant : NULL;
    if (*out || i >= n->inputs || n->in[i].at == n->in[i].end) return MEG_OK;
    if (!is_made(s)) return missing(b, n, i);
    return meg_onnx_refuse(b, n, "input %d, '%.*s', must be a constant", i, MEG_SPAN_TEXT(s->name));
}

meg_status meg_onnx_want_weight(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                                meg_onnx_symbol **out)
{
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
    if (!t) return meg_onnx_refuse(b, n, "input %d, a weight, is missing", i);
    *out = meg_onnx_in(b, n, i);
    if ((*out)->turned) return meg_onnx_refuse(b, n, "input %d, a weight, is transposed", i);
    *out = meg_onnx_owner(b, *out);
    return MEG_OK;
}

meg_status meg_onnx_list_of(const meg_onnx_build *b, const meg_onnx_node *n, const char *attribute,
                            int i, meg_onnx_list *out)
{
    const meg_onnx_tensor *t;
    *out = (meg_onnx_list){.count = -1};
    if (attribute) out->count = meg_onnx_ints(n, attribute, out->at, MEG_ONNX_RANK);
    if (out->count < 0 && i >= 0) {
        MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
        if (t) out->count = t->size > MEG_ONNX_RANK ? MEG_ONNX_RANK + 1 : (int)t->size;
        for (int k = 0; t && k < t->size && k < MEG_ONNX_RANK; k++)
            if (!meg_onnx_whole(t, k, &out->at[k]))
                return meg_onnx_refuse(b, n, "input %d is %s, but must be whole numbers", i,
                                       meg_onnx_type_name(t->type));
    }
    if (out->count > MEG_ONNX_RANK)
        return meg_onnx_refuse(b, n, "a list of more than %d numbers", MEG_ONNX_RANK);
    return MEG_OK;
}

meg_status meg_onnx_scalar(const meg_onnx_build *b, const meg_onnx_node *n, int i, double absent,
                           double *out)
{
    const meg_onnx_tensor *t;
    int64_t whole;
    *out = absent;
    MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
    if (!t) return MEG_OK;
    *out = meg_onnx_whole(t, 0, &whole) ? (double)whole : meg_onnx_meant(t, 0);
    if (t->size != 1 || isnan(*out)) return meg_onnx_refuse(b, n, "input %d must be one number", i);
    return MEG_OK;
}

int meg_onnx_rank(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    if (!is_made(s)) return 0;
    if (s->view) return s->view->axes;
    return s->rank ? s->rank : b->graph->value[s->value >= 0 ? s->value : s->front].rank;
}

int meg_onnx_dims(const meg_onnx_build *b, const meg_onnx_symbol *s, int64_t out[MEG_ONNX_RANK])
{
    if (!is_made(s)) return 0;
    if (s->view) return meg_onnx_view_dims(s->view, out);
    const meg_value *v = &b->graph->value[s->value >= 0 ? s->value : s->front];
    int rank = meg_onnx_rank(b, s);
    for (int i = 0; i < rank; i++) {
        int from = i;
        if (meg_onnx_is_front(s) && i > 0) from = i == rank - 1 ? 1 : i + 1;
        out[i] = from < v->rank ? v->dims[from] : 1;
    }
    return rank;
}
