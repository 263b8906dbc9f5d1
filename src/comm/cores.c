/* The cores of a rank: see cores.h. Launchers differ in what they pin, and how they are told to; so
 * ranks look at what they were given, and share it out themselves:
 *
 *     cores of the node, neighbours first    0 8 1 9 2 10 3 11   (0 and 8 are one core's threads)
 *     three ranks that may use all of them   [0 8] [1 9 2] [10 3 11]
 */
#include "comm/cores.h"
#include "machine/topology.h"

#include <stdlib.h>

/* Keeps to the part of `set` that is the i-th of n. Where that cannot be, it runs all the same. */
static void pin_to(const meg_processors *set, int i, int n)
{
    meg_error ignored;
    meg_topology *t = NULL;
    if (meg_topology_open(&ignored, NULL, &t) != MEG_OK) return;
    meg_processors mine = meg_topology_part(t, set, i, n);
    (void)meg_processors_keep(&mine);
    meg_topology_close(t);
}

typedef struct given { /* to a rank */
    meg_processors set;
    uint64_t system;
} given;

meg_status meg_cores_share(meg_comm *c, meg_error *e, bool pin, int threads, meg_cores *out)
{
    int ranks = meg_comm_size(c), me = meg_comm_rank(c), sharers = 0, before = 0;
    const int *node = meg_comm_node(c);
    given mine = {meg_processors_mine(), meg_processors_system()};
    given *all = calloc((size_t)ranks, sizeof *all);
    bool far = false; /* some of them are on other nodes */
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory for the cores of %d ranks", ranks);
    meg_status status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    for (int r = 0; r < ranks && status == MEG_OK; r++) {
        bool near = node[r] == node[me] || (mine.system && all[r].system == mine.system);
        bool same = near && meg_processors_equal(&all[r].set, &mine.set);
        sharers += same;
        before += same && r < me;
        far = far || (same && node[r] != node[me]);
    }
    free(all);
    MEG_TRY(e, status);
    int cores = meg_processors_count(&mine.set);
    if (sharers > cores) meg_comm_crowd(c);
    int share = cores * (before + 1) / sharers - cores * before / sharers;
    if (pin && sharers > 1 && cores >= sharers && threads <= share)
        pin_to(&mine.set, before, sharers);
    *out = (meg_cores){share > 0 ? share : 1, far ? cores : 0};
    return MEG_OK;
}
