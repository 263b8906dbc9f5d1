/* Drawings of a graph's groups: for Graphviz (dot), or as SVG of our own, which needs nothing. */
#ifndef MEG_CLI_REPORT_DRAWING_H
#define MEG_CLI_REPORT_DRAWING_H

#include "graph/groups.h"

#include <stdio.h>

typedef struct meg_drawing {
    const meg_graph *graph;
    const meg_groups *groups;
    const char **note; /* (groups): the second line of each box */
} meg_drawing;

void meg_draw_dot(const meg_drawing *d, FILE *out);

/* Boxes from top to bottom in topological order, the input first; arrows between neighbours, and
 * skips as curves on the right, each in the innermost lane that is free over its length. */
void meg_draw_svg(const meg_drawing *d, FILE *out);

/* The extents of one sample: "64x56x56"; "1" for a number. */
void meg_print_extents(FILE *out, const meg_value *v);

#endif
