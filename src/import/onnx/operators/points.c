/* Operators of ONNX that work point by point. Of two inputs one may be a constant: a parameter, if
 * the file says so or its name does (build/initializers.c), else it stays as it is.
 */
#include "import/onnx/operators/operators.h"

#include <math.h>
#include <string.h>

/* ---- one input ---- */

meg_status meg_onnx_point(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l)
{
    l->inputs = 1;
    l->front = meg_onnx_is_front(meg_onnx_in(b, n, 0));
    MEG_TRY(b->error, (l->front ? meg_onnx_data_front : meg_onnx_data)(b, n, 0, &l->in[0]));
    return meg_onnx_add(b, n, l);
}

static meg_status read_relu(meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_point(b, n, &(meg_onnx_layer){.op = "relu"});
}

static meg_status read_sigmoid(meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_point(b, n, &(meg_onnx_layer){.op = "sigmoid"});
}

static meg_status read_tanh(meg_onnx_build *b, const meg_onnx_node *n)
{
    return meg_onnx_point(b, n, &(meg_onnx_layer){.op = "tanh"});
}

static meg_status read_leaky(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "leaky_relu"};
    meg_onnx_attr(&l, "slope=%.9g", meg_onnx_real(n, "alpha", 0.01));
    return meg_onnx_point(b, n, &l);
}

static meg_status read_gelu(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "gelu"};
    bool tangent = meg_bytes_is(meg_onnx_text(n, "approximate"), "tanh");
    meg_onnx_attr(&l, "approximate=%s", tangent ? "tanh" : "none");
    return meg_onnx_point(b, n, &l);
}

/* A bound of Clip, input i, as a choice: what lies beyond it becomes the bound. */
static meg_status bound_by(meg_onnx_build *b, const meg_onnx_node *n, int i, int *x)
{
    int in[3] = {*x};
    meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    if (!s) return MEG_OK;
    if (!s->constant) return meg_onnx_refuse(b, n, "input %d must be a constant", i);
    MEG_TRY(b->error, meg_onnx_spread(b, n, s, *x, &in[2]));
    in[1] = meg_graph_add(b->graph, "compare", meg_onnx_fresh(b, "compare"),
                          i == 1 ? "relation=less" : "relation=greater", 2, (int[]){*x, in[2]});
    if (in[1] >= 0) *x = meg_graph_add(b->graph, "where", meg_onnx_fresh(b, "where"), "", 3, in);
    return b->graph->error.status;
}

/* Bounds that are trained: the gradient of what lies beyond them is theirs, as PyTorch's clamp has it. */
static meg_status clip_trained(meg_onnx_build *b, const meg_onnx_node *n)
{
    int x;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    for (int i = 1; i <= 2; i++)
        MEG_TRY(b->error, bound_by(b, n, i, &x));
    meg_onnx_bind(b, n, 0, x);
    return MEG_OK;
}

static bool is_trained(const meg_onnx_symbol *s)
{
    return s && s->constant && meg_onnx_is_weight(s);
}

static meg_status read_clip(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "clip"};
    double lo, hi;
    if (is_trained(meg_onnx_in(b, n, 1)) || is_trained(meg_onnx_in(b, n, 2)))
        return clip_trained(b, n);
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 1, -3.4028235e38, &lo));
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 2, 3.4028235e38, &hi));
    if (lo > hi) lo = hi; /* all becomes the upper bound */
    meg_onnx_attr(&l, "lo=%.9g hi=%.9g", lo, hi);
    return meg_onnx_point(b, n, &l);
}

/* Over the channels, which may be the last axis. */
static meg_status read_softmax(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "softmax", .inputs = 1};
    if (meg_bytes_is(n->op, "LogSoftmax")) meg_onnx_attr(&l, "log=1");
    MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &l.in[0]));
    int rank = meg_onnx_rank(b, meg_onnx_in(b, n, 0));
    int axis = meg_onnx_axis(meg_onnx_int(n, "axis", -1), rank);
    l.front = axis == rank - 1;
    if (axis < 1) return meg_onnx_refuse(b, n, "axis=%d: not over the batch", axis);
    MEG_TRY(b->error, (l.front ? meg_onnx_data_front : meg_onnx_data)(b, n, 0, &l.in[0]));
    bool middle = axis > 1 && !l.front;
    if (middle) l.in[0] = meg_onnx_swap(b, l.in[0], axis);
    if (l.in[0] < 0) return b->graph->error.status;
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (middle) y->value = meg_onnx_swap(b, y->value, axis);
    return b->graph->error.status;
}

static meg_status read_same(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    int unused;
    if (!s || !s->constant) MEG_TRY(b->error, meg_onnx_data_any(b, n, 0, &unused));
    meg_onnx_bind_same(b, n, s);
    return MEG_OK;
}

/* ---- two inputs ---- */

/* The shape of a constant that is spread over a value of `rank` axes, the last of which lies in
 * front or not; false: it cannot be. */
