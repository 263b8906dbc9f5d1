/* Sums measured: see sums.h. */
#include "exec/probe/sums.h"
#include "base/clock.h"
#include "comm/allreduce/reduction.h"
#include "exec/probe/median.h"

#include <stdlib.h>
#include <string.h>

enum {
    FLOATS = 256,
    BUNCHES = 9, /* of */
    SUMS = 12,   /* behind one another; the first bunch does not count */
    TAG = 0
};

typedef struct team {
    int *rank, ranks; /* that sum with this one; fewer than two: it looks on */
} team;

/* The ranks of this one's node; or the first one of each node. */
static team team_of(const meg_comm *c, bool inside)
{
    int size = meg_comm_size(c), me = meg_comm_rank(c);
    const int *node = meg_comm_node(c);
    team t = {malloc((size_t)size * sizeof *t.rank), 0};
    bool in = false;
    if (!t.rank) abort();
    for (int r = 0; r < size; r++) {
        bool first = r == 0;
        for (int k = 0; k < r && !inside; k++)
            first = k == 0 ? node[k] != node[r] : first && node[k] != node[r];
        if (inside ? node[r] != node[me] : !first) continue;
        t.rank[t.ranks++] = r;
        in = in || r == me;
    }
    if (!in) t.ranks = 0;
    return t;
}

static meg_status one_bunch(meg_comm *c, meg_error *e, const meg_reduction_spec *s, double *seconds)
{
    double start = meg_clock();
    for (int i = 0; i < SUMS; i++)
        MEG_TRY(e, meg_reduction_run(c, e, s));
    *seconds = (meg_clock() - start) / SUMS;
    return MEG_OK;
}

/* Of a step of this rank's team; 0: it has none. */
static meg_status time_team(meg_comm *c, meg_error *e, const team *t, double *out)
{
    float data[FLOATS] = {0};
    double scratch[FLOATS], trial[BUNCHES];
    meg_reduction_spec s = {.algorithm = meg_allreduce_find("ring"),
                            .ranks = t->ranks,
                            .rank = t->rank,
                            .data = {data, FLOATS, MEG_NUMBER_F32},
                            .scratch = scratch,
                            .tag = TAG};
    *out = 0;
    if (t->ranks < 2) return MEG_OK;
    for (int i = 0; i < BUNCHES; i++)
        MEG_TRY(e, one_bunch(c, e, &s, &trial[i]));
    *out = meg_median(trial + 1, BUNCHES - 1) / (2 * (t->ranks - 1)); /* steps of a ring */
    return MEG_OK;
}

meg_status meg_sums_probe(meg_comm *c, meg_error *e, bool inside, double *seconds)
{
    size_t ranks = (size_t)meg_comm_size(c), count = 0;
    double mine = 0, *all = calloc(ranks, sizeof *all);
    team t = team_of(c, inside);
    if (!all) abort();
    meg_status status = meg_comm_barrier(c, e);
    if (status == MEG_OK) status = time_team(c, e, &t, &mine);
    if (status == MEG_OK) status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    for (size_t i = 0; i < ranks; i++)
        if (all[i] > 0) all[count++] = all[i];
    *seconds = count ? meg_median(all, count) : 0;
    free(all);
    free(t.rank);
    return status;
}
