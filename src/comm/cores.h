/* The cores of a rank: those of the node are shared by the ranks on it. Nodes may be containers of one machine: then all of
 * them share its cores. */
#ifndef MEG_COMM_CORES_H
#define MEG_COMM_CORES_H

#include "comm/comm.h"

typedef struct meg_cores {
    int share; /* of this rank, at least one */
    int all;   /* that ranks of several nodes have together; 0: each node has its own */
} meg_cores;

/* Collective. Which cores this rank may use: those that the launcher gave it; where several ranks
 * were given the same ones, its share of them. `pin`: the calling thread, and
 * all that it makes later, keep to that share from now on, unless it is smaller than `threads`. */
meg_status meg_cores_share(meg_comm *c, meg_error *e, bool pin, int threads, meg_cores *out);

#endif
