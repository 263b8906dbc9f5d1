/* A rehearsal of many ranks' lists of events, in which nothing takes time: each goes on until it waits for
 * something that never comes, or all are through.
 *
 *     posted   its turn has come
 *     begun    posted, and all that was in front of it is done
 *     done     a message: both sides have begun; a reduction: all its ranks have
 *
 * What can happen does not depend on the order in which ranks are looked at, so one order is enough.
 */
#ifndef MEG_PLAN_EVENTS_REHEARSAL_H
#define MEG_PLAN_EVENTS_REHEARSAL_H

#include "plan/events/packed.h"

typedef struct meg_rehearsal {
    int lists;
    const meg_packed **list; /* (lists) several may be the same */
    int *first;              /* (lists + 1) notes of all lists are numbered one after the other */
    int *partner;            /* (notes) SEND, RECV: the other side; REDUCE: its meeting */
    int meetings;
    int *expected; /* (meetings) how many notes each has */
} meg_rehearsal;

/* Where the first list stands that does not come to its end: its number, and in *at the step; -1: all do. */
int meg_rehearsal_stuck(const meg_rehearsal *r, int *at);

#endif
