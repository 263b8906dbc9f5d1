/* Checkpoints: everything that training needs to go on, in global coordinates, so that it may go on
 * with other ranks, another plan or another device.
 *
 *     DIR/step-00001000/   model.safetensors       weights, running statistics
 *                          optimizer.safetensors   its states, "conv1.weight#momentum"
 *                          plan                    the words of its plan (plan/text.h)
 *                          manifest                step, seed, checksums, ... (manifest.h)
 *
 * Random numbers are keyed by (seed, step, name, element), the order of samples and their
 * augmentation by (seed, epoch, sample): step and seed are all that there is to know of them.
 */
#ifndef MEG_TRAIN_CHECKPOINT_CHECKPOINT_H
#define MEG_TRAIN_CHECKPOINT_CHECKPOINT_H

#include "base/log.h"
#include "exec/engine.h"
#include "plan/text.h"

typedef struct meg_checkpoints meg_checkpoints;

typedef enum meg_resume {
    MEG_RESUME_AUTO, /* if there is a checkpoint */
    MEG_RESUME_YES,
    MEG_RESUME_NO /* there must not be any */
} meg_resume;

typedef struct meg_checkpoints_options {
    const char *folder;
    int64_t keep;  /* the newest so many */
    int64_t shard; /* bytes of a file, at most; 0: no limit */
    int resume;    /* meg_resume */
    meg_logger log;
} meg_checkpoints_options;

typedef struct meg_position { /* of training; the plan knows batch and optimizer */
    int64_t step;             /* steps done */
    int64_t per_epoch;        /* steps */
    int64_t samples;          /* of the data set; 0: unknown */
    int64_t seed;
} meg_position;

/* All are collective. Rank 0 touches the folder; its errors are those of all. Engine and `comm`
 * (NULL: one rank) stay the caller's. */
meg_status meg_checkpoints_open(meg_engine *x, meg_comm *comm, meg_error *e,
                                const meg_checkpoints_options *o, meg_checkpoints **out);
void meg_checkpoints_close(meg_checkpoints *k);

/* Of the step that `at` says; does nothing if that was written or read last. After an error the
 * older ones are as they were. */
meg_status meg_checkpoint_write(meg_checkpoints *k, meg_error *e, const meg_position *at);

/* Loads the newest sound checkpoint, as the options have it, and sets `at->step`, 0 if there is none.
 * One that is damaged, or of another model, is left out with a warning; one of another seed, batch,
 * data set or optimizer is refused. */
meg_status meg_checkpoint_resume(meg_checkpoints *k, meg_error *e, meg_position *at);

/* Not collective. The words of the plan under which the newest checkpoint of a folder was made, of which they
 * are sound; its weights are not looked at. *out is NULL where no checkpoint has words: those of old have none. */
void meg_checkpoint_words(const char *folder, meg_plan_text **out);

#endif
