/* Softmax over the channels of every pixel: y = exp(x - top) / sum of exp(x - top). Backward needs
 * the output alone: dx = y (dy - sum of dy y). With log=1 the logarithm of that, which is not taken
 * of it: y = x - top - log of the sum, dx = dy - exp(y) sum of dy. All channels of a pixel are looked at together; a
 * plan that cuts them replaces this node by its phases: top, expsum, expdiv.
 */
#include "ops/attrs.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/point.h"

#ifndef MEG_F64
static const meg_param params[] = {{"log", MEG_PARAM_BOOL, offsetof(meg_softmax_attr, log), "0",
                                    "logarithms of the probabilities", NULL, 0, 0},
                                   {0}};

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 4 : 23) * (double)meg_box_size(&w->out); /* exp() is 20 */
}

static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    (void)g, (void)v;
    return axis == MEG_C ? 0 : 1;
}

static int expand(meg_graph *g, const meg_node *v, const int in[])
{
    return meg_softmax_expand(g, v->name, in[0], ((const meg_softmax_attr *)v->attr)->log);
}

int meg_softmax_expand(meg_graph *g, const char *name, int x, bool log)
{
    int top = meg_graph_add(g, "top", meg_pool_text(g->pool, "%s.top", name), "", 1, &x);
    int z = meg_graph_add(g, "expsum", meg_pool_text(g->pool, "%s.expsum", name), "", 2,
                          (int[]){x, top});
    return meg_graph_add(g, "expdiv", name, log ? "log=1" : "", 3, (int[]){x, top, z});
}
#endif

static bool is_log(const meg_call *c)
{
    return ((const meg_softmax_attr *)c->node->attr)->log;
}

static void forward(const meg_call *c)
{
    bool logs = is_log(c);
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    int64_t p[MEG_AXES], classes = meg_extent(&c->work.out, MEG_C);
    int64_t in = meg_class_stride(x), out = meg_class_stride(y);
    meg_box pixels = c->work.out;
    pixels.hi[MEG_C] = pixels.lo[MEG_C] + 1;
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(pixels, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++) {
            real top = meg_class_top(from + i, in, classes);
            double z = meg_class_expsum(from + i, in, classes, top);
            double log_z = logs ? log(z) : 0;
            for (int64_t k = 0; k < classes; k++) {
                double above = (double)from[i + k * in] - (double)top;
                to[i + k * out] = (real)(logs ? above - log_z : exp(above) / z);
            }
        }
    }
}

/* One pixel: dx of y and dy, whose classes, and those of dx, are so far apart. */
static void pull(const real *made, const real *from, real *to, const int64_t step[3],
                 int64_t classes)
{
    double dot = 0;
    for (int64_t k = 0; k < classes; k++)
        dot += (double)from[k * step[1]] * (double)made[k * step[0]];
    for (int64_t k = 0; k < classes; k++)
        to[k * step[2]] = (real)((double)made[k * step[0]] * ((double)from[k * step[1]] - dot));
}

static void pull_log(const real *made, const real *from, real *to, const int64_t step[3],
                     int64_t classes)
{
    double sum = 0;
    for (int64_t k = 0; k < classes; k++)
        sum += (double)from[k * step[1]];
    for (int64_t k = 0; k < classes; k++)
        to[k * step[2]] = (real)((double)from[k * step[1]] - exp((double)made[k * step[0]]) * sum);
}

static void backward(const meg_call *c)
{
    const meg_array *y = &c->t[MEG_Y], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    int64_t p[MEG_AXES], classes = meg_extent(&c->work.out, MEG_C);
    int64_t step[3] = {meg_class_stride(y), meg_class_stride(dy), meg_class_stride(dx)};
    bool logs = is_log(c);
    meg_box pixels = c->work.out;
    pixels.hi[MEG_C] = pixels.lo[MEG_C] + 1;
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(pixels, 3, (const meg_array *[]){y, dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *made = meg_real_at(y, p), *from = meg_real_at(dy, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++)
            (logs ? pull_log : pull)(made + i, from + i, to + i, step, classes);
    }
}

MEG_KERNELS(softmax) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"5x7", NULL},          {"3x10x9", NULL},    {"2x16x5x3", NULL},
    {"2x3x4x3x5", NULL},    {"4x1x3x3", NULL},   {"5x7", "log=1"},
    {"2x3x4x3x5", "log=1"}, {"3x10x9", "log=1"}, {NULL, NULL}};

const meg_op meg_op_softmax = {
    .name = "softmax",
    .onnx = "Softmax",
    .doc = "softmax over the channels, or its logarithm",
    .params = params,
    .attr_bytes = sizeof(meg_softmax_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = meg_point_infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .grain = grain,
    .expand = expand,
    MEG_KERNELS_OF(softmax),
    .overwrites = true,
    .samples = samples,
};
#endif
