/* Timetables as ranks execute them: the check finds deadlocks and names the cycle, replay counts
 * messages, skips and the steps that follow without barrier.
 */
#include "pipes.h"

/* ---- deadlocks ---- */

static void stuck(const meg_timetable *t, const meg_rendezvous *how, const char *says)
{
    meg_error e = {0};
    assert_int_equal(meg_timetable_check(&e, t, how), MEG_EARG);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
}

/* With blocking messages the lists of gpipe pass, those of 1f1b do not; the cycle is named. */
static void test_blocking(void **state)
{
    (void)state;
    meg_rendezvous blocking = {.ahead = 0, .staging = 0};
    meg_pool *pool = meg_pool_new();
    for (int S = 2; S <= 12; S++)
        for (int M = 2; M <= 24; M += 3) {
            meg_pipe p = {.stages = S, .ranks = S, .micro = M};
            passes(draw(pool, "serial", p), &blocking);
            passes(draw(pool, "gpipe", p), &blocking);
            passes(draw(pool, "master", p), &blocking);
            stuck(draw(pool, "1f1b", p), &blocking, "wait for one another: rank ");
        }
    stuck(
        draw(pool, "1f1b", (meg_pipe){.stages = 2, .ranks = 2, .micro = 3}), &blocking,
        "ranks wait for one another: rank 1, before F of stage 1, micro-batch 1, waits for rank 0 "
        "to take its B of stage 1, micro-batch 0; rank 0, before B of stage 0, micro-batch 0, "
        "waits for rank 1 to take its F of stage 0, micro-batch 1");
    meg_pool_free(pool);
}

static void swap(meg_timetable *t, int rank, int i, int j)
{
    meg_task *mine = t->task + t->first[rank], k = mine[i];
    mine[i] = mine[j];
    mine[j] = k;
}

/* Lists that no engine could run are told from those it could. */
static void test_broken(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_pipe p = {.stages = 2, .ranks = 2, .micro = 3};
    meg_timetable *t = draw(pool, "gpipe", p);
    swap(t, 0, 3, 5); /* backwards in another order than the stage behind: still possible */
    passes(t, NULL);
    t = draw(pool, "1f1b", p); /* rank 0: F0 F1 B0 F2 B1 B2 -> F0 B0 F1 ..., rank 1: F1 before B0 */
    swap(t, 0, 1, 2);
    passes(t, NULL);
    swap(t, 1, 1, 2);
    stuck(t, NULL,
          "rank 1, at F of stage 1, micro-batch 1, waits for stage 0 of rank 0; "
          "rank 0, at B of stage 0, micro-batch 0, waits for stage 1 of rank 1");
    meg_error e = {0};
    meg_replay r = {0};
    double one[] = {1, 1};
    meg_costs c = {.f = one, .b = one, .w = one};
    assert_int_equal(meg_timetable_replay(&e, pool, t, &c, &r), MEG_EARG);
    assert_non_null(strstr(e.message, "waits for ever"));

    /* rank 0 has its second chunk before its first, which waits for it by way of rank 1 */
    t = draw(pool, "interleaved", (meg_pipe){.stages = 4, .ranks = 2, .micro = 2});
    swap(t, 0, 0, 2);
    stuck(t, NULL,
          "wait for one another: rank 1, at F of stage 1, micro-batch 0, waits for stage 0 of rank "
          "0; rank 0, at F of stage 2, micro-batch 0, waits for stage 1 of rank 1");

    t = draw(pool, "1f1b", p);
    swap(t, 1, 0, 1);
    stuck(t, NULL, "rank 1 has B of stage 1, micro-batch 0 before what it is made from");
    t = draw(pool, "1f1b", p);
    t->task[1] = t->task[0];
    stuck(t, NULL, "rank 0 has F of stage 0, micro-batch 0 twice");
    t = draw(pool, "1f1b", p);
    t->task[0].stage = 1;
    stuck(t, NULL, "rank 0 has F of stage 1, micro-batch 0, which belongs to rank 1");
    t = draw(pool, "1f1b", p);
    t->first[2]--;
    stuck(t, NULL, "rank 1 lacks the backward of stage 1, micro-batch 2");
    t = draw(pool, "1f1b", p);
    t->task[0].kind = MEG_TASK_BW;
    stuck(t, NULL, "backward is not parted here");
    meg_pool_free(pool);
}

/* ---- replay with messages ---- */

static void test_messages(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_error e = {0};
    meg_replay r = {0};
    double one[] = {1, 1, 1, 1}, message[] = {10, 20, 30};
    meg_skip skip = {0, 3, 100};
    meg_costs c = {.f = one, .b = one, .w = one, .message = message};
    meg_timetable *t = draw(pool, "serial", (meg_pipe){.stages = 4, .ranks = 4, .micro = 2});
    assert_int_equal(meg_timetable_replay(&e, pool, t, &c, &r), MEG_OK);
    equal(t, "time", r.makespan, 2 * (4 * 3 + 2 * 60));
    equal(t, "idle", r.idle[2], r.makespan - 2 * 3);
    c.skip = &skip; /* outweighs the chain of messages, 60 + two stages */
    c.skips = 1;
    assert_int_equal(meg_timetable_replay(&e, pool, t, &c, &r), MEG_OK);
    equal(t, "time with a skip", r.makespan, 2 * (3 + 3 + 2 * 100));
    skip.to = 4;
    assert_int_equal(meg_timetable_replay(&e, pool, t, &c, &r), MEG_EARG);
    assert_non_null(strstr(e.message, "a skip from stage 0 to 4, of 4 stages"));
    /* chunks on one rank send nothing to each other */
    t = draw(pool, "interleaved", (meg_pipe){.stages = 4, .ranks = 1, .micro = 2});
    c.skips = 0;
    assert_int_equal(meg_timetable_replay(&e, pool, t, &c, &r), MEG_OK);
    equal(t, "time", r.makespan, 2 * 4 * 3);
    /* without barrier, a step of master adds S (b+w) + f = 9 for each of its replications */
    t = draw(pool, "master", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4});
    equal(t, "time", replay(pool, t, (unit){1, 1, 1}).makespan, 39);
    equal(t, "period", replay(pool, t, (unit){1, 1, 1}).period, 36);
    meg_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocking),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
