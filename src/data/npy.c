/* NumPy files: one array of images or tokens, one of labels, each in one file or in several.
 * Labels that are whole numbers are classes, one per sample, pixel or token; floats are targets.
 *
 * Everything is read where and when it is asked for (npy_file.h). Labels are gone through once at
 * opening, unless they are per pixel and classes= says how many there are; of very many only a part.
 * Numbers that are not finite are refused where they are met: they would make a loss that is none.
 */
#include "data/labels.h"
#include "data/npy_list.h"
#include "data/reader.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *images, *labels, *map;
    int64_t classes, ignore;
    double scale;
    bool tokens;
    int layout;
} settings;

/* ---- layouts ---- */

typedef struct layout { /* what the axes of an array of images are */
    const char *name;
    int rank;        /* of the array; 0: by that, channels first */
    bool last, none; /* where the channels are: behind the pixels; there are none */
} layout;

static const layout LAYOUTS[] = {
    {"auto", 0, false, false}, {"nc", 2, false, false},    {"ncw", 3, false, false},
    {"nchw", 4, false, false}, {"ncdhw", 5, false, false}, {"nwc", 3, true, false},
    {"nhwc", 4, true, false},  {"ndhwc", 5, true, false},  {"nw", 2, false, true},
    {"nhw", 3, false, true},   {"ndhw", 4, false, true},
};

static const char LAYOUT_NAMES[] = "auto|nc|ncw|nchw|ncdhw|nwc|nhwc|ndhwc|nw|nhw|ndhw";

typedef struct state {
    meg_npy_list images, labels;
    const layout *layout;
    bool targets_last; /* real targets have their channels last, too */
    float scale;
    meg_label_rule rule;
} state;

static const meg_param PARAMS[] = {
    {"images", MEG_PARAM_STRING, offsetof(settings, images), NULL,
     "file of (n, c[, d, h, w]) numbers: x.npy, x.npz, data.npz:x, a.npy,b.npy, part-*.npy, "
     "@list.txt",
     .choices = NULL},
    {"labels", MEG_PARAM_STRING, offsetof(settings, labels), "",
     "likewise of (n[, d, h, w]) whole numbers, or of (n, c[, d, h, w]) real targets; not given: "
     "in the .npz of the images",
     .choices = NULL},
    {"layout", MEG_PARAM_CHOICE, offsetof(settings, layout), "auto",
     "axes of images and of real targets; auto: channels first", .choices = LAYOUT_NAMES},
    {"tokens", MEG_PARAM_BOOL, offsetof(settings, tokens), "no",
     "images are rows of tokens, (n, w)", .choices = NULL},
    {"map", MEG_PARAM_STRING, offsetof(settings, map), "",
     "which labels are which classes: 0:0,255:1 or 1..10:0; -1: does not count", .choices = NULL},
    {"ignore", MEG_PARAM_INT, offsetof(settings, ignore), "-1", "a label that does not count",
     .lo = INT32_MIN, .hi = INT32_MAX},
    {"classes", MEG_PARAM_INT, offsetof(settings, classes), "0", "0: the largest label + 1",
     .lo = 0, .hi = INT32_MAX},
    {"scale", MEG_PARAM_REAL, offsetof(settings, scale), "1",
     "multiplies every number of the images, which are taken as they are: bytes are 0..255",
     .choices = NULL},
    {0},
};

/* ---- images ---- */

/* Channels-last images are read as images of many narrow channels without anybody noticing. */
static void doubt_layout(const meg_npy *a, meg_findings *f)
{
    enum {
        WIDEST = 4 /* channels of pictures: grey, colours, and transparency */
    };
    char shape[128];
    int64_t last = a->dims[a->rank - 1];
    bool spatial = a->rank >= 3;
    meg_npy_shape(a, shape);
    for (int i = 1; i < a->rank - 1; i++)
        spatial = spatial && a->dims[i] > WIDEST;
    bool picture = last == 1 || last == 3 || last == 4;
    if (spatial && picture && a->rank >= 4)
        snprintf(f->shape, MEG_FINDING,
                 "%.200s has shape %s, which as channels first would be %" PRId64
                 " channels: use layout=%s if the last axis is the channels, layout=%s if not",
                 a->name, shape, a->dims[1], a->rank == 5 ? "ndhwc" : "nhwc",
                 a->rank == 5 ? "ncdhw" : "nchw");
    else if (spatial && a->rank == 3 && last > WIDEST)
        snprintf(f->shape, MEG_FINDING,
                 "%.200s has shape %s, which would be rows of %" PRId64
                 " channels: use layout=nhw if these are images of one channel, layout=ncw if not",
                 a->name, shape, a->dims[1]);
}

