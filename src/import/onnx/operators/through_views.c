/* Operators whose inputs are views (build/view.h). The batch is the first axis here and stays there.
 * PyTorch's attention moves it about in between:
 *
 *     (n, t, c) -> (t, n, c) -> (t, n, 3, c) -> (3, t, n, c) -> (t, n h, d) -> (n h, t, d) -> (n, h, t, d)
 *
 * So a name of the file may be a *view* of a value: Transpose, Reshape, Squeeze and Unsqueeze only
 * change how axes are made of the value's factors. Where a number is computed, the view becomes a
 * value with the batch in front, the operator is read as if the file had that, and its result is seen
 * through the same axes. Views end where the batch comes first again.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

/* ---- shapes ---- */

/* Removes or adds an axis without atoms. */
static void drop_axis(meg_onnx_view *v, int axis)
{
    memmove(v->begin + axis, v->begin + axis + 1, (size_t)(v->axes - axis) * sizeof *v->begin);
    v->axes--;
}

static void insert_axis(meg_onnx_view *v, int axis)
{
    memmove(v->begin + axis + 1, v->begin + axis, (size_t)(v->axes + 1 - axis) * sizeof *v->begin);
    v->axes++;
}

static meg_status read_squeeze(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    meg_onnx_list axes;
    unsigned gone = 0;
    (void)row;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    for (int i = 0; i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], v.axes);
        if (axis < 0 || axis == meg_onnx_view_batch(&v) || meg_onnx_view_extent(&v, axis) != 1)
            return meg_onnx_refuse_batch(b, n);
        gone |= 1u << axis;
    }
    for (int axis = v.axes - 1; axis >= 0; axis--) {
        bool one = axes.count < 0 && axis != meg_onnx_view_batch(&v) &&
                   meg_onnx_view_extent(&v, axis) == 1;
        if (!one && !(gone >> axis & 1)) continue;
        if (v.begin[axis] != v.begin[axis + 1])
            return meg_onnx_refuse_batch(b, n); /* an atom of extent 1 */
        drop_axis(&v, axis);
    }
    return meg_onnx_view_bind(b, n, &v);
}

static meg_status read_unsqueeze(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    meg_onnx_list axes;
    unsigned made = 0;
    (void)row;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    int count = v.axes + (axes.count < 0 ? 0 : axes.count);
    for (int i = 0; count <= MEG_ONNX_RANK && i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], count);
        made |= axis < 0 ? 0 : 1u << axis;
    }
    if (count > MEG_ONNX_RANK || __builtin_popcount(made) != axes.count)
        return meg_onnx_refuse(b, n, "axes that do not exist, or too many");
    for (int axis = 0; axis < count; axis++)
        if (made >> axis & 1) insert_axis(&v, axis);
    return meg_onnx_view_bind(b, n, &v);
}

static meg_status read_transpose(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    int64_t perm[MEG_ONNX_RANK];
    int rank = meg_onnx_rank(b, meg_onnx_in(b, n, 0));
    int count = meg_onnx_ints(n, "perm", perm, MEG_ONNX_RANK);
    (void)row;
    for (int i = 0; count < 0 && i < rank; i++)
        perm[i] = rank - 1 - i;
    if (count >= 0 && count != rank) return meg_onnx_refuse(b, n, "perm has %d numbers", count);
    return meg_onnx_view_transpose(b, n, perm);
}

static meg_status read_reshape(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    int64_t dims[MEG_ONNX_RANK];
    meg_onnx_list to;
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &to));
    int rank = meg_onnx_dims(b, s, dims);
    if (!meg_onnx_resolve(dims, rank, meg_onnx_int(n, "allowzero", 0) == 0, &to))
        return meg_onnx_refuse(b, n, "the new shape does not have as many elements as the input");
    meg_onnx_view v = meg_onnx_view_of(b, s);
    if (!meg_onnx_view_split(&v, &to) && meg_onnx_is_lazy(s->view)) {
        MEG_TRY(b->error, meg_onnx_settle(b, n, s));
        return row->read(b, n);
    }
    return meg_onnx_view_reshape(b, n, &to);
}

