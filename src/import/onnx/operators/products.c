/* Products of matrices in ONNX. One of the factors is a constant, as a rule: a dense layer.
 *
 *     (n, k) x W        dense                  W constant; the Add of a constant behind it: its bias
 *     (n, t, k) x W     conv with one tap      tokens are pixels, features lie in front
 *     W x (n, k, t)     the same               features are in front already
 *     x or W a vector   a matrix of one row    the axis is taken away again
 *     (n, r, k) x (n, k, j)                    both data: matmul
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

/* A matrix of the file, as the weight of a layer: rows are units. */
typedef struct matrix {
    meg_onnx_weight weight;
    int64_t units;
} matrix;

/* Input i; `straight`: units are rows in the file. A vector is a matrix with one unit. */
static meg_status want_matrix(const meg_onnx_build *b, const meg_onnx_node *n, int i, bool straight,
                              matrix *out)
{
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
    meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    if (!t || t->rank < 1 || t->rank > 2)
        return meg_onnx_refuse(b, n, "its weight is no matrix and no vector");
    bool rows = straight != s->turned || t->rank == 1;
    out->units = t->rank == 1 ? 1 : t->dims[rows ? 0 : 1];
    out->weight = (meg_onnx_weight){.symbol = meg_onnx_owner(b, s), .transposed = !rows};
    return MEG_OK;
}

/* Tokens are pixels: a dense layer for each of them is a convolution with one tap. */
static void dense_words(meg_onnx_layer *l, int64_t units, int rank)
{
    l->front = rank > 2;
    l->op = l->front ? "conv" : "dense";
    meg_onnx_attr(l, "%s=%" PRId64 " bias=%d%s", l->front ? "filters" : "units", units,
                  l->weights - 1, l->front ? " kernel=1" : "");
}

/* The bias of Gemm that is no vector of units: one number, or data. It is added behind. */
static meg_status add_behind(meg_onnx_build *b, const meg_onnx_node *n, double beta)
{
    meg_onnx_layer l = {.op = "add", .inputs = 2};
    meg_onnx_symbol *s = meg_onnx_in(b, n, 2), *y = meg_onnx_symbol_of(b, n->out[0]);
    if (beta < 1 || beta > 1)
        return meg_onnx_refuse(b, n, "beta=%g is supported with a bias of as many numbers as units",
                               beta);
    MEG_TRY(b->error, meg_onnx_straighten(b, y, &l.in[0]));
    if (s->constant) MEG_TRY(b->error, meg_onnx_spread(b, n, s, l.in[0], &l.in[1]));
    else MEG_TRY(b->error, meg_onnx_data(b, n, 2, &l.in[1]));
    const meg_value *v = b->graph->value;
    if (!s->constant && v[l.in[0]].rank != v[l.in[1]].rank)
        return meg_onnx_refuse(b, n, "a bias that is data must have %d axes", v[l.in[0]].rank);
    y->front = -1;
    y->value = meg_graph_add(b->graph, l.op, meg_onnx_fresh(b, l.op), "", l.inputs, l.in);
    return b->graph->error.status;
}

static meg_status read_gemm(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "dense", .inputs = 1, .weights = 1};
    double alpha = meg_onnx_real(n, "alpha", 1), beta = meg_onnx_real(n, "beta", 1);
    const meg_onnx_symbol *bias = meg_onnx_in(b, n, 2);
    matrix m;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, want_matrix(b, n, 1, meg_onnx_int(n, "transB", 0) != 0, &m));
    int rank = b->graph->value[l.in[0]].rank; /* 3: tokens of samples, see through_views.c */
    if (meg_onnx_int(n, "transA", 0) || rank < 2 || rank > 3)
        return meg_onnx_refuse(b, n,
                               "only rows times a matrix is supported, without transA, which "
                               "would sum over the batch");
    if (rank == 3) MEG_TRY(b->error, meg_onnx_data_front(b, n, 0, &l.in[0]));
    l.weight[0] = m.weight;
    if (alpha < 1 || alpha > 1) l.weight[0].scale = alpha;
    bool behind = bias && (!bias->constant || (bias->constant->size == 1 && m.units > 1));
    if (bias && !behind) {
        MEG_TRY(b->error, meg_onnx_want_weight(b, n, 2, &l.weight[1].symbol));
        if (beta < 1 || beta > 1) l.weight[1].scale = beta;
        l.weights = 2;
    }
    dense_words(&l, m.units, rank);
    b->folded += meg_onnx_is_fused(n);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    return behind ? add_behind(b, n, beta) : MEG_OK;
}

