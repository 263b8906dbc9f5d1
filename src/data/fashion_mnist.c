/* Fashion-MNIST: 28 x 28 grey pictures of clothes, 10 classes (Xiao, Rasul, Vollgraf, 2017), from
 * the gzipped idx files of Debian's package dataset-fashion-mnist. MNIST in the same format works
 * too. All pixels are kept as bytes (47 MB of the training set); a table turns them into floats of
 * mean 0 and deviation 1 over the training set.
 *
 * An idx file: magic 00 00 08 RANK (08: bytes), RANK extents of 32 bits, big-endian, the bytes.
 */
#include "data/reader.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    CLASSES = 10,
    IDX_RANK = 3,
    SIDE_MAX = 32768,
    PATH_BYTES = PATH_MAX + 64
};
static const double MEAN = 0.2860, DEVIATION = 0.3530;

typedef struct settings {
    int split;
    const char *dir;
} settings;

typedef struct state {
    uint8_t *pixels, *labels; /* (count, h, w), (count) */
    float value[256];         /* of a pixel */
} state;

typedef struct idx { /* one file while it is read */
    char path[PATH_BYTES];
    gzFile file;
    int64_t dims[IDX_RANK];
} idx;

static const meg_param PARAMS[] = {
    {"split", MEG_PARAM_CHOICE, offsetof(settings, split), "train", "which part",
     .choices = "train|test"},
    {"dir", MEG_PARAM_STRING, offsetof(settings, dir), "/usr/share/datasets/fashion-mnist",
     "folder of the four .gz files", .choices = NULL},
    {0},
};

/* What zlib or the file system has against the file; a message with the path. */
static meg_status broken(meg_error *e, const idx *x)
{
    int code;
    const char *why = gzerror(x->file, &code);
    if (code == Z_ERRNO)
        return meg_fail(e, MEG_EIO, "fashion-mnist: cannot read %s: %s", x->path, strerror(errno));
    if (code == Z_OK || code == Z_BUF_ERROR)
        return meg_fail(e, MEG_EDATA, "fashion-mnist: %s is truncated", x->path);
    return meg_fail(e, MEG_EDATA, "fashion-mnist: %s is damaged: %s", x->path, why);
}

static meg_status read_bytes(meg_error *e, const idx *x, uint8_t *out, int64_t bytes)
{
    enum {
        CHUNK = 1 << 24 /* gzread counts in int */
    };
    for (int64_t done = 0; done < bytes;) {
        int64_t rest = bytes - done;
        int got = gzread(x->file, out + done, (unsigned)(rest < CHUNK ? rest : CHUNK));
        if (got <= 0) return broken(e, x);
        done += got;
    }
    return MEG_OK;
}

/* Opens the file and reads its header: `rank` extents. */
static meg_status open_idx(meg_error *e, idx *x, int rank)
{
    uint8_t head[4 + 4 * IDX_RANK];
    errno = 0;
    x->file = gzopen(x->path, "rb");
    MEG_CHECK(e, x->file, MEG_EIO,
              "fashion-mnist: cannot open %s: %s; install Debian's package dataset-fashion-mnist "
              "or give dir=PATH",
              x->path, strerror(errno ? errno : ENOMEM));
    MEG_TRY(e, read_bytes(e, x, head, 4 + 4 * rank));
    MEG_CHECK(e, head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] == rank, MEG_EDATA,
              "fashion-mnist: %s begins with %02x%02x%02x%02x, but an idx file of bytes with %d "
              "axes begins with 000008%02x",
              x->path, head[0], head[1], head[2], head[3], rank, (unsigned)rank);
    for (int i = 0; i < rank; i++) {
        const uint8_t *b = head + 4 + 4 * i;
        x->dims[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        int64_t most = i == 0 ? INT32_MAX : SIDE_MAX; /* keeps their product in 64 bits */
        MEG_CHECK(e, 1 <= x->dims[i] && x->dims[i] <= most, MEG_EDATA,
                  "fashion-mnist: axis %d of %s has extent %" PRId64 ", but 1..%" PRId64
                  " was expected",
                  i, x->path, x->dims[i], most);
    }
    return MEG_OK;
}

