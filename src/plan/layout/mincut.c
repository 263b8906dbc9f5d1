/* Maximum flow: see flow.h. */
#include "plan/layout/mincut.h"

#include <stdlib.h>

meg_mincut meg_mincut_new(meg_pool *pool, int places, int most_arcs)
{
    meg_mincut f = {.places = places};
    f.first = meg_pool_alloc(pool, (size_t)places * sizeof *f.first);
    f.arc = meg_pool_alloc(pool, 2 * (size_t)most_arcs * sizeof *f.arc);
    for (int i = 0; i < places; i++)
        f.first[i] = -1;
    return f;
}

static void add(meg_mincut *f, int from, int to, int room)
{
    f->arc[f->arcs] = (meg_arc){to, f->first[from], room};
    f->first[from] = f->arcs++;
}

void meg_mincut_arc(meg_mincut *f, int from, int to, int room)
{
    add(f, from, to, room);
    add(f, to, from, 0);
}

/* The arc by which each place is reached first from `from`; -1: not at all. */
static bool reach(const meg_mincut *f, int from, int to, int by[], int queue[])
{
    int count = 0;
    for (int i = 0; i < f->places; i++)
        by[i] = -1;
    queue[count++] = from;
    for (int i = 0; i < count; i++)
        for (int a = f->first[queue[i]]; a >= 0; a = f->arc[a].next) {
            int next = f->arc[a].to;
            if (f->arc[a].room == 0 || by[next] >= 0 || next == from) continue;
            by[next] = a;
            if (next == to) return true;
            queue[count++] = next;
        }
    return false;
}

static void fill(meg_mincut *f, int from, int to, const int by[])
{
    int room = MEG_MINCUT_ANY;
    for (int at = to; at != from; at = f->arc[by[at] ^ 1].to)
        if (f->arc[by[at]].room < room) room = f->arc[by[at]].room;
    for (int at = to; at != from; at = f->arc[by[at] ^ 1].to) {
        f->arc[by[at]].room -= room;
        f->arc[by[at] ^ 1].room += room;
    }
}

void meg_mincut_cut(meg_mincut *f, int from, int to, bool behind[])
{
    int *by = calloc((size_t)f->places, sizeof *by),
        *queue = calloc((size_t)f->places, sizeof *queue);
    int count = 0;
    if (!by || !queue) abort();
    while (reach(f, from, to, by, queue))
        fill(f, from, to, by);
    for (int i = 0; i < f->places; i++)
        behind[i] = i == to;
    queue[count++] = to;
    for (int i = 0; i < count; i++)
        for (int a = f->first[queue[i]]; a >= 0; a = f->arc[a].next) {
            int before = f->arc[a].to;
            if (f->arc[a ^ 1].room == 0 || behind[before]) continue;
            behind[before] = true;
            queue[count++] = before;
        }
    free(by);
    free(queue);
}
