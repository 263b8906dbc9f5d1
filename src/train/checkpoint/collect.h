/* What all ranks hold, seen from rank 0: weights, running statistics, gradients and states of the
 * optimizer, one at a time, in plain format and global coordinates. Rank 0 asks, the others serve:
 *
 *     rank 0    work: get conv1.weight            get fc.weight#momentum     put fc.bias     end
 *                      | (holds it)                  ^ pieces                   | pieces      |
 *     rank 1    serve  .                             |                          v             v
 *     rank 2    serve  .                           owner                        v             v
 *
 * So rank 0 may walk the tensors in whatever order a file wants them, and stop at any time. No rank
 * needs more memory than one piece. Of the ranks that hold a thing the lowest is its owner, whom
 * rank 0 asks; all of them are given what is put.
 */
#ifndef MEG_TRAIN_CHECKPOINT_COLLECT_H
#define MEG_TRAIN_CHECKPOINT_COLLECT_H

#include "exec/engine.h"

typedef struct meg_collection meg_collection;

enum {                          /* what there is to collect */
    MEG_COLLECT_VALUES = 1,     /* of parameters and states */
    MEG_COLLECT_GRADIENTS = 2,  /* of parameters, where the plan keeps them */
    MEG_COLLECT_STATISTICS = 4, /* values of states only */
    MEG_COLLECT_OPTIMIZER = 8   /* its states */
};

typedef struct meg_item {
    const char *name; /* "conv1.weight", "conv1.weight#momentum" */
    const meg_value *value;
    meg_role role;
    int index, owner;
} meg_item;

/* Rank 0's part. */
typedef meg_status meg_collect_work(void *context, meg_collection *c, meg_error *e);

/* Collective. Rank 0 does `work`, the others serve it. The error of one is the error of all. `comm`
 * is the engine's; NULL: there is one rank. */
meg_status meg_collect(meg_engine *x, meg_comm *comm, meg_error *e, int what,
                       meg_collect_work *work, void *context);

/* ---- for `work` ---- */

int meg_collection_count(const meg_collection *c);
const meg_item *meg_collection_item(const meg_collection *c, int i); /* in the graph's order */
int meg_collection_find(const meg_collection *c, const char *name);  /* -1: nobody holds it */
meg_dtype meg_collection_real(const meg_collection *c);              /* type of all elements */

/* Hands all elements of an item to `take`, in ascending order. */
typedef meg_status meg_collect_take(void *to, const void *piece, int64_t count);
meg_status meg_collection_get(meg_collection *c, meg_error *e, int item, meg_collect_take *take,
                              void *to);

/* Fills an item: `give` is asked for elements [first, first + count), ascending, for some perhaps
 * twice. */
typedef void meg_collect_give(void *from, int64_t first, int64_t count, void *piece);
meg_status meg_collection_put(meg_collection *c, meg_error *e, int item, meg_collect_give *give,
                              void *from);

#endif
