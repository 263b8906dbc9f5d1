/* Allreduce algorithms as pure lists of steps: engine, replay and simulator walk the same list.
 *
 * Every rank of a group holds `count` elements and shall hold their sum. Step k of a rank is at
 * most one message out and one in; what comes in is added to the rank's own elements or replaces
 * them. The ranges of a step do not overlap. A rank's step k+1 may use what its step k received.
 * Between two ranks messages match in their order, not by k: nodes may differ in size.
 * Each element's sum is completed on one rank and copied from there: all ranks end with the same
 * bits, whatever the timing.
 *
 *     for (int k = 0; algorithm->step(&a, k, &s); k++) ...
 *
 * Nothing here includes MPI, a clock or a thread.
 */
#ifndef MEG_COMM_ALLREDUCE_ALLREDUCE_H
#define MEG_COMM_ALLREDUCE_ALLREDUCE_H

#include <stdbool.h>
#include <stdint.h>

/* Which ranks of the group share a node. */
typedef struct meg_topology {
    int ranks, count, smallest; /* smallest: ranks of the smallest group */
    int *group, *place;         /* (ranks): a rank's group, and its place in it */
    int *first;                 /* (count + 1): where a group begins in `member` */
    int *member;                /* (ranks): by group, then by place */
} meg_topology;

/* node[i] is any label of the node that rank i of the group is on; NULL: all on one. Never NULL. */
meg_topology *meg_topology_new(int ranks, const int node[]);
void meg_topology_free(meg_topology *g);

typedef struct meg_allreduce { /* one rank's view; ranks are counted within the group */
    int ranks, rank;
    int64_t count;              /* elements */
    const meg_topology *groups; /* of these ranks; only `hierarchical` and costs look at it */
    int64_t rows; /* of halves: parts are whole rows, row r * p / n the first; 0: count */
} meg_allreduce;

typedef struct meg_range { /* elements [at, at + count) */
    int64_t at, count;
} meg_range;

typedef struct meg_allreduce_step {
    int to, from; /* -1: no message; messages of no elements are not sent either */
    meg_range send, recv;
    bool add; /* what is received is added; else it replaces */
} meg_allreduce_step;

/* Seconds per message, per byte sent, per byte added; [0] inside a node, [1] between nodes. */
typedef struct meg_allreduce_rates {
    double alpha[2], beta[2], gamma;
} meg_allreduce_rates;

typedef struct meg_allreduce_kind {
    const char *name, *doc, *paper;
    /* False past the last step. NULL: the library's own allreduce, which shows no steps. */
    bool (*step)(const meg_allreduce *a, int k, meg_allreduce_step *out);
    /* Seconds, if all ranks begin together and no link is shared. */
    double (*cost)(const meg_allreduce *a, int64_t element_bytes, const meg_allreduce_rates *r);
} meg_allreduce_kind;

#define MEG_ALLREDUCE(id) extern const meg_allreduce_kind meg_allreduce_##id;
#include "comm/allreduce/allreduce.def"
#undef MEG_ALLREDUCE

/* Halves, which are no allreduce: rank p ends with the sum of part p, the rest being nothing; or gives
 * part p, and all end with all. */
extern const meg_allreduce_kind meg_ring_scatter, meg_ring_gather;

const meg_allreduce_kind *meg_allreduce_at(int i); /* NULL past the end */
const meg_allreduce_kind *meg_allreduce_find(const char *name);

/* ---- for the algorithms ---- */

/* Part i of `span`, cut into `parts` whose sizes differ by at most 1, the larger first. */
meg_range meg_range_part(meg_range span, int parts, int i);

/* Step k of a ring over ranks given by `at`: the ring's place p is rank at[p] (NULL: p itself).
 * Steps 0 .. n-2 add, so that place p ends with the sum of part (p + 1) mod n; steps n-1 .. 2n-3
 * hand the sums round. Both halves are used on their own, too. */
void meg_ring_step(const int at[], int n, int place, meg_range span, int k,
                   meg_allreduce_step *out);

/* 0 if the ranks share one node (or nobody said), else 1: index of the rates. */
int meg_allreduce_reach(const meg_allreduce *a);

#endif
