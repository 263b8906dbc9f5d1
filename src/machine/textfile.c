/* Text files: see textfile.h. */
#include "machine/textfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

meg_status meg_textfile_read(meg_error *e, const char *folder, const char *name, char **text,
                             size_t *size)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s%s", *name == '/' ? "" : folder, name);
    MEG_CHECK(e, length < (int)sizeof path, MEG_EARG, "a path of %d letters", length);
    FILE *file = fopen(path, "rb");
    MEG_CHECK(e, file, MEG_EIO, "cannot open %s: %s", path, strerror(errno));
    char *bytes = calloc(1, MEG_TEXTFILE_MAX + 2);
    if (!bytes) abort();
    size_t got = fread(bytes, 1, MEG_TEXTFILE_MAX + 1, file);
    bool bad = ferror(file) != 0;
    fclose(file);
    if (bad) free(bytes);
    MEG_CHECK(e, !bad, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
    *text = bytes;
    *size = got;
    return MEG_OK;
}
