/* Mean squared error: one element, the share of these elements in the mean of (x - target)^2.
 *
 *     sum of (x - target)^2 / count
 *
 * `count` is the number of targets of the whole step (label_count), so shares simply add up. Where
 * the target is NaN there is none: no loss, no gradient.
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    TARGETS = MEG_X + 1,
    COUNT,
    WEIGHTS
};

#ifndef MEG_F64
meg_status meg_target_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_want_shape(g, v, e, TARGETS, g->value[v->in[0]].shape));
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    MEG_TRY(e, meg_want_class_weights(g, v, e, WEIGHTS));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

meg_box meg_target_sum(const meg_graph *g, const meg_node *v)
{
    return g->value[v->in[0]].shape;
}

meg_box meg_target_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input <= TARGETS) return w->sum;
    meg_box in = g->value[v->in[input]].shape;
    if (input == COUNT) return in;
    in.lo[MEG_C] = w->sum.lo[MEG_C];
    in.hi[MEG_C] = w->sum.hi[MEG_C];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 3 * (double)meg_box_size(&w->sum);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *targets = &c->t[TARGETS];
    double total = 0;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){x, targets});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p), *target = meg_real_at(targets, p);
        for (int64_t i = 0; i < r.length; i++) {
            double off = (double)from[i] - (double)target[i];
            if (!isnan(target[i])) total += off * off;
        }
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *targets = &c->t[TARGETS], *dx = &c->t[MEG_DX];
    double pull = 2 * meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]);
    meg_clear_beyond(dx, &c->work.sum);
    meg_runs r = meg_runs_of(c->work.sum, 3, (const meg_array *[]){x, targets, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p), *target = meg_real_at(targets, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++) {
            double off = (double)from[i] - (double)target[i];
            to[i] = isnan(target[i]) ? 0 : (real)(pull * off);
        }
    }
}

MEG_KERNELS(mse) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(TARGETS) | MEG_BIT(COUNT)
};

static const meg_sample samples[] = {{"5x7 5x7 1", NULL},
                                     {"3x5x9 3x5x9 1", NULL},
                                     {"2x16x5x4 2x16x5x4 1", NULL},
                                     {"2x3x4x3x5 2x3x4x3x5 1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_mse = {
    .name = "mse",
    .doc = "mean squared error of values, targets and their count",
    .data_inputs = 3,
    .data_inputs_max = 3,
    .real_target = true,
    .infer = meg_target_infer,
    .sum = meg_target_sum,
    .need = meg_target_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(mse),
    .samples = samples,
};
#endif
