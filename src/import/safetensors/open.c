/* Opening what a path stands for: a safetensors file, the index of several, or a folder with one of
 * them: see safetensors.h.
 */
#include "import/foreign.h"
#include "import/safetensors/file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), part = strlen(tail);
    return length >= part && strcmp(text + length - part, tail) == 0;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The file that a path stands for: itself; in a folder, what others call it; where only an index is
 * beside it, that. */
static char *resolve(meg_pool *pool, const char *path)
{
    struct stat info;
    char *file = meg_pool_text(pool, "%s", path);
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (folder) file = meg_pool_text(pool, "%s/model.safetensors", path);
    char *index = meg_pool_text(pool, "%s" MEG_SAVED_INDEX, file);
    if (!exists(file) && exists(index)) return index;
    return folder && !exists(file) ? meg_pool_text(pool, "%s", path) : file;
}

meg_status meg_safetensors_open(meg_error *e, const char *path, meg_safetensors **out)
{
    meg_safetensors *f = meg_saved_new(path);
    f->path = resolve(f->pool, path);
    bool index = ends_with(f->path, MEG_SAVED_INDEX);
    meg_status status = index ? meg_saved_read_index(f, e) : meg_saved_read(f, e);
    if (status != MEG_OK) {
        status = meg_foreign_weights(e, f->path);
        meg_safetensors_close(f);
        return meg_trail(e, status, __func__);
    }
    *out = f;
    return MEG_OK;
}
