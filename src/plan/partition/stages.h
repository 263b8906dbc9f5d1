/* Stages: which node of the graph is computed where (private to plan/). */
#ifndef MEG_PLAN_PARTITION_STAGES_H
#define MEG_PLAN_PARTITION_STAGES_H

#include "plan/program/plan.h"

typedef struct meg_trial { /* what balance=memory looks at */
    const meg_plan
        *even; /* the same plan with balance=compute, up to the timetable of a step: which
                              ranks a stage has, how many micro-batches it holds */
    const meg_plan *whole; /* a micro-batch of a replica on one rank, lowered: what nodes need */
} meg_trial;

/* Nodes that read labels, or what was made of them: they stay with what they judge. (nodes) */
bool *meg_losses_of(meg_pool *pool, const meg_graph *g);

/* Sets p->stage of every node of the source graph, by the plan's words: stages, level, assign, and
 * balance, which takes memory where there is a trial. */
meg_status meg_plan_stages(meg_plan *p, meg_error *e, const meg_trial *trial);

#endif
