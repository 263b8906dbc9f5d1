/* Operators of ONNX that move numbers about: flatten, reshape, concat, transpose, slice, pad.
 *
 * The batch is the first axis and stays there: models are read for one batch and trained with
 * another, so an operator that would move or split it is refused.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

/* Is this the output of a global pool whose axes of extent 1 are only in the file? */
static bool squeezed(const meg_onnx_symbol *s)
{
    return s && s->rank > 0;
}

static bool is_ours(const meg_onnx_node *n)
{
    return meg_bytes_bytes(meg_onnx_note(n, "megalith.scope")) > 0;
}

static meg_status read_flatten(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "flatten", .inputs = 1};
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    int rank = meg_onnx_rank(b, s);
    int64_t axis = meg_onnx_int(n, "axis", 1);
    if ((axis < 0 ? axis + rank : axis) != 1 || rank < 2)
        return meg_onnx_refuse(b, n, "axis=%" PRId64 ": only 1, all but the batch, is supported",
                               axis);
    if (!squeezed(s)) return meg_onnx_add(b, n, &l);
    meg_onnx_bind(b, n, 0, l.in[0]);
    return MEG_OK;
}

/* ---- reshape ---- */

static meg_status add_reshape(meg_onnx_build *b, const meg_onnx_node *n, int x,
                              const meg_onnx_list *to)
{
    meg_onnx_layer l = {.op = "reshape", .inputs = 1, .in = {x}};
    const meg_value *v = &b->graph->value[x];
    bool same = v->rank == to->count;
    for (int i = 0; same && i < to->count; i++)
        same = v->dims[i] == to->at[i];
    if (same) {
        meg_onnx_bind(b, n, 0, x);
        return MEG_OK;
    }
    if (to->count < 1 || to->count > MEG_AXES || to->at[0] != v->dims[0])
        return meg_onnx_view_reshape(b, n, to);
    if (v->rank == 1) { /* a number per sample: axes of extent 1 are only in the file */
        meg_onnx_bind(b, n, 0, x);
        meg_onnx_symbol_of(b, n->out[0])->rank = to->count;
        return MEG_OK;
    }
    if (to->count == 2) {
        l.op = "flatten";
        return meg_onnx_add(b, n, &l);
    }
    meg_onnx_attr(&l, "dims=0"); /* the batch's own */
    for (int i = 1; i < to->count; i++)
        meg_onnx_attr(&l, "x%" PRId64, to->at[i]);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_reshape(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list to;
    int64_t dims[MEG_ONNX_RANK];
    int x;
    if (s && s->constant) return meg_onnx_reshape_weight(b, n);
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &to));
    int rank = meg_onnx_dims(b, s, dims);
    if (!meg_onnx_resolve(dims, rank, meg_onnx_int(n, "allowzero", 0) == 0, &to))
        return meg_onnx_refuse(b, n, "the new shape does not have as many elements as the input");
    if (meg_onnx_is_front(s) && !is_ours(n) && to.count > 2) { /* heads of features: only noted */
        meg_onnx_view v = meg_onnx_view_of(b, s);
        if (meg_onnx_view_split(&v, &to)) return meg_onnx_view_bind(b, n, &v);
    }
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    return add_reshape(b, n, x, &to);
}

static meg_status read_squeeze(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list axes, to = {0};
    int64_t dims[MEG_ONNX_RANK];
    int x;
    unsigned gone = 0;
    if (s && s->constant) return meg_onnx_reshape_weight(b, n);
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    int rank = meg_onnx_dims(b, s, dims);
    for (int i = 0; i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], rank);
        if (axis < 0 || dims[axis] != 1)
            return meg_onnx_refuse(b, n, "axis %" PRId64 " does not have extent 1", axes.at[i]);
        gone |= 1u << axis;
    }
    for (int i = 0; i < rank; i++) {
        bool drop = axes.count < 0 ? dims[i] == 1 && i > 0 : gone >> i & 1;
        if (!drop) to.at[to.count++] = dims[i];
    }
    return add_reshape(b, n, x, &to);
}

