/* A launcher under supervision. */
#ifndef MEG_CLI_LAUNCH_SUPERVISE_H
#define MEG_CLI_LAUNCH_SUPERVISE_H

#include "base/status.h"

typedef struct meg_care {   /* of what is run */
    bool stops;             /* its ranks end in order when SIGUSR1 asks them to (interrupt.h) */
    const char *checkpoint; /* folder of their checkpoints; NULL: none */
} meg_care;

/* Runs a command and ends this process as it ended. What launchers keep to themselves when they are
 * asked to be quiet is told: that a rank was killed. Returns only if the command could not be run.
 *
 * SIGINT, SIGTERM, SIGHUP are passed on as they are, but to ranks that stop in order:
 *
 *     signal      to the launcher, which has a process group of its own
 *     the first   SIGUSR1, which all launchers pass on to ranks, and do nothing else; again every second
 *     the second  SIGTERM, by which the ranks end at once; what is left after 3 s is killed
 */
meg_status meg_supervise(meg_error *e, char *const words[], const meg_care *care);

#endif
