/* Limits: see limits.h. */
#include "train/outlook/limits.h"
#include "machine/memory.h"

#include <stdlib.h>

int64_t meg_limits_besides(void)
{
    int64_t grains = (meg_memory_used("") + MEG_LIMITS_GRAIN - 1) / MEG_LIMITS_GRAIN;
    return grains * MEG_LIMITS_GRAIN + MEG_LIMITS_LATER;
}

int64_t meg_limits_left(int64_t share, int64_t besides)
{
    enum {
        PROCESSES = 4
    };
    return share > PROCESSES * besides ? share - besides : share;
}

void meg_limits_share(const meg_place place[], const int node[], int ranks, int64_t out[])
{
    for (int r = 0; r < ranks; r++) {
        int64_t sharers = 0;
        for (int i = 0; i < ranks; i++)
            sharers += node[i] == node[r] && place[i].owner == place[r].owner;
        out[r] = meg_limits_left(place[r].most / sharers, place[r].besides);
    }
}

meg_status meg_limits_gather(meg_comm *c, meg_error *e, int64_t **out)
{
    size_t ranks = (size_t)meg_comm_size(c);
    meg_memory m = meg_memory_look("");
    meg_place mine = {m.most, m.owner, meg_limits_besides()};
    meg_place *all = calloc(ranks, sizeof *all);
    int64_t *limit = calloc(ranks, sizeof *limit);
    if (!all || !limit) abort();
    meg_status status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    if (status == MEG_OK) meg_limits_share(all, meg_comm_node(c), (int)ranks, limit);
    free(all);
    if (status == MEG_OK) *out = limit;
    else free(limit);
    return status;
}
