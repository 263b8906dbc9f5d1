/* Communication of one rank: see events.h. */
#include "plan/program/events.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

typedef struct span { /* memory of traffic that nobody has waited for yet */
    int note;
    int64_t lo, hi;
    int64_t scratch; /* of a reduction; -1: none */
    bool reads;      /* only */
} span;

typedef struct walk {
    const meg_plan *plan;
    const meg_entry *entry;
    meg_events *out;
    int64_t base[MEG_REGIONS];
    span *open;
    int opens;
    size_t room;
} walk;

static void add_step(meg_events *v, int step)
{
    v->step = meg_grow(v->step, &v->step_room, (size_t)v->steps + 1, sizeof *v->step);
    v->step[v->steps++] = step;
}

static int64_t place(const walk *w, const meg_station *t, const meg_slot *s, const meg_line *line)
{
    int64_t at = w->base[s->region] + s->offset + s->per_micro * line->ordinal;
    if (s->region == MEG_FRAME) at += t->frame_base + meg_station_stride(t) * line->frame;
    return at;
}

/* Waits for all that touches these bytes. */
static void settle(walk *w, int64_t lo, int64_t hi, bool writes)
{
    int kept = 0;
    for (int i = 0; i < w->opens; i++) {
        const span *s = &w->open[i];
        bool touches = s->lo < hi && lo < s->hi && (writes || !s->reads);
        if (touches) add_step(w->out, -1 - s->note);
        else w->open[kept++] = *s;
    }
    w->opens = kept;
}

static void add_after(meg_events *v, meg_traffic_note *n, int note)
{
    v->after = meg_grow(v->after, &v->after_room, (size_t)v->afters + 1, sizeof *v->after);
    v->after[v->afters++] = note;
    n->afters++;
}

static uint64_t hash_team(const meg_team *t)
{
    uint64_t h = meg_hash("team");
    for (int i = 0; i < t->count; i++)
        h = meg_hash_word(h, (uint64_t)t->rank[i]);
    return h;
}

/* ---- what is summed, or sent ---- */

uint64_t meg_elements_hash(const meg_box *box, meg_dtype dtype, meg_format format, int64_t bytes)
{
    uint64_t h = meg_hash(meg_format_name(format));
    for (int a = 0; a < MEG_AXES; a++)
        h = meg_hash_word(meg_hash_word(h, (uint64_t)box->lo[a]), (uint64_t)box->hi[a]);
    return meg_hash_word(meg_hash_word(h, (uint64_t)dtype), (uint64_t)bytes);
}

/* The members of a bucket: each by its name, and where it lies. */
static uint64_t hash_bucket(const walk *w, const meg_slot *s)
{
    const meg_plan *p = w->plan;
    uint64_t h = meg_hash("bucket");
    for (int i = 0; i < p->held_slots; i++) {
        const meg_held_slot *m = &p->held[i];
        if (m->offset < s->offset || m->offset >= s->offset + s->bytes) continue;
        h = meg_hash_word(h, meg_hash(w->entry->graph->value[m->value].name));
        h = meg_hash_word(h, (uint64_t)m->role);
        h = meg_hash_word(h, (uint64_t)(m->offset - s->offset));
        h = meg_hash_word(h, meg_elements_hash(&m->box, s->dtype, m->format, m->bytes));
    }
    return h;
}

/* Which value a single one is of, the tag says: a slot may hold the gradients of several. */
static uint64_t hash_slot(const walk *w, const meg_slot *s)
{
    if (s->role == MEG_ROLE_BUCKET) return hash_bucket(w, s);
    return meg_elements_hash(&s->box, s->dtype, s->format, s->bytes);
}

