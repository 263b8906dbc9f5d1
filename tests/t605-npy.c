/* NumPy files: what numpy.save writes is read, by boxes too; each file that is damaged or of
 * another kind is refused with a message that names it.
 */
#include "data/data.h"
#include "npy_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum {
    SIZE = 2 * 3 * 4 * 5
};

static const char LABELS[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }     \n";

static void write_labels(scratch *s, int64_t first, int64_t second)
{
    npy_write(s, "y.npy", 1, LABELS, (int64_t[]){first, second}, 16);
}

static meg_status open_pair(scratch *s, meg_error *e, const char *more, meg_dataset *d)
{
    char source[1024];
    snprintf(source, sizeof source, "npy:images=%s/x.npy labels=%s/y.npy %s", s->dir, s->dir, more);
    return meg_dataset_open(e, source, d);
}

static meg_dataset opened(scratch *s, const char *more)
{
    meg_error e;
    meg_dataset d;
    if (open_pair(s, &e, more, &d) != MEG_OK) fail_msg("%s", e.message);
    return d;
}

static void refused(scratch *s, const char *more, meg_status status, const char *part)
{
    meg_error e = {0};
    meg_dataset d = {0};
    meg_status got = open_pair(s, &e, more, &d);
    if (got == MEG_OK) fail_msg("was accepted; expected: %s", part);
    if (!strstr(e.message, part)) fail_msg("expected: %s\ngot: %s", part, e.message);
    if (got != status) fail_msg("%s: status %d, expected %d", e.message, got, status);
}

/* ---- good files ---- */

typedef union numbers {
    uint8_t u1[SIZE];
    float f4[SIZE];
    double f8[SIZE];
} numbers;

typedef struct kind {
    const char *header;
    int version, bytes;
} kind;

static const kind KINDS[] = {
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4, 5), }\n", 1, 1},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4, 5), }\n", 2, 4},
    {"{\"shape\":(2L,3L,4L,5L),\"fortran_order\":False,\"descr\":\"<f8\"}", 1, 8},
};

static numbers make_numbers(int bytes)
{
    numbers x;
    for (int i = 0; i < SIZE; i++) {
        if (bytes == 1) x.u1[i] = (uint8_t)(2 * i + 1);
        if (bytes == 4) x.f4[i] = (float)(2 * i + 1);
        if (bytes == 8) x.f8[i] = 2 * i + 1;
    }
    return x;
}

static void test_types(void **state)
{
    scratch *s = *state;
    write_labels(s, 4, 1);
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        numbers x = make_numbers(KINDS[k].bytes);
        size_t bytes = (size_t)(SIZE * KINDS[k].bytes);
        npy_write(s, "x.npy", KINDS[k].version, KINDS[k].header, &x, bytes);
        meg_dataset d = opened(s, "scale=0.5");
        assert_int_equal(d.count, 2);
        assert_int_equal(d.rank, 4);
        assert_int_equal(d.classes, 5);
        meg_box box = d.sample; /* channels 1..2, rows 1..2, columns 2..4 */
        box.lo[MEG_C] = 1, box.lo[MEG_H] = 1, box.lo[MEG_W] = 2, box.hi[MEG_H] = 3;
        float out[SIZE / 2];
        int32_t label;
        meg_error e;
        assert_int_equal(d.reader->read(&d, &e, 0, &d.sample, out), MEG_OK);
        assert_int_equal(d.reader->label(&d, &e, 0, &d.label, &label), MEG_OK);
        assert_int_equal(label, 4);
        for (int i = 0; i < SIZE / 2; i++)
            assert_true(out[i] == (float)(i + 0.5));
        assert_int_equal(d.reader->read(&d, &e, 1, &box, out), MEG_OK);
        assert_int_equal(d.reader->label(&d, &e, 1, &d.label, &label), MEG_OK);
        assert_int_equal(label, 1);
        int64_t p[MEG_AXES], i = 0;
        for (bool on = meg_box_first(&box, p); on; on = meg_box_next(&box, p), i++)
            assert_true(out[i] == (float)(60 + 20 * p[MEG_C] + 5 * p[MEG_H] + p[MEG_W]) + 0.5f);
        meg_dataset_close(&d);
    }
}

