/* safetensors files of tests: one good content, written, read back and compared; what is refused. */
#ifndef TESTS_SAFETENSORS_HELP_H
#define TESTS_SAFETENSORS_HELP_H

#include "import/safetensors/safetensors.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char NAME[] = "w.safetensors";

static inline meg_safetensors *opened(const char *path)
{
    meg_error e;
    meg_safetensors *f = NULL;
    if (meg_safetensors_open(&e, path, &f) != MEG_OK) fail_msg("%s", e.message);
    return f;
}

static inline void refused(const char *path, meg_status status, const char *part)
{
    meg_error e = {0};
    meg_safetensors *f = NULL;
    meg_status got = meg_safetensors_open(&e, path, &f);
    if (got == MEG_OK) fail_msg("was accepted; expected: %s", part);
    if (!strstr(e.message, part)) fail_msg("expected: %s\ngot: %s", part, e.message);
    if (got != status) fail_msg("%s: status %d, expected %d", e.message, got, status);
    assert_null(f);
}

/* ---- a good one ---- */

static const float FLOATS[] = {1, -2, 3.5f, 0, 1e30f, 6};
static const double DOUBLES[] = {0.1, -1e300};
static const int32_t INTS[] = {7, -8, INT32_MAX};
static const uint8_t BYTES[] = {0, 128, 255};

static const meg_saved TENSORS[] = {
    {"bytes", MEG_U8, 1, {3}, BYTES},
    {"layer1.0.conv.weight", MEG_F32, 2, {2, 3}, FLOATS},
    {"quote \" back \\ line \n \xc3\xbc", MEG_F64, 1, {2}, DOUBLES},
    {"int", MEG_I32, 5, {1, 3, 1, 1, 1}, INTS},
    {"scalar", MEG_F32, 0, {0}, FLOATS},
    {"empty", MEG_F32, 2, {0, 4}, FLOATS},
};
static const meg_saved_note NOTES[] = {{"step", "17"}, {"who", "say \"hi\"\t"}};

enum {
    COUNT = sizeof TENSORS / sizeof *TENSORS
};

static inline int64_t bytes_of(const meg_saved *t)
{
    int64_t bytes = meg_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= t->dims[i];
    return bytes;
}

static inline void write_good(const char *path)
{
    meg_error e;
    meg_saved_file content = {COUNT, 2, TENSORS, NOTES};
    if (meg_safetensors_write(&e, path, &content) != MEG_OK) fail_msg("%s", e.message);
}

static inline void check_good(const char *path)
{
    meg_error e;
    meg_safetensors *f = opened(path);
    assert_int_equal(meg_safetensors_count(f), COUNT);
    for (int i = 0; i < COUNT; i++) {
        const meg_saved *t = &TENSORS[i];
        meg_saved got;
        int at = meg_safetensors_find(f, t->name);
        assert_true(at >= 0);
        assert_string_equal(meg_safetensors_name(f, at), t->name);
        assert_int_equal(meg_safetensors_at(f, &e, at, &got), MEG_OK);
        assert_int_equal(got.dtype, t->dtype);
        assert_int_equal(got.rank, t->rank);
        for (int a = 0; a < t->rank; a++)
            assert_int_equal(got.dims[a], t->dims[a]);
        assert_memory_equal(got.data, t->data, (size_t)bytes_of(t));
        assert_int_equal((uintptr_t)got.data % (uintptr_t)meg_dtype_bytes(t->dtype), 0);
    }
    assert_string_equal(meg_safetensors_note(f, "step"), "17");
    assert_string_equal(meg_safetensors_note(f, "who"), "say \"hi\"\t");
    assert_null(meg_safetensors_note(f, "what"));
    assert_int_equal(meg_safetensors_find(f, "nothing"), -1);
    assert_null(meg_safetensors_name(f, COUNT));
    assert_int_equal(meg_safetensors_at(f, &e, COUNT, &(meg_saved){0}), MEG_EARG);
    meg_safetensors_close(f);
}

#endif
