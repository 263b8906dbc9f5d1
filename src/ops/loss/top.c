/* The largest logit of every pixel: the first phase of the softmax loss. It only keeps exp() in
 * range; the loss does not depend on it, so it carries no gradient, and a maximum needs no adjoint.
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_pixels(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

meg_box meg_class_sum(const meg_graph *g, const meg_node *v)
{
    return meg_box_of(1, g->value[v->in[0]].shape.hi[MEG_C], 1, 1, 1);
}

meg_box meg_class_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v;
    meg_box in = w->out;
    if (input > 0) return in;
    in.lo[MEG_C] = w->sum.lo[MEG_C];
    in.hi[MEG_C] = w->sum.hi[MEG_C];
    return in;
}

double meg_class_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)p;
    double each = v->op->max ? 1 : 20; /* a comparison or an exp() */
    return each * (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], classes = meg_extent(&c->work.sum, MEG_C);
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    int64_t stride = meg_class_stride(x);
    meg_fill_part(y, y->box, (real)-INFINITY); /* what a maximum starts from */
    meg_runs r = meg_runs_of(c->work.out, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_class_at(x, p, c->work.sum.lo[MEG_C]);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = meg_class_top(from + i, stride, classes);
    }
}

MEG_KERNELS(top) = {.run = {[MEG_FORWARD] = forward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", NULL},       {"3x10x9", NULL},  {"2x16x5x3", NULL},
                                     {"2x3x4x3x5", NULL}, {"2x1x3x3", NULL}, {NULL, NULL}};

const meg_op meg_op_top = {
    .name = "top",
    .doc = "largest logit of every pixel (a phase of softmax_xent)",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .sum = meg_class_sum,
    .need = meg_class_need,
    .max = true,
    .flops = meg_class_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y)},
    .no_gradient = true,
    MEG_KERNELS_OF(top),
    .samples = samples,
};
#endif