/* Rows longer than one chunk of the reader. */
static void test_long_sample(void **state)
{
    scratch *s = *state;
    enum {
        LONG = 10007
    };
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 10007)}";
    FILE *f = fopen(scratch_path(s, "x.npy"), "wb");
    fwrite("\x93NUMPY\1\0", 1, 8, f);
    fputc((int)strlen(header), f);
    fputc(0, f);
    fputs(header, f);
    for (int i = 0; i < 2 * LONG; i++)
        fwrite(&(float){(float)i}, 4, 1, f);
    fclose(f);
    write_labels(s, 0, 1);
    meg_dataset d = opened(s, "");
    meg_box shape = meg_box_of(1, LONG, 1, 1, 1);
    assert_true(meg_box_equal(&d.sample, &shape));
    float *out = malloc(LONG * sizeof *out);
    int32_t label;
    meg_error e;
    assert_int_equal(d.reader->read(&d, &e, 1, &d.sample, out), MEG_OK);
    assert_int_equal(d.reader->label(&d, &e, 1, &d.label, &label), MEG_OK);
    for (int i = 0; i < LONG; i++)
        assert_true(out[i] == (float)(LONG + i));

    assert_int_equal(truncate(scratch_path(s, "x.npy"), 50000), 0); /* shrinks while it is open */
    assert_int_equal(d.reader->read(&d, &e, 1, &d.sample, out), MEG_EDATA);
    assert_non_null(strstr(e.message, "x.npy is truncated"));
    free(out);
    meg_dataset_close(&d);
}

static void test_labels(void **state)
{
    scratch *s = *state;
    float zero[6] = {0};
    static const char x[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}";
    static const char i4[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}";
    static const char u1[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}";
    npy_write(s, "x.npy", 1, x, zero, sizeof zero);
    npy_write(s, "y.npy", 1, i4, (int32_t[]){6, 2}, 8);
    meg_dataset d = opened(s, "");
    assert_int_equal(d.classes, 7);
    meg_dataset_close(&d);
    npy_write(s, "y.npy", 1, u1, (uint8_t[]){0, 255}, 2);
    d = opened(s, "classes=300");
    assert_int_equal(d.classes, 300);
    meg_dataset_close(&d);

    refused(s, "classes=255", MEG_EDATA, "y.npy is 255, but 0..254 was expected");
    write_labels(s, 0, -2);
    refused(s, "", MEG_EDATA, "label 1 of ");
    refused(s, "", MEG_EDATA, "y.npy is -2, but 0 or more");
    write_labels(s, INT64_C(1) << 32, 0);
    refused(s, "", MEG_EDATA, "y.npy is 4294967296, but 0..");
    npy_write(s, "y.npy", 1, u1, (uint8_t[]){0, 1, 2}, 3);
    refused(s, "", MEG_EDATA, "y.npy has ");
    npy_write(s, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
              (uint8_t[]){0, 1, 2}, 3);
    refused(s, "", MEG_EDATA, "y.npy has 3 labels, but ");
    npy_write(s, "y.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1, 1, 1)}",
              (uint8_t[]){0, 1}, 2);
    refused(s, "", MEG_EDATA, "y.npy have 5 axes; accepted: 1 to 4, (n[, d, h, w])");
    unlink(scratch_path(s, "y.npy"));
    refused(s, "", MEG_EIO, "y.npy: No such file or directory");
}

/* Labels per pixel, of which 255 does not count; real targets; tokens. */
static void test_kinds_of_labels(void **state)
{
    scratch *s = *state;
    float zero[24] = {0};
    static const char x[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 2, 6)}";
    static const char y[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 3)}";
    static const char t[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}";
    static const char ids[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3)}";
    static const uint8_t pixels[12] = {0, 1, 2, 3, 4, 5, 0, 1, 255, 4, 2, 0};
    static const float targets[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32_t label[6];
    float real[4];
    meg_error e;
    npy_write(s, "x.npy", 1, x, zero, sizeof zero);
    npy_write(s, "y.npy", 1, y, pixels, sizeof pixels);
    meg_dataset d = opened(s, "ignore=255");
    meg_box shape = meg_box_of(1, 1, 1, 2, 3), box = shape;
    assert_true(!d.real && d.classes == 6 && meg_box_equal(&d.label, &shape));
    box.lo[MEG_W] = 1;
    assert_int_equal(d.reader->label(&d, &e, 1, &box, label), MEG_OK);
    assert_memory_equal(label, ((int32_t[]){1, -1, 2, 0}), 16);
    meg_dataset_close(&d);

    d = opened(s, "classes=6"); /* found when it is read */
    assert_int_equal(d.reader->label(&d, &e, 1, &d.label, label), MEG_EDATA);
    assert_non_null(strstr(e.message, "y.npy is 255, but 0..5 was expected"));
    meg_dataset_close(&d);

    npy_write(s, "y.npy", 1, t, targets, sizeof targets);
    d = opened(s, "scale=3");
    assert_true(d.real && d.classes == 0 && d.label.hi[MEG_C] == 4);
    assert_int_equal(d.reader->label(&d, &e, 1, &d.label, real), MEG_OK);
    assert_true(real[0] == 4 && real[3] == 7);
    meg_dataset_close(&d);

    npy_write(s, "x.npy", 1, ids, (int64_t[]){5, 6, 7, 50256, 1, 2}, 48);
    npy_write(s, "y.npy", 1, ids, (int64_t[]){6, 7, 5, 1, 2, -1}, 48);
    d = opened(s, "tokens=1");
    assert_true(d.tokens && d.sample.hi[MEG_W] == 3 && d.sample.hi[MEG_C] == 1);
    assert_true(d.classes == 8 && d.label.hi[MEG_W] == 3);
    assert_int_equal(d.reader->read(&d, &e, 1, &d.sample, real), MEG_OK);
    assert_true(real[0] == 50256 && real[2] == 2);
    meg_dataset_close(&d);
}

