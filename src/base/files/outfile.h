/* A file that is written beside its path, synced, and renamed over it: a reader sees the old file
 * or the new one, never a part.
 */
#ifndef MEG_BASE_FILES_OUTFILE_H
#define MEG_BASE_FILES_OUTFILE_H

#include "base/status.h"

#include <stdbool.h>

typedef struct meg_outfile {
    const char *path;
    char *temporary; /* NULL: there is none */
    int fd;
} meg_outfile;

/* Renaming over a device, a pipe or a folder would do away with it: only files are replaced. */
meg_status meg_outfile_check(meg_error *e, const char *path);
meg_status meg_outfile_open(meg_outfile *f, meg_error *e, const char *path);
meg_status meg_outfile_write(meg_outfile *f, meg_error *e, const void *data, int64_t bytes);
meg_status meg_outfile_sync(meg_outfile *f, meg_error *e);   /* the content is complete */
meg_status meg_outfile_commit(meg_outfile *f, meg_error *e); /* syncs, if need be, and renames */
void meg_outfile_close(meg_outfile *f); /* in any case; removes what was not committed */

/* All of it at once. */
meg_status meg_outfile_save(meg_error *e, const char *path, const void *data, int64_t bytes);

/* Has a folder's list of files reached the disk? Else errno says why not. Some folders may be written to,
 * but not opened; some file systems cannot sync folders: both count as done. */
bool meg_folder_sync(const char *path);

#endif
