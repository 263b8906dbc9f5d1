/* How many labels count (those below 0 are ignored): the denominator of the mean loss. It reads
 * labels alone and sums over the whole step, so it is there before the first backward. */
#include "ops/loss.h"
#include "ops/shape.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]];
    MEG_CHECK(e, x->dtype == MEG_I32, MEG_EARG, "%s: input '%s' is %s, but label_count wants i32",
              v->name, x->name, meg_dtype_name(x->dtype));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    return g->value[v->in[0]].shape;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v, (void)input;
    return w->sum;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return (double)meg_box_size(&w->sum);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], count = 0;
    const meg_tensor *labels = &c->t[MEG_X];
    meg_runs r = meg_runs_of(c->work.sum, 1, &labels);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const int32_t *label = meg_label_at(labels, p);
        for (int64_t i = 0; i < r.length; i++)
            count += label[i] >= 0;
    }
    *(real *)c->t[MEG_Y].data = (real)count;
}

MEG_KERNELS(label_count) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"7@3", NULL}, {"3x9@4", NULL}, {"2x5x4@3", NULL}, {"2x4x3x5@5", NULL}, {NULL, NULL}};

const meg_op meg_op_label_count = {
    .name = "label_count",
    .doc = "number of labels that are not ignored",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .per_step = true,
    .no_gradient = true,
    MEG_KERNELS_OF(label_count),
    .samples = samples,
};
#endif
