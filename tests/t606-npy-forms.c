/* NumPy files as people have them: every type, channels last, archives, lists of files, labels that
 * need a map; and what is found when data cannot be meant.
 */
#include "data/data.h"
#include "npy_help.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static meg_status open_set(scratch *s, meg_error *e, const char *words, meg_dataset *d)
{
    char source[MEG_TEXT];
    assert_int_equal(chdir(s->dir), 0);
    snprintf(source, sizeof source, "npy:%s", words);
    memset(e, 0, sizeof *e);
    return meg_dataset_open(e, source, d);
}

static meg_dataset opened(scratch *s, const char *words)
{
    meg_error e;
    meg_dataset d;
    if (open_set(s, &e, words, &d) != MEG_OK) fail_msg("%s: %s", words, e.message);
    return d;
}

static void refused(scratch *s, const char *words, const char *part)
{
    meg_error e;
    meg_dataset d = {0};
    if (open_set(s, &e, words, &d) == MEG_OK)
        fail_msg("%s was accepted; expected: %s", words, part);
    if (!strstr(e.message, part)) fail_msg("%s\nexpected: %s\ngot: %s", words, part, e.message);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("expected: %s\ngot: %s", part, text);
}

static void write_array(scratch *s, const char *name, const char *type, const char *shape,
                        const void *data, size_t bytes)
{
    char header[128];
    npy_write(s, name, 1, npy_header(header, type, shape), data, bytes);
}

static void write_labels(scratch *s, const char *name, int count, const int64_t label[])
{
    char shape[32];
    snprintf(shape, sizeof shape, "%d,", count);
    write_array(s, name, "<i8", shape, label, (size_t)count * sizeof *label);
}

/* ---- types ---- */

typedef struct kind {
    const char *type;
    int bytes;
    unsigned char data[16]; /* two samples of one number */
    float value[2];
} kind;

static const kind KINDS[] = {
    {"|b1", 1, {0, 1}, {0, 1}},
    {"|u1", 1, {7, 255}, {7, 255}},
    {"|i1", 1, {7, 0xff}, {7, -1}},
    {"<u2", 2, {1, 2, 0xff, 0xff}, {513, 65535}},
    {">u2", 2, {2, 1, 0xff, 0xfe}, {513, 65534}},
    {"<i2", 2, {1, 2, 0xff, 0xff}, {513, -1}},
    {"<u4", 4, {1, 0, 1, 0, 0, 0, 0, 0x80}, {65537, 0x1p31f}},
    {">i4", 4, {0xff, 0xff, 0xff, 0xfe, 0, 0, 1, 0}, {-2, 256}},
    {"<u8", 8, {3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}, {3, 0x1p63f}},
    {"<f2", 2, {0x00, 0x3c, 0x01, 0x80}, {1, -0x1p-24f}},
    {"<f2", 2, {0xff, 0x7b, 0x00, 0x04}, {65504, 0x1p-14f}},
    {">f4", 4, {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}, {1, -2}},
    {">f8", 8, {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0}, {1, -2}},
};

static void test_types(void **state)
{
    scratch *s = *state;
    write_labels(s, "y.npy", 2, (int64_t[]){0, 1});
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        const kind *x = &KINDS[k];
        write_array(s, "x.npy", x->type, "2, 1", x->data, 2 * (size_t)x->bytes);
        meg_dataset d = opened(s, "images=x.npy labels=y.npy scale=2");
        for (int i = 0; i < 2; i++) {
            float got;
            meg_error e;
            assert_int_equal(d.reader->read(&d, &e, i, &d.sample, &got), MEG_OK);
            if (got != 2 * x->value[i])
                fail_msg("%s: expected %g, got %g", x->type, (double)(2 * x->value[i]),
                         (double)got);
        }
        meg_dataset_close(&d);
    }
    write_array(s, "b.npy", "|b1", "2,", (char[]){1, 0}, 2);
    meg_dataset d = opened(s, "images=x.npy labels=b.npy");
    int32_t label;
    meg_error e;
    assert_int_equal(d.reader->label(&d, &e, 0, &d.label, &label), MEG_OK);
    assert_true(label == 1 && d.classes == 2);
    meg_dataset_close(&d);
}

