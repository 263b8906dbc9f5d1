/* Estimates of shapes by closed forms: seconds and bytes, roughly, in microseconds of work. They decide in which order a search
 * looks at plans exactly, and which it leaves because they need far more memory than there is; never which is best.
 *
 *     seconds   the slowest stage's kernels, halos and sums of channels of a micro-batch, as often as the schedule has
 *               them, bubbles included; half of the sum of gradients
 *     bytes     weights, gradients and states that a rank holds, what its micro-batches in flight keep
 */
#ifndef MEG_PLAN_SEARCH_ESTIMATE_H
#define MEG_PLAN_SEARCH_ESTIMATE_H

#include "plan/search/search.h"

typedef struct meg_estimator meg_estimator;

typedef struct meg_estimate {
    double seconds;
    int64_t bytes; /* 0: not known */
} meg_estimate;

/* options: of one rank that has two micro-batches of a sample each. */
meg_status meg_estimator_new(const meg_search_ask *ask, meg_error *e, meg_pool *pool,
                             const char *options, meg_estimator **out);

/* What each node takes of a micro-batch of so many samples on one rank, in both passes. (nodes) */
void meg_estimator_seconds(const meg_estimator *x, double samples, double out[]);

/* The stage of each node, where the network is cut into so many; NULL: it cannot be. */
const int *meg_estimator_stages(meg_estimator *x, int count);

/* words: more of them, of which zero= and recompute= count. */
meg_estimate meg_estimate_of(meg_estimator *x, const meg_shape *s, const char *words);

#endif
