/* Communication of one rank: see events.h. */
#include "plan/events/events.h"
#include "base/random.h"
#include "plan/events/periods.h"
#include "plan/events/spans.h"
#include "plan/program/walk.h"

#include <stdlib.h>
#include <string.h>

enum {
    TURNS = 4 /* so often must lines come again in other frames */
};

typedef struct span { /* of a note */
    meg_region region;
    int64_t lo, hi;                 /* its memory */
    int64_t scratch;                /* of a reduction; -1: none */
    bool reads;                     /* only */
    int64_t stride, scratch_stride; /* to where both are in the next frame; 0: no other place */
} span;

typedef struct point { /* where a line begins */
    bool known;
    int notes, steps, afters, uneven;
    uint64_t open; /* a hash of what is under way, and of the work that waits for a step */
} point;

typedef struct writer {
    const meg_plan *plan;
    const meg_entry *entry;
    meg_events *out;
    meg_pool *pool;
    meg_open_spans
        memory[MEG_REGIONS]; /* of traffic that nobody has waited for yet: numbers of its notes */
    meg_open_spans tags, scratch; /* of the reductions among it */
    span *of;                     /* (notes) */
    size_t room;
    int **first;    /* (stations, instructions) the first note of a message or sum, + 1 */
    uint64_t *team; /* (teams) hashes */
    int *met;       /* scratch: numbers that a question has found */
    size_t met_room;
    double work; /* seconds of kernels since the last step, */
    int kernels; /* and their number */
    int uneven; /* how often it counted where a slot lies that lies elsewhere for each micro-batch */
    point *point; /* (lines) */
} writer;

static void add_work(writer *w)
{
    meg_events *v = w->out;
    v->before = meg_grow(v->before, &v->before_room, (size_t)v->steps + 1, sizeof *v->before);
    v->issued = meg_grow(v->issued, &v->issued_room, (size_t)v->steps + 1, sizeof *v->issued);
    v->before[v->steps] = w->work;
    v->issued[v->steps] = w->kernels;
    w->work = 0;
    w->kernels = 0;
}

static void add_step(writer *w, int step)
{
    meg_events *v = w->out;
    add_work(w);
    v->step = meg_grow(v->step, &v->step_room, (size_t)v->steps + 1, sizeof *v->step);
    v->step[v->steps++] = step;
}

static bool has_scratch(const span *s)
{
    return s->scratch >= 0;
}

static void open_span(writer *w, int note)
{
    const span *s = &w->of[note];
    const meg_traffic_note *n = &w->out->note[note];
    meg_open_add(&w->memory[s->region], s->lo, s->hi, note);
    if (n->code != MEG_REDUCE) return;
    meg_open_add(&w->tags, n->tag, n->tag + 1, note);
    if (has_scratch(s)) meg_open_add(&w->scratch, s->scratch, s->scratch + 1, note);
}

static void close_span(writer *w, int note)
{
    const span *s = &w->of[note];
    const meg_traffic_note *n = &w->out->note[note];
    meg_open_drop(&w->memory[s->region], s->lo, s->hi, note);
    if (n->code != MEG_REDUCE) return;
    meg_open_drop(&w->tags, n->tag, n->tag + 1, note);
    if (has_scratch(s)) meg_open_drop(&w->scratch, s->scratch, s->scratch + 1, note);
}

/* Waits for the first `met` of those that were met, in the order in which they were posted. */
static void wait_for(writer *w, int met, bool writes)
{
    met = meg_open_sort(w->met, met);
    for (int i = 0; i < met; i++) {
        if (!writes && w->of[w->met[i]].reads) continue;
        add_step(w, -1 - w->met[i]);
        close_span(w, w->met[i]);
    }
}

/* All that is still under way, in w->met, in the order in which it was posted. */
static int find_open(writer *w)
{
    int met = 0;
    for (int i = 0; i < MEG_REGIONS; i++)
        met = meg_open_find(&w->memory[i], -1, INT64_MAX, met, &w->met, &w->met_room);
    return meg_open_sort(w->met, met);
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

static meg_box at_origin(const meg_box *box)
{
    meg_box b = *box;
    for (int a = 0; a < MEG_AXES; a++)
        b.hi[a] -= b.lo[a], b.lo[a] = 0;
    return b;
}

static void add_member(meg_events *v, meg_traffic_note *n, const meg_member_note *m)
{
    v->member = meg_grow(v->member, &v->member_room, (size_t)v->members + 1, sizeof *v->member);
    v->member[v->members++] = *m;
    n->members++;
    n->what = meg_hash_word(n->what, m->what);
}

/* The first held slot at an offset, or behind: they ascend. */
static int first_held(const meg_plan *p, int64_t offset)
{
    int lo = 0, hi = p->held_slots;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (p->held[middle].offset < offset) lo = middle + 1;
        else hi = middle;
    }
    return lo;
}

