/* Axes as files count them: see axes.h. */
#include "ops/common/axes.h"
#include "ops/common/shape.h"

#include <inttypes.h>
#include <string.h>

int meg_axis_slot(int rank, int axis)
{
    return axis < 2 ? axis : MEG_AXES - rank + axis;
}

void meg_shape_dims(meg_value *out, int rank, const int64_t dims[])
{
    out->rank = rank;
    out->shape = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 0; i < rank; i++) {
        out->dims[i] = dims[i];
        out->shape.hi[meg_axis_slot(rank, i)] = dims[i];
    }
}

meg_status meg_want_axes(const meg_graph *g, const meg_node *v, meg_error *e, int i, int least)
{
    const meg_value *x = &g->value[v->in[i]];
    meg_value usual = {0};
    MEG_TRY(e, meg_want_real(g, v, e, i));
    MEG_CHECK(e, x->rank >= least, MEG_EARG,
              "%s: %s wants %d axes or more, the first of them the batch, but '%s' has rank %d",
              v->name, v->op->name, least, x->name, x->rank);
    meg_shape_dims(&usual, x->rank, x->dims);
    MEG_CHECK(e, meg_box_equal(&usual.shape, &x->shape), MEG_EARG,
              "%s: the axes of '%s' are not those of its file, so %s cannot name them", v->name,
              x->name, v->op->name);
    return MEG_OK;
}

meg_status meg_want_axis(const meg_graph *g, const meg_node *v, meg_error *e, int64_t axis,
                         int *out)
{
    const meg_value *x = &g->value[v->in[0]];
    int64_t at = axis < 0 ? axis + x->rank : axis;
    MEG_CHECK(e, at != 0, MEG_EARG,
              "%s: axis 0 is the batch, which plans cut as they like: %s takes axes 1 to %d here",
              v->name, v->op->name, x->rank - 1);
    MEG_CHECK(e, at > 0 && at < x->rank, MEG_EARG,
              "%s: '%s' has no axis %" PRId64 ": %s takes axes 1 to %d here", v->name, x->name,
              axis, v->op->name, x->rank - 1);
    *out = (int)at;
    return MEG_OK;
}

double meg_no_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)w, (void)p;
    return 0;
}
