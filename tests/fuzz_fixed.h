/* Forty fixed cases of a fuzzer, as a test: all agree, and not too many are refused. */
#ifndef TESTS_FUZZ_FIXED_H
#define TESTS_FUZZ_FIXED_H

#include "fuzz_case.h"

enum {
    FUZZ_FIXED = 40,
    FUZZ_FIXED_SEED = 7000
};

/* `option`: what ./do fuzz calls them; one of `share` may be refused. */
static inline void fuzz_fixed(fuzz_make *make, const char *option, int share)
{
    int refused = 0;
    for (uint64_t i = 0; i < FUZZ_FIXED; i++) {
        int result = fuzz_run(make, FUZZ_FIXED_SEED + i, option);
        assert_int_not_equal(result, FUZZ_BAD);
        refused += result == FUZZ_REFUSED;
    }
    assert_true(refused * share <= FUZZ_FIXED);
}

#endif
