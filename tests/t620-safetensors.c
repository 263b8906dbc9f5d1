/* safetensors: what is written is read back, a file of the reference implementation is read, every
 * damaged header is refused, and a failed write leaves the old file as it was.
 */
#include "safetensors_help.h"

#include <signal.h>
#include <sys/resource.h>

/* Writes a file of the given header text and so many bytes of data, 0 1 2 ... */
static const char *put(scratch *s, const char *header, size_t data)
{
    uint8_t file[2048];
    uint64_t length = strlen(header);
    assert_true(8 + length + data <= sizeof file);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data; i++)
        file[8 + length + i] = (uint8_t)i;
    return scratch_write(s, NAME, file, 8 + length + data);
}

/* ---- writing and reading ---- */

static void test_round_trip(void **state)
{
    scratch *s = *state;
    write_good(scratch_path(s, NAME));
    check_good(scratch_path(s, NAME));
    write_good(scratch_path(s, NAME)); /* over an old one */
    check_good(scratch_path(s, NAME));
    assert_int_equal(scratch_count(s), 1); /* nothing is left beside it */

    meg_error e;
    assert_int_equal(meg_safetensors_write(&e, s->path, &(meg_saved_file){0}), MEG_OK);
    meg_safetensors *f = opened(s->path);
    assert_int_equal(meg_safetensors_count(f), 0);
    assert_int_equal(meg_safetensors_find(f, "x"), -1);
    meg_safetensors_close(f);
    meg_safetensors_close(NULL);
}

/* A path without a folder. */
static void test_working_folder(void **state)
{
    scratch *s = *state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(s->dir), 0);
    write_good(NAME);
    check_good(NAME);
    assert_int_equal(chdir(before), 0);
}

/* Byte for byte what safetensors 0.8.0 of Python wrote for {"b": arange(3, float16), "a": [[1, 2]]
 * (float32), "e": int64(5)} with the metadata {"format": "pt"}. */
static void test_reference_file(void **state)
{
    scratch *s = *state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"e\":{\"dtype\":\"I64\",\"shape\":[],"
        "\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]}}     ";
    static const char data[] = "\5\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\0\x3c\0\x40";
    char file[512] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, 22);
    meg_safetensors *f = opened(scratch_write(s, NAME, file, 8 + sizeof header - 1 + 22));
    meg_error e;
    meg_saved t;
    assert_int_equal(meg_safetensors_count(f), 3);
    assert_string_equal(meg_safetensors_note(f, "format"), "pt");
    assert_int_equal(meg_safetensors_at(f, &e, meg_safetensors_find(f, "a"), &t), MEG_OK);
    float a[2];
    memcpy(a, t.data, sizeof a);
    assert_true(a[0] == 1 && a[1] == 2);
    assert_int_equal(meg_safetensors_at(f, &e, meg_safetensors_find(f, "b"), &t), MEG_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "tensor 'b' has type F16; supported: F32 F64 I32 U8"));
    assert_int_equal(meg_safetensors_at(f, &e, meg_safetensors_find(f, "e"), &t), MEG_EUNSUPPORTED);
    meg_safetensors_close(f);
}

