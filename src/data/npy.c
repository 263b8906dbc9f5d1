/* NumPy files: one array of images or tokens, one of labels (the .npy format, versions 1 to 3).
 * Labels that are whole numbers are classes, one per sample, pixel or token; floats are targets.
 *
 * Everything is read where and when it is asked for, so files larger than memory work; labels are
 * gone through once at opening, unless they are per pixel and classes= says how many there are. pread instead of mmap: an error of the disk, or a
 * file that shrinks meanwhile, becomes a message and not a signal, and calls of several threads do
 * not disturb each other.
 *
 * A file: magic 93 "NUMPY", version, header length (16 bits in version 1, else 32), and a Python
 * dict like {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 1, 28, 28), }, then the data.
 */
#include "data/reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they are");

enum {
    HEADER_MAX = 65536,
    CHUNK = 16384
};

typedef struct settings {
    char images[MEG_TEXT], labels[MEG_TEXT];
    int64_t classes, ignore;
    double scale;
    bool tokens;
} settings;

typedef struct type { /* one row per dtype */
    const char *descr;
    int bytes;
    void (*to_float)(float *out, const void *in, int64_t count, float scale);
    int64_t (*label)(const void *in);
} type;

typedef struct array { /* an open file */
    char path[MEG_TEXT];
    int fd;
    const type *type;
    int rank;
    int64_t dims[MEG_AXES];
    int64_t start, count; /* of the data in the file: byte, elements */
} array;

typedef struct state {
    array images, labels;
    float scale;
    int64_t classes, ignore; /* what labels may be */
} state;

static const meg_param PARAMS[] = {
    {"images", MEG_PARAM_TEXT, offsetof(settings, images), NULL,
     "file of (n, c[, d, h, w]) numbers", .choices = NULL},
    {"labels", MEG_PARAM_TEXT, offsetof(settings, labels), NULL,
     "file of (n[, d, h, w]) whole numbers, or of (n, c[, d, h, w]) real targets", .choices = NULL},
    {"tokens", MEG_PARAM_BOOL, offsetof(settings, tokens), "no",
     "images are rows of tokens, (n, w)", .choices = NULL},
    {"ignore", MEG_PARAM_INT, offsetof(settings, ignore), "-1", "a label that does not count",
     .lo = INT32_MIN, .hi = INT32_MAX},
    {"classes", MEG_PARAM_INT, offsetof(settings, classes), "0", "0: the largest label + 1",
     .lo = 0, .hi = INT32_MAX},
    {"scale", MEG_PARAM_REAL, offsetof(settings, scale), "1", "multiplies every value",
     .choices = NULL},
    {0},
};

/* ---- types ---- */

static void floats_of_u1(float *out, const void *in, int64_t count, float scale)
{
    const uint8_t *x = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * (float)x[i];
}

static void floats_of_f4(float *out, const void *in, int64_t count, float scale)
{
    const float *x = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * x[i];
}

static void floats_of_f8(float *out, const void *in, int64_t count, float scale)
{
    const double *x = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * (float)x[i];
}

static void floats_of_i4(float *out, const void *in, int64_t count, float scale)
{
    const int32_t *x = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * (float)x[i];
}

static void floats_of_i8(float *out, const void *in, int64_t count, float scale)
{
    const int64_t *x = in;
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * (float)x[i];
}

static int64_t label_of_u1(const void *in)
{
    return *(const uint8_t *)in;
}

static int64_t label_of_i4(const void *in)
{
    return *(const int32_t *)in;
}

static int64_t label_of_i8(const void *in)
{
    return *(const int64_t *)in;
}

static const type TYPES[] = {
    {"|u1", 1, floats_of_u1, label_of_u1}, {"<f4", 4, floats_of_f4, NULL},
    {"<f8", 8, floats_of_f8, NULL},        {"<i4", 4, floats_of_i4, label_of_i4},
    {"<i8", 8, floats_of_i8, label_of_i8}, {NULL, 0, NULL, NULL},
};

/* ---- files ---- */

/* Reads exactly `bytes` at `at`. */
static meg_status read_at(meg_error *e, const array *a, int64_t at, void *out, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(a->fd, (char *)out + done, (size_t)(bytes - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        MEG_CHECK(e, got >= 0, MEG_EIO, "npy: cannot read %s: %s", a->path, strerror(errno));
        MEG_CHECK(e, got > 0, MEG_EDATA, "npy: %s is truncated", a->path);
        done += got;
    }
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

static bool parse_shape(header *h, array *a)
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

static bool parse_value(header *h, array *a, const char *key)
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

static meg_status parse_header(meg_error *e, header *h, array *a)
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
              a->path, h->at, MEG_AXES);
    MEG_CHECK(e, !h->fortran, MEG_EUNSUPPORTED,
              "npy: %s is in Fortran order; save it with numpy.ascontiguousarray", a->path);
    return MEG_OK;
}

