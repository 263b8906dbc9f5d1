/* Ranks as threads: messages in any order, sleeping and waking, collective calls, splitting; and
 * one rank alone. */
#include "threads_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- messages ---- */

enum {
    TAGS = 10,
    EACH = 3
};

/* Tags are received backwards; messages of one tag in order. */
static void exchange(meg_comm *c, void *unused)
{
    (void)unused;
    meg_error e = {0};
    meg_letter *m[TAGS * EACH] = {0};
    int value[TAGS * EACH];
    for (int i = 0; i < TAGS * EACH; i++) {
        int tag = meg_comm_rank(c) == 0 ? i / EACH : TAGS - 1 - i / EACH;
        value[i] = meg_comm_rank(c) == 0 ? 100 * tag + i % EACH : -1;
        if (meg_comm_rank(c) == 0) OK(&e, meg_comm_send(c, &e, 1, tag, &value[i], 4, &m[i]));
        else OK(&e, meg_comm_recv(c, &e, 0, tag, &value[i], 4, &m[i]));
    }
    for (int i = TAGS * EACH - 1; i >= 0; i--) {
        int tag = TAGS - 1 - i / EACH;
        OK(&e, meg_comm_wait(c, &e, &m[i]));
        REQUIRE(!m[i], "a message that is done is gone");
        if (meg_comm_rank(c) == 1)
            REQUIRE(value[i] == 100 * tag + i % EACH, "got %d for tag %d", value[i], tag);
    }
}

static void messages_match_by_tag_in_order(void **unused)
{
    (void)unused;
    for (int rendezvous = 0; rendezvous < 2; rendezvous++)
        run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = rendezvous}, exchange, NULL);
}

/* Rank 0 sends; rank 1 receives only after it was told how the send did. */
static void send_first(meg_comm *c, void *argument)
{
    bool rendezvous = *(bool *)argument, done;
    meg_error e = {0};
    meg_letter *m = NULL;
    double value = 1.5, got = 0;
    if (meg_comm_rank(c) == 0) {
        OK(&e, meg_comm_send(c, &e, 1, 7, &value, sizeof value, &m));
        OK(&e, meg_comm_test(c, &e, &m, &done));
        REQUIRE(done == !rendezvous, "done is %d", done);
        if (!rendezvous) value = 0; /* done: it is ours again */
    }
    OK(&e, meg_comm_barrier(c, &e));
    if (meg_comm_rank(c) == 1) {
        OK(&e, meg_comm_recv(c, &e, 0, 7, &got, sizeof got, &m));
        OK(&e, meg_comm_wait(c, &e, &m));
        REQUIRE(got == 1.5, "got %g", got);
    }
    OK(&e, meg_comm_wait(c, &e, &m));
}

static void rendezvous_waits_for_the_receiver(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2; i++) {
        bool rendezvous = i;
        run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = rendezvous}, send_first,
                  &rendezvous);
    }
}

static void wrong_sizes(meg_comm *c, void *unused)
{
    (void)unused;
    meg_error e = {0};
    meg_letter *m = NULL;
    char data[16] = {0};
    if (meg_comm_rank(c) == 0) {
        OK(&e, meg_comm_send(c, &e, 1, 3, data, 16, &m));
        OK(&e, meg_comm_wait(c, &e, &m));
        return;
    }
    OK(&e, meg_comm_recv(c, &e, 0, 3, data, 12, &m));
    REQUIRE(meg_comm_wait(c, &e, &m) == MEG_EDATA && !m, "no error");
    REQUIRE(strstr(e.message, "expected 12 bytes from rank 0 (tag 3), but 16 came"), "said: %s",
            e.message);
    REQUIRE(meg_comm_send(c, &e, 1, 0, data, 1, &m) == MEG_EARG, "sent to itself");
    REQUIRE(meg_comm_send(c, &e, 2, 0, data, 1, &m) == MEG_EARG, "sent to nobody");
    REQUIRE(meg_comm_send(c, &e, 0, -1, data, 1, &m) == MEG_EARG, "tag below 0");
    REQUIRE(meg_comm_send(c, &e, 0, 0, data, -1, &m) == MEG_EARG, "size below 0");
}

static void mistakes_are_told(void **unused)
{
    (void)unused;
    run_ranks(&(meg_threads_options){.ranks = 2}, wrong_sizes, NULL);
    run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = true}, wrong_sizes, NULL);
}

