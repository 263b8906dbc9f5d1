/* Timetables: which rank runs which task of a pipeline, in which order. A step is the micro-batches
 * of one batch, each forward through all stages and back; a rank repeats its list step after step,
 * with no barrier between steps.
 *
 *     F   forward of one stage for one micro-batch
 *     B   backward: gradients of input and weights together
 *     BI  gradient of the input alone, BW that of the weights: where the schedule parts them
 *
 * Ranks of a mesh that have the same stages are one rank here. A stage may have several, one behind
 * the other, where the inverted replica has other stages there: all of them have its tasks in their
 * lists. Which schedule makes which timetable: schedule.h.
 */
#ifndef MEG_PLAN_SCHEDULE_TIMETABLE_H
#define MEG_PLAN_SCHEDULE_TIMETABLE_H

#include "base/pool.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum meg_task_kind {
    MEG_TASK_F,
    MEG_TASK_B,
    MEG_TASK_BI,
    MEG_TASK_BW
} meg_task_kind;

enum {
    MEG_STEPS = 3 /* of a micro-batch in a stage: F, B or BI, BW */
};

typedef struct meg_task {
    meg_task_kind kind;
    int stage, micro, direction;
    int frame;         /* whose activations it writes (F) or reads: 0 .. frames - 1 */
    double start, end; /* in the clock of the drawing */
} meg_task;

typedef struct meg_timetable {
    const char *schedule;
    int stages, ranks, micro, directions;
    bool split;     /* BI and BW instead of B */
    int *seat;      /* (directions, stages) the stage's first rank; see meg_timetable_seat */
    int *width;     /* (directions, stages) how many it has: they run its tasks at once */
    int *direction; /* (micro) 1: through the inverted replica */
    int *first;     /* (ranks + 1) where the rank's tasks begin in `task` */
    meg_task *task;
    int *frames; /* (directions, stages) micro-batches that the stage holds at most: a forward has
                    begun and the last of backward has not ended */
    int *frame;  /* (stages, micro) the frame of each; the lowest that is free */
    int *peak;   /* (ranks) frames in use at once, over all stages of the rank */
    double makespan, tick; /* of the drawing; tick: its smallest task */
} meg_timetable;

static inline int meg_timetable_seat(const meg_timetable *t, int direction, int stage)
{
    return t->seat[direction * t->stages + stage];
}

static inline int meg_timetable_width(const meg_timetable *t, int direction, int stage)
{
    return t->width[direction * t->stages + stage];
}

/* Does the rank run the stage's tasks? */
static inline bool meg_timetable_sits(const meg_timetable *t, int direction, int stage, int rank)
{
    int behind = rank - meg_timetable_seat(t, direction, stage);
    return behind >= 0 && behind < meg_timetable_width(t, direction, stage);
}

static inline int meg_timetable_frames(const meg_timetable *t, int direction, int stage)
{
    return t->frames[direction * t->stages + stage];
}

/* 0 for F, 1 for B and BI, 2 for BW. */
static inline int meg_task_step(meg_task_kind kind)
{
    return kind == MEG_TASK_F ? 0 : kind == MEG_TASK_BW ? 2 : 1;
}

/* Fills frames, frame and peak from the lists. */
void meg_timetable_assign_frames(meg_pool *pool, meg_timetable *t);

/* A picture: a line per rank, time from left to right, a column per tick; F0 is the forward of
 * micro-batch 0, B0 its backward, W0 its weight gradient if that is apart, F1^ goes through the
 * inverted replica, F0b belongs to the rank's second chunk. */
void meg_timetable_print(const meg_timetable *t, FILE *out);

#endif
