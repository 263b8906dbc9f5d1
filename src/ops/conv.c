/* Convolution over 1 to 3 spatial axes, with groups, stride, dilation and padding.
 *
 *     y(n,k,p) = bias(k) + sum over c,t of weight(k,c,t) * x(n, c of k's group, q)
 *     with q = p*stride - before + t*dilation
 *
 * The sum box is (1, channels per group, taps): cutting it is channel parallelism. The kernels walk
 * lines along w and, per line, the taps that meet it; the channels run inside, so that what a tap
 * costs to find is paid once for all of them.
 */
#include "ops/lines.h"
#include "ops/shape.h"
#include "ops/window.h"

#include <math.h>

typedef struct shape {         /* what all kernels ask of the node */
    const meg_window *win;     /* [MEG_SPACE] */
    int64_t filters, channels; /* of one group */
    meg_box x;                 /* the whole input */
} shape;

static shape shape_of(const meg_graph *g, const meg_node *v)
{
    const meg_conv_attr *a = v->attr;
    const meg_box *x = &g->value[v->in[0]].shape;
    return (shape){a->win, a->filters / a->groups, x->hi[MEG_C] / a->groups, *x};
}

/* One line of outputs. */
static void forward_line(const meg_call *c, const shape *s, const meg_box *line, double *sum)
{
    const meg_tensor *x = &c->t[MEG_X], *w = &c->t[MEG_X + 1];
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

static double bias_of(const meg_call *c, int64_t k)
{
    const meg_tensor *bias = &c->t[MEG_X + 2];
    return bias->data && meg_first_part(&c->work) ? (double)*meg_channel_at(bias, 0, k) : 0;
}

static void forward(const meg_call *c)
{
    shape s = shape_of(c->graph, c->node);
    meg_box lines = meg_lines(&c->work.out);
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&c->work.out, p);
        double sum[MEG_LINE], bias = bias_of(c, p[MEG_C]);
        for (int64_t i = 0; i < meg_extent(&line, MEG_W); i++)
            sum[i] = bias;
        if (!meg_box_empty(&c->work.sum)) forward_line(c, &s, &line, sum);
        meg_store_line(&c->t[MEG_Y], &line, sum);
    }
}

/* One line of pixels of channel c: the filters of its group that the work has, through all taps. */
static void backward_line(const meg_call *call, const shape *s, const meg_box *line, double *sum)
{
    const meg_tensor *w = &call->t[MEG_X + 1], *dy = &call->t[MEG_DY];
    const meg_box *part = &call->work.sum, *out = &call->work.out;
    int64_t n = line->lo[MEG_N], c = line->lo[MEG_C] % s->channels;
    int64_t k0 = line->lo[MEG_C] / s->channels * s->filters, k1 = k0 + s->filters;
    if (k0 < out->lo[MEG_C]) k0 = out->lo[MEG_C];
    if (k1 > out->hi[MEG_C]) k1 = out->hi[MEG_C];
    bool ours = n >= out->lo[MEG_N] && n < out->hi[MEG_N] && c >= part->lo[MEG_C] &&
                c < part->hi[MEG_C] && k0 < k1;
    if (!ours) return;

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
    shape s = shape_of(c->graph, c->node);
    const meg_tensor *dx = &c->t[MEG_DX];
    meg_box lines = meg_lines(&dx->box);
    int64_t p[MEG_AXES];
    for (bool on = dx->data && meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&dx->box, p);
        double sum[MEG_LINE] = {0};
        backward_line(c, &s, &line, sum);
        meg_store_line(dx, &line, sum);
    }
}

typedef struct jumps {                 /* from sample to sample and row to row of outputs */
    int64_t dy[MEG_AXES], x[MEG_AXES]; /* elements of dy, and of the pixels they read */
} jumps;

static jumps jumps_of(const meg_call *c, const meg_window win[MEG_SPACE])
{
    jumps j;
    meg_box_strides(&c->t[MEG_DY].box, j.dy);
    meg_box_strides(&c->t[MEG_X].box, j.x);
    for (int i = 0; i < MEG_SPACE; i++)
        j.x[MEG_D + i] *= win[i].stride;
    return j;
}

/* The product of all outputs of one filter with the pixels that they read through one tap. */
static double correlate(const real *dy, const real *x, const jumps *j, const meg_box *hit)
{
    double sum = 0;
    for (int64_t n = 0; n < meg_extent(hit, MEG_N); n++)
        for (int64_t d = 0; d < meg_extent(hit, MEG_D); d++)
            for (int64_t h = 0; h < meg_extent(hit, MEG_H); h++)
                sum += meg_dot_line(dy + n * j->dy[MEG_N] + d * j->dy[MEG_D] + h * j->dy[MEG_H],
                                    x + n * j->x[MEG_N] + d * j->x[MEG_D] + h * j->x[MEG_H],
                                    j->x[MEG_W], meg_extent(hit, MEG_W));
    return sum;
}