/* Sound, though unusual. */
static void test_unusual(void **state)
{
    scratch *s = *state;
    meg_error e;
    meg_saved t;
    meg_safetensors *f = opened(put(s,
                                    " { \"\\u00e9\\ud83d\\ude00\\/\" :\t{\"shape\":[ 1 "
                                    "],\"data_offsets\":[0,1],\"dtype\":\"U8\"}\n}",
                                    1));
    assert_string_equal(meg_safetensors_name(f, 0), "\xc3\xa9\xf0\x9f\x98\x80/");
    meg_safetensors_close(f);
    f = opened(put(s, "{\"q\":{\"dtype\":\"Q3\",\"shape\":[7],\"data_offsets\":[0,3]}}", 3));
    assert_int_equal(meg_safetensors_at(f, &e, 0, &t), MEG_EUNSUPPORTED); /* a type of tomorrow */
    meg_safetensors_close(f);
    f = opened(put(
        s, "{\"r\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1));
    assert_int_equal(meg_safetensors_at(f, &e, 0, &t), MEG_EUNSUPPORTED);
    assert_non_null(strstr(e.message, "has 9 axes; at most 8 are supported"));
    meg_safetensors_close(f);
}

/* ---- bad files ---- */

typedef struct bad {
    const char *header;
    size_t data;
    const char *message;
} bad;

#define ONE(name, rest)  "\"" name "\":{\"dtype\":\"F32\"," rest "}"
#define AT(shape, place) "\"shape\":" shape ",\"data_offsets\":" place
#define BOTH(a, b)       "{" ONE("a", AT("[1]", a)) "," ONE("b", AT("[1]", b)) "}"

static const bad BAD[] = {
    {"", 0, "malformed at byte 8: expected '{'"},
    {"[]", 0, "expected '{'"},
    {"{", 0, "the name of a tensor"},
    {"{}x", 0, "nothing after the object"},
    {"{\"a\"}", 0, "expected ':'"},
    {"{\"a\":3}", 0, "expected '{'"},
    {"{\"a\":{}}", 0, "dtype, shape or data_offsets"},
    {"{\"a", 0, "the name of a tensor"},
    {"{\"a\\", 0, "the name of a tensor"},
    {"{\"a\\\"", 0, "the name of a tensor"},
    {"{\"a\\x\":", 0, "the name of a tensor"},
    {"{\"a\\u12\":", 0, "the name of a tensor"},
    {"{\"a\\u0000\":", 0, "the name of a tensor"},
    {"{\"a\\ud800\":", 0, "the name of a tensor"},
    {"{\"a\\ud800\\u0041\":", 0, "the name of a tensor"},
    {"{\"a\\udc00\":", 0, "the name of a tensor"},
    {"{\"a\n\":", 0, "the name of a tensor"},
    {"{" ONE("a", AT("[1]", "[0,4]")) ",}", 4, "the name of a tensor"},
    {"{" ONE("a", AT("[1]", "[0,4]")) "", 4, "',' or '}'"},
    {"{" ONE("a", AT("[1]", "[0,4]") ",") "}", 4, "dtype, shape or data_offsets"},
    {"{" ONE("a", AT("[1]", "[0,4]") ",\"x\":1") "}", 4, "once each"},
    {"{" ONE("a", AT("[1]", "[0,4]") ",\"shape\":[1]") "}", 4, "once each"},
    {"{" ONE("a", "\"shape\":[1]") "}", 4, "dtype, shape and data_offsets before here"},
    {"{" ONE("a", AT("[-1]", "[0,4]")) "}", 4, "an extent, 0 or more"},
    {"{" ONE("a", AT("[1.5]", "[0,4]")) "}", 4, "',' or ']'"},
    {"{" ONE("a", AT("[01]", "[0,4]")) "}", 4, "an extent, 0 or more"},
    {"{" ONE("a", AT("[1,]", "[0,4]")) "}", 4, "an extent, 0 or more"},
    {"{" ONE("a", AT("1", "[0,4]")) "}", 4, "expected '['"},
    {"{" ONE("a", AT("[9223372036854775808]", "[0,4]")) "}", 4, "an extent, 0 or more"},
    {"{" ONE("a", AT("[4294967296,4294967296]", "[0,4]")) "}", 4, "less than 2^63 elements"},
    {"{" ONE("a", AT("[4611686018427387905]", "[0,4]")) "}", 4, "has 4 bytes, but its shape is"},
    {"{" ONE("a", AT("[2]", "[0,4]")) "}", 4, "has 4 bytes, but its shape is 2 elements of F32"},
    {"{" ONE("a", AT("[1]", "[0,4,8]")) "}", 4, "expected ']'"},
    {"{" ONE("a", AT("[1]", "[0]")) "}", 4, "',' and an offset"},
    {"{" ONE("a", AT("[1]", "[4,0]")) "}", 4, "lies at 4..0, but the data has 4 bytes"},
    {"{" ONE("a", AT("[1]", "[0,4]")) "}", 3, "lies at 0..4, but the data has 3 bytes"},
    {"{" ONE("a", AT("[1]", "[0,9223372036854775807]")) "}", 4, "lies at 0..9223372036854775807"},
    {"{" ONE("a", AT("[1]", "[0,4]")) "}", 5, "end at 4, but the data has 5 bytes"},
    {"{" ONE("a", AT("[1]", "[1,5]")) "}", 5, "begins at 1, after the one before it ends, 0"},
    {"{}", 1, "end at 0, but the data has 1 bytes"},
    {BOTH("[0,4]", "[0,4]"), 4, "begins at 0, before the one before it ends, 4"},
    {BOTH("[0,4]", "[2,6]"), 6, "begins at 2, before the one before it ends, 4"},
    {BOTH("[0,4]", "[6,10]"), 10, "begins at 6, after the one before it ends, 4"},
    {"{" ONE("a", AT("[1]", "[0,4]")) "," ONE("a", AT("[1]", "[4,8]")) "}", 8, "are named 'a'"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a string"},
    {"{\"__metadata__\":[]}", 0, "an object of strings"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "only once"},
};

static void test_bad(void **state)
{
    scratch *s = *state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        refused(put(s, BAD[i].header, BAD[i].data), MEG_EDATA, BAD[i].message);
    refused(scratch_write(s, NAME, "1234567", 7), MEG_EDATA, "has 7 bytes, too few");
    refused(scratch_write(s, NAME, "\3\0\0\0\0\0\0\0{}", 10), MEG_EDATA,
            "announces a header of 3 bytes, but has 10 in all");
    refused(scratch_write(s, NAME, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), MEG_EDATA,
            "announces a header of 18446744073709551615 bytes");
    refused(s->dir, MEG_EARG, "is a folder without model.safetensors");
    refused(scratch_path(s, "nothing"), MEG_EIO, "No such file or directory");
}

/* A header beyond the limit is refused before it is read; the file is one hole. */
static void test_long_header(void **state)
{
    scratch *s = *state;
    uint64_t length = 100 * 1000 * 1000 + 1;
    scratch_write(s, NAME, &length, 8);
    assert_int_equal(truncate(s->path, 8 + (off_t)length), 0);
    refused(s->path, MEG_EDATA, "at most 100000000 are allowed");
}

/* Every prefix of a good file is refused, and no changed bit of the header brings us down. */
static void test_prefixes_and_noise(void **state)
{
    scratch *s = *state;
    uint64_t length;
    write_good(scratch_path(s, NAME));
    FILE *file = fopen(s->path, "r+b");
    assert_int_equal(fread(&length, 8, 1, file), 1);
    for (long at = 0; at < 8 + (long)length; at++) {
        char good, flipped;
        assert_int_equal(pread(fileno(file), &good, 1, at), 1);
        flipped = good ^ 1;
        assert_int_equal(pwrite(fileno(file), &flipped, 1, at), 1);
        meg_error e;
        meg_safetensors *f = NULL;
        if (meg_safetensors_open(&e, s->path, &f) == MEG_OK)
            meg_safetensors_close(f); /* a changed name, for example */
        assert_int_equal(pwrite(fileno(file), &good, 1, at), 1);
    }
    check_good(s->path);
    fseek(file, 0, SEEK_END);
    for (long size = ftell(file); size > 0; size--) {
        assert_int_equal(ftruncate(fileno(file), size - 1), 0);
        refused(s->path, MEG_EDATA, "");
    }
    fclose(file);
}

/* ---- failed writes ---- */

static void write_refused(const char *path, const meg_saved_file *c, meg_status status,
                          const char *part)
{
    meg_error e = {0};
    meg_status got = meg_safetensors_write(&e, path, c);
    if (got == MEG_OK) fail_msg("was written; expected: %s", part);
    if (!strstr(e.message, part)) fail_msg("expected: %s\ngot: %s", part, e.message);
    assert_int_equal(got, status);
}

/* The limit of the file size stands for a full disk: the write fails halfway. */
static void test_disk_full(void **state)
{
    scratch *s = *state;
    const char *path = scratch_path(s, NAME);
    write_good(path);
    int files = scratch_count(s);
    static const float big[65536];
    meg_saved t = {"big", MEG_F32, 1, {65536}, big};
    struct rlimit before, small = {100000, 0};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    meg_error e = {0};
    meg_status status = meg_safetensors_write(&e, path, &(meg_saved_file){1, 0, &t, NULL});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, MEG_EIO);
    assert_non_null(strstr(e.message, "w.safetensors: File too large; it is unchanged"));
    check_good(path);
    assert_int_equal(scratch_count(s), files); /* no temporary file */
}

static void test_bad_writes(void **state)
{
    scratch *s = *state;
    meg_saved twins[] = {{"a", MEG_U8, 1, {3}, BYTES}, {"a", MEG_F32, 1, {1}, FLOATS}};
    meg_saved meta = {"__metadata__", MEG_U8, 1, {3}, BYTES};
    meg_saved huge = {"h", MEG_F64, 2, {INT64_MAX, 1}, DOUBLES};
    meg_saved deep = {"d", MEG_U8, 9, {1, 1, 1, 1, 1, 1, 1, 1}, BYTES};
    const char *path = scratch_path(s, NAME);
    write_good(path);
    int files = scratch_count(s);
    write_refused(path, &(meg_saved_file){2, 0, twins, NULL}, MEG_EARG, "are named 'a'");
    write_refused(path, &(meg_saved_file){1, 0, &meta, NULL}, MEG_EARG, "__metadata__");
    write_refused(path, &(meg_saved_file){1, 0, &huge, NULL}, MEG_EARG, "cannot be saved");
    write_refused(path, &(meg_saved_file){1, 0, &deep, NULL}, MEG_EARG, "cannot be saved");
    check_good(path);
    assert_int_equal(scratch_count(s), files);

    meg_saved_file good = {COUNT, 0, TENSORS, NULL};
    write_refused("/nowhere/w.safetensors", &good, MEG_EIO,
                  "cannot write /nowhere/w.safetensors: No such file or directory");
    assert_int_equal(mkdir(scratch_path(s, "folder"), 0777), 0);
    write_refused(s->path, &good, MEG_EIO, "it is a folder");
    assert_int_equal(rmdir(s->path), 0);
    assert_int_equal(scratch_count(s), files);
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_round_trip, &s),
        cmocka_unit_test_prestate(test_working_folder, &s),
        cmocka_unit_test_prestate(test_reference_file, &s),
        cmocka_unit_test_prestate(test_unusual, &s),
        cmocka_unit_test_prestate(test_bad, &s),
        cmocka_unit_test_prestate(test_long_header, &s),
        cmocka_unit_test_prestate(test_prefixes_and_noise, &s),
        cmocka_unit_test_prestate(test_disk_full, &s),
        cmocka_unit_test_prestate(test_bad_writes, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
