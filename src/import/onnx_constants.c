/* Constants of ONNX, and arithmetic of shapes. Exporters of networks whose code says
 * x.view(x.size(0), -1) write Shape, Gather, Unsqueeze, Concat, Reshape: all but the last are known
 * as soon as the shape of the input is.
 */
#include "import/onnx_build.h"

#include <string.h>

/* ---- making constants ---- */

static void bind_constant(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_tensor *t)
{
    meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[0]);
    meg_onnx_tensor *own = meg_pool_alloc(b->file->pool, sizeof *own);
    *own = *t;
    if (s) s->constant = own;
}

static void bind_wholes(meg_onnx_build *b, const meg_onnx_node *n, int rank, const int64_t at[],
                        int count)
{
    meg_onnx_tensor t = {.type = MEG_ONNX_INT64, .rank = rank, .size = count};
    int64_t *data = meg_pool_alloc(b->file->pool, ((size_t)count + 1) * sizeof *data);
    memcpy(data, at, (size_t)count * sizeof *data);
    t.dims[0] = count;
    t.data = data;
    bind_constant(b, n, &t);
}

static meg_status read_constant(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_tensor t = {.size = 1};
    int64_t list[MEG_ONNX_RANK];
    int count = meg_onnx_ints(n, "value_ints", list, MEG_ONNX_RANK);
    if (meg_onnx_has(n, "value_int")) list[0] = meg_onnx_int(n, "value_int", 0), count = -2;
    if (count > MEG_ONNX_RANK)
        return meg_onnx_refuse(b, n, "a list of more than %d", MEG_ONNX_RANK);
    if (count >= 0 || count == -2) bind_wholes(b, n, count >= 0, list, count < 0 ? 1 : count);
    else if (meg_onnx_has(n, "value_float")) {
        float *data = meg_pool_alloc(b->file->pool, sizeof *data);
        *data = (float)meg_onnx_real(n, "value_float", 0);
        t.type = MEG_ONNX_FLOAT, t.data = data;
        bind_constant(b, n, &t);
    } else {
        MEG_TRY(b->error, meg_onnx_value(b->file, b->error, n, &t));
        bind_constant(b, n, &t);
    }
    return MEG_OK;
}

static meg_status read_shape(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t dims[MEG_ONNX_RANK];
    int x;
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
    int rank = meg_onnx_dims(b, meg_onnx_in(b, n, 0), dims);
    int64_t begin = meg_onnx_int(n, "start", 0), end = meg_onnx_int(n, "end", rank);
    if (begin < 0) begin += rank;
    if (end < 0) end += rank;
    begin = begin < 0 ? 0 : begin;
    end = end > rank ? rank : end;
    bind_wholes(b, n, 1, dims + (begin < end ? begin : 0), begin < end ? (int)(end - begin) : 0);
    return MEG_OK;
}

/* ---- arithmetic of shapes ---- */

static meg_status gather_shape(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_list from, index;
    int64_t out[MEG_ONNX_RANK];
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 0, &from));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &index));
    for (int i = 0; i < index.count; i++) {
        int at = meg_onnx_axis(index.at[i], from.count);
        if (at < 0) return meg_onnx_refuse(b, n, "an index that does not exist");
        out[i] = from.at[at];
    }
    bind_wholes(b, n, meg_onnx_in(b, n, 1)->constant->rank, out, index.count);
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

/* One entry along an axis: a slice, without the axis if the index is no list. */
static meg_status gather_entry(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "reshape", .inputs = 1};
    const meg_onnx_tensor *t;
    int64_t at;
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    const meg_value x = b->graph->value[l.in[0]]; /* the array moves */
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", 0), x.rank);
    if (!t || t->size != 1 || t->rank > 1 || !meg_onnx_whole(t, 0, &at) || axis < 1)
        return meg_onnx_refuse(b, n, "only one entry, not along the batch, can be gathered");
    if (at < 0) at += x.dims[axis];
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
    return index && index->constant ? gather_shape(b, n) : gather_rows(b, n);
}

