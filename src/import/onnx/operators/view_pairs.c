/* Operators of two operands, one of which is spread over the other, where one is a view (build/view.h):
 *
 *     (n windows, heads, t, t) + (1, heads, t, t)       as (n, windows, heads, t, t) + (1, 1, heads, t, t)
 *
 * Both get the same axes: samples first, then what the file has joined to them, then all others in the file's
 * order. The operator is read as if the file had that, and its result is seen through the file's axes again.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

typedef struct spreading { /* of two operands with the axes of the file, lined up at the end */
    int rank, batch;       /* the axis that has the batch; -1: none */
    bool apart;            /* that axis has more than the batch: it becomes two */
    meg_onnx_view like;    /* an operand with the batch */
} spreading;

static meg_status refuse_spread(const meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_refuse(b, n,
                           "an operand has other numbers for each sample, but not the batch where "
                           "the other has it");
}

/* Which axis has the batch, and how many there are. */
static meg_status line_up(const meg_onnx_build *b, const meg_onnx_node *n, spreading *p)
{
    *p = (spreading){.batch = -1};
    for (int i = 0; i < 2; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        int rank = s && s->constant ? s->constant->rank : s ? meg_onnx_rank(b, s) : 0;
        if (rank > p->rank) p->rank = rank;
    }
    for (int i = 0; i < 2; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (!s || s->constant) continue;
        meg_onnx_view v = meg_onnx_view_of(b, s);
        int own = meg_onnx_view_batch(&v), at = own + p->rank - v.axes;
        if (own < 0) continue;
        if (p->batch >= 0 &&
            (at != p->batch ||
             meg_onnx_view_extent(&v, own) !=
                 meg_onnx_view_extent(&p->like, p->batch - p->rank + p->like.axes)))
            return refuse_spread(b, n);
        p->batch = at;
        p->apart = v.begin[own + 1] - v.begin[own] > 1;
        p->like = v;
    }
    return MEG_OK;
}

/* Extents of an operand in the operator's axes: samples, what is joined to them, then the others. */
static meg_status spread_dims(const meg_onnx_build *b, const meg_onnx_node *n, const spreading *p,
                              const meg_onnx_list *have, meg_onnx_list *out)
{
    int missing = p->rank - have->count;
    *out = (meg_onnx_list){.count = 1 + p->apart, .at = {1, 1}};
    if (p->rank - (p->batch >= 0) + out->count > MEG_AXES)
        return meg_onnx_refuse(b, n, "it would need more than %d axes", MEG_AXES);
    for (int k = 0; k < p->rank; k++) {
        int64_t extent = k < missing ? 1 : have->at[k - missing];
        if (k == p->batch && extent != 1) return refuse_spread(b, n);
        if (k != p->batch) out->at[out->count++] = extent;
    }
    return MEG_OK;
}

/* Data, or what is the same in all samples, in the operator's axes. */
static meg_status spread_data(meg_onnx_build *b, const meg_onnx_node *n, const spreading *p,
                              const meg_onnx_view *v, int *out)
{
    int order[MEG_ONNX_ATOMS] = {0}, own = meg_onnx_view_batch(v), count = 1;
    meg_onnx_list have = {.count = v->axes}, dims;
    meg_onnx_view_dims(v, have.at);
    int64_t joined = own < 0 ? 1 : have.at[own] / v->extent[0];
    if (own >= 0) {
        have.at[own] = 1;
        count += meg_onnx_view_atoms(v, own, own + 1, order + 1);
    }
    for (int k = 0; k < v->axes; k++)
        if (k != own) count += meg_onnx_view_atoms(v, k, k + 1, order + count);
    MEG_TRY(b->error, spread_dims(b, n, p, &have, &dims));
    dims.at[0] = v->extent[0];
    if (p->apart) dims.at[1] = joined;
    return meg_onnx_view_arrange(b, n, v, order, &dims, out);
}

/* A constant with the operator's axes: the same numbers. */
static meg_status spread_constant(meg_onnx_build *b, const meg_onnx_node *n, const spreading *p,
                                  meg_onnx_symbol *s)
{
    meg_onnx_tensor *t = meg_pool_alloc(b->file->pool, sizeof *t);
    meg_onnx_list have = {.count = s->constant->rank}, dims;
    *t = *s->constant;
    if (t->size == 1) return MEG_OK;
    memcpy(have.at, t->dims, sizeof have.at);
    MEG_TRY(b->error, spread_dims(b, n, p, &have, &dims));
    t->rank = dims.count;
    memcpy(t->dims, dims.at, sizeof t->dims);
    s->constant = t;
    return MEG_OK;
}

/* How the file sees a value with the operator's axes. */
static meg_onnx_view spread_view(const meg_onnx_build *b, const spreading *p, int value)
{
    const meg_value *x = &b->graph->value[value];
    const meg_onnx_view *like = &p->like;
    meg_onnx_view v = {.value = value, .atoms = 1, .axes = p->rank, .extent = {x->dims[0]}};
    int own = p->batch < 0 ? 0 : p->batch - p->rank + like->axes, at = 0, next = 1 + p->apart,
        rest = 1;
    int from = p->batch < 0 ? 0 : like->begin[own], to = p->batch < 0 ? 0 : like->begin[own + 1];
    for (int i = from; i < to; i++)
        if (like->order[i] != 0) v.extent[v.atoms++] = like->extent[like->order[i]];
    for (int k = 0; k < p->rank; k++) {
        for (int i = from; k == p->batch && i < to; i++)
            v.order[at++] = like->order[i] == 0 ? 0 : rest++;
        int64_t extent = k == p->batch ? 1 : x->dims[next++];
        if (extent > 1) v.order[at++] = v.atoms, v.extent[v.atoms++] = extent;
        v.begin[k + 1] = at;
    }
    return v;
}

meg_status meg_onnx_read_spread(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_symbol *s[2] = {meg_onnx_in(b, n, 0), meg_onnx_in(b, n, 1)}, old[2];
    spreading p;
    meg_status status = MEG_OK;
    int value;
    MEG_TRY(b->error, line_up(b, n, &p));
    for (int i = 0; i < 2; i++)
        old[i] = *s[i];
    for (int i = 0; status == MEG_OK && i < 2 && !(i == 1 && s[1] == s[0]); i++) {
        meg_onnx_view v = {.axes = 0};
        if (!s[i]->constant) v = meg_onnx_view_of(b, s[i]);
        status = v.axes ? spread_data(b, n, &p, &v, &s[i]->value) : spread_constant(b, n, &p, s[i]);
        if (!s[i]->constant) s[i]->view = NULL, s[i]->front = -1, s[i]->rank = 0;
    }
    if (status == MEG_OK) status = row->read(b, n);
    for (int i = 0; i < 2; i++) {
        old[i].parameter = s[i]->parameter; /* made now, perhaps */
        *s[i] = old[i];
    }
    MEG_TRY(b->error, status);
    MEG_TRY(b->error, meg_onnx_straighten(b, meg_onnx_symbol_of(b, n->out[0]), &value));
    meg_onnx_view v = spread_view(b, &p, value);
    return meg_onnx_view_bind(b, n, &v);
}
