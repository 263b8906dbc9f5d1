/* Shapes that operators without windows ask for and give: what their `infer` has in common. */
#ifndef MEG_OPS_COMMON_SHAPE_H
#define MEG_OPS_COMMON_SHAPE_H

#include "graph/op.h"

void meg_shape_like(meg_value *out, const meg_value *x);   /* rank, dims and shape of x */
void meg_shape_one(meg_value *out);                        /* one element */
void meg_shape_rows(meg_value *out, int64_t n, int64_t c); /* rank 2 */
void meg_shape_text(const meg_value *x, char text[96]);    /* "2x3x9x7" */

void meg_shape_pixels(meg_value *out, const meg_value *x); /* those of x, with one channel */

/* Each says what is wrong with input `i` of the node, if anything is. */
meg_status meg_want_real(const meg_graph *g, const meg_node *v, meg_error *e, int i);
meg_status meg_want_shape(const meg_graph *g, const meg_node *v, meg_error *e, int i, meg_box want);

/* Labels have the shape of the logits, but without channels. */
meg_status meg_want_labels(const meg_graph *g, const meg_node *v, meg_error *e, int logits,
                           int labels);

/* For operators that read each input where they write. */
meg_box meg_need_same(const meg_graph *g, const meg_node *v, int input, const meg_work *w);

#endif
