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

static bool together(const meg_slot *a, const meg_slot *b)
{
    return a->born <= b->dies && b->born <= a->dies;
}

/* The lowest offset at which `s` fits among the `count` slots of `low`, sorted by offset. */
static int64_t lowest(const meg_slot *s, meg_slot *const low[], int count)
{
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        if (!together(s, low[i])) continue;
        if (low[i]->offset >= at + s->bytes) break;
        int64_t end = meg_aligned(low[i]->offset + low[i]->bytes);
        if (end > at) at = end;
    }
    return at;
}

static void insert(meg_slot *low[], int count, meg_slot *s)
{
    int i = count;
    for (; i > 0 && low[i - 1]->offset > s->offset; i--)
        low[i] = low[i - 1];
    low[i] = s;
}

/* Places the slots of one region; returns its bytes. */
static int64_t place_region(meg_station *t, meg_region region)
{
    int count = 0;
    size_t room = (size_t)(t->slots ? t->slots : 1);
    meg_slot **order = calloc(room, sizeof *order), **low = calloc(room, sizeof *low);
    int64_t bytes = 0;
    if (!order || !low) abort();
    for (int i = 0; i < t->slots; i++) {
        meg_slot *s = &t->slot[i];
        if (s->region == region && s->born >= 0) order[count++] = s;
    }
    qsort(order, (size_t)count, sizeof *order, larger);
    for (int placed = 0; placed < count; placed++) {
        meg_slot *s = order[placed];
        s->offset = lowest(s, low, placed);
        insert(low, placed, s);
        if (s->offset + s->bytes > bytes) bytes = s->offset + s->bytes;
    }
    free(order);
    free(low);
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
