/* Constants of ONNX, and arithmetic of shapes. Exporters of networks whose code says
 * x.view(x.size(0), -1) write Shape, Gather, Unsqueeze, Concat, Reshape: all but the last are known
 * as soon as the shape of the input is.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

/* ---- making constants ---- */

static void bind_constant(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_tensor *t)
{
    meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[0]);
    meg_onnx_tensor *own = meg_pool_alloc(b->file->pool, sizeof *own);
    *own = *t;
    if (s) s->constant = own;
}

/* A list is an axis of its own, one number has none. */
static void bind_list(meg_onnx_build *b, const meg_onnx_node *n, int type, const void *data,
                      int count)
{
    meg_onnx_tensor t = {.type = type, .rank = count >= 0, .size = count < 0 ? 1 : count};
    t.dims[0] = t.size;
    t.data = data;
    bind_constant(b, n, &t);
}

static meg_status read_constant(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_tensor t;
    int ints = meg_onnx_ints(n, "value_ints", NULL, 0);
    int floats = meg_onnx_floats(n, "value_floats", NULL, 0);
    int64_t *whole = meg_pool_alloc(b->file->pool, (size_t)(ints < 1 ? 1 : ints) * sizeof *whole);
    float *real = meg_pool_alloc(b->file->pool, (size_t)(floats < 1 ? 1 : floats) * sizeof *real);
    whole[0] = meg_onnx_int(n, "value_int", 0);
    real[0] = (float)meg_onnx_real(n, "value_float", 0);
    meg_onnx_ints(n, "value_ints", whole, ints);
    meg_onnx_floats(n, "value_floats", real, floats);
    if (ints >= 0 || meg_onnx_has(n, "value_int")) bind_list(b, n, MEG_ONNX_INT64, whole, ints);
    else if (floats >= 0 || meg_onnx_has(n, "value_float"))
        bind_list(b, n, MEG_ONNX_FLOAT, real, floats);
    else {
        MEG_TRY(b->error, meg_onnx_value(b->file, b->error, n, &t));
        bind_constant(b, n, &t);
    }
    return MEG_OK;
}

static meg_status read_shape(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t dims[MEG_ONNX_RANK];
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int x, rank;
    if (s && s->constant) {
        rank = s->constant->rank;
        for (int i = 0; i < rank; i++)
            dims[i] = s->constant->dims[s->turned ? rank - 1 - i : i];
    } else {
        if (!s || !s->view) MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
        rank = meg_onnx_dims(b, s, dims);
    }
    int64_t begin = meg_onnx_int(n, "start", 0), end = meg_onnx_int(n, "end", rank);
    if (begin < 0) begin += rank;
    if (end < 0) end += rank;
    begin = begin < 0 ? 0 : begin;
    end = end > rank ? rank : end;
    int count = begin < end ? (int)(end - begin) : 0;
    int64_t *part = meg_pool_alloc(b->file->pool, ((size_t)count + 1) * sizeof *part);
    if (count) memcpy(part, dims + begin, (size_t)count * sizeof *part);
    bind_list(b, n, MEG_ONNX_INT64, part, count);
    return MEG_OK;
}

/* ---- weights of their own ---- */

/* A part of a trained weight, or all of it with other extents, is trained in its stead, under the node's
 * name: that would untie it where another node reads the weight, too. */
static meg_status take_over(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    const meg_onnx_symbol *root = s->of ? s->of : s;
    if (!meg_onnx_is_weight(s)) return MEG_OK;
    if (s->uses > 1 || root->uses > 1)
        return meg_onnx_refuse(b, n,
                               "it gives '%.*s', a trained weight, another shape, but other nodes "
                               "read the weight, too",
                               MEG_SPAN_TEXT(root->name));
    meg_onnx_list_name(b, &b->reshaped, root->name);
    return MEG_OK;
}

/* ---- arithmetic of shapes ---- */

