/* A text file, all of it: descriptions of machines, and what they name. */
#ifndef MEG_MACHINE_TEXTFILE_H
#define MEG_MACHINE_TEXTFILE_H

#include "base/status.h"

#include <stddef.h>

enum {
    MEG_TEXTFILE_MAX = 1 << 20 /* bytes; of a larger one just one more is read, so that it shows */
};

/* `name` is seen from a folder, which ends with / or is empty. *text is to be freed, and ends with 0. */
meg_status meg_textfile_read(meg_error *e, const char *folder, const char *name, char **text,
                             size_t *size);

#endif
