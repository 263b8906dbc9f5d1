/* A launcher under supervision. */
#ifndef MEG_CLI_SUPERVISE_H
#define MEG_CLI_SUPERVISE_H

#include "base/status.h"

/* Runs a command, passes signals on to it, and ends this process as it ended. What launchers keep to
 * themselves when they are asked to be quiet is told: that a rank was killed. Returns only if the
 * command could not be run. */
meg_status meg_supervise(meg_error *e, char *const words[]);

#endif
