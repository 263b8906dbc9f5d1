/* The share of these elements in the mean of |x - target|, for reports: what accuracy is to classes.
 *
 *     sum of |x - target| / count            sigmoid=yes: of 1 / (1 + exp(-x)) in place of x
 *
 * `count` is the number of targets of the whole step (label_count), so shares simply add up. Where
 * the target is NaN there is none. One element, without gradient.
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    TARGETS = MEG_X + 1,
    COUNT
};

typedef struct error_attr {
    bool sigmoid;
} error_attr;

#ifndef MEG_F64
static const meg_param params[] = {{"sigmoid", MEG_PARAM_BOOL, offsetof(error_attr, sigmoid), "no",
                                    "x are logits of probabilities", NULL, 0, 0},
                                   {0}};

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)p;
    return (((const error_attr *)v->attr)->sigmoid ? 23 : 3) * (double)meg_box_size(&w->sum);
}
#endif

static double run_error(const real *from, const real *target, int64_t count, bool sigmoid)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = (double)from[i];
        if (sigmoid) x = 1 / (1 + exp(-x));
        if (!isnan(target[i])) total += fabs(x - (double)target[i]);
    }
    return total;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *targets = &c->t[TARGETS];
    bool sigmoid = ((const error_attr *)c->node->attr)->sigmoid;
    double total = 0;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){x, targets});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        total += run_error(meg_real_at(x, p), meg_real_at(targets, p), r.length, sigmoid);
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

MEG_KERNELS(absolute_error) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x7 1", NULL},
                                     {"3x5x9 3x5x9 1", "sigmoid=yes"},
                                     {"2x16x5x4 2x16x5x4 1", NULL},
                                     {"2x3x4x3x5 2x3x4x3x5 1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_absolute_error = {
    .name = "absolute_error",
    .doc = "mean absolute error of values, targets and their count; for reports",
    .params = params,
    .attr_bytes = sizeof(error_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .real_target = true,
    .report = true,
    .infer = meg_target_infer,
    .sum = meg_target_sum,
    .need = meg_target_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(TARGETS) | MEG_BIT(COUNT)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .no_gradient = true,
    MEG_KERNELS_OF(absolute_error),
    .samples = samples,
};
#endif
