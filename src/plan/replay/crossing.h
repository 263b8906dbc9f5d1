/* Where the peers of equal ranks sit. An actor stands for many ranks: the peer of its own may be on its node where those of
 * others are not. In a row of 24 ranks on nodes of eight only the ends of nodes send halos over the network; but all
 * wait for them.
 */
#ifndef MEG_PLAN_REPLAY_CROSSING_H
#define MEG_PLAN_REPLAY_CROSSING_H

#include "plan/replay/replay.h"

typedef struct meg_crossing_ranks { /* on the node that has most of them: */
    int out, inside;                /* ranks whose peer is elsewhere; whose peer is there */
} meg_crossing_ranks;

typedef struct meg_crossings meg_crossings;

meg_crossings *meg_crossings_new(const meg_replay_job *job);
void meg_crossings_free(meg_crossings *c);

/* Of messages between the actor's rank and this peer, and what is like them. */
meg_crossing_ranks meg_crossings_of(meg_crossings *c, int actor, int peer);

#endif
