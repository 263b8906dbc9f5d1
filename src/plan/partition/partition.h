/* Partitions: the pieces of a network (layers, blocks, modules), in topological order, cut into
 * stages of a pipeline. The cut is optimal by dynamic programming: the largest stage is as small as
 * it can be; among all cuts that reach this, the fewest bytes pass between stages; among those, the
 * stages are the most even (least sum of squares). Same input, same cut.
 *
 *     seconds   3 1 1 2 | 4 2 | 1 5        stages=3: 7 6 6
 *
 * By memory, where ranks have several stages (chunks, directions), the search is one over all cuts; it
 * is complete unless there are too many of them (shared.c).
 *
 * Values go straight from the stage that makes them to each stage that reads them, once; so a long
 * skip (U-Net) is a crossing from stage 0 to the last, not a relay through all.
 */
#ifndef MEG_PLAN_PARTITION_PARTITION_H
#define MEG_PLAN_PARTITION_PARTITION_H

#include "base/pool.h"
#include "base/status.h"

#include <stdint.h>

enum { /* sides of a piece; what it has in common with a piece of another stage is in a frame */
    MEG_BEFORE = 1,
    MEG_BEHIND = 2,
    MEG_SIDES = 4
};

typedef struct meg_piece {
    const char *name;
    double seconds; /* forward and backward of one micro-batch */
    int64_t held;   /* bytes of weights, gradients and optimizer */
    int64_t summed; /* bytes of gradients, which ranks sum where several have the stage */
    int64_t kept;   /* bytes that each micro-batch in flight keeps for backward */
    int64_t late;   /* likewise, from there to the weight gradients, where they are apart */
    /* While it runs, at most; by the sum of the sides where the stage goes on: */
    int64_t swell[MEG_SIDES];     /* bytes of a frame above `kept` */
    int64_t temporary[MEG_SIDES]; /* bytes of no frame */
} meg_piece;

typedef struct meg_flow { /* piece `to` reads what piece `from` < to makes */
    int from, to;
    int value;     /* >= 0; flows of one value carry the same data: one message per reading stage */
    int64_t bytes; /* of one micro-batch */
    int64_t stash; /* bytes that a stage with both pieces keeps of it for backward */
    int64_t sent;  /* bytes at the end of forward if only `from` is in the stage: the message, or
                         the gradient that comes back */
    int64_t arrived; /* bytes for backward if only `to` is: what it keeps of the message */
    int64_t
        returned; /* bytes at the end of backward, likewise, if `late` is something: the gradient */
} meg_flow;

typedef enum meg_balance {
    MEG_MEASURE_COUNT,   /* pieces of a stage */
    MEG_MEASURE_COMPUTE, /* its seconds, and those of what it receives */
    MEG_MEASURE_MEMORY   /* bytes of the rank that has it: footprint.h */
} meg_balance;

typedef struct meg_cut {      /* what is asked */
    const char *model, *noun; /* for messages: "unet", "blocks" */
    int pieces, flows, stages;
    const meg_piece *piece;
    const meg_flow *flow;
    meg_balance measure;
    int directions, ranks;   /* 0: one direction, a rank for each stage */
    const int *seat, *width; /* (directions, stages) a stage's first rank, and how many it has, as
                                the timetable says; NULL: stage s is on rank s alone */
    const int *frames;       /* (directions, stages) micro-batches in flight, likewise; NULL: 1 */
    const int *share; /* (stages) ranks that each keep an even part of it (a mesh); NULL: 1 */
    int replicas;     /* 0: 1 */
    int64_t scratch;  /* bytes that summing a stage's gradients takes, at most */
    int64_t limit;    /* bytes that a rank may have, whatever the measure; 0: any */
    double seconds_per_byte; /* received, in both passes; 0: messages are free */
} meg_cut;

typedef struct meg_crossing { /* messages from one stage to another; long: to > from + 1 */
    int from, to;
    int values;
    int64_t bytes;
} meg_crossing;

typedef struct meg_partition {
    int stages, pieces;
    int *stage;        /* (pieces) */
    double *seconds;   /* (stages) of compute alone */
    int64_t *bytes;    /* (stages) of the rank that has it, or the largest of them */
    int64_t *received; /* (stages) in forward; the same goes back in backward */
    double worst;      /* measure of the largest stage */
    int crossings;
    meg_crossing *crossing; /* by from, then to */
} meg_partition;

/* "count", "compute", "memory"; else an error that lists them. */
meg_status meg_balance_find(meg_error *e, const char *name, meg_balance *out);

/* The best cut. Fails where there are fewer pieces than stages, or none fits the limit. */
meg_status meg_partition_best(meg_error *e, meg_pool *pool, const meg_cut *c, meg_partition **out);

/* By hand: the stage of every piece. Refuses a stage without pieces, a piece that reads from a
 * later stage, a stage over the limit. Pieces of a stage need not be neighbours. */
meg_status meg_partition_given(meg_error *e, meg_pool *pool, const meg_cut *c, const int stage[],
                               meg_partition **out);

/* By hand: the first piece of every stage, (stages) ascending from 0. */
meg_status meg_partition_firsts(meg_error *e, meg_pool *pool, const meg_cut *c, const int first[],
                                meg_partition **out);

#endif