static meg_status read_unsqueeze(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list axes, to = {0};
    int64_t dims[MEG_ONNX_RANK];
    int x, from = 0;
    unsigned made = 0;
    if (s && s->constant) return meg_onnx_reshape_weight(b, n);
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    int rank = meg_onnx_dims(b, s, dims), count = rank + axes.count;
    for (int i = 0; i < axes.count && count <= MEG_ONNX_RANK; i++) {
        int axis = meg_onnx_axis(axes.at[i], count);
        made |= axis < 0 ? 0 : 1u << axis;
    }
    if (axes.count < 1 || count > MEG_ONNX_RANK || __builtin_popcount(made) != axes.count)
        return meg_onnx_refuse(b, n, "axes that do not exist, or too many");
    for (; to.count < count; to.count++)
        to.at[to.count] = made >> to.count & 1 ? 1 : dims[from++];
    return add_reshape(b, n, x, &to);
}

/* ---- concat, transpose ---- */

/* A weight that was spread over the batch when the file was written: one sample of it. */
static void unspread(meg_onnx_build *b, meg_onnx_symbol *s, int64_t batch)
{
    const meg_onnx_tensor *t = s->constant;
    if (t->rank < 2 || t->type != MEG_ONNX_FLOAT || t->dims[0] != batch || batch < 2) return;
    size_t bytes = (size_t)(t->size / batch) * sizeof(float);
    for (int64_t i = 1; i < batch; i++)
        if (memcmp(t->data, (const char *)t->data + (size_t)i * bytes, bytes) != 0) return;
    meg_onnx_tensor *one = meg_pool_alloc(b->file->pool, sizeof *one);
    *one = *t;
    one->dims[0] = 1;
    one->size /= batch;
    s->constant = one;
}

/* A weight among data (the class token of a transformer): zeros of the data's shape plus the weight,
 * which is learned as positions are. The extents beside the axis must be those of the data. */
static meg_status token_of(meg_onnx_build *b, const meg_onnx_node *n, int i, int like, int *out)
{
    meg_onnx_layer l = {.op = "position", .inputs = 1, .weights = 1};
    meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    const meg_value x = b->graph->value[like]; /* the array moves */
    unspread(b, s, x.dims[0]);
    const meg_onnx_tensor *t = s->constant;
    bool fits = t->rank == x.rank && t->rank > 1 && t->dims[0] == 1 && !s->turned &&
                t->type == MEG_ONNX_FLOAT && t->dims[1] >= 1 && t->dims[1] <= x.dims[1];
    for (int k = 2; fits && k < x.rank; k++)
        fits = t->dims[k] == x.dims[k];
    if (!fits)
        return meg_onnx_refuse(b, n, "the constant '%.*s' does not fit beside the data",
                               MEG_SPAN_TEXT(s->name));
    meg_onnx_attr(&l, "axes=1 begin=0 end=%" PRId64, t->dims[1]);
    int part = meg_graph_add(b->graph, "slice", meg_onnx_fresh(b, "slice"), l.attrs, 1, &like);
    if (part < 0) return b->graph->error.status;
    l.in[0] = meg_graph_add(b->graph, "sub", meg_onnx_fresh(b, "zeros"), "", 2,
                            (int[]){part, part});
    if (l.in[0] < 0) return b->graph->error.status;
    l.attrs[0] = '\0';
    l.weight[0].symbol = meg_onnx_owner(b, s);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    return meg_onnx_straighten(b, meg_onnx_symbol_of(b, n->out[0]), out);
}

/* Input i with the joined axis at place 1. */
static meg_status part_of(meg_onnx_build *b, const meg_onnx_node *n, int i, int axis, int *out)
{
    MEG_TRY(b->error, meg_onnx_data_any(b, n, i, out));
    int rank = meg_onnx_rank(b, meg_onnx_in(b, n, i));
    if (axis == rank - 1) return meg_onnx_data_front(b, n, i, out);
    MEG_TRY(b->error, meg_onnx_data(b, n, i, out));
    if (axis > 1 && axis < rank) *out = meg_onnx_swap(b, *out, axis);
    return b->graph->error.status;
}

static bool is_constant(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    return s && s->constant;
}

/* All parts, the joined axis at place 1; weights come after the data whose shape they take. */
static meg_status read_parts(meg_onnx_build *b, const meg_onnx_node *n, int axis, int part[])
{
    int like = -1;
    for (int i = 0; i < n->inputs; i++) {
        if (is_constant(b, n, i)) continue;
        MEG_TRY(b->error, part_of(b, n, i, axis, &part[i]));
        if (like < 0) like = part[i];
    }
    for (int i = 0; i < n->inputs; i++) {
        if (!is_constant(b, n, i)) continue;
        if (like < 0 || axis != 1)
            return meg_onnx_refuse(b, n, "weights can only be joined on axis 1");
        MEG_TRY(b->error, token_of(b, n, i, like, &part[i]));
    }
    return MEG_OK;
}

