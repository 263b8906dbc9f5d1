/* The fewest places that part a network of ways: maximum flow along shortest ways (Edmonds and Karp,
 * J. ACM 19, 1972).
 */
#ifndef MEG_PLAN_LAYOUT_MINCUT_H
#define MEG_PLAN_LAYOUT_MINCUT_H

#include "base/pool.h"

#include <stdbool.h>

typedef struct meg_arc {
    int to, next; /* next of those that leave the same place; -1: none */
    int room;     /* what may still flow; the arc that goes back is the neighbour, number ^ 1 */
} meg_arc;

typedef struct meg_mincut {
    int places, arcs;
    int *first; /* (places) */
    meg_arc *arc;
} meg_mincut;

enum {
    MEG_MINCUT_ANY = 1 << 28 /* room for everything */
};

meg_mincut meg_mincut_new(meg_pool *pool, int places, int most_arcs);
void meg_mincut_arc(meg_mincut *f, int from, int to, int room);

/* Fills the network. behind: (places) those that still lead to `to` afterwards: arcs into them from
 * others are the cut that is nearest to it. */
void meg_mincut_cut(meg_mincut *f, int from, int to, bool behind[]);

#endif
