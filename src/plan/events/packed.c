/* Packed events: see packed.h. */
#include "plan/events/packed.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) abort();
    return memory;
}

/* ---- kinds ---- */

/* Tags of messages count micro-batches (tags.h). */
static int32_t tag_of(const meg_traffic_note *n, int micro)
{
    return n->code == MEG_REDUCE ? n->tag : n->tag + micro;
}

static meg_traffic_note kind_of(const meg_traffic_note *n)
{
    meg_traffic_note k = *n;
    k.tag = tag_of(n, -n->micro);
    k.micro = k.after = k.afters = k.member = 0;
    return k;
}

static bool is_same(const meg_traffic_note *a, const meg_traffic_note *b)
{
    return a->code == b->code && a->peer == b->peer && a->tag == b->tag && a->value == b->value &&
           a->how == b->how && a->party == b->party && a->format == b->format &&
           a->members == b->members && a->bytes == b->bytes && a->team == b->team &&
           a->what == b->what && a->crew == b->crew && a->like == b->like;
}

typedef struct finder { /* of kinds, by hashing */
    meg_packed *out;
    size_t size, room; /* a power of two */
    int *at;           /* (room) a kind + 1; 0: none */
} finder;

static int *place_of(const finder *f, const meg_traffic_note *k)
{
    uint64_t h = meg_hash_word((uint64_t)k->code, (uint64_t)k->tag);
    size_t i = meg_hash_mix(meg_hash_word(h, k->what)) & (f->room - 1);
    while (f->at[i] && !is_same(&f->out->kind[f->at[i] - 1], k))
        i = (i + 1) & (f->room - 1);
    return &f->at[i];
}

static void enlarge(finder *f)
{
    f->room = f->room ? 2 * f->room : 256;
    free(f->at);
    f->at = room(f->room, sizeof *f->at);
    for (int i = 0; i < f->out->kinds; i++)
        *place_of(f, &f->out->kind[i]) = i + 1;
}

static int32_t find_kind(finder *f, const meg_traffic_note *n)
{
    meg_traffic_note k = kind_of(n);
    if (2 * (size_t)f->out->kinds >= f->room) enlarge(f);
    int *at = place_of(f, &k);
    if (*at) return *at - 1;
    f->out->kind = meg_grow(f->out->kind, &f->size, (size_t)f->out->kinds + 1, sizeof k);
    f->out->kind[f->out->kinds++] = k;
    *at = f->out->kinds;
    return *at - 1;
}

/* ---- lists ---- */

void meg_packed_make(const meg_events *v, meg_packed *out)
{
    size_t notes = (size_t)v->notes, steps = (size_t)v->steps;
    finder f = {.out = out};
    *out = (meg_packed){.notes = v->notes, .steps = v->steps};
    out->note = room(notes, sizeof *out->note);
    out->first = room(notes, sizeof *out->first);
    out->after = room((size_t)v->afters, sizeof *out->after);
    out->step = room(steps, sizeof *out->step);
    if (steps) memcpy(out->step, v->step, steps * sizeof *v->step);
    for (int i = 0, all = 0; i < v->notes; i++) {
        const meg_traffic_note *n = &v->note[i];
        out->note[i] = (meg_packed_note){find_kind(&f, n), n->micro};
        for (int k = 0; k < n->afters; k++)
            out->after[all++] = v->after[n->after + k];
        out->first[i + 1] = all;
    }
    free(f.at);
}

void meg_packed_clear(meg_packed *p)
{
    free(p->kind);
    free(p->note);
    free(p->first);
    free(p->after);
    free(p->step);
    *p = (meg_packed){0};
}

meg_code meg_packed_code(const meg_packed *p, int note)
{
    return (meg_code)p->kind[p->note[note].kind].code;
}

meg_traffic_note meg_packed_at(const meg_packed *p, int note)
{
    meg_traffic_note n = p->kind[p->note[note].kind];
    n.micro = p->note[note].micro;
    n.tag = tag_of(&n, n.micro);
    n.after = p->first[note];
    n.afters = p->first[note + 1] - p->first[note];
    return n;
}

void meg_packed_open(const meg_packed *p, meg_events *out)
{
    *out = (meg_events){.notes = p->notes, .steps = p->steps, .afters = p->first[p->notes]};
    out->note = room((size_t)p->notes, sizeof *out->note);
    out->after = room((size_t)out->afters, sizeof *out->after);
    out->step = room((size_t)p->steps, sizeof *out->step);
    for (int i = 0; i < p->notes; i++)
        out->note[i] = meg_packed_at(p, i);
    memcpy(out->after, p->after, (size_t)out->afters * sizeof *out->after);
    memcpy(out->step, p->step, (size_t)p->steps * sizeof *out->step);
}
