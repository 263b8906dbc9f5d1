/* An open safetensors file: mapped, so that only what is used is read, and asked for its tensors. What
 * fills it in are header.c, of one file, and index.c, of several.
 */
#include "import/safetensors/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int meg_saved_by_name(const void *a, const void *b)
{
    const meg_saved_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

meg_safetensors *meg_saved_new(const char *path)
{
    meg_pool *pool = meg_pool_new();
    meg_safetensors *f = meg_pool_alloc(pool, sizeof *f);
    f->pool = pool;
    f->path = meg_pool_text(pool, "%s", path);
    return f;
}

meg_status meg_saved_map(meg_safetensors *f, meg_error *e)
{
    struct stat info;
    void *map = MAP_FAILED;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    MEG_CHECK(e, fd >= 0, MEG_EIO, "cannot open %s: %s", f->path, strerror(errno));
    bool known = fstat(fd, &info) == 0, regular = known && S_ISREG(info.st_mode);
    if (regular && info.st_size > 0)
        map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int why = errno;
    close(fd);
    MEG_CHECK(e, regular, MEG_EIO, "cannot read %s: it is not a file", f->path);
    MEG_CHECK(e, info.st_size > 0, MEG_EDATA, "%s is empty", f->path);
    MEG_CHECK(e, map != MAP_FAILED, MEG_EIO, "cannot map %s: %s", f->path, strerror(why));
    f->map = map;
    f->bytes = (size_t)info.st_size;
    return MEG_OK;
}

void meg_safetensors_close(meg_safetensors *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->shard_count; i++)
        meg_safetensors_close(f->shards[i]);
    free(f->shards);
    if (f->map) munmap(f->map, f->bytes);
    free(f->entries);
    free(f->notes);
    meg_pool_free(f->pool);
}

/* ---- access ---- */

int meg_safetensors_count(const meg_safetensors *f)
{
    return (int)f->count;
}

const char *meg_safetensors_name(const meg_safetensors *f, int i)
{
    return i >= 0 && (size_t)i < f->count ? f->entries[i].name : NULL;
}

static int name_order(const void *name, const void *t)
{
    return strcmp(name, ((const meg_saved_entry *)t)->name);
}

int meg_safetensors_find(const meg_safetensors *f, const char *name)
{
    if (!f->count) return -1;
    const meg_saved_entry *t = bsearch(name, f->entries, f->count, sizeof *t, name_order);
    return t ? (int)(t - f->entries) : -1;
}

const char *meg_safetensors_note(const meg_safetensors *f, const char *key)
{
    for (size_t i = 0; i < f->note_count; i++)
        if (strcmp(f->notes[i].key, key) == 0) return f->notes[i].value;
    return f->shard_count ? meg_safetensors_note(f->shards[0], key) : NULL;
}

static meg_status entry_of(const meg_safetensors *f, meg_error *e, int i,
                           const meg_saved_entry **out)
{
    MEG_CHECK(e, i >= 0 && (size_t)i < f->count, MEG_EARG, "%s: tensor %d, but it has %zu", f->path,
              i, f->count);
    const meg_saved_entry *t = &f->entries[i];
    MEG_CHECK(e, t->rank <= MEG_SAVED_RANK, MEG_EUNSUPPORTED,
              "%s: tensor '%.100s' has %d axes; at most %d are supported", f->path, t->name,
              t->rank, MEG_SAVED_RANK);
    *out = t;
    return MEG_OK;
}

meg_status meg_safetensors_at(const meg_safetensors *f, meg_error *e, int i, meg_saved *out)
{
    const meg_saved_entry *t = NULL;
    MEG_TRY(e, entry_of(f, e, i, &t));
    MEG_CHECK(e, t->type->ours >= 0, MEG_EUNSUPPORTED,
              "%s: tensor '%.100s' has type %.20s; supported: F32 F64 I32 U8", f->path, t->name,
              t->dtype);
    *out = (meg_saved){
        .name = t->name, .dtype = (meg_dtype)t->type->ours, .rank = t->rank, .data = t->data};
    memcpy(out->dims, t->dims, sizeof t->dims);
    return MEG_OK;
}

meg_status meg_safetensors_numbers(const meg_safetensors *f, meg_error *e, int i,
                                   meg_saved_numbers *out)
{
    const meg_saved_entry *t = NULL;
    MEG_TRY(e, entry_of(f, e, i, &t));
    MEG_CHECK(
        e, t->type->number, MEG_EUNSUPPORTED,
        "%s: tensor '%.100s' has type %.20s; supported: F64 F32 F16 BF16, whole numbers, BOOL",
        f->path, t->name, t->dtype);
    *out = (meg_saved_numbers){.rank = t->rank,
                               .whole = t->type->whole,
                               .data = t->data,
                               .bytes = t->type->bytes,
                               .number = t->type->number};
    memcpy(out->dims, t->dims, sizeof t->dims);
    return MEG_OK;
}
