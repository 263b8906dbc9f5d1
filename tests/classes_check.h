/* Classes of ranks, held against the programs of all ranks: those of one class are equal but for peers,
 * teams and places of boxes; a plan that is turned to a rank is the one made for it; and the proof by classes
 * says what the proof of all ranks says, also where the lists of a class were broken on purpose. */
#ifndef TESTS_CLASSES_CHECK_H
#define TESTS_CLASSES_CHECK_H

#include "canonical.h"
#include "plan/digest.h"
#include "plan/proof.h"

#include <stdlib.h>

static inline uint64_t classes_hash(const meg_plan *p, bool loose)
{
    canonical c = {.loose = loose};
    canonical_plan(&c, p);
    return meg_hash_word(c.program, c.tags);
}

/* False: it was said what is wrong. `p`: of any rank; it is turned. */
static inline bool classes_agree(const char *name, meg_plan *p, const uint64_t strict[],
                                 const uint64_t loose[])
{
    meg_error e;
    meg_classes *c = meg_classes_new(p);
    bool good = true;
    for (int r = 0; r < c->ranks && good; r++) {
        int other = c->last[c->of[r]];
        good = meg_plan_turn(p, &e, r) == MEG_OK && classes_hash(p, false) == strict[r];
        if (!good) printf("%s: turned to rank %d, the plan is another\n", name, r);
        if (good && loose[r] != loose[other]) {
            printf("%s: ranks %d and %d are of one class, but have other programs\n", name, r,
                   other);
            good = false;
        }
    }
    meg_classes_free(c);
    return good;
}

/* How many kinds of programs there are: as few classes would do. */
static inline int classes_least(const uint64_t loose[], int ranks)
{
    int kinds = 0;
    for (int r = 0; r < ranks; r++) {
        bool known = false;
        for (int k = 0; k < r; k++)
            known = known || loose[k] == loose[r];
        kinds += !known;
    }
    return kinds;
}

/* ---- proofs ---- */

typedef struct classes_break { /* what is done to the lists of all ranks of a class */
    int which;
    uint64_t draw;
    bool found; /* the proof refuses it */
} classes_break;

enum {
    CLASSES_BREAKS = 5
};

static inline int classes_step_of(const meg_events *v, int step)
{
    int i = 0;
    while (i < v->steps && v->step[i] != step)
        i++;
    return i;
}

/* Moves a step to another place. */
static inline void classes_move(meg_events *v, int from, int to)
{
    int step = v->step[from], by = from < to ? 1 : -1;
    for (; from != to; from += by)
        v->step[from] = v->step[from + by];
    v->step[to] = step;
}

static inline void classes_spoil(meg_events *v, classes_break b, int micro)
{
    if (v->notes == 0) return;
    int note = (int)(b.draw % (uint64_t)v->notes), post = classes_step_of(v, note);
    int wait = classes_step_of(v, -1 - note);
    if (b.which == 0) v->note[note].bytes += 4;
    if (b.which == 1) v->note[note].tag += v->note[note].code == MEG_REDUCE ? 1 : 2 * micro;
    if (b.which == 2) classes_move(v, wait, post + 1); /* waited for at once */
    if (b.which == 3) classes_move(v, post, wait - 1); /* as late as can be */
    if (b.which == 4) {                                /* never */
        classes_move(v, wait, v->steps - 1);
        classes_move(v, post, v->steps - 1);
        v->steps -= 2;
    }
}

static inline meg_events classes_copy(const meg_events *v)
{
    meg_events c = *v;
    c.before = NULL; /* a proof knows no seconds */
    c.before_room = 0;
    c.issued = NULL;
    c.issued_room = 0;
    c.note = malloc(((size_t)v->notes + 1) * sizeof *c.note);
    c.step = malloc(((size_t)v->steps + 1) * sizeof *c.step);
    c.after = malloc(((size_t)v->afters + 1) * sizeof *c.after);
    c.member = malloc(((size_t)v->members + 1) * sizeof *c.member);
    if (!c.note || !c.step || !c.after || !c.member) abort();
    if (v->notes) memcpy(c.note, v->note, (size_t)v->notes * sizeof *c.note);
    if (v->steps) memcpy(c.step, v->step, (size_t)v->steps * sizeof *c.step);
    if (v->afters) memcpy(c.after, v->after, (size_t)v->afters * sizeof *c.after);
    if (v->members) memcpy(c.member, v->member, (size_t)v->members * sizeof *c.member);
    return c;
}

