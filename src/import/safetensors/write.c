/* Writing safetensors: see safetensors.h. Files are there whole or not at all (outfile.h).
 *
 * Tensors of wide types come first and the header is padded to 8 bytes, so that whoever maps the
 * file finds its numbers aligned.
 */
#include "import/safetensors/safetensors.h"

#include "base/files/json.h"
#include "base/files/outfile.h"
#include "base/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

static const char *const TYPES[] = {[MEG_F32] = "F32", [MEG_F64] = "F64", [MEG_I32] = "I32",
                                    [MEG_I64] = "I64", [MEG_U8] = "U8",   [MEG_BOOL] = "BOOL"};

typedef struct shard { /* one file being written */
    const char *path;
    const meg_saved **order; /* (count): as they lie in the file */
    int count;
    int64_t bytes; /* of data */
    char *header;  /* padded */
    size_t header_bytes;
    meg_outfile file;
} shard;

typedef struct job {
    meg_error *error;
    const char *path;
    meg_pool *pool;
    const meg_saved_file *content;
    const meg_saved_source *source;
    int shards;
    shard *shard;
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

static meg_status check_tensor(const job *w, const meg_saved *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    bool fits = 0 <= t->rank && t->rank <= MEG_SAVED_RANK;
    for (int i = 0; i < t->rank && fits; i++)
        fits = t->dims[i] >= 0 && !__builtin_mul_overflow(bytes, t->dims[i], &bytes);
    MEG_CHECK(w->error, fits, MEG_EARG, "%s: tensor '%.100s' has a shape that cannot be saved",
              w->path, t->name);
    MEG_CHECK(w->error, strcmp(t->name, "__metadata__") != 0, MEG_EARG,
              "%s: a tensor cannot be named __metadata__", w->path);
    return MEG_OK;
}

static meg_status check_content(const job *w)
{
    int count = w->content->count;
    const meg_saved **order = meg_pool_alloc(w->pool, (size_t)count * sizeof *order);
    for (int i = 0; i < count; i++) {
        order[i] = &w->content->tensor[i];
        MEG_TRY(w->error, check_tensor(w, order[i]));
    }
    if (count) qsort(order, (size_t)count, sizeof *order, by_name);
    for (int i = 1; i < count; i++)
        MEG_CHECK(w->error, by_name(&order[i - 1], &order[i]) != 0, MEG_EARG,
                  "%s: two tensors are named '%.100s'", w->path, order[i]->name);
    return MEG_OK;
}

/* ---- shards ---- */

/* Tensors stay in the order in which they are given; a shard ends before it would get too large. */
static void share_out(job *w, int64_t limit)
{
    int count = w->content->count;
    w->shard = meg_pool_alloc(w->pool, (size_t)(count + 1) * sizeof *w->shard);
    const meg_saved **order = meg_pool_alloc(w->pool, (size_t)(count + 1) * sizeof *order);
    w->shards = 1;
    w->shard[0] = (shard){.order = order};
    for (int i = 0; i < count; i++) {
        int64_t bytes = bytes_of(&w->content->tensor[i]);
        shard *s = &w->shard[w->shards - 1];
        if (limit && s->count && bytes > limit - s->bytes) {
            s = &w->shard[w->shards++];
            *s = (shard){.order = order + i};
        }
        s->order[s->count++] = &w->content->tensor[i];
        s->bytes += bytes;
    }
    for (int i = 0; i < w->shards; i++) {
        shard *s = &w->shard[i];
        s->file.fd = -1;
        if (s->count) qsort(s->order, (size_t)s->count, sizeof *s->order, by_width);
    }
}

/* "net.safetensors" -> "net-00001-of-00003.safetensors" */
static void name_shards(job *w)
{
    static const char tail[] = ".safetensors";
    size_t length = strlen(w->path), part = sizeof tail - 1;
    if (length > part && strcmp(w->path + length - part, tail) == 0) length -= part;
    for (int i = 0; i < w->shards; i++)
        w->shard[i].path = w->shards == 1
                               ? w->path
                               : meg_pool_text(w->pool, "%.*s-%05d-of-%05d%s", (int)length, w->path,
                                               i + 1, w->shards, tail);
}

/* ---- headers ---- */

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
static meg_status make_header(const job *w, shard *s)
{
    int64_t at = 0;
    FILE *out = open_memstream(&s->header, &s->header_bytes);
    MEG_CHECK(w->error, out, MEG_ENOMEM, "%s: no memory", s->path);
    fputs("12345678{", out);
    print_notes(out, w->content);
    for (int i = 0; i < s->count; i++) {
        if (i) fputc(',', out);
        print_tensor(out, s->order[i], at);
        at += bytes_of(s->order[i]);
    }
    fputc('}', out);
    fflush(out);
    for (size_t i = s->header_bytes; i % 8; i++)
        fputc(' ', out);
    bool bad = ferror(out);
    bad = fclose(out) || bad;
    MEG_CHECK(w->error, !bad, MEG_ENOMEM, "%s: no memory for the header", s->path);
    uint64_t length = s->header_bytes - 8;
    memcpy(s->header, &length, 8);
    return MEG_OK;
}

/* ---- data ---- */

typedef struct sink { /* where a source puts the bytes of a tensor */
    meg_error *error;
    meg_outfile *file;
    int64_t left;
} sink;

static meg_status put_piece(void *to, const void *piece, int64_t bytes)
{
    sink *s = to;
    MEG_CHECK(s->error, bytes <= s->left, MEG_EARG, "%s: a tensor of more bytes than its shape has",
              s->file->path);
    s->left -= bytes;
    return meg_outfile_write(s->file, s->error, piece, bytes);
}

static meg_status write_tensor(const job *w, shard *s, const meg_saved *t)
{
    if (!w->source) return meg_outfile_write(&s->file, w->error, t->data, bytes_of(t));
    sink to = {w->error, &s->file, bytes_of(t)};
    MEG_TRY(w->error, w->source->get(w->source->context, t, put_piece, &to));
    MEG_CHECK(w->error, to.left == 0, MEG_EARG, "%s: '%.100s' has fewer bytes than its shape",
              s->path, t->name);
    return MEG_OK;
}

static meg_status write_shard(const job *w, shard *s)
{
    MEG_TRY(w->error, make_header(w, s));
    MEG_TRY(w->error, meg_outfile_open(&s->file, w->error, s->path));
    MEG_TRY(w->error, meg_outfile_write(&s->file, w->error, s->header, (int64_t)s->header_bytes));
    for (int i = 0; i < s->count; i++)
        MEG_TRY(w->error, write_tensor(w, s, s->order[i]));
    return meg_outfile_sync(&s->file, w->error);
}

/* ---- the index ---- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static meg_status write_index(const job *w)
{
    char *text = NULL;
    size_t size = 0;
    int64_t total = 0;
    meg_outfile file = {.fd = -1};
    FILE *out = open_memstream(&text, &size);
    MEG_CHECK(w->error, out, MEG_ENOMEM, "%s: no memory", w->path);
    for (int i = 0; i < w->shards; i++)
        total += w->shard[i].bytes;
    fprintf(out, "{\"metadata\": {\"total_size\": %" PRId64 "},\n\"weight_map\": {", total);
    for (int i = 0, first = 1; i < w->shards; i++)
        for (int k = 0; k < w->shard[i].count; k++, first = 0) {
            fputs(first ? "\n" : ",\n", out);
            meg_json_print(out, w->shard[i].order[k]->name);
            fputs(": ", out);
            meg_json_print(out, name_of(w->shard[i].path));
        }
    fputs("\n}}\n", out);
    bool bad = fclose(out) != 0;
    const char *path = meg_pool_text(w->pool, "%s" MEG_SAVED_INDEX, w->path);
    meg_status status = bad ? meg_fail(w->error, MEG_ENOMEM, "%s: no memory", path) : MEG_OK;
    if (status == MEG_OK) status = meg_outfile_open(&file, w->error, path);
    if (status == MEG_OK) status = meg_outfile_write(&file, w->error, text, (int64_t)size);
    if (status == MEG_OK) status = meg_outfile_commit(&file, w->error);
    meg_outfile_close(&file);
    free(text);
    return status;
}

/* ---- the whole ---- */

static meg_status write_all(job *w, int64_t limit)
{
    MEG_TRY(w->error, check_content(w));
    share_out(w, limit);
    name_shards(w);
    for (int i = 0; i < w->shards; i++)
        MEG_TRY(w->error, write_shard(w, &w->shard[i]));
    for (int i = 0; i < w->shards; i++)
        MEG_TRY(w->error, meg_outfile_commit(&w->shard[i].file, w->error));
    if (w->shards == 1) return MEG_OK;
    MEG_TRY(w->error, write_index(w));
    unlink(w->path); /* readers would take it before the index */
    return MEG_OK;
}

meg_status meg_safetensors_stream(meg_error *e, const char *path, const meg_saved_file *content,
                                  const meg_saved_source *source, int64_t limit)
{
    job w = {
        .error = e, .path = path, .pool = meg_pool_new(), .content = content, .source = source};
    meg_status status = write_all(&w, limit);
    for (int i = 0; i < w.shards; i++) {
        meg_outfile_close(&w.shard[i].file);
        free(w.shard[i].header);
    }
    meg_pool_free(w.pool);
    return status;
}

meg_status meg_safetensors_write(meg_error *e, const char *path, const meg_saved_file *content)
{
    return meg_safetensors_stream(e, path, content, NULL, 0);
}
