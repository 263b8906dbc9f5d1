/* Operators of ONNX that take entries of an axis several times: Gather by constants, Expand.
 *
 *     Gather [0, 1, 3] on axis 2    the axis goes to place 1, slices [0, 2) and [3, 4) are joined
 *     Expand 1 -> m                 the nearest pixel of one: resize, whose gradient is the sum
 *
 * The batch stays what it is: entries of it cannot be taken, and nothing is put in front of it.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

enum {
    MOST_RUNS = 256 /* each is a node of the graph */
};

/* ---- gather ---- */

typedef struct picks { /* of an axis, which lies at place 1 */
    meg_onnx_build *b;
    const meg_onnx_node *n;
    const meg_onnx_tensor *index;
    int64_t length;
} picks;

static meg_status pick_at(const picks *p, int64_t i, int64_t *out)
{
    if (!meg_onnx_whole(p->index, i, out))
        return meg_onnx_refuse(p->b, p->n, "indices must be whole numbers");
    if (*out < 0) *out += p->length;
    if (*out < 0 || *out >= p->length)
        return meg_onnx_refuse(p->b, p->n, "an index that an axis of %" PRId64 " does not have",
                               p->length);
    return MEG_OK;
}

/* Indices that follow each other are one slice; *i is moved behind them. */
static meg_status next_run(const picks *p, int x, int64_t *i, int *out)
{
    int64_t begin, at, end;
    char words[96];
    MEG_TRY(p->b->error, pick_at(p, *i, &begin));
    for (end = begin + 1, ++*i; *i < p->index->size; ++*i, end++) {
        MEG_TRY(p->b->error, pick_at(p, *i, &at));
        if (at != end) break;
    }
    *out = x;
    if (begin == 0 && end == p->length) return MEG_OK;
    snprintf(words, sizeof words, "axes=1 begin=%" PRId64 " end=%" PRId64, begin, end);
    *out = meg_graph_add(p->b->graph, "slice", meg_onnx_fresh(p->b, "slice"), words, 1, &x);
    return p->b->graph->error.status;
}

/* Eight runs are joined at a time, as many as the operator takes. */
static meg_status join_runs(const picks *p, int x, int *out)
{
    meg_graph *g = p->b->graph;
    int in[MEG_INPUTS], count = 0, runs = 0;
    for (int64_t i = 0; i < p->index->size;) {
        if (runs++ == MOST_RUNS)
            return meg_onnx_refuse(p->b, p->n, "indices in more than %d runs", MOST_RUNS);
        if (count == MEG_INPUTS) {
            in[0] = meg_graph_add(g, "concat", meg_onnx_fresh(p->b, "concat"), "", count, in);
            if (in[0] < 0) return g->error.status;
            count = 1;
        }
        MEG_TRY(p->b->error, next_run(p, x, &i, &in[count++]));
    }
    *out = in[0];
    if (count > 1) *out = meg_graph_add(g, "concat", meg_onnx_fresh(p->b, "concat"), "", count, in);
    return g->error.status;
}

/* The shape of the indices takes the place of the axis. */
static int gathered_dims(const meg_value *x, int axis, const meg_onnx_tensor *index,
                         int64_t out[MEG_ONNX_RANK])
{
    int rank = 0;
    if (x->rank - 1 + index->rank > MEG_AXES) return -1;
    for (int i = 0; i < axis; i++)
        out[rank++] = x->dims[i];
    for (int i = 0; i < index->rank; i++)
        out[rank++] = index->dims[i];
    for (int i = axis + 1; i < x->rank; i++)
        out[rank++] = x->dims[i];
    return rank;
}

meg_status meg_onnx_gather_entries(meg_onnx_build *b, const meg_onnx_node *n, int x, int axis)
{
    const meg_value v = b->graph->value[x]; /* the array moves */
    const meg_onnx_tensor *index = meg_onnx_in(b, n, 1)->constant;
    picks p = {b, n, index, v.dims[axis]};
    int64_t dims[MEG_ONNX_RANK];
    int rank = gathered_dims(&v, axis, index, dims);
    if (rank < 2 || index->size < 1)
        return meg_onnx_refuse(b, n,
                               "its output would be empty, or have fewer than 2 axes or more "
                               "than %d",
                               MEG_AXES);
    MEG_TRY(b->error, meg_onnx_work(b, n, index->size));
    if (axis > 1) x = meg_onnx_swap(b, x, axis);
    if (x < 0) return b->graph->error.status;
    MEG_TRY(b->error, join_runs(&p, x, &x));
    if (axis > 1) x = meg_onnx_swap(b, x, axis);
    if (x >= 0) x = meg_onnx_shaped(b, x, rank, dims);
    if (x < 0) return b->graph->error.status;
    meg_onnx_bind(b, n, 0, x);
    return MEG_OK;
}

/* ---- expand ---- */

/* (.., 1, ..) -> (.., m, ..), as (n, before, 1, after) */
static int spread_axis(meg_onnx_build *b, int x, const int64_t dims[], int rank, int axis)
{
    int64_t four[4] = {dims[0], 1, 1, 1};
    char words[96];
    for (int i = 1; i < rank; i++)
        if (i != axis) four[i < axis ? 1 : 3] *= dims[i];
    x = meg_onnx_shaped(b, x, 4, four);
    snprintf(words, sizeof words, "mode=nearest size=%" PRId64 "x%" PRId64, dims[axis], four[3]);
    return x < 0 ? x : meg_graph_add(b->graph, "resize", meg_onnx_fresh(b, "expand"), words, 1, &x);
}

static meg_status expand_data(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_list *to)
{
    int x;
    int64_t dims[MEG_ONNX_RANK];
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    int rank = meg_onnx_dims(b, meg_onnx_in(b, n, 0), dims);
    if (to->count > rank || rank > MEG_AXES || rank != b->graph->value[x].rank)
        return meg_onnx_refuse(b, n, "axes in front of the batch, which must stay the first");
    for (int i = 0; i < to->count; i++) {
        int axis = rank - to->count + i;
        if (to->at[i] == 1 || to->at[i] == dims[axis]) continue;
        if (dims[axis] != 1 || axis == 0 || to->at[i] < 1)
            return meg_onnx_refuse(b, n, "%" PRId64 " cannot be spread to %" PRId64 " on axis %d%s",
                                   dims[axis], to->at[i], axis, axis ? "" : ", the batch");
        dims[axis] = to->at[i];
        x = spread_axis(b, x, dims, rank, axis);
        if (x >= 0) x = meg_onnx_shaped(b, x, rank, dims);
        if (x < 0) return b->graph->error.status;
    }
    meg_onnx_bind(b, n, 0, x);
    return MEG_OK;
}

/* Of weights, along the batch: each sample gets the same. Of data: along all other axes. */
meg_status meg_onnx_read_expand(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    const meg_onnx_tensor *t = s ? s->constant : NULL;
    meg_onnx_list to;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &to));
    if (!t) return expand_data(b, n, &to);
    bool same = to.count <= t->rank;
    for (int i = 0; same && i < to.count; i++) {
        int axis = t->rank - to.count + i;
        same = to.at[i] == t->dims[axis] || to.at[i] == 1 || (axis == 0 && t->dims[0] == 1);
    }
    if (!same) return meg_onnx_refuse(b, n, "weights can only be spread over the batch");
    meg_onnx_bind_same(b, n, s);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && !y->of) y->of = s;
    return MEG_OK;
}