/* The axes of an array in our order, channels first; returns how many. */
static int turn_axes(const meg_npy *a, const layout *l, int64_t dims[MEG_AXES + 1])
{
    dims[0] = a->dims[0];
    dims[1] = l->last ? a->dims[a->rank - 1] : 1;
    for (int i = 1; i < a->rank - l->last; i++)
        dims[i + (l->last || l->none)] = a->dims[i];
    return a->rank + l->none;
}

static meg_status shape_images(meg_error *e, state *s, meg_dataset *d)
{
    const meg_npy *a = &s->images.file[0];
    const layout *l = s->layout;
    int64_t dims[MEG_AXES + 1];
    MEG_CHECK(e, 2 <= a->rank && a->rank <= MEG_AXES, MEG_EDATA,
              "npy: images in %s have %d axes; accepted: 2 to 5, (n, c[, d, h, w])", a->name,
              a->rank);
    MEG_CHECK(e, !d->tokens || a->rank == 2, MEG_EDATA,
              "npy: tokens in %s have %d axes; accepted: 2, (n, w)", a->name, a->rank);
    MEG_CHECK(e, !d->tokens || a->type->to_whole, MEG_EDATA,
              "npy: tokens in %s are real numbers (%s): save them as whole ones, x.astype('int32')",
              a->name, a->type->name);
    MEG_CHECK(e, l->rank == 0 || l->rank == a->rank, MEG_EDATA,
              "npy: images in %s have %d axes, but layout=%s has %d", a->name, a->rank, l->name,
              l->rank);
    int rank = turn_axes(a, l, dims);
    dims[0] = meg_npy_list_samples(&s->images);
    meg_dataset_shape(d, rank, dims);
    if (d->tokens) meg_dataset_tokens(d);
    else if (l->rank == 0) doubt_layout(a, &d->findings);
    return MEG_OK;
}

/* ---- labels ---- */

static meg_status wrong_label(meg_error *e, const meg_label_rule *r, const char *name, int64_t at,
                              int64_t number)
{
    if (r->ranges)
        return meg_fail(e, MEG_EDATA,
                        "npy: label %" PRId64 " of %s is %" PRId64 ", which map= has no class for",
                        at, name, number);
    char range[32] = "0 or more";
    if (r->classes != INT32_MAX || number > 0)
        snprintf(range, sizeof range, "0..%" PRId64, r->classes - 1);
    return meg_fail(e, MEG_EDATA,
                    "npy: label %" PRId64 " of %s is %" PRId64
                    ", but %s was expected: classes= says how many there are, ignore= which does "
                    "not count, map= what numbers mean",
                    at, name, number, range);
}

typedef struct stretch { /* of a file: elements */
    const meg_npy *from;
    int64_t at, count;
} stretch;

static meg_status read_wholes(meg_error *e, const stretch *x, int64_t number[MEG_NPY_PIECE])
{
    _Alignas(8) char piece[8 * MEG_NPY_PIECE];
    MEG_TRY(e, meg_npy_read(x->from, e, x->at, x->count, piece));
    x->from->type->to_whole(number, piece, x->count);
    return MEG_OK;
}

/* Those that do not count become -1. */
static meg_status take_labels(meg_error *e, const meg_label_rule *r, const stretch *x, int32_t *out)
{
    int64_t number[MEG_NPY_PIECE];
    MEG_TRY(e, read_wholes(e, x, number));
    for (int64_t i = 0; i < x->count; i++) {
        out[i] = meg_label_of(r, number[i]);
        if (out[i] == MEG_LABEL_WRONG)
            return wrong_label(e, r, x->from->name, x->at + i, number[i]);
    }
    return MEG_OK;
}