/* The first rows of a weight, all of them perhaps: learned positions. */
static meg_status gather_positions(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    const meg_onnx_tensor *index = meg_onnx_in(b, n, 1)->constant;
    meg_onnx_tensor t = *s->constant;
    bool first = t.rank == 2 && meg_onnx_int(n, "axis", 0) == 0 && !s->turned && index->size >= 1 &&
                 index->size <= t.dims[0] && index->rank + 1 <= MEG_ONNX_RANK;
    if (first) MEG_TRY(b->error, meg_onnx_work(b, n, index->size));
    for (int64_t i = 0, at; first && i < index->size; i++)
        first = meg_onnx_whole(index, i, &at) && at == i;
    if (!first)
        return meg_onnx_refuse(b, n,
                               "of a weight only its first rows, or rows by ids that "
                               "are data, can be gathered");
    bool all = index->size == t.dims[0];
    t.rank = index->rank + 1;
    t.size = index->size * s->constant->dims[1];
    for (int i = 0; i < index->rank; i++)
        t.dims[i] = index->dims[i];
    t.dims[index->rank] = s->constant->dims[1];
    if (all) meg_onnx_bind_same(b, n, s);
    else MEG_TRY(b->error, take_over(b, n, s));
    bind_constant(b, n, &t);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && all && !y->of) y->of = s;
    if (y) y->trained = true;
    return MEG_OK;
}

/* Rows of a matrix by ids: (n, t) -> (n, t, features), which lie in front here. */
static meg_status gather_rows(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "embedding", .inputs = 1, .weights = 1, .front = true};
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    const meg_onnx_tensor *t = s->constant;
    MEG_TRY(b->error, meg_onnx_data(b, n, 1, &l.in[0]));
    if (t->rank != 2 || meg_onnx_int(n, "axis", 0) != 0 || s->turned ||
        b->graph->value[l.in[0]].dtype != MEG_I32)
        return meg_onnx_refuse(b, n, "of a constant only rows of a matrix can be gathered, by ids");
    l.weight[0].symbol = meg_onnx_owner(b, s);
    meg_onnx_attr(&l, "vocabulary=%lld features=%lld", (long long)t->dims[0],
                  (long long)t->dims[1]);
    return meg_onnx_add(b, n, &l);
}

/* Entries along an axis. One is a slice, without the axis if the index is no list. */
static meg_status gather_entry(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "reshape", .inputs = 1};
    const meg_onnx_tensor *t;
    int64_t at;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    const meg_value x = b->graph->value[l.in[0]]; /* the array moves */
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), x.rank);
    if (!t || axis < 1)
        return meg_onnx_refuse(b, n, "axis=%d: entries of the batch cannot be gathered", axis);
    if (t->size != 1 || t->rank > 1 || !meg_onnx_whole(t, 0, &at))
        return meg_onnx_gather_entries(b, n, l.in[0], axis);
    if (at < 0) at += x.dims[axis];
    if (at < 0 || at >= x.dims[axis]) return meg_onnx_refuse(b, n, "an index that does not exist");
    meg_onnx_attr(&l, "axes=%d begin=%lld end=%lld", axis, (long long)at, (long long)at + 1);
    if (t->rank == 1 || x.rank < 3) {
        l.op = "slice";
        if (t->rank == 0) return meg_onnx_refuse(b, n, "its input has too few axes");
        return meg_onnx_add(b, n, &l);
    }
    l.in[0] = meg_graph_add(b->graph, "slice", meg_onnx_fresh(b, "slice"), l.attrs, 1, l.in);
    if (l.in[0] < 0) return b->graph->error.status;
    l.attrs[0] = '\0';
    meg_onnx_attr(&l, "dims=0");
    for (int i = 1; i < x.rank; i++)
        if (i != axis) meg_onnx_attr(&l, "x%lld", (long long)x.dims[i]);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_gather(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0), *index = meg_onnx_in(b, n, 1);
    if (!s || !s->constant) return gather_entry(b, n);
    return index && index->constant ? gather_positions(b, n) : gather_rows(b, n);
}

