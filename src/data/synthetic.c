/* Synthetic data: for benchmarks and tests without data. Each class is a plane wave with its own
 * frequencies, and its own phase per channel; a sample is its class's wave plus noise, so a network
 * can learn it. The waves depend on the class alone: another seed gives other samples of the same
 * classes, a test set for the first.
 *
 *     labels=sample   the class
 *     labels=pixels   where in its turn the wave of channel 0 is, in `classes` parts; of the middle
 *                     of the image, if the labels' extents are smaller
 *     labels=real     for each of the targets a number of the class
 *     tokens=yes      a sample counts up from a random id in steps of the class, now and then
 *                     disturbed; the label of a token is the one that follows
 *
 * Phases are 32-bit fractions of a turn, and cosine and noise come from tables made at opening:
 * a pixel costs two look-ups and does not depend on the box it is read in.
 */
#include "base/random.h"
#include "data/reader.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    WAVE_BITS = 12,
    NOISE_BITS = 16,
    FREQUENCIES = 4
};
static const double NOISE = 0.5; /* deviation; the wave's amplitude is 1 */

typedef struct settings {
    meg_axes image, extent;
    int64_t classes, count, seed;
    int labels;
    bool tokens;
} settings;

enum {
    PER_SAMPLE,
    PER_PIXEL,
    REAL
};

typedef struct state {
    uint64_t seed;
    int labels;
    float wave[1 << WAVE_BITS];   /* one turn of a cosine */
    float noise[1 << NOISE_BITS]; /* each sample begins at another place */
} state;

static const meg_param PARAMS[] = {
    {"image", MEG_PARAM_AXES, offsetof(settings, image), "1x28x28",
     "shape of a sample: CxHxW, CxDxHxW, CxW or C", .lo = 1, .hi = 1 << 24},
    {"labels", MEG_PARAM_CHOICE, offsetof(settings, labels), "sample",
     "one class per sample or per pixel, or real targets", .choices = "sample|pixels|real"},
    {"extent", MEG_PARAM_AXES, offsetof(settings, extent), "0",
     "of the labels: HxW or DxHxW (0: the image's), or how many targets", .lo = 0, .hi = 1 << 24},
    {"tokens", MEG_PARAM_BOOL, offsetof(settings, tokens), "no",
     "image=N is a row of N tokens, classes the kinds of tokens", .choices = NULL},
    {"classes", MEG_PARAM_INT, offsetof(settings, classes), "10", "number of classes", .lo = 1,
     .hi = 1 << 24},
    {"count", MEG_PARAM_INT, offsetof(settings, count), "1024", "number of samples", .lo = 1,
     .hi = 0x1p40},
    {"seed", MEG_PARAM_INT, offsetof(settings, seed), "0", "other samples of the same classes",
     .lo = 0, .hi = 0x1p53},
    {0},
};

static meg_status shape_labels(meg_error *e, const settings *o, meg_dataset *d)
{
    int64_t dims[MEG_AXES] = {o->count};
    bool given = o->extent.count > 1 || o->extent.at[0] > 0;
    MEG_CHECK(e, o->extent.count < MEG_AXES - (o->labels != REAL), MEG_EARG,
              "synthetic: extent has %d axes: write HxW or DxHxW", o->extent.count);
    for (int i = 0; i < o->extent.count; i++)
        dims[i + 1] = o->extent.at[i] ? o->extent.at[i] : 1;
    if (o->tokens) {
        meg_dataset_tokens(d);
        d->label = d->sample;
    } else if (o->labels != PER_SAMPLE && (given || o->labels == REAL)) {
        meg_dataset_label(d, o->labels == REAL, o->extent.count + 1, dims);
    } else if (o->labels == PER_PIXEL) {
        d->label = d->sample;
        d->label.hi[MEG_C] = 1;
    }
    for (int a = MEG_D; a < MEG_AXES && o->labels == PER_PIXEL; a++)
        MEG_CHECK(e, d->label.hi[a] <= d->sample.hi[a], MEG_EARG,
                  "synthetic: labels per pixel reach beyond the image: use a smaller extent");
    return MEG_OK;
}

