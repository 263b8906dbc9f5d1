/* How much memory there is: that of the machine, or what a control group of either version leaves of
 * it, in files as the kernel writes them, below a folder of the test.
 */
#include "machine/memory.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const int64_t MIB = 1 << 20;

static void put(scratch *s, const char *path, const char *text)
{
    char folder[512];
    const char *full = scratch_path(s, path);
    for (const char *at = strchr(full + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(at - full), full);
        mkdir(folder, 0755);
    }
    scratch_write(s, path, text, strlen(text));
}

static void looks(scratch *s, int64_t most, int64_t free, bool limited)
{
    meg_memory m = meg_memory_look(s->dir);
    if (m.most != most * MIB || m.free != free * MIB || m.limited != limited)
        fail_msg("expected %d and %d MiB (%d), got %d and %d (%d)", (int)most, (int)free, limited,
                 (int)(m.most / MIB), (int)(m.free / MIB), m.limited);
}

static void test_memory(void **state)
{
    scratch *s = *state;
    meg_memory none = meg_memory_look(s->dir);
    assert_true(none.most == INT64_MAX && none.free == INT64_MAX && !none.limited);
    put(s, "proc/meminfo",
        "MemTotal:       1048576 kB\nMemFree: 7 kB\nMemAvailable:    524288 kB\n"
        "SwapTotal:       102400 kB\nSwapFree:         51200 kB\n");
    looks(s, 1124, 562, false);

    /* version 2: the smallest on the way up; what is no number limits nothing */
    put(s, "proc/self/cgroup", "0::/user/job/7\n");
    put(s, "sys/fs/cgroup/user/job/7/memory.max", "max\n");
    looks(s, 1124, 562, false);
    put(s, "sys/fs/cgroup/user/job/memory.max", "209715200\n");
    put(s, "sys/fs/cgroup/user/job/memory.current", "104857600\n");
    put(s, "sys/fs/cgroup/user/job/memory.stat", "anon 1\ninactive_file 52428800\nfile 5\n");
    put(s, "sys/fs/cgroup/user/memory.max", "314572800\n");
    looks(s, 200, 150, true);

    /* a container sees its own group as the root */
    put(s, "proc/self/cgroup", "0::/\n");
    looks(s, 1124, 562, false);
    put(s, "sys/fs/cgroup/memory.max", "419430400\n");
    looks(s, 400, 400, true);
    put(s, "sys/fs/cgroup/memory.max", "max\n");

    /* version 1, whose no limit is a huge number */
    put(s, "proc/self/cgroup", "12:pids:/a\n4:cpu,memory:/slurm/job\n0::/\n");
    put(s, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    looks(s, 1124, 562, false);
    put(s, "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "104857600\n");
    put(s, "sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "94371840\n");
    looks(s, 100, 10, true);

    setenv("MEGALITH_MEMORY", "8MiB", 1);
    looks(s, 8, 8, true);
    setenv("MEGALITH_MEMORY", "lots", 1);
    looks(s, 100, 10, true);
    unsetenv("MEGALITH_MEMORY");
}

int main(void)
{
    scratch s = scratch_new();
    char command[256];
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_memory, &s)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r '%s'", s.dir);
    return system(command) || failed;
}
