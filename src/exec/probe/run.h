/* Runs the program of a plan on made-up samples, to time its kernels in place. */
#ifndef MEG_EXEC_PROBE_RUN_H
#define MEG_EXEC_PROBE_RUN_H

#include "exec/engine.h"
#include "exec/meters/drift.h"
#include "exec/probe/timings.h"
#include "machine/description.h"

typedef struct meg_probe_host { /* of the thread that issues, summed over steps */
    double seconds; /* of its processor time, in which it did not just wait for messages */
    int64_t kernels, notes;
    double idle;   /* seconds on the wall in which neither it nor the device worked */
    int64_t waits; /* for messages and sums behind which there are kernels */
    double known;  /* seconds that these take by the links */
} meg_probe_host;

typedef struct meg_probe_seen {
    int steps, kept; /* in all; at the book's pace (exec/probe/tempo.h) */
} meg_probe_seen;

typedef struct meg_probe_site {
    meg_device *device;
    meg_comm *comm;       /* NULL: alone */
    double seconds;       /* that the steps may take together, at the book's pace */
    int least, most;      /* steps */
    int patience;         /* times as many, until the least are at the book's pace; 0: no more */
    meg_probe_host *host; /* is added to; may be NULL */
    const meg_machine *machine; /* its links, where there is a host */
    meg_drift
        *drift; /* kernels are priced as if the machine were as it was when a turn of the loop */
    double turn_work;     /* took so long; NULL: as it is */
    meg_probe_seen *seen; /* is set; may be NULL */
} meg_probe_site;

/* Collective. Adds the train entry's kernels to `out`; *kernels: how many a step has, may be NULL. The
 * learning rate is 0: nothing explodes. */
meg_status meg_probe_plan(meg_plan *p, meg_error *e, const meg_probe_site *site, meg_timings *out,
                          int *kernels);

#endif
