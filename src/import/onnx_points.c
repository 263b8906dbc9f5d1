/* Operators of ONNX that work point by point. Of two inputs one may be a constant: with more than
 * one number it is taken for a parameter, since that is what an initializer of a network is; one
 * number, or the output of a Constant, stays as it is.
 */
#include "import/onnx_build.h"

#include <string.h>

/* ---- one input ---- */

static meg_status point(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l)
{
    l->inputs = 1;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l->in[0]));
    return meg_onnx_add(b, n, l);
}

static meg_status read_relu(meg_onnx_build *b, const meg_onnx_node *n)
{
    return point(b, n, &(meg_onnx_layer){.op = "relu"});
}

static meg_status read_sigmoid(meg_onnx_build *b, const meg_onnx_node *n)
{
    return point(b, n, &(meg_onnx_layer){.op = "sigmoid"});
}

static meg_status read_tanh(meg_onnx_build *b, const meg_onnx_node *n)
{
    return point(b, n, &(meg_onnx_layer){.op = "tanh"});
}

static meg_status read_leaky(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "leaky_relu"};
    meg_onnx_attr(&l, "slope=%.9g", meg_onnx_real(n, "alpha", 0.01));
    return point(b, n, &l);
}

static meg_status read_gelu(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "gelu"};
    bool tangent = meg_span_is(meg_onnx_text(n, "approximate"), "tanh");
    meg_onnx_attr(&l, "approximate=%s", tangent ? "tanh" : "none");
    return point(b, n, &l);
}

static meg_status read_clip(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "clip"};
    double lo, hi;
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 1, -3.4028235e38, &lo));
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 2, 3.4028235e38, &hi));
    if (lo > hi) lo = hi; /* as ONNX has it: everything becomes the upper bound */
    meg_onnx_attr(&l, "lo=%.9g hi=%.9g", lo, hi);
    return point(b, n, &l);
}

/* Over the channels; elsewhere the operator here does not reach. */
static meg_status read_softmax(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    if (s && s->value >= 0 &&
        meg_onnx_axis(meg_onnx_int(n, "axis", -1), meg_onnx_rank(b, s)) != 1)
        return meg_onnx_refuse(b, n, "only axis 1, the channels, is supported");
    return point(b, n, &(meg_onnx_layer){.op = "softmax"});
}

static meg_status read_same(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *s = meg_onnx_in(b, n, 0), *y = meg_onnx_symbol_of(b, n->out[0]);
    int x;
    if (s && s->constant) {
        if (y) y->constant = s->constant;
        return MEG_OK;
    }
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &x));
    meg_onnx_bind(b, n, 0, x);
    if (y) y->rank = s->rank;
    return MEG_OK;
}

/* A slope per channel, or one for all. */
static meg_status read_prelu(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "prelu", .inputs = 1, .weights = 1};
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, meg_onnx_constant(b, n, 1, &t));
    const meg_value *x = &b->graph->value[l.in[0]];
    int channels = t ? t->rank - x->rank + 1 : -1; /* the slope's axis of channels */
    bool single = t && t->size == 1;
    bool each = t && channels >= 0 && t->size == t->dims[channels] && x->rank > 1 &&
                t->size == x->dims[1];
    if (!single && !each)
        return meg_onnx_refuse(b, n, "the slope must be one constant, or one per channel");
    l.weight[0].symbol = meg_onnx_in(b, n, 1);
    meg_onnx_attr(&l, "single=%d", single);
    return meg_onnx_add(b, n, &l);
}

/* ---- two inputs ---- */

/* The box of a constant's extents, aligned to the last axes of a value; false: it has more axes. */
static bool spread(const meg_onnx_tensor *t, const meg_value *x, meg_weight_spec *out)
{
    if (t->rank > x->rank) return false;
    out->rank = x->rank;
    out->shape = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 0; i < x->rank; i++) {
        int from = i - (x->rank - t->rank);
        int64_t extent = from < 0 ? 1 : t->dims[from];
        if (extent != 1 && extent != x->dims[i]) return false;
        out->dims[i] = extent;
        out->shape.hi[i < 2 ? i : MEG_AXES - x->rank + i] = extent;
    }
    return out->dims[0] == 1; /* the same for all samples */
}

