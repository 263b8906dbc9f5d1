/* Layouts: which rank makes which part of a value.
 *
 * A mesh is a grid of ranks. A layout says for each axis of the mesh what it does to the work of
 * the node that makes the value (graph/op.h: a box of the output x a box of the sum):
 *
 *     cut      an axis of the output  -> each rank makes its own interval    the value is cut
 *     partial  an axis of the sum     -> each rank makes a share of the sum  the value is partial
 *     copy     nothing                -> all ranks make the same             the value is copied
 *
 * A rank's part is its work and two numbers: which share of the sum and which copy it makes. The
 * parts of one (share, copy) tile the value, some may be empty; a transfer (plan/layout/transfer.h) needs
 * no more. Inputs and weights are made by nobody: their layout is their home, and never partial.
 *
 * All is by position on the mesh: a stage of 4 ranks costs the same on a machine of 4,096.
 */
#ifndef MEG_PLAN_LAYOUT_LAYOUT_H
#define MEG_PLAN_LAYOUT_LAYOUT_H

#include "graph/op.h"

enum {
    MEG_MESH_AXES = MEG_AXES + 1
}; /* one per axis of a value, and one for copies */

typedef struct meg_seat {
    int rank, position;
} meg_seat;

typedef struct meg_mesh {
    int dim[MEG_MESH_AXES]; /* 1: this axis is not used */
    int size;               /* their product */
    const int *rank;        /* (size) of each position, row-major over dim */
    const meg_seat *seat;   /* (size) in ascending order of rank */
} meg_mesh;

/* rank == NULL: 0 to size-1. Ranks are copied; each sits on one position only. */
meg_mesh *meg_mesh_new(meg_pool *pool, const int dim[MEG_MESH_AXES], const int rank[]);
int meg_mesh_find(const meg_mesh *mesh, int rank); /* its position; -1: not on the mesh */

typedef enum meg_split {
    MEG_SPLIT_COPY,
    MEG_SPLIT_CUT,
    MEG_SPLIT_PARTIAL
} meg_split;

typedef struct meg_along { /* what one axis of the mesh does */
    meg_split how;
    int axis;          /* of the output (cut) or of the sum (partial) */
    const int64_t *at; /* (dim + 1) ascending, from 0 to the extent; equal ones: an empty part.
                          partial, NULL: shares of a gradient, which no sum box describes */
} meg_along;

typedef struct meg_layout {
    const meg_mesh *mesh;
    meg_work whole; /* of the node; of an input or a weight: its shape, and nothing summed */
    bool max;       /* shares combine by maximum */
    meg_along on[MEG_MESH_AXES];
} meg_layout;

typedef struct meg_part {
    bool in;         /* is the rank on the mesh? */
    meg_work work;   /* work.out is what it makes */
    int share, copy; /* from 0, row-major over the partial axes and over the copy axes */
} meg_part;

/* A layout that only copies, for a value of the graph. */
meg_layout meg_layout_new(const meg_mesh *mesh, const meg_graph *g, int value);

/* (parts + 1) cut points. Parts are multiples of the grain, but for a rest at the end, and differ
 * by no more than one grain. */
int64_t *meg_cuts_even(meg_pool *pool, int64_t extent, int parts, int64_t grain);

/* Parts in proportion to their shares, of one grain at least. */
int64_t *meg_cuts_shared(meg_pool *pool, int64_t extent, int parts, int64_t grain,
                         const int64_t share[]);

meg_part meg_layout_part(const meg_layout *l, int position);
meg_part meg_layout_part_of(const meg_layout *l, int rank);
int meg_layout_shares(const meg_layout *l);
int meg_layout_copies(const meg_layout *l);

/* A part without output, or with nothing to sum: its rank makes nothing. */
bool meg_part_idle(const meg_part *p);

/* (size) The box of an input that each position's part of a node reads, clipped to the value. */
meg_box *meg_layout_needs(meg_pool *pool, const meg_layout *l, const meg_graph *g,
                          const meg_node *v, int input);

/* The layout of the gradient, as the transfers' adjoints leave it:
 *
 *     value     cut   copied                        partial
 *     gradient  cut   partial: a copy has what      copied: each share
 *                     those it served sent back     has the whole
 */
meg_layout meg_layout_adjoint(const meg_layout *l);

/* Does the operator allow these cuts of its value? The message names node, axis and the nearest
 * choice that is allowed. */
meg_status meg_layout_check(const meg_layout *l, meg_error *e, const meg_graph *g, int value);

#endif