static bool spread(const meg_onnx_tensor *t, const meg_value *x, bool front, meg_weight_spec *out)
{
    if (t->rank > x->rank) return false;
    out->rank = x->rank;
    out->shape = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 0; i < x->rank; i++) {
        int from = i - (x->rank - t->rank), to = i;
        if (front && i > 0) to = i == x->rank - 1 ? 1 : i + 1;
        int64_t extent = from < 0 ? 1 : t->dims[from];
        if (extent != 1 && extent != x->dims[to]) return false;
        if (front && extent != 1 && to != 1) return false; /* its numbers would have to move */
        out->dims[to] = extent;
        out->shape.hi[to < 2 ? to : MEG_AXES - x->rank + to] = extent;
    }
    return out->dims[0] == 1; /* the same for all samples */
}

typedef struct operand { /* a constant beside data */
    meg_onnx_symbol *symbol;
    int other; /* the data */
    bool front;
} operand;

/* As a parameter, or fixed. Its numbers are those of the weight that nodes gave other extents. */
static meg_status value_of_constant(meg_onnx_build *b, const meg_onnx_node *n, const operand *c,
                                    int *out)
{
    const meg_onnx_tensor *t = c->symbol->constant;
    meg_weight_spec spec = {.kind = MEG_PARAMETER};
    if (c->symbol->turned || !spread(t, &b->graph->value[c->other], c->front, &spec))
        return meg_onnx_refuse(b, n, "the constant '%.*s' does not fit the other input",
                               MEG_SPAN_TEXT(c->symbol->name));
    meg_onnx_weight w = {.symbol = meg_onnx_owner(b, c->symbol), .flat = true};
    meg_onnx_doubt(b, w.symbol);
    return meg_onnx_leaf(b, n, &w, &spec, out);
}

/* Data of fewer axes has them at the end, in ONNX: axes of extent 1 are put behind the batch. That
 * needs the batch to be among them: a vector beside (n, c, h, w) would be one per sample here. */
meg_status meg_onnx_line_up(const meg_onnx_build *b, const meg_onnx_node *n, int i, int k)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i), *t = meg_onnx_in(b, n, k);
    if (!s || !t || s->constant || t->constant) return MEG_OK; /* which are spread as they are */
    int first = meg_onnx_rank(b, s), second = meg_onnx_rank(b, t);
    if (first == second) return MEG_OK;
    return meg_onnx_refuse(b, n,
                           "data of rank %d and %d: the first axis, the batch, would not be the "
                           "same one",
                           first, second);
}

meg_status meg_onnx_spread(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s, int other,
                           int *out)
{
    return value_of_constant(b, n, &(operand){s, other, false}, out);
}

static bool narrower(const meg_graph *g, int a, int c)
{
    return meg_box_size(&g->value[a].shape) < meg_box_size(&g->value[c].shape);
}

void meg_onnx_widest_first(const meg_onnx_build *b, int in[2])
{
    int first = in[0];
    if (!narrower(b->graph, in[0], in[1])) return;
    in[0] = in[1], in[1] = first;
}

/* Has the constant a number for each element of a sample? */
static bool whole_sample(const meg_onnx_tensor *t, const meg_value *x, bool front)
{
    if (front && x->rank != 3) return false;
    int shift = t->rank - (x->rank - 1);
    if (shift < 0 || shift > 1 || (shift == 1 && t->dims[0] != 1) || t->size == 1) return false;
    for (int i = 1; i < x->rank; i++)
        if (t->dims[shift + i - 1] != x->dims[front ? 3 - i : i]) return false;
    return true;
}

/* Has the constant numbers along another axis than the last, so that data in front of it would not do?
 * Learned positions do: see add_constant. */
static bool wants_order(const meg_onnx_build *b, const meg_onnx_symbol *c, const meg_onnx_symbol *x,
                        bool sum)
{
    const meg_onnx_tensor *t = c ? c->constant : NULL;
    if (!t || !meg_onnx_is_front(x)) return false;
    if (sum && meg_onnx_is_weight(c) && whole_sample(t, &b->graph->value[x->front], true))
        return false;
    for (int i = 0; i < t->rank - 1; i++)
        if (t->dims[i] != 1) return true;
    return false;
}

/* Both inputs as data, in one order; -1 for a constant. */
static meg_status pair_data(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l)
{
    meg_onnx_symbol *s[2] = {meg_onnx_in(b, n, 0), meg_onnx_in(b, n, 1)};
    bool sum = strcmp(l->op, "add") == 0;
    l->front = meg_onnx_is_front(s[0]) || meg_onnx_is_front(s[1]);
    if (wants_order(b, s[0], s[1], sum) || wants_order(b, s[1], s[0], sum)) l->front = false;
    l->inputs = 2;
    for (int i = 0; i < 2; i++) {
        l->in[i] = -1;
        if (s[i] && s[i]->constant) continue;
        MEG_TRY(b->error, (l->front ? meg_onnx_data_front : meg_onnx_data)(b, n, i, &l->in[i]));
    }
    return MEG_OK;
}

