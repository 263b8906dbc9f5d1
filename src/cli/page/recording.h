/* A recording: what the ranks of a running job do in some steps, measured, of which a report shows one: the
 * step whose time is the median of those recorded. Kernels are told by the device's worker, messages by the
 * training thread; each has its own list. It records for a few steps only, however long training takes.
 */
#ifndef MEG_CLI_PAGE_RECORDING_H
#define MEG_CLI_PAGE_RECORDING_H

#include "train/trainer.h"

#include <stdio.h>

typedef struct meg_recording meg_recording;

typedef struct meg_listeners { /* who is told, too: a trace */
    meg_observer *kernel;
    meg_traffic_observer *traffic;
    void *context;
} meg_listeners;

/* Collective, since clocks are compared. From now on, for the steps from number `first` on, `steps` of them.
 * others: NULL, or who listened before. */
meg_status meg_recording_begin(meg_trainer *t, meg_error *e, const meg_listeners *others,
                               meg_recording **out);
void meg_recording_span(meg_recording *r, int64_t first, int64_t steps);

/* A step is done. */
void meg_recording_step(meg_recording *r, const meg_progress *p);

typedef struct meg_recorded { /* what the first rank is told */
    int64_t step;             /* 0: none was recorded */
    double seconds;           /* of that step */
    FILE *text; /* `{"rank": 0, .. }, {..}` of all ranks; to be closed; NULL: not the first */
} meg_recorded;

/* Collective: all ranks' lists of the step come to the first. */
meg_status meg_recording_end(meg_recording *r, meg_error *e, meg_recorded *out);
void meg_recording_free(meg_recording *r); /* accepts NULL */

#endif
