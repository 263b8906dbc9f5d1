/* Max-pooling over 1 to 3 spatial axes. Padding never wins. Ties go to the first pixel in global
 * row-major order: a window is whole on the rank that computes it, so no cut changes the winner.
 * Forward notes the winning tap of each output (aux 0), and backward asks nothing else: the input
 * need not be kept. NaN wins: an element that nobody wrote must show.
 *
 * With indices=1 a second output says where in its plane of the whole input each maximum lay, as
 * max_unpool reads it and PyTorch returns it; it carries no gradient.
 */
#include "ops/common/lines.h"
#include "ops/common/window.h"

#include <inttypes.h>
#include <math.h>

enum {
    BYTE_TAPS = 256
}; /* so many taps can be told apart by a byte */

static int64_t taps_of(const meg_node *v)
{
    const meg_pool_attr *a = v->attr;
    return a->win[0].taps * a->win[1].taps * a->win[2].taps;
}

static int tap_number(const meg_window win[MEG_SPACE], const int64_t t[MEG_AXES])
{
    return (int)((t[MEG_D] * win[1].taps + t[MEG_H]) * win[2].taps + t[MEG_W]);
}

typedef struct winner { /* of the outputs of one line */
    real value[MEG_LINE];
    int tap[MEG_LINE];
} winner;

static void forward_line(const meg_call *c, const meg_box *line, winner *best)
{
    const meg_pool_attr *a = c->node->attr;
    const meg_array *x = &c->t[MEG_X];
    int64_t step = a->win[MEG_W - MEG_D].stride;
    meg_slide at = {.win = a->win,
                    .taps = meg_windows_taps(a->win),
                    .out = *line,
                    .in = c->graph->value[c->node->in[0]].shape};
    for (int i = 0; i < MEG_LINE; i++)
        best->value[i] = -INFINITY, best->tap[i] = -1;
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t q[] = {line->lo[MEG_N], line->lo[MEG_C], at.q[MEG_D], at.q[MEG_H], at.q[MEG_W]};
        const real *pixel = meg_real_at(x, q);
        int64_t first = at.hit.lo[MEG_W] - line->lo[MEG_W];
        int tap = tap_number(a->win, at.t);
        for (int64_t i = 0; i < meg_extent(&at.hit, MEG_W); i++) {
            real r = pixel[i * step];
            bool wins = best->tap[first + i] < 0 || r > best->value[first + i] || isnan(r);
            if (wins) best->value[first + i] = r, best->tap[first + i] = tap;
        }
    }
}

static void store_taps(const meg_call *c, const meg_box *line, const int tap[])
{
    const meg_array *aux = &c->t[MEG_AUX];
    if (!aux->data) return; /* nobody will ask for a gradient */
    int64_t at = meg_box_at(&aux->box, line->lo), count = meg_extent(line, MEG_W);
    if (taps_of(c->node) <= BYTE_TAPS)
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)aux->data)[at + i] = (uint8_t)tap[i];
    else
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)aux->data)[at + i] = tap[i];
}

/* Where in the plane (d, h, w) of the whole input the winners of a line lie. */
static void store_indices(const meg_call *c, const meg_box *line, const int tap[])
{
    const meg_pool_attr *a = c->node->attr;
    const meg_array *index = &c->t[MEG_Y + 1];
    const meg_box *x = &c->graph->value[c->node->in[0]].shape;
    if (!index->data) return;
    int32_t *to = (int32_t *)index->data + meg_box_at(&index->box, line->lo);
    for (int64_t i = 0; i < meg_extent(line, MEG_W); i++) {
        int64_t left = tap[i], at = 0, step = 1;
        for (int k = MEG_SPACE - 1; k >= 0; k--) {
            const meg_window *win = &a->win[k];
            int64_t p = line->lo[MEG_D + k] + (MEG_D + k == MEG_W ? i : 0);
            at += step * (p * win->stride - win->before + left % win->taps * win->dilation);
            step *= x->hi[MEG_D + k];
            left /= win->taps;
        }
        to[i] = (int32_t)at;
    }
}

static void forward(const meg_call *c)
{
    meg_box lines = meg_lines(&c->work.out);
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        winner best;
        meg_box line = meg_line(&c->work.out, p);
        forward_line(c, &line, &best);
        memcpy(meg_real_at(&c->t[MEG_Y], line.lo), best.value,
               (size_t)meg_extent(&line, MEG_W) * sizeof(real));
        store_taps(c, &line, best.tap);
        store_indices(c, &line, best.tap);
    }
}

