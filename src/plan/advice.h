/* What would fit where a plan does not: a few other plans, tried one after the other in the order of
 * simplicity. Pure, like all of planning; each that is named was planned for all its ranks and fits.
 *
 *     more micro-batches       on the same ranks
 *     blocks run again         in backward (recompute=segments), on the same ranks
 *     the same words           with the ranks on more machines
 *     more ranks               that share the samples; their weights, too (zero=3)
 *     stages                   as many as ranks
 *     a mesh                   of pixels, voxels or tokens; and zero=3; of channels
 */
#ifndef MEG_PLAN_ADVICE_H
#define MEG_PLAN_ADVICE_H

#include "plan/plan.h"

typedef struct meg_advice_ask {
    const meg_graph *graph;
    const meg_profile *profile;
    const char *options; /* words of the plan that does not fit */
    int64_t samples;     /* of the data set; 0: unknown */
    int ranks, machines; /* machines: that they are on */
    int64_t machine;     /* bytes of one, which its ranks share; 0: budget= is too small */
    bool (*enough)(void *context,
                   int kind); /* asked before a rank is planned: enough of this kind of
                                                advice? NULL: never */
    void *context;
} meg_advice_ask;

typedef struct meg_advice {
    char words[MEG_TEXT]; /* in place of those of the plan, or besides them: "micro=4 norm=8" */
    int ranks, machines;  /* machines: how many such ones hold the ranks; of a budget: 0 */
    int64_t bytes;        /* of the rank, or machine, that needs most */
    int64_t norm; /* batch norm would be over so many samples instead of a batch; 0: as it is */
} meg_advice;

enum {
    MEG_ADVICES = 6
};

/* Returns how many were found. */
int meg_advise(const meg_advice_ask *ask, meg_advice out[MEG_ADVICES]);

/* "; these fit: micro=4 (1.2 GiB), zero=3 on 4 ranks (..)", or that none does. */
void meg_advice_text(const meg_advice list[], int count, char *out, size_t size);

/* How many machines, each with `bytes` and as many ranks as the others, hold ranks that need this
 * much; ranks that follow one another share one. 0: one rank alone needs more. `most`, if any, is
 * set to what the fullest machine needs. */
int meg_machines_for(const int64_t need[], int ranks, int64_t bytes, int64_t *most);

#endif
