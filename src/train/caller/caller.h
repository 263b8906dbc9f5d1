/* What the rooms of the public interface that meet the caller's memory have in common: tensors.c, predict.c. */
#ifndef MEG_TRAIN_CALLER_CALLER_H
#define MEG_TRAIN_CALLER_CALLER_H

#include "train/trainer.h"

/* ---- numbers.c ---- */

double meg_number_at(const void *data, meg_dtype type, int64_t i); /* of MEG_F32 or MEG_F64 */
void meg_number_set(void *data, meg_dtype type, int64_t i, double number);

/* Is the caller's tensor real, and of these extents? `whose` names what it is read from in messages. */
meg_status meg_caller_check(meg_error *e, const meg_tensor *t, const meg_tensor *like,
                            const char *whose);

/* Collective. What rank 0 has in `data` goes to the other ranks whose `data` is not NULL. */
meg_status meg_caller_share(meg_context *ctx, void *data, int64_t bytes);

/* ---- outputs.c ---- */

typedef struct meg_output { /* of the network, as the caller sees it, or the gradient by an input */
    meg_role role;          /* MEG_ROLE_OUTPUT, MEG_ROLE_INPUT_GRADIENT */
    int index;              /* as the engine knows it (exec/engine.h) */
    const meg_value *value; /* of the source */
    bool last;              /* its channels come last, as in the file that the network is from */
} meg_output;

/* By its name, or, without one, the first. */
meg_status meg_output_find(const meg_trainer *t, const char *name, meg_output *out);
/* Name and shape for so many samples. */
meg_tensor meg_output_tensor(const meg_trainer *t, const meg_output *o, int64_t samples);

typedef struct meg_sample_range { /* where samples of a step go to */
    int64_t first, count;         /* of the tensor: the step's first, and how many count */
} meg_sample_range;

/* Collective. Brings what the last step of an entry left of an output to rank 0's tensor; of gradients by inputs, the
 * sum of all shares. */
meg_status meg_output_gather(meg_trainer *t, int entry, const meg_output *o, meg_tensor *to,
                             meg_sample_range range);

/* Numbers of the caller's, one for each of an output, as the engine takes them: (samples, c, d, h, w). */
void meg_output_take(const meg_output *o, const meg_tensor *from, void *to, meg_dtype real,
                     int64_t samples);

#endif
