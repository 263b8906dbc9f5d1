/* Rings inside nodes and rings between them: links between nodes carry each element only once per
 * node, in 2 (M-1) steps over M nodes instead of 2 (n-1) over n ranks.
 *
 *     1  inside a node   ring, adding: each of its g ranks ends with one of g parts
 *     2  inside a node   parts -> lanes: the first K ranks collect one lane each; K is the size of
 *                        the smallest node, so every node has every lane
 *     3  between nodes   lane by lane: the M ranks with this lane form a ring, add and copy
 *     4  inside a node   lanes -> parts, as 2 backwards
 *     5  inside a node   ring, copying
 *
 * If a node has K ranks, part and lane are the same and 2 and 4 move nothing. 2 and 4 go by rounds:
 * in round j place p sends to place p + j what both have in common, mostly nothing.
 *
 * Truong Thao Nguyen, Mohamed Wahib, Ryousei Takano, Topology-aware sparse allreduce for large-scale
 * deep learning, 2019 (its dense ring of rings, for nodes of equal size; 2 and 4 are ours).
 */
#include "comm/allreduce/allreduce.h"

typedef struct view { /* of one rank on the nodes */
    int nodes, lanes, node;
    int ranks, place;  /* of the own node */
    const int *member; /* (ranks) */
    meg_range all;
} view;

static view view_of(const meg_allreduce *a)
{
    const meg_topology *g = a->groups;
    int node = g->group[a->rank];
    return (view){
        .nodes = g->count,
        .lanes = g->smallest,
        .node = node,
        .ranks = g->first[node + 1] - g->first[node],
        .place = g->place[a->rank],
        .member = g->member + g->first[node],
        .all = {0, a->count},
    };
}

/* Which part the ring has summed up on a place, and its lane (none beyond the last). */
static meg_range part(const view *v, int place)
{
    return meg_range_part(v->all, v->ranks, (place + 1) % v->ranks);
}

static meg_range lane(const view *v, int place)
{
    if (place >= v->lanes) return (meg_range){0, 0};
    /* Numbered as the ring leaves its parts, so that they are the same where the sizes are. */
    return meg_range_part(v->all, v->lanes, (place + 1) % v->lanes);
}

static meg_range common(meg_range a, meg_range b)
{
    int64_t lo = a.at > b.at ? a.at : b.at;
    int64_t a_end = a.at + a.count, b_end = b.at + b.count, hi = a_end < b_end ? a_end : b_end;
    return hi > lo ? (meg_range){lo, hi - lo} : (meg_range){0, 0};
}

/* Round 1 .. g-1 of parts -> lanes, or back. */
static void regroup(const view *v, int round, bool back, meg_allreduce_step *out)
{
    int right = (v->place + round) % v->ranks, left = (v->place + v->ranks - round) % v->ranks;
    meg_range my_part = part(v, v->place), my_lane = lane(v, v->place);
    out->to = v->member[right];
    out->from = v->member[left];
    out->send = back ? common(my_lane, part(v, right)) : common(my_part, lane(v, right));
    out->recv = back ? common(lane(v, left), my_part) : common(part(v, left), my_lane);
}

/* The ring of the ranks that have this rank's lane. Their numbers are strewn over the list of
 * members, so the ring is walked by node and translated. */
static void lane_step(const meg_allreduce *a, const view *v, int k, meg_allreduce_step *out)
{
    const meg_topology *g = a->groups;
    meg_ring_step(0, v->nodes, v->node, lane(v, v->place), k, out);
    out->to = g->member[g->first[out->to] + v->place];
    out->from = g->member[g->first[out->from] + v->place];
}

static bool step(const meg_allreduce *a, int k, meg_allreduce_step *out)
{
    const view v = view_of(a);
    const int inside = v.ranks - 1, between = 2 * (v.nodes - 1);
    const bool even = v.ranks == v.lanes;
    const int rounds = even ? 0 : inside;
    *out = (meg_allreduce_step){.to = -1, .from = -1};
    if (k < inside) {
        meg_ring_step(v.member, v.ranks, v.place, v.all, k, out);
        return true;
    }
    k -= inside;
    if (k < rounds) {
        regroup(&v, k + 1, false, out);
        return true;
    }
    k -= rounds;
    if (k < between) {
        if (v.place < v.lanes) lane_step(a, &v, k, out);
        return true;
    }
    k -= between;
    if (k < rounds) {
        regroup(&v, k + 1, true, out);
        return true;
    }
    k -= rounds;
    if (k >= inside) return false;
    meg_ring_step(v.member, v.ranks, v.place, v.all, inside + k, out);
    return true;
}

/* Of the largest node: inside it the rings of its g ranks, and up to two lanes' worth of regrouping
 * (a place may have to collect nearly a lane). */
static double cost(const meg_allreduce *a, int64_t element_bytes, const meg_allreduce_rates *r)
{
    const meg_topology *g = a->groups;
    int largest = 0;
    for (int i = 0; i < g->count; i++)
        if (g->first[i + 1] - g->first[i] > largest) largest = g->first[i + 1] - g->first[i];
    double bytes = (double)(element_bytes * a->count), part_bytes = bytes / largest;
    double lane_bytes = bytes / g->smallest, sub = lane_bytes / g->count;
    double seconds = (largest - 1) *
                     (2 * (r->alpha[0] + part_bytes * r->beta[0]) + part_bytes * r->gamma);
    seconds += (g->count - 1) * (2 * (r->alpha[1] + sub * r->beta[1]) + sub * r->gamma);
    if (largest > g->smallest) {
        double messages = (double)largest / g->smallest;
        seconds += 2 * (messages * r->alpha[0] + (lane_bytes - part_bytes) * r->beta[0]);
    }
    return seconds;
}

const meg_allreduce_kind meg_allreduce_hierarchical = {
    .name = "hierarchical",
    .doc = "rings inside nodes, and between the ranks of equal place: spares the network",
    .paper = "Nguyen, Wahib and Takano, Topology-aware sparse allreduce, IPCCC 2019",
    .step = step,
    .cost = cost,
};
