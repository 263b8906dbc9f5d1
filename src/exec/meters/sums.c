/* Sums measured: see sums.h. */
#include "exec/meters/sums.h"
#include "base/clock.h"
#include "comm/allreduce/reduction.h"
#include "exec/meters/median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 512, /* bytes of a step whose bytes do not count */
    BUNCHES = 6, /* of sums behind one another; the first does not count */
    SUMS = 12,   /* of a bunch, at most */
    TAG = 0,
    MOST = 64 << 20 /* bytes of a sum */
};

static const double PATIENCE = 0.01; /* seconds of a bunch */
static const double SLOW = 0.05; /* seconds of a sum, above which larger ones are as quick a byte */
static const int64_t SIZES[] = {4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};

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
        bool first = true;
        for (int k = 0; k < r; k++)
            first = first && node[k] != node[r];
        if (inside ? node[r] != node[me] : !first) continue;
        t.rank[t.ranks++] = r;
        in = in || r == me;
    }
    if (!in) t.ranks = 0;
    return t;
}

static meg_status one_bunch(meg_comm *c, meg_error *e, const meg_reduction_spec *s, int sums,
                            double *seconds)
{
    double start = meg_clock();
    for (int i = 0; i < sums; i++)
        MEG_TRY(e, meg_reduction_run(c, e, s));
    *seconds = (meg_clock() - start) / sums;
    return MEG_OK;
}

/* The first bunch, of one sum, says how many the others have: the same for all, by the first rank of all. */
static meg_status time_bunches(meg_comm *c, meg_error *e, const meg_reduction_spec *s, double *out)
{
    double trial[BUNCHES] = {0};
    int sums = 1;
    bool sums_here = s->ranks > 1;
    for (int i = 0; i < BUNCHES; i++) {
        if (sums_here) MEG_TRY(e, one_bunch(c, e, s, sums, &trial[i]));
        if (i > 0) continue;
        sums = (int)fmin(fmax(PATIENCE / fmax(trial[0], 1e-6), 1), SUMS);
        MEG_TRY(e, meg_comm_share(c, e, 0, &sums, sizeof sums));
    }
    *out = sums_here ? meg_median(trial + 1, BUNCHES - 1) : 0;
    return MEG_OK;
}

/* Seconds of a sum in whose steps each rank of the team sends so many bytes; the median over all ranks that
 * have a team. 0: none has. */
static meg_status time_sum(meg_comm *c, meg_error *e, const team *t, int64_t bytes, double *out)
{
    size_t ranks = (size_t)meg_comm_size(c), count = 0;
    int64_t floats = t->ranks * bytes / (int64_t)sizeof(float);
    meg_allreduce view = {.ranks = t->ranks, .count = floats};
    meg_reduction_spec s = {
        .algorithm = meg_allreduce_find("ring"), .ranks = t->ranks, .rank = t->rank, .tag = TAG};
    int64_t scratch = t->ranks > 1 ? meg_reduction_scratch(s.algorithm, &view, MEG_NUMBER_F32, 0)
                                   : 0;
    double mine = 0, *all = calloc(ranks, sizeof *all);
    s.data = (meg_numbers){calloc((size_t)floats + 1, sizeof(float)), floats, MEG_NUMBER_F32};
    s.scratch = calloc((size_t)scratch + 1, 1);
    if (!all || !s.data.data || !s.scratch) meg_fail(e, MEG_ENOMEM, "no memory for a sum");
    else meg_error_clear(e);
    meg_status status = meg_comm_agree(c, e);
    if (status == MEG_OK) status = time_bunches(c, e, &s, &mine);
    if (status == MEG_OK) status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    for (size_t i = 0; i < ranks && status == MEG_OK; i++)
        if (all[i] > 0) all[count++] = all[i];
    *out = count ? meg_median(all, count) : 0;
    free(all);
    free(s.data.data);
    free(s.scratch);
    return status;
}

/* Of the largest team: teams are alike, or one of them stands for all. */
static int most_ranks(const meg_comm *c, bool inside)
{
    int most = 0, size = meg_comm_size(c);
    const int *node = meg_comm_node(c);
    if (!inside) return meg_comm_nodes(c);
    for (int r = 0; r < size; r++) {
        int here = 0;
        for (int k = 0; k < size; k++)
            here += node[k] == node[r];
        if (here > most) most = here;
    }
    return most;
}

meg_status meg_sums_probe(meg_comm *c, meg_error *e, bool inside, meg_link *out)
{
    int ranks = most_ranks(c, inside), steps = 2 * (ranks - 1); /* of a ring */
    double seconds = 0;
    if (ranks < 2) return MEG_OK;
    team t = team_of(c, inside);
    meg_status status = time_sum(c, e, &t, SMALL, &seconds);
    out->hop = seconds / steps;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES && status == MEG_OK; i++) {
        if (seconds > SLOW || ranks * SIZES[i] > MOST) break;
        status = time_sum(c, e, &t, SIZES[i], &seconds);
        double each = fmax(seconds / steps - out->hop, seconds / steps / 4);
        out->sum[out->sums++] = (meg_link_point){SIZES[i], (double)SIZES[i] / each};
    }
    free(t.rank);
    return status;
}
