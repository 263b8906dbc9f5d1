/* Forty fixed cases of the fuzzer of meshes (tests/fuzz_mesh.h; ./do fuzz N SEED runs others). */
#include "fuzz_mesh.h"

enum {
    FIRST = 7000,
    CASES = 40
};

static void test_cases(void **state)
{
    (void)state;
    int refused = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        int result = fuzz_run(mesh_case_of, FIRST + i, "--meshes ");
        assert_int_not_equal(result, FUZZ_BAD);
        refused += result == FUZZ_REFUSED;
    }
    assert_true(refused * 3 <= CASES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
