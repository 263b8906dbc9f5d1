/* A graph, node by node, by the operators' plain-C kernels in float: no plan, no device, all values
 * in memory at once. What a network computes by definition, for small ones: comparisons with other
 * frameworks, and outputs of graphs without a loss.
 */
#ifndef MEG_EXEC_REFERENCE_H
#define MEG_EXEC_REFERENCE_H

#include "graph/op.h"

typedef struct meg_reference {
    const meg_graph *graph;
    void **data; /* of each value: float, int32 or bytes, row-major; weights are started */
    void (*watch)(void *context, int64_t done, int64_t total); /* nodes; NULL: nobody does */
    void *context;
} meg_reference;

/* Makes room for all values and starts the weights. */
meg_reference *meg_reference_new(const meg_graph *g, uint64_t seed);
void meg_reference_free(meg_reference *r);

/* Runs all nodes on the inputs and labels that are in r->data. MEG_EVAL, or MEG_FORWARD, which
 * updates the running statistics, too. */
void meg_reference_run(meg_reference *r, meg_pass pass);

#endif