/* ---- bad files ---- */

typedef struct bad {
    const char *header;
    int version;
    size_t bytes;
    meg_status status;
    const char *message;
} bad;

#define F4(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape "}"
#define HUGE_AXES "(4294967296, 4294967296, 4294967296, 4294967296)"

static const bad BAD[] = {
    {F4("(2, 3)"), 4, 24, MEG_EUNSUPPORTED, "x.npy has version 4; known: 1 to 3"},
    {F4("(2, 3)"), 1, 23, MEG_EDATA, "is truncated: it has room for 5 values"},
    {F4("(2, 3)"), 1, 25, MEG_EDATA, "bytes, but its header announces"},
    {F4("(2, 0)"), 1, 24, MEG_EDATA, "axis 1 of "},
    {F4(HUGE_AXES), 1, 24, MEG_EDATA, "is truncated"},
    {F4("(9223372036854775807, 3)"), 1, 24, MEG_EDATA, "is truncated"},
    {F4("(9223372036854775808, 3)"), 1, 24, MEG_EDATA, "not understood near '9223372036854775808,"},
    {F4("(-2, 3)"), 1, 24, MEG_EDATA, "not understood near '-2, 3)}'"},
    {F4("(2)"), 1, 8, MEG_EDATA, "x.npy have 1 axes; accepted: 2 to 5"},
    {F4("()"), 1, 4, MEG_EDATA, "x.npy have 0 axes; accepted: 2 to 5"},
    {F4("(1,1,1,1,1,1)"), 1, 4, MEG_EDATA, "shape (at most 5 axes)"},
    {F4("(2, 3"), 1, 24, MEG_EDATA, "not understood"},
    {F4("[2, 3]"), 1, 24, MEG_EDATA, "not understood"},
    {F4("(2, 3)") "x", 1, 24, MEG_EDATA, "not understood near 'x'"},
    {"", 1, 24, MEG_EDATA, "not understood"},
    {"{}", 1, 24, MEG_EDATA, "expected a dict of descr"},
    {"{'descr': '<f4', 'fortran_order': False}", 1, 24, MEG_EDATA, "not understood"},
    {"{'descr': '<f4', 'shape': (2, 3)}", 1, 24, MEG_EDATA, "not understood"},
    {"{'descr': '<f4', 'what': 3}", 1, 24, MEG_EDATA, "not understood near '3}'"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", 1, 24, MEG_EDATA,
     "a plain type"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}", 1, 24, MEG_EDATA, "not understood"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", 1, 24, MEG_EUNSUPPORTED,
     "is in Fortran order; save it with numpy.ascontiguousarray"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3)}", 1, 48, MEG_EUNSUPPORTED,
     "x.npy has type <c8; accepted: bool (b1), whole numbers (u1 i1 u2"},
};

static void test_bad(void **state)
{
    scratch *s = *state;
    char zero[64] = {0};
    write_labels(s, 0, 1);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        npy_write(s, "x.npy", BAD[i].version, BAD[i].header, zero, BAD[i].bytes);
        refused(s, "", BAD[i].status, BAD[i].message);
    }
    scratch_write(s, "x.npy", "\x93NUMPZ\1\0\0\0", 10);
    refused(s, "", MEG_EDATA, "x.npy is not a .npy file");
    scratch_write(s, "x.npy", "\x93NUMPY\2\0\0\0\0\1", 12);
    refused(s, "", MEG_EDATA, "announces a header of 16777216 bytes, but has 12 in all");
    meg_error e;
    meg_dataset d;
    assert_int_equal(meg_dataset_open(&e, "npy:images=/ labels=/", &d), MEG_EIO);
    assert_string_equal(e.message, "npy: / is not a file");
}

/* Every prefix of a good file is refused. */
static void test_prefixes(void **state)
{
    scratch *s = *state;
    char zero[24] = {0}, file[256];
    static const char header[] = F4("(2, 3)");
    write_labels(s, 0, 1);
    FILE *in = fopen(npy_write(s, "x.npy", 1, header, zero, sizeof zero), "rb");
    size_t size = fread(file, 1, sizeof file, in);
    fclose(in);
    meg_dataset d = opened(s, "");
    meg_dataset_close(&d);
    for (size_t cut = 0; cut < size; cut++) {
        scratch_write(s, "x.npy", file, cut);
        refused(s, "", MEG_EDATA, "x.npy");
    }
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_types, &s),
        cmocka_unit_test_prestate(test_long_sample, &s),
        cmocka_unit_test_prestate(test_labels, &s),
        cmocka_unit_test_prestate(test_kinds_of_labels, &s),
        cmocka_unit_test_prestate(test_bad, &s),
        cmocka_unit_test_prestate(test_prefixes, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
