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

/* Do the axis's atoms lie side by side in the value? */
static bool is_whole(const meg_onnx_view *v, int axis)
{
    for (int i = v->begin[axis] + 1; i < v->begin[axis + 1]; i++)
        if (v->order[i] != v->order[i - 1] + 1) return false;
    return true;
}

/* Atoms come to lie in the file's order, the batch in front of them. */
static meg_status put_in_order(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_view *v)
{
    int order[MEG_ONNX_ATOMS] = {0}, atom[MEG_ONNX_ATOMS] = {0};
    meg_onnx_view old = *v;
    meg_onnx_list dims = {2, {v->extent[0], 1}};
    meg_onnx_view_atoms(v, 0, v->axes, order + 1);
    for (int i = 1; i < v->atoms; i++) {
        atom[order[i]] = i;
        v->extent[i] = old.extent[order[i]];
        dims.at[1] *= v->extent[i];
    }
    for (int i = 0; i < v->begin[v->axes]; i++)
        v->order[i] = atom[old.order[i]];
    return meg_onnx_view_arrange(b, n, &old, order, &dims, &v->value);
}

/* The axis's atoms, side by side from `first` on, give way to one of this extent; 1: to none. */
static void replace_atoms(meg_onnx_view *v, int axis, int first, int64_t extent)
{
    const meg_onnx_view old = *v;
    int own = old.begin[axis + 1] - old.begin[axis], made = extent > 1, at = 0;
    v->atoms = old.atoms - own + made;
    if (made) v->extent[first] = extent;
    for (int i = first + own; i < old.atoms; i++)
        v->extent[i - own + made] = old.extent[i];
    for (int k = 0; k < old.axes; k++) {
        for (int i = old.begin[k]; k != axis && i < old.begin[k + 1]; i++)
            v->order[at++] = old.order[i] < first ? old.order[i] : old.order[i] - own + made;
        if (k == axis && made) v->order[at++] = first;
        v->begin[k + 1] = at;
    }
}

/* The value as (n, before, axis, after); `first`: the axis's first atom. */
static int around(meg_onnx_build *b, const meg_onnx_view *v, int axis, int first)
{
    int own = v->begin[axis + 1] - v->begin[axis];
    int64_t dims[] = {v->extent[0], 1, meg_onnx_view_extent(v, axis), 1};
    for (int i = 1; i < v->atoms; i++)
        if (i < first || i >= first + own) dims[i < first ? 1 : 3] *= v->extent[i];
    return meg_onnx_shaped(b, v->value, 4, dims);
}

/* One entry of the axis, which is gone then. */
static meg_status take_one(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_view *v, int axis,
                           int x)
{
    const meg_onnx_tensor *t = meg_onnx_in(b, n, 1)->constant;
    int64_t at, length = b->graph->value[x].dims[2];
    char words[96];
    if (!meg_onnx_whole(t, 0, &at) || at < -length || at >= length)
        return meg_onnx_refuse(b, n, "an index that does not exist");
    if (at < 0) at += length;
    snprintf(words, sizeof words, "axes=2 begin=%" PRId64 " end=%" PRId64, at, at + 1);
    v->value = meg_graph_add(b->graph, "slice", meg_onnx_fresh(b, "slice"), words, 1, &x);
    if (v->value < 0) return b->graph->error.status;
    drop_axis(v, axis);
    return meg_onnx_view_bind(b, n, v);
}

/* Those that a list names; its shape takes the place of the axis. */
static meg_status take_list(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_view *v, int axis,
                            int x)
{
    meg_onnx_layer l = {.op = "take", .inputs = 1, .in = {x}, .weights = 1};
    meg_onnx_symbol *index = meg_onnx_in(b, n, 1), *y = meg_onnx_symbol_of(b, n->out[0]);
    const meg_onnx_tensor *t = index->constant;
    int64_t have[MEG_ONNX_RANK], at, length = b->graph->value[x].dims[2];
    int rank = meg_onnx_view_dims(v, have);
    meg_onnx_list to = {.count = rank - 1 + t->rank};
    MEG_TRY(b->error, meg_onnx_work(b, n, t->size));
    for (int64_t i = 0; i < t->size; i++)
        if (!meg_onnx_whole(t, i, &at) || at < -length || at >= length)
            return meg_onnx_refuse(b, n, "an index that an axis of %" PRId64 " does not have",
                                   length);
    if (to.count > MEG_ONNX_RANK) return meg_onnx_refuse(b, n, "it would have too many axes");
    for (int k = 0, i = 0; k < rank; k++)
        for (int j = 0; j < (k == axis ? t->rank : 1); j++)
            to.at[i++] = k == axis ? t->dims[j] : have[k];
    l.weight[0] = (meg_onnx_weight){.symbol = index, .flat = true};
    meg_onnx_attr(&l, "axis=2 count=%" PRId64, t->size);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    b->graph->value[index->parameter].unsaved = true; /* it is of the code, whatever its name */
    v->value = y->value;
    if (!meg_onnx_view_split(v, &to)) return meg_onnx_refuse_batch(b, n);
    return meg_onnx_view_bind(b, n, v);
}

