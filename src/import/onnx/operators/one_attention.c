/* Attention of ONNX (set 23), which is one node: softmax(scale q k' + mask) v, by heads.
 *
 *     3 axes   (n, tokens, heads * size)      heads are told
 *     4 axes   (n, heads, tokens, size)
 *
 * Without a mask, or with one that only hides what comes later, it is our attention, which keeps no matrix of tokens times
 * tokens. With another mask it is what it is made of: product, mask, softmax, product. Fewer heads of k and v than of q:
 * each serves as many heads of q that stand side by side, as in PyTorch (enable_gqa).
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct attention { /* q, k, v: (n, heads * size, tokens) */
    int in[3];
    int64_t batch, heads, size[2], tokens[2]; /* sizes of q and v; tokens of q and k */
    double scale;
    bool causal;
} attention;

enum {
    MASK = 3
};

/* ---- q, k, v ---- */

static meg_status take_heads(meg_onnx_build *b, const meg_onnx_node *n, int i, int64_t *heads)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    int64_t dims[MEG_ONNX_RANK];
    int unused;
    if (!s || s->constant)
        return meg_onnx_refuse(b, n, "input %d must be data, not a constant or absent", i);
    if (!s->view) MEG_TRY(b->error, meg_onnx_data_any(b, n, i, &unused));
    meg_onnx_view v = meg_onnx_view_of(b, s);
    int rank = meg_onnx_view_dims(&v, dims);
    if ((rank != 3 && rank != 4) || meg_onnx_view_batch(&v) != 0)
        return meg_onnx_refuse(b, n, "input %d must have 3 or 4 axes, the batch first", i);
    *heads = rank == 4 ? dims[1] : meg_onnx_int(n, i == 0 ? "q_num_heads" : "kv_num_heads", 0);
    if (*heads < 1 || (rank == 3 && dims[2] % *heads))
        return meg_onnx_refuse(b, n,
                               "q_num_heads and kv_num_heads must divide the features of inputs "
                               "with 3 axes");
    return MEG_OK;
}

/* (n, few * size, tokens) -> (n, many * size, tokens): as an image whose rows are heads. */
static int repeat(meg_onnx_build *b, int x, int64_t few, int64_t many)
{
    const meg_value v = b->graph->value[x]; /* the array moves */
    int64_t row = v.dims[1] / few * v.dims[2];
    char words[96];
    snprintf(words, sizeof words, "size=%" PRId64 "x%" PRId64, many, row);
    x = meg_onnx_shaped(b, x, 4, (int64_t[]){v.dims[0], 1, few, row});
    if (x >= 0) x = meg_graph_add(b->graph, "resize", meg_onnx_fresh(b, "resize"), words, 1, &x);
    if (x < 0) return x;
    return meg_onnx_shaped(b, x, 3, (int64_t[]){v.dims[0], many * (v.dims[1] / few), v.dims[2]});
}

static meg_status take_inputs(meg_onnx_build *b, const meg_onnx_node *n, attention *a)
{
    for (int i = 0; i < 3; i++) {
        int64_t heads = 1;
        MEG_TRY(b->error, take_heads(b, n, i, &heads));
        MEG_TRY(b->error, meg_onnx_arrange_tokens(b, n, meg_onnx_in(b, n, i), false, &a->in[i]));
        if (i == 0) a->heads = heads;
        if (a->heads % heads)
            return meg_onnx_refuse(b, n,
                                   "%" PRId64 " heads of q cannot share %" PRId64 " heads of k, v",
                                   a->heads, heads);
        if (heads != a->heads) a->in[i] = repeat(b, a->in[i], heads, a->heads);
        if (a->in[i] < 0) return b->graph->error.status;
    }
    const meg_value *q = &b->graph->value[a->in[0]], *k = &b->graph->value[a->in[1]],
                    *v = &b->graph->value[a->in[2]];
    if (q->dims[1] != k->dims[1] || k->dims[2] != v->dims[2])
        return meg_onnx_refuse(b, n, "q and k must have heads of one size, k and v as many tokens");
    a->batch = q->dims[0];
    a->size[0] = q->dims[1] / a->heads, a->size[1] = v->dims[1] / a->heads;
    a->tokens[0] = q->dims[2], a->tokens[1] = k->dims[2];
    a->causal = meg_onnx_int(n, "is_causal", 0) != 0;
    a->scale = meg_onnx_real(n, "scale", 1 / sqrt((double)a->size[0]));
    return MEG_OK;
}

