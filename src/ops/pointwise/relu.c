/* Rectifier: y = max(x, 0). Backward asks the output, so that forward may overwrite its input.
 * NaN passes: an element that nobody wrote must show. */
#include "ops/common/runs.h"
#include "ops/common/shape.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return (double)meg_box_size(&w->out);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        real *to = meg_real_at(y, p); /* may be `from`: hence no restrict */
        for (int64_t i = 0; i < r.length; i++)
            to[i] = from[i] < 0 ? 0 : from[i];
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *y = &c->t[MEG_Y], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 3, (const meg_array *[]){y, dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *made = meg_real_at(y, p), *from = meg_real_at(dy, p);
        real *to = meg_real_at(dx, p); /* may be `from` */
        for (int64_t i = 0; i < r.length; i++)
            to[i] = made[i] <= 0 ? 0 : from[i];
    }
}

MEG_KERNELS(relu) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"5x7", NULL}, {"2x5x11", NULL}, {"3x16x5x7", NULL}, {"2x3x4x3x5", NULL}, {NULL, NULL}};

const meg_op meg_op_relu = {
    .name = "relu",
    .rectifier = true,
    .onnx = "Relu",
    .doc = "rectifier: max(x, 0)",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(relu),
    .overwrites = true,
    .samples = samples,
};
#endif
