/* A graph's fingerprint: what a plan must know again before it may be used. Operators, attributes,
 * names, who reads what, extents of parameters and of a sample count; batch and numbers do not.
 */
#ifndef MEG_GRAPH_FINGERPRINT_H
#define MEG_GRAPH_FINGERPRINT_H

#include "graph/graph.h"

uint64_t meg_graph_fingerprint(const meg_graph *g);

#endif
