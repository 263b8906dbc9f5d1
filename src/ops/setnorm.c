/* Normalisation inside a sample: what the descriptors share; see setnorm.h. */
#include "ops/setnorm.h"
#include "ops/shape.h"
#include "ops/window.h"

int meg_setnorm_weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    static const meg_weight_spec spec[2] = {
        {.suffix = "weight", .kind = MEG_PARAMETER, .start = MEG_ONES},
        {.suffix = "bias", .kind = MEG_PARAMETER, .start = MEG_ZEROS}};
    const meg_setnorm_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    bool elements = a->axes == 1; /* infer, which says so for good, comes later */
    for (int i = 0; i < 2; i++) {
        out[i] = spec[i];
        out[i].shape = meg_box_of(1, x->shape.hi[MEG_C], 1, 1, 1);
        out[i].rank = 1;
        out[i].dims[0] = x->shape.hi[MEG_C];
        for (int k = 2; elements && k < x->rank; k++) {
            int axis = MEG_AXES - x->rank + k;
            out[i].dims[out[i].rank++] = out[i].shape.hi[axis] = x->shape.hi[axis];
        }
    }
    return a->affine ? 2 : 0;
}

meg_status meg_setnorm_infer(const meg_graph *g, const meg_node *v, meg_error *e, meg_value *out)
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_like(out, &g->value[v->in[0]]);
    return MEG_OK;
}

meg_box meg_setnorm_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_setnorm_attr *a = v->attr;
    meg_box in = w->out;
    (void)g;
    if (input == 0) return in;
    for (int i = 0; i < MEG_AXES; i++)
        if (i != MEG_C && !(i >= MEG_D && a->elements)) in.lo[i] = 0, in.hi[i] = 1;
    return in;
}

double meg_setnorm_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    static const double each[MEG_PASSES] = {
        [MEG_FORWARD] = 8, [MEG_EVAL] = 8, [MEG_REPLAY] = 4, [MEG_BACKWARD] = 14};
    (void)g, (void)v;
    return each[p] * (double)meg_box_size(&w->out);
}

/* Sets stay whole. */
int64_t meg_setnorm_grain(const meg_graph *g, const meg_node *v, int axis)
{
    const meg_setnorm_attr *a = v->attr;
    if (axis == MEG_C) return a->width < g->value[v->in[0]].shape.hi[MEG_C] ? a->width : 0;
    return axis == MEG_N || a->pixels ? 1 : 0;
}

void meg_setnorm_aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                     meg_dtype *type)
{
    const meg_setnorm_attr *a = v->attr;
    (void)g, (void)i;
    *box = w->out;
    *type = MEG_F32;
    box->lo[MEG_C] /= a->width;
    box->hi[MEG_C] = (box->hi[MEG_C] - 1) / a->width + 1;
    for (int k = MEG_D; !a->pixels && k < MEG_AXES; k++)
        box->lo[k] = 0, box->hi[k] = 1;
}