/* All real numbers are the device's, all whole ones have 32 bits; fewer bits would round. */
static meg_status cast(meg_onnx_build *b, const meg_onnx_node *n, bool real, bool whole)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int x;
    if (!s || !s->constant) {
        if (!s || !s->view) MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
        else x = s->view->value;
        if (b->graph->value[x].dtype == MEG_F32 ? !real : !whole)
            return meg_onnx_refuse(b, n,
                                   "only real to float or double, whole to int32 or int64 are "
                                   "supported");
    } else if (!real) return meg_onnx_refuse(b, n, "a weight can only be cast to float or double");
    meg_onnx_bind_same(b, n, s);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && s->constant && !y->of) y->of = s;
    return MEG_OK;
}

static meg_status read_cast(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t to = meg_onnx_int(n, "to", 0);
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    if (to == MEG_ONNX_BOOL && s && !s->constant) return meg_onnx_mask_of(b, n);
    return cast(b, n, to == MEG_ONNX_FLOAT || to == MEG_ONNX_DOUBLE,
                to == MEG_ONNX_INT64 || to == MEG_ONNX_INT32);
}

static meg_status read_cast_like(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *like = meg_onnx_in(b, n, 1);
    int x = like ? like->view         ? like->view->value
                   : like->value >= 0 ? like->value
                                      : like->front
                 : -1;
    int type = like && like->constant ? like->constant->type : 0;
    bool unmade = x < 0 && type == 0; /* within a group of nodes that is one operator: real */
    bool real = x >= 0 ? b->graph->value[x].dtype == MEG_F32
                       : unmade || type == MEG_ONNX_FLOAT || type == MEG_ONNX_DOUBLE;
    bool whole = x >= 0 ? !real : type == MEG_ONNX_INT64 || type == MEG_ONNX_INT32;
    return cast(b, n, real, whole);
}

/* ---- weights with other extents ---- */

/* Are the extents the same but for ones? Then it is the same weight. */
static bool same_but_ones(const meg_onnx_tensor *a, const meg_onnx_tensor *c)
{
    int i = 0, k = 0;
    for (;;) {
        while (i < a->rank && a->dims[i] == 1)
            i++;
        while (k < c->rank && c->dims[k] == 1)
            k++;
        if (i == a->rank || k == c->rank) return i == a->rank && k == c->rank;
        if (a->dims[i++] != c->dims[k++]) return false;
    }
}

meg_status meg_onnx_reshape_weight(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_tensor t = *s->constant;
    if (s->turned) return meg_onnx_refuse(b, n, "its input is a transposed weight");
    MEG_TRY(b->error, meg_onnx_new_dims(b, n, s->constant, t.dims, &t.rank));
    bool same = same_but_ones(&t, s->constant);
    if (!same) MEG_TRY(b->error, take_over(b, n, s));
    meg_onnx_bind_same(b, n, s);
    bind_constant(b, n, &t);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && !y->of && same) y->of = s;
    return MEG_OK;
}

meg_status meg_onnx_slice_weight(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list list[4]; /* starts, ends, axes, steps */
    for (int i = 0; i < 4; i++)
        MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1 + i, &list[i]));
    bool all = !s->turned && list[0].count == list[1].count;
    for (int i = 0; all && i < list[0].count; i++) {
        int axis = meg_onnx_axis(list[2].count > i ? list[2].at[i] : i, s->constant->rank);
        int64_t extent = axis < 0 ? 0 : s->constant->dims[axis];
        all = axis >= 0 && (list[0].at[i] == 0 || list[0].at[i] <= -extent) &&
              list[1].at[i] >= extent && (list[3].count <= i || list[3].at[i] == 1);
    }
    if (!all)
        return meg_onnx_refuse(b, n,
                               "of '%.*s', a trained weight, a part is taken: only the whole is "
                               "supported",
                               MEG_SPAN_TEXT(s->name));
    meg_onnx_bind_same(b, n, s);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && !y->of) y->of = s;
    return MEG_OK;
}

