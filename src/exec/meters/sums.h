/* What sums over ranks take: a step of a small one besides its bytes (posting, looking, going on, the link's
 * latency), and how many bytes a second a step of a larger one sends and adds. A ring, as often as not what is
 * walked in training; sums follow one another. */
#ifndef MEG_EXEC_METERS_SUMS_H
#define MEG_EXEC_METERS_SUMS_H

#include "comm/comm.h"
#include "machine/description.h"

/* Collective, of all ranks. inside: over the ranks of each node, on all nodes at once; else over one rank
 * of each node. Sets hop, sums and sum of the link, the same on all ranks; none, where nowhere are there two. */
meg_status meg_sums_probe(meg_comm *c, meg_error *e, bool inside, meg_link *out);

#endif
