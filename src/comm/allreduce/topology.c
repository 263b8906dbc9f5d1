/* Which ranks share a node: see allreduce.h. */
#include "base/pool.h"
#include "comm/allreduce/allreduce.h"

#include <stdlib.h>

static int *ints(int count)
{
    size_t room = 0;
    return meg_grow(NULL, &room, (size_t)count, sizeof(int));
}

/* Groups are numbered in the order of their first ranks. */
static void number(meg_topology *g, const int node[])
{
    for (int r = 0; r < g->ranks; r++) {
        int before = r - 1;
        while (before >= 0 && node && node[before] != node[r])
            before--;
        g->group[r] = before < 0 ? g->count++ : g->group[before];
        g->place[r] = before < 0 ? 0 : g->place[before] + 1;
    }
}

meg_topology *meg_topology_new(int ranks, const int node[])
{
    size_t room = 0;
    meg_topology *g = meg_grow(NULL, &room, 1, sizeof *g);
    *g = (meg_topology){.ranks = ranks, .smallest = ranks};
    g->group = ints(ranks);
    g->place = ints(ranks);
    g->member = ints(ranks);
    number(g, node);
    g->first = ints(g->count + 1);
    for (int i = 0; i <= g->count; i++)
        g->first[i] = 0;
    for (int r = 0; r < ranks; r++)
        g->first[g->group[r] + 1]++;
    for (int i = 0; i < g->count; i++) {
        if (g->first[i + 1] < g->smallest) g->smallest = g->first[i + 1];
        g->first[i + 1] += g->first[i];
    }
    for (int r = 0; r < ranks; r++)
        g->member[g->first[g->group[r]] + g->place[r]] = r;
    return g;
}

void meg_topology_free(meg_topology *g)
{
    if (!g) return;
    free(g->group);
    free(g->place);
    free(g->first);
    free(g->member);
    free(g);
}