/* ---- layouts ---- */

enum {
    COUNT = 3,
    CHANNELS = 3,
    HIGH = 5,
    WIDE = 700, /* a row is longer than a piece of the reader */
    SIZE = CHANNELS * HIGH * WIDE
};

/* Element (n, c, h, w), or (n, c, d, h, w): its number, channels first. */
static float *channels_last(int pixels)
{
    float *x = malloc((size_t)(COUNT * CHANNELS * pixels) * sizeof *x);
    for (int n = 0; n < COUNT; n++)
        for (int p = 0; p < pixels; p++)
            for (int c = 0; c < CHANNELS; c++)
                x[(n * pixels + p) * CHANNELS + c] = (float)((n * CHANNELS + c) * pixels + p);
    return x;
}

static void check_boxes(const meg_dataset *d)
{
    meg_box boxes[] = {d->sample, d->sample, d->sample, d->sample};
    boxes[1].lo[MEG_C] = 1, boxes[1].hi[MEG_C] = 2;
    boxes[2].lo[MEG_H] = 2, boxes[2].lo[MEG_W] = 3, boxes[2].hi[MEG_W] = d->sample.hi[MEG_W] - 1;
    boxes[3].hi[MEG_C] = 2, boxes[3].lo[MEG_W] = 1, boxes[3].lo[MEG_D] = d->sample.hi[MEG_D] - 1;
    int64_t size = meg_box_size(&d->sample), p[MEG_AXES];
    float *out = malloc((size_t)size * sizeof *out);
    for (int n = 0; n < COUNT; n++)
        for (int i = 0; i < 4; i++) {
            meg_error e;
            const float *at = out;
            assert_int_equal(d->reader->read(d, &e, n, &boxes[i], out), MEG_OK);
            for (bool on = meg_box_first(&boxes[i], p); on; on = meg_box_next(&boxes[i], p), at++)
                if (*at != (float)(n * size + meg_box_at(&d->sample, p)))
                    fail_msg("sample %d, box %d: got %g", n, i, (double)*at);
        }
    free(out);
}

static void test_layouts(void **state)
{
    scratch *s = *state;
    float *x = channels_last(HIGH * WIDE);
    size_t bytes = (size_t)(COUNT * SIZE) * sizeof *x;
    write_labels(s, "y.npy", COUNT, (int64_t[]){0, 1, 1});
    write_array(s, "x.npy", "<f4", "3, 5, 700, 3", x, bytes);
    meg_dataset d = opened(s, "images=x.npy labels=y.npy layout=nhwc");
    assert_true(d.rank == 4 && d.dims[1] == 3 && d.dims[2] == 5 && d.dims[3] == 700);
    assert_true(!*d.findings.shape);
    check_boxes(&d);
    meg_dataset_close(&d);
    write_array(s, "x.npy", "<f4", "3, 5, 7, 100, 3", x, bytes);
    d = opened(s, "images=x.npy labels=y.npy layout=ndhwc");
    assert_true(d.rank == 5 && d.sample.hi[MEG_C] == 3 && d.sample.hi[MEG_D] == 5);
    check_boxes(&d);
    meg_dataset_close(&d);
    write_array(s, "x.npy", "<f4", "3, 3500, 3", x, bytes);
    d = opened(s, "images=x.npy labels=y.npy layout=nwc");
    assert_true(d.rank == 3 && d.sample.hi[MEG_C] == 3 && d.sample.hi[MEG_W] == 3500);
    meg_dataset_close(&d);
    refused(s, "images=x.npy labels=y.npy layout=nhwc", "have 3 axes, but layout=nhwc has 4");
    free(x);

    /* Grey images without an axis for their channel; masks and real targets with channels last. */
    float grey[COUNT * 6 * 5] = {0}, targets[COUNT * 6 * 5 * 2];
    for (int i = 0; i < COUNT * 60; i++)
        targets[i] = (float)i;
    write_array(s, "x.npy", "<f4", "3, 6, 5", grey, sizeof grey);
    d = opened(s, "images=x.npy labels=y.npy layout=nhw");
    assert_true(d.rank == 4 && d.dims[1] == 1 && d.dims[2] == 6 && d.dims[3] == 5);
    meg_dataset_close(&d);
    write_array(s, "x.npy", "<f4", "3, 6, 5, 1", grey, sizeof grey);
    write_array(s, "m.npy", "|u1", "3, 6, 5, 1", (char[COUNT * 30]){1}, COUNT * 30);
    d = opened(s, "images=x.npy labels=m.npy layout=nhwc");
    assert_true(d.label.hi[MEG_D] == 1 && d.label.hi[MEG_H] == 6 && d.label.hi[MEG_W] == 5);
    meg_dataset_close(&d);
    write_array(s, "t.npy", "<f4", "3, 6, 5, 2", targets, sizeof targets);
    d = opened(s, "images=x.npy labels=t.npy layout=nhwc");
    meg_box one = d.label;
    float out[30];
    meg_error e;
    one.lo[MEG_C] = 1;
    assert_true(d.real && d.label.hi[MEG_C] == 2 && d.label.hi[MEG_H] == 6);
    assert_int_equal(d.reader->label(&d, &e, 2, &one, out), MEG_OK);
    assert_true(out[0] == 121 && out[29] == 179);
    meg_dataset_close(&d);
}

