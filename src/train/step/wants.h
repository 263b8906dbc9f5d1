/* What a rank reads of batches, from its plan: of each input, and of all labels, the samples and pixels
 * that its programs load.
 */
#ifndef MEG_TRAIN_STEP_WANTS_H
#define MEG_TRAIN_STEP_WANTS_H

#include "data/data.h"
#include "plan/plan.h"

typedef struct meg_reading {
    int count;
    meg_wanted *want; /* (count) one for each input and each kind of labels of the network */
    bool any;         /* the rank reads something */
} meg_reading;

/* For batches of `batch` samples that any of the entries from first to last takes. Of the plan's pool. */
meg_reading meg_wants_of(const meg_plan *p, int first, int last);

/* Does the rank read something of this sample of an entry's batch? */
bool meg_wants_sample(const meg_plan *p, int entry, int64_t index);

/* From which fields of a data set, and as which type, they are read. Of a data set that does not fit (fit.c), a
 * field may be -1. */
void meg_wants_bind(meg_reading *r, const meg_plan *p, const meg_dataset *d);

/* The field of a data set that an input or labels are read from; -1: it has none. */
int meg_wants_field(const meg_dataset *d, const meg_value *x);

#endif
