/* Convolution over 1 to 3 spatial axes, with groups, stride, dilation and padding.
 *
 *     y(n,k,p) = bias(k) + sum over c,t of weight(k,c,t) * x(n, c of k's group, q)
 *     with q = p*stride - before + t*dilation
 *
 * The kernels walk lines along w and, per line, the taps that meet it; the channels run inside, so
 * that what a tap costs to find is paid once for all of them.
 */
#include "ops/common/shape.h"
#include "ops/window/convolution.h"

#include <math.h>

/* One line of outputs. */
static void forward_line(const meg_call *c, const meg_conv_shape *s, const meg_box *line,
                         double *sum)
{
    const meg_array *x = &c->t[MEG_X], *w = &c->t[MEG_X + 1];
    const meg_box *part = &c->work.sum;
    int64_t k = line->lo[MEG_C], first = k / s->filters * s->channels + part->lo[MEG_C];
    int64_t x_step = meg_stride(x, MEG_C), w_step = meg_stride(w, MEG_C);
    meg_steps step = {1, s->win[MEG_W - MEG_D].stride};
    meg_slide at = {.win = s->win, .taps = *part, .out = *line, .in = s->x};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t t[] = {k, part->lo[MEG_C], at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t q[] = {line->lo[MEG_N], first, at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        const real *weight = meg_real_at(w, t), *pixel = meg_real_at(x, q);
        double *to = sum + (at.hit.lo[MEG_W] - line->lo[MEG_W]);
        for (int64_t i = 0; i < meg_extent(part, MEG_C); i++)
            meg_add_line(to, (double)weight[i * w_step], pixel + i * x_step, step,
                         meg_extent(&at.hit, MEG_W));
    }
}

static void forward(const meg_call *c)
{
    meg_conv_forward(c, forward_line);
}

/* One line of pixels of channel c: the filters of its group that the work has, through all taps. */
static void backward_line(const meg_call *call, const meg_conv_shape *s, const meg_box *line,
                          double *sum)
{
    const meg_array *w = &call->t[MEG_X + 1], *dy = &call->t[MEG_DY];
    const meg_box *part = &call->work.sum, *out = &call->work.out;
    int64_t n = line->lo[MEG_N], c = line->lo[MEG_C] % s->channels, k0, k1;
    if (!meg_conv_filters(call, s, line, &k0, &k1)) return;

    int64_t w_step = meg_stride(w, MEG_N), dy_step = meg_stride(dy, MEG_C);
    meg_steps step = {s->win[MEG_W - MEG_D].stride, 1};
    meg_slide at = {.win = s->win, .taps = *part, .out = *out, .in = meg_box_meet(*line, s->x)};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t t[] = {k0, c, at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t p[] = {n, k0, at.hit.lo[MEG_D], at.hit.lo[MEG_H], at.hit.lo[MEG_W]};
        const real *weight = meg_real_at(w, t), *from = meg_real_at(dy, p);
        double *to = sum + (at.q[MEG_W] - line->lo[MEG_W]);
        for (int64_t k = 0; k < k1 - k0; k++)
            meg_add_line(to, (double)weight[k * w_step], from + k * dy_step, step,
                         meg_extent(&at.hit, MEG_W));
    }
}

static void backward(const meg_call *c)
{
    meg_conv_backward(c, backward_line);
}

static void weight_gradient(const meg_call *call, const meg_conv_shape *s)
{
    const meg_array *dw = &call->t[MEG_DX + 1], *x = &call->t[MEG_X], *dy = &call->t[MEG_DY];
    meg_box part = call->work.sum;
    meg_conv_jumps j = meg_conv_jumps_of(s->win, dy, x);
    part.lo[MEG_N] = call->work.out.lo[MEG_C], part.hi[MEG_N] = call->work.out.hi[MEG_C];
    meg_zero(dw); /* also for taps that see nothing but padding */
    if (meg_box_empty(&part)) return;
    meg_slide at = {.win = s->win, .taps = part, .out = call->work.out, .in = s->x};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t t[] = {0, 0, at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t q[] = {at.hit.lo[MEG_N], 0, at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        int64_t p[] = {at.hit.lo[MEG_N], 0, at.hit.lo[MEG_D], at.hit.lo[MEG_H], at.hit.lo[MEG_W]};
        for (int64_t k = part.lo[MEG_N]; k < part.hi[MEG_N]; k++)
            for (int64_t c = part.lo[MEG_C]; c < part.hi[MEG_C]; c++) {
                t[MEG_N] = p[MEG_C] = k, t[MEG_C] = c;
                q[MEG_C] = k / s->filters * s->channels + c;
                *meg_real_at(dw, t) = (real)meg_conv_correlate(meg_real_at(dy, p),
                                                               meg_real_at(x, q), &j, &at.hit);
            }
    }
}

static void weight(const meg_call *c)
{
    meg_conv_shape s = meg_conv_shape_of(c->graph, c->node);
    if (c->t[MEG_DX + 1].data) weight_gradient(c, &s);
    meg_conv_bias_gradient(c);
}

MEG_KERNELS(conv) = {
    .run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward, [MEG_WEIGHT] = weight}};

#ifndef MEG_F64

static const meg_param params[] = {
    {"filters", MEG_PARAM_INT, offsetof(meg_conv_attr, filters), NULL, "channels of the output",
     .lo = 1, .hi = 1 << 24},
    {"kernel", MEG_PARAM_AXES, offsetof(meg_conv_attr, kernel), NULL, "taps per axis: 3, 3x5",
     .lo = 1, .hi = 1 << 16},
    {"stride", MEG_PARAM_AXES, offsetof(meg_conv_attr, stride), "1", "pixels between outputs",
     .lo = 1, .hi = 1 << 16},
    {"dilation", MEG_PARAM_AXES, offsetof(meg_conv_attr, dilation), "1", "pixels between taps",
     .lo = 1, .hi = 1 << 16},
    {"pad", MEG_PARAM_PADS, offsetof(meg_conv_attr, pad), "0",
     "zeros around the input: 1, 1x2, 0:1x0:1 (before:after)", .lo = 0, .hi = 1 << 16},
    {"groups", MEG_PARAM_INT, offsetof(meg_conv_attr, groups), "1",
     "parts of the channels that do not mix; as many as channels: depthwise", .lo = 1,
     .hi = 1 << 24},
    {"bias", MEG_PARAM_BOOL, offsetof(meg_conv_attr, bias), "1", "adds a number per filter", NULL,
     0, 0},
    {0}};

static meg_window_words words_of(const meg_conv_attr *a)
{
    return (meg_window_words){&a->kernel, &a->stride, &a->dilation, &a->pad, false, false, NULL};
}

/* Comes before infer: what does not fit is reported there. */
static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const meg_conv_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = words_of(a);
    meg_window win[MEG_SPACE] = {{1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}};
    meg_error unread = {0};
    meg_windows_resolve(&unread, v, x, &words, win);

    meg_box taps = meg_windows_taps(win);
    taps.hi[MEG_N] = a->filters, taps.hi[MEG_C] = x->shape.hi[MEG_C] / a->groups;
    double fan_in = (double)taps.hi[MEG_C];
    for (int i = 0; i < MEG_SPACE; i++)
        fan_in *= (double)win[i].taps;
    return meg_conv_weights(g, v, &taps, fan_in, out);
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_conv_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = words_of(a);
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_windows_resolve(e, v, x, &words, a->win));
    MEG_TRY(e, meg_conv_check(g, v, e));
    meg_windows_output(x, a->filters, false, a->win, &out[0]);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_conv_shape s = meg_conv_shape_of(g, v);
    int64_t k0 = w->out.lo[MEG_C], k1 = w->out.hi[MEG_C];
    meg_box in = input == 0 ? w->out : w->sum;
    if (input == 2) return meg_conv_need_bias(w);
    if (input == 0) {
        in.lo[MEG_C] = k0 / s.filters * s.channels + w->sum.lo[MEG_C];
        in.hi[MEG_C] = (k1 - 1) / s.filters * s.channels + w->sum.hi[MEG_C];
        meg_windows_reach(s.win, &w->out, &w->sum, &in);
        return in;
    }
    in.lo[MEG_N] = k0, in.hi[MEG_N] = k1;
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p; /* each pass multiplies and adds the same pairs */
    return 2.0 * (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}