/* ---- micro-batches that are alike ---- */

static inline bool classes_same_note(const meg_traffic_note *a, const meg_traffic_note *b)
{
    return a->code == b->code && a->peer == b->peer && a->tag == b->tag && a->value == b->value &&
           a->micro == b->micro && a->after == b->after && a->afters == b->afters &&
           a->how == b->how && a->party == b->party && a->format == b->format &&
           a->member == b->member && a->members == b->members && a->bytes == b->bytes &&
           a->team == b->team && a->what == b->what && a->crew == b->crew && a->like == b->like;
}

/* What is repeated is what is found when all micro-batches are walked through; to the bit, kernels' seconds too. */
static inline bool classes_repeat(const char *name, const meg_plan *p)
{
    bool good = true;
    for (int i = 0; i < MEG_ENTRIES && good; i++) {
        meg_events a, b;
        if (p->entry[i].batch == 0) continue;
        meg_events_of(p, i, &a);
        meg_events_walk(p, i, &b);
        good = a.notes == b.notes && a.steps == b.steps && a.afters == b.afters &&
               a.members == b.members;
        for (int k = 0; k < a.notes && good; k++)
            good = classes_same_note(&a.note[k], &b.note[k]);
        for (int k = 0; k < a.steps && good; k++)
            good = a.step[k] == b.step[k];
        for (int k = 0; k < a.afters && good; k++)
            good = a.after[k] == b.after[k];
        for (int k = 0; k <= a.steps && good; k++)
            good = a.before[k] == b.before[k] && a.issued[k] == b.issued[k];
        if (!good) printf("%s: entry %d, rank %d: not as it is walked\n", name, i, a.rank);
        meg_events_clear(&a);
        meg_events_clear(&b);
    }
    return good;
}

/* Both verdicts, with one class broken. */
static inline bool classes_judge(const char *name, const meg_plan *p, meg_proof *q,
                                 meg_events list[], classes_break *b)
{
    const meg_classes *c = q->classes;
    int broken = b ? (int)(b->draw / 1000 % (uint64_t)c->count) : -1;
    int micro = p->entry[MEG_ENTRY_TRAIN].micro;
    meg_error e[2] = {{0}, {0}};
    meg_events *all = calloc((size_t)c->ranks, sizeof *all);
    meg_packed good = {0};
    if (!all) abort();
    for (int r = 0; r < c->ranks; r++) {
        all[r] = classes_copy(&list[r]);
        if (c->of[r] == broken) classes_spoil(&all[r], *b, micro);
    }
    meg_packed *own = b ? &q->witness[MEG_ENTRY_TRAIN][broken].list : NULL;
    if (b) {
        meg_events bad;
        good = *own;
        meg_packed_open(&good, &bad);
        classes_spoil(&bad, *b, micro);
        meg_packed_make(&bad, own);
        meg_events_clear(&bad);
    }
    bool full = meg_job_check(&e[0], p->entry[MEG_ENTRY_TRAIN].graph, c->ranks, all) == MEG_OK;
    bool by_class = meg_proof_check(q, &e[1], p) == MEG_OK;
    if (full != by_class || (!b && !full))
        printf("%s: broken by %d %llu: all ranks: %s; classes: %s\n", name, b ? b->which : -1,
               b ? (unsigned long long)b->draw : 0, full ? "sound" : e[0].message,
               by_class ? "sound" : e[1].message);
    if (b) {
        b->found = !full;
        meg_packed_clear(own);
        *own = good;
    }
    for (int r = 0; r < c->ranks; r++)
        meg_events_clear(&all[r]);
    free(all);
    return full == by_class && (b || full);
}

/* ---- digests ---- */

