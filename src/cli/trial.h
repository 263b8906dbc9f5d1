/* Trials: a plan trained on synthetic data of the network's own shapes, to see how long a step takes and how much memory.
 * What `bench` and `compare` have in common.
 *
 * A step is timed by the trainer, with the wait for its batch, which the loader's thread has made during the step
 * before. Steps are run one by one: ranks meet between them, and the trainer's own sums need the same memory each time.
 */
#ifndef MEG_CLI_TRIAL_H
#define MEG_CLI_TRIAL_H

#include "cli/report/bar.h"
#include "cli/report/measure.h"
#include "cli/session.h"

typedef struct meg_trial_run {
    meg_trainer *trainer; /* the caller's */
    meg_measure steps;    /* seconds of each that counts */
    meg_report last;      /* of the last step */
} meg_trial_run;

typedef struct meg_march { /* through all steps of a command, for its bar */
    meg_bar bar;
    int64_t done, total;
} meg_march;

/* What Horovod's and PyTorch's benchmarks take, where nothing is said: momentum, and a rate at which nothing explodes.
 * plan: a plan file, which says all, or a name, which leaves the optimizer open; NULL: neither. */
const char *meg_trial_words(const meg_arguments *a, const char *plan);
extern const char meg_trial_rate[];

/* Collective. Some batches for a plan of the session's graph. */
meg_status meg_trial_data(meg_session *s, const meg_plan *p, meg_data **out);

/* Collective. The message is the context's. */
meg_status meg_trial_steps(meg_trial_run *t, meg_march *m, int64_t steps, bool counts);

#endif
