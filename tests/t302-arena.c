/* The arena: it tells what was touched, is resident only there, and ends where it says. */
#include "device_help.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum {
    SANITIZED = 1
};
#else
enum {
    SANITIZED = 0
};
#endif

static void arena_knows_what_was_touched(void **unused)
{
    (void)unused;
    meg_error e;
    meg_device *d = open_device("ref", 1);
    static const int64_t sizes[] = {0, 1, 100, 4096, 4097, 1000003, (5 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *arena = NULL;
        assert_int_equal(meg_device_arena(d, &e, sizes[i], MEG_FILL, &arena), MEG_OK);
        assert_int_equal((uintptr_t)arena % 64, 0);
        assert_int_equal(meg_arena_touched(arena, sizes[i], MEG_FILL), 0);
        for (int64_t at = 0; at < sizes[i]; at += 1 + sizes[i] / 7) {
            ((unsigned char *)arena)[at] = 1;
            assert_int_equal(meg_arena_touched(arena, sizes[i], MEG_FILL), at + 1);
        }
        meg_device_arena_free(d, arena, sizes[i]);
    }
    meg_device_arena_free(d, NULL, 0);
    meg_device_close(d);
}

/* Any number may stand at the end: a gradient may be nothing but rounding errors. */
static void numbers_of_every_size_are_seen(void **unused)
{
    (void)unused;
    for (int power = -149; power < 126; power++)
        for (int sign = -1; sign <= 1; sign++) {
            float value = ldexpf((float)sign, power);
            double twice = ldexp((double)sign, 7 * power);
            assert_int_equal(meg_arena_touched(&value, sizeof value, MEG_FILL), sizeof value);
            assert_int_equal(meg_arena_touched(&twice, sizeof twice, MEG_FILL), sizeof twice);
        }
}

static void fresh_arena_is_nan_on_check(void **unused)
{
    (void)unused;
    meg_error e;
    void *arena = NULL;
    meg_device *d = open_device("check", 1);
    assert_int_equal(meg_device_arena(d, &e, 1000, 0, &arena), MEG_OK);
    for (int i = 0; i < 250; i++)
        assert_true(isnan(((float *)arena)[i]));
    meg_device_arena_free(d, arena, 1000);
    meg_device_close(d);
}

static int64_t resident_bytes(void)
{
    long long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lld %lld", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

/* The last part of the arena is no whole huge page: it must not become one. */
static void arena_is_resident_only_where_touched(void **unused)
{
    (void)unused;
    if (SANITIZED) skip(); /* shadow memory is resident, too */
    meg_error e;
    void *arena = NULL;
    const int64_t bytes = (41 << 20) + 5000, slack = 1 << 20;
    meg_device *d = open_device("ref", 1);
    int64_t before = resident_bytes();
    if (before == 0) skip();
    assert_int_equal(meg_device_arena(d, &e, bytes, 0, &arena), MEG_OK);
    assert_true(resident_bytes() - before < slack);
    memset(arena, 1, (size_t)bytes);
    int64_t grown = resident_bytes() - before;
    if (grown > bytes + slack)
        fail_msg("expected at most %lld bytes, got %lld", (long long)bytes, (long long)grown);
    assert_true(grown > bytes - slack);
    meg_device_arena_free(d, arena, bytes);
    assert_true(resident_bytes() - before < slack);
    meg_device_close(d);
}

static void arena_too_large_is_refused(void **unused)
{
    (void)unused;
    meg_error e;
    void *arena = NULL;
    meg_device *d = open_device("ref", 1);
    assert_int_equal(meg_device_arena(d, &e, (int64_t)1 << 60, 0, &arena), MEG_ENOMEM);
    assert_non_null(strstr(e.message, "1152921504606846976 bytes"));
    assert_int_equal(meg_device_arena(d, &e, INT64_MAX, 0, &arena), MEG_ENOMEM);
    /* 64 TiB of addresses are to be had; of memory they are not */
    assert_int_equal(meg_device_arena(d, &e, (int64_t)1 << 46, 0, &arena), MEG_ENOMEM);
    assert_non_null(strstr(e.message, "64.00 TiB); the machine has "));
    assert_int_equal(meg_device_arena(d, &e, -1, 0, &arena), MEG_EARG);
    assert_null(arena);
    meg_device_close(d);
}

/* How a child ends that writes one byte: its signal, 0 if it lives. */
static int signal_of_writing(char *at)
{
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)at = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void writing_past_the_arena_is_caught(void **unused)
{
    (void)unused;
    if (SANITIZED) skip();
    meg_error e;
    meg_device *d = open_device("ref", 1);
    int64_t page = sysconf(_SC_PAGESIZE);
    static const int64_t sizes[] = {1, 4096, 10000, (8 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *arena = NULL;
        assert_int_equal(meg_device_arena(d, &e, sizes[i], 0, &arena), MEG_OK);
        int64_t end = (sizes[i] + page - 1) / page * page;
        assert_int_equal(signal_of_writing((char *)arena + end - 1), 0);
        assert_int_equal(signal_of_writing((char *)arena + end), SIGSEGV);
        meg_device_arena_free(d, arena, sizes[i]);
    }
    meg_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_knows_what_was_touched),
        cmocka_unit_test(numbers_of_every_size_are_seen),
        cmocka_unit_test(fresh_arena_is_nan_on_check),
        cmocka_unit_test(arena_is_resident_only_where_touched),
        cmocka_unit_test(arena_too_large_is_refused),
        cmocka_unit_test(writing_past_the_arena_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
