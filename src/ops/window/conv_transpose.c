/* Transposed convolution over 1 to 3 spatial axes: the adjoint of conv, with stride an upsampling.
 *
 *     y(n,k,q) = bias(k) + sum over c,t of weight(c, k in its group, t) * x(n, c of k's group, p)
 *     with q = p*stride - before + t*dilation
 *
 * The weight lies as that of the convolution which it is the adjoint of, (channels, filters per
 * group, taps); so do PyTorch's files. The kernels are conv's with the two sides of the window
 * exchanged.
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
    int64_t x_step = meg_stride(x, MEG_C), w_step = meg_stride(w, MEG_N);
    meg_steps step = {s->win[MEG_W - MEG_D].stride, 1};
    meg_slide at = {.win = s->win, .taps = *part, .out = s->x, .in = *line};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t t[] = {first, k % s->filters, at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t p[] = {line->lo[MEG_N], first, at.hit.lo[MEG_D], at.hit.lo[MEG_H],
                       at.hit.lo[MEG_W]};
        const real *weight = meg_real_at(w, t), *pixel = meg_real_at(x, p);
        double *to = sum + (at.q[MEG_W] - line->lo[MEG_W]);
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
    int64_t n = line->lo[MEG_N], c = line->lo[MEG_C], k0, k1;
    int64_t first = c / s->channels * s->filters;
    if (!meg_conv_filters(call, s, line, &k0, &k1)) return;

    int64_t w_step = meg_stride(w, MEG_C), dy_step = meg_stride(dy, MEG_C);
    meg_steps step = {1, s->win[MEG_W - MEG_D].stride};
    meg_slide at = {.win = s->win, .taps = *part, .out = meg_box_meet(*line, s->x), .in = *out};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t t[] = {c, k0 - first, at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t q[] = {n, k0, at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        const real *weight = meg_real_at(w, t), *from = meg_real_at(dy, q);
        double *to = sum + (at.hit.lo[MEG_W] - line->lo[MEG_W]);
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
    const meg_box *part = &call->work.sum, *out = &call->work.out;
    meg_conv_jumps j = meg_conv_jumps_of(s->win, x, dy);
    meg_zero(dw); /* also for taps that reach nothing but what padding took away */
    if (meg_box_empty(part)) return;
    meg_slide at = {.win = s->win, .taps = *part, .out = s->x, .in = *out};
    at.out.lo[MEG_N] = out->lo[MEG_N], at.out.hi[MEG_N] = out->hi[MEG_N];
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t n = out->lo[MEG_N];
        int64_t t[] = {0, 0, at.t[MEG_D], at.t[MEG_H], at.t[MEG_W]};
        int64_t q[] = {n, 0, at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        int64_t p[] = {n, 0, at.hit.lo[MEG_D], at.hit.lo[MEG_H], at.hit.lo[MEG_W]};
        for (int64_t k = out->lo[MEG_C]; k < out->hi[MEG_C]; k++)
            for (int64_t c = part->lo[MEG_C]; c < part->hi[MEG_C]; c++) {
                q[MEG_C] = k, t[MEG_C] = k % s->filters;
                p[MEG_C] = t[MEG_N] = k / s->filters * s->channels + c;
                *meg_real_at(dw, t) = (real)meg_conv_correlate(meg_real_at(x, p),
                                                               meg_real_at(dy, q), &j, &at.hit);
            }
    }
}

static void weight(const meg_call *c)
{
    meg_conv_shape s = meg_conv_shape_of(c->graph, c->node);
    if (c->t[MEG_DX + 1].data) weight_gradient(c, &s);
    meg_conv_bias_gradient(c);
}

MEG_KERNELS(conv_transpose) = {
    .run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward, [MEG_WEIGHT] = weight}};

#ifndef MEG_F64

static const meg_param params[] = {
    {"filters", MEG_PARAM_INT, offsetof(meg_conv_attr, filters), NULL, "channels of the output",
     .lo = 1, .hi = 1 << 24},
    {"kernel", MEG_PARAM_AXES, offsetof(meg_conv_attr, kernel), NULL, "taps per axis: 3, 3x5",
     .lo = 1, .hi = 1 << 16},
    {"stride", MEG_PARAM_AXES, offsetof(meg_conv_attr, stride), "1",
     "outputs between the windows of neighbouring pixels", .lo = 1, .hi = 1 << 16},
    {"dilation", MEG_PARAM_AXES, offsetof(meg_conv_attr, dilation), "1", "outputs between taps",
     .lo = 1, .hi = 1 << 16},
    {"pad", MEG_PARAM_PADS, offsetof(meg_conv_attr, pad), "0",
     "outputs that are cut off: 1, 1x2, 0:1x0:1 (before:after)", .lo = 0, .hi = 1 << 16},
    {"output_pad", MEG_PARAM_AXES, offsetof(meg_conv_attr, output_pad), "0",
     "outputs that are added at the end of each axis", .lo = 0, .hi = 1 << 16},
    {"groups", MEG_PARAM_INT, offsetof(meg_conv_attr, groups), "1",
     "parts of the channels that do not mix", .lo = 1, .hi = 1 << 24},
    {"bias", MEG_PARAM_BOOL, offsetof(meg_conv_attr, bias), "1", "adds a number per filter", NULL,
     0, 0},
    {0}};

static meg_window_words words_of(const meg_conv_attr *a)
{
    return (meg_window_words){&a->kernel, &a->stride, &a->dilation,  &a->pad,
                              false,      false,      &a->output_pad};
}

