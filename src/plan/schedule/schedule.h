/* Pipeline schedules: named rows of one list scheduler (draw.c), which says for each rank in which
 * order it runs its tasks. The rows, with picture and paper, are in schedules.def.
 *
 * Plans draw them with unit costs, so that the picture does not depend on the model. Tests also draw
 * rows with given costs and run them on a virtual clock (tests/replay.h).
 *
 * Micro-batches and directions. Rows of two directions send some micro-batches through an inverted
 * replica, whose stage s sits on rank R-1-s:
 *     mast, master   the micro-batches are cut into eta consecutive groups (replications) of equal
 *                    size, or one apart; odd groups are inverted
 *     chimera        of each S consecutive micro-batches the second half (the smaller one, in a
 *                    last unit of odd size) is inverted
 */
#ifndef MEG_PLAN_SCHEDULE_SCHEDULE_H
#define MEG_PLAN_SCHEDULE_SCHEDULE_H

#include "plan/schedule/timetable.h"

typedef struct meg_pipe { /* what is to be scheduled */
    int stages;           /* in all; interleaved: several per rank (chunks) */
    int ranks;
    int micro;               /* micro-batches of all directions */
    int directions;          /* 1 or 2, or 0: as the schedule has it */
    const int *seat, *width; /* (directions, stages) the first of each stage's ranks, and how many;
                                NULL: stage s is rank s % ranks alone, inverted R-1-s */
    int replications;        /* eta of master; 0: one per micro-batch */
    const double *f, *b, *w; /* (stages) true costs, in any unit; NULL: the row's units. B: b + w */
} meg_pipe;

typedef struct meg_draft meg_draft;

typedef struct meg_row {
    const char *name, *doc, *paper;
    int directions;
    bool split; /* weight gradients apart */
    bool
        strict; /* a rank runs its tasks in `order`, whatever is ready; else forwards, backwards and
                    weight gradients wait in a queue each, and the first that is ready starts */
    bool full;  /* a backward starts only when its lane's forwards have reached their cap, or none
                    is left: the strict alternation of the papers */
    bool lanes; /* directions have queues and caps of their own */
    bool pace;  /* a direction takes in a micro-batch no faster than one can be worked off */
    double unit[MEG_STEPS];           /* f, b, w of the picture */
    int (*groups)(const meg_pipe *p); /* of micro-batches; NULL: they are not grouped */
    int64_t (*order)(const meg_draft *d, int step, int s, int m); /* the smaller goes first */
    int (*cap)(const meg_draft *d, int s, int step); /* forwards ahead of `step`; NULL: no bound */
    meg_status (*check)(meg_error *e, const meg_pipe *p, const struct meg_row *row);
} meg_row;

struct meg_draft { /* a pipe with what its row makes of it */
    const meg_row *row;
    meg_pipe pipe;
    int chunks;                    /* stages per rank and direction */
    int *direction;                /* (micro) */
    int *group;                    /* (micro) */
    int *nth;                      /* (micro) its place among those of its direction */
    const double *cost[MEG_STEPS]; /* (stages) of F, of B or BI, of BW */
};

const meg_row *meg_row_at(int i); /* NULL past the end */

/* Fails with a message that lists the known ones. */
meg_status meg_row_find(meg_error *e, const char *name, const meg_row **out);

/* Refuses, with a message that says what would do, what the row cannot schedule. */
meg_status meg_row_check(meg_error *e, const meg_row *row, const meg_pipe *p);

/* The timetable of a row, in the pool. Checks first. */
meg_status meg_timetable_draw(meg_error *e, meg_pool *pool, const meg_row *row, const meg_pipe *p,
                              meg_timetable **out);

/* The list scheduler: fills first, task and makespan of a timetable whose other parts are there. */
meg_status meg_draft_draw(meg_error *e, meg_pool *pool, const meg_draft *d, meg_timetable *t);

#endif