/* Entries of an axis, which comes to lie between what is before and behind it. */
static meg_status read_gather(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    const meg_onnx_tensor *t;
    (void)row;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), v.axes);
    if (t && t->rank > 0 && v.axes == 1 && !meg_onnx_is_alone(&v)) return gather_all(b, n, t);
    if (!t || t->size < 1 || axis < 0 || axis == meg_onnx_view_batch(&v))
        return meg_onnx_refuse(b, n,
                               "only entries that constants name, not of the batch, can be "
                               "gathered");
    if (!is_whole(&v, axis)) MEG_TRY(b->error, put_in_order(b, n, &v));
    bool none = v.begin[axis] == v.begin[axis + 1]; /* an extent of 1 has no atom */
    int first = none ? v.atoms : v.order[v.begin[axis]], x = around(b, &v, axis, first);
    if (x < 0) return b->graph->error.status;
    replace_atoms(&v, axis, first, t->size);
    return (t->rank > 0 ? take_list : take_one)(b, n, &v, axis, x);
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
    if (lead < !meg_onnx_is_alone(v) || meg_onnx_view_batch(v) >= lead)
        return meg_onnx_refuse_batch(b, n);
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

/* Over the last axis alone, which stays with extent 1. */
static meg_status read_reduce(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    static const int64_t last = -1; /* whatever the number of axes */
    static const meg_onnx_tensor one = {
        .type = MEG_ONNX_INT64, .rank = 1, .dims = {1}, .size = 1, .data = &last};
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_symbol *axes = meg_onnx_in(b, n, 1);
    meg_onnx_list list;
    int rank = meg_onnx_rank(b, s);
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &list));
    bool fits = list.count == 1 && meg_onnx_axis(list.at[0], rank) == rank - 1;
    if (!fits || !meg_onnx_int(n, "keepdims", 1) || meg_onnx_view_batch(s->view) == rank - 1)
        return meg_onnx_refuse(b, n,
                               "the batch is not the first axis here, so only the last can be "
                               "reduced, with keepdims=1");
    const meg_onnx_tensor *old = axes->constant;
    axes->constant = &one;
    meg_status status = read_plainly(b, n, row, as_tokens, 1);
    axes->constant = old;
    return status;
}

/* Along the last axis alone: the nearest pixel of one. */
static meg_status read_expand(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    int64_t have[MEG_ONNX_RANK];
    meg_onnx_list to;
    char words[64];
    int x, rank = meg_onnx_view_dims(&v, have);
    (void)row;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &to));
    bool fits = to.count == rank && rank > 0 && to.at[rank - 1] >= 1;
    for (int k = 0; fits && k < rank - 1; k++)
        fits = to.at[k] == 1 || to.at[k] == have[k];
    if (!fits || have[rank - 1] != 1)
        return meg_onnx_refuse(b, n,
                               "the batch is not the first axis here, so only a last axis of "
                               "extent 1 can be spread");
    MEG_TRY(b->error, as_tokens(b, n, &v, &x));
    int64_t dims[] = {v.extent[0], b->graph->value[x].dims[1], 1, 1};
    x = meg_onnx_shaped(b, x, 4, dims);
    snprintf(words, sizeof words, "mode=nearest size=%" PRId64 "x1", to.at[rank - 1]);
    if (x >= 0) x = meg_graph_add(b->graph, "resize", meg_onnx_fresh(b, "expand"), words, 1, &x);
    dims[2] = to.at[rank - 1];
    if (x >= 0) x = meg_onnx_shaped(b, x, 3, dims);
    if (x < 0) return b->graph->error.status;
    meg_onnx_view y = view_like(b, x, &v, 1);
    return meg_onnx_view_bind(b, n, &y);
}

