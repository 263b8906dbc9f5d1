/* Comparisons make masks: 1 where the relation holds between x and a number or a second value, which
 * may be spread over x (pair.h), else 0. They carry no gradient. */
#include "ops/attrs.h"
#include "ops/pointwise/pair.h"
#include "ops/pointwise/point.h"

#ifndef MEG_F64
static const meg_param params[] = {
    {"relation", MEG_PARAM_CHOICE, offsetof(meg_compare_attr, relation), "greater", "that makes 1",
     "less|less_equal|greater|greater_equal|equal|not_equal", 0, 0},
    {"value", MEG_PARAM_REAL, offsetof(meg_compare_attr, value), "0",
     "that is compared with, if there is no second input", "inf", 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    if (v->inputs > 1) return meg_pair_infer(g, v, e, out);
    return meg_point_infer(g, v, e, out);
}
#endif

static double less(double a, double b)
{
    return a < b;
}

static double less_equal(double a, double b)
{
    return a <= b;
}

static double greater(double a, double b)
{
    return a > b;
}

static double greater_equal(double a, double b)
{
    return a >= b;
}

static double equal(double a, double b)
{
    return a == b;
}

static double not_equal(double a, double b)
{
    return a != b;
}

/* In the order of the choices. */
static meg_pair *const relations[] = {less, less_equal, greater, greater_equal, equal, not_equal};

/* The number as `real` has it: 0.1 of a file of floats is equal to the float 0.1. */
static double with_number(const void *attr, double x)
{
    const meg_compare_attr *a = attr;
    return relations[a->relation](x, (double)(real)a->value);
}

static void forward(const meg_call *c)
{
    const meg_compare_attr *a = c->node->attr;
    if (c->node->inputs > 1) meg_pair_forward(c, relations[a->relation]);
    else meg_point_forward(c, with_number);
}

MEG_KERNELS(compare) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", NULL},
                                     {"5x7 5x7", "relation=less"},
                                     {"2x5x11 1x5", "relation=less_equal"},
                                     {"2x5x11", "relation=not_equal value=0.3"},
                                     {"3x16x5x7", "relation=less_equal value=0.25"},
                                     {"3x16x5x7 3x16x5x7", NULL},
                                     {"2x3x4x3x5 1", "relation=greater_equal"},
                                     {NULL, NULL}};

const meg_op meg_op_compare = {
    .name = "compare",
    .onnx = "Greater",
    .doc = "mask: 1 where a relation holds between x and a number or a second value, else 0",
    .params = params,
    .attr_bytes = sizeof(meg_compare_attr),
    .data_inputs = 1,
    .data_inputs_max = 2,
    .infer = infer,
    .need = meg_pair_need,
    .flops = meg_pair_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .cheap = true,
    .overwrites = true,
    .no_gradient = true,
    MEG_KERNELS_OF(compare),
    .samples = samples,
};
#endif