/* ---- piece by piece ---- */

/* A constant that the file does not have. */
static meg_onnx_symbol *make_up(meg_onnx_build *b, const meg_onnx_tensor *like, const double *data)
{
    meg_onnx_tensor *t = meg_pool_alloc(b->file->pool, sizeof *t);
    char *name = meg_pool_text(b->file->pool, "%s", meg_onnx_fresh(b, "attention.number"));
    *t = *like;
    t->name = (meg_bytes){(const uint8_t *)name, (const uint8_t *)name + strlen(name)};
    t->type = MEG_ONNX_DOUBLE;
    t->data = data;
    t->mapped = false;
    if (meg_onnx_define(b, t->name, -1, t) != MEG_OK) return NULL;
    meg_onnx_symbol *s = meg_onnx_symbol_of(b, t->name);
    s->kind = MEG_ONNX_CONSTANT;
    s->unsaved = true;
    return s;
}

/* x and a constant, spread over it */
static meg_status apply(meg_onnx_build *b, const meg_onnx_node *n, const char *op,
                        meg_onnx_symbol *s, int *x)
{
    int in[2] = {*x};
    if (!s) return b->error->status;
    MEG_TRY(b->error, meg_onnx_spread(b, n, s, *x, &in[1]));
    *x = meg_graph_add(b->graph, op, meg_onnx_fresh(b, op), "", 2, in);
    return b->graph->error.status;
}

static meg_status scale_by(meg_onnx_build *b, const meg_onnx_node *n, double scale, int *x)
{
    double *number = meg_pool_alloc(b->file->pool, sizeof *number);
    *number = scale;
    return apply(b, n, "mul", make_up(b, &(meg_onnx_tensor){.size = 1}, number), x);
}

/* Minus infinity where query i must not see key j > i. */
static meg_status hide_later(meg_onnx_build *b, const meg_onnx_node *n, const attention *a, int *x)
{
    int64_t rows = a->tokens[0], columns = a->tokens[1];
    MEG_TRY(b->error, meg_onnx_work(b, n, rows * columns));
    double *mask = meg_pool_alloc(b->file->pool, (size_t)(rows * columns) * sizeof *mask);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < columns; j++)
            mask[i * columns + j] = -INFINITY;
    meg_onnx_tensor like = {.rank = 4, .dims = {1, 1, rows, columns}, .size = rows * columns};
    return apply(b, n, "add", make_up(b, &like, mask), x);
}

/* Numbers are added; of bools, false hides. */
static meg_status mask_constant(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s,
                                int *x)
{
    const meg_onnx_tensor *t = s->constant;
    if (t->type != MEG_ONNX_BOOL) return apply(b, n, "add", s, x);
    MEG_TRY(b->error, meg_onnx_work(b, n, t->size));
    double *mask = meg_pool_alloc(b->file->pool, ((size_t)t->size + 1) * sizeof *mask);
    for (int64_t i = 0, sees; i < t->size; i++)
        mask[i] = meg_onnx_whole(t, i, &sees) && sees ? 0 : -INFINITY;
    return apply(b, n, "add", make_up(b, t, mask), x);
}

/* Data that is true or false: 1 and 0 here (masks.c). */
static bool is_truth(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    static const char *const ops[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
                                      "And",   "Or",   "Not",         "Xor"};
    const meg_onnx_node *n = s->maker >= 0 ? &b->file->node[s->maker] : NULL;
    for (size_t i = 0; n && i < sizeof ops / sizeof *ops; i++)
        if (meg_bytes_is(n->op, ops[i])) return true;
    return n && meg_bytes_is(n->op, "Cast") && meg_onnx_int(n, "to", 0) == MEG_ONNX_BOOL;
}

static meg_status mask_data(meg_onnx_build *b, const meg_onnx_node *n, int *x)
{
    int in[2] = {*x};
    MEG_TRY(b->error, meg_onnx_data(b, n, MASK, &in[1]));
    if (b->graph->value[in[1]].rank != 4)
        return meg_onnx_refuse(b, n,
                               "a mask that is data must have 4 axes, the batch first: (n, 1, 1, "
                               "keys) or (n, heads, queries, keys); Unsqueeze it");
    if (is_truth(b, meg_onnx_in(b, n, MASK)))
        in[1] = meg_graph_add(b->graph, "log", meg_onnx_fresh(b, "log"), "", 1, &in[1]);
    if (in[1] >= 0) *x = meg_graph_add(b->graph, "add", meg_onnx_fresh(b, "add"), "", 2, in);
    return b->graph->error.status;
}

