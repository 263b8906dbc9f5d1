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
    if (count > MEG_ONNX_RANK) return meg_onnx_refuse(b, n, "a list of more than %d", MEG_ONNX_RANK);
    if (count >= 0 || count == -2)
        bind_wholes(b, n, count >= 0, list, count < 0 ? 1 : count);
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
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int64_t dims[MEG_ONNX_RANK];
    int x;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    const meg_value *v = &b->graph->value[x];
    int rank = meg_onnx_rank(b, s);
    int64_t begin = meg_onnx_int(n, "start", 0), end = meg_onnx_int(n, "end", rank);
    if (begin < 0) begin += rank;
    if (end < 0) end += rank;
    begin = begin < 0 ? 0 : begin;
    end = end > rank ? rank : end;
    for (int i = 0; i < rank; i++)
        dims[i] = i < v->rank ? v->dims[i] : 1;
    bind_wholes(b, n, 1, dims + (begin < end ? begin : 0), begin < end ? (int)(end - begin) : 0);
    return MEG_OK;
}

/* ---- arithmetic of shapes ---- */

static meg_status read_gather(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    meg_onnx_list from, index;
    int64_t out[MEG_ONNX_RANK];
    if (!s || !s->constant || s->constant->rank != 1)
        return meg_onnx_refuse(b, n, "only entries of a shape can be gathered");
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
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    if (!real || b->graph->value[x].dtype != MEG_F32)
        return meg_onnx_refuse(b, n, "only from real to real, and of shapes, is supported");
    meg_onnx_bind(b, n, 0, x); /* all real numbers are the device's */
    y->rank = s->rank;
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

/* A number becomes a list of one, or the other way round. */
meg_status meg_onnx_rank_shape(meg_onnx_build *b, const meg_onnx_node *n, int rank)
{
    meg_onnx_list list;
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
