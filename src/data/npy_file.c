/* Arrays of NumPy: see npy_file.h.
 *
 * A .npy file (versions 1 to 3): magic 93 "NUMPY", version, header length (16 bits in version 1, else
 * 32), and a Python dict like {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 1, 28, 28), },
 * then the data.
 */
#include "data/npy_file.h"
#include "data/npz.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they are");

enum {
    HEADER_MAX = 65536
};

/* ---- bytes ---- */

typedef struct span { /* of a file, or of what was unpacked of it */
    int64_t at, bytes;
} span;

static meg_status pread_all(const meg_npy *a, meg_error *e, int fd, span s, void *out)
{
    for (int64_t done = 0; done < s.bytes;) {
        ssize_t got = pread(fd, (char *)out + done, (size_t)(s.bytes - done), (off_t)(s.at + done));
        if (got < 0 && errno == EINTR) continue;
        MEG_CHECK(e, got >= 0, MEG_EIO, "npy: cannot read %s: %s", a->name, strerror(errno));
        MEG_CHECK(e, got > 0, MEG_EDATA, "npy: %s is truncated", a->name);
        done += got;
    }
    return MEG_OK;
}

static meg_status open_file(const meg_npy *a, meg_error *e, int *fd)
{
    *fd = open(a->path, O_RDONLY | O_CLOEXEC);
    MEG_CHECK(e, *fd >= 0, MEG_EIO, "npy: cannot open %s: %s", a->path, strerror(errno));
    return MEG_OK;
}

/* Exactly these bytes; what was unpacked holds them for certain. */
static meg_status read_span(const meg_npy *a, meg_error *e, span s, void *out)
{
    int fd = a->fd;
    if (a->unpacked) {
        memcpy(out, a->unpacked + s.at, (size_t)s.bytes);
        return MEG_OK;
    }
    if (fd < 0) MEG_TRY(e, open_file(a, e, &fd));
    meg_status status = pread_all(a, e, fd, s, out);
    if (fd != a->fd) close(fd);
    return status;
}

static void swap(char *data, int64_t count, int bytes)
{
    for (int64_t i = 0; i < count; i++, data += bytes)
        for (int k = 0; k < bytes / 2; k++) {
            char other = data[k];
            data[k] = data[bytes - 1 - k];
            data[bytes - 1 - k] = other;
        }
}

meg_status meg_npy_read(const meg_npy *a, meg_error *e, int64_t first, int64_t count, void *out)
{
    int bytes = a->type->bytes;
    MEG_TRY(e, read_span(a, e, (span){a->start + first * bytes, count * bytes}, out));
    if (a->swapped) swap(out, count, bytes);
    return MEG_OK;
}

/* ---- headers ---- */

typedef struct header { /* a header while it is parsed */
    const char *at;
    char descr[32];
    bool fortran;
    bool has_descr, has_order, has_shape;
} header;

static void skip_blanks(header *h)
{
    h->at += strspn(h->at, " \t\r\n");
}

static bool accept(header *h, const char *text)
{
    skip_blanks(h);
    size_t length = strlen(text);
    if (strncmp(h->at, text, length) != 0) return false;
    h->at += length;
    return true;
}

static bool parse_string(header *h, char *out, size_t size)
{
    skip_blanks(h);
    char quote = *h->at;
    if (quote != '\'' && quote != '"') return false;
    size_t length = strcspn(h->at + 1, "'\"\\");
    if (h->at[1 + length] != quote || length >= size) return false;
    memcpy(out, h->at + 1, length);
    out[length] = '\0';
    h->at += length + 2;
    return true;
}

static bool parse_shape(header *h, meg_npy *a)
{
    if (!accept(h, "(")) return false;
    for (a->rank = 0; !accept(h, ")"); a->rank++) {
        char *end;
        skip_blanks(h);
        if (a->rank == MEG_AXES || *h->at < '0' || *h->at > '9') return false;
        errno = 0;
        a->dims[a->rank] = strtoll(h->at, &end, 10);
        if (errno) return false;
        h->at = *end == 'L' ? end + 1 : end; /* Python 2 wrote 10L */
        skip_blanks(h);
        if (!accept(h, ",") && *h->at != ')') return false;
    }
    return true;
}

