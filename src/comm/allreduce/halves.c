/* The two halves of the ring, each on its own, for data whose parts have an owner: rank p of the group
 * has part p. Parts are whole rows.
 *
 *     place      0    1    2
 *     scatter    c0 > a1 > b2 >       each sends the part of the rank two to its right ...
 *                b+   c+   a+         ... and what was added goes on
 *     complete   a    b    c
 *     gather     a >  b >  c >        the parts go round
 *
 * Both send (n-1)/n of the elements in n-1 steps.
 */
#include "comm/allreduce/allreduce.h"

static meg_range part_of(const meg_allreduce *a, int part)
{
    int n = a->ranks;
    part = ((part % n) + n) % n;
    int64_t row = a->rows ? a->count / a->rows : 1, rows = a->rows ? a->rows : a->count;
    int64_t first = rows * part / n, last = rows * (part + 1) / n;
    return (meg_range){first * row, (last - first) * row};
}

static bool half_step(const meg_allreduce *a, int k, bool add, meg_allreduce_step *out)
{
    int n = a->ranks, part = a->rank - k - add;
    if (k >= n - 1) return false;
    *out = (meg_allreduce_step){.to = (a->rank + 1) % n,
                                .from = (a->rank + n - 1) % n,
                                .send = part_of(a, part),
                                .recv = part_of(a, part - 1),
                                .add = add};
    return true;
}

static bool scatter(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    return half_step(a, k, true, out);
}

static bool gather(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    return half_step(a, k, false, out);
}

static double gather_cost(const meg_allreduce *a, int64_t element_bytes,
                          const meg_allreduce_rates *r)
{
    int reach = meg_allreduce_reach(a);
    double part = (double)(element_bytes * a->count) / a->ranks;
    return (a->ranks - 1) * (r->alpha[reach] + part * r->beta[reach]);
}

static double scatter_cost(const meg_allreduce *a, int64_t element_bytes,
                           const meg_allreduce_rates *r)
{
    double part = (double)(element_bytes * a->count) / a->ranks;
    return gather_cost(a, element_bytes, r) + (a->ranks - 1) * part * r->gamma;
}

const meg_allreduce_kind meg_ring_scatter = {
    .name = "scatter",
    .doc = "each rank gets the sum of its part",
    .paper = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
    .step = scatter,
    .cost = scatter_cost,
};

const meg_allreduce_kind meg_ring_gather = {
    .name = "gather",
    .doc = "all ranks get all parts",
    .paper = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
    .step = gather,
    .cost = gather_cost,
};
