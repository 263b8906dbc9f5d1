/* What a rank waits for in a step: counted in the list of its events (plan/program/events.h). */
#ifndef MEG_EXEC_PROBE_WAITS_H
#define MEG_EXEC_PROBE_WAITS_H

#include "machine/description.h"
#include "plan/program/plan.h"

typedef struct meg_waits {
    int notes;      /* messages and sums */
    int waits;      /* for some of them, behind which there are kernels: the device stands still */
    double seconds; /* of the longest of each wait, as the machine's links have it */
} meg_waits;

meg_waits meg_waits_of(const meg_plan *p, int entry, const meg_machine *m);

#endif
