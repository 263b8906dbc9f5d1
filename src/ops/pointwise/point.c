/* Operators of one input that work point by point: see point.h. */
#include "ops/pointwise/point.h"

meg_status meg_point_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

double meg_squash_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 3 : 22) * (double)meg_box_size(&w->out); /* exp() is 20 */
}

const meg_sample meg_squash_samples[] = {
    {"5x7", NULL}, {"2x5x11", NULL}, {"3x16x5x7", NULL}, {"2x3x4x3x5", NULL}, {NULL, NULL}};