enum {
    LOOKED_AT = 1 << 28 /* labels, at most: about a second */
};

/* Goes through a file's labels, by pieces; of very many through every k-th piece. */
static meg_status tally_file(meg_error *e, const state *s, const meg_npy *a, int64_t every,
                             meg_label_tally *t)
{
    int64_t number[MEG_NPY_PIECE];
    for (int64_t at = 0; at < a->count; at += every * MEG_NPY_PIECE) {
        int64_t count = a->count - at < MEG_NPY_PIECE ? a->count - at : MEG_NPY_PIECE;
        MEG_TRY(e, read_wholes(e, &(stretch){a, at, count}, number));
        meg_label_tally_add(t, &s->rule, at, count, number);
        if (t->wrong_at >= 0) return wrong_label(e, &s->rule, a->name, t->wrong_at, t->wrong);
    }
    return MEG_OK;
}

/* Counts the classes, unless the user did, and says what looks wrong. */
static meg_status count_classes(meg_error *e, state *s, meg_dataset *d)
{
    int64_t all = 0;
    meg_label_tally *t = malloc(sizeof *t);
    MEG_CHECK(e, t, MEG_ENOMEM, "npy: no memory");
    meg_label_tally_begin(t);
    for (int i = 0; i < s->labels.count; i++)
        all += s->labels.file[i].count;
    meg_status status = MEG_OK;
    for (int i = 0; i < s->labels.count && status == MEG_OK; i++)
        status = tally_file(e, s, &s->labels.file[i], all / LOOKED_AT + 1, t);
    if (status == MEG_OK) meg_label_judge(t, &s->rule, s->labels.file[0].name, d);
    if (status == MEG_OK && t->none == all)
        status = meg_fail(e, MEG_EDATA,
                          "npy: none of the %" PRId64 " labels of %s counts: there is nothing to "
                          "learn; ignore=%" PRId64 " and map= say which do not",
                          all, s->labels.file[0].name, s->rule.ignore);
    bool open = s->rule.classes == INT32_MAX;
    if (open) s->rule.classes = t->most < 0 ? 1 : t->most + 1;
    if (open && all > LOOKED_AT && status == MEG_OK)
        snprintf(d->findings.said[1], MEG_FINDING,
                 "%" PRId64 " labels are too many to look at all: %" PRId64
                 " classes were found in a part; classes= says how many there are",
                 all, s->rule.classes);
    free(t);
    return status;
}

/* Files that belong together have as many labels as images. */
static meg_status match_files(meg_error *e, const state *s)
{
    const meg_npy_list *x = &s->images, *y = &s->labels;
    int64_t images = meg_npy_list_samples(x), labels = meg_npy_list_samples(y);
    bool pairs = x->count == y->count && x->count > 1;
    for (int i = 0; i < x->count && pairs; i++)
        MEG_CHECK(e, x->file[i].dims[0] == y->file[i].dims[0], MEG_EDATA,
                  "npy: %s has %" PRId64 " labels, but %s has %" PRId64 " images", y->file[i].name,
                  y->file[i].dims[0], x->file[i].name, x->file[i].dims[0]);
    MEG_CHECK(e, labels == images, MEG_EDATA,
              "npy: %s%s has %" PRId64 " labels, but %s%s has %" PRId64 " images", y->file[0].name,
              y->count > 1 ? " and on" : "", labels, x->file[0].name, x->count > 1 ? " and on" : "",
              images);
    return MEG_OK;
}