/* The members of a bucket: each by its name, and where it lies. */
static void note_bucket(const writer *w, const meg_slot *s, meg_traffic_note *n)
{
    const meg_plan *p = w->plan;
    n->what = n->like = meg_hash("bucket");
    n->member = w->out->members;
    for (int i = first_held(p, s->offset); i < p->held_slots; i++) {
        const meg_held_slot *m = &p->held[i];
        if (m->offset >= s->offset + s->bytes) return;
        uint64_t h = meg_hash(w->entry->graph->value[m->value].name);
        h = meg_hash_word(h, (uint64_t)m->role);
        h = meg_hash_word(h, (uint64_t)(m->offset - s->offset));
        meg_box box = at_origin(&m->box);
        uint64_t like = meg_hash_word(h, meg_elements_hash(&box, s->dtype, m->format, m->bytes));
        h = meg_hash_word(h, meg_elements_hash(&m->box, s->dtype, m->format, m->bytes));
        add_member(w->out, n, &(meg_member_note){m->value, (int32_t)m->format, h});
        n->like = meg_hash_word(n->like, like);
    }
}

/* Which value a single one is of, the tag says: a slot may hold the gradients of several. The same elements
 * were noted before if they are another micro-batch's. */
static void note_elements(const writer *w, const meg_slot *s, int before, meg_traffic_note *n)
{
    n->format = (int32_t)s->format;
    if (before) {
        const meg_traffic_note *o = &w->out->note[before - 1];
        n->what = o->what;
        n->like = o->like;
        n->member = o->member;
        n->members = o->members;
        return;
    }
    if (s->role == MEG_ROLE_BUCKET) {
        note_bucket(w, s, n);
        return;
    }
    meg_box box = at_origin(&s->box);
    n->what = meg_elements_hash(&s->box, s->dtype, s->format, s->bytes);
    n->like = meg_elements_hash(&box, s->dtype, s->format, s->bytes);
}

/* Traffic that must be done before this starts, as exec/traffic.c has it: what has its memory, unless
 * both only read it, its tag or its scratch. */
static void stand_behind(writer *w, meg_traffic_note *n, const span *mine)
{
    int met = meg_open_find(&w->memory[mine->region], mine->lo, mine->hi, 0, &w->met, &w->met_room),
        kept = 0;
    for (int i = 0; i < met; i++)
        if (!(mine->reads && w->of[w->met[i]].reads)) w->met[kept++] = w->met[i];
    met = kept;
    if (n->code == MEG_REDUCE)
        met = meg_open_find(&w->tags, n->tag, n->tag + 1, met, &w->met, &w->met_room);
    if (has_scratch(mine))
        met = meg_open_find(&w->scratch, mine->scratch, mine->scratch + 1, met, &w->met,
                            &w->met_room);
    met = meg_open_sort(w->met, met);
    for (int i = 0; i < met; i++)
        add_after(w->out, n, w->met[i]);
}

static int64_t stride_of(const meg_station *t, const meg_slot *s)
{
    return s->region == MEG_FRAME ? meg_station_stride(t) : 0;
}

