/* Groups of nodes: a graph seen by layer, by block or by module, as its names have it. What `show`
 * draws, and what plans cut into stages.
 *
 *     level    "layer1.0.conv1"  "cells.3.op.1"  "Mixed_5b.b_1.conv"  "features.7"
 *     layer    itself            itself          itself               itself
 *     block    layer1.0          cells.3         Mixed_5b             features.7
 *     module   layer1            cells           Mixed_5b             features
 *
 * The graph of groups has no cycle: where the nodes of one name are not convex (a path leaves them
 * and comes back), they become several groups, "name", "name#2". Groups are in topological order,
 * and where that leaves a choice, in that of their first nodes: same graph, same groups.
 */
#ifndef MEG_GRAPH_GROUPS_H
#define MEG_GRAPH_GROUPS_H

#include "graph/graph.h"

typedef enum meg_level {
    MEG_LEVEL_LAYER,
    MEG_LEVEL_BLOCK,
    MEG_LEVEL_MODULE
} meg_level;

typedef struct meg_group {
    const char *name;
    int nodes, *node;   /* (nodes): ids, ascending */
    int64_t parameters; /* elements; of a weight with several users: counted in the first group */
    int64_t activation; /* bytes of all values that it makes, for the graph's batch */
    double flops;       /* of the forward pass */
} meg_group;

typedef struct meg_group_edge { /* a value that crosses into a group, once for each such group */
    int value;
    int from; /* its maker's group; -1: an input or label of the graph */
    int to;
} meg_group_edge;

typedef struct meg_groups {
    meg_pool *pool;
    int count, edges;
    meg_group *group;
    meg_group_edge *edge; /* by `to`, then as the nodes read them */
    int *of;              /* (nodes of the graph): the group of each */
} meg_groups;

meg_groups *meg_groups_new(const meg_graph *g, meg_level level);
void meg_groups_free(meg_groups *s);

#endif