/* The operator takes eight: more are joined eight at a time. */
static meg_status join(meg_onnx_build *b, const meg_onnx_node *n, const int part[],
                       meg_onnx_layer *l)
{
    meg_graph *g = b->graph;
    for (int i = 0; i < n->inputs; i++) {
        if (l->inputs == MEG_INPUTS) {
            l->in[0] = meg_graph_add(g, "concat", meg_onnx_fresh(b, "concat"), "", l->inputs,
                                     l->in);
            if (l->in[0] < 0) return g->error.status;
            l->inputs = 1;
        }
        l->in[l->inputs++] = part[i];
    }
    return meg_onnx_add(b, n, l);
}

static meg_status read_concat(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "concat"};
    int first = 0, unused;
    while (first < n->inputs - 1 && is_constant(b, n, first))
        first++;
    MEG_TRY(b->error, meg_onnx_data_any(b, n, first, &unused));
    int rank = meg_onnx_rank(b, meg_onnx_in(b, n, first));
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), rank);
    if (axis < 1 || squeezed(meg_onnx_in(b, n, first)))
        return meg_onnx_refuse(b, n, "axis=%d: the batch cannot be joined", axis);
    if (n->inputs == 1) {
        meg_onnx_bind_same(b, n, meg_onnx_in(b, n, 0));
        return MEG_OK;
    }
    int *part = meg_pool_alloc(b->file->pool, (size_t)n->inputs * sizeof *part);
    MEG_TRY(b->error, read_parts(b, n, axis, part));
    l.front = axis == rank - 1;
    MEG_TRY(b->error, join(b, n, part, &l));
    if (axis == 1 || l.front) return MEG_OK;
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    y->value = meg_onnx_swap(b, y->value, axis);
    return b->graph->error.status;
}

/* Is it the move of the last axis to place 1 (by = -1), or back (by = 1)? */
static bool moves(const int64_t perm[], int rank, int by)
{
    for (int i = 1; i < rank; i++)
        if (perm[i] != (i - 1 + by + rank - 1) % (rank - 1) + 1) return false;
    return true;
}

/* A weight of more axes (Keras has taps first, filters last): its numbers are moved at once. */
static meg_status turn_kernel(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    MEG_TRY(b->error, meg_onnx_fold_weight(b, n));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y) y->trained = true, y->label = meg_onnx_weight_name(s);
    return MEG_OK;
}

/* The transpose of a matrix of weights: what PyTorch writes for a dense layer. */
static meg_status turn_constant(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    int64_t perm[MEG_ONNX_RANK] = {1, 0};
    int count = meg_onnx_ints(n, "perm", perm, MEG_ONNX_RANK);
    if (s->constant->rank != 2) return turn_kernel(b, n, s);
    bool turns = perm[0] == 1 && perm[1] == 0, stays = perm[0] == 0 && perm[1] == 1;
    if ((count >= 0 && count != 2) || !(turns || stays))
        return meg_onnx_refuse(b, n, "perm does not name every axis once");
    meg_onnx_bind_same(b, n, s);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y) y->turned = s->turned != turns;
    if (y && !y->of) y->of = s;
    return MEG_OK;
}

/* Moves of the last axis are only noted: see build.h. */
static meg_status read_transpose(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "transpose", .inputs = 1};
    int64_t perm[MEG_ONNX_RANK];
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0), *y = meg_onnx_symbol_of(b, n->out[0]);
    if (s && s->constant) return turn_constant(b, n, s);
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &l.in[0]));
    int rank = meg_onnx_rank(b, s), count = meg_onnx_ints(n, "perm", perm, MEG_ONNX_RANK);
    for (int i = 0; count < 0 && i < rank; i++)
        perm[i] = rank - 1 - i;
    if ((count >= 0 && count != rank) || squeezed(s))
        return meg_onnx_refuse(b, n, "perm has %d numbers, but the input %d axes", count, rank);
    if (perm[0] != 0) return meg_onnx_view_transpose(b, n, perm);
    bool ours = is_ours(n); /* wants to be a node */
    if (!ours && rank > 2 && moves(perm, rank, -1) && meg_onnx_is_front(s)) {
        y->value = s->front;
        return MEG_OK;
    }
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    if (!ours && rank > 2 && moves(perm, rank, 1)) {
        y->front = l.in[0];
        return MEG_OK;
    }
    meg_onnx_attr(&l, "axes=0");
    for (int i = 1; i < rank; i++)
        meg_onnx_attr(&l, "x%" PRId64, perm[i]);
    return meg_onnx_add(b, n, &l);
}

