/* Views: how the axes of a file lie in a value of the graph (view.h). What is done with axes is
 * done with a view's atoms; a value that has them in order is made only when one is asked for.
 */
#include "import/onnx/build/view.h"

#include <inttypes.h>
#include <string.h>

/* ---- axes ---- */

int64_t meg_onnx_view_extent(const meg_onnx_view *v, int axis)
{
    int64_t extent = 1;
    for (int i = v->begin[axis]; i < v->begin[axis + 1]; i++)
        extent *= v->extent[v->order[i]];
    return extent;
}

int meg_onnx_view_dims(const meg_onnx_view *v, int64_t out[MEG_ONNX_RANK])
{
    for (int i = 0; i < v->axes; i++)
        out[i] = meg_onnx_view_extent(v, i);
    return v->axes;
}

int meg_onnx_view_batch(const meg_onnx_view *v)
{
    for (int k = 0; k < v->axes; k++)
        for (int i = v->begin[k]; i < v->begin[k + 1]; i++)
            if (v->order[i] == 0) return k;
    return -1;
}

bool meg_onnx_is_alone(const meg_onnx_view *v)
{
    return meg_onnx_view_batch(v) < 0;
}

/* An atom per axis of a value, each an axis of the file, in order; `last`: the file has axis 1 last. */
static meg_onnx_view view_of_value(const meg_onnx_build *b, int value, bool last)
{
    const meg_value *x = &b->graph->value[value];
    meg_onnx_view v = {.value = value, .axes = x->rank, .lazy = true};
    int atom[MEG_AXES]; /* of each axis; -1: an extent of 1 has none */
    for (int i = 0; i < x->rank; i++) {
        atom[i] = i == 0 || x->dims[i] > 1 ? v.atoms : -1;
        if (atom[i] >= 0) v.extent[v.atoms++] = x->dims[i];
    }
    for (int i = 0, at = 0; i < x->rank; i++) {
        int from = !last || i == 0 ? i : i == x->rank - 1 ? 1 : i + 1;
        if (atom[from] >= 0) v.order[at++] = atom[from];
        v.begin[i + 1] = at;
    }
    return v;
}

meg_onnx_view meg_onnx_view_of(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    if (s->view) return *s->view;
    return view_of_value(b, s->value >= 0 ? s->value : s->front, s->value < 0);
}

/* Splits atom a into (first, rest). */
static bool split_atom(meg_onnx_view *v, int a, int64_t first)
{
    if (a == 0 || v->atoms == MEG_ONNX_ATOMS || first < 1 || v->extent[a] % first) return false;
    int count = v->begin[v->axes], at = 0;
    memmove(v->extent + a + 1, v->extent + a, (size_t)(v->atoms - a) * sizeof *v->extent);
    v->extent[a] = first, v->extent[a + 1] /= first;
    v->atoms++;
    for (int i = 0; i < count; i++)
        if (v->order[i] > a) v->order[i]++;
        else if (v->order[i] == a) at = i;
    memmove(v->order + at + 2, v->order + at + 1, (size_t)(count - at - 1) * sizeof *v->order);
    v->order[at + 1] = a + 1;
    for (int k = 0; k <= v->axes; k++)
        v->begin[k] += v->begin[k] > at;
    return true;
}

/* A batch of 1 fits anywhere. It is an axis of its own where there is one for it, else belongs to the
 * axis that follows it, (t, n, h d) -> (t, n h, d), but never to the last, which has features. */
static bool takes_one(const meg_onnx_list *to, int k, int64_t next)
{
    return next == 1 && (to->at[k] == 1 || k >= to->count - 2);
}

/* Walks the atoms in the file's order, splits where an axis ends. */
bool meg_onnx_view_split(meg_onnx_view *v, const meg_onnx_list *to)
{
    int at = 0, begin[MEG_ONNX_RANK + 1] = {0};
    for (int k = 0; k < to->count; k++) {
        int64_t have = 1;
        while (at < v->begin[v->axes]) {
            int64_t next = v->extent[v->order[at]];
            if (have == to->at[k] && !takes_one(to, k, next)) break;
            if (to->at[k] % (have * next) != 0 &&
                (to->at[k] % have != 0 || !split_atom(v, v->order[at], to->at[k] / have)))
                return false;
            have *= v->extent[v->order[at++]];
            if (to->at[k] == 1) break;
        }
        if (have != to->at[k]) return false;
        begin[k + 1] = at;
    }
    if (at != v->begin[v->axes]) return false;
    v->axes = to->count;
    memcpy(v->begin, begin, sizeof begin);
    return true;
}

