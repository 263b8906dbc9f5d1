/* Digests: see digest.h. */
#include "plan/digest.h"
#include "base/random.h"

#include <stdlib.h>

/* ---- order ---- */

static uint64_t hash_all(const int64_t word[], int count, uint64_t h)
{
    for (int i = 0; i < count; i++)
        h = meg_hash_word(h, (uint64_t)word[i]);
    return h;
}

/* What ranks of a class have in common. A reduction's peer is how many take part. */
static uint64_t hash_note(const meg_events *v, const meg_traffic_note *n, uint64_t h)
{
    bool sum = n->code == MEG_REDUCE;
    const int64_t word[] = {n->code,   n->tag,     n->value,  n->micro,
                            n->afters, n->how,     n->party,  n->bytes,
                            n->crew,   n->members, n->format, sum ? n->peer : -1};
    h = hash_all(word, (int)(sizeof word / sizeof *word), meg_hash_word(h, n->like));
    for (int i = 0; i < n->afters; i++)
        h = meg_hash_word(h, (uint64_t)v->after[n->after + i]);
    return h;
}

/* How its ranks are found: the proof finds them again. */
static uint64_t hash_team(const meg_team *t, uint64_t h)
{
    const int64_t word[] = {t->count, t->segment, t->axes, t->way, t->value};
    return hash_all(word, (int)(sizeof word / sizeof *word), h);
}

uint64_t meg_digest_order(const meg_events *v, int teams, const meg_team team[])
{
    const int64_t size[] = {v->notes, v->steps, v->afters, teams};
    uint64_t h = hash_all(size, (int)(sizeof size / sizeof *size), meg_hash("list"));
    for (int i = 0; i < v->notes; i++)
        h = hash_note(v, &v->note[i], h);
    for (int i = 0; i < v->steps; i++)
        h = meg_hash_word(h, (uint64_t)v->step[i]);
    for (int i = 0; i < teams; i++)
        h = hash_team(&team[i], h);
    return meg_hash_mix(h);
}

/* ---- balance ---- */

static int by_ends(const void *a, const void *b)
{
    const meg_traffic_note *x = *(const meg_traffic_note *const *)a;
    const meg_traffic_note *y = *(const meg_traffic_note *const *)b;
    if (x->code != y->code) return x->code < y->code ? -1 : 1;
    if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
    if (x->team != y->team) return x->team < y->team ? -1 : 1;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    return x < y ? -1 : x > y; /* in the order in which they are posted */
}

static bool same_ends(const meg_traffic_note *x, const meg_traffic_note *y)
{
    bool sum = x->code == MEG_REDUCE;
    return x->code == y->code && x->tag == y->tag &&
           (sum ? x->team == y->team : x->peer == y->peer);
}

/* All that job.c compares of a message or reduction, and by which it finds its other side. */
static uint64_t number_of(int rank, const meg_traffic_note *n, int entry, int nth)
{
    bool sum = n->code == MEG_REDUCE, send = n->code == MEG_SEND;
    const int64_t word[] = {entry,
                            sum,
                            send ? rank : n->peer,
                            send  ? n->peer
                            : sum ? 0
                                  : rank,
                            n->tag,
                            nth,
                            n->bytes,
                            sum ? n->how : 0,
                            sum ? n->micro : 0};
    uint64_t h = hash_all(word, (int)(sizeof word / sizeof *word), meg_hash("traffic"));
    h = meg_hash_word(meg_hash_word(h, sum ? n->team : 0), n->what);
    return meg_hash_mix(h); /* numbers are added up: each must look like any other */
}

/* How often this rank adds it. */
static uint64_t share_of(const meg_entry *e, int rank, const meg_traffic_note *n)
{
    if (n->code != MEG_REDUCE) return n->code == MEG_SEND ? 1 : (uint64_t)-1;
    const meg_team *t = &e->team[n->party];
    return 1 - (t->count > 0 && t->rank[0] == rank ? (uint64_t)n->peer : 0);
}

static uint64_t balance_of(const meg_entry *e, const meg_events *v, int entry)
{
    const meg_traffic_note **all = calloc((size_t)v->notes + 1, sizeof *all);
    uint64_t sum = 0;
    int nth = 0;
    if (!all) abort();
    for (int i = 0; i < v->notes; i++)
        all[i] = &v->note[i];
    qsort(all, (size_t)v->notes, sizeof *all, by_ends);
    for (int i = 0; i < v->notes; i++) {
        nth = i > 0 && same_ends(all[i - 1], all[i]) ? nth + 1 : 0;
        sum += share_of(e, v->rank, all[i]) * number_of(v->rank, all[i], entry, nth);
    }
    free(all);
    return sum;
}

meg_digest meg_digest_of(const meg_plan *p, const meg_events list[MEG_ENTRIES])
{
    meg_digest d = {.order = meg_hash("order")};
    for (int i = 0; i < MEG_ENTRIES; i++) {
        if (p->entry[i].batch == 0) continue;
        uint64_t own = meg_digest_order(&list[i], p->entry[i].teams, p->entry[i].team);
        d.order = meg_hash_word(meg_hash_word(d.order, (uint64_t)i), own);
        d.balance += balance_of(&p->entry[i], &list[i], i);
    }
    d.order = meg_hash_mix(d.order);
    return d;
}
