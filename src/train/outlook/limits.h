/* What memory each rank of a job may take for its arena. Ranks sit on nodes of unlike memory, or in control groups of
 * their own; those under one limit share it evenly. What the process needs beside its arena is taken off: what it has
 * already (code, MPI, data that are open, the graph), and what comes when it trains (kernels, the loader's samples).
 */
#ifndef MEG_TRAIN_OUTLOOK_LIMITS_H
#define MEG_TRAIN_OUTLOOK_LIMITS_H

#include "comm/comm.h"

enum {
    MEG_LIMITS_LATER = 64 << 20, /* bytes of a process that come when it trains (t802-besides) */
    MEG_LIMITS_GRAIN =
        8 << 20 /* ranks that differ by less are alike, and runs give the same plan */
};

/* Bytes of this process beside its arena; before it has one. */
int64_t meg_limits_besides(void);

/* Of `share` bytes what is left for an arena. A share of a few processes' size is taken as it is: then somebody
 * plans for less than there is (MEGALITH_MEMORY). */
int64_t meg_limits_left(int64_t share, int64_t besides);

typedef struct meg_place { /* of a rank */
    int64_t most;          /* bytes that its node or group has */
    uint64_t owner;        /* of that limit; 0: the node's memory */
    int64_t besides;
} meg_place;

/* Of ranks on nodes: out[r] is what rank r may take. Pure. */
void meg_limits_share(const meg_place place[], const int node[], int ranks, int64_t out[]);

/* Collective: of this job's ranks, (ranks) to be freed; the same on all. */
meg_status meg_limits_gather(meg_comm *c, meg_error *e, int64_t **out);

#endif
