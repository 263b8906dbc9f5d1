/* The walk over an entry: see walk.h. */
#include "plan/program/walk.h"

meg_walk meg_walk_new(const meg_entry *e)
{
    return (meg_walk){.entry = e, .number = -1, .posts = -1};
}

static void look_at(meg_walk *w, meg_walk_what what, int line)
{
    w->what = what;
    w->line = &w->entry->line[line];
    w->station = &w->entry->station[w->line->station];
    w->instr = NULL;
}

static const meg_block *block_of(const meg_entry *e, int line)
{
    return &e->station[e->line[line].station].block[e->line[line].block];
}

static bool give(meg_walk *w, meg_walk_what what, int line)
{
    look_at(w, what, line);
    w->at = w->next++;
    w->instr = &w->station->instr[w->at];
    return true;
}

static void begin_posts(meg_walk *w, int line)
{
    w->posts = line;
    if (line >= 0) w->next = block_of(w->entry, line)->first;
}

/* The next receive of the line whose receives are being posted: they stand at the head of its block. */
static bool post(meg_walk *w)
{
    if (w->posts < 0) return false;
    const meg_block *b = block_of(w->entry, w->posts);
    const meg_station *t = &w->entry->station[w->entry->line[w->posts].station];
    if (w->next < b->first + b->count && t->instr[w->next].code == MEG_RECV)
        return give(w, MEG_WALK_POST, w->posts);
    return false;
}

/* The first line behind `line` that no other shares its frame with before; or their number. */
static int next_first(const meg_entry *e, int line)
{
    do
        line++;
    while (line < e->lines && !e->line[line].first);
    return line;
}

static void begin_line(meg_walk *w, int number)
{
    w->number = number;
    w->posts = -1;
    if (number < w->entry->lines) w->next = block_of(w->entry, number)->first;
}

/* The next instruction of the line at hand, then its end. */
static bool issue(meg_walk *w)
{
    const meg_block *b = block_of(w->entry, w->number);
    const meg_line *line = &w->entry->line[w->number];
    const meg_station *t = &w->entry->station[line->station];
    for (; w->next < b->first + b->count; w->next++) {
        const meg_instr *i = &t->instr[w->next];
        if (i->code != MEG_RECV && (line->last || !i->last))
            return give(w, MEG_WALK_ISSUE, w->number);
    }
    look_at(w, MEG_WALK_END, w->number);
    return true;
}

bool meg_walk_next(meg_walk *w)
{
    const meg_entry *e = w->entry;
    if (w->number < 0) { /* the first receives */
        while (!post(w)) {
            int line = next_first(e, w->posts);
            if (line >= e->lines) {
                begin_line(w, 0);
                return e->lines > 0 && issue(w);
            }
            begin_posts(w, line);
        }
        return true;
    }
    if (w->what == MEG_WALK_END) begin_posts(w, e->line[w->number].next);
    if (post(w)) return true;
    if (w->what != MEG_WALK_ISSUE) begin_line(w, w->number + 1);
    return w->number < e->lines && issue(w);
}

int meg_walk_begins(const meg_walk *w)
{
    meg_walk ahead = *w;
    if (w->number < 0 || w->what == MEG_WALK_ISSUE || w->number + 1 >= w->entry->lines) return -1;
    if (w->what == MEG_WALK_END) begin_posts(&ahead, w->entry->line[w->number].next);
    return post(&ahead) ? -1 : w->number + 1;
}

void meg_walk_skip(meg_walk *w, int lines)
{
    w->number += lines;
    w->what = MEG_WALK_POST;
    w->posts = -1;
}

int64_t meg_slot_place(const meg_plan *p, const meg_station *t, const meg_slot *s,
                       const meg_line *line)
{
    int64_t at = meg_plan_base(p, s->region) + s->offset + s->per_micro * line->ordinal;
    if (s->region == MEG_FRAME) at += t->frame_base + meg_station_stride(t) * line->frame;
    return at;
}

/* ---- what a step has ---- */

meg_messages meg_entry_messages(const meg_entry *e)
{
    meg_messages m = {0};
    for (meg_walk w = meg_walk_new(e); meg_walk_next(&w);) {
        if (w.what != MEG_WALK_ISSUE) continue;
        int64_t bytes = w.instr->slot[MEG_X] < 0 ? 0 : w.station->slot[w.instr->slot[MEG_X]].bytes;
        if (w.instr->code == MEG_SEND) m.sent++, m.bytes += bytes;
        if (w.instr->code == MEG_REDUCE) m.sums++, m.sum_bytes += w.instr->half ? bytes / 2 : bytes;
    }
    return m;
}

double meg_entry_seconds(const meg_entry *e)
{
    double seconds = 0;
    for (meg_walk w = meg_walk_new(e); meg_walk_next(&w);)
        if (w.what == MEG_WALK_ISSUE) seconds += w.instr->seconds;
    return seconds;
}

size_t meg_entry_count(const meg_entry *e, meg_code code)
{
    size_t count = 0;
    for (meg_walk w = meg_walk_new(e); meg_walk_next(&w);)
        count += w.what != MEG_WALK_END && w.instr->code == code;
    return count;
}
