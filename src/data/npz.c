/* Zip archives of NumPy: see npz.h.
 *
 *     member  member  ..  central directory  [zip64 end, its locator]  end (22 bytes + comment)
 *
 * A member begins with a header of its own, 30 bytes and two texts; its sizes are taken from the
 * directory, since writers that stream leave them out here. All numbers are little-endian.
 */
#include "data/npz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    ENTRY = 46,
    LOCAL = 30,
    COMMENT_MAX = 65535,
    DIRECTORY_MAX = 64 << 20,
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1,
    EXTRA64 = 1, /* the number of the extra field with sizes of 64 bits */
    CHUNK = 1 << 20
};

static const uint32_t OPEN = UINT32_MAX; /* a size that stands in the extra field */

static uint64_t number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static uint32_t word(const unsigned char *at)
{
    return (uint32_t)number(at, 4);
}

bool meg_npz_is(const unsigned char head[4])
{
    return memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0;
}

static meg_status read_at(const meg_npz *z, meg_error *e, int64_t at, void *out, int64_t bytes)
{
    MEG_CHECK(e, at >= 0 && bytes >= 0 && bytes <= z->bytes && at <= z->bytes - bytes, MEG_EDATA,
              "npy: %s is truncated or damaged: it refers to bytes behind its end", z->path);
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(z->fd, (char *)out + done, (size_t)(bytes - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        MEG_CHECK(e, got >= 0, MEG_EIO, "npy: cannot read %s: %s", z->path, strerror(errno));
        MEG_CHECK(e, got > 0, MEG_EDATA, "npy: %s is truncated", z->path);
        done += got;
    }
    return MEG_OK;
}

/* ---- the directory ---- */

typedef struct directory {
    unsigned char *text;
    int64_t start, bytes; /* in the file */
} directory;

static meg_status damaged(const meg_npz *z, meg_error *e, const char *what)
{
    return meg_fail(e, MEG_EDATA, "npy: %s is truncated or damaged: %s", z->path, what);
}

/* Where the directory is, out of the last bytes of the file. */
static meg_status find_directory(const meg_npz *z, meg_error *e, const unsigned char *tail,
                                 int64_t length, directory *out)
{
    int64_t at = length - END;
    while (at >= 0 && memcmp(tail + at, "PK\5\6", 4) != 0)
        at--;
    if (at < 0) return damaged(z, e, "it has no directory");
    out->bytes = (int64_t)word(tail + at + 12);
    out->start = (int64_t)word(tail + at + 16);
    if (out->start != OPEN && out->bytes != OPEN) return MEG_OK;
    unsigned char end[END64];
    if (at < LOCATOR || memcmp(tail + at - LOCATOR, "PK\6\7", 4) != 0)
        return damaged(z, e, "its large directory is not found");
    int64_t where = (int64_t)(number(tail + at - LOCATOR + 8, 8) & INT64_MAX);
    MEG_TRY(e, read_at(z, e, where, end, END64));
    if (memcmp(end, "PK\6\6", 4) != 0) return damaged(z, e, "its large directory is not found");
    out->bytes = (int64_t)(number(end + 40, 8) & INT64_MAX);
    out->start = (int64_t)(number(end + 48, 8) & INT64_MAX);
    return MEG_OK;
}

static meg_status read_directory(const meg_npz *z, meg_error *e, directory *out)
{
    int64_t length = z->bytes < END + COMMENT_MAX + LOCATOR ? z->bytes
                                                            : END + COMMENT_MAX + LOCATOR;
    unsigned char *tail = malloc((size_t)length + 1);
    MEG_CHECK(e, tail, MEG_ENOMEM, "npy: no memory to read %s", z->path);
    meg_status status = read_at(z, e, z->bytes - length, tail, length);
    if (status == MEG_OK) status = find_directory(z, e, tail, length, out);
    free(tail);
    MEG_TRY(e, status);
    if (out->bytes > DIRECTORY_MAX) return damaged(z, e, "its directory is too large");
    out->text = malloc((size_t)out->bytes + 1);
    MEG_CHECK(e, out->text, MEG_ENOMEM, "npy: no memory to read %s", z->path);
    return read_at(z, e, out->start, out->text, out->bytes);
}

/* Sizes and place that did not fit into 32 bits stand in an extra field, in this order. */
static bool read_extra(const unsigned char *extra, int64_t length, uint64_t *const value[3])
{
    for (int64_t at = 0; at + 4 <= length;) {
        int64_t size = (int64_t)number(extra + at + 2, 2), from = at + 4;
        if (size > length - from) return false;
        for (int i = 0; i < 3 && number(extra + at, 2) == EXTRA64; i++) {
            if (*value[i] != OPEN) continue;
            if (from + 8 > at + 4 + size) return false;
            *value[i] = number(extra + from, 8);
            from += 8;
        }
        at += 4 + size;
    }
    return *value[0] <= INT64_MAX && *value[1] <= INT64_MAX && *value[2] <= INT64_MAX;
}

/* The entry at `at` of the directory, moved on. `start` becomes the place of the member's header. */
static meg_status next_entry(const meg_npz *z, meg_error *e, const directory *d, int64_t *at,
                             meg_npz_member *out)
{
    const unsigned char *x = d->text + *at;
    if (*at + ENTRY > d->bytes || memcmp(x, "PK\1\2", 4) != 0)
        return damaged(z, e, "its directory is not understood");
    int64_t name = (int64_t)number(x + 28, 2), extra = (int64_t)number(x + 30, 2);
    int64_t all = ENTRY + name + extra + (int64_t)number(x + 32, 2);
    uint64_t size = word(x + 24), bytes = word(x + 20), start = word(x + 42);
    if (*at + all > d->bytes ||
        !read_extra(x + ENTRY + name, extra, (uint64_t *[]){&size, &bytes, &start}))
        return damaged(z, e, "its directory is not understood");
    *out = (meg_npz_member){
        .start = (int64_t)start, .bytes = (int64_t)bytes, .size = (int64_t)size};
    out->crc = word(x + 16);
    if (name >= (int64_t)sizeof out->key) name = (int64_t)sizeof out->key - 1;
    memcpy(out->key, x + ENTRY, (size_t)name);
    size_t length = strlen(out->key);
    if (length > 4 && strcmp(out->key + length - 4, ".npy") == 0) out->key[length - 4] = '\0';
    uint64_t method = number(x + 10, 2);
    out->deflated = method == DEFLATED;
    *at += all;
    MEG_CHECK(e, method == DEFLATED || method == STORED, MEG_EUNSUPPORTED,
              "npy: %s: '%s' is packed by method %d; known: stored, deflated", z->path, out->key,
              (int)method);
    MEG_CHECK(e, !(number(x + 8, 2) & ENCRYPTED), MEG_EUNSUPPORTED, "npy: %s: '%s' is encrypted",
              z->path, out->key);
    return MEG_OK;
}

/* ---- members ---- */

typedef struct wish {
    const char *key;         /* NULL: one of */
    const char *const *keys; /* these */
} wish;

/* How well a name suits: 0 is best; -1: not at all. */
static int rank_of(const char *name, const wish *w)
{
    if (w->key) return strcmp(name, w->key) == 0 ? 0 : -1;
    for (int i = 0; w->keys && w->keys[i]; i++)
        if (strcmp(name, w->keys[i]) == 0) return i;
    return -1;
}

static meg_status missing(const meg_npz *z, meg_error *e, const char *key, const char *known)
{
    if (key)
        return meg_fail(e, MEG_EARG, "npy: %s has no array '%s'; it has:%s", z->path, key, known);
    return meg_fail(e, MEG_EARG, "npy: which array of %s? Write %s:NAME; it has:%s", z->path,
                    z->path, known);
}

static meg_status choose(const meg_npz *z, meg_error *e, const directory *d, const wish *w,
                         meg_npz_member *out)
{
    char known[512] = "";
    meg_npz_member m;
    int best = -1, count = 0;
    for (int64_t at = 0; at < d->bytes; count++) {
        MEG_TRY(e, next_entry(z, e, d, &at, &m));
        int rank = rank_of(m.key, w);
        bool only = !w->key && best < 0 && count == 0 && at == d->bytes;
        if (rank >= 0 && (best < 0 || rank < best)) best = rank, *out = m;
        else if (only) best = 0, *out = m;
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", m.key);
    }
    return best < 0 ? missing(z, e, w->key, count ? known : " nothing") : MEG_OK;
}

meg_status meg_npz_find(const meg_npz *z, meg_error *e, const char *key, const char *const keys[],
                        meg_npz_member *out)
{
    directory d = {0};
    unsigned char local[LOCAL];
    meg_npz_member m = {0};
    meg_status status = read_directory(z, e, &d);
    if (status == MEG_OK) status = choose(z, e, &d, &(wish){key, keys}, &m);
    free(d.text);
    MEG_TRY(e, status);
    MEG_TRY(e, read_at(z, e, m.start, local, LOCAL));
    if (memcmp(local, "PK\3\4", 4) != 0) return damaged(z, e, "a member is not where it should be");
    m.start += LOCAL + (int64_t)number(local + 26, 2) + (int64_t)number(local + 28, 2);
    bool inside = m.start <= z->bytes && m.bytes <= z->bytes - m.start;
    if (!inside) return damaged(z, e, "a member reaches beyond its end");
    if (!m.deflated && m.bytes != m.size) return damaged(z, e, "a member has two sizes");
    *out = m;
    return MEG_OK;
}

static meg_status inflate_into(const meg_npz *z, meg_error *e, const meg_npz_member *m, char *out,
                               unsigned char *chunk)
{
    z_stream s = {0};
    int64_t from = 0, made = 0;
    int code = inflateInit2(&s, -MAX_WBITS); /* a bare stream, without zlib's own header */
    meg_status status = MEG_OK;
    MEG_CHECK(e, code == Z_OK, MEG_ENOMEM, "npy: no memory to unpack %s", z->path);
    while (code == Z_OK && status == MEG_OK) {
        int64_t part = m->bytes - from < CHUNK ? m->bytes - from : CHUNK, room = m->size - made;
        if (s.avail_in == 0) {
            status = read_at(z, e, m->start + from, chunk, part);
            s.next_in = chunk, s.avail_in = (unsigned)part, from += part;
        }
        s.next_out = (unsigned char *)out + made;
        s.avail_out = (unsigned)(room < CHUNK ? room : CHUNK);
        unsigned before = s.avail_out;
        if (status == MEG_OK) code = inflate(&s, Z_NO_FLUSH);
        made += before - s.avail_out;
    }
    inflateEnd(&s);
    MEG_TRY(e, status);
    MEG_CHECK(e, code == Z_STREAM_END && made == m->size, MEG_EDATA,
              "npy: %s: '%s' cannot be unpacked: it is truncated or damaged", z->path, m->key);
    return MEG_OK;
}

static uint32_t checksum(const char *data, int64_t bytes)
{
    uLong crc = crc32(0, NULL, 0);
    for (int64_t at = 0; at < bytes; at += CHUNK) {
        int64_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        crc = crc32(crc, (const unsigned char *)data + at, (unsigned)part);
    }
    return (uint32_t)crc;
}

meg_status meg_npz_unpack(const meg_npz *z, meg_error *e, const meg_npz_member *m, char **out)
{
    enum {
        MOST = 1032 /* deflate makes nothing smaller than by this factor */
    };
    if (m->size / MOST > m->bytes + 1) return damaged(z, e, "a member announces too many bytes");
    char *data = malloc((size_t)m->size + 1);
    unsigned char *chunk = malloc(CHUNK);
    meg_status status = MEG_OK;
    if (!data || !chunk)
        status = meg_fail(e, MEG_ENOMEM,
                          "npy: no memory for the %" PRId64
                          " bytes of '%s' in %s: save it by numpy.savez, which need not be "
                          "unpacked",
                          m->size, m->key, z->path);
    if (status == MEG_OK) status = inflate_into(z, e, m, data, chunk);
    free(chunk);
    if (status == MEG_OK && checksum(data, m->size) != m->crc)
        status = meg_fail(e, MEG_EDATA, "npy: %s: '%s' is damaged: its checksum is wrong", z->path,
                          m->key);
    if (status == MEG_OK) *out = data;
    else free(data);
    return status;
}