/* Is one of a file's targets a number? Of very many only the first are looked at. */
static meg_status find_target(meg_error *e, const meg_npy *a, int64_t *looked, bool *found)
{
    _Alignas(8) char piece[8 * MEG_NPY_PIECE];
    float target[MEG_NPY_PIECE];
    for (int64_t at = 0; at < a->count && !*found; at += MEG_NPY_PIECE) {
        int64_t count = a->count - at < MEG_NPY_PIECE ? a->count - at : MEG_NPY_PIECE;
        MEG_TRY(e, meg_npy_read(a, e, at, count, piece));
        a->type->to_float(target, piece, count, 1);
        *found = (*looked += count) > LOOKED_AT;
        for (int64_t i = 0; i < count && !*found; i++)
            *found = !isnan(target[i]);
    }
    return MEG_OK;
}

/* Targets that are no numbers do not count; a loss of none of them would be 0 for ever. */
static meg_status check_targets(meg_error *e, const state *s)
{
    int64_t looked = 0;
    bool found = false;
    for (int i = 0; i < s->labels.count && !found; i++)
        MEG_TRY(e, find_target(e, &s->labels.file[i], &looked, &found));
    MEG_CHECK(e, found, MEG_EDATA,
              "npy: none of the %" PRId64
              " targets of %s counts: all are nan, and there is nothing to learn",
              looked, s->labels.file[0].name);
    return MEG_OK;
}

/* Targets with as many axes as the images have the same layout; classes per pixel may have an axis of
 * one channel where those have theirs. */
static meg_status shape_labels(meg_error *e, state *s, meg_dataset *d)
{
    static const layout plain = {"auto", 0, false, false};
    const meg_npy *a = &s->labels.file[0];
    bool real = !a->type->to_whole, alike = a->rank == s->images.file[0].rank;
    int64_t dims[MEG_AXES + 1];
    const layout *l = real && alike ? s->layout : &plain;
    int rank = turn_axes(a, l, dims), most = real ? MEG_AXES : MEG_AXES - 1;
    if (!real && alike && s->layout->last && a->dims[rank - 1] == 1) rank--;
    MEG_CHECK(e, 1 <= rank && rank <= most, MEG_EDATA,
              "npy: labels in %s have %d axes; accepted: 1 to %d, %s", a->name, a->rank, most,
              real ? "(n, c[, d, h, w])" : "(n[, d, h, w])");
    s->targets_last = l->last;
    MEG_TRY(e, match_files(e, s));
    meg_dataset_label(d, real, rank, dims);
    bool look = !real && (rank == 1 || s->rule.classes == INT32_MAX);
    if (look) MEG_TRY(e, count_classes(e, s, d));
    if (real) MEG_TRY(e, check_targets(e, s));
    d->classes = real ? 0 : (int)s->rule.classes;
    return MEG_OK;
}

/* ---- opening ---- */

static const char *const IMAGE_KEYS[] = {"images", "x", "X", "data", "samples", "arr_0", NULL};
static const char *const LABEL_KEYS[] = {"labels", "y", "Y", "targets", "masks", "arr_1", NULL};

static const char NO_LABELS[] = "none"; /* a file of that name is ./none */

static void close_state(state *s)
{
    if (!s) return;
    meg_npy_list_close(&s->images);
    meg_npy_list_close(&s->labels);
    free(s);
}

static meg_status open_lists(meg_error *e, const settings *o, state *s)
{
    MEG_TRY(e, meg_npy_list_open(e, o->images, IMAGE_KEYS, &s->images));
    if (strcmp(o->labels, NO_LABELS) == 0) return MEG_OK;
    const char *labels = o->labels[0] ? o->labels : s->images.file[0].path;
    bool archive = s->images.count == 1 && strcmp(s->images.file[0].path, s->images.file[0].name);
    MEG_CHECK(e, o->labels[0] || archive, MEG_EARG,
              "npy: 'labels' is missing: write labels=... (a file of whole numbers or of real "
              "targets), or labels=none to predict");
    MEG_TRY(e, meg_npy_list_open(e, labels, LABEL_KEYS, &s->labels));
    MEG_CHECK(e, strcmp(s->labels.file[0].name, s->images.file[0].name) != 0, MEG_EARG,
              "npy: %s holds the images: labels= must name another array", s->labels.file[0].name);
    return MEG_OK;
}

