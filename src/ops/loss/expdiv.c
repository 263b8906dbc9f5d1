/* exp(x - top) / z, the last phase of softmax, or its logarithm, x - top - log z: of its inputs, the logits, their top and z, the top
 * gets no gradient (see top.c). That of z is a sum over the channels, so it is partial where they
 * are cut; backward asks the output, which has most of it.
 */
#include "ops/attrs.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/point.h"

enum {
    TOP = MEG_X + 1,
    Z
};

#ifndef MEG_F64
static const meg_param params[] = {
    {"log", MEG_PARAM_BOOL, offsetof(meg_softmax_attr, log), "0", "x - top - log z", NULL, 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_box pixels = g->value[v->in[0]].shape;
    pixels.hi[MEG_C] = 1;
    MEG_TRY(e, meg_point_infer(g, v, e, out));
    MEG_TRY(e, meg_want_shape(g, v, e, TOP, pixels));
    return meg_want_shape(g, v, e, Z, pixels);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 3 : 22) * (double)meg_box_size(&w->out); /* exp() is 20 */
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v;
    meg_box in = w->out;
    if (input == 0) return in;
    in.lo[MEG_C] = 0;
    in.hi[MEG_C] = 1;
    return in;
}

static bool is_log(const meg_call *c)
{
    return ((const meg_softmax_attr *)c->node->attr)->log;
}

static void forward(const meg_call *c)
{
    bool logs = is_log(c);
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *top = &c->t[TOP], *z = &c->t[Z], *y = &c->t[MEG_Y];
    meg_box pixels = need(c->graph, c->node, Z, &c->work);
    meg_clear_beyond(y, &c->work.out);
    for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++)
        for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
            double above = (double)*meg_class_at(x, p, k) - (double)*meg_real_at(top, p);
            double sum = (double)*meg_real_at(z, p);
            *meg_class_at(y, p, k) = (real)(logs ? above - log(sum) : exp(above) / sum);
        }
}

static void pull_x(const meg_call *c)
{
    bool logs = is_log(c);
    int64_t p[MEG_AXES];
    const meg_array *y = &c->t[MEG_Y], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 3, (const meg_array *[]){y, dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *made = meg_real_at(y, p), *from = meg_real_at(dy, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = logs ? from[i] : from[i] * made[i];
    }
}

static void pull_z(const meg_call *c)
{
    bool logs = is_log(c);
    int64_t p[MEG_AXES];
    const meg_array *y = &c->t[MEG_Y], *dy = &c->t[MEG_DY], *dz = &c->t[MEG_DX + Z];
    meg_box pixels = need(c->graph, c->node, Z, &c->work);
    meg_clear_beyond(dz, &pixels);
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        double sum = 0;
        for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++)
            sum += (double)*meg_class_at(dy, p, k) * (logs ? 1 : (double)*meg_class_at(y, p, k));
        *meg_real_at(dz, p) = (real)(-sum / (double)*meg_real_at(&c->t[Z], p));
    }
}

static void backward(const meg_call *c)
{
    if (c->t[MEG_DX + Z].data) pull_z(c);
    if (c->t[MEG_DX].data) pull_x(c);
}

MEG_KERNELS(expdiv) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5x1 5x1", NULL},
                                     {"3x10x9 3x1x9 3x1x9", NULL},
                                     {"2x16x5x3 2x1x5x3 2x1x5x3", NULL},
                                     {"2x3x2x3x5 2x1x2x3x5 2x1x2x3x5", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_expdiv = {
    .name = "expdiv",
    .doc = "exp(x - top) / z (a phase of softmax)",
    .params = params,
    .attr_bytes = sizeof(meg_softmax_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(TOP) | MEG_BIT(Z),
              [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(Z) | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + Z)},
    MEG_KERNELS_OF(expdiv),
    .samples = samples,
};
#endif
