/* Segments: nodes of a stage that are cut alike, over a mesh of the stage's ranks (private to plan/).
 *
 *     mesh=2x2               all stages: h in two, w in two
 *     mesh=h2w2,1,1          four ranks for the first stage, one for each of the others
 *     mesh=h2w2/fc:n4        from group fc on, the same four ranks cut the samples instead
 *     mesh=h3:1              h in two, of which the first is three times as large
 *
 * A mesh has letters n c d h w with numbers, or numbers alone, which mean w, h x w or d x h x w.
 */
#ifndef MEG_PLAN_PARTITION_SEGMENTS_H
#define MEG_PLAN_PARTITION_SEGMENTS_H

#include "plan/program/plan.h"

/* Sets p->segment and p->segment_of (nodes of the source graph); needs p->stage. */
meg_status meg_plan_segments(meg_plan *p, meg_error *e);

#endif
