/* Convolution and dense layers: see cpu_layer.h. */
#include "device/cpu_layer.h"

const meg_cpu_role meg_cpu_roles[MEG_PASSES] = {
    [MEG_FORWARD] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_EVAL] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_REPLAY] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_BACKWARD] = {true, MEG_DX, MEG_DY, MEG_X + 1, -1},
    [MEG_WEIGHT] = {true, MEG_X, MEG_DY, MEG_DX + 1, MEG_DX + 2},
};

bool meg_cpu_covers(const meg_request *r)
{
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    const meg_value *in = &r->graph->value[r->node->in[0]];
    const meg_value *weight = &r->graph->value[r->node->in[1]];
    if (!role->known || in->dtype != MEG_F32 || meg_box_empty(&r->work.out)) return false;
    meg_work whole = meg_op_whole(r->graph, r->node);
    meg_box x = in->shape;
    x.lo[MEG_N] = whole.out.lo[MEG_N] = r->work.out.lo[MEG_N];
    x.hi[MEG_N] = whole.out.hi[MEG_N] = r->work.out.hi[MEG_N];
    return meg_box_equal(&r->work.out, &whole.out) && meg_box_equal(&r->work.sum, &whole.sum) &&
           meg_box_equal(&r->box[role->x], &x) && meg_box_equal(&r->box[role->y], &whole.out) &&
           meg_box_equal(&r->box[role->weight], &weight->shape);
}
