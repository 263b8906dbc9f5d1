/* The queue of a device: in order, asynchronous, never full for good, asleep while it waits; and
 * what hangs on it: the OpenMP team, the observer, the measured rates, the delays of `check`. */
#include "device_help.h"
#include "exec/meters/rates.h"

#include <semaphore.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct ledger {
    int count, wrong;
    float *sum; /* what the kernels before this call have made */
} ledger;

static void enter(void *argument)
{
    ledger *l = argument;
    l->wrong += *l->sum != (float)++l->count;
}

static void nap(void *argument)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    *(bool *)argument = true;
}

/* While the worker naps the ring fills up, so putting must wait for room. */
static void ten_thousand_items_in_order(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 1);
    meg_request r = instruction(MEG_ADD, meg_box_of(1, 1, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    float sum = 0, one = 1;
    bool woke = false;
    ledger l = {0, 0, &sum};
    meg_device_call(d, nap, &woke);
    for (int i = 0; i < 10000; i++) {
        void *at[MEG_OPERANDS] = {[MEG_X] = &sum, [MEG_X + 1] = &one, [MEG_Y] = &sum};
        meg_device_launch(d, k, at, &moment); /* `at` may go: it was copied */
        memset(at, 0, sizeof at);
        meg_device_call(d, enter, &l);
    }
    meg_device_wait(d);
    assert_true(woke);
    assert_int_equal(l.count, 10000);
    assert_int_equal(l.wrong, 0);
    meg_prepared_free(k);
    meg_device_close(d);
}

static void hold(void *gate)
{
    while (sem_wait(gate) != 0)
        continue;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void waiting_sleeps(void **unused)
{
    (void)unused;
    sem_t gate;
    bool done = false;
    sem_init(&gate, 0, 0);
    meg_device *d = open_device("ref", 1);
    meg_device_call(d, hold, &gate); /* would never return if calls were not asynchronous */
    double start = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    meg_device_call(d, nap, &done);
    sem_post(&gate);
    meg_device_wait(d);
    assert_true(done);
    assert_true(seconds(CLOCK_MONOTONIC) - start > 0.09);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used; /* of waiter and worker together */
    if (used > 0.02) fail_msg("0.1 s of waiting cost %g s of processor time", used);
    meg_device_close(d);
    sem_destroy(&gate);
}

static void closing_runs_what_is_left(void **unused)
{
    (void)unused;
    bool done = false;
    meg_device *d = open_device("ref", 1);
    meg_device_call(d, nap, &done);
    meg_device_close(d);
    assert_true(done);
    meg_device_close(NULL);
}

static void ask_team(void *argument)
{
#ifdef _OPENMP
    *(int *)argument = omp_get_max_threads();
#else
    *(int *)argument = 3;
#endif
}

static void worker_has_its_team(void **unused)
{
    (void)unused;
    int threads = 0;
    meg_device *d = open_device("ref", 3);
    meg_device_call(d, ask_team, &threads);
    meg_device_wait(d);
    assert_int_equal(threads, 3);
    assert_int_equal(meg_device_threads(d), 3);
    meg_device_close(d);
    d = open_device("ref", 0);
    assert_true(meg_device_threads(d) >= 1);
    meg_device_close(d);
}

typedef struct timings {
    const meg_prepared *kernel;
    int count, wrong;
    double last;
} timings;

static void note(void *context, const meg_prepared *k, double start, double duration)
{
    timings *t = context;
    t->count++;
    t->wrong += k != t->kernel || start < t->last || duration < 0 || duration > 60;
    t->last = start + duration;
}

static void observer_times_kernels(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 1);
    meg_request r = instruction(MEG_ZERO, meg_box_of(1, 1, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    timings t = {.kernel = k};
    float y;
    for (int round = 0; round < 2; round++) { /* the second one unobserved */
        meg_device_observe(d, round ? NULL : note, &t);
        for (int i = 0; i < 7; i++)
            meg_device_launch(d, k, (void *[MEG_OPERANDS]){[MEG_Y] = &y}, &moment);
    }
    meg_device_wait(d);
    assert_int_equal(t.count, 7);
    assert_int_equal(t.wrong, 0);
    meg_prepared_free(k);
    meg_device_close(d);
}

static void rates_are_measured(void **unused)
{
    (void)unused;
    for (int i = 0; meg_device_kind_at(i); i++) {
        meg_device *d = open_device(meg_device_kind_at(i)->name, 2);
        meg_rates r = {0};
        meg_rates_probe(d, &r);
        assert_true(r.flops > 1e6 && r.flops < 1e15);
        assert_true(r.plain > 1e6 && r.plain <= 2 * r.flops);
        assert_true(r.bandwidth > 1e6 && r.bandwidth < 1e14);
        assert_true(r.launch > 0 && r.launch < 0.1);
        meg_device_close(d);
    }
    assert_null(meg_device_kind_at(-1));
    assert_null(meg_device_kind_find("none"));
}

static void launches_are_late(void **unused)
{
    (void)unused;
    meg_device *d = open_device("check", 1);
    meg_request r = instruction(MEG_ZERO, meg_box_of(1, 1, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    float y;
    double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < 100; i++)
        meg_device_launch(d, k, (void *[MEG_OPERANDS]){[MEG_Y] = &y}, &moment);
    meg_device_wait(d);
    double late = (seconds(CLOCK_MONOTONIC) - start) / 100;
    if (late < 50e-6) fail_msg("launches are late by %g s, expected about 1e-4", late);
    meg_prepared_free(k);
    meg_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_items_in_order), cmocka_unit_test(waiting_sleeps),
        cmocka_unit_test(closing_runs_what_is_left),   cmocka_unit_test(worker_has_its_team),
        cmocka_unit_test(observer_times_kernels),      cmocka_unit_test(rates_are_measured),
        cmocka_unit_test(launches_are_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
