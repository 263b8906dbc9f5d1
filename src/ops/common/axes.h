/* Axes as files count them, for operators that name them (slice, pad, transpose, reshape, gather).
 *
 * Axis 0 is the batch: a plan cuts it into micro-batches and shards as it likes, so no operator may
 * change it. Axis 1 is c, the last ones are space: rank 3 is n c w, rank 4 n c h w.
 */
#ifndef MEG_OPS_COMMON_AXES_H
#define MEG_OPS_COMMON_AXES_H

#include "graph/op.h"

int meg_axis_slot(int rank, int axis); /* MEG_N ... of a file's axis */

/* Rank, dims and shape from a file's dims. */
void meg_shape_dims(meg_value *out, int rank, const int64_t dims[]);

/* Says what is wrong with input `i`, if it is not real, or has less than `least` axes, or has them
 * elsewhere than files would (a dense layer's weight behind space). */
meg_status meg_want_axes(const meg_graph *g, const meg_node *v, meg_error *e, int i, int least);

/* An axis other than the batch, counted from the end if negative. */
meg_status meg_want_axis(const meg_graph *g, const meg_node *v, meg_error *e, int64_t axis,
                         int *out);

/* Operators that only move numbers. */
double meg_no_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

/* Those of one input. */
#define MEG_MOVE_FIELDS                                                                            \
    .data_inputs = 1, .data_inputs_max = 1, .flops = meg_no_flops, .cheap = true,                  \
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},                   \
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)}

#endif
