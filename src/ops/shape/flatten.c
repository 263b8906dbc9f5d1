/* Flatten: (n,c,d,h,w) becomes (n, c*d*h*w), in row-major order. An interval of the output is no
 * box of the input; `need` asks for the smallest box around it.
 */
#include "ops/common/lines.h"
#include "ops/common/shape.h"

/* Row-major: where the pixel lies among the channels of the output. */
static int64_t flat(const meg_box *x, const int64_t p[MEG_AXES])
{
    int64_t i = 0;
    for (int a = MEG_C; a < MEG_AXES; a++)
        i = i * x->hi[a] + p[a];
    return i;
}

/* Copies what tensor x (or dx) and the work's outputs share, to y or, `back`, from dy. */
static void copy_lines(const meg_call *c, const meg_array *x, const meg_array *y, bool back)
{
    const meg_box *shape = &c->graph->value[c->node->in[0]].shape, *out = &c->work.out;
    meg_box starts = *shape;
    starts.lo[MEG_N] = out->lo[MEG_N], starts.hi[MEG_N] = out->hi[MEG_N];
    starts = meg_box_meet(starts, x->box);
    int64_t width = meg_extent(&starts, MEG_W), p[MEG_AXES];
    if (meg_box_empty(&starts)) return;
    starts.hi[MEG_W] = starts.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&starts, p); on; on = meg_box_next(&starts, p)) {
        int64_t first = flat(shape, p), lo = first, hi = first + width;
        if (lo < out->lo[MEG_C]) lo = out->lo[MEG_C];
        if (hi > out->hi[MEG_C]) hi = out->hi[MEG_C];
        if (lo >= hi) continue;
        real *pixel = meg_real_at(x, p) + (lo - first), *channel = meg_channel_at(y, p[MEG_N], lo);
        memcpy(back ? pixel : channel, back ? channel : pixel, (size_t)(hi - lo) * sizeof(real));
    }
}

static void forward(const meg_call *c)
{
    copy_lines(c, &c->t[MEG_X], &c->t[MEG_Y], false);
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    copy_lines(c, &c->t[MEG_DX], &c->t[MEG_DY], true);
}

MEG_KERNELS(flatten) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, x->rank >= 2, MEG_EARG,
              "%s: flatten wants an input of samples and channels (rank 2 to 5), but '%s' has rank "
              "%d",
              v->name, x->name, x->rank);
    int64_t samples = x->shape.hi[MEG_N];
    meg_shape_rows(&out[0], samples, meg_box_size(&x->shape) / samples);
    return MEG_OK;
}

/* Two pixels differ in a first axis; around all between them lies a box that is whole in the axes
 * behind it. */
static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_box *x = &g->value[v->in[input]].shape;
    meg_box in = w->out;
    int64_t first = w->out.lo[MEG_C], last = w->out.hi[MEG_C] - 1;
    for (int a = MEG_W; a >= MEG_C; a--) {
        in.lo[a] = first % x->hi[a], in.hi[a] = last % x->hi[a] + 1;
        first /= x->hi[a], last /= x->hi[a];
        if (first != last) in.lo[a] = 0, in.hi[a] = x->hi[a];
    }
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)w, (void)p;
    return 0;
}

static const meg_sample samples[] = {{"2x3x4x5", ""},  {"3x4x7", ""},    {"1x2x3x4x5", ""},
                                     {"4x9", ""},      {"2x16x3x3", ""}, {"2x1x5x3", ""},
                                     {"1x32x2x2", ""}, {"2x17x1x1", ""}, {0}};

const meg_op meg_op_flatten = {
    .name = "flatten",
    .flattens = true,
    .onnx = "Flatten",
    .doc = "channels and space in one axis, row-major",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(flatten),
    .samples = samples,
};

#endif
