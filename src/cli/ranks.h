/* What commands say of all ranks. */
#ifndef MEG_CLI_RANKS_H
#define MEG_CLI_RANKS_H

#include "cli/session.h"

/* The plan's summary, and what each rank needs, if there are several. */
void meg_ranks_summary(const meg_session *s, FILE *out);

/* How many machines with so many bytes each hold the ranks; 0: not even one rank each. */
int meg_ranks_machines(const meg_session *s, int64_t bytes);

/* Plans for imaginary ranks: s->plan becomes the first one's, s->needs that of all. */
meg_status meg_ranks_imagine(meg_session *s, int ranks);

/* Collective. The mean over all ranks. */
meg_status meg_ranks_mean(meg_session *s, double *value);

#endif
