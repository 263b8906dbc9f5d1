/* Writing safetensors: see safetensors.h. A reader sees the old file or the new one, never a part:
 * the new one is written under another name in the same folder, synced, and renamed over the old;
 * the folder is synced too, or a power cut could undo the renaming.
 *
 * Tensors of wide types come first and the header is padded to 8 bytes, so that whoever maps the
 * file finds its numbers aligned.
 */
#include "import/safetensors.h"

#include "import/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

static const char *const TYPES[] = {
    [MEG_F32] = "F32", [MEG_F64] = "F64", [MEG_I32] = "I32", [MEG_U8] = "U8"};

enum {
    ATTEMPTS = 100
};

typedef struct job { /* one file being written */
    const char *path;
    meg_pool *pool;
    char *temporary;         /* NULL: there is none */
    const meg_saved **order; /* (count): as they lie in the file */
    int count;
    char *header; /* padded */
    size_t header_bytes;
    int fd;
} job;

static int64_t bytes_of(const meg_saved *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= t->dims[i];
    return bytes;
}

static int by_name(const void *a, const void *b)
{
    const meg_saved *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_width(const void *a, const void *b)
{
    const meg_saved *const *x = a, *const *y = b;
    int64_t wide_x = meg_dtype_bytes((*x)->dtype), wide_y = meg_dtype_bytes((*y)->dtype);
    return wide_x != wide_y ? (wide_x < wide_y) - (wide_x > wide_y) : by_name(a, b);
}

static meg_status check_tensor(meg_error *e, const job *w, const meg_saved *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    bool fits = 0 <= t->rank && t->rank <= MEG_SAVED_RANK;
    for (int i = 0; i < t->rank && fits; i++)
        fits = t->dims[i] >= 0 && !__builtin_mul_overflow(bytes, t->dims[i], &bytes);
    MEG_CHECK(e, fits, MEG_EARG, "%s: tensor '%.100s' has a shape that cannot be saved", w->path,
              t->name);
    MEG_CHECK(e, strcmp(t->name, "__metadata__") != 0, MEG_EARG,
              "%s: a tensor cannot be named __metadata__", w->path);
    return MEG_OK;
}

static meg_status put_in_order(meg_error *e, job *w, const meg_saved_file *content)
{
    w->count = content->count;
    w->order = meg_pool_alloc(w->pool, (size_t)w->count * sizeof *w->order);
    for (int i = 0; i < w->count; i++) {
        w->order[i] = &content->tensor[i];
        MEG_TRY(e, check_tensor(e, w, w->order[i]));
    }
    qsort(w->order, (size_t)w->count, sizeof *w->order, by_name);
    for (int i = 1; i < w->count; i++)
        MEG_CHECK(e, by_name(&w->order[i - 1], &w->order[i]) != 0, MEG_EARG,
                  "%s: two tensors are named '%.100s'", w->path, w->order[i]->name);
    qsort(w->order, (size_t)w->count, sizeof *w->order, by_width);
    return MEG_OK;
}

static void print_notes(FILE *out, const meg_saved_file *content)
{
    if (!content->notes) return;
    fputs("\"__metadata__\":{", out);
    for (int i = 0; i < content->notes; i++) {
        if (i) fputc(',', out);
        meg_json_print(out, content->note[i].key);
        fputc(':', out);
        meg_json_print(out, content->note[i].value);
    }
    fputs(content->count ? "}," : "}", out);
}

static void print_tensor(FILE *out, const meg_saved *t, int64_t at)
{
    meg_json_print(out, t->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", TYPES[t->dtype]);
    for (int i = 0; i < t->rank; i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", t->dims[i]);
    fprintf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + bytes_of(t));
}

/* The 8 bytes of its length, the JSON, and blanks up to a multiple of 8. */
static meg_status make_header(meg_error *e, job *w, const meg_saved_file *content)
{
    int64_t at = 0;
    FILE *out = open_memstream(&w->header, &w->header_bytes);
    MEG_CHECK(e, out, MEG_ENOMEM, "%s: no memory", w->path);
    fputs("12345678{", out);
    print_notes(out, content);
    for (int i = 0; i < w->count; i++) {
        if (i) fputc(',', out);
        print_tensor(out, w->order[i], at);
        at += bytes_of(w->order[i]);
    }
    fputc('}', out);
    fflush(out);
    for (size_t i = w->header_bytes; i % 8; i++)
        fputc(' ', out);
    bool bad = ferror(out);
    bad = fclose(out) || bad;
    MEG_CHECK(e, !bad, MEG_ENOMEM, "%s: no memory for the header", w->path);
    uint64_t length = w->header_bytes - 8;
    memcpy(w->header, &length, 8);
    return MEG_OK;
}

/* A name of its own for each process; one that is left over from a crash is stepped over. */
static meg_status open_temporary(meg_error *e, job *w)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        char *name = meg_pool_text(w->pool, "%s.%ld.%d.tmp", w->path, (long)getpid(), i);
        w->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) {
            w->temporary = name;
            return MEG_OK;
        }
        MEG_CHECK(e, errno == EEXIST, MEG_EIO, "cannot write %s: %s", w->path, strerror(errno));
    }
    return meg_fail(e, MEG_EIO, "cannot write %s: remove the left-over %s.*.tmp", w->path, w->path);
}