/* All entries of the only axis, in their order, with other extents: what PyTorch writes for
 * as_strided over the mean of all pixels. */
static meg_status gather_all(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_tensor *t)
{
    int64_t dims[MEG_ONNX_RANK], at;
    meg_onnx_list to = {.count = t->rank};
    meg_onnx_dims(b, meg_onnx_in(b, n, 0), dims);
    MEG_TRY(b->error, meg_onnx_work(b, n, t->size));
    bool all = t->size == dims[0];
    for (int64_t i = 0; all && i < t->size; i++)
        all = meg_onnx_whole(t, i, &at) && (at < 0 ? at + dims[0] : at) == i;
    if (!all)
        return meg_onnx_refuse(b, n,
                               "over the whole batch only all numbers in their order can be "
                               "gathered (as_strided)");
    memcpy(to.at, t->dims, sizeof to.at);
    return meg_onnx_view_reshape(b, n, &to);
}

/* One entry of an axis: the axis comes behind the batch, is cut, and is gone. */
static meg_status read_gather(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0)), y = v;
    const meg_onnx_tensor *t;
    int64_t at;
    int order[MEG_ONNX_ATOMS] = {0}, x;
    char words[96];
    (void)row;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), v.axes);
    if (t && t->rank > 0 && v.axes == 1) return gather_all(b, n, t);
    if (!t || t->rank != 0 || !meg_onnx_whole(t, 0, &at) || axis < 0 ||
        axis == meg_onnx_view_batch(&v))
        return meg_onnx_refuse(b, n, "only one entry, not of the batch, can be gathered");
    int own = meg_onnx_view_atoms(&v, axis, axis + 1, order + 1);
    int before = meg_onnx_view_atoms(&v, 0, axis, order + 1 + own);
    meg_onnx_view_atoms(&v, axis + 1, v.axes, order + 1 + own + before);
    meg_onnx_list dims = {3, {v.extent[0], meg_onnx_view_extent(&v, axis), 1}};
    for (int i = 1 + own; i < v.atoms; i++)
        dims.at[2] *= v.extent[order[i]];
    if (at < 0) at += dims.at[1];
    if (at < 0 || at >= dims.at[1]) return meg_onnx_refuse(b, n, "an index that does not exist");
    MEG_TRY(b->error, meg_onnx_view_arrange(b, n, &v, order, &dims, &x));
    snprintf(words, sizeof words, "axes=1 begin=%" PRId64 " end=%" PRId64, at, at + 1);
    y.value = meg_graph_add(b->graph, "slice", meg_onnx_fresh(b, "slice"), words, 1, &x);
    if (y.value < 0) return b->graph->error.status;
    /* What is left has its atoms in the file's order. */
    int next = 0;
    y.atoms = v.atoms - own;
    for (int i = 0, k = 1; i < v.begin[v.axes]; i++) {
        if (i >= v.begin[axis] && i < v.begin[axis + 1]) continue;
        int atom = v.order[i] == 0 ? 0 : k++;
        y.extent[atom] = v.extent[v.order[i]];
        y.order[next++] = atom;
    }
    for (int k = axis; k < v.axes; k++)
        y.begin[k] = v.begin[k + 1] - own;
    y.axes--;
    return meg_onnx_view_bind(b, n, &y);
}

/* ---- computing ---- */

/* The view as (n, .., last axis): tokens and features. */
static meg_status as_tokens(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v,
                            int *out)
{
    int order[MEG_ONNX_ATOMS] = {0}, last = v->axes - 1;
    int64_t tokens = 1;
    if (meg_onnx_view_batch(v) == last) return meg_onnx_refuse_batch(b, n);
    int count = 1 + meg_onnx_view_atoms(v, 0, last, order + 1);
    for (int i = 1; i < count; i++)
        tokens *= v->extent[order[i]];
    meg_onnx_view_atoms(v, last, v->axes, order + count);
    meg_onnx_list dims = {3, {v->extent[0], tokens, meg_onnx_view_extent(v, last)}};
    return meg_onnx_view_arrange(b, n, v, order, &dims, out);
}