/* Do the operands differ in the last axis at most, so that tokens and features will do? */
static bool is_simple(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s[2] = {meg_onnx_in(b, n, 0), meg_onnx_in(b, n, 1)};
    for (int i = 0; i < 2; i++) {
        const meg_onnx_tensor *t = s[i] ? s[i]->constant : NULL;
        if (t) return t->size == 1 || t->size == t->dims[t->rank - 1];
    }
    if (!s[0] || !s[1] || meg_onnx_rank(b, s[0]) == 0 || meg_onnx_rank(b, s[1]) == 0) return true;
    meg_onnx_view v = meg_onnx_view_of(b, s[0]), w = meg_onnx_view_of(b, s[1]);
    return same_axes(&v, &w, 0);
}

static meg_status read_pair(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    return is_simple(b, n) ? read_plainly(b, n, row, as_tokens, 1)
                           : meg_onnx_read_spread(b, n, row);
}

static meg_status read_matmul(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    const meg_onnx_symbol *right = meg_onnx_in(b, n, 1);
    bool weight = right && right->constant;
    return read_plainly(b, n, row, weight ? as_tokens : as_matrices, weight ? 1 : 2);
}

/* ---- blocks of pixels ---- */

/* Reshape to these, Transpose, Reshape to those. */
typedef struct moving {
    meg_onnx_list apart, together;
    int64_t perm[MEG_ONNX_RANK];
} moving;

static meg_status read_moving(meg_onnx_build *b, const meg_onnx_node *n, const moving *m)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    if (!meg_onnx_view_split(&v, &m->apart)) return meg_onnx_refuse_batch(b, n);
    meg_onnx_view_turn(&v, m->perm);
    if (!meg_onnx_view_split(&v, &m->together)) return meg_onnx_refuse_batch(b, n);
    return meg_onnx_view_bind(b, n, &v);
}

/* Extents of an image, and the size of blocks. */
static meg_status want_image(meg_onnx_build *b, const meg_onnx_node *n, int64_t dims[MEG_ONNX_RANK],
                             int64_t *block)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int unused;
    *block = meg_onnx_int(n, "blocksize", 0);
    if (!s || !s->view) MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &unused));
    if (meg_onnx_dims(b, s, dims) != 4 || *block < 1)
        return meg_onnx_refuse(b, n, "its input must be (n, c, h, w), its blocksize 1 or more");
    return MEG_OK;
}

/* Channels become pixels; those of a block are far apart (DCR), or side by side (CRD: pixel shuffle). */
static meg_status read_depth_to_space(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t d[MEG_ONNX_RANK], k;
    bool near = meg_bytes_is(meg_onnx_text(n, "mode"), "CRD");
    MEG_TRY(b->error, want_image(b, n, d, &k));
    if (d[1] % (k * k))
        return meg_onnx_refuse(b, n, "%" PRId64 " channels are no blocks of %" PRId64 " x %" PRId64,
                               d[1], k, k);
    int64_t c = d[1] / (k * k);
    moving far = {
        {6, {d[0], k, k, c, d[2], d[3]}}, {4, {d[0], c, d[2] * k, d[3] * k}}, {0, 3, 4, 1, 5, 2}};
    moving by = {{6, {d[0], c, k, k, d[2], d[3]}}, far.together, {0, 1, 4, 2, 5, 3}};
    return read_moving(b, n, near ? &by : &far);
}

static meg_status read_space_to_depth(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t d[MEG_ONNX_RANK], k;
    MEG_TRY(b->error, want_image(b, n, d, &k));
    if (d[2] % k || d[3] % k)
        return meg_onnx_refuse(b, n, "%" PRId64 " x %" PRId64 " pixels are no blocks of %" PRId64,
                               d[2], d[3], k);
    moving m = {{6, {d[0], d[1], d[2] / k, k, d[3] / k, k}},
                {4, {d[0], d[1] * k * k, d[2] / k, d[3] / k}},
                {0, 3, 5, 1, 2, 4}};
    return read_moving(b, n, &m);
}

const meg_onnx_row meg_onnx_blocks[] = {
    {"DepthToSpace", "blocksize mode", 1, 1, read_depth_to_space},
    {"SpaceToDepth", "blocksize", 1, 1, read_space_to_depth},
    {0}};

/* ---- by operator ---- */

static meg_status read_itself(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_row *row)
{
    return row->read(b, n);
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
               {"ReduceSum", read_reduce, 0},
               {"ReduceL1", read_reduce, 0},
               {"ReduceL2", read_reduce, 0},
               {"ReduceSumSquare", read_reduce, 0},
               {"Expand", read_expand, 0},
               {"Einsum", read_itself, 1},
               {"DepthToSpace", read_itself, 0},
               {"SpaceToDepth", read_itself, 0},
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
