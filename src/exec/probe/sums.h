/* What a step of a sum over ranks takes besides its bytes: posting, looking, adding, going on, and the link's
 * latency. Small sums are measured, one behind the other. */
#ifndef MEG_EXEC_PROBE_SUMS_H
#define MEG_EXEC_PROBE_SUMS_H

#include "comm/comm.h"

/* Collective, of all ranks. inside: over the ranks of each node, on all nodes at once; else over one rank
 * of each node. *seconds is the same on all ranks; 0: nowhere are there two. */
meg_status meg_sums_probe(meg_comm *c, meg_error *e, bool inside, double *seconds);

#endif
