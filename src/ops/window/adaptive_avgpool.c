/* Adaptive average pooling: as many outputs as asked for, each the mean of its bin. Bin p of `out`
 * over `in` pixels is floor(p*in/out) .. ceil((p+1)*in/out), as PyTorch has it: the bins cover the
 * input and differ by at most one pixel in size; where out does not divide in, neighbours overlap.
 */
#include "ops/common/shape.h"
#include "ops/common/spans.h"

static void forward(const meg_call *c)
{
    meg_spans_forward(c);
}

static void backward(const meg_call *c)
{
    meg_spans_backward(c);
}

MEG_KERNELS(adaptive_avgpool) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"size", MEG_PARAM_AXES, offsetof(meg_resize_attr, size), NULL,
                                    "outputs per axis: 7, 6x7", NULL, 1, 1 << 24},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_resize_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_spans_open(e, v, x));
    for (int i = 0; i < MEG_SPACE; i++)
        a->spans[i].kind = MEG_SPAN_BINS;
    meg_spans_output(x, a->spans, &out[0]);
    return MEG_OK;
}

static const meg_sample samples[] = {{"2x3x8x8", "size=2"},
                                     {"1x5x9x7", "size=4x3"},
                                     {"2x4x7x9", "size=1"},
                                     {"1x3x5x6", "size=5x6"},
                                     {"1x2x5x4", "size=7x9"},
                                     {"3x3x13", "size=4"},
                                     {"1x2x5x6x5", "size=2x4x3"},
                                     {"1x2x1x150", "size=1x140"},
                                     {"2x16x9x9", "size=7"},
                                     {"1x32x8x8", "size=3"},
                                     {"1x17x14x13", "size=6x7"},
                                     {"1x16x4x6x5", "size=2x3x2"},
                                     {0}};

const meg_op meg_op_adaptive_avgpool = {
    .name = "adaptive_avgpool",
    .doc = "mean over bins, as many as asked for",
    .params = params,
    .attr_bytes = sizeof(meg_resize_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_spans_need,
    .flops = meg_spans_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(adaptive_avgpool),
    .samples = samples,
};

#endif