static bool parse_value(header *h, meg_npy *a, const char *key)
{
    if (strcmp(key, "descr") == 0) {
        h->has_descr = true;
        return parse_string(h, h->descr, sizeof h->descr);
    }
    if (strcmp(key, "fortran_order") == 0) {
        h->has_order = true;
        h->fortran = accept(h, "True");
        return h->fortran || accept(h, "False");
    }
    h->has_shape = true;
    return strcmp(key, "shape") == 0 && parse_shape(h, a);
}

static meg_status parse_header(meg_error *e, header *h, meg_npy *a)
{
    char key[32] = "";
    bool good = accept(h, "{");
    while (good && !accept(h, "}")) {
        good = parse_string(h, key, sizeof key) && accept(h, ":") && parse_value(h, a, key);
        skip_blanks(h);
        good = good && (accept(h, ",") || *h->at == '}');
    }
    skip_blanks(h);
    MEG_CHECK(e, good && !*h->at && h->has_descr && h->has_order && h->has_shape, MEG_EDATA,
              "npy: the header of %s is not understood near '%.20s': expected a dict of descr (a "
              "plain type), fortran_order and shape (at most %d axes)",
              a->name, h->at, MEG_AXES);
    MEG_CHECK(e, !h->fortran, MEG_EUNSUPPORTED,
              "npy: %s is in Fortran order; save it with numpy.ascontiguousarray", a->name);
    bool ordered = h->descr[0] && strchr("<>|=", h->descr[0]);
    a->type = meg_npy_type_find(h->descr + ordered);
    a->swapped = h->descr[0] == '>';
    MEG_CHECK(e, a->type, MEG_EUNSUPPORTED, "npy: %s has type %s; accepted: %s", a->name, h->descr,
              meg_npy_type_names());
    return MEG_OK;
}

/* The data must fill the file, or its part of a .npz, exactly. */
static meg_status check_size(meg_error *e, meg_npy *a, span all)
{
    int64_t room = (all.at + all.bytes - a->start) / a->type->bytes;
    a->count = 1;
    for (int i = 0; i < a->rank; i++) {
        MEG_CHECK(e, a->dims[i] >= 1, MEG_EDATA, "npy: axis %d of %s has extent 0", i, a->name);
        bool fits = a->dims[i] <= room / a->count;
        MEG_CHECK(e, fits, MEG_EDATA,
                  "npy: %s is truncated: it has room for %" PRId64 " values, less than its shape",
                  a->name, room);
        a->count *= a->dims[i];
    }
    int64_t announced = a->start - all.at + a->count * a->type->bytes;
    MEG_CHECK(e, announced == all.bytes, MEG_EDATA,
              "npy: %s has %" PRId64 " bytes, but its header announces %" PRId64, a->name,
              all.bytes, announced);
    return MEG_OK;
}

static meg_status read_header(meg_error *e, meg_npy *a, span all, char *text)
{
    uint8_t b[12] = {0};
    MEG_CHECK(e, all.bytes >= 10, MEG_EDATA, "npy: %s is truncated", a->name);
    MEG_TRY(e, read_span(a, e, (span){all.at, 10}, b));
    MEG_CHECK(e, memcmp(b, "\x93NUMPY", 6) == 0, MEG_EDATA, "npy: %s is not a .npy file", a->name);
    MEG_CHECK(e, 1 <= b[6] && b[6] <= 3, MEG_EUNSUPPORTED, "npy: %s has version %d; known: 1 to 3",
              a->name, b[6]);
    int64_t head = b[6] == 1 ? 10 : 12;
    MEG_CHECK(e, all.bytes >= head, MEG_EDATA, "npy: %s is truncated", a->name);
    MEG_TRY(e, read_span(a, e, (span){all.at, head}, b));
    int64_t length = b[8] | b[9] << 8 | b[10] << 16 | (int64_t)b[11] << 24;
    MEG_CHECK(e, length < HEADER_MAX && head + length <= all.bytes, MEG_EDATA,
              "npy: %s announces a header of %" PRId64 " bytes, but has %" PRId64
              " in all (at most %d are allowed)",
              a->name, length, all.bytes, HEADER_MAX - 1);
    MEG_TRY(e, read_span(a, e, (span){all.at + head, length}, text));
    text[length] = '\0';
    a->start = all.at + head + length;
    return MEG_OK;
}