/* (n, heads * size, tokens) as (n, heads, size, tokens), or turned. */
static int heads_apart(meg_onnx_build *b, const attention *a, int i, bool turned)
{
    int64_t dims[] = {a->batch, a->heads, a->size[i == 2], a->tokens[i > 0]};
    int x = meg_onnx_shaped(b, a->in[i], 4, dims);
    if (x < 0 || !turned) return x;
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), "axes=0x1x3x2", 1,
                         &x);
}

static meg_status weigh(meg_onnx_build *b, const meg_onnx_node *n, const attention *a, int *x)
{
    meg_onnx_symbol *mask = meg_onnx_in(b, n, MASK);
    if (mask && mask->constant) MEG_TRY(b->error, mask_constant(b, n, mask, x));
    else if (mask) MEG_TRY(b->error, mask_data(b, n, x));
    if (a->causal) MEG_TRY(b->error, hide_later(b, n, a, x));
    int keys = meg_onnx_swap(b, *x, 3); /* to where channels are */
    if (keys >= 0)
        keys = meg_graph_add(b->graph, "softmax", meg_onnx_fresh(b, "softmax"), "", 1, &keys);
    *x = keys >= 0 ? meg_onnx_swap(b, keys, 3) : -1;
    return b->graph->error.status;
}

static meg_status in_pieces(meg_onnx_build *b, const meg_onnx_node *n, const attention *a, int *out)
{
    int in[2] = {heads_apart(b, a, 0, true), heads_apart(b, a, 1, false)};
    int x = meg_graph_add(b->graph, "matmul", meg_onnx_fresh(b, "matmul"), "", 2, in);
    if (x < 0) return b->graph->error.status;
    MEG_TRY(b->error, scale_by(b, n, a->scale, &x));
    MEG_TRY(b->error, weigh(b, n, a, &x));
    in[0] = x, in[1] = heads_apart(b, a, 2, true);
    x = meg_graph_add(b->graph, "matmul", meg_onnx_fresh(b, "matmul"), "", 2, in);
    if (x >= 0)
        x = meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), "axes=0x1x3x2", 1,
                          &x);
    if (x < 0) return b->graph->error.status;
    *out = meg_onnx_shaped(b, x, 3, (int64_t[]){a->batch, a->heads * a->size[1], a->tokens[0]});
    return b->graph->error.status;
}

/* ---- the node ---- */

static meg_status check(const meg_onnx_build *b, const meg_onnx_node *n)
{
    for (int i = MASK + 1; i < n->inputs; i++)
        if (meg_onnx_in(b, n, i))
            return meg_onnx_refuse(b, n,
                                   "past keys and values, and lengths, are for inference token by "
                                   "token: give all tokens at once, and hide those that do not "
                                   "count by attn_mask");
    if (fabs(meg_onnx_real(n, "softcap", 0)) > 0)
        return meg_onnx_refuse(b, n, "softcap is not supported: write Div, Tanh, Mul in between");
    return MEG_OK;
}

static meg_status read_attention(meg_onnx_build *b, const meg_onnx_node *n)
{
    attention a = {0};
    meg_onnx_layer l = {.op = "attention", .inputs = 3};
    MEG_TRY(b->error, check(b, n));
    MEG_TRY(b->error, take_inputs(b, n, &a));
    bool one = !meg_onnx_in(b, n, MASK) && a.size[0] == a.size[1] &&
               (!a.causal || a.tokens[0] == a.tokens[1]) && fabs(a.scale) > 0;
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (!y) return meg_onnx_refuse(b, n, "nobody reads its first output");
    meg_onnx_view q = meg_onnx_view_of(b, meg_onnx_in(b, n, 0));
    int value = -1;
    if (one) {
        memcpy(l.in, a.in, sizeof a.in);
        meg_onnx_attr(&l, "heads=%" PRId64 " causal=%d scale=%.17g", a.heads, a.causal, a.scale);
        MEG_TRY(b->error, meg_onnx_add(b, n, &l));
        value = y->value;
    } else MEG_TRY(b->error, in_pieces(b, n, &a, &value));
    meg_onnx_view made = meg_onnx_view_like(b, &q, value);
    return meg_onnx_view_bind(b, n, &made);
}

const meg_onnx_row meg_onnx_attentions[] = {
    {"Attention",
     "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision", 3,
     7, read_attention},
    {0}};
