/* What the descriptors of conv and conv_transpose share: see convolution.h. */
#include "ops/window/convolution.h"
#include "ops/common/shape.h"

#include <math.h>

meg_conv_shape meg_conv_shape_of(const meg_graph *g, const meg_node *v)
{
    const meg_conv_attr *a = v->attr;
    const meg_box *x = &g->value[v->in[0]].shape;
    return (meg_conv_shape){a->win, a->filters / a->groups, x->hi[MEG_C] / a->groups, *x};
}

int meg_conv_weights(const meg_graph *g, const meg_node *v, const meg_box *weight, double fan_in,
                     meg_weight_spec out[MEG_INPUTS])
{
    const meg_conv_attr *a = v->attr;
    int rank = g->value[v->in[0]].rank;
    out[0] = (meg_weight_spec){"weight", MEG_PARAMETER, *weight, rank, {0}, MEG_NORMAL, 0};
    out[0].bound = sqrt(2 / fan_in);
    for (int i = 0; i < rank; i++)
        out[0].dims[i] = weight->hi[i < 2 ? i : MEG_AXES - rank + i];
    out[1] = (meg_weight_spec){.suffix = "bias",
                               .kind = MEG_PARAMETER,
                               .rank = 1,
                               .dims = {a->filters},
                               .start = MEG_ZEROS,
                               .shape = meg_box_of(1, a->filters, 1, 1, 1)};
    return a->bias ? 2 : 1;
}

meg_status meg_conv_check(const meg_graph *g, const meg_node *v, meg_error *e)
{
    const meg_conv_attr *a = v->attr;
    long long channels = g->value[v->in[0]].shape.hi[MEG_C];
    long long groups = a->groups, filters = a->filters;
    MEG_CHECK(e, channels % groups == 0, MEG_EARG,
              "%s: groups=%lld does not divide the %lld channels of the input: use a divisor of "
              "%lld",
              v->name, groups, channels, channels);
    MEG_CHECK(e, filters % groups == 0, MEG_EARG,
              "%s: groups=%lld does not divide filters=%lld: use a multiple of %lld filters",
              v->name, groups, filters, groups);
    return meg_want_weights(g, v, e);
}

meg_box meg_conv_sum(const meg_graph *g, const meg_node *v)
{
    meg_conv_shape s = meg_conv_shape_of(g, v);
    meg_box all = meg_windows_taps(s.win);
    all.hi[MEG_C] = s.channels;
    return all;
}

meg_box meg_conv_need_bias(const meg_work *w)
{
    if (!meg_first_part(w)) return meg_box_of(0, 0, 0, 0, 0);
    meg_box in = meg_box_of(1, w->out.hi[MEG_C], 1, 1, 1);
    in.lo[MEG_C] = w->out.lo[MEG_C];
    return in;
}

/* A cut inside a group would make ranks read channels of groups that are not theirs. */
int64_t meg_conv_grain(const meg_graph *g, const meg_node *v, int axis)
{
    const meg_conv_attr *a = v->attr;
    (void)g;
    return axis == MEG_C && a->groups > 1 ? a->filters / a->groups : 1;
}
