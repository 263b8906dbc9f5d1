/* Runs the program of a plan on made-up samples, to time its kernels in place. */
#ifndef MEG_EXEC_PROBE_RUN_H
#define MEG_EXEC_PROBE_RUN_H

#include "exec/engine.h"
#include "exec/probe/drift.h"
#include "exec/probe/timings.h"

typedef struct meg_probe_host { /* of the thread that issues, summed over steps */
    double seconds; /* of its processor time, in which it did not just wait for messages */
    int64_t kernels, notes;
} meg_probe_host;

typedef struct meg_probe_site {
    meg_device *device;
    meg_comm *comm;  /* NULL: alone */
    double seconds;  /* that the steps may take together */
    int least, most; /* steps */
    meg_probe_host *host; /* is added to; may be NULL */
    meg_drift *drift;     /* kernels are priced as if the machine were as it was when a turn of the loop */
    double turn_work;     /* took so long; NULL: as it is */
} meg_probe_site;

/* Collective. Adds the train entry's kernels to `out`; *kernels: how many a step has, may be NULL. The
 * learning rate is 0: nothing explodes. */
meg_status meg_probe_plan(meg_plan *p, meg_error *e, const meg_probe_site *site, meg_timings *out,
                          int *kernels);

#endif
