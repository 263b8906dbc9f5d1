/* Clipping: y = min(max(x, lo), hi); lo=0 hi=6 is ReLU6. A gradient passes strictly between the
 * limits (as PyTorch's hardtanh has it), so backward asks the output, and forward may overwrite its
 * input. */
#include "ops/pointwise/point.h"

#ifndef MEG_F64
static const meg_param params[] = {{"lo", MEG_PARAM_REAL, offsetof(meg_clip_attr, lo),
                                    "-3.4028235e38", "least output", NULL, 0, 0},
                                   {"hi", MEG_PARAM_REAL, offsetof(meg_clip_attr, hi),
                                    "3.4028235e38", "largest output", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_clip_attr *attr = v->attr;
    MEG_CHECK(e, attr->lo <= attr->hi, MEG_EARG, "%s: lo=%g must not be above hi=%g", v->name,
              attr->lo, attr->hi);
    return meg_point_infer(g, v, e, out);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 2 * (double)meg_box_size(&w->out);
}
#endif

static double clip(const void *attr, double x)
{
    const meg_clip_attr *limit = attr;
    return x < limit->lo ? limit->lo : x > limit->hi ? limit->hi : x;
}

/* The limits as `real` has them, since the output has been rounded. */
static double pull(const void *attr, double y, double dy)
{
    const meg_clip_attr *limit = attr;
    return y <= (double)(real)limit->lo || y >= (double)(real)limit->hi ? 0 : dy;
}

static void forward(const meg_call *c)
{
    meg_point_forward(c, clip);
}

static void backward(const meg_call *c)
{
    meg_point_backward(c, MEG_Y, pull);
}

MEG_KERNELS(clip) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7", "lo=-0.4 hi=1.1"},
                                     {"2x5x11", "lo=0.25"},
                                     {"3x16x5x7", "lo=0 hi=1.3"},
                                     {"2x3x4x3x5", "hi=-0.3"},
                                     {NULL, NULL}};

const meg_op meg_op_clip = {
    .name = "clip",
    .onnx = "Clip",
    .doc = "clips to lo..hi",
    .params = params,
    .attr_bytes = sizeof(meg_clip_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_need_same,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(clip),
    .overwrites = true,
    .samples = samples,
};
#endif