/* Comes before infer: what does not fit is reported there. An output meets one tap in `stride`. */
static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const meg_conv_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = words_of(a);
    meg_window win[MEG_SPACE] = {{1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}};
    meg_error unread = {0};
    meg_windows_transpose(&unread, v, x, &words, win);

    meg_box taps = meg_windows_taps(win);
    double fan_in = (double)x->shape.hi[MEG_C] / (double)a->groups;
    taps.hi[MEG_N] = x->shape.hi[MEG_C], taps.hi[MEG_C] = a->filters / a->groups;
    for (int i = 0; i < MEG_SPACE; i++)
        fan_in *= fmax(1, (double)win[i].taps / (double)win[i].stride);
    return meg_conv_weights(g, v, &taps, fan_in, out);
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_conv_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = words_of(a);
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_windows_transpose(e, v, x, &words, a->win));
    MEG_TRY(e, meg_conv_check(g, v, e));
    meg_shape_like(&out[0], x);
    out[0].dims[1] = out[0].shape.hi[MEG_C] = a->filters;
    for (int i = 2; i < x->rank; i++) {
        int axis = MEG_AXES - x->rank + i;
        int64_t length = meg_window_spread(&a->win[axis - MEG_D], x->shape.hi[axis]);
        out[0].dims[i] = out[0].shape.hi[axis] = length;
    }
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_conv_shape s = meg_conv_shape_of(g, v);
    int64_t k0 = w->out.lo[MEG_C], k1 = w->out.hi[MEG_C];
    meg_box in = input == 1 ? w->sum : w->out;
    if (input == 2) return meg_conv_need_bias(w);
    int axis = input == 0 ? MEG_C : MEG_N; /* where the channels lie */
    in.lo[axis] = k0 / s.filters * s.channels + w->sum.lo[MEG_C];
    in.hi[axis] = (k1 - 1) / s.filters * s.channels + w->sum.hi[MEG_C];
    if (input == 0) {
        meg_windows_draw(s.win, &w->out, &w->sum, &in);
        return in;
    }
    bool one_group = k0 / s.filters == (k1 - 1) / s.filters;
    in.lo[MEG_C] = one_group ? k0 % s.filters : 0;
    in.hi[MEG_C] = one_group ? (k1 - 1) % s.filters + 1 : s.filters;
    return in;
}

/* Every pixel meets every tap; what padding cuts off is not worth counting. */
static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const meg_conv_attr *a = v->attr;
    double strides = 1;
    (void)g, (void)p; /* each pass multiplies and adds the same pairs */
    for (int i = 0; i < MEG_SPACE; i++)
        strides *= (double)a->win[i].stride;
    return 2.0 * (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum) / strides;
}

static const meg_sample samples[] = {
    {"2x3x5x4", "filters=5 kernel=3"},
    {"1x4x5x6", "filters=3 kernel=2 stride=2"},
    {"2x3x5x4", "filters=4 kernel=3 stride=2 pad=1 output_pad=1"},
    {"1x2x4x5", "filters=6 kernel=5x3 stride=3x2 pad=2x1 output_pad=2x0 bias=0"},
    {"2x4x4x4", "filters=4 kernel=1 stride=3 bias=0"},
    {"2x5x5x4", "filters=3 kernel=3 dilation=2 pad=2"},
    {"1x3x4x4", "filters=2 kernel=2 stride=2 dilation=3x2 pad=1 output_pad=1"},
    {"1x3x4x4", "filters=2 kernel=3 dilation=3 pad=1 output_pad=2"},
    {"1x3x6x5", "filters=5 kernel=4x2 pad=1:2x0:1"},
    {"2x3x4x5", "filters=4 kernel=3 stride=2 pad=0:1x1:0 bias=0"},
    {"2x6x4x5", "filters=9 kernel=3 stride=2 pad=1 groups=3"},
    {"2x5x4x3", "filters=5 kernel=3 stride=2 pad=1 groups=5 bias=0"},
    {"1x16x4x4", "filters=16 kernel=3 pad=1 groups=16"},
    {"1x32x4x5", "filters=32 kernel=2 stride=2 groups=2"},
    {"3x3x9", "filters=4 kernel=5 stride=2 pad=1:3"},
    {"1x2x70", "filters=2 kernel=4 stride=2 pad=1"},
    {"1x3x3x4x3", "filters=4 kernel=3 stride=2x1x3 pad=1 output_pad=1x0x2"},
    {"1x4x3x3x2", "filters=4 kernel=2x3x2 stride=2x1x2 groups=2 bias=0"},
    {"2x1x1x1", "filters=3 kernel=4"},
    {"2x32x4x4", "filters=16 kernel=2 stride=2"},
    {"1x16x7x7", "filters=32 kernel=4 stride=2 pad=1 bias=0"},
    {"1x17x4x4", "filters=33 kernel=3 stride=2 pad=1 output_pad=1"},
    {0}};

const meg_op meg_op_conv_transpose = {
    .name = "conv_transpose",
    .linear = true,
    .onnx = "ConvTranspose",
    .doc = "transposed convolution (the adjoint of conv) over 1 to 3 spatial axes",
    .paper = "Zeiler, Krishnan, Taylor, Fergus, Deconvolutional networks, CVPR 2010",
    .params = params,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    MEG_CONV_FIELDS,
    MEG_KERNELS_OF(conv_transpose),
    .samples = samples};

#endif