/* As (n, .., rows, columns) for a product of matrices. */
static meg_status as_matrices(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v,
                              int *out)
{
    int order[MEG_ONNX_ATOMS] = {0}, lead = v->axes - 2;
    int64_t each = 1;
    if (lead < 1 || meg_onnx_view_batch(v) >= lead) return meg_onnx_refuse_batch(b, n);
    int count = 1 + meg_onnx_view_atoms(v, 0, lead, order + 1);
    for (int i = 1; i < count; i++)
        each *= v->extent[order[i]];
    meg_onnx_view_atoms(v, lead, v->axes, order + count);
    meg_onnx_list dims = {
        4, {v->extent[0], each, meg_onnx_view_extent(v, lead), meg_onnx_view_extent(v, lead + 1)}};
    return meg_onnx_view_arrange(b, n, v, order, &dims, out);
}

/* The axes of `like`, but for the last `own`, over a value (n, .., own axes). */
static meg_onnx_view view_like(const meg_onnx_build *b, int value, const meg_onnx_view *like,
                               int own)
{
    const meg_value *x = &b->graph->value[value];
    meg_onnx_view v = {.value = value, .atoms = 1, .axes = like->axes, .extent = {like->extent[0]}};
    int at = 0, shared = like->axes - own;
    for (int k = 0; k < shared; k++) {
        for (int i = like->begin[k]; i < like->begin[k + 1]; i++) {
            v.order[at++] = like->order[i] == 0 ? 0 : v.atoms;
            if (like->order[i] != 0) v.extent[v.atoms++] = like->extent[like->order[i]];
        }
        v.begin[k + 1] = at;
    }
    for (int k = 0; k < own; k++) {
        int64_t extent = x->dims[x->rank - own + k];
        if (extent > 1) v.order[at++] = v.atoms;
        if (extent > 1) v.extent[v.atoms++] = extent;
        v.begin[shared + k + 1] = at;
    }
    return v;
}

/* What the ordinary reader bound becomes a view like `like`. */
static meg_status see_through(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *like,
                              int own)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    int value;
    if (!y || (y->value < 0 && y->front < 0)) return MEG_OK;
    MEG_TRY(b->error, meg_onnx_straighten(b, y, &value));
    meg_onnx_view v = view_like(b, value, like, own);
    return meg_onnx_view_bind(b, n, &v);
}

/* Are all axes the same, the batch in the same place? */
static bool same_axes(const meg_onnx_view *a, const meg_onnx_view *c, int own)
{
    bool same = a->axes == c->axes && meg_onnx_view_batch(a) == meg_onnx_view_batch(c);
    for (int k = 0; same && k < a->axes - own; k++)
        same = meg_onnx_view_extent(a, k) == meg_onnx_view_extent(c, k);
    return same;
}

typedef meg_status arranging(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v,
                             int *out);

/* Reads the node with its data as plain values, then looks at its output as at its input. */
static meg_status read_plainly(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row,
                               arranging *how, int own)
{
    meg_onnx_symbol *s[2] = {NULL, NULL}, old[2];
    meg_onnx_view first = {.axes = 0};
    meg_status status = MEG_OK;
    for (int i = 0; status == MEG_OK && i < 2; i++) {
        meg_onnx_symbol *in = meg_onnx_in(b, n, i);
        if (!in || in->constant || (i == 1 && in == s[0])) continue;
        if (in->value < 0 && in->front < 0 && !in->view)
            break; /* the reader tells what is missing */
        meg_onnx_view v = meg_onnx_view_of(b, in);
        if (first.axes && !same_axes(&first, &v, own == 2 ? 2 : 0))
            return meg_onnx_refuse_batch(b, n);
        if (!first.axes) first = v;
        old[i] = *in;
        status = how(b, n, &v, &in->value);
        if (status == MEG_OK) s[i] = in;
        else *in = old[i];
        in->front = -1;
        in->view = NULL;
    }
    if (status == MEG_OK) status = row->read(b, n);
    for (int i = 0; i < 2; i++)
        if (s[i]) {
            s[i]->value = old[i].value;
            s[i]->front = old[i].front;
            s[i]->view = old[i].view;
        }
    MEG_TRY(b->error, status);
    const meg_onnx_node *after = meg_onnx_after(b, n); /* its bias, which went into the layer */
    if (after && b->skip[after - b->file->node])
        MEG_TRY(b->error, see_through(b, after, &first, own));
    return see_through(b, n, &first, own);
}

