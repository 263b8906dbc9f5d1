/* Footprints: the memory of a stage, and of a rank with its stages.
 *
 *     bytes of a rank = sum over its stages      held + scratch of their sums
 *                     + sum over its stations    frames x frame     a station: a stage in a direction
 *                     + largest of its stations  temporary
 *
 * A frame is as large as its largest moment: at the end of forward, within the backward of a piece (those
 * behind it are done), at the end of backward. Where weight gradients are not apart, it is the first.
 *
 * A rank with one station and one frame places what is temporary among what is kept, which fits into
 * the gaps (plan/program/program.h): `peak` instead of frame + temporary.
 */
#ifndef MEG_PLAN_PARTITION_FOOTPRINT_H
#define MEG_PLAN_PARTITION_FOOTPRINT_H

#include "plan/partition/partition.h"

#include <stdbool.h>

typedef struct meg_footprint { /* of a stage, in bytes */
    int64_t held, summed;
    int64_t frame;     /* of one micro-batch */
    int64_t temporary; /* while it runs */
    int64_t peak;      /* of one micro-batch from forward to backward, with what is temporary */
} meg_footprint;

typedef struct meg_frame { /* what pieces add to a frame of their stage, in bytes */
    int64_t kept, late, stays, sent, returned; /* stays: stash and what has arrived */
    int64_t midst; /* the largest of the moments within backward, of .. */
    int64_t peak;  /* .. the same with what is temporary: without `stays` */
} meg_frame;

/* A piece in front of those that are in it; sides: where it has neighbours. */
void meg_frame_add(meg_frame *f, const meg_piece *p, int sides);
int64_t meg_frame_bytes(const meg_frame *f);
int64_t meg_frame_peak(const meg_frame *f);

/* Stage s, whose pieces need not be neighbours; the cut's flows are sorted by value. */
meg_footprint meg_footprint_of(const meg_cut *c, const int stage[], int s);

/* Of a rank that has this station and no other. */
int64_t meg_station_bytes(const meg_cut *c, int direction, int s, const meg_footprint *f);

/* Of a rank, as far as it has the first `stages` stages. */
int64_t meg_rank_bytes(const meg_cut *c, int rank, const meg_footprint of[], int stages);

/* The largest of the ranks that have stage s, likewise; their number is not 0. */
int64_t meg_stage_bytes(const meg_cut *c, int s, const meg_footprint of[], int stages);

/* The largest rank of a cut; fills the stages' footprints. The cut's flows are sorted by value. */
int64_t meg_cut_bytes(const meg_cut *c, const int stage[], meg_footprint of[]);
/* As if each stage had a rank of its own, and one direction. */
int64_t meg_plain_bytes(const meg_cut *c, const int stage[], meg_footprint of[]);

/* Has every rank one stage, and in one direction only? */
bool meg_cut_is_plain(const meg_cut *c);

#endif
