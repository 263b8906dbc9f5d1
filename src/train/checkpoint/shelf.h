/* The shelf: the folder that a job's checkpoints stand in.
 *
 *     step-00000900/       complete: got its name by renaming, after everything in it was synced
 *     step-00001000/
 *     step-00001100.tmp/   being written, or left over from a job that died; or being removed
 *     lock                 held by the job that writes here
 *
 * Names say what may be looked at; whether it is sound, its manifest says (manifest.h). For rank 0.
 */
#ifndef MEG_TRAIN_CHECKPOINT_SHELF_H
#define MEG_TRAIN_CHECKPOINT_SHELF_H

#include "base/status.h"

#include <limits.h>

enum {
    MEG_SHELF_PATH = PATH_MAX + 64
};

typedef struct meg_shelf {
    char path[PATH_MAX]; /* longer ones no system takes */
    int lock;            /* -1: none */
} meg_shelf;

/* Makes the folder if need be, takes its lock (a job that is just dying is waited for), removes what
 * dead jobs have left. */
meg_status meg_shelf_open(meg_shelf *s, meg_error *e, const char *path);
void meg_shelf_close(meg_shelf *s);

/* Steps of the checkpoints, newest first, into an array to be freed. */
meg_status meg_shelf_list(const meg_shelf *s, meg_error *e, int64_t **step, int *count);
void meg_shelf_name(const meg_shelf *s, int64_t step, char path[MEG_SHELF_PATH]);

/* Makes an empty temporary folder for a checkpoint; `publish` gives it its name, in place of one
 * that may have had it; `drop` removes it. */
meg_status meg_shelf_begin(meg_shelf *s, meg_error *e, int64_t step, char path[MEG_SHELF_PATH]);
meg_status meg_shelf_publish(meg_shelf *s, meg_error *e, int64_t step);
void meg_shelf_drop(meg_shelf *s, int64_t step);

/* Removes all but the newest `keep` up to `step`. What is newer is not ours to judge: it was found
 * damaged, and gives way when its step comes again. */
meg_status meg_shelf_prune(meg_shelf *s, meg_error *e, int64_t step, int64_t keep);

#endif