static void weight_gradient(const meg_call *call, const shape *s)
{
    const meg_tensor *dw = &call->t[MEG_DX + 1], *x = &call->t[MEG_X], *dy = &call->t[MEG_DY];
    meg_box part = call->work.sum;
    jumps j = jumps_of(call, s->win);
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
                *meg_real_at(dw, t) = (real)correlate(meg_real_at(dy, p), meg_real_at(x, q), &j,
                                                      &at.hit);
            }
    }
}

static void bias_gradient(const meg_call *c)
{
    const meg_tensor *db = &c->t[MEG_DX + 2];
    meg_zero(db);
    if (!meg_first_part(&c->work)) return;
    for (int64_t k = c->work.out.lo[MEG_C]; k < c->work.out.hi[MEG_C]; k++) {
        meg_box part = c->work.out;
        part.lo[MEG_C] = k, part.hi[MEG_C] = k + 1;
        *meg_channel_at(db, 0, k) = (real)meg_sum_power(&c->t[MEG_DY], part, 0, 1);
    }
}

static void weight(const meg_call *c)
{
    shape s = shape_of(c->graph, c->node);
    if (c->t[MEG_DX + 1].data) weight_gradient(c, &s);
    if (c->t[MEG_DX + 2].data) bias_gradient(c);
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
    out[0] = (meg_weight_spec){"weight", MEG_PARAMETER, taps, x->rank, {0}, MEG_NORMAL, 0};
    out[0].bound = sqrt(2 / fan_in);
    for (int i = 0; i < x->rank; i++)
        out[0].dims[i] = taps.hi[i < 2 ? i : MEG_AXES - x->rank + i];
    out[1] = (meg_weight_spec){.suffix = "bias",
                               .kind = MEG_PARAMETER,
                               .rank = 1,
                               .dims = {a->filters},
                               .start = MEG_ZEROS,
                               .shape = meg_box_of(1, a->filters, 1, 1, 1)};
    return a->bias ? 2 : 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_conv_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    meg_window_words words = words_of(a);
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_windows_resolve(e, v, x, &words, a->win));
    long long channels = x->shape.hi[MEG_C], groups = a->groups, filters = a->filters;
    MEG_CHECK(e, channels % groups == 0, MEG_EARG,
              "%s: groups=%lld does not divide the %lld channels of the input: use a divisor of "
              "%lld",
              v->name, groups, channels, channels);
    MEG_CHECK(e, filters % groups == 0, MEG_EARG,
              "%s: groups=%lld does not divide filters=%lld: use a multiple of %lld filters",
              v->name, groups, filters, groups);
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_windows_output(x, a->filters, false, a->win, &out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    shape s = shape_of(g, v);
    meg_box all = meg_windows_taps(s.win);
    all.hi[MEG_C] = s.channels;
    return all;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    shape s = shape_of(g, v);
    int64_t k0 = w->out.lo[MEG_C], k1 = w->out.hi[MEG_C];
    meg_box in = input == 0 ? w->out : w->sum;
    if (input == 0) {
        in.lo[MEG_C] = k0 / s.filters * s.channels + w->sum.lo[MEG_C];
        in.hi[MEG_C] = (k1 - 1) / s.filters * s.channels + w->sum.hi[MEG_C];
        meg_windows_reach(s.win, &w->out, &w->sum, &in);
        return in;
    }
    if (input == 2 && !meg_first_part(w)) return meg_box_of(0, 0, 0, 0, 0);
    if (input == 2) in = meg_box_of(1, 1, 1, 1, 1);
    int axis = input == 1 ? MEG_N : MEG_C; /* filters lie on n of the weight, on c of the bias */
    in.lo[axis] = k0, in.hi[axis] = k1;
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p; /* each pass multiplies and adds the same pairs */
    return 2.0 * (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}

/* A cut inside a group would make ranks read channels of groups that are not theirs. */
static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    const meg_conv_attr *a = v->attr;
    (void)g;
    return axis == MEG_C && a->groups > 1 ? a->filters / a->groups : 1;
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
    .onnx = "Conv",
    .doc = "convolution over 1 to 3 spatial axes",
    .paper = "LeCun et al., Gradient-based learning applied to document recognition, 1998",
    .params = params,
    .attr_bytes = sizeof(meg_conv_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_X + 2),
              [MEG_BACKWARD] = MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY),
              [MEG_WEIGHT] = MEG_BIT(MEG_X) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX),
               [MEG_WEIGHT] = MEG_BIT(MEG_DX + 1) | MEG_BIT(MEG_DX + 2)},
    .grain = grain,
    MEG_KERNELS_OF(conv),
    .samples = samples};

#endif