static void test_doubtful_shapes(void **state)
{
    scratch *s = *state;
    static const char zero[2 * 8 * 8 * 8 * 4];
    write_labels(s, "y.npy", 2, (int64_t[]){0, 1});
    static const struct {
        const char *shape, *finding;
        size_t bytes;
    } list[] = {
        {"2, 8, 8, 3",
         "has shape (2, 8, 8, 3), which as channels first would be 8 channels: use "
         "layout=nhwc",
         384},
        {"2, 8, 8, 1", "layout=nhwc if the last axis is the channels, layout=nchw if not", 128},
        {"2, 8, 8, 8, 4", "layout=ndhwc if the last axis", 4096},
        {"2, 8, 8", "use layout=nhw if these are images of one channel", 128},
        {"2, 3, 8, 8", "", 384},
        {"2, 3, 8, 3", "", 144},
        {"2, 8, 8, 8", "", 1024},
        {"2, 1, 8", "", 16},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        write_array(s, "x.npy", "|u1", list[i].shape, zero, list[i].bytes);
        meg_dataset d = opened(s, "images=x.npy labels=y.npy");
        has(d.findings.shape, list[i].finding);
        assert_true(*list[i].finding || !*d.findings.shape);
        meg_dataset_close(&d);
    }
}

/* ---- archives ---- */

static void write_archive(scratch *s, bool deflated, bool large)
{
    float x[12];
    char header[128];
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    npz_writer w = {
        .file = fopen(scratch_path(s, "d.npz"), "wb"), .deflated = deflated, .large = large};
    npz_add(&w, "other", npy_make(1, npy_header(header, "<f4", "3,"), x, 12));
    npz_add(&w, "y", npy_make(1, npy_header(header, "|u1", "4,"), "\0\1\2\1", 4));
    npz_add(&w, "x", npy_make(1, npy_header(header, "<f4", "4, 3"), x, 48));
    npz_end(&w);
}

