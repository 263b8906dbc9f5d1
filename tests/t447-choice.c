/* What a search chooses among, and what it says of it: words that others make possible, the least memory, what is nearest
 * where nothing fits, choices of many ranks that every rank can hold, and errors.
 */
#include "search_help.h"

static bool tried(const answer *a, const char *word)
{
    for (int i = 0; i < a->found.count; i++)
        if (a->found.list[i].verdict != MEG_ILLEGAL && strstr(a->found.list[i].words, word)) return true;
    return false;
}

#define GPT "gpt", "layers=4 width=16 heads=2 tokens=8 classes=64"

/* ---- what there is to choose among ---- */

/* replications= is of schedule=master, whoever said that. */
static void test_replications(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){GPT, "batch=8 stages=2 schedule=master micro=8", NODE, 2, 0, MEG_GOAL_TIME});
    best(a);
    assert_true(tried(a, "replications=2"));
    drop(a);
    a = asked(&(question){GPT, "batch=8 stages=2 schedule=gpipe", NODE, 2, 0, MEG_GOAL_TIME});
    best(a);
    assert_false(tried(a, "replications="));
    drop(a);
}

/* Of 30 samples for 3 stages, not 1, 2 and 30 alone. */
static void test_micros(void **state)
{
    static const char *const micro[] = {"micro=3", "micro=5", "micro=6", "micro=10"};
    (void)state;
    answer *a = asked(&(question){GPT, "batch=30 stages=3", NODE, 3, 0, MEG_GOAL_TIME});
    best(a);
    for (size_t i = 0; i < sizeof micro / sizeof *micro; i++)
        if (!tried(a, micro[i])) fail_msg("%s was not thought of", micro[i]);
    drop(a);
}

static bool has_micro(const meg_shape shape[], int count, int64_t from, int64_t to)
{
    for (int i = 0; i < count; i++)
        if (shape[i].micro >= from && shape[i].micro <= to) return true;
    return false;
}

/* Of very many divisors some: the ends, and of all sizes between. */
static void test_many_micros(void **state)
{
    (void)state;
    question q = {GPT, "batch=5040 stages=2 schedule=serial", NODE, 2, (int64_t)1 << 40, 0};
    answer *a = asked_for(&q, 1);
    meg_pool *pool = meg_pool_new();
    meg_plan_options given;
    meg_error e;
    meg_shape *shape;
    assert_int_equal(meg_plan_options_read(pool, &e, q.words, &given), MEG_OK);
    int count = meg_search_shapes(&a->ask, pool, &given, 1, &shape);
    if (count < 10 || count > 16) fail_msg("%d of 60", count);
    assert_true(has_micro(shape, count, 1, 1) && has_micro(shape, count, 5040, 5040));
    for (int64_t k = 1; k < 5040; k *= 2)
        if (!has_micro(shape, count, k, 2 * k)) fail_msg("none of %d to %d", (int)k, 2 * (int)k);
    free(shape);
    meg_pool_free(pool);
    drop(a);
}

/* ---- what does not fit, what is no plan ---- */

/* Of many ranks, too, the words themselves say what is wrong with them. */
static void test_impossible(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){GPT, "batch=64 stages=4 assign=nosuch,a,b", NODE, 32, 0, MEG_GOAL_TIME});
    assert_int_not_equal(a->status, MEG_OK);
    if (!strstr(a->error.message, "nosuch")) fail_msg("'%s'", a->error.message);
    drop(a);
}

/* ---- what is said ---- */

/* Replayed are those of the list that have seconds. */
static void test_counts(void **state)
{
    (void)state;
    question q = {"vgg11",
                  "image=3x32x32 width=8 hidden=64 classes=10",
                  "batch=8 momentum=0.9",
                  NODE,
                  4,
                  0,
                  MEG_GOAL_TIME};
    answer *a = asked(&q);
    q.memory = best(a)->bytes * 3 / 5;
    drop(a);
    a = asked(&q);
    int replayed = 0;
    for (int i = 0; i < a->found.count; i++)
        replayed += a->found.list[i].seconds > 0;
    assert_int_equal(a->found.looked, replayed);
    drop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replications),
        cmocka_unit_test(test_micros),
        cmocka_unit_test(test_many_micros),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