static meg_status open_set(meg_error *e, const void *with, meg_dataset *out)
{
    const settings *o = with;
    int64_t dims[MEG_AXES] = {o->count}, size = 1;
    int rank = o->image.count + 1;
    MEG_CHECK(e, !o->tokens || rank == 2, MEG_EARG,
              "synthetic: a row of tokens has one extent, like image=128");
    MEG_CHECK(e, rank <= MEG_AXES, MEG_EARG,
              "synthetic: image has %d axes; write 1 to 4 numbers, CxHxW for pictures",
              o->image.count);
    for (int i = 1; i < rank; i++) {
        dims[i] = o->image.at[i - 1];
        MEG_CHECK(e, size <= (INT64_C(1) << 40) / dims[i], MEG_EARG,
                  "synthetic: an image of more than 2^40 values is too large");
        size *= dims[i];
    }
    state *s = malloc(sizeof *s);
    MEG_CHECK(e, s, MEG_ENOMEM, "synthetic: no memory");
    meg_stream noise = {.name = meg_hash("synthetic noise")};
    for (int i = 0; i < 1 << WAVE_BITS; i++)
        s->wave[i] = (float)cos(2 * M_PI * i / (1 << WAVE_BITS));
    for (int i = 0; i < 1 << NOISE_BITS; i++)
        s->noise[i] = (float)((double)NOISE * (double)meg_random_normal(noise, (uint64_t)i));
    s->seed = (uint64_t)o->seed;
    s->labels = o->labels;
    out->classes = o->labels == REAL ? 0 : (int)o->classes;
    meg_dataset_shape(out, rank, dims);
    meg_status status = shape_labels(e, o, out);
    if (status == MEG_OK) out->state = s;
    else free(s);
    return status;
}

static void close_set(meg_dataset *d)
{
    free(d->state);
}

typedef struct wave { /* of one class: turns/2^32 per pixel along each axis */
    int32_t label;
    uint32_t step[MEG_AXES];
} wave;

static wave wave_of(const meg_dataset *d, int32_t label)
{
    wave w = {.label = label};
    uint32_t bits[4];
    meg_stream s = {.name = meg_hash("synthetic wave")};
    meg_random_bits(s, (uint64_t)label, bits);
    for (int a = MEG_D; a < MEG_AXES; a++) { /* 0 to 3 turns over the axis, either way */
        int64_t turns = bits[a - MEG_D] % FREQUENCIES;
        uint32_t step = (uint32_t)((turns << 32) / d->sample.hi[a]);
        w.step[a] = bits[a - MEG_D] >> 31 ? step : -step;
    }
    return w;
}

static uint32_t phase_at(const wave *w, const int64_t p[MEG_AXES])
{
    uint32_t bits[4];
    meg_stream s = {.name = meg_hash("synthetic phase"), .step = (uint64_t)w->label};
    meg_random_bits(s, (uint64_t)p[MEG_C], bits);
    for (int a = MEG_D; a < MEG_AXES; a++)
        bits[0] += w->step[a] * (uint32_t)p[a];
    return bits[0];
}

enum {
    KINDS = 64,    /* of waves, where the label is not the class */
    DISTURBED = 16 /* one token of so many is random */
};

/* What is random of one sample; the first number decides its class. */
static int32_t draw_sample(const meg_dataset *d, int64_t index, uint32_t bits[4])
{
    const state *s = d->state;
    meg_stream stream = {.seed = s->seed, .name = meg_hash("synthetic sample")};
    meg_random_bits(stream, (uint64_t)index, bits);
    bool classes = s->labels == PER_SAMPLE && !d->tokens;
    return (int32_t)(bits[0] % (uint32_t)(classes ? d->classes : KINDS));
}

