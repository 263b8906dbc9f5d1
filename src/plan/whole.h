/* The plan of a whole job: the plans of all its ranks, as one looks at them before anything runs: how much memory the ranks need,
 * how long a step takes. Equal ranks are planned once (an *actor* stands for them).
 */
#ifndef MEG_PLAN_WHOLE_H
#define MEG_PLAN_WHOLE_H

#include "plan/plan.h"
#include "plan/replay/replay.h"

typedef struct meg_whole {
    int ranks, actors;
    int *actor_of;    /* (ranks) */
    meg_actor *actor; /* (actors) of the train step */
    int64_t *arena;   /* (actors) bytes */
    double work;      /* instructions that were lowered, and what else it took in instructions */
    double replay;    /* likewise: what a replay takes */
} meg_whole;

/* in->world says how many ranks there are; whose plan it asks for does not matter. */
meg_status meg_whole_make(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          meg_whole *out);
/* Likewise, but the ranks that have the same stages are one actor: the one in the middle of their mesh stands for
 * them. What those at the edges need, and evaluation, is not looked at. Few ranks are planned as above. Where one
 * needs more than `limit` bytes (0: any), the others are not planned, and there is no replay. */
meg_status meg_whole_sketch(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                            int64_t limit, meg_whole *out);
void meg_whole_free(meg_whole *w);

int64_t meg_whole_bytes(const meg_whole *w); /* of the largest arena */

/* How many bytes the rank lacks that is worst off, and which one that is; at most 0: all fit. limit: (ranks). */
int64_t meg_whole_missing(const meg_whole *w, const int64_t limit[], int *rank);

/* Of a train step; out->times is to be freed. */
meg_status meg_whole_replay(const meg_whole *w, meg_error *e, const meg_machine *m,
                            meg_replay *out);

#endif