static meg_status write_bytes(meg_error *e, const job *w, const void *data, int64_t bytes)
{
    enum {
        CHUNK = 1 << 30 /* Linux writes at most 2 GB in one call */
    };
    for (int64_t done = 0; done < bytes;) {
        int64_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        ssize_t got = write(w->fd, (const char *)data + done, (size_t)part);
        if (got < 0 && errno == EINTR) continue;
        MEG_CHECK(e, got >= 0, MEG_EIO,
                  "cannot write %s: %s; it is unchanged (a new one is first written beside it)",
                  w->path, strerror(errno));
        done += got;
    }
    return MEG_OK;
}

static meg_status write_all(meg_error *e, job *w)
{
    MEG_TRY(e, open_temporary(e, w));
    MEG_TRY(e, write_bytes(e, w, w->header, (int64_t)w->header_bytes));
    for (int i = 0; i < w->count; i++)
        MEG_TRY(e, write_bytes(e, w, w->order[i]->data, bytes_of(w->order[i])));
    MEG_CHECK(e, fsync(w->fd) == 0, MEG_EIO, "cannot write %s: %s; it is unchanged", w->path,
              strerror(errno));
    int fd = w->fd;
    w->fd = -1;
    MEG_CHECK(e, close(fd) == 0, MEG_EIO, "cannot write %s: %s; it is unchanged", w->path,
              strerror(errno));
    return MEG_OK;
}

static const char *folder_of(const job *w)
{
    const char *slash = strrchr(w->path, '/');
    if (!slash) return ".";
    return slash == w->path ? "/" : meg_pool_text(w->pool, "%.*s", (int)(slash - w->path), w->path);
}

static meg_status put_in_place(meg_error *e, job *w)
{
    MEG_CHECK(e, rename(w->temporary, w->path) == 0, MEG_EIO, "cannot replace %s: %s", w->path,
              strerror(errno));
    w->temporary = NULL;
    int fd = open(folder_of(w), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return MEG_OK; /* may be written to, but not opened */
    bool synced = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); /* some cannot sync folders */
    int why = errno;
    if (fd >= 0) close(fd);
    MEG_CHECK(e, synced, MEG_EIO, "%s is written, but its folder could not be synced: %s", w->path,
              strerror(why));
    return MEG_OK;
}

meg_status meg_safetensors_write(meg_error *e, const char *path, const meg_saved_file *content)
{
    job w = {.path = path, .pool = meg_pool_new(), .fd = -1};
    meg_status status = put_in_order(e, &w, content);
    if (status == MEG_OK) status = make_header(e, &w, content);
    if (status == MEG_OK) status = write_all(e, &w);
    if (status == MEG_OK) status = put_in_place(e, &w);

    if (w.fd >= 0) close(w.fd);
    if (w.temporary) unlink(w.temporary);
    free(w.header);
    meg_pool_free(w.pool);
    return status;
}
