/* Foresight: what a forecast knew when it was made, kept for whoever draws it: the machine, the actors, every span of
 * the replay, its critical path, and the alternatives among which the words were chosen. Kept in the context, by
 * the rank that forecasts, if it was asked to.
 */
#ifndef MEG_TRAIN_OUTLOOK_FORESIGHT_H
#define MEG_TRAIN_OUTLOOK_FORESIGHT_H

#include "machine/prices.h"
#include "plan/replay/critical.h"
#include "plan/search/search.h"

typedef struct meg_foresight {
    meg_machine machine;
    meg_prices *described;   /* of a machine whose speed was described; NULL: of this one */
    meg_profile profile;     /* its device must stay */
    char *options;           /* the words, complete */
    int64_t samples, memory; /* of the data set; bytes that a rank may have, 0: no limit */
    meg_whole whole;
    meg_replay replay;
    meg_replay_log log;
    meg_critical critical;
    bool searched;
    meg_search search; /* if so */
} meg_foresight;

/* Plans and replays the words as they are; takes neither the machine's prices nor the search. */
meg_status meg_foresight_make(const meg_search_ask *ask, meg_error *e, const char *options,
                              meg_foresight **out);
void meg_foresight_free(meg_foresight *f); /* accepts NULL */

meg_replay_job meg_foresight_job(const meg_foresight *f);

#endif