static void test_archives(void **state)
{
    scratch *s = *state;
    for (int i = 0; i < 4; i++) {
        write_archive(s, i & 1, i & 2);
        static const char *const words[] = {"images=d.npz", "images=d.npz:x labels=d.npz:y"};
        for (int k = 0; k < 2; k++) {
            meg_dataset d = opened(s, words[k]);
            float out[3];
            int32_t label;
            meg_error e;
            assert_true(d.count == 4 && d.classes == 3);
            assert_int_equal(d.reader->read(&d, &e, 2, &d.sample, out), MEG_OK);
            assert_int_equal(d.reader->label(&d, &e, 2, &d.label, &label), MEG_OK);
            assert_true(out[0] == 6 && out[2] == 8 && label == 2);
            meg_dataset_close(&d);
        }
    }
    refused(s, "images=d.npz:z labels=d.npz:y", "d.npz has no array 'z'; it has: other y x");
    refused(s, "images=d.npz:x labels=d.npz:x", "d.npz:x holds the images");
    refused(s, "images=d.npz:x labels=d.npz:other", "d.npz:other has 3 labels, but d.npz:x has 4");
    write_labels(s, "y.npy", 4, (int64_t[]){0, 1, 2, 1});
    refused(s, "images=y.npy", "'labels' is missing");
    char header[128];
    npz_writer w = {.file = fopen(scratch_path(s, "t.npz"), "wb")};
    npz_add(&w, "x_train", npy_make(1, npy_header(header, "|u1", "2, 1"), "\0\1", 2));
    npz_add(&w, "x_test", npy_make(1, npy_header(header, "|u1", "2, 1"), "\0\1", 2));
    npz_end(&w);
    refused(s, "images=t.npz", "which array of t.npz? Write t.npz:NAME; it has: x_train x_test");
}

/* Every prefix of an archive is refused, and no wrong byte does harm: it is refused, or not noticed. */
static void test_damaged_archives(void **state)
{
    scratch *s = *state;
    char file[2048];
    for (int packed = 0; packed < 2; packed++) {
        write_archive(s, packed, true);
        FILE *in = fopen(scratch_path(s, "d.npz"), "rb");
        size_t size = fread(file, 1, sizeof file, in);
        fclose(in);
        meg_dataset d = opened(s, "images=d.npz");
        meg_dataset_close(&d);
        for (size_t cut = 0; cut < size; cut++) {
            scratch_write(s, "d.npz", file, cut);
            refused(s, "images=d.npz", "d.npz");
        }
        for (size_t i = 0; i < size; i++) {
            meg_error e;
            char was = file[i];
            file[i] = (char)(was ^ 1 << i % 8);
            scratch_write(s, "d.npz", file, size);
            if (open_set(s, &e, "images=d.npz", &d) == MEG_OK) meg_dataset_close(&d);
            file[i] = was;
        }
    }
}

/* ---- lists ---- */

static void write_part(scratch *s, int i, int count)
{
    char name[32], shape[32];
    float x[2 * 8];
    int64_t y[8];
    for (int k = 0; k < count; k++) {
        x[2 * k] = (float)(10 * i + k);
        x[2 * k + 1] = -1;
        y[k] = i;
    }
    snprintf(name, sizeof name, "x-%d.npy", i);
    snprintf(shape, sizeof shape, "%d, 2", count);
    write_array(s, name, "<f4", shape, x, (size_t)count * 8);
    snprintf(name, sizeof name, "y-%d.npy", i);
    write_labels(s, name, count, y);
}

