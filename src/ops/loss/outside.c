/* A loss that is computed outside: of it only its gradient by the outputs is known,
 *
 *     sum of x * gradient
 *
 * whose gradient by x is what was given, so that all that lies behind x gets its own. The number itself says
 * nothing: plans leave it out, and take the gradient when backward begins, not before (`late`).
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    GRADIENT = MEG_X + 1
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_want_shape(g, v, e, GRADIENT, g->value[v->in[0]].shape));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 2 * (double)meg_box_size(&w->sum);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *gradient = &c->t[GRADIENT];
    double total = 0;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){x, gradient});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p), *by = meg_real_at(gradient, p);
        for (int64_t i = 0; i < r.length; i++)
            total += (double)from[i] * (double)by[i];
    }
    *(real *)c->t[MEG_Y].data = (real)total;
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *gradient = &c->t[GRADIENT], *dx = &c->t[MEG_DX];
    double pull = meg_scalar(&c->t[MEG_DY]);
    meg_clear_beyond(dx, &c->work.sum);
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){gradient, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *by = meg_real_at(gradient, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)(pull * (double)by[i]);
    }
}

MEG_KERNELS(outside) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x7", NULL},
                                     {"3x5x9 3x5x9", NULL},
                                     {"2x16x5x4 2x16x5x4", NULL},
                                     {"2x3x4x3x5 2x3x4x3x5", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_outside = {
    .name = "outside",
    .doc = "a loss that is computed elsewhere: takes its gradient by the outputs",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .real_target = true,
    .late = true,
    .infer = infer,
    .sum = meg_target_sum,
    .need = meg_target_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(GRADIENT),
              [MEG_BACKWARD] = MEG_BIT(GRADIENT) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(outside),
    .samples = samples,
};
#endif
