/* What each rank of a plan needs: bytes and seconds. */
#ifndef MEG_CLI_NEEDS_H
#define MEG_CLI_NEEDS_H

#include "plan/plan.h"

typedef struct meg_need { /* of a rank */
    int replica;
    char stages[16]; /* "0,4" */
    int64_t held, step, frames, arena;
    double seconds;
} meg_need;

meg_need meg_need_of(const meg_plan *p);

/* The largest arena of all ranks; without needs (NULL), the plan's own. */
int64_t meg_needs_bytes(const meg_plan *p, const meg_need needs[]);

/* Predicted seconds of a step: those of the rank with most kernels; waiting is not counted. */
double meg_needs_seconds(const meg_plan *p, const meg_need needs[]);

#endif