static void test_lists(void **state)
{
    scratch *s = *state;
    enum {
        PARTS = 70, /* more than stay open */
        EACH = 3
    };
    for (int i = 10; i < 10 + PARTS; i++)
        write_part(s, i, EACH);
    scratch_write(s, "some.txt", "# parts\n  x-12.npy\n\nx-10.npy  # the first\n", 43);
    meg_dataset d = opened(s, "images=x-*.npy labels=y-*.npy classes=80");
    assert_true(d.count == PARTS * EACH);
    for (int n = 0; n < PARTS * EACH; n++) {
        float out[2];
        int32_t label;
        meg_error e;
        assert_int_equal(d.reader->read(&d, &e, n, &d.sample, out), MEG_OK);
        assert_int_equal(d.reader->label(&d, &e, n, &d.label, &label), MEG_OK);
        assert_true(label == 10 + n / EACH && out[0] == (float)(10 * label + n % EACH));
    }
    meg_dataset_close(&d);
    d = opened(s, "images=@some.txt labels=y-12.npy,y-10.npy");
    float first[2];
    meg_error e;
    assert_int_equal(d.reader->read(&d, &e, 0, &d.sample, first), MEG_OK);
    assert_true(d.count == 2 * EACH && first[0] == 120);
    meg_dataset_close(&d);

    refused(s, "images=z-*.npy labels=y-10.npy", "no file is named like z-*.npy");
    refused(s, "images=@none.txt labels=y-10.npy", "cannot open the list none.txt");
    refused(s, "images=x-10.npy,x-11.npy labels=y-10.npy",
            "y-10.npy has 3 labels, but x-10.npy and on has 6");
    write_part(s, 11, 2);
    write_part(s, 12, 4);
    refused(s, "images=x-10.npy,x-11.npy,x-12.npy labels=y-10.npy,y-12.npy,y-11.npy",
            "y-12.npy has 4 labels, but x-11.npy has 2");
    write_array(s, "x-11.npy", "<f4", "2, 3", (float[6]){0}, 24);
    refused(s, "images=x-10.npy,x-11.npy labels=y-10.npy,y-11.npy",
            "x-11.npy has shape (2, 3), but x-10.npy has (3, 2)");
    write_array(s, "x-11.npy", "|u1", "2, 2", (float[6]){0}, 4);
    refused(s, "images=x-10.npy,x-11.npy labels=y-10.npy,y-11.npy",
            "x-11.npy has type u1, but x-10.npy has f4");
}

/* ---- labels ---- */

static void labels_are(scratch *s, const char *words, int count, const int32_t want[])
{
    char all[MEG_TEXT];
    snprintf(all, sizeof all, "images=x.npy labels=y.npy %s", words);
    meg_dataset d = opened(s, all);
    for (int i = 0; i < count; i++) {
        int32_t got;
        meg_error e;
        assert_int_equal(d.reader->label(&d, &e, i, &d.label, &got), MEG_OK);
        if (got != want[i]) fail_msg("%s: label %d: expected %d, got %d", words, i, want[i], got);
    }
    meg_dataset_close(&d);
}

static void test_maps(void **state)
{
    scratch *s = *state;
    write_array(s, "x.npy", "|u1", "4, 1", "\0\1\2\3", 4);
    write_labels(s, "y.npy", 4, (int64_t[]){0, 255, 1000, -7});
    labels_are(s, "map=0:0,255:1,1000:2,-7:-1", 4, (int32_t[]){0, 1, 2, -1});
    labels_are(s, "map=-7..0:0,255:1,1000:0", 4, (int32_t[]){7, 1, 0, 0});
    refused(s, "images=x.npy labels=y.npy map=0:0,255:1",
            "label 2 of y.npy is 1000, which map= has no class for");
    refused(s, "images=x.npy labels=y.npy map=0:0,255", "is not understood near ''");
    refused(s, "images=x.npy labels=y.npy map=0-255:1", "is not understood near '-255:1'");
    refused(s, "images=x.npy labels=y.npy map=3..1:0", "write it like 0:0,255:1 or 1..10:0");
    write_labels(s, "y.npy", 4, (int64_t[]){1, 2, 3, 10});
    meg_dataset d = opened(s, "images=x.npy labels=y.npy map=1..10:0");
    assert_int_equal(d.classes, 10); /* those of the map, whether they occur or not */
    meg_dataset_close(&d);
    labels_are(s, "map=1..10:0", 4, (int32_t[]){0, 1, 2, 9});
}

typedef struct found {
    const char *words;
    int64_t label[20];
    const char *classes, *said;
} found;