/* ---- slice, split, pad ---- */

typedef struct cut { /* along each axis of the input */
    int64_t begin[MEG_AXES], end[MEG_AXES], step[MEG_AXES];
} cut;

static meg_status add_slice(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l,
                            const cut *c)
{
    const meg_value *x = &b->graph->value[l->in[0]];
    if (c->begin[0] != 0 || c->end[0] < x->dims[0] || c->step[0] != 1)
        return meg_onnx_refuse(b, n, "the batch cannot be cut");
    meg_onnx_attr(l, "axes=");
    for (int i = 1; i < x->rank; i++)
        meg_onnx_attr(l, "%s%d", i > 1 ? "x" : "", i);
    const char *const words[] = {"begin", "end", "step"};
    const int64_t *const lists[] = {c->begin, c->end, c->step};
    for (int k = 0; k < 3; k++) {
        meg_onnx_attr(l, " %s=", words[k]);
        for (int i = 1; i < x->rank; i++)
            meg_onnx_attr(l, "%s%" PRId64, i > 1 ? "x" : "", lists[k][i]);
    }
    return meg_onnx_add(b, n, l);
}

static int64_t clamp(int64_t at, int64_t length)
{
    if (at < 0) at += length;
    return at < 0 ? 0 : at > length ? length : at;
}

static cut whole(const meg_value *x)
{
    cut c;
    for (int i = 0; i < MEG_AXES; i++)
        c.begin[i] = 0, c.step[i] = 1, c.end[i] = i < x->rank ? x->dims[i] : 1;
    return c;
}

static meg_status read_slice(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "slice", .inputs = 1};
    meg_onnx_list list[4]; /* starts, ends, axes, steps */
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    if (s && s->constant) return meg_onnx_slice_weight(b, n);
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    const meg_value *x = &b->graph->value[l.in[0]];
    for (int i = 0; i < 4; i++)
        MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1 + i, &list[i]));
    cut c = whole(x);
    int count = list[0].count;
    bool fits = count >= 1 && list[1].count == count &&
                (list[2].count < 0 || list[2].count == count) &&
                (list[3].count < 0 || list[3].count == count);
    for (int i = 0; fits && i < count; i++) {
        int axis = meg_onnx_axis(list[2].count < 0 ? i : list[2].at[i], x->rank);
        int64_t step = list[3].count < 0 ? 1 : list[3].at[i];
        if (axis < 0 || step < 1)
            return meg_onnx_refuse(b, n, "axes that do not exist, or a step below 1");
        c.begin[axis] = clamp(list[0].at[i], x->dims[axis]);
        c.end[axis] = clamp(list[1].at[i], x->dims[axis]);
        c.step[axis] = step;
    }
    if (!fits) return meg_onnx_refuse(b, n, "starts, ends, axes and steps differ in length");
    return add_slice(b, n, &l, &c);
}

/* Several slices, one per output. */
static meg_status read_split(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_list sizes;
    int x;
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &sizes));
    meg_value v = b->graph->value[x]; /* the array moves */
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), v.rank);
    bool front = meg_onnx_is_front(meg_onnx_in(b, n, 0)) && axis == v.rank - 1 && v.rank > 2;
    if (front) axis = 1;
    else MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    v = b->graph->value[x];
    if (axis < 1) return meg_onnx_refuse(b, n, "the batch cannot be split");
    int64_t parts = n->outputs, each = (v.dims[axis] + parts - 1) / parts, at = 0;
    if (sizes.count >= 0 && sizes.count != parts)
        return meg_onnx_refuse(b, n, "%d sizes for %d outputs", sizes.count, n->outputs);
    for (int i = 0; i < n->outputs; i++) {
        meg_onnx_layer l = {.op = "slice", .inputs = 1, .in = {x}, .front = front};
        meg_onnx_node part = *n;
        cut c = whole(&v);
        int64_t size = sizes.count >= 0 ? sizes.at[i] : each;
        if (size < 1 || size > v.dims[axis])
            return meg_onnx_refuse(b, n, "a part of %" PRId64, size);
        c.begin[axis] = at;
        at += size;
        c.end[axis] = at < v.dims[axis] ? at : v.dims[axis];
        part.out = &n->out[i], part.outputs = 1;
        MEG_TRY(b->error, add_slice(b, &part, &l, &c));
    }
    return MEG_OK;
}

