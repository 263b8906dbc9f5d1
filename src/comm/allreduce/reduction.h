/* A reduction under way: walks the steps of an allreduce algorithm over a communicator, a little
 * further with each call, so that an engine can keep many going and never waits in one.
 *
 * Long messages go in pieces, some at a time: a piece is added while the next ones travel, and the
 * scratch memory stays small.
 */
#ifndef MEG_COMM_ALLREDUCE_REDUCTION_H
#define MEG_COMM_ALLREDUCE_REDUCTION_H

#include "comm/allreduce/allreduce.h"
#include "comm/comm.h"

enum {
    MEG_REDUCTION_WINDOW = 4,        /* pieces of a step that travel at once, each way */
    MEG_REDUCTION_PIECE = 512 << 10, /* bytes, unless said otherwise */
};

typedef struct meg_reduction_spec { /* equal on all ranks of the group, but for the pointers */
    const meg_allreduce_kind *algorithm;
    int ranks;
    const int *rank;            /* (ranks): the group, as ranks of the communicator; NULL: all */
    const meg_topology *groups; /* of the group's ranks; needed by `hierarchical` only */
    meg_numbers data;           /* in place */
    meg_combine combine;
    void *scratch; /* meg_reduction_scratch bytes, aligned to 8; not in use by others meanwhile */
    int tag;       /* reductions under way at the same time on the same ranks have different ones */
    int64_t piece; /* bytes; 0: MEG_REDUCTION_PIECE */
    int64_t rows;  /* of halves: as in meg_allreduce */
} meg_reduction_spec;

typedef struct meg_reduction { /* the caller's memory; its members are this file's business */
    meg_reduction_spec spec;   /* its pointers must stay */
    meg_comm *comm;
    meg_allreduce view;
    meg_letter *native;
    meg_allreduce_step now;
    int k;
    bool in_step;
    struct { /* pieces of this step */
        int64_t count, posted, done;
        meg_letter *message[MEG_REDUCTION_WINDOW];
    } out, in;
} meg_reduction;

/* Pure. Bytes of scratch that rank a->rank of the group needs; piece: as in the spec. */
int64_t meg_reduction_scratch(const meg_allreduce_kind *algorithm, const meg_allreduce *a,
                              meg_number type, int64_t piece);

/* Collective over the group: all its ranks start the same reductions, in any order if their tags
 * differ (`mpi`: in the same order). After an error messages may still be under way: end the job. */
meg_status meg_reduction_start(meg_reduction *r, meg_comm *c, meg_error *e,
                               const meg_reduction_spec *spec);

/* Goes on as far as messages have come. Never blocks; adds at most a window of pieces, then returns
 * with the communicator woken, so that other work has its turn. */
meg_status meg_reduction_advance(meg_reduction *r, meg_error *e, bool *done);

/* Gives it up, as meg_comm_drop does with a message. */
void meg_reduction_drop(meg_reduction *r);

/* Starts, and sleeps until done. */
meg_status meg_reduction_run(meg_comm *c, meg_error *e, const meg_reduction_spec *spec);

#endif
