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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
