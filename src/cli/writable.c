/* Files that will be written: see writable.h. */
#include "cli/writable.h"
#include "base/files/outfile.h"
#include "base/option.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

meg_status meg_writable(meg_error *e, const char *path)
{
    if (!*path) return MEG_OK;
    const char *slash = strrchr(path, '/');
    char folder[MEG_TEXT] = ".";
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    MEG_CHECK(e, access(folder, W_OK) == 0, MEG_EIO, "cannot write %s: %s", path, strerror(errno));
    return meg_outfile_check(e, path);
}
