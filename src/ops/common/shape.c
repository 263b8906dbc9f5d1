/* Shapes that operators without windows ask for and give: see shape.h. */
#include "ops/common/shape.h"

#include <inttypes.h>
#include <string.h>

void meg_shape_like(meg_value *out, const meg_value *x)
{
    out->rank = x->rank;
    out->shape = x->shape;
    memcpy(out->dims, x->dims, sizeof out->dims);
}

void meg_shape_one(meg_value *out)
{
    out->rank = 1;
    out->dims[0] = 1;
    out->shape = meg_box_of(1, 1, 1, 1, 1);
}

void meg_shape_rows(meg_value *out, int64_t n, int64_t c)
{
    out->rank = 2;
    out->dims[0] = n;
    out->dims[1] = c;
    out->shape = meg_box_of(n, c, 1, 1, 1);
}

void meg_shape_pixels(meg_value *out, const meg_value *x)
{
    meg_shape_like(out, x);
    out->shape.hi[MEG_C] = 1;
    if (out->rank > 1) out->dims[1] = 1;
}

void meg_shape_text(const meg_value *x, char text[96])
{
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < x->rank && used < 96; i++)
        used += snprintf(text + used, (size_t)(96 - used), "%s%" PRId64, i ? "x" : "", x->dims[i]);
}

meg_status meg_want_real(const meg_graph *g, const meg_node *v, meg_error *e, int i)
{
    const meg_value *x = &g->value[v->in[i]];
    MEG_CHECK(e, x->dtype == MEG_F32, MEG_EARG, "%s: input '%s' of %s is %s, but must be real",
              v->name, x->name, v->op->name, meg_dtype_name(x->dtype));
    return MEG_OK;
}

meg_status meg_want_shape(const meg_graph *g, const meg_node *v, meg_error *e, int i, meg_box want)
{
    const meg_value *x = &g->value[v->in[i]];
    char wanted[96], got[96];
    meg_box_text(&want, wanted);
    meg_box_text(&x->shape, got);
    MEG_TRY(e, meg_want_real(g, v, e, i));
    MEG_CHECK(e, meg_box_equal(&x->shape, &want), MEG_EARG,
              "%s: input '%s' of %s is %s (n c d h w), but must be %s", v->name, x->name,
              v->op->name, got, wanted);
    return MEG_OK;
}

meg_status meg_want_labels(const meg_graph *g, const meg_node *v, meg_error *e, int logits,
                           int labels)
{
    const meg_value *x = &g->value[v->in[logits]], *t = &g->value[v->in[labels]];
    meg_box want = x->shape;
    char wanted[96], got[96];
    want.hi[MEG_C] = 1;
    meg_box_text(&want, wanted);
    meg_box_text(&t->shape, got);
    MEG_TRY(e, meg_want_real(g, v, e, logits));
    MEG_CHECK(e, t->dtype == MEG_I32, MEG_EARG,
              "%s: labels '%s' are %s, but must be i32, the numbers of classes", v->name, t->name,
              meg_dtype_name(t->dtype));
    MEG_CHECK(e, meg_box_equal(&t->shape, &want), MEG_EARG,
              "%s: labels '%s' are %s (n c d h w), but for these logits must be %s", v->name,
              t->name, got, wanted);
    return MEG_OK;
}

meg_box meg_need_same(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v, (void)input;
    return w->out;
}
