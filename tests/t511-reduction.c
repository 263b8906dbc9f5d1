/* Reductions under way, on ranks that are threads: all algorithms, several at once, on parts of the
 * ranks; mistakes are told. */
#include "reduce_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void all(meg_comm *c, void *large)
{
    reduce_all(c, *(int64_t *)large);
}

static void reductions_are_right(void **unused)
{
    (void)unused;
    for (int size = 1; size <= 8; size++)
        for (int rendezvous = 0; rendezvous < 2; rendezvous++)
            run_ranks(
                &(meg_threads_options){.ranks = size, .per_node = 3, .rendezvous = rendezvous}, all,
                &(int64_t){20011});
    /* more pieces than a window has */
    run_ranks(&(meg_threads_options){.ranks = 3, .rendezvous = true}, all, &(int64_t){1000001});
}

/* Three groups, which overlap, in an order of their own; each rank starts its reductions in another
 * order and drives them together. */
static void at_once(meg_comm *c, void *unused)
{
    (void)unused;
    static const int member[3][4] = {{4, 1, 3, -1}, {0, 1, 2, 4}, {3, 4, -1, -1}};
    static const int ranks[3] = {3, 4, 2};
    meg_error e = {0};
    meg_reduction_spec s[3];
    meg_reduction r[3];
    bool in[3] = {false}, done[3] = {true, true, true};
    int me = meg_comm_rank(c);
    for (int i = 0; i < 3; i++) {
        int g = (i + me) % 3, place = 0;
        while (place < ranks[g] && member[g][place] != me)
            place++;
        if (place == ranks[g]) continue;
        s[g] = (meg_reduction_spec){.algorithm = meg_allreduce_at(g % 2),
                                    .ranks = ranks[g],
                                    .rank = member[g],
                                    .data = {NULL, 5000 + g, MEG_NUMBER_I64},
                                    .tag = 40 + g,
                                    .piece = 1000};
        reduce_fill(&s[g], me, place);
        OK(&e, meg_reduction_start(&r[g], c, &e, &s[g]));
        in[g] = true;
        done[g] = false;
    }
    while (!done[0] || !done[1] || !done[2]) {
        for (int g = 0; g < 3; g++)
            if (!done[g]) OK(&e, meg_reduction_advance(&r[g], &e, &done[g]));
        OK(&e, meg_comm_sleep(c, &e, 0.001));
    }
    for (int g = 0; g < 3; g++)
        if (in[g]) {
            reduce_check(&s[g]);
            reduce_release(&s[g]);
        }
    OK(&e, meg_comm_barrier(c, &e));
}

static void several_groups_at_once(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++)
        run_ranks(&(meg_threads_options){.ranks = 5, .rendezvous = i % 2}, at_once, NULL);
}

static void wrong(meg_comm *c, void *unused)
{
    (void)unused;
    static const int both[2] = {0, 1}, other[1] = {1};
    meg_error e = {0};
    meg_reduction r;
    meg_reduction_spec s = {.algorithm = &meg_allreduce_mpi, .ranks = 2, .rank = both};
    REQUIRE(meg_reduction_start(&r, c, &e, &s) == MEG_EARG, "part of the ranks");
    REQUIRE(strstr(e.message, "the group has 2 of 3"), "said: %s", e.message);
    s.algorithm = &meg_allreduce_hierarchical;
    REQUIRE(meg_reduction_start(&r, c, &e, &s) == MEG_EARG, "no nodes");
    REQUIRE(strstr(e.message, "share a node"), "said: %s", e.message);
    s = (meg_reduction_spec){.algorithm = &meg_allreduce_ring, .ranks = 1, .rank = other};
    if (meg_comm_rank(c) != 1)
        REQUIRE(meg_reduction_start(&r, c, &e, &s) == MEG_EARG, "not a member");
    s.rank = NULL;
    REQUIRE(meg_reduction_start(&r, c, &e, &s) == MEG_EARG, "which rank?");
}

/* run_ranks wants ranks that do not wait for each other here: rank 2 is in no group. */
static void mistakes(meg_comm *c, void *unused)
{
    if (meg_comm_rank(c) < 2) wrong(c, unused);
}

static void mistakes_are_told(void **unused)
{
    (void)unused;
    run_ranks(&(meg_threads_options){.ranks = 3}, mistakes, NULL);
}

/* Scratch is no more than a window of pieces, and no more than the largest message. */
static void scratch_is_small(void **unused)
{
    (void)unused;
    meg_allreduce a = {4, 0, 1000, NULL, 0};
    assert_int_equal(meg_reduction_scratch(&meg_allreduce_ring, &a, MEG_NUMBER_F32, 0), 1000);
    assert_int_equal(meg_reduction_scratch(&meg_allreduce_halving_doubling, &a, MEG_NUMBER_F64, 0),
                     4000);
    assert_int_equal(meg_reduction_scratch(&meg_allreduce_mpi, &a, MEG_NUMBER_F32, 0), 0);
    a.count = 100000000;
    assert_int_equal(meg_reduction_scratch(&meg_allreduce_ring, &a, MEG_NUMBER_F32, 0),
                     MEG_REDUCTION_WINDOW * MEG_REDUCTION_PIECE);
    a.ranks = 1;
    assert_int_equal(meg_reduction_scratch(&meg_allreduce_ring, &a, MEG_NUMBER_F32, 0), 0);
}

static void maxima_pass_nan_on(void **unused)
{
    (void)unused;
    float into[4] = {1, NAN, 3, -INFINITY}, from[4] = {NAN, 2, 4, -5};
    meg_numbers_combine(MEG_COMBINE_MAX, MEG_NUMBER_F32, into, from, 4);
    assert_true(isnan(into[0]) && isnan(into[1]));
    assert_true(into[2] == 4 && into[3] == -5);
    int32_t a = INT32_MAX, b = 1;
    meg_numbers_combine(MEG_COMBINE_SUM, MEG_NUMBER_I32, &a, &b, 1);
    assert_int_equal(a, INT32_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_is_small),     cmocka_unit_test(maxima_pass_nan_on),
        cmocka_unit_test(reductions_are_right), cmocka_unit_test(several_groups_at_once),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
