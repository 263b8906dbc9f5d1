/* Reading the index of sharded safetensors: see safetensors.h. The index is believed no more than
 * the files: every tensor must be where it says, and nowhere else.
 */
#include "base/files/json.h"
#include "import/safetensors/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const size_t INDEX_MAX = 100 * 1000 * 1000; /* bytes, as a header may have */

typedef struct place { /* a row of weight_map */
    char *tensor, *file;
} place;

typedef struct map {
    meg_safetensors *file;
    meg_error *error;
    place *place;
    size_t count, room;
    bool seen;
} map;

/* ---- the index ---- */

static meg_status malformed(const map *m, const meg_json *j, const char *expected)
{
    return meg_fail(m->error, MEG_EDATA, "%s: the index is malformed at byte %td: expected %s",
                    m->file->path, j->at - m->file->map, expected);
}

#define EXPECT(condition, what)                                                                    \
    do {                                                                                           \
        if (!(condition)) return malformed(m, j, what);                                            \
    } while (0)

/* Steps over a value of any kind: what others write beside weight_map is theirs. */
static meg_status skip_value(const map *m, meg_json *j)
{
    int64_t depth = 0;
    char *text;
    do {
        if (meg_json_accept(j, '{') || meg_json_accept(j, '[')) depth++;
        else if (depth && (meg_json_accept(j, '}') || meg_json_accept(j, ']'))) depth--;
        else if (j->at < j->end && *j->at == '"')
            EXPECT(meg_json_string(j, m->file->pool, &text), "a string");
        else {
            size_t plain = 0, left = (size_t)(j->end - j->at);
            while (plain < left && !strchr("{}[]\"", j->at[plain]) &&
                   (depth || (j->at[plain] != ',')))
                plain++;
            EXPECT(plain, "a value");
            j->at += plain;
        }
    } while (depth);
    return MEG_OK;
}

static meg_status read_places(map *m, meg_json *j)
{
    EXPECT(!m->seen, "weight_map only once");
    m->seen = true;
    EXPECT(meg_json_accept(j, '{'), "an object of file names");
    if (meg_json_accept(j, '}')) return MEG_OK;
    do {
        place p;
        EXPECT(meg_json_string(j, m->file->pool, &p.tensor), "the name of a tensor");
        EXPECT(meg_json_accept(j, ':'), "':'");
        EXPECT(meg_json_string(j, m->file->pool, &p.file), "the name of a file");
        m->place = meg_grow(m->place, &m->room, m->count + 1, sizeof p);
        m->place[m->count++] = p;
    } while (meg_json_accept(j, ','));
    EXPECT(meg_json_accept(j, '}'), "',' or '}'");
    return MEG_OK;
}

static meg_status read_index(map *m, meg_json *j)
{
    EXPECT(meg_json_accept(j, '{'), "'{'");
    do {
        char *key;
        EXPECT(meg_json_string(j, m->file->pool, &key), "weight_map");
        EXPECT(meg_json_accept(j, ':'), "':'");
        bool places = strcmp(key, "weight_map") == 0;
        MEG_TRY(m->error, places ? read_places(m, j) : skip_value(m, j));
    } while (meg_json_accept(j, ','));
    EXPECT(meg_json_accept(j, '}'), "',' or '}'");
    EXPECT(meg_json_done(j), "nothing after the object");
    EXPECT(m->seen, "a weight_map before here");
    return MEG_OK;
}

/* ---- the shards ---- */

static int by_file(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : strcmp(x->tensor, y->tensor);
}

static int by_tensor(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int order = strcmp(x->tensor, y->tensor);
    return order ? order : strcmp(x->file, y->file);
}

static int find_tensor(const void *name, const void *p)
{
    return strcmp(name, ((const place *)p)->tensor);
}