/* Reads the bytes behind the header; the file must end there, and zlib then tests its checksum. */
static meg_status read_body(meg_error *e, const idx *x, int64_t bytes, uint8_t **out)
{
    uint8_t extra;
    *out = malloc((size_t)bytes);
    MEG_CHECK(e, *out, MEG_ENOMEM, "fashion-mnist: no memory for %" PRId64 " bytes of %s", bytes,
              x->path);
    MEG_TRY(e, read_bytes(e, x, *out, bytes));
    int code, got = gzread(x->file, &extra, 1);
    MEG_CHECK(e, got <= 0, MEG_EDATA,
              "fashion-mnist: %s goes on after the %" PRId64 " bytes that its header announces",
              x->path, bytes);
    gzerror(x->file, &code); /* a cut or wrong checksum may be seen only here */
    return got == 0 && code == Z_OK ? MEG_OK : broken(e, x);
}

/* Reads the whole file of `rank` axes into *out, which is the caller's in any case. */
static meg_status read_idx(meg_error *e, idx *x, int rank, uint8_t **out)
{
    meg_status status = open_idx(e, x, rank);
    int64_t bytes = 1;
    for (int i = 0; i < rank; i++)
        bytes *= x->dims[i];
    if (status == MEG_OK) status = read_body(e, x, bytes, out);
    if (x->file) gzclose(x->file);
    return status;
}

static meg_status read_files(meg_error *e, const settings *o, state *s, idx *images)
{
    const char *stem = o->split ? "t10k" : "train";
    idx labels = {0};
    snprintf(images->path, PATH_BYTES, "%s/%s-images-idx3-ubyte.gz", o->dir, stem);
    snprintf(labels.path, PATH_BYTES, "%s/%s-labels-idx1-ubyte.gz", o->dir, stem);
    MEG_TRY(e, read_idx(e, images, 3, &s->pixels));
    MEG_TRY(e, read_idx(e, &labels, 1, &s->labels));
    MEG_CHECK(e, labels.dims[0] == images->dims[0], MEG_EDATA,
              "fashion-mnist: %s has %" PRId64 " labels, but %s has %" PRId64 " images",
              labels.path, labels.dims[0], images->path, images->dims[0]);
    for (int64_t i = 0; i < labels.dims[0]; i++)
        MEG_CHECK(e, s->labels[i] < CLASSES, MEG_EDATA,
                  "fashion-mnist: label %" PRId64 " of %s is %d, but 0..%d was expected", i,
                  labels.path, s->labels[i], CLASSES - 1);
    return MEG_OK;
}

static void close_state(state *s)
{
    if (!s) return;
    free(s->pixels);
    free(s->labels);
    free(s);
}

static meg_status open_set(meg_error *e, const void *with, meg_dataset *out)
{
    idx images = {0};
    state *s = calloc(1, sizeof *s);
    MEG_CHECK(e, s, MEG_ENOMEM, "fashion-mnist: no memory");
    meg_status status = read_files(e, with, s, &images);
    if (status != MEG_OK) {
        close_state(s);
        return meg_trail(e, status, __func__);
    }
    for (int i = 0; i < 256; i++)
        s->value[i] = (float)((i / 255.0 - MEAN) / DEVIATION);
    out->state = s;
    out->classes = CLASSES;
    meg_dataset_shape(out, 4, (int64_t[]){images.dims[0], 1, images.dims[1], images.dims[2]});
    return MEG_OK;
}

static void close_set(meg_dataset *d)
{
    close_state(d->state);
}

static meg_status read_sample(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    (void)e; /* everything is in memory and was checked */
    assert(0 <= index && index < d->count && meg_box_holds(&d->sample, box));
    const state *s = d->state;
    const uint8_t *pixels = s->pixels + index * meg_box_size(&d->sample);
    for (meg_run r = meg_run_first(&d->sample, box); r.on; meg_run_next(&r))
        for (int64_t i = 0; i < r.length; i++)
            out[r.done + i] = s->value[pixels[r.at + i]];
    return MEG_OK;
}

static meg_status read_label(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *out)
{
    (void)e;
    const state *s = d->state;
    assert(0 <= index && index < d->count);
    if (!meg_box_empty(box)) *(int32_t *)out = s->labels[index];
    return MEG_OK;
}

const meg_reader meg_reader_fashion_mnist = {
    .name = "fashion-mnist",
    .doc = "28x28 grey pictures of clothes, 10 classes (Debian: dataset-fashion-mnist)",
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .open = open_set,
    .close = close_set,
    .read = read_sample,
    .label = read_label,
};
