/* The manifest of a checkpoint: what it was made from, and the size and checksum of each of its
 * files. It is written last; a folder without it, or with files that differ from it, is no
 * checkpoint.
 *
 *     megalith checkpoint 1
 *     model=cnn fingerprint=91c8a03f5d21e7b4 step=1000 epoch=2 position=62 per_epoch=469 ...
 *     file 5242880 0a1b2c3d model.safetensors
 *     file 5242880 4e5f6071 optimizer.safetensors
 *     end 8293a4b5
 */
#ifndef MEG_TRAIN_CHECKPOINT_MANIFEST_H
#define MEG_TRAIN_CHECKPOINT_MANIFEST_H

#include "base/option.h"

#define MEG_MANIFEST "manifest"

typedef struct meg_manifest {
    char model[MEG_TEXT];
    char fingerprint[MEG_TEXT];    /* of the graph, 16 hex digits */
    int64_t step, epoch, position; /* done: steps, whole epochs, and steps of the next one */
    int64_t per_epoch;             /* steps */
    int64_t samples, batch, norm;  /* of the data set; of a step; of a normalisation group */
    int64_t seed;
    char optimizer[MEG_TEXT], words[MEG_TEXT]; /* its name, its settings */
} meg_manifest;

/* Takes size and checksum of all files in `folder`, which it reads again, and writes the manifest;
 * everything is synced. */
meg_status meg_manifest_write(const meg_manifest *m, meg_error *e, const char *folder);

/* Reads it and proves that the files are what it says. */
meg_status meg_manifest_read(meg_manifest *m, meg_error *e, const char *folder);

/* Proves that one of the files is what the manifest says, without a look at the others, which may be large. */
meg_status meg_manifest_prove(meg_error *e, const char *folder, const char *name);

#endif
