/* Staging: see staging.h. */
#include "plan/program/staging.h"
#include "plan/program/walk.h"

#include "base/pool.h"

#include <stdlib.h>

typedef struct list {
    size_t count, room;
    meg_stretch *at;
} list;

int64_t meg_load_bytes(const meg_station *t, const meg_slot *s)
{
    return s->per_micro ? s->per_micro * t->micros : s->bytes;
}

static void add(list *l, const meg_plan *p, const meg_walk *w, int operand)
{
    int slot = w->instr->slot[operand];
    if (slot < 0) return;
    const meg_slot *s = &w->station->slot[slot];
    int64_t at = meg_slot_place(p, w->station, s, w->line);
    int64_t bytes = w->instr->code == MEG_LOAD ? meg_load_bytes(w->station, s) : s->bytes;
    l->at = meg_grow(l->at, &l->room, l->count + 1, sizeof *l->at);
    l->at[l->count++] = (meg_stretch){at, meg_aligned(at + bytes)}; /* so that all begin aligned */
}

static void add_entry(list *l, const meg_plan *p, const meg_entry *e)
{
    for (meg_walk w = meg_walk_new(e); meg_walk_next(&w);) {
        if (w.what == MEG_WALK_END) continue;
        meg_code code = w.instr->code;
        if (code == MEG_LOAD || code == MEG_RECV) add(l, p, &w, MEG_Y);
        if (code == MEG_SEND || code == MEG_REDUCE) add(l, p, &w, MEG_X);
        if (code == MEG_REDUCE) add(l, p, &w, MEG_SCRATCH);
    }
}

static int ascending(const void *a, const void *b)
{
    const meg_stretch *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

meg_staging meg_plan_staging(const meg_plan *p)
{
    list l = {0};
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) add_entry(&l, p, &p->entry[i]);
    if (l.count) qsort(l.at, l.count, sizeof *l.at, ascending);
    meg_staging s = {.stretch = l.at};
    for (size_t i = 0; i < l.count; i++) { /* joined in place: never more than were read */
        meg_stretch *last = &l.at[s.stretches - (s.stretches > 0)];
        if (s.stretches == 0 || l.at[i].from > last->to) l.at[s.stretches++] = l.at[i];
        else if (l.at[i].to > last->to) last->to = l.at[i].to;
    }
    for (int i = 0; i < s.stretches; i++)
        s.bytes += s.stretch[i].to - s.stretch[i].from;
    return s;
}