static meg_status value_of_constant(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s,
                                    const meg_value *x, int *out)
{
    const meg_onnx_tensor *t = s->constant;
    bool initial = s->maker < 0 && t->size > 1;
    meg_weight_spec spec = {.kind = initial ? MEG_PARAMETER : MEG_STATE};
    meg_graph *g = b->graph;
    if (t->type != MEG_ONNX_FLOAT || !spread(t, x, &spec))
        return meg_onnx_refuse(b, n, "the constant '%.*s' does not fit the other input",
                               MEG_SPAN_TEXT(s->name));
    if (s->parameter < 0) {
        char *name = meg_pool_text(g->pool, "%.*s", MEG_SPAN_TEXT(s->name));
        s->parameter = meg_graph_parameter(g, name, &spec);
        if (s->parameter < 0) return g->error.status;
        g->value[s->parameter].stored = (meg_stored){.data = t->data, .type = MEG_STORED_F32};
    }
    if (!meg_box_equal(&g->value[s->parameter].shape, &spec.shape))
        return meg_onnx_refuse(b, n, "the constant '%.*s' is used with different shapes",
                               MEG_SPAN_TEXT(s->name));
    *out = s->parameter;
    return MEG_OK;
}

static bool narrower(const meg_graph *g, int a, int c)
{
    return meg_box_size(&g->value[a].shape) < meg_box_size(&g->value[c].shape);
}

/* The first input must have the shape of the output. */
static meg_status pair(meg_onnx_build *b, const meg_onnx_node *n, const char *op, bool commutes)
{
    meg_onnx_layer l = {.op = op, .inputs = 2};
    meg_onnx_symbol *s[2] = {meg_onnx_in(b, n, 0), meg_onnx_in(b, n, 1)};
    meg_graph *g = b->graph;
    for (int i = 0; i < 2; i++) {
        if (s[i] && s[i]->constant) continue;
        MEG_TRY(b->error, meg_onnx_data(b, n, i, &l.in[i]));
    }
    for (int i = 0; i < 2; i++) {
        if (!s[i]->constant) continue;
        if (s[1 - i]->constant) return meg_onnx_refuse(b, n, "both inputs are constants");
        meg_value other = g->value[l.in[1 - i]]; /* the array moves */
        MEG_TRY(b->error, value_of_constant(b, n, s[i], &other, &l.in[i]));
    }
    if (narrower(g, l.in[0], l.in[1])) {
        if (!commutes)
            return meg_onnx_refuse(b, n, "only the second input may be spread over the first");
        int first = l.in[0];
        l.in[0] = l.in[1], l.in[1] = first;
    }
    return meg_onnx_add(b, n, &l);
}

static meg_status read_mul(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "mul", true);
}

static meg_status read_sub(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "sub", false);
}

static meg_status read_div(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pair(b, n, "div", false);
}

static bool ranks_differ(const meg_graph *g, int a, int c)
{
    return !meg_box_equal(&g->value[a].shape, &g->value[c].shape);
}

static meg_status read_add(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_symbol *x = meg_onnx_in(b, n, 0), *y = meg_onnx_in(b, n, 1);
    if (x && y && x->value >= 0 && y->value >= 0 && ranks_differ(b->graph, x->value, y->value))
        return meg_onnx_refuse(b, n, "its inputs must have equal shapes");
    return pair(b, n, "add", true);
}

/* Any number of inputs; the plain sum takes eight. */
static meg_status read_sum(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "add", .inputs = n->inputs};
    for (int i = 0; i < n->inputs; i++) {
        MEG_TRY(b->error, meg_onnx_data(b, n, i, &l.in[i]));
        if (ranks_differ(b->graph, l.in[0], l.in[i]))
            return meg_onnx_refuse(b, n, "its inputs must have equal shapes");
    }
    if (n->inputs == 1) return read_same(b, n);
    return meg_onnx_add(b, n, &l);
}

const meg_onnx_row meg_onnx_points[] = {
    {"Relu", "", 1, 1, read_relu},
    {"LeakyRelu", "alpha", 1, 1, read_leaky},
    {"PRelu", "", 2, 2, read_prelu},
    {"Sigmoid", "", 1, 1, read_sigmoid},
    {"Tanh", "", 1, 1, read_tanh},
    {"Gelu", "approximate", 1, 1, read_gelu},
    {"Clip", "", 1, 3, read_clip},
    {"Softmax", "axis", 1, 1, read_softmax},
    {"Identity", "", 1, 1, read_same},
    {"Add", "", 2, 2, read_add},
    {"Sum", "", 1, MEG_INPUTS, read_sum},
    {"Mul", "", 2, 2, read_mul},
    {"Sub", "", 2, 2, read_sub},
    {"Div", "", 2, 2, read_div},
    {0}};
