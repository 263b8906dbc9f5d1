/* Forty fixed cases of the fuzzer of meshes (tests/fuzz_mesh.h; ./do fuzz N SEED runs others). */
#include "fuzz_fixed.h"
#include "fuzz_mesh.h"

static void test_cases(void **state)
{
    (void)state;
    fuzz_fixed(mesh_case_of, "--meshes ", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
