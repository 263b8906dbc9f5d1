/* What commands say of all ranks. */
#ifndef MEG_CLI_RANKS_H
#define MEG_CLI_RANKS_H

#include "cli/session.h"

/* Collective. What each rank needs: s->needs. */
meg_status meg_ranks_know(meg_session *s);

/* The plan's summary, and what each rank needs, if there are several. */
void meg_ranks_summary(const meg_session *s, FILE *out);

/* How many machines with so many bytes each hold the ranks; 0: not even one rank each. */
int meg_ranks_machines(const meg_session *s, int64_t bytes);

/* The largest arena of all ranks. */
int64_t meg_ranks_bytes(const meg_session *s);

/* Predicted seconds of a step: those of the rank with most kernels; waiting is not counted. */
double meg_ranks_seconds(const meg_session *s);

/* Plans for imaginary ranks: s->plan becomes the first one's, s->needs that of all. */
meg_status meg_ranks_imagine(meg_session *s, int ranks);

/* Collective. The mean over all ranks. */
meg_status meg_ranks_mean(meg_session *s, double *value);

#endif
