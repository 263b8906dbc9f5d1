/* Every file of the fuzzers' corpus goes through its reader, without clang: what a fuzzer once found
 * stays found. Under `./do asan` a wrong byte ends the test. ONNX files of tests/golden go along.
 */
#include "fuzz/readers.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    LARGEST = 1 << 16 /* bytes of a file: the corpus is to stay small */
};

static int replay(scratch *s, const char *corpus, fuzz_reader *reader)
{
    char folder[512];
    int count = 0;
    snprintf(folder, sizeof folder, MEG_SOURCE_DIR "/tests/%s", corpus);
    DIR *d = opendir(folder);
    if (!d) fail_msg("there is no %s", folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[1024];
        uint8_t *bytes = malloc(LARGEST);
        assert_non_null(bytes);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (f) {
            size_t size = fread(bytes, 1, LARGEST, f);
            if (size == LARGEST) fail_msg("%s is too large for the corpus", path);
            fclose(f);
            uint8_t *exact = malloc(size + 1); /* so that a read past the end is seen */
            assert_non_null(exact);
            memcpy(exact, bytes, size);
            reader(s->dir, exact, size);
            free(exact);
            count++;
        }
        free(bytes);
    }
    closedir(d);
    return count;
}

static void test_onnx(void **state)
{
    assert_true(replay(*state, "fuzz/corpus/onnx", fuzz_onnx) >= 20);
    assert_true(replay(*state, "golden/onnx", fuzz_onnx) >= 20);
}

static void test_safetensors(void **state)
{
    assert_true(replay(*state, "fuzz/corpus/safetensors", fuzz_safetensors) >= 10);
}

static void test_plan(void **state)
{
    assert_true(replay(*state, "fuzz/corpus/plan", fuzz_plan) >= 10);
}

static void test_prices(void **state)
{
    assert_true(replay(*state, "fuzz/corpus/prices", fuzz_prices) >= 5);
}

static void test_osu(void **state)
{
    assert_true(replay(*state, "fuzz/corpus/osu", fuzz_osu) >= 10);
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_onnx, &s), cmocka_unit_test_prestate(test_safetensors, &s),
        cmocka_unit_test_prestate(test_plan, &s), cmocka_unit_test_prestate(test_prices, &s),
        cmocka_unit_test_prestate(test_osu, &s),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
