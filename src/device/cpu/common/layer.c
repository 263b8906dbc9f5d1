/* Convolution and dense layers: see cpu_layer.h. */
#include "device/cpu/common/layer.h"
#include "ops/common/window.h"

const meg_cpu_role meg_cpu_roles[MEG_PASSES] = {
    [MEG_FORWARD] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_EVAL] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_REPLAY] = {true, MEG_X, MEG_Y, MEG_X + 1, MEG_X + 2},
    [MEG_BACKWARD] = {true, MEG_DX, MEG_DY, MEG_X + 1, -1},
    [MEG_WEIGHT] = {true, MEG_X, MEG_DY, MEG_DX + 1, MEG_DX + 2},
};

bool meg_cpu_quiet(const meg_request *r)
{
    return !meg_first_part(&r->work);
}

bool meg_cpu_biased(const meg_request *r, bool bias)
{
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    if (!bias || role->bias < 0 || meg_cpu_quiet(r)) return true;
    meg_box need = meg_op_need(r->graph, r->node, 2, &r->work);
    return meg_box_equal(&r->box[role->bias], &need);
}

/* One axis of space. */
static bool window_of(meg_window *w, const meg_box *x, const meg_box *y, int axis)
{
    int64_t lo = y->lo[axis] * w->stride - w->before;
    int64_t hi = (y->hi[axis] - 1) * w->stride - w->before + (w->taps - 1) * w->dilation + 1;
    w->before = x->lo[axis] - lo;
    w->after = hi > x->hi[axis] ? hi - x->hi[axis] : 0;
    return w->before >= 0 && x->hi[axis] - hi < w->stride;
}

static bool sums_all(const meg_request *r, const meg_conv_attr *a)
{
    meg_box whole = meg_op_whole(r->graph, r->node).sum;
    bool channels = r->work.sum.lo[MEG_C] == whole.lo[MEG_C] &&
                    r->work.sum.hi[MEG_C] == whole.hi[MEG_C];
    for (int i = MEG_D; i < MEG_AXES; i++)
        if (r->work.sum.lo[i] != whole.lo[i] || r->work.sum.hi[i] != whole.hi[i]) return false;
    return channels || a->groups == 1;
}

bool meg_cpu_windows(const meg_request *r, meg_window win[MEG_SPACE])
{
    const meg_conv_attr *a = r->node->attr;
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    const meg_value *in = &r->graph->value[r->node->in[0]];
    if (!role->known || in->dtype != MEG_F32 || meg_box_empty(&r->work.out)) return false;
    const meg_box *x = &r->box[role->x], *y = &r->box[role->y];
    meg_box need = meg_op_need(r->graph, r->node, 0, &r->work);
    meg_box weight = meg_op_need(r->graph, r->node, 1, &r->work);
    bool all = a->groups == 1 || meg_extent(y, MEG_C) == a->filters;
    for (int i = MEG_N; i <= MEG_C; i++)
        all = all && x->lo[i] == need.lo[i] && x->hi[i] == need.hi[i];
    if (!all || !sums_all(r, a) || !meg_cpu_biased(r, a->bias) || !meg_box_holds(x, &need) ||
        !meg_box_equal(y, &r->work.out) || !meg_box_equal(&r->box[role->weight], &weight))
        return false;
    for (int i = 0; i < MEG_SPACE; i++) {
        win[i] = a->win[i];
        if (!window_of(&win[i], x, y, MEG_D + i)) return false;
    }
    return true;
}
