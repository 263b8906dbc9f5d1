/* Stages: which node of the graph is computed where (private to plan/). */
#ifndef MEG_PLAN_PARTITION_STAGES_H
#define MEG_PLAN_PARTITION_STAGES_H

#include "plan/program/plan.h"

/* Sets p->stage of every node of the source graph, by the plan's words: stages, level, assign. */
meg_status meg_plan_stages(meg_plan *p, meg_error *e);

#endif