static meg_status check_places(const map *m)
{
    const char *path = m->file->path;
    if (m->count) qsort(m->place, m->count, sizeof *m->place, by_tensor);
    MEG_CHECK(m->error, m->count <= INT_MAX, MEG_EUNSUPPORTED, "%s has too many tensors", path);
    for (size_t i = 0; i < m->count; i++) {
        const place *p = &m->place[i], *before = i ? p - 1 : p;
        MEG_CHECK(m->error, i == 0 || strcmp(p->tensor, before->tensor) != 0, MEG_EDATA,
                  "%s: tensor '%.100s' is in two shards, %.100s and %.100s", path, p->tensor,
                  before->file, p->file);
        bool inside = *p->file && *p->file != '.' && !strchr(p->file, '/');
        MEG_CHECK(m->error, inside, MEG_EDATA,
                  "%s: tensor '%.100s' is said to be in '%.100s': a shard must be a file of the "
                  "index's own folder",
                  path, p->tensor, p->file);
    }
    return MEG_OK;
}

static meg_status open_shard(map *m, const char *name, meg_safetensors **out)
{
    meg_safetensors *f = m->file;
    const char *slash = strrchr(f->path, '/');
    char *path = meg_pool_text(f->pool, "%.*s%s", slash ? (int)(slash + 1 - f->path) : 0, f->path,
                               name);
    meg_safetensors *shard = meg_saved_new(path);
    f->shards = meg_grow(f->shards, &f->shards_room, f->shard_count + 1, sizeof shard);
    f->shards[f->shard_count++] = *out = shard;
    meg_status status = meg_saved_read(shard, m->error);
    if (status != MEG_EIO) return status;
    meg_error why = *m->error;
    return meg_fail(m->error, MEG_EIO, "%s: shard %.100s is missing: %.300s", f->path, name,
                    why.message);
}

/* No tensor of a shard may be one that the index has elsewhere. (Those that it has nowhere are not
 * seen.) `place` is sorted by tensor. */
static meg_status check_shard(const map *m, const meg_safetensors *shard, const char *name)
{
    for (size_t i = 0; i < shard->count; i++) {
        const char *tensor = shard->entries[i].name;
        const place *p = bsearch(tensor, m->place, m->count, sizeof *p, find_tensor);
        MEG_CHECK(m->error, !p || strcmp(p->file, name) == 0, MEG_EDATA,
                  "%s: tensor '%.100s' is in two shards, %.100s and %.100s", m->file->path, tensor,
                  p->file, name);
    }
    return MEG_OK;
}

static meg_status gather(map *m, const place *order)
{
    meg_safetensors *f = m->file, *shard = NULL;
    for (size_t i = 0; i < m->count; i++) {
        const place *p = &order[i];
        if (i == 0 || strcmp(p->file, order[i - 1].file) != 0) {
            MEG_TRY(m->error, open_shard(m, p->file, &shard));
            MEG_TRY(m->error, check_shard(m, shard, p->file));
        }
        int at = meg_safetensors_find(shard, p->tensor);
        MEG_CHECK(m->error, at >= 0, MEG_EDATA, "%s: tensor '%.100s' is not in %.100s", f->path,
                  p->tensor, p->file);
        f->entries = meg_grow(f->entries, &f->entries_room, f->count + 1, sizeof *f->entries);
        f->entries[f->count++] = shard->entries[at];
    }
    if (f->count) qsort(f->entries, f->count, sizeof *f->entries, meg_saved_by_name);
    return MEG_OK;
}

static meg_status read_all(map *m)
{
    meg_safetensors *f = m->file;
    MEG_TRY(m->error, meg_saved_map(f, m->error));
    MEG_CHECK(m->error, f->bytes <= INDEX_MAX, MEG_EDATA,
              "%s has %zu bytes; at most %zu are allowed", f->path, f->bytes, INDEX_MAX);
    meg_json j = {f->map, f->map + f->bytes};
    MEG_TRY(m->error, read_index(m, &j));
    MEG_TRY(m->error, check_places(m));
    place *order = malloc((m->count + 1) * sizeof *order);
    if (!order) abort();
    if (m->count) memcpy(order, m->place, m->count * sizeof *order);
    if (m->count) qsort(order, m->count, sizeof *order, by_file);
    meg_status status = gather(m, order);
    free(order);
    return status;
}

meg_status meg_saved_read_index(meg_safetensors *f, meg_error *e)
{
    map m = {.file = f, .error = e};
    meg_status status = read_all(&m);
    free(m.place);
    return status;
}
