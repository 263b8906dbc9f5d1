/* Forty fixed cases of the fuzzer (tests/fuzz_case.h; ./do fuzz N SEED runs others). */
#include "fuzz_fixed.h"

static void test_cases(void **state)
{
    (void)state;
    fuzz_fixed(fuzz_make_pipe, "--pipes ", 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
