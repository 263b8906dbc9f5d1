/* A batch for the engine: as the loader has it, or filled up to as many samples as an entry takes. What is
 * added does not count: its labels are below 0, its targets NaN.
 */
#ifndef MEG_TRAIN_STEP_FILLED_H
#define MEG_TRAIN_STEP_FILLED_H

#include "data/data.h"
#include "exec/engine.h"

typedef struct meg_filled {
    int count;
    meg_fed *fed;
    void **own; /* (count) copies of batches that were too small; NULL: none yet */
    int64_t room;
} meg_filled;

/* Sets count and samples of the feed; what it points to is borrowed from the batch, or `f`'s own. */
meg_status meg_filled_take(meg_filled *f, meg_error *e, const meg_batch *b, int64_t samples,
                           meg_feed *feed);
void meg_filled_free(meg_filled *f);

#endif
