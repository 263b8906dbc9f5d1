/* Advice where a plan needs too much: appended to the message that says so. */
#ifndef MEG_TRAIN_ADVICE_H
#define MEG_TRAIN_ADVICE_H

#include "plan/advice.h"
#include "train/context.h"

typedef struct meg_too_large { /* a plan */
    const char *options;       /* its words */
    int ranks;                 /* it was for */
    int64_t machine;           /* bytes that a machine has; 0: budget= is too small */
} meg_too_large;

/* Not collective. What would fit; returns how many ways were found. */
int meg_context_ways(const meg_graph *g, const meg_data *d, const meg_too_large *plan,
                     meg_advice out[MEG_ADVICES]);

/* Collective. Adds to the context's message, which all ranks have, what would fit: the first rank
 * finds it, and the others wait some seconds. */
void meg_context_advise(const meg_graph *g, const meg_data *d, const meg_too_large *plan);

/* The words of a plan as they were understood, those of its optimizer too. */
const char *meg_plan_words(const meg_plan *p, meg_pool *pool);

#endif