static const found FOUND[] = {
    {"",
     {0, 255, 255, 0, 255, 0, 0, 0, 0, 0, 255, 0, 255, 0, 0, 0, 0, 0, 0, 0},
     "y.npy has 2 different labels up to 255, which would be 256 classes: use map=0:0,255:1, or "
     "classes=256",
     ""},
    {"classes=256", {0, 255, 255}, "", ""},
    {"map=0:0,255:1", {0, 255, 255}, "", ""},
    {"",
     {0, 1, 2, 3, 4, 5, 6, 900, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9, 9},
     "label 7 of y.npy is 900 (1 such), the next smaller is 9: use ignore=900",
     ""},
    {"ignore=900", {0, 1, 2, 3, 4, 5, 6, 900, 1}, "", "1 of 20 labels of y.npy do not count"},
    {"",
     {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2},
     "",
     "labels of y.npy start at 1, so that class 0 never occurs: map=1..3:0 counts from 0"},
    {"", {0, 1, -1, -1}, "", "2 of 20 labels of y.npy do not count"},
    {"", {5, 100000, 70000, 3, 2, 1, 0, 0, 0, 0, 100000}, "different labels up to 100000", ""},
    {"", {0, 1, 2, 4}, "", ""},
};

static void test_doubtful_labels(void **state)
{
    scratch *s = *state;
    char words[MEG_TEXT];
    write_array(s, "x.npy", "|u1", "20, 1", (char[20]){0}, 20);
    for (size_t i = 0; i < sizeof FOUND / sizeof *FOUND; i++) {
        const found *f = &FOUND[i];
        write_labels(s, "y.npy", 20, f->label);
        snprintf(words, sizeof words, "images=x.npy labels=y.npy %s", f->words);
        meg_dataset d = opened(s, words);
        char said[2 * MEG_FINDING];
        snprintf(said, sizeof said, "%s%s", d.findings.said[0], d.findings.said[1]);
        has(d.findings.classes, f->classes);
        has(said, f->said);
        if (!*f->classes && *d.findings.classes) fail_msg("%s", d.findings.classes);
        if (!*f->said && *said) fail_msg("%s", said);
        meg_dataset_close(&d);
    }
}

/* ---- numbers that are none ---- */

static void test_not_finite(void **state)
{
    scratch *s = *state;
    float x[2 * 3 * 4] = {0}, t[4] = {1, NAN, INFINITY, 2}, out[12];
    meg_error e;
    x[12 + 4 + 3] = NAN;
    write_array(s, "x.npy", "<f4", "2, 3, 4", x, sizeof x);
    write_array(s, "t.npy", "<f4", "2, 2", t, sizeof t);
    meg_dataset d = opened(s, "images=x.npy,x.npy labels=t.npy,t.npy");
    assert_int_equal(d.reader->read(&d, &e, 0, &d.sample, out), MEG_OK);
    assert_int_equal(d.reader->read(&d, &e, 3, &d.sample, out), MEG_EDATA);
    has(e.message, "npy: x.npy[1, 1, 3] is nan");
    meg_box rest = d.sample; /* a rank that does not read it does not mind */
    rest.lo[MEG_C] = 2;
    assert_int_equal(d.reader->read(&d, &e, 1, &rest, out), MEG_OK);
    assert_int_equal(d.reader->label(&d, &e, 0, &d.label, out), MEG_OK); /* nan: does not count */
    assert_int_equal(d.reader->label(&d, &e, 1, &d.label, out), MEG_EDATA);
    has(e.message, "t.npy[1, 0] is inf");
    meg_dataset_close(&d);
    write_array(s, "h.npy", "<f2", "2, 1, 2", (uint16_t[]){0, 0xfc00, 1, 2}, 8);
    d = opened(s, "images=h.npy labels=t.npy layout=nwc");
    assert_int_equal(d.reader->read(&d, &e, 0, &d.sample, out), MEG_EDATA);
    has(e.message, "h.npy[0, 0, 1] is -inf");
    meg_dataset_close(&d);
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_types, &s),
        cmocka_unit_test_prestate(test_layouts, &s),
        cmocka_unit_test_prestate(test_doubtful_shapes, &s),
        cmocka_unit_test_prestate(test_archives, &s),
        cmocka_unit_test_prestate(test_damaged_archives, &s),
        cmocka_unit_test_prestate(test_lists, &s),
        cmocka_unit_test_prestate(test_maps, &s),
        cmocka_unit_test_prestate(test_doubtful_labels, &s),
        cmocka_unit_test_prestate(test_not_finite, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
