/* Sets of processors: see processors.h. */
#define _GNU_SOURCE /* CPU_SET */
#include "machine/processors.h"
#include "base/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

_Static_assert(MEG_PROCESSORS == CPU_SETSIZE, "a set of ours is as large as the system's");

meg_processors meg_processors_mine(void)
{
    meg_processors p = {{0}};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        meg_processors_add(&p, 0);
        return p;
    }
    for (int i = 0; i < MEG_PROCESSORS; i++)
        if (CPU_ISSET((size_t)i, &set)) meg_processors_add(&p, i);
    return p;
}

bool meg_processors_keep(const meg_processors *p)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < MEG_PROCESSORS; i++)
        if (meg_processors_has(p, i)) CPU_SET((size_t)i, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

uint64_t meg_processors_system(void)
{
    char name[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    bool known = f && fgets(name, sizeof name, f);
    if (f) fclose(f);
    return known ? meg_hash(name) : 0;
}

int meg_processors_count(const meg_processors *p)
{
    int count = 0;
    for (int i = 0; i < MEG_PROCESSORS; i++)
        count += meg_processors_has(p, i);
    return count;
}

bool meg_processors_equal(const meg_processors *a, const meg_processors *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}