static const meg_sample samples[] = {
    {"2x3x9x7", "filters=5 kernel=3"},
    {"1x1x8x11", "filters=7 kernel=3 pad=1"},
    {"2x2x9x10", "filters=6 kernel=5x3 stride=3x2 pad=2x1"},
    {"2x4x9x9", "filters=4 kernel=1 stride=3 bias=0"},
    {"1x3x13x11", "filters=16 kernel=7 stride=2 pad=3 bias=0"},
    {"2x5x11x9", "filters=3 kernel=3 dilation=2 pad=2"},
    {"2x5x9x9", "filters=4 kernel=2 stride=3 dilation=2x3 pad=1"},
    {"1x3x8x7", "filters=5 kernel=4x2 pad=1:2x0:1"},
    {"2x3x7x8", "filters=4 kernel=2 stride=2 pad=0:1x1:0 bias=0"},
    {"2x6x7x7", "filters=9 kernel=3 pad=1 groups=3"},
    {"2x5x8x7", "filters=5 kernel=3 stride=2 pad=1 groups=5 bias=0"},
    {"1x16x7x7", "filters=16 kernel=3 pad=1 groups=16"},
    {"1x32x6x5", "filters=32 kernel=3 pad=1 groups=2"},
    {"1x3x5x5", "filters=6 kernel=3 pad=1 groups=3"},
    {"3x3x17", "filters=4 kernel=5 stride=2 pad=1:3"},
    {"2x8x9", "filters=12 kernel=3 dilation=3 pad=3 groups=4"},
    {"1x2x300", "filters=2 kernel=3 pad=1"},
    {"1x3x5x6x7", "filters=4 kernel=3 stride=2x1x3 pad=1"},
    {"1x4x4x5x4", "filters=4 kernel=2x3x1 pad=0:1x1x0 groups=2 bias=0"},
    {"2x1x1x1", "filters=3 kernel=1"},
    {"1x2x2x3", "filters=3 kernel=3 pad=4"},
    {"2x16x8x8", "filters=32 kernel=3 stride=2 pad=1 bias=0"},
    {"2x32x5x5", "filters=16 kernel=1"},
    {"1x17x6x6", "filters=33 kernel=3 pad=1"},
    {"1x32x14x14", "filters=32 kernel=3 pad=1"},
    {0}};

const meg_op meg_op_conv = {
    .name = "conv",
    .linear = true,
    .onnx = "Conv",
    .doc = "convolution over 1 to 3 spatial axes",
    .paper = "LeCun et al., Gradient-based learning applied to document recognition, 1998",
    .params = params,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    MEG_CONV_FIELDS,
    MEG_KERNELS_OF(conv),
    .samples = samples};

#endif
