/* Concatenation of 2 to 8 values along their channels. What `need` asks of one input sticks out of
 * it where the others begin; the plan clips it.
 */
#include "ops/common/lines.h"
#include "ops/common/shape.h"

/* The first channel of input i in the output. */
static int64_t first_channel(const meg_graph *g, const meg_node *v, int i)
{
    int64_t c = 0;
    for (int k = 0; k < i; k++)
        c += g->value[v->in[k]].shape.hi[MEG_C];
    return c;
}

/* The outputs of the work that are copies of input i, in coordinates of the input. */
static meg_box part_of(const meg_call *c, int i)
{
    meg_box part = c->work.out;
    int64_t shift = first_channel(c->graph, c->node, i);
    part.lo[MEG_C] -= shift, part.hi[MEG_C] -= shift;
    return meg_box_meet(part, c->graph->value[c->node->in[i]].shape);
}

/* Copies the part of input i that the work has, from x to y or, `back`, from dy to dx. */
static void copy_part(const meg_call *c, int i, bool back)
{
    const meg_array *x = &c->t[(back ? MEG_DX : MEG_X) + i], *y = &c->t[back ? MEG_DY : MEG_Y];
    int64_t p[MEG_AXES], shift = first_channel(c->graph, c->node, i);
    meg_array moved = *y; /* y in coordinates of the input */
    moved.box.lo[MEG_C] -= shift, moved.box.hi[MEG_C] -= shift;
    meg_runs r = meg_runs_of(part_of(c, i), 2, (const meg_array *[]){x, &moved});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *own = meg_real_at(x, p), *all = meg_real_at(&moved, p);
        memcpy(back ? own : all, back ? all : own, (size_t)r.length * sizeof(real));
    }
}

static void forward(const meg_call *c)
{
    for (int i = 0; i < c->node->inputs; i++)
        copy_part(c, i, false);
}

static void backward(const meg_call *c)
{
    for (int i = 0; i < c->node->inputs; i++) {
        if (!c->t[MEG_DX + i].data) continue;
        meg_zero(&c->t[MEG_DX + i]);
        copy_part(c, i, true);
    }
}

MEG_KERNELS(concat) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

enum {
    ALL_X = 0xff << MEG_X,
    ALL_DX = 0xff << MEG_DX
};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]];
    for (int i = 0; i < v->inputs; i++) {
        const meg_value *other = &g->value[v->in[i]];
        meg_box same = other->shape;
        char first[96], text[96];
        meg_shape_text(x, first);
        meg_shape_text(other, text);
        same.hi[MEG_C] = x->shape.hi[MEG_C];
        MEG_TRY(e, meg_want_real(g, v, e, i));
        MEG_CHECK(e, x->rank >= 2 && x->rank == other->rank && meg_box_equal(&same, &x->shape),
                  MEG_EARG,
                  "%s: '%s' is %s, but '%s' is %s: concat wants two axes or more, all "
                  "equal but the second, the channels",
                  v->name, x->name, first, other->name, text);
    }
    meg_shape_like(&out[0], x);
    out[0].dims[1] = out[0].shape.hi[MEG_C] = first_channel(g, v, v->inputs);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = w->out;
    int64_t shift = first_channel(g, v, input);
    in.lo[MEG_C] -= shift, in.hi[MEG_C] -= shift;
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)w, (void)p;
    return 0;
}

static const meg_sample samples[] = {
    {"2x3x5x4 2x2x5x4", ""},
    {"1x16x5x5 1x16x5x5", ""},
    {"2x1x7 2x4x7 2x3x7", ""},
    {"3x5 3x6", ""},
    {"1x2x3x2x4 1x3x3x2x4", ""},
    {"1x32x3x3 1x8x3x3 1x16x3x3 1x5x3x3", ""},
    {"2x1x2x3 2x2x2x3 2x1x2x3 2x3x2x3 2x1x2x3 2x1x2x3 2x2x2x3 2x1x2x3", ""},
    {0}};

const meg_op meg_op_concat = {
    .name = "concat",
    .onnx = "Concat",
    .doc = "2 to 8 values side by side along the channels",
    .data_inputs = 2,
    .data_inputs_max = MEG_INPUTS,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = ALL_X, [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = ALL_DX},
    .cheap = true,
    MEG_KERNELS_OF(concat),
    .samples = samples,
};

#endif
