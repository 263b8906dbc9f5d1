/* The disk measured: what comes out is of a size that disks have, within the limits, and nothing is left; a folder that
 * is not there is an error, not more; the line of the book reads back.
 */
#include "base/clock.h"
#include "exec/meters/disk.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static int files_in(const char *folder)
{
    int count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

static void test_measures(void **state)
{
    const scratch *s = *state;
    const meg_disk_limits small = {0.2, (int64_t)32 << 20};
    meg_error e = {0};
    meg_disk d = {0};
    double begin = meg_clock();
    if (meg_disk_probe(&e, s->dir, &small, &d) != MEG_OK) fail_msg("%s", e.message);
    print_message("read %.3g write %.3g %s, %.2f s\n", d.read, d.write,
                  d.direct ? "direct" : "cached", meg_clock() - begin);
    assert_true(d.read > 1e5 && d.read < 1e12 && d.write > 1e5 && d.write < 1e12);
    assert_int_equal(files_in(s->dir), 0);
}

/* One piece is written and read whatever the time is. */
static void test_limits(void **state)
{
    const scratch *s = *state;
    const meg_disk_limits none = {0, 0};
    meg_error e = {0};
    meg_disk d = {0};
    if (meg_disk_probe(&e, s->dir, &none, &d) != MEG_OK) fail_msg("%s", e.message);
    assert_true(d.read > 0 && d.write > 0);
}

static void test_refusals(void **state)
{
    meg_error e = {0};
    meg_disk d = {1, 2, true};
    (void)state;
    assert_int_equal(meg_disk_probe(&e, "/nowhere/at/all", &meg_disk_usual, &d), MEG_EIO);
    assert_non_null(strstr(e.message, "/nowhere/at/all"));
    assert_true(d.read == 1 && d.write == 2); /* outputs are set only on success */
}

static void test_line(void **state)
{
    meg_disk d = {1.25e9, 4.5e8, true}, back;
    char line[128];
    (void)state;
    meg_disk_line(&d, line, sizeof line);
    assert_string_equal(line, "disk read=1.25e+09 write=4.5e+08 how=direct");
    assert_true(meg_disk_scan(line, &back));
    assert_true(back.read == d.read && back.write == d.write && back.direct);
    assert_true(meg_disk_scan("disk read=1e6 write=1e6 how=cached", &back) && !back.direct);
    assert_false(meg_disk_scan("inside latency=1e-6 pairs=1 at=1:1", &back));
    assert_false(meg_disk_scan("disk read=-1 write=1e6", &back));
    assert_false(meg_disk_scan("disk read=nan write=1e6", &back));
}

int main(void)
{
    scratch s = scratch_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_measures, &s),
        cmocka_unit_test_prestate(test_limits, &s),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_line),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_free(&s);
    return failed;
}
