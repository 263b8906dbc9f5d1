/* Collected tensors to and from safetensors files, in global coordinates and plain format, under the
 * names that PyTorch gives them. For the work of rank 0: see collect.h.
 */
#ifndef MEG_TRAIN_CHECKPOINT_WEIGHTS_H
#define MEG_TRAIN_CHECKPOINT_WEIGHTS_H

#include "import/safetensors/safetensors.h"
#include "train/checkpoint/collect.h"

typedef struct meg_weights_file {
    const char *path;
    const meg_saved_note *note;
    int notes;
    int64_t shard;  /* bytes of a file, at most; 0: one file */
    bool optimizer; /* its states instead of everything else */
} meg_weights_file;

/* Refuses numbers that are not finite: then nothing is saved. */
meg_status meg_weights_write(meg_collection *c, meg_error *e, const meg_weights_file *w);

/* Are all items there, in their shapes? `whose` names the model in messages. */
meg_status meg_weights_check(const meg_collection *c, meg_error *e, const meg_weights_file *w,
                             const meg_safetensors *f, const char *whose);

/* Fills the items from a file that was checked; its numbers may be float or double. */
meg_status meg_weights_read(meg_collection *c, meg_error *e, const meg_weights_file *w,
                            const meg_safetensors *f);

/* Where element `at` of a value lies in a file, or in the caller's memory: some matrices are turned. */
int64_t meg_weights_place(const meg_value *v, int64_t at);

#endif
