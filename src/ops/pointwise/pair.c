/* Operators of two inputs that work point by point: see pair.h. */
#include "ops/pointwise/pair.h"

meg_status meg_pair_fits(const meg_graph *g, const meg_node *v, meg_error *e, int i)
{
    const meg_value *a = &g->value[v->in[0]], *b = &g->value[v->in[i]];
    char first[96], second[96];
    bool fits = true;
    meg_shape_text(a, first);
    meg_shape_text(b, second);
    for (int x = 0; x < MEG_AXES; x++)
        fits = fits && (b->shape.hi[x] == a->shape.hi[x] || b->shape.hi[x] == 1);
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_want_real(g, v, e, i));
    MEG_CHECK(e, fits, MEG_EARG,
              "%s: '%s' is %s, but '%s' is %s: along each axis %s wants the first's extent, or 1",
              v->name, a->name, first, b->name, second, v->op->name);
    return MEG_OK;
}

meg_status meg_pair_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_CHECK(e, v->inputs == 2, MEG_EARG, "%s: %s has %d inputs, but takes 2", v->name,
              v->op->name, v->inputs);
    MEG_TRY(e, meg_pair_fits(g, v, e, 1));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

meg_box meg_pair_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = w->out;
    for (int a = 0; a < MEG_AXES; a++)
        if (g->value[v->in[input]].shape.hi[a] == 1 && !meg_box_empty(&in))
            in.lo[a] = 0, in.hi[a] = 1;
    return in;
}

double meg_pair_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 3 : 1) * (double)meg_box_size(&w->out);
}
