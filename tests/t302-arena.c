/* The arena: it tells what was touched, is resident only there, and ends where it says. */
#include "device/arena.h"
#include "device_help.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static meg_arena *arena_of(meg_device *d, int64_t bytes, int fill)
{
    meg_error e;
    meg_arena *a = NULL;
    meg_arena_spec spec = {.bytes = bytes, .fill = fill};
    if (meg_arena_new(d, &e, &spec, &a) != MEG_OK) fail_msg("%s", e.message);
    return a;
}

static void arena_knows_what_was_touched(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 1);
    static const int64_t sizes[] = {0, 1, 100, 4096, 4097, 1000003, (5 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        meg_arena *a = arena_of(d, sizes[i], MEG_FILL);
        assert_int_equal((uintptr_t)meg_arena_address(a, 0) % 64, 0);
        assert_int_equal(meg_arena_touched(a), 0);
        for (int64_t at = 0; at < sizes[i]; at += 1 + sizes[i] / 7) {
            *meg_arena_address(a, at) = 1;
            assert_int_equal(meg_arena_touched(a), at + 1);
        }
        meg_arena_free(a);
    }
    meg_arena_free(NULL);
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
            assert_int_equal(meg_bytes_touched(&value, sizeof value, MEG_FILL), sizeof value);
            assert_int_equal(meg_bytes_touched(&twice, sizeof twice, MEG_FILL), sizeof twice);
        }
}

static void fresh_arena_is_nan_on_check(void **unused)
{
    (void)unused;
    meg_device *d = open_device("check", 1);
    meg_arena *a = arena_of(d, 1000, 0);
    for (int i = 0; i < 250; i++)
        assert_true(isnan(((float *)(void *)meg_arena_address(a, 0))[i]));
    meg_arena_free(a);
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
    const int64_t bytes = (41 << 20) + 5000, slack = 1 << 20;
    meg_device *d = open_device("ref", 1);
    int64_t before = resident_bytes();
    if (before == 0) skip();
    meg_arena *a = arena_of(d, bytes, 0);
    assert_true(resident_bytes() - before < slack);
    memset(meg_arena_address(a, 0), 1, (size_t)bytes);
    int64_t grown = resident_bytes() - before;
    if (grown > bytes + slack)
        fail_msg("expected at most %lld bytes, got %lld", (long long)bytes, (long long)grown);
    assert_true(grown > bytes - slack);
    meg_arena_free(a);
    assert_true(resident_bytes() - before < slack);
    meg_device_close(d);
}

static meg_status refused(meg_device *d, meg_error *e, int64_t bytes)
{
    meg_arena *a = NULL;
    meg_status status = meg_arena_new(d, e, &(meg_arena_spec){.bytes = bytes}, &a);
    assert_null(a);
    return status;
}

static void arena_too_large_is_refused(void **unused)
{
    (void)unused;
    meg_error e;
    meg_device *d = open_device("ref", 1);
    assert_int_equal(refused(d, &e, (int64_t)1 << 60), MEG_ENOMEM);
    assert_non_null(strstr(e.message, "1152921504606846976 bytes"));
    assert_int_equal(refused(d, &e, INT64_MAX), MEG_ENOMEM);
    /* 64 TiB of addresses are to be had; of memory they are not */
    assert_int_equal(refused(d, &e, (int64_t)1 << 46), MEG_ENOMEM);
    assert_non_null(strstr(e.message, "64.00 TiB); the machine has "));
    assert_int_equal(refused(d, &e, -1), MEG_EARG);
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
    meg_device *d = open_device("ref", 1);
    int64_t page = sysconf(_SC_PAGESIZE);
    static const int64_t sizes[] = {1, 4096, 10000, (8 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        meg_arena *a = arena_of(d, sizes[i], 0);
        int64_t end = (sizes[i] + page - 1) / page * page;
        assert_int_equal(signal_of_writing(meg_arena_address(a, end - 1)), 0);
        assert_int_equal(signal_of_writing(meg_arena_address(a, end)), SIGSEGV);
        meg_arena_free(a);
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
