/* The words of a plan that goes on from a checkpoint: those that the checkpoint was made under, so that training goes on
 * with the same program and nothing is searched. That is so on as many ranks as before, where no other words are
 * given; else words are looked for as at the beginning, and a line says why.
 *
 * Words of learning (batch, norm, optimizer) never come from there: they are given or have their defaults, and the
 * checkpoint says whether they fit (checkpoint.h).
 */
#ifndef MEG_TRAIN_RESUME_H
#define MEG_TRAIN_RESUME_H

#include "train/forecast.h"

typedef struct meg_resumption { /* of a plan */
    const char *options;        /* words that are given */
    const char *folder;         /* of checkpoints, as the first rank has it; "": none */
} meg_resumption;

/* Collective. As meg_context_forecast_all, but with the words of the checkpoint where they can be taken. */
meg_status meg_context_forecast_again(const meg_graph *g, const meg_data *d,
                                      const meg_resumption *r, meg_forecast *out);

#endif
