/* Recursive halving, then recursive doubling: the ring's volume in 2 log2(n) steps.
 *
 *     rank       0      1      2      3          8 elements
 *     halve      0..3   0..3   4..7   4..7       with rank ^ 2: each keeps one half, adding
 *                0..1   2..3   4..5   6..7       with rank ^ 1
 *     double     0..3   0..3   4..7   4..7       with rank ^ 1: copies go back
 *                0..7   0..7   0..7   0..7       with rank ^ 2
 *
 * If n is not a power of two, pairs of neighbours at the front, as many as there are ranks too
 * many, first become one each: they add halves to one another, the odd one hands its half over and
 * sits out, and gets the result at the end.
 *
 * Rolf Rabenseifner, Optimization of collective reduction operations, 2004.
 */
#include "comm/allreduce/allreduce.h"

typedef struct fold {
    int core, log; /* ranks that halve and double: the largest power of two, 2^log */
    int extra;     /* pairs at the front */
} fold;

static fold fold_of(int ranks)
{
    fold f = {1, 0, 0};
    while (2 * f.core <= ranks) {
        f.core *= 2;
        f.log++;
    }
    f.extra = ranks - f.core;
    return f;
}

/* A rank's number among those that take part, and back; odd ranks of pairs have none. */
static int core_of(const fold *f, int rank)
{
    return rank < 2 * f->extra ? rank / 2 : rank - f->extra;
}

static int rank_of(const fold *f, int core)
{
    return core < f->extra ? 2 * core : core + f->extra;
}

/* What rank `core` is left with after `level` halvings; *away is the half it gave at the last. */
static meg_range held(const fold *f, int core, int level, int64_t count, meg_range *away)
{
    meg_range mine = {0, count};
    *away = (meg_range){0, 0};
    for (int l = 1; l <= level; l++) {
        int high = core >> (f->log - l) & 1;
        meg_range all = mine;
        mine = meg_range_part(all, 2, high);
        *away = meg_range_part(all, 2, !high);
    }
    return mine;
}

/* The two steps before (k = 0, 1) and the one after (k = 2) of a pair. */
static void pair_step(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    meg_range all = {0, a->count}, low = meg_range_part(all, 2, 0),
              high = meg_range_part(all, 2, 1);
    bool odd = a->rank % 2;
    int peer = odd ? a->rank - 1 : a->rank + 1;
    meg_range moved = k == 1 ? high : all;
    if (k == 0) *out = (meg_allreduce_step){peer, peer, odd ? low : high, odd ? high : low, true};
    else if (odd == (k == 1)) *out = (meg_allreduce_step){.to = peer, .from = -1, .send = moved};
    else *out = (meg_allreduce_step){.to = -1, .from = peer, .recv = moved};
}

static bool step(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    fold f = fold_of(a->ranks);
    int before = f.extra ? 2 : 0;
    bool paired = a->rank < 2 * f.extra, out_of_it = paired && a->rank % 2;
    *out = (meg_allreduce_step){.to = -1, .from = -1};
    if (k >= before + 2 * f.log + (f.extra > 0)) return false;
    if (k < before || k == before + 2 * f.log) {
        if (paired) pair_step(a, k < before ? k : 2, out);
        return true;
    }
    if (out_of_it) return true;
    k -= before;
    bool add = k < f.log;
    int level = add ? k + 1 : 2 * f.log - k, core = core_of(&f, a->rank);
    meg_range away, mine = held(&f, core, level, a->count, &away);
    int peer = rank_of(&f, core ^ 1 << (f.log - level));
    *out = (meg_allreduce_step){peer, peer, add ? away : mine, add ? mine : away, add};
    return true;
}

static double cost(const meg_allreduce *a, int64_t element_bytes, const meg_allreduce_rates *r)
{
    fold f = fold_of(a->ranks);
    int reach = meg_allreduce_reach(a);
    double bytes = (double)(element_bytes * a->count), share = bytes * (f.core - 1) / f.core;
    double alpha = r->alpha[reach], beta = r->beta[reach];
    double seconds = 2 * (f.log * alpha + share * beta) + share * r->gamma;
    if (f.extra) seconds += 3 * alpha + bytes * (2 * beta + r->gamma / 2);
    return seconds;
}

const meg_allreduce_kind meg_allreduce_halving_doubling = {
    .name = "halving_doubling",
    .doc = "halves exchanged with ever nearer ranks, then doubled back: few steps",
    .paper = "Rabenseifner, Optimization of collective reduction operations, ICCS 2004",
    .step = step,
    .cost = cost,
};
