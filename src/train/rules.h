/* Words of the context and of the trainer that have no effect: see base/rule.h. */
#ifndef MEG_TRAIN_RULES_H
#define MEG_TRAIN_RULES_H

#include "base/rule.h"
#include "data/data.h"
#include "train/trainer.h"

/* `text`: the option string that the context was opened with. */
meg_status meg_context_judge(const meg_context *ctx, meg_error *e, const char *text);

/* Reads the trainer's words into `out` and refuses those that have no effect; warns about them, too,
 * if there is a log, which wants the data set. */
meg_status meg_trainer_read(meg_error *e, const meg_logger *log, const char *text,
                            const meg_dataset *set, meg_trainer_options *out);

#endif