static meg_status open_state(meg_error *e, const settings *o, state *s, meg_dataset *d)
{
    s->layout = &LAYOUTS[o->layout];
    s->scale = (float)o->scale;
    d->tokens = o->tokens;
    MEG_TRY(e, meg_label_rule_make(e, o->map, o->classes, o->ignore, &s->rule));
    MEG_TRY(e, open_lists(e, o, s));
    MEG_TRY(e, shape_images(e, s, d));
    bool classes = o->map[0] || o->classes || o->ignore != -1;
    MEG_CHECK(e, s->labels.count || !classes, MEG_EARG,
              "npy: map=, classes= and ignore= are of labels, but labels=none: leave them out");
    if (s->labels.count == 0) {
        d->label = (meg_box){{0}, {0}};
        return MEG_OK;
    }
    MEG_TRY(e, shape_labels(e, s, d));
    MEG_CHECK(e, !d->real || !classes, MEG_EARG,
              "npy: map=, classes= and ignore= are of class labels, but %s has real targets (%s): "
              "leave them out, or save labels as whole numbers",
              s->labels.file[0].name, s->labels.file[0].type->name);
    return MEG_OK;
}

static meg_status open_set(meg_error *e, const void *with, meg_dataset *out)
{
    state *s = calloc(1, sizeof *s);
    MEG_CHECK(e, s, MEG_ENOMEM, "npy: no memory");
    meg_status status = open_state(e, with, s, out);
    if (status == MEG_OK) out->state = s;
    else close_state(s);
    return status;
}

static void close_set(meg_dataset *d)
{
    close_state(d->state);
}

/* ---- reading ---- */

typedef struct part { /* of a file, to be read as floats */
    const meg_npy *from;
    int64_t first; /* element of the sample */
    float scale;
    bool target;      /* of which nan does not count */
    int64_t channels; /* behind one another in the file; 0: channels come first */
    meg_box box;      /* what is wanted */
} part;

/* All ones where the exponent is: nan or inf. */
static bool finite_all(const float *x, int64_t count)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7f800000u;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000u;
}

static meg_status check_finite(meg_error *e, const part *p, int64_t at, const float *x,
                               int64_t count)
{
    char place[MEG_FINDING];
    for (int64_t i = 0; i < count; i++) {
        bool fine = isfinite(x[i]) || (p->target && isnan(x[i]));
        if (fine) continue;
        meg_npy_place(p->from, at + i, place, sizeof place);
        return meg_fail(e, MEG_EDATA,
                        "npy: %s is %s: a loss would be no number; mend this sample, or leave it "
                        "out",
                        place,
                        isnan(x[i]) ? "nan"
                        : x[i] > 0  ? "inf"
                                    : "-inf");
    }
    return MEG_OK;
}

/* Elements of the file from `at` on. */
static meg_status read_piece(meg_error *e, const part *p, int64_t at, int64_t count, float *out)
{
    _Alignas(8) char piece[8 * MEG_NPY_PIECE];
    MEG_TRY(e, meg_npy_read(p->from, e, at, count, piece));
    p->from->type->to_float(out, piece, count, p->scale);
    bool sound = !p->from->type->real || finite_all(out, count);
    return sound ? MEG_OK : check_finite(e, p, at, out, count);
}

static meg_status read_first(meg_error *e, const part *p, const meg_box *sample, float *out)
{
    for (meg_run r = meg_run_first(sample, &p->box); r.on; meg_run_next(&r))
        for (int64_t i = 0; i < r.length; i += MEG_NPY_PIECE) {
            int64_t count = r.length - i < MEG_NPY_PIECE ? r.length - i : MEG_NPY_PIECE;
            MEG_TRY(e, read_piece(e, p, p->first + r.at + i, count, out + r.done + i));
        }
    return MEG_OK;
}

/* (n, c, d, h, w) as (n, d, h, w, c), with all channels: they are neighbours in the file. */
static meg_box turned(const meg_box *b, int64_t channels)
{
    meg_box out = *b;
    for (int a = MEG_C; a < MEG_W; a++)
        out.lo[a] = b->lo[a + 1], out.hi[a] = b->hi[a + 1];
    out.lo[MEG_W] = 0;
    out.hi[MEG_W] = channels;
    return out;
}

