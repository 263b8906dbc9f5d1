/* Readers: what they read is what is in the files, a box of a sample is that part of the sample,
 * and every bad file has a message that names it.
 */
#include "base/random.h"
#include "data/reader.h"
#include "scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

/* ---- helpers ---- */

static meg_dataset open_set(const char *source)
{
    meg_error e;
    meg_dataset d = {0};
    if (meg_dataset_open(&e, source, &d) != MEG_OK) fail_msg("%s: %s", source, e.message);
    return d;
}

/* `source` must be refused with `status` and a message that holds `part`. */
static void refused(const char *source, meg_status status, const char *part)
{
    meg_error e = {0};
    meg_dataset d = {0};
    meg_status got = meg_dataset_open(&e, source, &d);
    if (got == MEG_OK) fail_msg("%s was accepted; expected: %s", source, part);
    if (!strstr(e.message, part)) fail_msg("expected: %s\ngot: %s", part, e.message);
    if (got != status) fail_msg("%s: status %d, expected %d", e.message, got, status);
    assert_null(d.reader); /* set only on success */
}

static float *read_box(const meg_dataset *d, int64_t index, const meg_box *box, int32_t *label)
{
    meg_error e;
    float *out = malloc((size_t)meg_box_size(box) * sizeof *out + 1);
    if (d->reader->read(d, &e, index, box, out) != MEG_OK) fail_msg("%s", e.message);
    if (d->reader->label(d, &e, index, &d->label, label) != MEG_OK) fail_msg("%s", e.message);
    return out;
}

/* Random boxes of a sample equal that part of the whole, to the bit. */
static void check_boxes(const meg_dataset *d, int64_t index)
{
    meg_stream s = {.seed = 5, .name = meg_hash(d->source)};
    int32_t label, same;
    float *whole = read_box(d, index, &d->sample, &label);
    for (uint64_t trial = 0, draw = 0; trial < 50; trial++) {
        meg_box box = d->sample;
        for (int a = MEG_C; a < MEG_AXES; a++) {
            int64_t extent = d->sample.hi[a];
            box.lo[a] = (int64_t)(meg_random_uniform(s, draw++) * (double)extent);
            double rest = (double)(extent - box.lo[a]);
            box.hi[a] = box.lo[a] + 1 + (int64_t)(meg_random_uniform(s, draw++) * rest);
        }
        float *part = read_box(d, index, &box, &same);
        int64_t p[MEG_AXES], i = 0;
        assert_int_equal(label, same);
        for (bool on = meg_box_first(&box, p); on; on = meg_box_next(&box, p), i++)
            if (part[i] != whole[meg_box_at(&d->sample, p)])
                fail_msg("%s: sample %lld: element %lld of a box differs", d->source,
                         (long long)index, (long long)i);
        free(part);
    }
    free(whole);
}

static void test_registry(void **state)
{
    (void)state;
    assert_string_equal(meg_reader_at(0)->name, "fashion-mnist");
    assert_ptr_equal(meg_reader_find("npy"), meg_reader_at(1));
    assert_null(meg_reader_find("fashion_mnist"));
    assert_null(meg_reader_at(-1));
    assert_null(meg_reader_at(3));
    refused("mnist:split=test", MEG_EARG,
            "data: unknown reader 'mnist' (did you mean fashion-mnist?); known: fashion-mnist npy");
    refused("", MEG_EARG, "unknown reader ''");
    refused("synthetic:images=3", MEG_EARG,
            "synthetic: unknown word 'images' (did you mean image?); known: image labels extent "
            "tokens classes count seed");
    meg_dataset_close(NULL);
}

/* A box that covers the last axes wholly is read in few runs. */
static void test_runs(void **state)
{
    (void)state;
    meg_box sample = meg_box_of(1, 3, 1, 4, 5), rows = sample, empty = sample;
    meg_run r = meg_run_first(&sample, &sample);
    assert_true(r.on);
    assert_int_equal(r.length, 60);
    meg_run_next(&r);
    assert_false(r.on);

    rows.lo[MEG_H] = 1, rows.hi[MEG_H] = 3;
    r = meg_run_first(&sample, &rows);
    for (int c = 0; c < 3; c++, meg_run_next(&r)) {
        assert_true(r.on);
        assert_int_equal(r.length, 10);
        assert_int_equal(r.at, 20 * c + 5);
        assert_int_equal(r.done, 10 * c);
    }
    assert_false(r.on);
    empty.hi[MEG_H] = 0;
    assert_false(meg_run_first(&sample, &empty).on);
}

