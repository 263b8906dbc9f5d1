/* How many labels count: the denominator of the mean loss. It reads labels alone and sums over the
 * whole step, so it is there before the first backward.
 *
 *     classes   those below 0 and the ignored one do not count; with class weights, a label counts
 *               as much as its class weighs
 *     reals     (targets) those that are NaN do not count
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    WEIGHTS = MEG_X + 1 /* (1, c); may be absent */
};

#ifndef MEG_F64
static const meg_param params[] = {MEG_PARAM_IGNORE, {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]];
    MEG_CHECK(e, x->dtype == MEG_I32 || (x->dtype == MEG_F32 && v->inputs == 1), MEG_EARG,
              "%s: input '%s' is %s, but label_count wants i32, or without class weights real",
              v->name, x->name, meg_dtype_name(x->dtype));
    if (v->inputs > WEIGHTS) {
        int64_t classes = g->value[v->in[WEIGHTS]].shape.hi[MEG_C];
        MEG_TRY(e, meg_want_shape(g, v, e, WEIGHTS, meg_box_of(1, classes, 1, 1, 1)));
    }
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    return g->value[v->in[0]].shape;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    return input == WEIGHTS ? g->value[v->in[input]].shape : w->sum;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return (double)meg_box_size(&w->sum);
}
#endif

static double count_labels(const meg_call *c, const int32_t *label, int64_t length)
{
    const meg_label_attr *attr = c->node->attr;
    const meg_array *weights = &c->t[WEIGHTS];
    int64_t classes = weights->data ? weights->box.hi[MEG_C] : INT32_MAX;
    double count = 0;
    for (int64_t i = 0; i < length; i++)
        if (label[i] >= 0 && label[i] < classes && label[i] != attr->ignore)
            count += meg_class_weight(weights, label[i]);
    return count;
}

static double count_targets(const real *target, int64_t length)
{
    int64_t count = 0;
    for (int64_t i = 0; i < length; i++)
        count += !isnan(target[i]);
    return (double)count;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *labels = &c->t[MEG_X];
    bool classes = c->graph->value[c->node->in[0]].dtype == MEG_I32;
    double count = 0;
    meg_runs r = meg_runs_of(c->work.sum, 1, &labels);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        count += classes ? count_labels(c, meg_label_at(labels, p), r.length)
                         : count_targets(meg_real_at(labels, p), r.length);
    *(real *)c->t[MEG_Y].data = (real)count;
}

MEG_KERNELS(label_count) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"7@3", NULL},       {"3x9@4", "ignore=2"},     {"2x5x4@3", NULL}, {"2x4x3x5@5", NULL},
    {"7@16 1x16", NULL}, {"3x9@4 1x4", "ignore=0"}, {"2x3x5x4", NULL}, {NULL, NULL}};

const meg_op meg_op_label_count = {
    .name = "label_count",
    .doc = "number of labels that are not ignored, or the sum of their classes' weights",
    .params = params,
    .attr_bytes = sizeof(meg_label_attr),
    .data_inputs = 1,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(WEIGHTS)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .per_step = true,
    .no_gradient = true,
    MEG_KERNELS_OF(label_count),
    .samples = samples,
};
#endif