/* Both inputs are constants, one a weight; others were computed at once. */
static bool both_constant(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *x = meg_onnx_in(b, n, 0), *y = meg_onnx_in(b, n, 1);
    return x && y && x->constant && y->constant;
}

/* The first input must have the shape of the output. `inverse`: what makes the operator one that
 * commutes, where the second is the wider one; NULL: it does. */
static meg_status pair(meg_onnx_build *b, const meg_onnx_node *n, const char *op,
                       const char *inverse)
{
    meg_onnx_layer l = {.op = op};
    if (both_constant(b, n)) return meg_onnx_refuse(b, n, "both inputs are weights");
    MEG_TRY(b->error, pair_data(b, n, &l));
    for (int i = 0; i < 2; i++) {
        if (l.in[i] >= 0) continue;
        operand c = {meg_onnx_in(b, n, i), l.in[1 - i], l.front};
        MEG_TRY(b->error, value_of_constant(b, n, &c, &l.in[i]));
    }
    MEG_TRY(b->error, meg_onnx_line_up(b, n, 0, 1));
    if (inverse && narrower(b->graph, l.in[0], l.in[1])) { /* c - x = -x + c, c / x = 1 / x * c */
        l.op = strcmp(op, "sub") == 0 ? "add" : "mul";
        l.in[1] = meg_graph_add(b->graph, inverse, meg_onnx_fresh(b, inverse), "", 1, &l.in[1]);
        if (l.in[1] < 0) return b->graph->error.status;
    }
    meg_onnx_widest_first(b, l.in);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_mul(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "mul", NULL);
}

static meg_status read_sub(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "sub", "neg");
}

static meg_status read_div(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "div", "reciprocal");
}

/* ---- sums ---- */

static bool shapes_differ(const meg_graph *g, int a, int c)
{
    return !meg_box_equal(&g->value[a].shape, &g->value[c].shape);
}

/* x + constant: learned positions, or a parameter that is spread over x. */
static meg_status add_constant(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l, int i)
{
    operand c = {meg_onnx_in(b, n, i), l->in[1 - i], l->front};
    const meg_onnx_tensor *t = c.symbol->constant;
    l->in[0] = c.other;
    meg_onnx_doubt(b, meg_onnx_owner(b, c.symbol));
    if (meg_onnx_is_weight(c.symbol) && whole_sample(t, &b->graph->value[c.other], l->front)) {
        l->op = "position";
        l->inputs = l->weights = 1;
        l->weight[0] = (meg_onnx_weight){.symbol = meg_onnx_owner(b, c.symbol),
                                         .transposed = l->front};
        return meg_onnx_add(b, n, l);
    }
    MEG_TRY(b->error, value_of_constant(b, n, &c, &l->in[1]));
    return meg_onnx_add(b, n, l);
}

static meg_status read_add(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "add"};
    if (both_constant(b, n)) return meg_onnx_refuse(b, n, "both inputs are weights");
    MEG_TRY(b->error, pair_data(b, n, &l));
    for (int i = 0; i < 2; i++)
        if (l.in[i] < 0) return add_constant(b, n, &l, i);
    MEG_TRY(b->error, meg_onnx_line_up(b, n, 0, 1));
    meg_onnx_widest_first(b, l.in);
    return meg_onnx_add(b, n, &l);
}

/* Any number of inputs; the plain sum takes eight. */
static meg_status read_sum(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "add", .inputs = n->inputs};
    for (int i = 0; i < n->inputs; i++) {
        MEG_TRY(b->error, meg_onnx_data(b, n, i, &l.in[i]));
        if (shapes_differ(b->graph, l.in[0], l.in[i]))
            return meg_onnx_refuse(b, n, "its inputs must have equal shapes");
    }
    if (n->inputs == 1) return read_same(b, n);
    return meg_onnx_add(b, n, &l);
}

const meg_onnx_row meg_onnx_points[] = {{"Relu", "", 1, 1, read_relu},
                                        {"LeakyRelu", "alpha", 1, 1, read_leaky},
                                        {"Sigmoid", "", 1, 1, read_sigmoid},
                                        {"Tanh", "", 1, 1, read_tanh},
                                        {"Gelu", "approximate", 1, 1, read_gelu},
                                        {"Clip", "", 1, 3, read_clip},
                                        {"Softmax", "axis", 1, 1, read_softmax},
                                        {"LogSoftmax", "axis", 1, 1, read_softmax},
                                        {"Identity", "", 1, 1, read_same},
                                        {"Add", "", 2, 2, read_add},
                                        {"Sum", "", 1, MEG_INPUTS, read_sum},
                                        {"Mul", "", 2, 2, read_mul},
                                        {"Sub", "", 2, 2, read_sub},
                                        {"Div", "", 2, 2, read_div},
                                        {0}};
