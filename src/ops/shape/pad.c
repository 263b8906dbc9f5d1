/* Pad: room around a value, filled with a constant, its mirror image, its edge or, as on a ring, its other
 * end. Negative padding crops.
 *
 *     pad pad=1                     all spatial axes by one (of a matrix: the channels)
 *     pad pad=0:2x-1:3              the last two axes: before:after
 *
 *     constant  0 0 a b c 0         reflect  c b a b c b          edge  a a a b c c
 *                                   wrap     b c a b c a
 */
#include "ops/common/axes.h"
#include "ops/common/picks.h"
#include "ops/common/shape.h"

#include <inttypes.h>

static void forward(const meg_call *c)
{
    const meg_pad_attr *a = c->node->attr;
    if (a->mode == MEG_BEYOND_CONSTANT) meg_fill_part(&c->t[MEG_Y], c->work.out, (real)a->value);
    meg_picks_walk(c, &a->picks, false);
}

static void backward(const meg_call *c)
{
    const meg_pad_attr *a = c->node->attr;
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    meg_picks_walk(c, &a->picks, true);
}

MEG_KERNELS(pad) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(meg_pad_attr, field)

static const meg_param params[] = {
    {"pad", MEG_PARAM_PADS, AT(pad), NULL,
     "of the last axes, before:after; one number: of all spatial ones; negative: crop", NULL,
     -0x1p40, 0x1p40},
    {"mode", MEG_PARAM_CHOICE, AT(mode), "constant", "what the room is filled with",
     "constant|reflect|edge|wrap", 0, 0},
    {"value", MEG_PARAM_REAL, AT(value), "0", "the constant", NULL, 0, 0},
    {0}};

/* Pads axis `axis` of `out` by the i-th entry. */
static meg_status resolve(const meg_node *v, meg_error *e, int i, int axis, meg_value *out)
{
    meg_pad_attr *a = v->attr;
    int entry = a->pad.count == 1 ? 0 : i;
    int64_t before = a->pad.before[entry], after = a->pad.after[entry], length = out->dims[axis];
    MEG_CHECK(e, axis > 0 || (before == 0 && after == 0), MEG_EARG,
              "%s: axis 0 is the batch, which cannot be padded", v->name);
    MEG_CHECK(e, -before < length && -after < length && length + before + after >= 1, MEG_EARG,
              "%s: pad %" PRId64 ":%" PRId64 " leaves nothing of axis %d, which has %" PRId64,
              v->name, before, after, axis, length);
    MEG_CHECK(e, a->mode != MEG_BEYOND_REFLECT || (before < length && after < length), MEG_EARG,
              "%s: pad %" PRId64 ":%" PRId64 " of axis %d, which has %" PRId64
              ": a mirror image has at most one less",
              v->name, before, after, axis, length);
    MEG_CHECK(e,
              a->mode != MEG_BEYOND_WRAP ||
                  (before >= 0 && after >= 0 && before <= length && after <= length),
              MEG_EARG,
              "%s: pad %" PRId64 ":%" PRId64 " of axis %d, which has %" PRId64
              ": mode=wrap goes around once, and does not crop (use roll, or slice)",
              v->name, before, after, axis, length);
    a->picks.at[meg_axis_slot(out->rank, axis)] = (meg_pick){
        .begin = -before, .step = 1, .length = length, .beyond = (meg_beyond)a->mode};
    out->dims[axis] = length + before + after;
    return MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_pad_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    int space = x->rank > 2 ? x->rank - 2 : 1, count = a->pad.count == 1 ? space : a->pad.count;
    MEG_CHECK(e, count <= x->rank, MEG_EARG, "%s: %d pads, but '%s' has rank %d", v->name, count,
              x->name, x->rank);
    meg_picks_same(&a->picks, &x->shape);
    meg_shape_like(out, x);
    for (int i = 0; i < count; i++)
        MEG_TRY(e, resolve(v, e, i, x->rank - count + i, out));
    meg_shape_dims(out, out->rank, out->dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)input;
    return meg_picks_need(&((const meg_pad_attr *)v->attr)->picks, &w->out);
}

static const meg_sample samples[] = {{"3x7", "pad=2:1 value=0.5"},
                                     {"2x5x9", "pad=3"},
                                     {"2x3x5x7", "pad=1x2:0 mode=reflect"},
                                     {"2x3x5x7", "pad=0:4x3:1 mode=edge"},
                                     {"2x16x5x5", "pad=-1:-2"},
                                     {"1x5x6x4", "pad=2:3x-1:2x0:-3 value=-1.5"},
                                     {"1x4x5x6", "pad=-2:3x4:-1 mode=reflect"},
                                     {"1x2x3x4x5", "pad=1:0x-1:1x2:2 mode=edge"},
                                     {"1x2x3x4x5", "pad=2x1x0:4 mode=reflect"},
                                     {"2x3x4", "pad=0x0x1:2"},
                                     {"2x3x5x7", "pad=2:1x0:7 mode=wrap"},
                                     {0}};

const meg_op meg_op_pad = {
    .name = "pad",
    .onnx = "Pad",
    .doc = "room around a value: a constant, its mirror image, edge or other end; negative: crop",
    .params = params,
    .attr_bytes = sizeof(meg_pad_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    MEG_KERNELS_OF(pad),
    .samples = samples,
};

#endif