/* Pixel by pixel out of the file, channel by channel into the box. */
static meg_status read_last(meg_error *e, const part *p, const meg_box *sample, float *out)
{
    float piece[MEG_NPY_PIECE];
    meg_box all = turned(sample, p->channels), box = turned(&p->box, p->channels);
    int64_t pixels = meg_box_size(&box) / p->channels;
    int64_t low = p->box.lo[MEG_C], high = p->box.hi[MEG_C];
    for (meg_run r = meg_run_first(&all, &box); r.on; meg_run_next(&r))
        for (int64_t i = 0; i < r.length; i += MEG_NPY_PIECE) {
            int64_t count = r.length - i < MEG_NPY_PIECE ? r.length - i : MEG_NPY_PIECE;
            MEG_TRY(e, read_piece(e, p, p->first + r.at + i, count, piece));
            int64_t pixel = (r.done + i) / p->channels, c = (r.done + i) % p->channels;
            for (int64_t k = 0; k < count; k++) {
                if (low <= c && c < high) out[(c - low) * pixels + pixel] = piece[k];
                if (++c == p->channels) c = 0, pixel++;
            }
        }
    return MEG_OK;
}

static meg_status read_floats(meg_error *e, const part *p, const meg_box *sample, float *out)
{
    if (meg_box_empty(&p->box)) return MEG_OK;
    return (p->channels ? read_last : read_first)(e, p, sample, out);
}

static meg_status read_sample(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    assert(0 <= index && index < d->count && meg_box_holds(&d->sample, box));
    const state *s = d->state;
    part p = {.scale = s->scale, .box = *box};
    p.from = meg_npy_list_at(&s->images, index, &index);
    p.first = index * meg_box_size(&d->sample);
    p.channels = s->layout->last ? d->sample.hi[MEG_C] : 0;
    return read_floats(e, &p, &d->sample, out);
}

static meg_status read_target(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    const state *s = d->state;
    part p = {.scale = 1, .target = true, .box = *box};
    p.from = meg_npy_list_at(&s->labels, index, &index);
    p.first = index * meg_box_size(&d->label);
    p.channels = s->targets_last ? d->label.hi[MEG_C] : 0;
    return read_floats(e, &p, &d->label, out);
}

static meg_status read_label(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *out)
{
    assert(0 <= index && index < d->count && meg_box_holds(&d->label, box));
    const state *s = d->state;
    if (d->real) return read_target(d, e, index, box, out);
    const meg_npy *a = meg_npy_list_at(&s->labels, index, &index);
    int64_t first = index * meg_box_size(&d->label);
    for (meg_run r = meg_run_first(&d->label, box); r.on; meg_run_next(&r))
        for (int64_t i = 0; i < r.length; i += MEG_NPY_PIECE) {
            int64_t count = r.length - i < MEG_NPY_PIECE ? r.length - i : MEG_NPY_PIECE;
            stretch x = {a, first + r.at + i, count};
            MEG_TRY(e, take_labels(e, &s->rule, &x, (int32_t *)out + r.done + i));
        }
    return MEG_OK;
}

/* ---- words without effect ---- */

static bool has_pixels(const void *o)
{
    return !((const settings *)o)->tokens;
}

static bool shows_something(const void *o)
{
    return ((const settings *)o)->scale != 0;
}

static const meg_rule RULES[] = {
    {"scale", "1", has_pixels, MEG_REFUSES, "would make other tokens of them: leave it out"},
    {"layout", "auto", has_pixels, MEG_REFUSES, "is of images, but these are tokens: leave it out"},
    {"scale", NULL, shows_something, MEG_REFUSES,
     "makes all images alike: use 1, or 1/255 as 0.00392"},
    {0},
};

const meg_reader meg_reader_npy = {
    .name = "npy",
    .doc =
        "NumPy files (.npy, .npz, lists of them): images or tokens, and labels: classes, classes "
        "per pixel, real targets",
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .open = open_set,
    .close = close_set,
    .read = read_sample,
    .label = read_label,
};
