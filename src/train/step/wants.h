/* What a rank reads of batches, from its plan: the samples and pixels that its programs load. */
#ifndef MEG_TRAIN_STEP_WANTS_H
#define MEG_TRAIN_STEP_WANTS_H

#include "data/data.h"
#include "plan/plan.h"

/* For batches of `batch` samples that any of the entries from first to last takes. False: nothing. */
bool meg_wants_of(const meg_plan *p, int first, int last, meg_wanted *out);

/* The rows of the smallest table in which tokens are looked up; 0: there is none. */
int64_t meg_wants_below(const meg_graph *g);

#endif
