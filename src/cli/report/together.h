/* What ranks do together to make one trace of many: their clocks are compared, their texts collected. */
#ifndef MEG_CLI_REPORT_TOGETHER_H
#define MEG_CLI_REPORT_TOGETHER_H

#include "comm/comm.h"

#include <stdio.h>

/* Collective. How many seconds this rank's clock is ahead of the first one's: half of the shortest of
 * some round trips, at most, is its error; on one node the clock is the same. */
meg_status meg_together_clock(meg_comm *c, meg_error *e, double *ahead);

/* Collective. Appends what the files of all ranks have, in their order, to that of the first. */
meg_status meg_together_collect(meg_comm *c, meg_error *e, FILE *mine);

#endif