/* The data must fill the file exactly. */
static meg_status check_size(meg_error *e, array *a, int64_t bytes)
{
    int64_t room = (bytes - a->start) / a->type->bytes;
    a->count = 1;
    for (int i = 0; i < a->rank; i++) {
        MEG_CHECK(e, a->dims[i] >= 1, MEG_EDATA, "npy: axis %d of %s has extent 0", i, a->path);
        bool fits = a->dims[i] <= room / a->count;
        MEG_CHECK(e, fits, MEG_EDATA,
                  "npy: %s is truncated: it has room for %" PRId64 " values, less than its shape",
                  a->path, room);
        a->count *= a->dims[i];
    }
    MEG_CHECK(e, a->start + a->count * a->type->bytes == bytes, MEG_EDATA,
              "npy: %s has %" PRId64 " bytes, but its header announces %" PRId64, a->path, bytes,
              a->start + a->count * a->type->bytes);
    return MEG_OK;
}

static meg_status read_header(meg_error *e, array *a, char *text, int64_t bytes)
{
    uint8_t b[12] = {0};
    MEG_TRY(e, read_at(e, a, 0, b, 10));
    MEG_CHECK(e, memcmp(b, "\x93NUMPY", 6) == 0, MEG_EDATA, "npy: %s is not a .npy file", a->path);
    MEG_CHECK(e, 1 <= b[6] && b[6] <= 3, MEG_EUNSUPPORTED, "npy: %s has version %d; known: 1 to 3",
              a->path, b[6]);
    a->start = b[6] == 1 ? 10 : 12;
    MEG_TRY(e, read_at(e, a, 0, b, a->start));
    int64_t length = b[8] | b[9] << 8 | b[10] << 16 | (int64_t)b[11] << 24;
    MEG_CHECK(e, length < HEADER_MAX && a->start + length <= bytes, MEG_EDATA,
              "npy: %s announces a header of %" PRId64 " bytes, but has %" PRId64
              " in all (at most %d are allowed)",
              a->path, length, bytes, HEADER_MAX - 1);
    MEG_TRY(e, read_at(e, a, a->start, text, length));
    text[length] = '\0';
    a->start += length;
    return MEG_OK;
}

/* Opens a file and checks all but whether its type and shape suit; the caller closes a->fd. */
static meg_status open_array(meg_error *e, array *a, char *text)
{
    struct stat info;
    a->fd = open(a->path, O_RDONLY | O_CLOEXEC);
    MEG_CHECK(e, a->fd >= 0 && fstat(a->fd, &info) == 0, MEG_EIO, "npy: cannot open %s: %s",
              a->path, strerror(errno));
    MEG_CHECK(e, S_ISREG(info.st_mode), MEG_EIO, "npy: %s is not a file", a->path);
    MEG_TRY(e, read_header(e, a, text, info.st_size));
    header h = {.at = text};
    MEG_TRY(e, parse_header(e, &h, a));
    for (a->type = TYPES; a->type->descr; a->type++)
        if (strcmp(a->type->descr, h.descr) == 0) break;
    MEG_CHECK(e, a->type->descr, MEG_EUNSUPPORTED,
              "npy: %s has type %s; accepted: |u1 <i4 <i8 <f4 <f8", a->path, h.descr);
    return check_size(e, a, info.st_size);
}

/* ---- images and labels ---- */

static meg_status open_images(meg_error *e, array *a, char *text)
{
    MEG_TRY(e, open_array(e, a, text));
    MEG_CHECK(e, 2 <= a->rank && a->rank <= MEG_AXES, MEG_EDATA,
              "npy: images in %s have %d axes; accepted: 2 to 5, (n, c[, d, h, w])", a->path,
              a->rank);
    return MEG_OK;
}

/* Labels i and on; those that do not count become -1. */
static meg_status take_labels(meg_error *e, const state *s, const char *in, int64_t i,
                              int64_t count, int32_t *out)
{
    const array *a = &s->labels;
    for (int64_t j = 0; j < count; j++) {
        int64_t value = a->type->label(in + j * a->type->bytes);
        bool counts = value != s->ignore;
        MEG_CHECK(e, !counts || (0 <= value && value < s->classes), MEG_EDATA,
                  "npy: label %" PRId64 " of %s is %" PRId64 ", but 0..%" PRId64 " was expected",
                  i + j, a->path, value, s->classes - 1);
        out[j] = counts ? (int32_t)value : -1;
    }
    return MEG_OK;
}

/* Goes through all labels; counts the classes, unless the user did. */
static meg_status count_classes(meg_error *e, state *s)
{
    const array *a = &s->labels;
    _Alignas(8) char chunk[CHUNK];
    int32_t label[CHUNK], most = 0;
    int64_t part = CHUNK / a->type->bytes;
    bool given = s->classes;
    if (!given) s->classes = INT32_MAX;
    for (int64_t i = 0; i < a->count; i += part) {
        int64_t count = a->count - i < part ? a->count - i : part;
        MEG_TRY(e, read_at(e, a, a->start + i * a->type->bytes, chunk, count * a->type->bytes));
        MEG_TRY(e, take_labels(e, s, chunk, i, count, label));
        for (int64_t j = 0; j < count; j++)
            if (label[j] > most) most = label[j];
    }
    if (!given) s->classes = most + 1;
    return MEG_OK;
}

