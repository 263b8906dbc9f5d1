/* Random numbers: the published test vectors of Philox4x32-10, moments, and that a permutation is
 * one. The values are fixed for all time: a changed generator would change every trained network.
 */
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct vector {
    meg_stream stream;
    uint64_t index;
    uint32_t expected[4];
} vector;

/* kat_vectors of Random123, "philox4x32 10"; a name of 0 makes the seed the key. */
static const vector VECTORS[] = {
    {{0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{UINT64_MAX, UINT64_MAX, 0}, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x299f31d0a4093822, 0x0370734413198a2e, 0},
     0x85a308d3243f6a88,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof VECTORS / sizeof *VECTORS; i++) {
        uint32_t bits[4];
        meg_random_bits(VECTORS[i].stream, VECTORS[i].index, bits);
        for (int w = 0; w < 4; w++)
            assert_int_equal(bits[w], VECTORS[i].expected[w]);
    }
}

static void test_hash(void **state)
{
    (void)state;
    assert_true(meg_hash("") == 0xcbf29ce484222325); /* published FNV-1a values */
    assert_true(meg_hash("a") == 0xaf63dc4c8601ec8c);
    assert_true(meg_hash("foobar") == 0x85944171f73967e8);
}

/* Each part of the key changes the number. */
static void test_keys(void **state)
{
    (void)state;
    meg_stream s = {1, 2, meg_hash("conv1.weight")};
    meg_stream other[] = {{2, 2, s.name}, {1, 3, s.name}, {1, 2, meg_hash("conv2.weight")}};
    uint32_t bits[4], changed[4];
    meg_random_bits(s, 7, bits);
    for (int i = 0; i < 3; i++) {
        meg_random_bits(other[i], 7, changed);
        assert_memory_not_equal(bits, changed, sizeof bits);
    }
    meg_random_bits(s, 8, changed);
    assert_memory_not_equal(bits, changed, sizeof bits);
}

enum {
    DRAWS = 200000
};

/* Tolerances are 5 deviations of the mean of DRAWS values. */
static void test_uniform(void **state)
{
    (void)state;
    meg_stream s = {42, 0, meg_hash("uniform")};
    double sum = 0, square = 0, low = 1, high = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = meg_random_uniform(s, i);
        assert_true(0 <= x && x < 1);
        sum += x;
        square += x * x;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    double mean = sum / DRAWS, variance = square / DRAWS - mean * mean;
    if (fabs(mean - 0.5) > 5 * sqrt(1.0 / 12 / DRAWS)) fail_msg("mean %g, expected 0.5", mean);
    if (fabs(variance - 1.0 / 12) > 5 * sqrt(1.0 / 180 / DRAWS))
        fail_msg("variance %g, expected 1/12", variance);
    assert_true(low < 1e-4 && high > 1 - 1e-4);
}

static void test_normal(void **state)
{
    (void)state;
    meg_stream s = {42, 0, meg_hash("normal")};
    double moment[5] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = (double)meg_random_normal(s, i);
        assert_true(isfinite(x));
        for (int k = 1; k <= 4; k++)
            moment[k] += pow(x, k) / DRAWS;
    }
    static const double expected[] = {1, 0, 1, 0, 3}, variance[] = {0, 1, 2, 15, 96};
    for (int k = 1; k <= 4; k++)
        if (fabs(moment[k] - expected[k]) > 5 * sqrt(variance[k] / DRAWS))
            fail_msg("moment %d is %g, expected %g", k, moment[k], expected[k]);
}

static void check_bijection(int64_t count)
{
    meg_stream s = {3, (uint64_t)count, meg_hash("shuffle")};
    char *seen = calloc((size_t)count, 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t p = meg_random_permuted(s, count, i);
        if (p < 0 || p >= count || seen[p]++)
            fail_msg("of %lld: %lld -> %lld again or outside", (long long)count, (long long)i,
                     (long long)p);
    }
    free(seen);
}

static void test_permutation(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 70; count++)
        check_bijection(count);
    check_bijection(1000);
    check_bijection(4096);
    check_bijection(4097);
    int64_t huge = INT64_MAX; /* no memory is needed */
    int64_t p = meg_random_permuted((meg_stream){1, 1, 1}, huge, huge - 1);
    assert_true(0 <= p && p < huge);
}

/* It mixes: few elements stay, and another epoch gives another order. For a random permutation the
 * number of fixed points has mean 1 and deviation 1. */
static void test_mixing(void **state)
{
    (void)state;
    enum {
        COUNT = 1000
    };
    int fixed = 0, same = 0, ascending = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t a = meg_random_permuted((meg_stream){1, 0, 5}, COUNT, i);
        int64_t b = meg_random_permuted((meg_stream){1, 1, 5}, COUNT, i);
        int64_t next = meg_random_permuted((meg_stream){1, 0, 5}, COUNT, (i + 1) % COUNT);
        fixed += a == i;
        same += a == b;
        ascending += a < next;
    }
    assert_in_range(fixed, 0, 6);
    assert_in_range(same, 0, 6);
    assert_in_range(ascending, 450, 550); /* mean 500, deviation 9 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_hash),
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),  cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_mixing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