/* ---- Fashion-MNIST ---- */

enum {
    COUNT = 5,
    HIGH = 3,
    WIDE = 4,
    PIXELS = COUNT * HIGH * WIDE
};

typedef struct idx_file { /* an idx file in memory */
    uint8_t bytes[16 + PIXELS];
    size_t size;
} idx_file;

static idx_file images_file(void)
{
    idx_file f = {{0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, HIGH, 0, 0, 0, WIDE}, 16 + PIXELS};
    for (int i = 0; i < PIXELS; i++)
        f.bytes[16 + i] = (uint8_t)(i * 37);
    return f;
}

static idx_file labels_file(void)
{
    return (idx_file){{0, 0, 8, 1, 0, 0, 0, COUNT, 3, 1, 4, 1, 9}, 8 + COUNT};
}

/* Packs the file; `cut` bytes are missing at its end. */
static void pack(scratch *s, const char *name, const idx_file *f, size_t cut)
{
    uint8_t packed[512];
    const char *path = scratch_path(s, name);
    gzFile gz = gzopen(path, "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, f->bytes, (unsigned)f->size), (int)f->size);
    assert_int_equal(gzclose(gz), Z_OK);
    FILE *in = fopen(path, "rb");
    size_t size = fread(packed, 1, sizeof packed, in);
    fclose(in);
    assert_true(size > cut && size < sizeof packed);
    scratch_write(s, name, packed, size - cut);
}

static const char IMAGES[] = "t10k-images-idx3-ubyte.gz", LABELS[] = "t10k-labels-idx1-ubyte.gz";

static void pack_good(scratch *s)
{
    idx_file images = images_file(), labels = labels_file();
    pack(s, IMAGES, &images, 0);
    pack(s, LABELS, &labels, 0);
}

static void source_of(const scratch *s, char text[300])
{
    snprintf(text, 300, "fashion-mnist:split=test dir='%s'", s->dir);
}

static void test_fashion(void **state)
{
    scratch *s = *state;
    char source[300];
    pack_good(s);
    source_of(s, source);
    meg_dataset d = open_set(source);
    meg_box shape = meg_box_of(1, 1, 1, HIGH, WIDE);
    assert_int_equal(d.count, COUNT);
    assert_int_equal(d.rank, 4);
    assert_int_equal(d.dims[0], COUNT);
    assert_int_equal(d.dims[3], WIDE);
    assert_int_equal(d.classes, 10);
    assert_true(meg_box_equal(&d.sample, &shape));
    idx_file images = images_file(), labels = labels_file();
    for (int n = 0; n < COUNT; n++) {
        int32_t label;
        float *x = read_box(&d, n, &d.sample, &label);
        assert_int_equal(label, labels.bytes[8 + n]);
        for (int i = 0; i < HIGH * WIDE; i++) {
            double expected = (images.bytes[16 + n * HIGH * WIDE + i] / 255.0 - 0.2860) / 0.3530;
            assert_true(fabs(x[i] - expected) < 1e-6);
        }
        free(x);
        check_boxes(&d, n);
    }
    meg_dataset_close(&d);
    assert_null(d.state);
}

/* Each cut of either file, down to its last byte (the checksum), is noticed. */
static void test_fashion_truncated(void **state)
{
    scratch *s = *state;
    char source[300];
    source_of(s, source);
    for (size_t cut = 1; cut < 40; cut++) {
        idx_file images = images_file(), labels = labels_file();
        pack_good(s);
        pack(s, IMAGES, &images, cut);
        refused(source, MEG_EDATA, IMAGES);
        if (cut > 20) continue;
        pack_good(s);
        pack(s, LABELS, &labels, cut);
        refused(source, MEG_EDATA, "t10k-labels-idx1-ubyte.gz is truncated");
    }
}

static void test_fashion_damaged(void **state)
{
    scratch *s = *state;
    char source[300];
    uint8_t packed[512];
    source_of(s, source);
    pack_good(s);
    FILE *in = fopen(scratch_path(s, IMAGES), "rb");
    size_t size = fread(packed, 1, sizeof packed, in);
    fclose(in);
    for (size_t at = 10; at < size; at++) { /* the lowest bits: the highest may be fill */
        packed[at] ^= 1;
        scratch_write(s, IMAGES, packed, size);
        refused(source, MEG_EDATA, IMAGES);
        packed[at] ^= 1;
    }
    scratch_write(s, IMAGES, "", 0);
    refused(source, MEG_EDATA, "t10k-images-idx3-ubyte.gz is truncated");
}

typedef struct patch { /* one byte of an idx file changed */
    bool labels;
    int at, value;
    const char *message;
} patch;

static const patch PATCHES[] = {
    {false, 3, 1,
     "begins with 00000801, but an idx file of bytes with 3 axes begins with 00000803"},
    {false, 0, 9, "begins with 09000803"},
    {true, 2, 0xd, "begins with 00000d01"},
    {false, 11, 0, "axis 1 of "},
    {false, 4, 0xff, "axis 0 of "},
    {false, 10, 1, "idx3-ubyte.gz is truncated"}, /* 259 rows */
    {false, 7, COUNT - 1, "idx3-ubyte.gz goes on after the 48 bytes that its header announces"},
    {true, 7, COUNT + 1, "idx1-ubyte.gz is truncated"},
    {true, 7, COUNT - 1, "idx1-ubyte.gz goes on after"},
    {true, 9, 10, "label 1 of "},
    {true, 9, 10, "is 10, but 0..9 was expected"},
};

static void test_fashion_wrong(void **state)
{
    scratch *s = *state;
    char source[300];
    source_of(s, source);
    for (size_t i = 0; i < sizeof PATCHES / sizeof *PATCHES; i++) {
        const patch *p = &PATCHES[i];
        idx_file f = p->labels ? labels_file() : images_file();
        f.bytes[p->at] = (uint8_t)p->value;
        pack_good(s);
        pack(s, p->labels ? LABELS : IMAGES, &f, 0);
        refused(source, MEG_EDATA, p->message);
    }
    idx_file fewer = labels_file(); /* a sound file, but of another set */
    fewer.bytes[7] = COUNT - 1;
    fewer.size--;
    pack_good(s);
    pack(s, LABELS, &fewer, 0);
    refused(source, MEG_EDATA, "has 4 labels, but ");

    unlink(scratch_path(s, LABELS));
    refused(source, MEG_EIO, "install Debian's package dataset-fashion-mnist or give dir=PATH");
    refused("fashion-mnist:dir=/nowhere", MEG_EIO,
            "cannot open /nowhere/train-images-idx3-ubyte.gz: No such file or directory");
    refused("fashion-mnist:split=all", MEG_EARG, "split=all is not known: use train|test");
}

/* The real one, if installed: 60,000 pictures of mean 0 and deviation 1, all classes alike. */
static void test_fashion_real(void **state)
{
    (void)state;
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0) skip();
    meg_dataset d = open_set("fashion-mnist");
    assert_int_equal(d.count, 60000);
    double sum = 0, square = 0;
    int histogram[10] = {0};
    for (int64_t n = 0; n < d.count; n++) {
        float x[784];
        int32_t label;
        meg_error e;
        assert_int_equal(d.reader->read(&d, &e, n, &d.sample, x), MEG_OK);
        assert_int_equal(d.reader->label(&d, &e, n, &d.label, &label), MEG_OK);
        histogram[label]++;
        for (int i = 0; i < 784; i++)
            sum += x[i], square += x[i] * x[i];
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(histogram[i], 6000);
    double size = 60000.0 * 784;
    assert_true(fabs(sum / size) < 1e-3); /* the constants have four digits */
    assert_true(fabs(square / size - 1) < 1e-3);
    meg_dataset_close(&d);
}

/* ---- synthetic ---- */

static void test_synthetic(void **state)
{
    (void)state;
    static const char *const sources[] = {"synthetic:image=3x9x11 classes=7 count=50",
                                          "synthetic:image=2x3x5x4 seed=3", "synthetic:image=4x13",
                                          "synthetic:image=6", "synthetic:image=1x70000 count=3"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        meg_dataset d = open_set(sources[i]), again = open_set(sources[i]);
        for (int64_t n = 0; n < 3; n++) {
            int32_t label, same;
            float *x = read_box(&d, n, &d.sample, &label);
            float *y = read_box(&again, n, &d.sample, &same);
            assert_in_range(label, 0, d.classes - 1);
            assert_int_equal(label, same);
            assert_memory_equal(x, y, (size_t)meg_box_size(&d.sample) * sizeof *x);
            free(x);
            free(y);
            check_boxes(&d, n);
        }
        meg_dataset_close(&d);
        meg_dataset_close(&again);
    }
    meg_dataset d = open_set("synthetic:image=2x3x5x4");
    meg_box shape = meg_box_of(1, 2, 3, 5, 4);
    assert_true(meg_box_equal(&d.sample, &shape));
    assert_int_equal(d.rank, 5);
    meg_dataset_close(&d);
    refused("synthetic:image=1x1x1x1x1", MEG_EARG, "image has 5 axes; write 1 to 4 numbers");
    refused("synthetic:image=16777216x16777216", MEG_EARG, "too large");
    refused("synthetic:image=0x3", MEG_EARG, "out of range");
    refused("synthetic:count=0", MEG_EARG, "out of range");
}

/* Labels per pixel, real targets, tokens: boxes of labels equal that part of the whole, and the
 * tokens' labels are the tokens that follow. */
static void test_synthetic_labels(void **state)
{
    (void)state;
    meg_error e;
    meg_dataset d = open_set("synthetic:image=2x9x11 labels=pixels extent=5x7 classes=3");
    int32_t whole[35], part[6], seen[3] = {0};
    for (int64_t n = 0; n < 8; n++) {
        assert_int_equal(d.reader->label(&d, &e, n, &d.label, whole), MEG_OK);
        meg_box box = d.label;
        box.lo[MEG_H] = 1, box.hi[MEG_H] = 3, box.lo[MEG_W] = 4;
        assert_int_equal(d.reader->label(&d, &e, n, &box, part), MEG_OK);
        for (int i = 0; i < 6; i++)
            assert_int_equal(part[i], whole[(1 + i / 3) * 7 + 4 + i % 3]);
        for (int i = 0; i < 35; i++)
            seen[whole[i]]++;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    meg_dataset_close(&d);

    d = open_set("synthetic:image=1x4x4x4 labels=real extent=3");
    float target[2][3];
    for (int64_t n = 0; n < 2; n++)
        assert_int_equal(d.reader->label(&d, &e, n, &d.label, target[n]), MEG_OK);
    assert_true(d.real && d.label.hi[MEG_C] == 3 && target[0][0] != target[0][1]);
    assert_true(target[0][0] != target[1][0] && fabsf(target[0][0]) <= 1);
    meg_dataset_close(&d);

    d = open_set("synthetic:image=40 tokens=1 classes=50");
    float x[40];
    int32_t next[40];
    int regular = 0;
    assert_int_equal(d.reader->read(&d, &e, 3, &d.sample, x), MEG_OK);
    assert_int_equal(d.reader->label(&d, &e, 3, &d.label, next), MEG_OK);
    for (int i = 0; i < 39; i++) {
        assert_int_equal(next[i], (int32_t)x[i + 1]);
        regular += (next[i] - (int32_t)x[i] + 50) % 50 == (next[1] - next[0] + 50) % 50;
    }
    assert_in_range(regular, 20, 39);
    meg_dataset_close(&d);
    refused("synthetic:tokens=1", MEG_EARG, "image=128");
    refused("synthetic:image=1x4x4 labels=pixels extent=5x4", MEG_EARG, "beyond the image");
}

static float distance(const float *x, const float *y, int64_t size)
{
    float sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

/* It can be learnt: the class of the nearest class mean, made from one seed, is right on samples of
 * another seed, far beyond chance. */
static void test_synthetic_learnable(void **state)
{
    (void)state;
    enum {
        CLASSES = 10,
        SIZE = 12 * 12,
        SAMPLES = 400
    };
    static const char *const source = "synthetic:image=1x12x12 count=400 seed=1";
    meg_dataset train = open_set("synthetic:image=1x12x12 count=400"), test = open_set(source);
    float mean[CLASSES][SIZE] = {{0}};
    int count[CLASSES] = {0}, right = 0;
    int32_t label;
    for (int64_t n = 0; n < SAMPLES; n++) {
        float *x = read_box(&train, n, &train.sample, &label);
        count[label]++;
        for (int i = 0; i < SIZE; i++)
            mean[label][i] += (x[i] - mean[label][i]) / (float)count[label];
        free(x);
    }
    for (int64_t n = 0; n < SAMPLES; n++) {
        float *x = read_box(&test, n, &test.sample, &label);
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (distance(x, mean[c], SIZE) < distance(x, mean[best], SIZE)) best = c;
        right += best == label;
        free(x);
    }
    if (right < SAMPLES * 9 / 10) fail_msg("%d of %d right, expected 90 %%", right, SAMPLES);
    meg_dataset_close(&train);
    meg_dataset_close(&test);
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_runs),
        cmocka_unit_test_prestate(test_fashion, &s),
        cmocka_unit_test_prestate(test_fashion_truncated, &s),
        cmocka_unit_test_prestate(test_fashion_damaged, &s),
        cmocka_unit_test_prestate(test_fashion_wrong, &s),
        cmocka_unit_test(test_fashion_real),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_labels),
        cmocka_unit_test(test_synthetic_learnable),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
