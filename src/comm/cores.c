/* The cores of a rank: see cores.h. Launchers differ in what they pin, and how they are told to; so
 * ranks look at what they were given, and share it out themselves:
 *
 *     cores of the node, neighbours first    0 8 1 9 2 10 3 11   (0 and 8 are one core's threads)
 *     three ranks that may use all of them   [0 8] [1 9 2] [10 3 11]
 */
#define _GNU_SOURCE /* CPU_SET */
#include "comm/cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct core {
    int number, package, core;
} core;

static int read_topology(int number, const char *what)
{
    char path[96];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", number, what);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%d", &value) != 1) value = 0;
    fclose(f);
    return value;
}

static int neighbours_first(const void *a, const void *b)
{
    const core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Keeps to the part of `set` that is the i-th of n. */
static void pin_to(const cpu_set_t *set, int i, int n)
{
    core list[CPU_SETSIZE];
    int count = 0;
    for (int k = 0; k < CPU_SETSIZE; k++)
        if (CPU_ISSET((size_t)k, set))
            list[count++] = (core){k, read_topology(k, "physical_package_id"),
                                   read_topology(k, "core_id")};
    qsort(list, (size_t)count, sizeof *list, neighbours_first);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int k = count * i / n; k < count * (i + 1) / n; k++)
        CPU_SET((size_t)list[k].number, &mine);
    (void)sched_setaffinity(0, sizeof mine, &mine); /* not allowed: it runs all the same */
}

meg_status meg_cores_share(meg_comm *c, meg_error *e, bool pin, int threads, int *out)
{
    int ranks = meg_comm_size(c), me = meg_comm_rank(c), sharers = 0, before = 0;
    const int *node = meg_comm_node(c);
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) {
        CPU_ZERO(&mine);
        CPU_SET(0, &mine);
    }
    cpu_set_t *all = calloc((size_t)ranks, sizeof *all);
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory for the cores of %d ranks", ranks);
    meg_status status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    for (int r = 0; r < ranks && status == MEG_OK; r++) {
        bool same = node[r] == node[me] && CPU_EQUAL(&all[r], &mine);
        sharers += same;
        before += same && r < me;
    }
    free(all);
    MEG_TRY(e, status);
    int cores = CPU_COUNT(&mine);
    int share = cores * (before + 1) / sharers - cores * before / sharers;
    if (pin && sharers > 1 && cores >= sharers && threads <= share) pin_to(&mine, before, sharers);
    *out = share > 0 ? share : 1;
    return MEG_OK;
}