static meg_status read_pad(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "pad", .inputs = 1};
    meg_onnx_list axes;
    const meg_onnx_tensor *pads;
    double value;
    int64_t before[MEG_AXES] = {0}, after[MEG_AXES] = {0};
    meg_bytes mode = meg_onnx_text(n, "mode");
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &pads));
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 2, 0, &value));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 3, &axes));
    int rank = b->graph->value[l.in[0]].rank, count = axes.count < 0 ? rank : axes.count;
    if (!pads || pads->size != 2 * count) return meg_onnx_refuse(b, n, "pads of another length");
    for (int i = 0; i < count; i++) {
        int axis = meg_onnx_axis(axes.count < 0 ? i : axes.at[i], rank);
        if (axis < 0 || !meg_onnx_whole(pads, i, &before[axis]) ||
            !meg_onnx_whole(pads, count + i, &after[axis]))
            return meg_onnx_refuse(b, n, "axes that do not exist, or pads that are not whole");
    }
    if (before[0] || after[0] || rank < 2)
        return meg_onnx_refuse(b, n, "the batch cannot be padded");
    meg_onnx_attr(&l, "pad=");
    for (int i = rank > 2 ? 1 : 0; i < rank; i++) /* one number would mean all spatial axes */
        meg_onnx_attr(&l, "%s%" PRId64 ":%" PRId64, i > (rank > 2) ? "x" : "", before[i], after[i]);
    const char *words = meg_bytes_is(mode, "reflect") ? "reflect"
                        : meg_bytes_is(mode, "edge")  ? "edge"
                        : meg_bytes_is(mode, "wrap")  ? "wrap"
                                                      : "constant";
    meg_onnx_attr(&l, " mode=%s value=%.9g", words, value);
    return meg_onnx_add(b, n, &l);
}

/* ---- resize ---- */

typedef struct pair {
    const char *onnx, *ours;
} pair;

static const pair MODES[] = {
    {"nearest", "nearest"}, {"linear", "linear"}, {"cubic", "cubic"}, {NULL, NULL}};
static const pair COORDS[] = {{"half_pixel", "half_pixel"},
                              {"pytorch_half_pixel", "half_pixel"},
                              {"align_corners", "align_corners"},
                              {"asymmetric", "asymmetric"},
                              {NULL, NULL}};
static const pair ROUNDING[] = {{"round_prefer_floor", "down"},
                                {"round_prefer_ceil", "up"},
                                {"floor", "floor"},
                                {"ceil", "ceil"},
                                {NULL, NULL}};

/* The first row is the default. */
static meg_status translate(const meg_onnx_build *b, const meg_onnx_node *n, const char *name,
                            const pair *table, const char **out)
{
    meg_bytes text = meg_onnx_text(n, name);
    *out = table->ours;
    if (!meg_onnx_has(n, name)) return MEG_OK;
    for (; table->onnx; table++) {
        *out = table->ours;
        if (meg_bytes_is(text, table->onnx)) return MEG_OK;
    }
    return meg_onnx_refuse(b, n, "%s=%.*s is not supported", name, MEG_SPAN_TEXT(text));
}

typedef struct resizing { /* of each axis of the input */
    double scale[MEG_AXES];
    int64_t size[MEG_AXES];
    bool by_size;
} resizing;

/* Scales (input 2) or sizes (input 3), of all axes or of those that are named. */
static meg_status read_extents(const meg_onnx_build *b, const meg_onnx_node *n, const meg_value *x,
                               resizing *out)
{
    const meg_onnx_tensor *scales;
    meg_onnx_list sizes, axes;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 2, &scales));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 3, &sizes));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", -1, &axes));
    *out = (resizing){.by_size = sizes.count > 0};
    int count = axes.count < 0 ? x->rank : axes.count;
    int64_t given = out->by_size ? sizes.count : scales ? scales->size : 0;
    if (given != count || x->rank < 3)
        return meg_onnx_refuse(b, n, "it wants scales or sizes, one for each axis");
    for (int i = 0; i < x->rank; i++)
        out->scale[i] = 1, out->size[i] = x->dims[i];
    for (int i = 0; i < count; i++) {
        int axis = meg_onnx_axis(axes.count < 0 ? i : axes.at[i], x->rank);
        if (axis < 0) return meg_onnx_refuse(b, n, "axes that do not exist");
        if (!out->by_size) out->scale[axis] = meg_onnx_number(scales, i);
        double length = out->scale[axis] * (double)x->dims[axis];
        if (!(length >= 0 && length < INT32_MAX))
            return meg_onnx_refuse(b, n, "a scale that is negative, huge, or no number");
        out->size[axis] = out->by_size ? sizes.at[i] : (int64_t)length;
    }
    return MEG_OK;
}

