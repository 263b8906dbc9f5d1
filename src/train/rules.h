/* Words of the context and of the trainer that have no effect: see base/rule.h. */
#ifndef MEG_TRAIN_RULES_H
#define MEG_TRAIN_RULES_H

#include "base/rule.h"
#include "data/data.h"
#include "train/trainer.h"

/* `text`: the option string that the context was opened with. */
meg_status meg_context_judge(const meg_context *ctx, meg_error *e, const char *text);

typedef struct meg_trainer_words { /* what the trainer's words are read with */
    meg_pool *pool;                /* of their texts */
    const meg_logger *log;  /* is told of those that have no effect; NULL: only refusals count */
    const meg_dataset *set; /* NULL: not known yet; a log wants it */
} meg_trainer_words;

/* Reads the trainer's words into `out` and refuses those that have no effect. */
meg_status meg_trainer_read(const meg_trainer_words *w, meg_error *e, const char *text,
                            meg_trainer_options *out);

#endif