/* Of the rank that the plan is turned to; `train`: its list of that entry. */
static inline meg_digest classes_digest(const meg_plan *p, const meg_events *train)
{
    meg_events list[MEG_ENTRIES] = {0};
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch && i != MEG_ENTRY_TRAIN) meg_events_of(p, i, &list[i]);
    list[MEG_ENTRY_TRAIN] = *train;
    meg_digest d = meg_digest_of(p, list);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (i != MEG_ENTRY_TRAIN) meg_events_clear(&list[i]);
    return d;
}

/* What one rank alone has wrong, and the order does not show: other elements, or another rank. */
static inline void classes_spoil_one(meg_events *v, bool elements, uint64_t draw, int ranks)
{
    if (v->notes == 0) return;
    meg_traffic_note *n = &v->note[draw % (uint64_t)v->notes];
    if (elements) n->what ^= 1;
    else if (n->code == MEG_REDUCE) n->team ^= 2;
    else n->peer = (n->peer + 1 + (n->peer + 1 == v->rank)) % ranks;
}

/* Digests of sound lists agree; if the full proof refuses one rank's list, they show it. */
static inline bool classes_seal(const char *name, meg_plan *p, const meg_classes *c,
                                meg_events list[], const meg_digest d[])
{
    uint64_t sum = 0;
    bool good = true;
    meg_error e;
    for (int r = 0; r < c->ranks; r++) {
        good = good && d[r].order == d[c->last[c->of[r]]].order;
        sum += d[r].balance;
    }
    if (!good || sum) printf("%s: %s\n", name, sum ? "messages do not add up" : "orders differ");
    for (int i = 0; i < 2 && good; i++) {
        uint64_t draw = meg_hash_word(meg_hash(name), (uint64_t)i) >> 20;
        int rank = (int)(draw / 1000 % (uint64_t)c->ranks);
        meg_events sound = list[rank];
        list[rank] = classes_copy(&sound);
        classes_spoil_one(&list[rank], i == 0, draw, c->ranks);
        if (meg_plan_turn(p, &e, rank) != MEG_OK) abort();
        bool shown = classes_digest(p, &list[rank]).balance != d[rank].balance;
        const meg_graph *g = p->entry[MEG_ENTRY_TRAIN].graph;
        good = meg_job_check(&e, g, c->ranks, list) == MEG_OK || shown;
        if (!good) printf("%s: digests do not show: %s\n", name, e.message);
        meg_events_clear(&list[rank]);
        list[rank] = sound;
    }
    return good && sum == 0;
}

/* *broken, *found: how many were, how many of these the proofs have refused. */
static inline bool classes_prove(const char *name, meg_plan *p, int64_t *broken, int64_t *found)
{
    meg_error e;
    bool good = true;
    meg_classes *c = meg_classes_new(p);
    meg_proof *q = meg_proof_new(c);
    meg_events *list = calloc((size_t)c->ranks, sizeof *list);
    meg_digest *digest = calloc((size_t)c->ranks, sizeof *digest);
    if (!list || !digest) abort();
    for (int r = 0; r < c->ranks && good; r++) {
        good = meg_plan_turn(p, &e, r) == MEG_OK;
        if (good && r == c->last[c->of[r]]) meg_proof_add(q, p);
        good = good && classes_repeat(name, p);
        if (good) meg_events_of(p, MEG_ENTRY_TRAIN, &list[r]);
        if (good) digest[r] = classes_digest(p, &list[r]);
    }
    good = good && classes_judge(name, p, q, list, NULL);
    for (int i = 0; i < 2 * CLASSES_BREAKS && good; i++) {
        classes_break b = {i % CLASSES_BREAKS, meg_hash_word(meg_hash(name), (uint64_t)i) >> 16,
                           false};
        good = classes_judge(name, p, q, list, &b);
        *broken += 1;
        *found += b.found;
    }
    good = good && classes_seal(name, p, c, list, digest);
    for (int r = 0; r < c->ranks; r++)
        meg_events_clear(&list[r]);
    free(list);
    free(digest);
    meg_proof_free(q);
    meg_classes_free(c);
    return good;
}

#endif