/* ---- sleeping ---- */

static void *wake_later(void *c)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    meg_comm_wake(c);
    return NULL;
}

static void sleep_and_wake(meg_comm *c)
{
    meg_error e = {0};
    pthread_t other;
    double start = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    OK(&e, meg_comm_sleep(c, &e, 0.05));
    REQUIRE(seconds(CLOCK_MONOTONIC) - start > 0.045, "woke for no reason");
    REQUIRE(pthread_create(&other, NULL, wake_later, c) == 0, "no thread");
    OK(&e, meg_comm_sleep(c, &e, 100));
    pthread_join(other, NULL);
    meg_comm_wake(c); /* before the sleep: not lost */
    OK(&e, meg_comm_sleep(c, &e, 100));
    double took = seconds(CLOCK_MONOTONIC) - start;
    REQUIRE(took > 0.14 && took < 50, "slept %g s", took);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    REQUIRE(used < 0.05, "0.15 s of sleep cost %g s of processor time", used);
}

static void sleepers_wake(void **unused)
{
    (void)unused;
    meg_error e = {0};
    meg_comm *c[2] = {0};
    OK(&e, meg_comm_alone(&e, &c[0]));
    sleep_and_wake(c[0]);
    meg_comm_free(c[0]);
    OK(&e, meg_comm_threads(&e, &(meg_threads_options){.ranks = 2}, c));
    sleep_and_wake(c[1]);
    meg_comm_free(c[0]);
    meg_comm_free(c[1]);
    meg_comm_free(NULL);
}

/* ---- collective calls ---- */

static void share_and_gather(meg_comm *c, void *unused)
{
    (void)unused;
    meg_error e = {0};
    int me = meg_comm_rank(c), size = meg_comm_size(c), all[16][3];
    for (int root = 0; root < size; root++) {
        double value[2] = {me == root ? 10 + root : 0, me == root ? 0.5 : 0};
        OK(&e, meg_comm_share(c, &e, root, value, sizeof value));
        REQUIRE(value[0] == 10 + root && value[1] == 0.5, "root %d: %g", root, value[0]);
    }
    const int mine[3] = {me, 2 * me, -me};
    memset(all, 99, sizeof all);
    OK(&e, meg_comm_gather(c, &e, mine, sizeof mine, all));
    for (int r = 0; r < size; r++)
        REQUIRE(all[r][0] == r && all[r][1] == 2 * r && all[r][2] == -r, "rank %d: %d", r,
                all[r][0]);
    OK(&e, meg_comm_barrier(c, &e));
}

typedef struct failing {
    unsigned who; /* bit r: rank r fails */
    bool same;
    const char *expected;
} failing;

static void agree(meg_comm *c, void *argument)
{
    const failing *f = argument;
    meg_error e = {0};
    if (f->who >> meg_comm_rank(c) & 1) {
        if (f->same) meg_fail(&e, MEG_EARG, "no such word");
        else meg_fail(&e, MEG_EIO, "file %d is missing", meg_comm_rank(c));
    }
    meg_status status = meg_comm_agree(c, &e), expected = f->same ? MEG_EARG : MEG_EIO;
    if (!f->expected) {
        REQUIRE(status == MEG_OK && e.status == MEG_OK, "failed: %s", e.message);
        return;
    }
    for (int again = 0; again < 2; again++) { /* agreeing twice does not change it */
        REQUIRE(status == expected && e.status == expected, "status is %d", (int)status);
        REQUIRE(strcmp(e.message, f->expected) == 0, "said: %s", e.message);
        status = meg_comm_agree(c, &e);
    }
}

static void ranks_agree(void **unused)
{
    (void)unused;
    const failing five[] = {
        {0, false, NULL},
        {1 << 3, false, "rank 3: file 3 is missing"},
        {1 << 4 | 1 << 2, false, "rank 2: file 2 is missing"},
        {31, false, "rank 0: file 0 is missing"},
        {31, true, "no such word"},
        {30, true, "rank 1: no such word"},
    };
    for (int size = 1; size <= 9; size++)
        for (int rendezvous = 0; rendezvous < 2; rendezvous++)
            run_ranks(&(meg_threads_options){.ranks = size, .rendezvous = rendezvous},
                      share_and_gather, NULL);
    for (size_t i = 0; i < sizeof five / sizeof *five; i++)
        run_ranks(&(meg_threads_options){.ranks = 5, .rendezvous = true}, agree, (void *)&five[i]);
    for (int size = 1; size <= 9; size++)
        run_ranks(
            &(meg_threads_options){.ranks = size}, agree,
            &(failing){1, false, size == 1 ? "file 0 is missing" : "rank 0: file 0 is missing"});
}

