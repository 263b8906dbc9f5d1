/* What the pieces of a network need, read off its program on one rank (private to plan/). */
#ifndef MEG_PLAN_PARTITION_PIECES_H
#define MEG_PLAN_PARTITION_PIECES_H

#include "plan/partition/partition.h"
#include "plan/program/plan.h"

/* Fills in what pieces hold, keep and need while they run, and replaces the cut's flows by those of the
 * lowered graph, in the whole's pool. of: (nodes of the source) the piece of each. See meg_trial. */
void meg_pieces_weigh(const meg_plan *even, const meg_plan *whole, const int of[],
                      meg_piece piece[], meg_cut *cut);

#endif
