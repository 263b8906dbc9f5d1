/* Roll: each index moves on by a shift along the named axes, and what leaves at the end comes in again at
 * the front (torch.roll). The batch cannot be rolled.
 *
 *     roll axes=2x3 shift=-3x1       h by 3 to the front, w by 1 to the back
 *
 * The shifted windows of Swin transformers are such (Liu et al., Swin transformer, ICCV 2021). Of a work that
 * has both ends of an axis, all of that axis is needed.
 */
#include "ops/common/axes.h"
#include "ops/common/picks.h"

typedef struct roll_attr {
    meg_axes axes, shift;
    meg_picks picks; /* resolved */
} roll_attr;

static void forward(const meg_call *c)
{
    meg_picks_walk(c, &((const roll_attr *)c->node->attr)->picks, false);
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    meg_picks_walk(c, &((const roll_attr *)c->node->attr)->picks, true);
}

MEG_KERNELS(roll) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"axes", MEG_PARAM_AXES, offsetof(roll_attr, axes), NULL,
                                    "which: 1 is the channels", NULL, -MEG_AXES, MEG_AXES - 1},
                                   {"shift", MEG_PARAM_AXES, offsetof(roll_attr, shift), NULL,
                                    "of each axis, to the back; negative: to the front", NULL,
                                    -0x1p40, 0x1p40},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    roll_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int axis = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_CHECK(e, a->axes.count == a->shift.count && a->axes.count > 0, MEG_EARG,
              "%s: %d axes, but %d shifts: roll wants one for each axis that it names", v->name,
              a->axes.count, a->shift.count);
    meg_picks_same(&a->picks, &x->shape);
    for (int i = 0; i < a->axes.count; i++) {
        MEG_TRY(e, meg_want_axis(g, v, e, a->axes.at[i], &axis));
        meg_pick *k = &a->picks.at[meg_axis_slot(x->rank, axis)];
        k->begin = (k->begin - a->shift.at[i]) % k->length; /* an axis may be named again */
        k->beyond = MEG_BEYOND_WRAP;
    }
    meg_shape_dims(out, x->rank, x->dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)input;
    return meg_picks_need(&((const roll_attr *)v->attr)->picks, &w->out);
}

static const meg_sample samples[] = {{"3x7", "axes=1 shift=2"},
                                     {"2x5x9", "axes=2 shift=-4"},
                                     {"2x3x5x7", "axes=2x3 shift=-3x1"},
                                     {"1x16x4x4", "axes=1x3 shift=17x-9"},
                                     {"1x2x3x4x5", "axes=2x-1x3 shift=1x2x0"},
                                     {0}};

const meg_op meg_op_roll = {
    .name = "roll",
    .doc = "indices move on along some axes; what leaves at one end comes in at the other",
    .params = params,
    .attr_bytes = sizeof(roll_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    MEG_KERNELS_OF(roll),
    .samples = samples,
};

#endif