/* ---- sequences ---- */

/* Equal parts along an axis, as PyTorch's split() writes them. */
static meg_status read_split_to_sequence(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    meg_onnx_list sizes;
    int x;
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &sizes));
    int rank = b->graph->value[x].rank, axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), rank);
    bool front = meg_onnx_is_front(meg_onnx_in(b, n, 0)) && axis == rank - 1 && rank > 2;
    if (front) axis = 1;
    else MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    const meg_value v = b->graph->value[x]; /* the array moves */
    bool single = sizes.count == 1 && meg_onnx_in(b, n, 1)->constant->rank == 0;
    if (axis < 1 || sizes.count < 1 || !y || !meg_onnx_int(n, "keepdims", 1))
        return meg_onnx_refuse(b, n, "only parts of given sizes, not of the batch, are supported");
    int64_t at = 0, most = v.dims[axis];
    if (single && (sizes.at[0] < 1 || (most - 1) / sizes.at[0] >= 64))
        return meg_onnx_refuse(b, n, "more than 64 parts");
    y->parts_front = front;
    y->part_count = single ? (int)((most - 1) / sizes.at[0]) + 1 : sizes.count;
    y->parts = meg_pool_alloc(b->file->pool, (size_t)y->part_count * sizeof *y->parts);
    for (int i = 0; i < y->part_count; i++) {
        int64_t size = sizes.at[single ? 0 : i], end = size < most - at ? at + size : most;
        char words[96];
        snprintf(words, sizeof words, "axes=%d begin=%lld end=%lld", axis, (long long)at,
                 (long long)end);
        if (size < 1 || end <= at) return meg_onnx_refuse(b, n, "a part of %lld", (long long)size);
        y->parts[i] = meg_graph_add(b->graph, "slice", meg_onnx_fresh(b, "slice"), words, 1, &x);
        if (y->parts[i] < 0) return b->graph->error.status;
        at = end;
    }
    return MEG_OK;
}

static meg_status read_sequence_at(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list index;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &index));
    int at = s && s->parts && index.count == 1 ? meg_onnx_axis(index.at[0], s->part_count) : -1;
    if (at < 0) return meg_onnx_refuse(b, n, "its input is no sequence, or has no such part");
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && s->parts_front) y->front = s->parts[at];
    else meg_onnx_bind(b, n, 0, s->parts[at]);
    return MEG_OK;
}

/* ---- of constants alone ---- */

static meg_status read_helper(meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_refuse(b, n, "it is supported of constants only");
}

const meg_onnx_row meg_onnx_constants[] = {
    {"Constant", "value value_int value_ints value_float value_floats", 0, 0, read_constant},
    {"Shape", "start end", 1, 1, read_shape},
    {"Gather", "axis", 2, 2, read_gather},
    {"Cast", "to saturate round_mode", 1, 1, read_cast},
    {"CastLike", "saturate round_mode", 2, 2, read_cast_like},
    {"SplitToSequence", "axis keepdims", 1, 2, read_split_to_sequence},
    {"SequenceAt", "", 2, 2, read_sequence_at},
    {0}};

/* Computed where all inputs are known: see fold/fold.c. */
const meg_onnx_row meg_onnx_helpers[] = {{"ConstantOfShape", "value", 1, 1, read_helper},
                                         {"Range", "", 3, 3, read_helper},
                                         {"Trilu", "upper", 1, 2, read_helper},
                                         {"Mod", "fmod", 2, 2, read_helper},
                                         {"Floor", "", 1, 1, read_helper},
                                         {"Ceil", "", 1, 1, read_helper},
                                         {"Round", "", 1, 1, read_helper},
                                         {"Sin", "", 1, 1, read_helper},
                                         {"Cos", "", 1, 1, read_helper},
                                         {0}};