/* Token i of a sample; i may be one past its end. */
static int32_t token_at(const meg_dataset *d, int64_t index, int64_t i)
{
    const state *s = d->state;
    uint32_t bits[4], noise[4];
    uint64_t kinds = (uint64_t)d->classes;
    int32_t step = draw_sample(d, index, bits);
    meg_stream stream = {s->seed, (uint64_t)index, meg_hash("synthetic tokens")};
    meg_random_bits(stream, (uint64_t)i, noise);
    if (noise[0] % DISTURBED == 0) return (int32_t)(noise[1] % kinds);
    return (int32_t)((bits[1] + (uint64_t)i * (uint64_t)(step + 1)) % kinds);
}

static meg_status read_sample(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    (void)e;
    assert(0 <= index && index < d->count && meg_box_holds(&d->sample, box));
    const state *s = d->state;
    uint32_t bits[4];
    for (int64_t i = box->lo[MEG_W]; d->tokens && i < box->hi[MEG_W]; i++)
        *out++ = (float)token_at(d, index, i);
    if (d->tokens) return MEG_OK;

    wave w = wave_of(d, draw_sample(d, index, bits));
    meg_box rows = *box;
    int64_t p[MEG_AXES], length = meg_extent(box, MEG_W);
    if (!meg_box_empty(box)) rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p), out += length) {
        uint32_t phase = phase_at(&w, p);
        uint64_t place = bits[1] + (uint64_t)meg_box_at(&d->sample, p);
        for (int64_t i = 0; i < length; i++, phase += w.step[MEG_W])
            out[i] = s->wave[phase >> (32 - WAVE_BITS)] +
                     s->noise[(place + (uint64_t)i) & ((1 << NOISE_BITS) - 1)];
    }
    return MEG_OK;
}

/* Targets depend on the class alone. */
static void real_targets(int32_t kind, const meg_box *box, float *out)
{
    meg_stream s = {.step = (uint64_t)kind, .name = meg_hash("synthetic target")};
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p))
        *out++ = (float)(2 * meg_random_uniform(s, (uint64_t)p[MEG_C]) - 1);
}

static meg_status read_label(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *to)
{
    (void)e;
    assert(0 <= index && index < d->count && meg_box_holds(&d->label, box));
    const state *s = d->state;
    int32_t *out = to;
    uint32_t bits[4];
    int32_t kind = draw_sample(d, index, bits);
    if (d->real) real_targets(kind, box, to);
    for (int64_t i = box->lo[MEG_W]; d->tokens && i < box->hi[MEG_W]; i++)
        *out++ = token_at(d, index, i + 1);
    if (d->real || d->tokens) return MEG_OK;

    wave w = wave_of(d, kind);
    int64_t p[MEG_AXES], at[MEG_AXES] = {0};
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p)) {
        for (int a = MEG_D; a < MEG_AXES; a++)
            at[a] = p[a] + (d->sample.hi[a] - d->label.hi[a]) / 2;
        uint64_t part = (uint64_t)phase_at(&w, at) * (uint64_t)d->classes >> 32;
        *out++ = s->labels == PER_PIXEL ? (int32_t)part : kind;
    }
    return MEG_OK;
}

static bool has_extent(const void *o)
{
    return ((const settings *)o)->labels != PER_SAMPLE;
}

static const meg_rule RULES[] = {
    {"extent", "0", has_extent, MEG_REFUSES,
     "has no effect with one class per sample: give labels=pixels or labels=real, or leave it out"},
    {0},
};

const meg_reader meg_reader_synthetic = {
    .name = "synthetic",
    .doc = "waves or tokens that a network can learn, plus noise; any shape and count",
    .params = PARAMS,
    .rules = RULES,
    .settings_bytes = sizeof(settings),
    .open = open_set,
    .close = close_set,
    .read = read_sample,
    .label = read_label,
};
