/* Operators of one input that work point by point: see point.h. */
#include "ops/point.h"

meg_status meg_point_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}
