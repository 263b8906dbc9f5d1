/* Ring: every rank sends 2 (n-1)/n of its elements, which is the least possible, in 2 (n-1) steps.
 *
 *     place      0    1    2          the parts a, b, c of the sum; a1 is place 1's own part a
 *     add        a0 > b1 > c2 >       step 0: every place sends one part to its right
 *                c+   a+   b+         step 1: what was added goes on
 *     complete   b    c    a          place p has part p + 1
 *     copy       b >  c >  a >        steps 2, 3: the complete parts go round
 *
 * Pitch Patarasuk and Xin Yuan, Bandwidth optimal all-reduce algorithms for clusters of
 * workstations, 2009.
 */
#include "comm/allreduce/allreduce.h"

void meg_ring_step(const int at[], int n, int place, meg_range span, int k, meg_allreduce_step *out)
{
    int right = (place + 1) % n, left = (place + n - 1) % n;
    bool add = k < n - 1;
    /* What goes out at step k is what came in at step k - 1; copying begins with part place + 1. */
    int part = add ? place - k : place + 1 - (k - (n - 1));
    part = ((part % n) + n) % n;
    *out = (meg_allreduce_step){
        .to = at ? at[right] : right,
        .from = at ? at[left] : left,
        .send = meg_range_part(span, n, part),
        .recv = meg_range_part(span, n, (part + n - 1) % n),
        .add = add,
    };
}

static bool step(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    if (k >= 2 * (a->ranks - 1)) return false;
    meg_ring_step(0, a->ranks, a->rank, (meg_range){0, a->count}, k, out);
    return true;
}

static double cost(const meg_allreduce *a, int64_t element_bytes, const meg_allreduce_rates *r)
{
    int reach = meg_allreduce_reach(a);
    double steps = a->ranks - 1, part = (double)(element_bytes * a->count) / a->ranks;
    return steps * (2 * (r->alpha[reach] + part * r->beta[reach]) + part * r->gamma);
}

const meg_allreduce_kind meg_allreduce_ring = {
    .name = "ring",
    .doc = "parts travel round a ring, twice: least volume, most steps",
    .paper = "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
    .step = step,
    .cost = cost,
};