/* ---- splitting ---- */

/* 7 ranks, 2 on a node: 0 0 1 1 2 2 3. Odd ranks leave. */
static void split(meg_comm *c, void *unused)
{
    (void)unused;
    meg_error e = {0};
    meg_comm *part = NULL, *none = NULL;
    int me = meg_comm_rank(c), all[4] = {0};
    REQUIRE(meg_comm_nodes(c) == 4 && meg_comm_node(c)[6] == 3, "nodes");
    OK(&e, meg_comm_split(c, &e, me % 2, &part));
    REQUIRE(meg_comm_size(part) == (me % 2 ? 3 : 4), "size is %d", meg_comm_size(part));
    REQUIRE(meg_comm_rank(part) == me / 2, "rank is %d", meg_comm_rank(part));
    REQUIRE(meg_comm_nodes(part) == meg_comm_size(part), "nodes are %d", meg_comm_nodes(part));
    OK(&e, meg_comm_gather(part, &e, &me, sizeof me, all));
    for (int i = 0; i < meg_comm_size(part); i++)
        REQUIRE(all[i] == 2 * i + me % 2, "member %d is %d", i, all[i]);
    meg_comm_free(part);

    OK(&e, meg_comm_split(c, &e, me < 3 ? -1 : 5, &none));
    REQUIRE((me < 3) == !none, "who leaves gets nothing");
    if (none) REQUIRE(meg_comm_size(none) == 4 && meg_comm_node(none)[1] == 1, "4 are left");
    meg_comm_free(none);
}

static void communicators_split(void **unused)
{
    (void)unused;
    for (int rendezvous = 0; rendezvous < 2; rendezvous++)
        run_ranks(&(meg_threads_options){.ranks = 7, .per_node = 2, .rendezvous = rendezvous},
                  split, NULL);
}

/* ---- opening ---- */

static void one_rank_needs_no_mpi(void **unused)
{
    (void)unused;
    meg_error e = {0};
    meg_comm *c = NULL, *part = NULL;
    int data[2] = {3, 4}, all[2] = {0};
    meg_letter *m = NULL;
    OK(&e, meg_comm_open(&e, &c));
    assert_string_equal(meg_comm_library(c), "alone");
    assert_int_equal(meg_comm_size(c), 1);
    assert_int_equal(meg_comm_nodes(c), 1);
    share_and_gather(c, NULL);
    OK(&e, meg_comm_gather(c, &e, data, sizeof data, all));
    assert_memory_equal(data, all, sizeof all);
    OK(&e, meg_comm_allreduce_native(c, &e, &(meg_numbers){data, 2, MEG_NUMBER_I32},
                                     MEG_COMBINE_SUM, &m));
    OK(&e, meg_comm_wait(c, &e, &m));
    assert_int_equal(data[0], 3);
    OK(&e, meg_comm_split(c, &e, 0, &part));
    assert_int_equal(meg_comm_size(part), 1);
    meg_comm_free(part);
    assert_int_equal(meg_comm_send(c, &e, 0, 0, data, 4, &m), MEG_EARG);
    meg_fail(&e, MEG_EIO, "lost");
    assert_int_equal(meg_comm_agree(c, &e), MEG_EIO);
    assert_string_equal(e.message, "lost");
    meg_comm_free(c);

    setenv("MEGALITH_MPI", "lam", 1);
    assert_int_equal(meg_comm_open(&e, &c), MEG_EARG);
    assert_string_equal(e.message, "MEGALITH_MPI=lam: known are openmpi mpich none");
    unsetenv("MEGALITH_MPI");
    assert_int_equal(meg_comm_threads(&e, &(meg_threads_options){.ranks = 0}, &c), MEG_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_match_by_tag_in_order),
        cmocka_unit_test(rendezvous_waits_for_the_receiver),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(communicators_split),
        cmocka_unit_test(one_rank_needs_no_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
