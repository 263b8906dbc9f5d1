/* z, the sum over the classes of exp(x - top), per pixel: the second phase of the softmax loss. Its
 * inputs are the logits and their top, which gets no gradient (see top.c). */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_pixels(&out[0], &g->value[v->in[0]]);
    return meg_want_shape(g, v, e, 1, out[0].shape);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], classes = meg_extent(&c->work.sum, MEG_C);
    const meg_array *x = &c->t[MEG_X], *top = &c->t[MEG_X + 1], *y = &c->t[MEG_Y];
    int64_t stride = meg_class_stride(x);
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 3, (const meg_array *[]){x, top, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_class_at(x, p, c->work.sum.lo[MEG_C]), *most = meg_real_at(top, p);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)meg_class_expsum(from + i, stride, classes, most[i]);
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *top = &c->t[MEG_X + 1];
    const meg_array *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_box all = meg_class_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(dx, &all);
    meg_runs r = meg_runs_of(c->work.out, 4, (const meg_array *[]){x, top, dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *most = meg_real_at(top, p), *pull = meg_real_at(dy, p);
        for (int64_t k = all.lo[MEG_C]; k < all.hi[MEG_C]; k++) {
            const real *from = meg_class_at(x, p, k);
            real *to = meg_class_at(dx, p, k);
            for (int64_t i = 0; i < r.length; i++)
                to[i] = (real)((double)pull[i] * exp((double)from[i] - (double)most[i]));
        }
    }
}

MEG_KERNELS(expsum) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x1", NULL},          {"3x10x9 3x1x9", NULL},
                                     {"2x16x5x3 2x1x5x3", NULL}, {"2x3x4x3x5 2x1x4x3x5", NULL},
                                     {"2x1x3x3 2x1x3x3", NULL},  {NULL, NULL}};

const meg_op meg_op_expsum = {
    .name = "expsum",
    .doc = "sum over classes of exp(x - top) (a phase of softmax_xent)",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = meg_class_sum,
    .need = meg_class_need,
    .flops = meg_class_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(expsum),
    .samples = samples,
};
#endif