static meg_status open_labels(meg_error *e, state *s, char *text)
{
    array *a = &s->labels;
    MEG_TRY(e, open_array(e, a, text));
    int most = a->type->label ? MEG_AXES - 1 : MEG_AXES;
    MEG_CHECK(e, 1 <= a->rank && a->rank <= most, MEG_EDATA,
              "npy: labels in %s have %d axes; accepted: 1 to %d, %s", a->path, a->rank, most,
              a->type->label ? "(n[, d, h, w])" : "(n, c[, d, h, w])");
    MEG_CHECK(e, a->dims[0] == s->images.dims[0], MEG_EDATA,
              "npy: %s has %" PRId64 " labels, but %s has %" PRId64 " images", a->path, a->dims[0],
              s->images.path, s->images.dims[0]);
    bool look = a->type->label && (a->rank == 1 || !s->classes);
    return look ? count_classes(e, s) : MEG_OK;
}

static void close_state(state *s)
{
    if (!s) return;
    if (s->images.fd >= 0) close(s->images.fd);
    if (s->labels.fd >= 0) close(s->labels.fd);
    free(s);
}

static meg_status open_set(meg_error *e, const void *with, meg_dataset *out)
{
    const settings *o = with;
    meg_status status = MEG_ENOMEM;
    char *text = malloc(HEADER_MAX);
    state *s = calloc(1, sizeof *s);
    if (!text || !s) {
        meg_fail(e, status, "npy: no memory");
        goto out;
    }
    s->images.fd = s->labels.fd = -1;
    s->scale = (float)o->scale;
    s->classes = o->classes;
    s->ignore = o->ignore;
    memcpy(s->images.path, o->images, sizeof o->images);
    memcpy(s->labels.path, o->labels, sizeof o->labels);
    status = open_images(e, &s->images, text);
    if (status == MEG_OK && o->tokens && s->images.rank != 2)
        status = meg_fail(e, MEG_EDATA, "npy: tokens in %s have %d axes; accepted: 2, (n, w)",
                          s->images.path, s->images.rank);
    if (status == MEG_OK) status = open_labels(e, s, text);
    if (status != MEG_OK) goto out;

    meg_dataset_shape(out, s->images.rank, s->images.dims);
    if (o->tokens) meg_dataset_tokens(out);
    meg_dataset_label(out, !s->labels.type->label, s->labels.rank, s->labels.dims);
    out->classes = out->real ? 0 : (int)s->classes;
    out->state = s;
    s = NULL;
out:
    close_state(s);
    free(text);
    return status;
}

static void close_set(meg_dataset *d)
{
    close_state(d->state);
}

/* A part of the array as float. */
typedef struct part {
    const array *from;
    int64_t first; /* element of the sample */
    float scale;
} part;

static meg_status read_floats(meg_error *e, const part *p, meg_run r, float *out)
{
    const array *a = p->from;
    _Alignas(8) char chunk[CHUNK];
    int64_t most = CHUNK / a->type->bytes;
    for (; r.on; meg_run_next(&r)) {
        for (int64_t i = 0; i < r.length; i += most) {
            int64_t count = r.length - i < most ? r.length - i : most;
            int64_t at = a->start + (p->first + r.at + i) * a->type->bytes;
            MEG_TRY(e, read_at(e, a, at, chunk, count * a->type->bytes));
            a->type->to_float(out + r.done + i, chunk, count, p->scale);
        }
    }
    return MEG_OK;
}

static meg_status read_sample(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    assert(0 <= index && index < d->count && meg_box_holds(&d->sample, box));
    const state *s = d->state;
    part p = {&s->images, index * meg_box_size(&d->sample), s->scale};
    return read_floats(e, &p, meg_run_first(&d->sample, box), out);
}

static meg_status read_label(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *out)
{
    assert(0 <= index && index < d->count && meg_box_holds(&d->label, box));
    const state *s = d->state;
    const array *a = &s->labels;
    int64_t first = index * meg_box_size(&d->label), most = CHUNK / a->type->bytes;
    part p = {a, first, 1};
    if (d->real) return read_floats(e, &p, meg_run_first(&d->label, box), out);
    _Alignas(8) char chunk[CHUNK];
    for (meg_run r = meg_run_first(&d->label, box); r.on; meg_run_next(&r)) {
        for (int64_t i = 0; i < r.length; i += most) {
            int64_t count = r.length - i < most ? r.length - i : most, at = first + r.at + i;
            MEG_TRY(e,
                    read_at(e, a, a->start + at * a->type->bytes, chunk, count * a->type->bytes));
            MEG_TRY(e, take_labels(e, s, chunk, at, count, (int32_t *)out + r.done + i));
        }
    }
    return MEG_OK;
}

const meg_reader meg_reader_npy = {
    .name = "npy",
    .doc = "NumPy files: images or tokens, and labels: classes, classes per pixel, real targets",
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .open = open_set,
    .close = close_set,
    .read = read_sample,
    .label = read_label,
};
