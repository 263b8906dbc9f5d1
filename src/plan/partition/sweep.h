/* A sweep: what a stage of the pieces a .. b-1 is, as its first piece a moves down.
 *
 * What the stage receives is kept up to date: what a reads from before comes in, what a makes itself
 * no longer does. So a sweep over all stages that end at b takes as many steps as there are flows.
 */
#ifndef MEG_PLAN_PARTITION_SWEEP_H
#define MEG_PLAN_PARTITION_SWEEP_H

#include "plan/partition/footprint.h"

typedef struct meg_sweep {
    const meg_cut *c;
    bool weighs;                 /* is the footprint asked for? */
    int end;                     /* b */
    int64_t received;            /* bytes of messages */
    meg_footprint now;           /* of the stage */
    meg_frame frame;             /* of its frame; midst and peak: of the pieces but the first */
    int64_t inner;               /* what is temporary while these run */
    int *read_first, *read;      /* flows to a piece: read[read_first[i] ..], and .. */
    int *read_value;             /* .. the numbers of their values */
    int *make_first, *make;      /* values that it makes, by number */
    int *value_first;            /* (values + 1) their flows: the cut's are sorted by value */
    int64_t *bytes;              /* (values) of the message */
    int64_t *arrived, *returned; /* (values) what they add to the frame, while .. */
    int *inside; /* (values) .. this is the sweep that counts them among the received */
    int sweep;
} meg_sweep;

/* The cut is sound, its flows are sorted by value. Footprints are there where memory is the measure, or
 * has a limit. */
meg_sweep meg_sweep_new(meg_pool *pool, const meg_cut *c);
void meg_sweep_begin(meg_sweep *x, int end);

/* Piece a joins the stage, below those that are in it. */
void meg_sweep_add(meg_sweep *x, int a);

#endif
