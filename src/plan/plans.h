/* The plans of all ranks of a job, as one looks at them before anything runs: how much memory the ranks need,
 * how long a step takes. Equal ranks are planned once (an *actor* stands for them).
 */
#ifndef MEG_PLAN_PLANS_H
#define MEG_PLAN_PLANS_H

#include "plan/plan.h"
#include "plan/program/replay.h"

typedef struct meg_plans {
    int ranks, actors;
    int *actor_of;   /* (ranks) */
    meg_plan **plan; /* (actors): of the first rank that it stands for */
} meg_plans;

/* in->world says how many ranks there are; whose plan it asks for does not matter. */
meg_status meg_plans_make(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          meg_plans *out);
void meg_plans_free(meg_plans *p);

int64_t meg_plans_bytes(const meg_plans *p); /* of the largest arena */

/* Of a train step; out->times is to be freed. */
meg_status meg_plans_replay(const meg_plans *p, meg_error *e, const meg_machine *m,
                            meg_replay *out);

#endif
