/* Transfers: how a value gets from the ranks that make it to the ranks that hold it.
 *
 * A transfer is a list of messages, intersections of made parts with held boxes. For each receiver
 * one copy serves: its own if it makes one, else a fixed choice; and of it every share of the sum,
 * in ascending order: the first sets, the others add. Halo exchange, pipeline sends, allgather,
 * reduce-scatter and the redistribution between meshes are all this:
 *
 *     made: h cut in two, w in two     held: a 3 x 3 window around each     12 messages
 *
 *         0 0 | 1 1                        0 0 +                            to 0: a column of 1,
 *         0 0 | 1 1                        0 0 +                            a row of 2 and the
 *         ----+----                        + + +                            corner of 3
 *         2 2 | 3 3
 *         2 2 | 3 3
 *
 * The adjoint is the same list with its ends exchanged, adding. To derive it anew, with another
 * serving copy, would still give right gradients (only their sum over the copies is defined), but
 * <A x, y> = <x, A' y> would not hold.
 */
#ifndef MEG_PLAN_LAYOUT_TRANSFER_H
#define MEG_PLAN_LAYOUT_TRANSFER_H

#include "plan/layout/layout.h"

typedef struct meg_parcel { /* one message; from == to: a copy within the rank */
    int from, to;           /* ranks */
    bool add;               /* to what is there; else it sets */
    meg_box box;
} meg_parcel;

typedef struct meg_transfer {
    bool max; /* `add` means: take the maximum */
    int64_t messages;
    meg_parcel *message; /* by receiver's, then sender's position: the order of all sums */
} meg_transfer;

typedef struct meg_held { /* what each rank of a mesh wants of a value */
    const meg_mesh *mesh;
    const meg_box *box; /* (mesh->size) by position; may be empty */
    bool in_place;      /* the boxes surround the parts that the same ranks make: what a rank has
                           made is there already. Not for partial values */
} meg_held;

/* Shares of an empty part of the sum send nothing. A value whose many shares all its ranks want
 * (weight gradients) has shares x ranks messages: reduce it by an allreduce algorithm instead. */
meg_transfer meg_transfer_new(meg_pool *pool, const meg_layout *made, const meg_held *held);

/* What goes to the positions from `first` to `end` - 1 alone; the boxes are those of these. */
meg_transfer meg_transfer_some(meg_pool *pool, const meg_layout *made, const meg_held *held,
                               int first, int end);

/* Adds; what receives must be zeroed, or have its own contribution, before. Not of a maximum. */
meg_transfer meg_transfer_adjoint(meg_pool *pool, const meg_transfer *t);

typedef struct meg_traffic {
    int64_t messages, elements; /* between different ranks */
    int64_t local;              /* elements copied within a rank */
} meg_traffic;

typedef struct meg_rank_traffic {
    meg_traffic sent, received;
} meg_rank_traffic;

meg_traffic meg_transfer_traffic(const meg_transfer *t);
void meg_transfer_by_rank(const meg_transfer *t, int ranks, meg_rank_traffic by[]); /* (ranks) */

/* Text: a line of totals, then a line per message: "0 -> 1  set [0:1 0:1 0:1 0:2 1:2]". */
void meg_transfer_print(const meg_transfer *t, FILE *out);

#endif