static meg_status read_tokens(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int rank = s && !s->constant ? meg_onnx_rank(b, s) : 0;
    int64_t axis = meg_onnx_int(n, "axis", -1);
    if (meg_onnx_has(n, "axis") && meg_onnx_axis(axis, rank) != rank - 1)
        return meg_onnx_refuse(b, n,
                               "axis=%" PRId64 ": the batch is not the first axis here, so only "
                               "the last is supported",
                               axis);
    return read_plainly(b, n, row, as_tokens, 1);
}

/* With a constant beside it that has no more than the last axis. */
static meg_status read_pair(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    for (int i = 0; i < 2; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        const meg_onnx_tensor *t = s ? s->constant : NULL;
        if (t && t->size > 1 && t->size != t->dims[t->rank - 1])
            return meg_onnx_refuse(b, n,
                                   "the batch is not the first axis here: a constant may have one");
    }
    return read_plainly(b, n, row, as_tokens, 1);
}

static meg_status read_matmul(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    const meg_onnx_symbol *right = meg_onnx_in(b, n, 1);
    bool weight = right && right->constant;
    return read_plainly(b, n, row, weight ? as_tokens : as_matrices, weight ? 1 : 2);
}

static meg_status read_same(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    (void)row;
    meg_onnx_bind_same(b, n, meg_onnx_in(b, n, 0));
    return MEG_OK;
}

static const struct {
    const char *op;
    meg_status (*read)(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row);
    bool pair; /* its second input may be the view */
} READERS[] = {{"Transpose", read_transpose, 0},
               {"Reshape", read_reshape, 0},
               {"Squeeze", read_squeeze, 0},
               {"Unsqueeze", read_unsqueeze, 0},
               {"Gather", read_gather, 0},
               {"MatMul", read_matmul, 1},
               {"Gemm", read_tokens, 0},
               {"LayerNormalization", read_tokens, 0},
               {"Softmax", read_tokens, 0},
               {"LogSoftmax", read_tokens, 0},
               {"Gelu", read_tokens, 0},
               {"Relu", read_tokens, 0},
               {"Tanh", read_tokens, 0},
               {"Sigmoid", read_tokens, 0},
               {"LeakyRelu", read_tokens, 0},
               {"Clip", read_tokens, 0},
               {"Dropout", read_tokens, 0},
               {"Add", read_pair, 1},
               {"Mul", read_pair, 1},
               {"Sub", read_pair, 1},
               {"Div", read_pair, 1},
               {"Identity", read_same, 0}};

/* Views that could be values stay so as long as axes are only moved. */
bool meg_onnx_has_view(const meg_onnx_build *b, const meg_onnx_node *n)
{
    bool moves = meg_bytes_is(n->op, "Transpose") || meg_bytes_is(n->op, "Reshape") ||
                 meg_bytes_is(n->op, "Squeeze") || meg_bytes_is(n->op, "Unsqueeze");
    for (int i = 0; i < n->inputs; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (s && s->view && (moves || !meg_onnx_is_lazy(s->view))) return true;
    }
    return false;
}

meg_status meg_onnx_read_view(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    const meg_onnx_symbol *first = meg_onnx_in(b, n, 0);
    bool seen = first && first->view;
    for (size_t i = 0; i < sizeof READERS / sizeof *READERS; i++)
        if (meg_bytes_is(n->op, READERS[i].op) && (seen || READERS[i].pair))
            return READERS[i].read(b, n, row);
    if (seen && meg_onnx_is_function(n)) return read_tokens(b, n, row);
    if (meg_bytes_is(n->op, "Shape") || meg_bytes_is(n->op, "CastLike")) return row->read(b, n);
    return meg_onnx_refuse(b, n, "the batch must be the first axis of its inputs");
}
