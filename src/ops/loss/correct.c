/* How many pixels have their largest logit at their label; the first of equal ones counts.
 * Pixels with the ignored label are never right. One element; for reports, without gradient. */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    LABELS = MEG_X + 1
};

#ifndef MEG_F64
static const meg_param params[] = {MEG_PARAM_IGNORE, {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    meg_shape_one(&out[0]);
    return MEG_OK;
}
#endif

static int64_t first_largest(const real *x, int64_t stride, int64_t classes)
{
    int64_t best = 0;
    if (classes == 1) return x[0] > 0; /* one logit tells label 1 from 0 */
    for (int64_t k = 1; k < classes; k++)
        if (x[k * stride] > x[best * stride]) best = k;
    return best;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C], right = 0;
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS];
    int64_t stride = meg_class_stride(x), ignore = ((const meg_label_attr *)c->node->attr)->ignore;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){x, labels});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        const int32_t *label = meg_label_at(labels, p);
        for (int64_t i = 0; i < r.length; i++)
            right += label[i] != ignore && first_largest(from + i, stride, classes) == label[i];
    }
    *(real *)c->t[MEG_Y].data = (real)right;
}

MEG_KERNELS(correct) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"7x3 7@3", NULL},
                                     {"4x16 4@16", NULL},
                                     {"3x4x9 3x9@4", NULL},
                                     {"2x3x5x4 2x5x4@3", NULL},
                                     {"2x5x4x3x5 2x4x3x5@5", NULL},
                                     {"3x4x9 3x9@4", "ignore=1"},
                                     {"3x1x9 3x9@2", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_correct = {
    .name = "correct",
    .doc = "number of right answers: largest logit at the label",
    .params = params,
    .attr_bytes = sizeof(meg_label_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = meg_pixel_sum,
    .need = meg_pixel_need,
    .flops = meg_pixel_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(LABELS)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .no_gradient = true,
    MEG_KERNELS_OF(correct),
    .samples = samples,
};
#endif