/* The constant that an Add behind this node adds to every row of `units`; NULL: there is none. */
static meg_onnx_symbol *bias_after(const meg_onnx_build *b, const meg_onnx_node *n, int64_t units)
{
    const meg_onnx_node *add = meg_onnx_after(b, n);
    if (!add || !meg_bytes_is(add->op, "Add") || add->inputs != 2 || add->outputs != 1) return NULL;
    for (int i = 0; i < 2; i++) {
        meg_onnx_symbol *s = meg_onnx_in(b, add, i);
        const meg_onnx_tensor *t = s ? s->constant : NULL;
        if (t && t->rank >= 1 && t->size == units && t->dims[t->rank - 1] == units) return s;
    }
    return NULL;
}

/* Takes an axis away that only a vector has brought in. */
static meg_status drop_axis(meg_onnx_build *b, const meg_onnx_node *n, int axis)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    int x, rank = 0;
    MEG_TRY(b->error, meg_onnx_straighten(b, y, &x));
    const meg_value v = b->graph->value[x]; /* the array moves */
    int64_t dims[MEG_AXES];
    for (int i = 0; i < v.rank; i++)
        if (i != axis) dims[rank++] = v.dims[i];
    if (rank < 2) return meg_onnx_refuse(b, n, "nothing would be left but the batch");
    y->front = -1;
    y->value = meg_onnx_shaped(b, x, rank, dims);
    return b->graph->error.status;
}

/* A constant times data, (r, k) x (.., k, j): rows go to place 1, where channels are. */
static meg_status times_data(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "conv", .inputs = 1, .weights = 1};
    matrix m;
    MEG_TRY(b->error, meg_onnx_data(b, n, 1, &l.in[0]));
    MEG_TRY(b->error, want_matrix(b, n, 0, true, &m));
    int rank = b->graph->value[l.in[0]].rank, axis = rank - 2;
    if (rank < 3) return meg_onnx_refuse(b, n, "a constant times data would sum over the batch");
    if (axis > 1) l.in[0] = meg_onnx_swap(b, l.in[0], axis);
    if (l.in[0] < 0) return b->graph->error.status;
    l.weight[0] = m.weight;
    meg_onnx_attr(&l, "filters=%" PRId64 " bias=0 kernel=1", m.units);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (axis > 1) y->value = meg_onnx_swap(b, y->value, axis);
    if (y->value < 0) return b->graph->error.status;
    return meg_onnx_in(b, n, 0)->constant->rank == 1 ? drop_axis(b, n, axis) : MEG_OK;
}

static meg_status of_data(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "matmul", .inputs = 2};
    for (int i = 0; i < 2; i++)
        MEG_TRY(b->error, meg_onnx_data(b, n, i, &l.in[i]));
    return meg_onnx_add(b, n, &l);
}

static meg_status read_matmul(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "dense", .inputs = 1, .weights = 1};
    const meg_onnx_symbol *left = meg_onnx_in(b, n, 0), *right = meg_onnx_in(b, n, 1);
    matrix m;
    bool matrix_left = left && left->constant && left->constant->rank <= 2;
    if (right && !right->constant) return matrix_left ? times_data(b, n) : of_data(b, n);
    MEG_TRY(b->error, meg_onnx_data_front(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, want_matrix(b, n, 1, false, &m));
    int rank = b->graph->value[l.in[0]].rank;
    if (rank < 2)
        return meg_onnx_refuse(b, n, "its input is a vector: it would sum over the batch");
    bool vector = right->constant->rank == 1;
    meg_onnx_symbol *bias = vector ? NULL : bias_after(b, n, m.units);
    l.weight[0] = m.weight;
    if (bias) l.weight[l.weights++].symbol = bias;
    dense_words(&l, m.units, rank);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    if (vector) return drop_axis(b, n, rank - 1);
    if (!bias) return MEG_OK;
    const meg_onnx_node *add = meg_onnx_after(b, n);
    b->skip[add - b->file->node] = true;
    meg_onnx_bind_same(b, add, meg_onnx_symbol_of(b, n->out[0]));
    return MEG_OK;
}

const meg_onnx_row meg_onnx_products[] = {
    {"Gemm", "alpha beta transA transB", 2, 3, read_gemm}, {"MatMul", "", 2, 2, read_matmul}, {0}};
