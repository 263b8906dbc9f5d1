/* Places: which ranks of a replica each stage sits on, in each direction (private to plan/).
 *
 * In the first direction stages follow one another, each with as many ranks as its largest mesh. The
 * inverted direction has the same ranks in reverse order (but the ranks of a stage in their own):
 *
 *     mesh=2x2,1,1,1,1      rank       0  1  2  3  4  5  6  7
 *                           forward    0  0  0  0  1  2  3  4
 *                           inverted   4  3  2  1  0  0  0  0
 *
 * Where a stage would so meet a part of itself (2x2,1: five ranks, three of them twice in stage 0),
 * it shares a seat with its opposite, and the seat has as many ranks as the larger of the two wants.
 *
 * Ranks that have the same stages run the same tasks: they are one track of the timetable.
 */
#ifndef MEG_PLAN_PARTITION_PLACEMENT_H
#define MEG_PLAN_PARTITION_PLACEMENT_H

#include "plan/program/plan.h"

/* Sets who sits where, and who this rank is; needs p->segment. */
meg_status meg_plan_places(meg_plan *p, meg_error *e);

/* Who this rank is: sets world.rank, replica and track. */
void meg_plan_seat(meg_plan *p, int rank);

/* (directions, stages) the first track of every stage and how many it has. */
void meg_plan_tracks(const meg_plan *p, int directions, int *seat, int *width);

/* The mesh of a segment over all replicas. */
const meg_mesh *meg_plan_mesh(const meg_plan *p, int direction, const meg_segment *s);

/* Does the rank sit on the stage in this direction? */
bool meg_plan_sits(const meg_plan *p, int direction, int stage, int rank);

#endif
