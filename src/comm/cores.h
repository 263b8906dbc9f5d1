/* The cores of a rank: those of the node are shared by the ranks on it. */
#ifndef MEG_COMM_CORES_H
#define MEG_COMM_CORES_H

#include "comm/comm.h"

/* Collective. How many cores this rank may use: those that the launcher gave it; where several ranks
 * of a node were given the same ones, its share of them, at least one. `pin`: the calling thread, and
 * all that it makes later, keep to that share from now on, unless it is smaller than `threads`. */
meg_status meg_cores_share(meg_comm *c, meg_error *e, bool pin, int threads, int *out);

#endif
