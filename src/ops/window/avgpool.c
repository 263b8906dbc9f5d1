/* Average pooling over 1 to 3 spatial axes. The denominator is the number of pixels under the
 * window: padding among them with count_pad (the default, as PyTorch has it), without it those of
 * the input alone. What `ceil` lets overhang beyond the padding never counts.
 */
#include "ops/common/lines.h"
#include "ops/common/window.h"

/* Pixels along one axis under the window of output p: taps at lo, lo + dilation, ... below `most`,
 * but for those below `least`. */
static int64_t under(const meg_window *k, int64_t p, int64_t length, bool count_pad)
{
    int64_t lo = p * k->stride - k->before, d = k->dilation;
    int64_t least = count_pad ? -k->before : 0, most = count_pad ? length + k->after : length;
    int64_t first = lo < least ? (least - lo + d - 1) / d : 0, end = (most - lo + d - 1) / d;
    return (end < k->taps ? end : k->taps) - first;
}

/* The share of each pixel in the outputs of a line. */
static void shares(const meg_call *c, const meg_box *line, double share[])
{
    const meg_pool_attr *a = c->node->attr;
    const meg_box *x = &c->graph->value[c->node->in[0]].shape;
    int64_t rows = under(&a->win[0], line->lo[MEG_D], x->hi[MEG_D], a->count_pad) *
                   under(&a->win[1], line->lo[MEG_H], x->hi[MEG_H], a->count_pad);
    for (int64_t i = 0; i < meg_extent(line, MEG_W); i++)
        share[i] = 1 / (double)(rows *
                                under(&a->win[2], line->lo[MEG_W] + i, x->hi[MEG_W], a->count_pad));
}

/* Adds up the windows of one line of outputs. */
static void forward_line(const meg_call *c, const meg_box *line, double *sum)
{
    const meg_pool_attr *a = c->node->attr;
    meg_steps step = {1, a->win[MEG_W - MEG_D].stride};
    meg_slide at = {.win = a->win,
                    .taps = meg_windows_taps(a->win),
                    .out = *line,
                    .in = c->graph->value[c->node->in[0]].shape};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t q[] = {line->lo[MEG_N], line->lo[MEG_C], at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        meg_add_line(sum + (at.hit.lo[MEG_W] - line->lo[MEG_W]), 1, meg_real_at(&c->t[MEG_X], q),
                     step, meg_extent(&at.hit, MEG_W));
    }
}

static void forward(const meg_call *c)
{
    meg_box lines = meg_lines(&c->work.out);
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        double sum[MEG_LINE] = {0}, share[MEG_LINE];
        meg_box line = meg_line(&c->work.out, p);
        forward_line(c, &line, sum);
        shares(c, &line, share);
        for (int64_t i = 0; i < meg_extent(&line, MEG_W); i++)
            sum[i] *= share[i];
        meg_store_line(&c->t[MEG_Y], &line, sum);
    }
}

/* One line of pixels: their share in the outputs of the work whose windows they lie under. */
static void backward_line(const meg_call *c, const meg_box *line, double *sum)
{
    const meg_pool_attr *a = c->node->attr;
    const meg_box *out = &c->work.out;
    int64_t n = line->lo[MEG_N], ch = line->lo[MEG_C], step = a->win[MEG_W - MEG_D].stride;
    if (n < out->lo[MEG_N] || n >= out->hi[MEG_N]) return;
    if (ch < out->lo[MEG_C] || ch >= out->hi[MEG_C]) return;
    meg_slide at = {.win = a->win,
                    .taps = meg_windows_taps(a->win),
                    .out = *out,
                    .in = meg_box_meet(*line, c->graph->value[c->node->in[0]].shape)};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        double share[MEG_LINE], *to = sum + (at.q[MEG_W] - line->lo[MEG_W]);
        int64_t p[] = {n, ch, at.hit.lo[MEG_D], at.hit.lo[MEG_H], at.hit.lo[MEG_W]};
        const real *from = meg_real_at(&c->t[MEG_DY], p);
        shares(c, &at.hit, share);
        for (int64_t i = 0; i < meg_extent(&at.hit, MEG_W); i++)
            to[i * step] += share[i] * (double)from[i];
    }
}

static void backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX];
    meg_box lines = meg_lines(&dx->box);
    int64_t p[MEG_AXES];
    for (bool on = dx->data && meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        double sum[MEG_LINE] = {0};
        meg_box line = meg_line(&dx->box, p);
        if (!meg_box_empty(&c->work.out)) backward_line(c, &line, sum);
        meg_store_line(dx, &line, sum);
    }
}

MEG_KERNELS(avgpool) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {
    {"kernel", MEG_PARAM_AXES, offsetof(meg_pool_attr, kernel), NULL, "taps per axis: 3, 3x5", NULL,
     1, 1 << 16},
    {"stride", MEG_PARAM_AXES, offsetof(meg_pool_attr, stride), "",
     "pixels between outputs; the kernel if not given", NULL, 1, 1 << 16},
    {"dilation", MEG_PARAM_AXES, offsetof(meg_pool_attr, dilation), "", "pixels between taps", NULL,
     1, 1 << 16},
    {"pad", MEG_PARAM_PADS, offsetof(meg_pool_attr, pad), "0",
     "zeros around the input: 1, 1x2, 0:1x0:1 (before:after)", NULL, 0, 1 << 16},
    {"ceil", MEG_PARAM_BOOL, offsetof(meg_pool_attr, ceil), "0",
     "a last window may overhang the input", NULL, 0, 0},
    {"count_pad", MEG_PARAM_BOOL, offsetof(meg_pool_attr, count_pad), "1",
     "padding counts in the denominator", NULL, 0, 0},
    {0}};

static const meg_sample samples[] = {
    {"2x3x8x8", "kernel=2"},
    {"1x5x9x7", "kernel=3 stride=2 pad=1"},
    {"1x5x9x7", "kernel=3 stride=2 pad=1 count_pad=0"},
    {"2x4x7x9", "kernel=3x2 stride=1 pad=1x0 count_pad=0"},
    {"1x3x11x10", "kernel=2 stride=3"},
    {"1x3x6x7", "kernel=3 stride=2 pad=1 ceil=1"},
    {"1x3x6x8", "kernel=3x2 stride=2 pad=1:0x0:1 ceil=1"},
    {"1x3x6x8", "kernel=3x2 stride=2 pad=1:0x0:1 ceil=1 count_pad=0"},
    {"1x1x7x7", "kernel=7"},
    {"1x3x11x10", "kernel=3x2 stride=2 dilation=2x3 pad=1"},
    {"1x3x11x9", "kernel=3 stride=2 dilation=2 pad=2 ceil=1 count_pad=0"},
    {"1x16x9x8", "kernel=2 stride=1 dilation=3 pad=1:2 ceil=1"},
    {"3x3x13", "kernel=4 stride=3 pad=1:2"},
    {"1x2x5x6x5", "kernel=3x2x2 stride=2x1x2 pad=1x0x1 count_pad=0"},
    {"1x2x1x150", "kernel=1x3 stride=1 pad=0x1"},
    {"2x16x9x9", "kernel=3 stride=2 pad=1"},
    {"1x32x8x8", "kernel=2"},
    {0}};

const meg_op meg_op_avgpool = {
    .name = "avgpool",
    .onnx = "AveragePool",
    .doc = "mean over a sliding window",
    .params = params,
    .attr_bytes = sizeof(meg_pool_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = meg_pool_infer,
    .need = meg_pool_need,
    .flops = meg_pool_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(avgpool),
    .samples = samples,
};

#endif
