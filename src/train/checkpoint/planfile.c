/* Plan files on disk: see planfile.h. */
#include "train/checkpoint/planfile.h"
#include "base/files/outfile.h"
#include "plan/named.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

meg_status meg_plan_file_read(meg_error *e, const char *path, meg_plan_text **out)
{
    size_t most = MEG_PLAN_TEXT_MAX + 1; /* one more: the reader refuses what is too long */
    char names[256] = "";
    FILE *file = fopen(path, "rb");
    meg_named_plan_names(names, sizeof names);
    MEG_CHECK(e, file, MEG_EIO, "cannot open plan %s: %s; plans that need no file: %s", path,
              strerror(errno), names);
    char *text = malloc(most);
    if (!text) abort();
    size_t size = fread(text, 1, most, file);
    bool bad = ferror(file);
    int why = errno;
    fclose(file);
    meg_status status = bad ? meg_fail(e, MEG_EIO, "cannot read plan %s: %s", path, strerror(why))
                            : meg_plan_text_read(e, path, text, size, out);
    free(text);
    return status;
}

meg_status meg_plan_file_write(meg_error *e, const char *path, const meg_plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) abort();
    meg_plan_text_write(p, out);
    fclose(out);
    meg_status status = meg_outfile_save(e, path, text, (int64_t)size);
    free(text);
    return status;
}
