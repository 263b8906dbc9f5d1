/* Offsets: where frame and temporary slots lie, so that those alive at once do not overlap.
 *
 *     bytes
 *       ^   +-------------+      +-------+
 *       |   |      b      | +----+   d   |
 *       |   +---+---------+ | c  +-------+
 *       |   | a |           +------------+--> instructions
 *
 * Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
 * 2020): the largest first, each at the lowest offset that is free during its whole life. Working
 * memory goes first of all, hence lowest: kernels may leave parts of theirs untouched, and the
 * arena's highest byte must be one that is written, since it is measured.
 */
#include "plan/program/program.h"

#include <stdlib.h>
#include <string.h>

static int larger(const void *a, const void *b)
{
    const meg_slot *x = *(const meg_slot *const *)a, *y = *(const meg_slot *const *)b;
    int sx = x->role == MEG_ROLE_SCRATCH, sy = y->role == MEG_ROLE_SCRATCH;
    if (sx != sy) return sy - sx;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : 1; /* by number: sorting is stable, plans are reproducible */
}

/* ---- what is taken, and when ---- */

typedef struct stretch { /* of bytes that are taken */
    int64_t lo, hi;
} stretch;

typedef struct stretches { /* sorted; no two of them touch */
    int count;
    stretch *at;
    size_t room;
} stretches;

/* A tree over time. A slot is put down at the few nodes that together are its life:
 *
 *     node 1                  0 .. 7
 *          2, 3          0..3        4..7
 *          4 .. 7     0,1   2,3   4,5   6,7        a life 2..5 is put down at nodes 5 and 6
 *
 * `whole` is what is taken during all of a node's time by those put down there, `ever` what is taken at
 * any moment of it. What meets a life is `ever` of its nodes and `whole` of those above them, so that
 * neither to ask nor to put down takes long, however many slots live. */
typedef struct calendar {
    int leaves; /* a power of two */
    stretches *whole, *ever;
} calendar;

static calendar calendar_new(int moments)
{
    calendar c = {.leaves = 1};
    while (c.leaves < moments)
        c.leaves *= 2;
    c.whole = calloc(2 * (size_t)c.leaves, sizeof *c.whole);
    c.ever = calloc(2 * (size_t)c.leaves, sizeof *c.ever);
    if (!c.whole || !c.ever) abort();
    return c;
}

static void calendar_free(calendar *c)
{
    for (int i = 0; i < 2 * c->leaves; i++) {
        free(c->whole[i].at);
        free(c->ever[i].at);
    }
    free(c->whole);
    free(c->ever);
}

/* The first stretch that ends behind a byte, or at it. */
static int first_to(const stretches *s, int64_t byte)
{
    int lo = 0, hi = s->count;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (s->at[middle].hi >= byte) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

/* What it touches becomes one with it. */
static void add_stretch(stretches *s, stretch x)
{
    int first = first_to(s, x.lo), end = first;
    for (; end < s->count && s->at[end].lo <= x.hi; end++) {
        if (s->at[end].lo < x.lo) x.lo = s->at[end].lo;
        if (s->at[end].hi > x.hi) x.hi = s->at[end].hi;
    }
    if (end == first) s->at = meg_grow(s->at, &s->room, (size_t)s->count + 1, sizeof *s->at);
    memmove(s->at + first + 1, s->at + end, (size_t)(s->count - end) * sizeof *s->at);
    s->at[first] = x;
    s->count += 1 - (end - first);
}

/* Moves behind what is in the way of so many bytes; was anything? */
static bool pass(const stretches *s, int64_t *at, int64_t bytes)
{
    int i = first_to(s, *at + 1);
    bool moved = false;
    for (; i < s->count && s->at[i].lo < *at + bytes; i++, moved = true)
        *at = s->at[i].hi;
    return moved;
}

enum {
    NODES = 128 /* that a life has, at most, with those above them */
};

/* Nodes of a life, and those above them without these. */
typedef struct nodes {
    int lives, above, life[NODES], over[NODES];
} nodes;

static nodes nodes_of(const calendar *c, const meg_slot *s)
{
    nodes n = {0};
    int lo = s->born + c->leaves, hi = s->dies + c->leaves + 1, left = lo, right = hi - 1;
    for (; lo < hi; lo /= 2, hi /= 2) {
        if (lo % 2) n.life[n.lives++] = lo++;
        if (hi % 2) n.life[n.lives++] = --hi;
    }
    /* nodes on the way up from the first and the last moment: those in the life do no harm */
    for (left /= 2, right /= 2; left; left /= 2, right /= 2) {
        n.over[n.above++] = left;
        if (right != left) n.over[n.above++] = right;
    }
    return n;
}

/* The lowest offset that is free during the slot's whole life. */
static int64_t lowest(const calendar *c, const nodes *n, int64_t bytes)
{
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n->lives; i++)
            moved = pass(&c->ever[n->life[i]], &at, bytes) || moved;
        for (int i = 0; i < n->above; i++)
            moved = pass(&c->whole[n->over[i]], &at, bytes) || moved;
    }
    return at;
}

static void put_down(calendar *c, const nodes *n, const meg_slot *s)
{
    stretch x = {s->offset, meg_aligned(s->offset + s->bytes)};
    if (s->bytes == 0) return;
    for (int i = 0; i < n->lives; i++) {
        add_stretch(&c->whole[n->life[i]], x);
        add_stretch(&c->ever[n->life[i]], x);
    }
    for (int i = 0; i < n->above; i++)
        add_stretch(&c->ever[n->over[i]], x);
}

/* ---- regions ---- */

/* Places the slots of one region; returns its bytes. */
static int64_t place_region(meg_station *t, meg_region region)
{
    int count = 0;
    meg_slot **order = calloc((size_t)t->slots + 1, sizeof *order);
    int64_t bytes = 0;
    if (!order) abort();
    for (int i = 0; i < t->slots; i++) {
        meg_slot *s = &t->slot[i];
        if (s->region == region && s->born >= 0) order[count++] = s;
    }
    qsort(order, (size_t)count, sizeof *order, larger);
    calendar c = calendar_new(count ? t->instrs : 1);
    for (int i = 0; i < count; i++) {
        meg_slot *s = order[i];
        nodes n = nodes_of(&c, s);
        s->offset = lowest(&c, &n, s->bytes);
        put_down(&c, &n, s);
        if (s->offset + s->bytes > bytes) bytes = s->offset + s->bytes;
    }
    calendar_free(&c);
    free(order);
    return bytes;
}

void meg_station_place(meg_station *t)
{
    t->frame = place_region(t, MEG_FRAME);
    t->temporary = place_region(t, MEG_TEMPORARY);
}

int64_t meg_station_stride(const meg_station *t)
{
    return meg_aligned(t->frame);
}

void meg_entry_place(meg_entry *e)
{
    int64_t frames = 0;
    for (int i = 0; i < e->stations; i++) {
        meg_station *t = &e->station[i];
        t->frame_base = t->frame > 0 ? meg_aligned(frames) : frames;
        frames = t->frame_base + (t->frames - 1) * meg_station_stride(t) + t->frame;
        if (t->temporary > e->bytes[MEG_TEMPORARY]) e->bytes[MEG_TEMPORARY] = t->temporary;
    }
    e->bytes[MEG_FRAME] = frames;
}
