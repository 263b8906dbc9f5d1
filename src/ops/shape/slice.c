/* Slice: every step-th index from begin to end, along the axes that are named.
 *
 *     slice axes=1 begin=4 end=8            channels 4 to 7
 *     slice axes=2x3 begin=1x0 end=-1x7     h without its halo, w 0 to 6
 *     slice end=5                           the first five of the last axis
 *
 * As in Python, negative numbers count from the end and too large ones mean the end. A split is
 * several slices (meg_graph_split).
 */
#include "ops/common/axes.h"
#include "ops/common/picks.h"

#include <inttypes.h>

static void forward(const meg_call *c)
{
    meg_picks_walk(c, &((const meg_slice_attr *)c->node->attr)->picks, false);
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    meg_picks_walk(c, &((const meg_slice_attr *)c->node->attr)->picks, true);
}

MEG_KERNELS(slice) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(meg_slice_attr, field)

static const meg_param params[] = {
    {"axes", MEG_PARAM_AXES, AT(axes), "", "which: 1 is the channels; none named: the last ones",
     NULL, -MEG_AXES, MEG_AXES - 1},
    {"begin", MEG_PARAM_AXES, AT(begin), "0", "first index, of all axes or of each", NULL, -0x1p62,
     0x1p62},
    {"end", MEG_PARAM_AXES, AT(end), "", "index behind the last; none: the end of the axis", NULL,
     -0x1p62, 0x1p62},
    {"step", MEG_PARAM_AXES, AT(step), "1", "from index to index", NULL, 1, 0x1p62},
    {0}};

/* Entry i of a list with one for all or one for each; `none` if it is empty. */
static int64_t entry(const meg_axes *list, int i, int64_t none)
{
    return list->count == 0 ? none : list->at[list->count == 1 ? 0 : i];
}

static int64_t clamped(int64_t index, int64_t length)
{
    if (index < 0) index += length;
    return index < 0 ? 0 : index > length ? length : index;
}

static meg_status check_lists(const meg_node *v, meg_error *e, int rank, int *count)
{
    const meg_slice_attr *a = v->attr;
    const meg_axes *list[] = {&a->begin, &a->end, &a->step};
    int most = a->axes.count;
    for (int i = 0; i < 3 && a->axes.count == 0; i++)
        most = list[i]->count > most ? list[i]->count : most;
    for (int i = 0; i < 3; i++)
        MEG_CHECK(e, list[i]->count <= 1 || list[i]->count == most, MEG_EARG,
                  "%s: a list of %d numbers for %d axes: slice wants one for all axes or one for "
                  "each",
                  v->name, list[i]->count, most);
    MEG_CHECK(e, most < rank, MEG_EARG,
              "%s: %d axes are sliced, but the input has only %d besides the batch", v->name, most,
              rank - 1);
    *count = most;
    return MEG_OK;
}

/* Slices axis `axis` of `out` by the i-th entries. */
static meg_status resolve(const meg_node *v, meg_error *e, int i, int axis, meg_value *out)
{
    meg_slice_attr *a = v->attr;
    meg_pick *k = &a->picks.at[meg_axis_slot(out->rank, axis)];
    int64_t length = out->dims[axis], begin = clamped(entry(&a->begin, i, 0), length);
    int64_t end = clamped(entry(&a->end, i, length), length), step = entry(&a->step, i, 1);
    MEG_CHECK(e, begin < end, MEG_EARG,
              "%s: axis %d from %" PRId64 " to %" PRId64
              " is empty: it has the indices 0 to %" PRId64,
              v->name, axis, begin, end, length - 1);
    *k = (meg_pick){.begin = begin, .step = step, .length = length};
    out->dims[axis] = (end - begin - 1) / step + 1;
    return MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_slice_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int count = 0, axis = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_TRY(e, check_lists(v, e, x->rank, &count));
    meg_picks_same(&a->picks, &x->shape);
    meg_shape_dims(out, x->rank, x->dims);
    for (int i = 0; i < count; i++) {
        MEG_TRY(e, meg_want_axis(g, v, e, entry(&a->axes, i, x->rank - count + i), &axis));
        MEG_CHECK(e, out->dims[axis] == x->dims[axis], MEG_EARG, "%s: axis %d is named twice",
                  v->name, axis);
        MEG_TRY(e, resolve(v, e, i, axis, out));
    }
    meg_shape_dims(out, out->rank, out->dims);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)input;
    return meg_picks_need(&((const meg_slice_attr *)v->attr)->picks, &w->out);
}

static const meg_sample samples[] = {{"3x11", "begin=2 end=9 step=3"},
                                     {"2x5x13", "end=7"},
                                     {"2x7x9", "axes=1 begin=3"},
                                     {"2x9x5x7", "axes=1x3 begin=1x-5 end=8x-1"},
                                     {"2x32x5x3", "axes=1 begin=16 end=32"},
                                     {"1x48x4x3", "axes=-3 begin=3 end=20"},
                                     {"2x3x7x5", "axes=2 step=2"},
                                     {"1x3x5x6x7", "begin=1x0x2 end=4x100x7 step=1x2x3"},
                                     {0}};

const meg_op meg_op_slice = {
    .name = "slice",
    .selects = true,
    .onnx = "Slice",
    .doc = "part of a value: begin to end, by steps, along some axes",
    .params = params,
    .attr_bytes = sizeof(meg_slice_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    MEG_KERNELS_OF(slice),
    .samples = samples,
};

#endif
