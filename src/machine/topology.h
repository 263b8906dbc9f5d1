/* The topology of a machine: how its processors are grouped into cores, packages and NUMA nodes. Not
 * pure: what is planned asks others for it.
 *
 *     package 0                package 1
 *     core 0    core 1         core 2    core 3
 *     0   4     1   5          2   6     3   7        numbers of processors, as the system has them
 */
#ifndef MEG_MACHINE_TOPOLOGY_H
#define MEG_MACHINE_TOPOLOGY_H

#include "base/status.h"
#include "machine/processors.h"

typedef struct meg_topology meg_topology;

typedef struct meg_topology_counts { /* that have one of the processors asked for */
    int packages, nodes, cores, processors;
} meg_topology_counts;

/* text: an imaginary machine, in hwloc's words ("package:2 core:2 pu:2"); NULL: this one. */
meg_status meg_topology_open(meg_error *e, const char *text, meg_topology **out);
void meg_topology_close(meg_topology *t);

/* within: NULL: all that there are. */
meg_topology_counts meg_topology_count(const meg_topology *t, const meg_processors *within);

/* The processors of a set, neighbours first: those of a core, of a node, of a package, one behind the
 * other. Those that the machine does not know come last. Returns how many. */
int meg_topology_order(const meg_topology *t, const meg_processors *set, int out[MEG_PROCESSORS]);

/* The i-th of n parts of a set, as even as can be, each of neighbours. */
meg_processors meg_topology_part(const meg_topology *t, const meg_processors *set, int i, int n);

#endif
