/* The critical path of a replayed step: the chain of kernels, messages and sums, each of which could not begin before
 * the one before it was done, that ends when the step ends. What is on it is what a quicker step must shorten.
 *
 *     rank 0   [ F0 ][ F1 ]------------------[ B0 ]...
 *                  \ message                 /
 *     rank 1        [   F0   ][   B0   ]-----      path: F0 on rank 0, message, F0 and B0 on rank 1, message, B0
 *
 * It is walked from the end back, through what a replay told its observer: kernels began when those before
 * them ended, or when the traffic ended that their rank waited for; traffic began when the last of its sides was
 * there. It covers one step of the long run without gaps, so that its pieces are the step's seconds.
 */
#ifndef MEG_PLAN_REPLAY_CRITICAL_H
#define MEG_PLAN_REPLAY_CRITICAL_H

#include "plan/replay/replay.h"

typedef struct
    meg_replay_log { /* all spans of a replay, those of an actor in the order of their ends */
    int actors, told;
    struct meg_replay_told {
        int count;
        size_t room, order_room;
        meg_replay_span *span;
        int *order; /* (count) number among all actors' */
    } * of;         /* (actors) */
} meg_replay_log;

void meg_replay_log_begin(meg_replay_log *log, int actors);
void meg_replay_log_add(void *log, const meg_replay_span *span); /* an observer */
void meg_replay_log_free(meg_replay_log *log);

typedef enum meg_critical_what {
    MEG_CRITICAL_WORK,
    MEG_CRITICAL_MESSAGE,
    MEG_CRITICAL_SUM,
    MEG_CRITICAL_WAIT, /* nothing that was told explains it */
    MEG_CRITICAL_KINDS
} meg_critical_what;

typedef struct meg_critical_piece {
    meg_critical_what what;
    int actor; /* whose kernels; the sender; of a sum: the first of its team */
    int other; /* the receiver; of a sum: how many ranks; else -1 */
    int number; /* of the event that the (last) kernels stand before; of the sender's note, or one of the sum's */
    int teller; /* the actor whose note or event that is */
    double begin, end;
} meg_critical_piece;

typedef struct meg_critical_part { /* pieces of one kind between the same actors */
    meg_critical_what what;
    int actor, other, pieces;
    double seconds;
} meg_critical_part;

typedef struct meg_critical {
    double begin, end; /* of the step, on the replay's clock */
    int pieces, parts;
    meg_critical_piece *piece; /* by time */
    meg_critical_part *part;   /* the largest first; together they are the step */
    size_t piece_room, part_room;
} meg_critical;

void meg_critical_find(const meg_replay_job *job, const meg_replay *r, const meg_replay_log *log,
                       meg_critical *out);
void meg_critical_free(meg_critical *c);

#endif