static void post(writer *w, const meg_walk *at)
{
    meg_events *v = w->out;
    const meg_station *t = at->station;
    const meg_line *line = at->line;
    const meg_instr *in = at->instr;
    const meg_slot *s = &t->slot[in->slot[in->code == MEG_RECV ? MEG_Y : MEG_X]];
    meg_traffic_note n = {.code = in->code,
                          .peer = in->peer,
                          .tag = in->code == MEG_REDUCE ? in->tag : in->tag + line->micro,
                          .value = s->value,
                          .micro = in->last ? 0 : line->micro,
                          .after = v->afters,
                          .crew = in->code == MEG_REDUCE ? in->peer : -1,
                          .bytes = s->bytes};
    int *first = &w->first[t - w->entry->station][at->at];
    note_elements(w, s, *first, &n);
    if (!*first) *first = v->notes + 1;
    if (in->code == MEG_REDUCE) {
        const meg_team *team = &w->entry->team[in->peer];
        n.peer = team->count;
        n.team = w->team[in->peer];
        n.how = 2 * (int32_t)in->half + in->max;
        n.party = in->peer;
    }
    int64_t lo = meg_slot_place(w->plan, t, s, line);
    span mine = {s->region, lo, lo + s->bytes, -1, in->code == MEG_SEND, stride_of(t, s), 0};
    if (in->code == MEG_REDUCE && in->slot[MEG_SCRATCH] >= 0) {
        const meg_slot *scratch = &t->slot[in->slot[MEG_SCRATCH]];
        mine.scratch = meg_slot_place(w->plan, t, scratch, line);
        mine.scratch_stride = stride_of(t, scratch);
    }
    w->uneven += s->per_micro != 0 || in->last;
    stand_behind(w, &n, &mine);
    v->note = meg_grow(v->note, &v->note_room, (size_t)v->notes + 1, sizeof *v->note);
    v->note[v->notes] = n;
    w->of = meg_grow(w->of, &w->room, (size_t)v->notes + 1, sizeof *w->of);
    w->of[v->notes] = mine;
    add_step(w, v->notes);
    open_span(w, v->notes++);
}

/* A kernel waits for traffic whose memory it touches; a FREE waits for nothing. */
static void wait(writer *w, const meg_walk *at)
{
    for (int o = 0; o < MEG_OPERANDS; o++) {
        if (at->instr->slot[o] < 0) continue;
        const meg_slot *s = &at->station->slot[at->instr->slot[o]];
        const meg_open_spans *open = &w->memory[s->region];
        if (open->count == 0) continue;
        w->uneven += s->per_micro != 0;
        int64_t lo = meg_slot_place(w->plan, at->station, s, at->line);
        int met = meg_open_find(open, lo, lo + s->bytes, 0, &w->met, &w->met_room);
        wait_for(w, met, at->instr->written & MEG_BIT(o));
    }
}

static bool is_traffic(const meg_instr *i)
{
    return i->code == MEG_SEND || i->code == MEG_RECV || i->code == MEG_REDUCE;
}

/* ---- micro-batches that are alike ---- */

/* Places are told as they lie to the frame of the line that begins. */
static uint64_t hash_open(writer *w, int frame)
{
    int met = find_open(w);
    uint64_t work;
    memcpy(&work, &w->work, sizeof work);
    uint64_t h = meg_hash_word(meg_hash_word(meg_hash("open"), work), (uint64_t)w->kernels);
    for (int i = 0; i < met; i++) {
        const meg_traffic_note *n = &w->out->note[w->met[i]];
        const span *s = &w->of[w->met[i]];
        const int64_t word[] = {w->out->notes - w->met[i],
                                n->code == MEG_REDUCE ? n->tag : -1,
                                n->code,
                                (int64_t)s->region,
                                s->lo - s->stride * frame,
                                s->hi - s->lo,
                                s->scratch - s->scratch_stride * frame,
                                s->reads};
        for (size_t k = 0; k < sizeof word / sizeof *word; k++)
            h = meg_hash_word(h, (uint64_t)word[k]);
    }
    return meg_hash_mix(h);
}

static span shift_span(span s, int frames)
{
    s.lo += s.stride * frames;
    s.hi += s.stride * frames;
    s.scratch += s.scratch_stride * frames;
    return s;
}

/* Writes what came between two points once more, for a later micro-batch. */
static void repeat(writer *w, const point *from, const point *to, meg_shift by)
{
    meg_events *v = w->out;
    int notes = v->notes - from->notes, afters = v->afters - from->afters; /* from then till now */
    size_t all = (size_t)(v->notes + to->notes - from->notes);
    v->note = meg_grow(v->note, &v->note_room, all, sizeof *v->note);
    w->of = meg_grow(w->of, &w->room, all, sizeof *w->of);
    for (int i = from->notes; i < to->notes; i++) {
        meg_traffic_note n = v->note[i];
        n.after += afters;
        n.micro += by.micro;
        if (n.code != MEG_REDUCE) n.tag += by.micro;
        w->of[v->notes] = shift_span(w->of[i], by.frame);
        v->note[v->notes++] = n;
    }
    all = (size_t)(v->afters + to->afters - from->afters);
    v->after = meg_grow(v->after, &v->after_room, all, sizeof *v->after);
    for (int i = from->afters; i < to->afters; i++)
        v->after[v->afters++] = v->after[i] + notes;
    for (int i = from->steps; i < to->steps; i++) {
        w->work = v->before[i];
        w->kernels = v->issued[i];
        add_step(w, v->step[i] < 0 ? v->step[i] - notes : v->step[i] + notes);
    }
}