/* Two corners of ONNX that the operator here does not have: lengths that are no whole numbers, and
 * PyTorch's own rule for outputs of one pixel. */
static bool is_corner(const meg_onnx_node *n, const meg_value *x, const resizing *r, int axis)
{
    meg_bytes coords = meg_onnx_text(n, "coordinate_transformation_mode");
    double length = r->scale[axis] * (double)x->dims[axis];
    if (meg_bytes_is(coords, "pytorch_half_pixel")) return r->size[axis] == 1 && x->dims[axis] > 1;
    return meg_bytes_is(coords, "align_corners") && !r->by_size && length > (double)(int64_t)length;
}

static meg_status resize_words(const meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l)
{
    const meg_value *x = &b->graph->value[l->in[0]];
    resizing r = {.by_size = false};
    MEG_TRY(b->error, read_extents(b, n, x, &r));
    meg_onnx_attr(l, r.by_size ? " size=" : " scale=");
    for (int i = 0; i < x->rank; i++) {
        if (i < 2 && r.size[i] != x->dims[i])
            return meg_onnx_refuse(b, n, "batch and channels cannot be resized");
        if (is_corner(n, x, &r, i))
            return meg_onnx_refuse(b, n, "these lengths are not supported with this way to count");
        if (i < 2) continue;
        if (r.by_size) meg_onnx_attr(l, "%s%" PRId64, i > 2 ? "x" : "", r.size[i]);
        else meg_onnx_attr(l, "%s%.9g", i > 2 ? "x" : "", r.scale[i]);
    }
    return MEG_OK;
}

static meg_status read_resize(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "resize", .inputs = 1};
    const char *mode, *coords, *rounding;
    meg_bytes policy = meg_onnx_text(n, "keep_aspect_ratio_policy");
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, translate(b, n, "mode", MODES, &mode));
    MEG_TRY(b->error, translate(b, n, "coordinate_transformation_mode", COORDS, &coords));
    MEG_TRY(b->error, translate(b, n, "nearest_mode", ROUNDING, &rounding));
    if (meg_onnx_int(n, "antialias", 0) ||
        (policy.at < policy.end && !meg_bytes_is(policy, "stretch")))
        return meg_onnx_refuse(b, n, "antialias and keep_aspect_ratio_policy are not supported");
    double a = meg_onnx_real(n, "cubic_coeff_a", -0.75);
    if (strcmp(mode, "cubic") == 0 &&
        (a < -0.75 || a > -0.75 || meg_onnx_int(n, "exclude_outside", 0)))
        return meg_onnx_refuse(b, n,
                               "mode=cubic is supported with cubic_coeff_a=-0.75 and without "
                               "exclude_outside");
    meg_onnx_attr(&l, "mode=%s coords=%s", mode, coords);
    if (strcmp(mode, "nearest") == 0) meg_onnx_attr(&l, " round=%s", rounding);
    MEG_TRY(b->error, resize_words(b, n, &l));
    return meg_onnx_add(b, n, &l);
}

#define RESIZE                                                                                     \
    "mode coordinate_transformation_mode nearest_mode antialias keep_aspect_ratio_policy "         \
    "cubic_coeff_a exclude_outside extrapolation_value axes"

const meg_onnx_row meg_onnx_shapes[] = {
    {"Flatten", "axis", 1, 1, read_flatten},         {"Reshape", "allowzero", 2, 2, read_reshape},
    {"Squeeze", "axes", 1, 2, read_squeeze},         {"Unsqueeze", "axes", 1, 2, read_unsqueeze},
    {"Concat", "axis", 1, 1 << 16, read_concat},     {"Expand", "", 2, 2, meg_onnx_read_expand},
    {"Transpose", "perm", 1, 1, read_transpose},     {"Slice", "", 3, 5, read_slice},
    {"Split", "axis num_outputs", 1, 2, read_split}, {"Pad", "mode", 2, 4, read_pad},
    {"Resize", RESIZE, 1, 4, read_resize},           {0}};
