/* What a rank reads of batches, from its plan: of each input, and of all labels, the samples and pixels
 * that its programs load.
 */
#ifndef MEG_TRAIN_STEP_WANTS_H
#define MEG_TRAIN_STEP_WANTS_H

#include "data/data.h"
#include "plan/plan.h"

typedef struct meg_wants {
    int count;
    meg_wanted *want; /* (count) one for each input and each kind of labels of the network */
    bool any;         /* the rank reads something */
} meg_wants;

/* For batches of `batch` samples that any of the entries from first to last takes. The data fit (fit.c). Of
 * the plan's pool. */
meg_wants meg_wants_of(const meg_plan *p, const meg_dataset *d, int first, int last);

/* The field of a data set that an input or labels are read from; -1: it has none. */
int meg_wants_field(const meg_dataset *d, const meg_value *x);

#endif
