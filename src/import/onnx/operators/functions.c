/* Operators of ONNX that are functions of one input (ops/pointwise/functions.c), powers, and the largest or smallest
 * of several: by tables, from ONNX's names and attributes to ours.
 */
#include "import/onnx/operators/operators.h"

#include <string.h>

/* ---- one input ---- */

typedef struct attribute { /* real; op NULL: there is none */
    const char *name, *word;
    double absent;
} attribute;

static const struct {
    const char *onnx, *op;
    attribute a[2];
} FUNCTIONS[] = {
    {"Abs", "abs", {{0}}},
    {"Celu", "celu", {{"alpha", "alpha", 1}}},
    {"Elu", "elu", {{"alpha", "alpha", 1}}},
    {"Exp", "exp", {{0}}},
    {"HardSigmoid", "hard_sigmoid", {{"alpha", "alpha", 0.2}, {"beta", "beta", 0.5}}},
    {"HardSwish", "hard_swish", {{0}}},
    {"Log", "log", {{0}}},
    {"Mish", "mish", {{0}}},
    {"Neg", "neg", {{0}}},
    {"Reciprocal", "reciprocal", {{0}}},
    {"Selu", "selu", {{"alpha", "alpha", 1.6732631921768}, {"gamma", "gamma", 1.05070102214813}}},
    {"Softplus", "softplus", {{0}}},
    {"Sqrt", "sqrt", {{0}}},
};

enum {
    COUNT = sizeof FUNCTIONS / sizeof *FUNCTIONS
};

/* Attributes are floats. PyTorch computes with numbers that are not: 1/6 of its hardsigmoid and the
 * constants of selu, so the one that rounds to the file's is taken. */
static double meant(double number)
{
    static const double known[] = {1.6732632423543772, 1.0507009873554805, 1.0 / 3, 1.0 / 6};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((float)known[i] == (float)number) return known[i];
    return number;
}

static int function_of(const meg_onnx_node *n)
{
    int i = 0;
    while (i < COUNT && !meg_bytes_is(n->op, FUNCTIONS[i].onnx))
        i++;
    return i;
}

bool meg_onnx_is_function(const meg_onnx_node *n)
{
    return function_of(n) < COUNT;
}

static meg_status read_function(meg_onnx_build *b, const meg_onnx_node *n)
{
    int at = function_of(n);
    meg_onnx_layer l = {.op = FUNCTIONS[at].op};
    for (int i = 0; i < 2; i++) {
        const attribute *a = &FUNCTIONS[at].a[i];
        if (!a->name) break;
        meg_onnx_attr(&l, " %s=%.17g", a->word, meant(meg_onnx_real(n, a->name, a->absent)));
    }
    return meg_onnx_point(b, n, &l);
}

/* x sigmoid(x) */
static meg_status read_swish(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "mul", .inputs = 2};
    double alpha = meg_onnx_real(n, "alpha", 1);
    if (alpha < 1 || alpha > 1) return meg_onnx_refuse(b, n, "alpha=%g: only 1", alpha);
    l.front = meg_onnx_is_front(meg_onnx_in(b, n, 0));
    MEG_TRY(b->error, (l.front ? meg_onnx_data_front : meg_onnx_data)(b, n, 0, &l.in[0]));
    l.in[1] = meg_graph_add(b->graph, "sigmoid", meg_onnx_fresh(b, "sigmoid"), "", 1, l.in);
    if (l.in[1] < 0) return b->graph->error.status;
    return meg_onnx_add(b, n, &l);
}

/* To a fixed power, of which some have operators of their own. */
static meg_status read_pow(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "pow"};
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 1), *x = meg_onnx_in(b, n, 0);
    double exponent;
    if (!s || !s->constant || s->constant->size != 1 || meg_onnx_is_weight(s))
        return meg_onnx_refuse(b, n, "the exponent must be one number that is not trained");
    if (x && x->constant) return meg_onnx_refuse(b, n, "powers of a weight");
    MEG_TRY(b->error, meg_onnx_scalar(b, n, 1, 1, &exponent));
    if (exponent == 0.5) l.op = "sqrt";
    else if (exponent == -1) l.op = "reciprocal";
    else meg_onnx_attr(&l, "exponent=%.17g", exponent);
    return meg_onnx_point(b, n, &l);
}

/* ---- extremes ---- */

static bool is_constant(const meg_onnx_symbol *s)
{
    return s && s->constant;
}

/* Of any number of inputs: pair by pair, the wider one first. */
static meg_status extreme(meg_onnx_build *b, const meg_onnx_node *n, const char *op)
{
    meg_onnx_layer l = {.op = op, .inputs = 2};
    int first = 0;
    while (first < n->inputs && is_constant(meg_onnx_in(b, n, first)))
        first++;
    if (first == n->inputs) return meg_onnx_refuse(b, n, "all inputs are weights");
    MEG_TRY(b->error, meg_onnx_data(b, n, first, &l.in[0]));
    for (int i = 0, done = 1; i < n->inputs; i++) {
        meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        if (i == first) continue;
        if (is_constant(s)) MEG_TRY(b->error, meg_onnx_spread(b, n, s, l.in[0], &l.in[1]));
        else MEG_TRY(b->error, meg_onnx_data(b, n, i, &l.in[1]));
        MEG_TRY(b->error, meg_onnx_line_up(b, n, first, i));
        meg_onnx_widest_first(b, l.in);
        if (++done == n->inputs) return meg_onnx_add(b, n, &l);
        l.in[0] = meg_graph_add(b->graph, op, meg_onnx_fresh(b, op), "", 2, l.in);
        if (l.in[0] < 0) return b->graph->error.status;
    }
    meg_onnx_bind(b, n, 0, l.in[0]); /* of one input: itself */
    return MEG_OK;
}

static meg_status read_max(meg_onnx_build *b, const meg_onnx_node *n)
{
    return extreme(b, n, "max");
}

static meg_status read_min(meg_onnx_build *b, const meg_onnx_node *n)
{
    return extreme(b, n, "min");
}

const meg_onnx_row meg_onnx_functions[] = {{"Abs", "", 1, 1, read_function},
                                           {"Celu", "alpha", 1, 1, read_function},
                                           {"Elu", "alpha", 1, 1, read_function},
                                           {"Exp", "", 1, 1, read_function},
                                           {"HardSigmoid", "alpha beta", 1, 1, read_function},
                                           {"HardSwish", "", 1, 1, read_function},
                                           {"Log", "", 1, 1, read_function},
                                           {"Mish", "", 1, 1, read_function},
                                           {"Neg", "", 1, 1, read_function},
                                           {"Reciprocal", "", 1, 1, read_function},
                                           {"Selu", "alpha gamma", 1, 1, read_function},
                                           {"Softplus", "", 1, 1, read_function},
                                           {"Sqrt", "", 1, 1, read_function},
                                           {"Swish", "alpha", 1, 1, read_swish},
                                           {"Pow", "", 2, 2, read_pow},
                                           {"Max", "", 1, MEG_INPUTS, read_max},
                                           {"Min", "", 1, MEG_INPUTS, read_min},
                                           {0}};