static meg_status read_cast(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0), *y = meg_onnx_symbol_of(b, n->out[0]);
    int64_t to = meg_onnx_int(n, "to", 0), unused;
    bool whole = to == MEG_ONNX_INT64 || to == MEG_ONNX_INT32;
    bool real = to == MEG_ONNX_FLOAT || to == MEG_ONNX_DOUBLE || to == MEG_ONNX_FLOAT16 ||
                to == MEG_ONNX_BFLOAT16;
    if (s && s->constant && whole && meg_onnx_whole(s->constant, 0, &unused)) {
        y->constant = s->constant;
        return MEG_OK;
    }
    int x;
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &x));
    bool same = b->graph->value[x].dtype == MEG_F32 ? real : whole;
    if (!same) return meg_onnx_refuse(b, n, "only from real to real, whole to whole is supported");
    meg_onnx_bind_same(b, n,
                       s); /* all real numbers are the device's, all whole ones have 32 bits */
    return MEG_OK;
}

static bool compute(meg_span op, int64_t a, int64_t c, int64_t *out)
{
    if (meg_span_is(op, "Add")) return !__builtin_add_overflow(a, c, out);
    if (meg_span_is(op, "Sub")) return !__builtin_sub_overflow(a, c, out);
    if (meg_span_is(op, "Mul")) return !__builtin_mul_overflow(a, c, out);
    if (c == 0 || (a == INT64_MIN && c == -1)) return false;
    *out = a / c;
    return true;
}

meg_status meg_onnx_compute(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_list a, c;
    int64_t out[MEG_ONNX_RANK];
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 0, &a));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 1, &c));
    int count = a.count > c.count ? a.count : c.count;
    if ((a.count != count && a.count != 1) || (c.count != count && c.count != 1))
        return meg_onnx_refuse(b, n, "lists of different lengths");
    for (int i = 0; i < count; i++)
        if (!compute(n->op, a.at[a.count > 1 ? i : 0], c.at[c.count > 1 ? i : 0], &out[i]))
            return meg_onnx_refuse(b, n, "its result is no number");
    int rank = meg_onnx_in(b, n, 0)->constant->rank | meg_onnx_in(b, n, 1)->constant->rank;
    bind_wholes(b, n, rank > 0, out, count);
    return MEG_OK;
}

/* Lists of whole numbers, one behind the other. */
meg_status meg_onnx_join_shapes(meg_onnx_build *b, const meg_onnx_node *n)
{
    int64_t out[MEG_ONNX_RANK];
    int count = 0;
    for (int i = 0; i < n->inputs; i++) {
        meg_onnx_list part;
        MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, i, &part));
        if (count + part.count > MEG_ONNX_RANK)
            return meg_onnx_refuse(b, n, "a shape of more than %d axes", MEG_ONNX_RANK);
        for (int k = 0; k < part.count; k++)
            out[count++] = part.at[k];
    }
    bind_wholes(b, n, 1, out, count);
    return MEG_OK;
}

/* A matrix of weights with axes of extent 1 behind it: as a convolution has it. */
static meg_status widen(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    meg_onnx_list axes;
    meg_onnx_tensor t = *s->constant;
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    for (int i = 0; i < axes.count; i++)
        if (axes.at[i] != s->constant->rank + i || t.rank == MEG_ONNX_RANK || s->turned)
            return meg_onnx_refuse(b, n, "of weights, only axes at the end are supported");
        else t.dims[t.rank++] = 1;
    meg_onnx_bind_same(b, n, s);
    bind_constant(b, n, &t);
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && !y->of) y->of = s;
    return MEG_OK;
}

/* A number becomes a list of one, or the other way round. */
meg_status meg_onnx_rank_shape(meg_onnx_build *b, const meg_onnx_node *n, int rank)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list list;
    if (rank == 1 && s->constant->type == MEG_ONNX_FLOAT) return widen(b, n, s);
    MEG_TRY(b->error, meg_onnx_list_of(b, n, NULL, 0, &list));
    if (rank == 0 && list.count != 1) return meg_onnx_refuse(b, n, "more than one number");
    bind_wholes(b, n, rank, list.at, list.count);
    return MEG_OK;
}

const meg_onnx_row meg_onnx_constants[] = {
    {"Constant", "value value_int value_ints value_float", 0, 0, read_constant},
    {"Shape", "start end", 1, 1, read_shape},
    {"Gather", "axis", 2, 2, read_gather},
    {"Cast", "to saturate round_mode", 1, 1, read_cast},
    {0}};