/* What is under way is now that of the last period. */
static void move_open(writer *w, int notes)
{
    int met = find_open(w);
    for (int i = 0; i < met; i++)
        close_span(w, w->met[i]);
    for (int i = 0; i < met; i++)
        open_span(w, w->met[i] + notes);
}

static void repeat_all(writer *w, const point *from, const point *to, int times, meg_shift by)
{
    double work = w->work;
    int kernels = w->kernels;
    for (int i = 1; i <= times; i++)
        repeat(w, from, to, (meg_shift){i * by.micro, i * by.frame});
    w->work = work;
    w->kernels = kernels;
    move_open(w, times * (to->notes - from->notes));
}

/* Looks, where a line begins, whether the lines before it come again: then they are repeated, and left out. Where
 * frames take turns, a longer period has all of them: a few repetitions do not keep it from being found. */
static void look_back(writer *w, meg_walk *at)
{
    int line = meg_walk_begins(at);
    meg_shift by;
    if (line < 0) return;
    point *here = &w->point[line];
    *here = (point){true,           w->out->notes, w->out->steps,
                    w->out->afters, w->uneven,     hash_open(w, w->entry->line[line].frame)};
    for (int period = 1; period <= line && period <= MEG_PERIOD; period++) {
        const point *from = &w->point[line - period];
        if (!from->known || from->open != here->open || from->uneven != here->uneven) continue;
        int times = meg_period_repeats(w->entry, line, period, &by);
        if (times == 0 || (by.frame != 0 && times < TURNS)) continue;
        repeat_all(w, from, here, times, by);
        meg_walk_skip(at, times * period);
        return;
    }
}

/* ---- all of it ---- */

static writer writer_new(const meg_plan *p, const meg_entry *e, meg_events *out)
{
    meg_pool *pool = meg_pool_new();
    writer w = {.plan = p, .entry = e, .out = out, .pool = pool};
    w.team = meg_pool_alloc(pool, (size_t)e->teams * sizeof *w.team);
    for (int i = 0; i < e->teams; i++)
        w.team[i] = hash_team(&e->team[i]);
    w.first = meg_pool_alloc(pool, (size_t)e->stations * sizeof *w.first);
    for (int i = 0; i < e->stations; i++)
        w.first[i] = meg_pool_alloc(pool, (size_t)e->station[i].instrs * sizeof(int));
    w.point = meg_pool_alloc(pool, (size_t)e->lines * sizeof *w.point);
    for (int i = 0; i < MEG_REGIONS; i++)
        meg_open_over(&w.memory[i], p->bytes[i]);
    return w;
}

static void writer_free(writer *w)
{
    for (int i = 0; i < MEG_REGIONS; i++)
        meg_open_free(&w->memory[i]);
    meg_open_free(&w->tags);
    meg_open_free(&w->scratch);
    meg_pool_free(w->pool);
    free(w->of);
    free(w->met);
}

static void write_instr(writer *w, const meg_walk *at)
{
    bool traffic = is_traffic(at->instr);
    if (traffic) post(w, at);
    else wait(w, at);
    w->work += at->instr->seconds;
    w->kernels += !traffic;
}

static void write_events(const meg_plan *p, int entry, bool skips, meg_events *out)
{
    *out = (meg_events){.rank = p->world.rank};
    writer w = writer_new(p, &p->entry[entry], out);
    for (meg_walk at = meg_walk_new(w.entry); meg_walk_next(&at);) {
        if (at.what != MEG_WALK_END && at.instr->code != MEG_FREE) write_instr(&w, &at);
        if (skips && at.what != MEG_WALK_ISSUE) look_back(&w, &at);
    }
    wait_for(&w, find_open(&w), true);
    add_work(&w);
    writer_free(&w);
}

void meg_events_of(const meg_plan *p, int entry, meg_events *out)
{
    write_events(p, entry, true, out);
}

void meg_events_walk(const meg_plan *p, int entry, meg_events *out)
{
    write_events(p, entry, false, out);
}

void meg_events_clear(meg_events *v)
{
    free(v->note);
    free(v->step);
    free(v->before);
    free(v->issued);
    free(v->after);
    free(v->member);
    *v = (meg_events){0};
}