static void post(walk *w, const meg_station *t, const meg_line *line, const meg_instr *in)
{
    meg_events *v = w->out;
    const meg_slot *s = &t->slot[in->slot[in->code == MEG_RECV ? MEG_Y : MEG_X]];
    meg_traffic_note n = {.code = in->code,
                          .peer = in->peer,
                          .tag = in->code == MEG_REDUCE ? in->tag : in->tag + line->micro,
                          .value = s->value,
                          .micro = in->last ? 0 : line->micro,
                          .after = v->afters,
                          .bytes = s->bytes,
                          .what = hash_slot(w, s)};
    if (in->code == MEG_REDUCE) {
        const meg_team *team = &w->entry->team[in->peer];
        n.peer = team->count;
        n.team = hash_team(team);
        n.how = 2 * (int32_t)in->half + in->max;
    }
    int64_t lo = place(w, t, s, line);
    span mine = {v->notes, lo, lo + s->bytes, -1, in->code == MEG_SEND};
    if (in->code == MEG_REDUCE && in->slot[MEG_SCRATCH] >= 0)
        mine.scratch = place(w, t, &t->slot[in->slot[MEG_SCRATCH]], line);
    for (int i = 0; i < w->opens; i++) { /* as exec/traffic.c has it */
        const span *o = &w->open[i];
        const meg_traffic_note *other = &v->note[o->note];
        bool sums = n.code == MEG_REDUCE && other->code == MEG_REDUCE &&
                    (n.tag == other->tag || (o->scratch == mine.scratch && mine.scratch >= 0));
        bool meet = o->lo < mine.hi && mine.lo < o->hi && !(o->reads && mine.reads);
        if (sums || meet) add_after(v, &n, o->note);
    }
    v->note = meg_grow(v->note, &v->note_room, (size_t)v->notes + 1, sizeof *v->note);
    v->note[v->notes++] = n;
    add_step(v, mine.note);
    w->open = meg_grow(w->open, &w->room, (size_t)w->opens + 1, sizeof *w->open);
    w->open[w->opens++] = mine;
}

static void post_receives(walk *w, const meg_line *line)
{
    const meg_station *t = &w->entry->station[line->station];
    const meg_block *b = &t->block[line->block];
    for (int i = b->first; i < b->first + b->count && t->instr[i].code == MEG_RECV; i++)
        post(w, t, line, &t->instr[i]);
}

static void walk_instr(walk *w, const meg_station *t, const meg_line *line, const meg_instr *in)
{
    if ((in->last && !line->last) || in->code == MEG_RECV || in->code == MEG_FREE) return;
    if (in->code == MEG_SEND || in->code == MEG_REDUCE) {
        post(w, t, line, in);
        return;
    }
    for (int o = 0; o < MEG_OPERANDS && w->opens; o++) {
        if (in->slot[o] < 0) continue;
        const meg_slot *s = &t->slot[in->slot[o]];
        int64_t lo = place(w, t, s, line);
        settle(w, lo, lo + s->bytes, in->written & MEG_BIT(o));
    }
}

void meg_events_of(const meg_plan *p, int entry, meg_events *out)
{
    const meg_entry *e = &p->entry[entry];
    *out = (meg_events){.rank = p->world.rank};
    walk w = {.plan = p, .entry = e, .out = out};
    for (int r = 0; r < MEG_REGIONS; r++)
        w.base[r] = meg_plan_base(p, (meg_region)r);
    for (int i = 0; i < e->lines; i++)
        if (e->line[i].first) post_receives(&w, &e->line[i]);
    for (int i = 0; i < e->lines; i++) {
        const meg_line *line = &e->line[i];
        const meg_station *t = &e->station[line->station];
        const meg_block *b = &t->block[line->block];
        for (int k = b->first; k < b->first + b->count; k++)
            walk_instr(&w, t, line, &t->instr[k]);
        if (line->next >= 0) post_receives(&w, &e->line[line->next]);
    }
    for (int i = 0; i < w.opens; i++)
        add_step(out, -1 - w.open[i].note);
    free(w.open);
}

void meg_events_clear(meg_events *v)
{
    free(v->note);
    free(v->step);
    free(v->after);
    *v = (meg_events){0};
}