static meg_status open_array(meg_error *e, meg_npy *a, span all)
{
    char *text = malloc(HEADER_MAX);
    MEG_CHECK(e, text, MEG_ENOMEM, "npy: no memory");
    header h = {.at = text};
    meg_status status = read_header(e, a, all, text);
    if (status == MEG_OK) status = parse_header(e, &h, a);
    free(text);
    return status == MEG_OK ? check_size(e, a, all) : status;
}

/* ---- files ---- */

/* An array of an archive: where it lies, or what it holds unpacked. */
static meg_status open_member(meg_error *e, meg_npy *a, span *all, const char *key,
                              const char *const keys[])
{
    meg_npz z = {a->path, a->fd, all->bytes};
    meg_npz_member m;
    MEG_TRY(e, meg_npz_find(&z, e, key, keys, &m));
    size_t room = strlen(a->path) + strlen(m.key) + 2;
    free(a->name);
    a->name = malloc(room);
    MEG_CHECK(e, a->name, MEG_ENOMEM, "npy: no memory");
    snprintf(a->name, room, "%s:%s", a->path, m.key);
    *all = (span){m.start, m.bytes};
    if (!m.deflated) return MEG_OK;
    MEG_TRY(e, meg_npz_unpack(&z, e, &m, &a->unpacked));
    *all = (span){0, m.size};
    meg_npy_rest(a);
    return MEG_OK;
}

/* Opens the file and checks all but whether its type and shape suit. */
static meg_status open_path(meg_error *e, meg_npy *a, const char *key, const char *const keys[])
{
    struct stat info;
    unsigned char head[4] = {0};
    MEG_TRY(e, open_file(a, e, &a->fd));
    MEG_CHECK(e, fstat(a->fd, &info) == 0, MEG_EIO, "npy: cannot open %s: %s", a->path,
              strerror(errno));
    MEG_CHECK(e, S_ISREG(info.st_mode), MEG_EIO, "npy: %s is not a file", a->path);
    span all = {0, info.st_size};
    if (all.bytes >= 4) MEG_TRY(e, read_span(a, e, (span){0, 4}, head));
    bool archive = meg_npz_is(head);
    MEG_CHECK(e, archive || !key, MEG_EDATA, "npy: %s is not a .npz file, so it has no array '%s'",
              a->path, key);
    if (archive) MEG_TRY(e, open_member(e, a, &all, key, keys));
    return open_array(e, a, all);
}

meg_status meg_npy_open(meg_error *e, const char *path, const char *const keys[], meg_npy *out)
{
    static const char tail[] = ".npz:";
    const char *key = strstr(path, tail);
    *out = (meg_npy){.fd = -1, .path = strdup(path), .name = strdup(path)};
    MEG_CHECK(e, out->path && out->name, MEG_ENOMEM, "npy: no memory");
    if (key) out->path[key - path + (int)sizeof tail - 2] = '\0';
    return open_path(e, out, key ? key + sizeof tail - 1 : NULL, keys);
}

void meg_npy_rest(meg_npy *a)
{
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
}

void meg_npy_close(meg_npy *a)
{
    meg_npy_rest(a);
    free(a->unpacked);
    free(a->name);
    free(a->path);
    *a = (meg_npy){.fd = -1};
}

/* ---- texts ---- */

void meg_npy_place(const meg_npy *a, int64_t i, char *out, size_t size)
{
    int64_t at[MEG_AXES] = {0};
    for (int k = a->rank - 1; k >= 0; i /= a->dims[k], k--)
        at[k] = i % a->dims[k];
    snprintf(out, size, "%s[", a->name);
    for (int k = 0; k < a->rank; k++)
        snprintf(out + strlen(out), size - strlen(out), "%s%" PRId64, k ? ", " : "", at[k]);
    snprintf(out + strlen(out), size - strlen(out), "]");
}

void meg_npy_shape(const meg_npy *a, char out[128])
{
    size_t used = (size_t)snprintf(out, 128, "(");
    for (int k = 0; k < a->rank; k++)
        used += (size_t)snprintf(out + used, 128 - used, "%s%" PRId64, k ? ", " : "", a->dims[k]);
    snprintf(out + used, 128 - used, a->rank == 1 ? ",)" : ")");
}