/* One line of pixels: the outputs that each of them has won. */
static void backward_line(const meg_call *c, const meg_box *line, double *sum)
{
    const meg_pool_attr *a = c->node->attr;
    const meg_array *dy = &c->t[MEG_DY], *aux = &c->t[MEG_AUX];
    const meg_box *out = &c->work.out;
    meg_box taps = meg_windows_taps(a->win);
    bool bytes = meg_box_size(&taps) <= BYTE_TAPS;
    int64_t n = line->lo[MEG_N], ch = line->lo[MEG_C], step = a->win[MEG_W - MEG_D].stride;
    if (n < out->lo[MEG_N] || n >= out->hi[MEG_N]) return;
    if (ch < out->lo[MEG_C] || ch >= out->hi[MEG_C]) return;
    meg_slide at = {.win = a->win,
                    .taps = taps,
                    .out = *out,
                    .in = meg_box_meet(*line, c->graph->value[c->node->in[0]].shape)};
    for (bool on = meg_slide_first(&at); on; on = meg_slide_next(&at)) {
        int64_t p[] = {n, ch, at.hit.lo[MEG_D], at.hit.lo[MEG_H], at.hit.lo[MEG_W]};
        const real *from = meg_real_at(dy, p);
        int64_t won = meg_box_at(&aux->box, p);
        double *to = sum + (at.q[MEG_W] - line->lo[MEG_W]);
        int tap = tap_number(a->win, at.t);
        for (int64_t i = 0; i < meg_extent(&at.hit, MEG_W); i++) {
            int winning = bytes ? ((const uint8_t *)aux->data)[won + i]
                                : ((const int32_t *)aux->data)[won + i];
            if (winning == tap) to[i * step] += (double)from[i];
        }
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

MEG_KERNELS(maxpool) = {
    .run = {[MEG_FORWARD] = forward, [MEG_EVAL] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {
    {"kernel", MEG_PARAM_AXES, offsetof(meg_pool_attr, kernel), NULL, "taps per axis: 3, 3x5", NULL,
     1, 1 << 16},
    {"stride", MEG_PARAM_AXES, offsetof(meg_pool_attr, stride), "",
     "pixels between outputs; the kernel if not given", NULL, 1, 1 << 16},
    {"dilation", MEG_PARAM_AXES, offsetof(meg_pool_attr, dilation), "1", "pixels between taps",
     NULL, 1, 1 << 16},
    {"pad", MEG_PARAM_PADS, offsetof(meg_pool_attr, pad), "0",
     "pixels around the input that never win: 1, 1x2, 0:1x0:1 (before:after)", NULL, 0, 1 << 16},
    {"ceil", MEG_PARAM_BOOL, offsetof(meg_pool_attr, ceil), "0",
     "a last window may overhang the input", NULL, 0, 0},
    {"indices", MEG_PARAM_BOOL, offsetof(meg_pool_attr, indices), "0",
     "a second output says where each maximum was", NULL, 0, 0},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_pool_attr *a = v->attr;
    const meg_box *x = &g->value[v->in[0]].shape;
    MEG_TRY(e, meg_pool_infer(g, v, e, out));
    if (!a->indices) return MEG_OK;
    int64_t plane = meg_extent(x, MEG_D) * meg_extent(x, MEG_H) * meg_extent(x, MEG_W);
    MEG_CHECK(e, plane <= INT32_MAX, MEG_EARG,
              "%s: a plane of %" PRId64 " pixels, but indices count to %d: use indices=0", v->name,
              plane, INT32_MAX);
    v->outputs = 2;
    out[1] = out[0];
    out[1].dtype = MEG_I32;
    return MEG_OK;
}

static meg_mask skips(const meg_node *v, meg_pass p)
{
    (void)p;
    return v->outputs == 2 ? 0 : MEG_BIT(MEG_Y + 1);
}

static void aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type)
{
    (void)g, (void)i;
    *box = w->out;
    *type = taps_of(v) <= BYTE_TAPS ? MEG_U8 : MEG_I32;
}

static const meg_sample samples[] = {{"2x3x8x8", "kernel=2"},
                                     {"1x5x9x7", "kernel=3 stride=2 pad=1"},
                                     {"2x4x7x9", "kernel=3x2 stride=1 pad=1x0"},
                                     {"1x3x11x10", "kernel=2 stride=3"},
                                     {"1x2x11x11", "kernel=3 stride=2 dilation=2 pad=1"},
                                     {"1x3x6x7", "kernel=3 stride=2 ceil=1"},
                                     {"1x3x2x2", "kernel=3 stride=2 ceil=1"},
                                     {"1x3x6x8", "kernel=2 stride=2 pad=1:0x0:1 ceil=1"},
                                     {"1x1x7x7", "kernel=7"},
                                     {"3x3x13", "kernel=4 stride=3 pad=1"},
                                     {"1x2x5x6x5", "kernel=3x2x2 stride=2x1x2 pad=1x0x1"},
                                     {"1x1x19x20", "kernel=17 stride=2"},
                                     {"1x2x1x150", "kernel=1x3 stride=1 pad=0x1"},
                                     {"2x16x9x9", "kernel=3 stride=2 pad=1"},
                                     {"1x32x8x8", "kernel=2"},
                                     {"1x3x9x7", "kernel=3 stride=2 pad=1 indices=1"},
                                     {"2x2x11", "kernel=2 dilation=3 indices=1"},
                                     {"1x2x5x6x5", "kernel=2x3x2 pad=1:0x1x0:1 indices=1"},
                                     {"2x17x8x6", "kernel=2 indices=1"},
                                     {"1x1x19x20", "kernel=17 stride=2 indices=1"},
                                     {0}};

const meg_op meg_op_maxpool = {
    .name = "maxpool",
    .onnx = "MaxPool",
    .doc = "maximum over a sliding window",
    .params = params,
    .attr_bytes = sizeof(meg_pool_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_pool_need,
    .flops = meg_pool_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X),
              [MEG_EVAL] = MEG_BIT(MEG_X),
              [MEG_BACKWARD] = MEG_BIT(MEG_AUX) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_Y + 1) | MEG_BIT(MEG_AUX),
               [MEG_EVAL] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_Y + 1),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .skips = skips,
    .auxes = 1,
    .aux = aux,
    .cheap = true,
    MEG_KERNELS_OF(maxpool),
    .samples = samples,
};

#endif