void meg_onnx_view_turn(meg_onnx_view *v, const int64_t perm[])
{
    meg_onnx_view old = *v;
    int at = 0;
    for (int k = 0; k < v->axes; k++) {
        int from = (int)perm[k];
        for (int i = old.begin[from]; i < old.begin[from + 1]; i++)
            v->order[at++] = old.order[i];
        v->begin[k + 1] = at;
    }
}

/* ---- values ---- */

/* Runs of atoms that are neighbours in the value and in the wanted order are one axis of a transpose. */
typedef struct runs {
    int count;
    int first[MEG_ONNX_ATOMS]; /* its first atom, in the wanted order */
    int64_t extent[MEG_ONNX_ATOMS];
} runs;

static runs runs_of(const meg_onnx_view *v, const int order[])
{
    runs r = {0};
    for (int i = 0; i < v->atoms; i++) {
        if (i > 1 && order[i] == order[i - 1] + 1) { /* the batch stays alone */
            r.extent[r.count - 1] *= v->extent[order[i]];
            continue;
        }
        r.first[r.count] = order[i];
        r.extent[r.count++] = v->extent[order[i]];
    }
    return r;
}

/* The axes of a transpose: (n, a, b, c, d) -> (n, a, c, b, d), the runs from `at` on behind `count` of those
 * that begin at `from`. */
static int exchange(meg_onnx_build *b, int x, const runs *r, const int part[2], int count)
{
    int end[] = {1, part[0], part[1], part[1] + count, r->count}, axes = 1, place[4], order[4];
    int64_t dims[MEG_AXES] = {r->extent[0]};
    char words[64] = "axes=0";
    for (int k = 0; k < 4; k++) {
        place[k] = end[k] == end[k + 1] ? 0 : axes; /* where it lies; 0: it is empty */
        if (place[k]) dims[axes++] = 1;
        for (int i = end[k]; i < end[k + 1]; i++)
            dims[place[k]] *= r->extent[i];
    }
    memcpy(order, (int[]){place[0], place[2], place[1], place[3]}, sizeof order);
    for (int k = 0; k < 4; k++)
        if (order[k])
            snprintf(words + strlen(words), sizeof words - strlen(words), "x%d", order[k]);
    x = meg_onnx_shaped(b, x, axes, dims);
    if (x < 0) return x;
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), words, 1, &x);
}

/* More axes than a transpose has: runs come to their places one after the other. `r` has them as wanted. */
static int exchange_all(meg_onnx_build *b, int x, const runs *r)
{
    runs now = *r;
    for (int i = 1; i < now.count; i++) /* as they lie in the value */
        for (int k = i; k > 1 && now.first[k] < now.first[k - 1]; k--) {
            int first = now.first[k];
            int64_t extent = now.extent[k];
            now.first[k] = now.first[k - 1], now.extent[k] = now.extent[k - 1];
            now.first[k - 1] = first, now.extent[k - 1] = extent;
        }
    for (int i = 1; x >= 0 && i < now.count; i++) {
        int at = i, count = 0;
        while (now.first[at] != r->first[i])
            at++;
        if (at == i) continue;
        while (at + count < now.count && now.first[at + count] == r->first[i + count])
            count++; /* those that follow it, if they shall */
        x = exchange(b, x, &now, (int[]){i, at}, count);
        runs old = now;
        for (int k = 0; k < at - i; k++)
            now.first[i + count + k] = old.first[i + k],
                                  now.extent[i + count + k] = old.extent[i + k];
        for (int k = 0; k < count; k++)
            now.first[i + k] = old.first[at + k], now.extent[i + k] = old.extent[at + k];
    }
    return x;
}

/* One transpose, of runs in this order. */
static int turn(meg_onnx_build *b, int x, const runs *r)
{
    int64_t in_order[MEG_ONNX_ATOMS];
    char axes[64] = "axes=";
    bool moved = false;
    for (int i = 0; i < r->count;
         i++) { /* the run's place in the value: how many begin before it */
        int place = 0;
        for (int k = 0; k < r->count; k++)
            place += r->first[k] < r->first[i];
        in_order[place] = r->extent[i];
        moved = moved || place != i;
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "%s%d", i ? "x" : "", place);
    }
    if (!moved) return x;
    x = meg_onnx_shaped(b, x, r->count, in_order);
    if (x < 0) return x;
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), axes, 1, &x);
}

meg_status meg_onnx_view_arrange(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v,
                                 const int order[], meg_onnx_list *dims, int *out)
{
    runs r = runs_of(v, order);
    if (dims->count > MEG_AXES)
        return meg_onnx_refuse(b, n, "it would have %d axes, but %d are the most", dims->count,
                               MEG_AXES);
    *out = r.count > MEG_AXES ? exchange_all(b, v->value, &r) : turn(b, v->value, &r);
    if (*out >= 0) *out = meg_onnx_shaped(b, *out, dims->count, dims->at);
    return b->graph->error.status;
}

int meg_onnx_view_atoms(const meg_onnx_view *v, int from, int to, int out[])
{
    int count = 0;
    for (int i = v->begin[from]; i < v->begin[to]; i++)
        if (v->order[i] != 0) out[count++] = v->order[i];
    return count;
}

/* Is the batch alone the first axis? */
static bool batch_first(const meg_onnx_view *v)
{
    return v->axes <= MEG_AXES && v->axes > 0 && v->begin[1] == 1 && v->order[0] == 0;
}

bool meg_onnx_is_lazy(const meg_onnx_view *v)
{
    return v->lazy && batch_first(v);
}

/* Is the value the file's with its last axis in front, number by number? */
static bool lies_in_front(const meg_onnx_view *v)
{
    int at = 1, last = v->axes - 1;
    bool same = batch_first(v) && v->axes > 2;
    for (int i = v->begin[last]; same && i < v->begin[last + 1]; i++)
        same = v->order[i] == at++;
    for (int i = 1; same && i < v->begin[last]; i++)
        same = v->order[i] == at++;
    return same;
}

static bool lies_straight(const meg_onnx_view *v)
{
    for (int i = 0; i < v->begin[v->axes]; i++)
        if (v->order[i] != i) return false;
    return batch_first(v);
}

meg_status meg_onnx_settle(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s)
{
    const meg_onnx_view *v = s->view;
    meg_onnx_list dims = {.count = v->axes};
    if (!meg_onnx_is_lazy(v)) return MEG_OK;
    meg_onnx_view_dims(v, dims.at);
    MEG_TRY(b->error, meg_onnx_view_arrange(b, n, v, v->order, &dims, &s->value));
    s->view = NULL;
    return MEG_OK;
}

/* Binds the node's output: a value where the numbers lie so, else a view. */
meg_status meg_onnx_view_bind(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_view *v)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    meg_onnx_list dims = {.count = v->axes};
    if (!y) return MEG_OK;
    y->value = y->front = -1;
    y->view = NULL;
    meg_onnx_view_dims(v, dims.at);
    if (lies_straight(v) || (batch_first(v) && !v->lazy))
        return meg_onnx_view_arrange(b, n, v, v->order, &dims, &y->value);
    if (lies_in_front(v)) {
        memmove(dims.at + 2, dims.at + 1, (size_t)(v->axes - 2) * sizeof *dims.at);
        dims.at[1] = meg_onnx_view_extent(v, v->axes - 1);
        y->front = meg_onnx_shaped(b, v->value, v->axes, dims.at);
        return b->graph->error.status;
    }
    y->view = meg_pool_alloc(b->file->pool, sizeof *y->view);
    *y->view = *v;
    return MEG_OK;
}

/* ---- nodes that move or join the batch ---- */

meg_status meg_onnx_refuse_batch(const meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_refuse(b, n,
                           "it moves, splits or joins the batch, which must stay the first axis");
}

meg_status meg_onnx_view_transpose(meg_onnx_build *b, const meg_onnx_node *n, const int64_t perm[])
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    unsigned seen = 0;
    for (int i = 0; i < v.axes; i++)
        seen |= perm[i] >= 0 && perm[i] < v.axes ? 1u << perm[i] : 0;
    if (seen != (1u << v.axes) - 1)
        return meg_onnx_refuse(b, n, "perm does not name each axis once");
    meg_onnx_view_turn(&v, perm);
    return meg_onnx_view_bind(b, n, &v);
}

meg_status meg_onnx_view_reshape(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_list *to)
{
    meg_onnx_view v = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    if (!meg_onnx_view_split(&v, to)) return meg_onnx_refuse_batch(b, n);
    return meg_onnx_view_bind(b, n, &v);
}
