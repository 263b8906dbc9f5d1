/* The dynamic programme: see reruns.h. A state is (bytes kept, work done twice) of all blocks before one;
 * of the states in front of a block only those remain that no other beats in both.
 */
#include "plan/partition/reruns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a part: a kept block, or a rerun ---- */

typedef struct part {
    int64_t kept;  /* bytes that stay from forward to backward */
    int64_t inner; /* bytes that are made again, all there at once */
    int64_t working;
    double work;
} part;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The values of block i are value[first[i]] .. value[first[i + 1] - 1]. */
static int *list_first(const meg_chain *c)
{
    int *first = calloc((size_t)c->blocks + 1, sizeof *first), at = 0;
    if (!first) abort();
    for (int i = 0; i <= c->blocks; i++) {
        while (at < c->values && c->value[at].block < i)
            at++;
        first[i] = at;
    }
    return first;
}

static part kept_block(const meg_chain *c, const int first[], int i)
{
    part p = {.kept = c->block[i].fixed, .working = c->block[i].backward};
    p.working = larger(p.working, c->block[i].forward);
    for (int k = first[i]; k < first[i + 1]; k++)
        if (c->value[k].held) p.kept += c->value[k].bytes;
    return p;
}

/* Block i joins the rerun of those behind it, the last of which is `end`. */
static void join(const meg_chain *c, const int first[], int i, int end, part *p)
{
    int64_t again = c->block[i].forward + c->block[end].entry;
    p->kept += c->block[i].fixed;
    p->working = larger(p->working, larger(c->block[i].backward, again));
    for (int k = first[i]; k < first[i + 1]; k++) {
        const meg_chain_value *v = &c->value[k];
        if (v->stays || v->last > end) {
            p->kept += v->bytes;
            continue;
        }
        if (v->held) p->inner += v->bytes;
        p->kept += v->halo;
        p->work += v->work;
    }
}

/* ---- the bytes of a cut ---- */

typedef struct tally { /* of parts in order */
    int64_t kept, peak, extra;
    double work;
} tally;

static void count(tally *t, const part *p)
{
    t->peak = larger(t->peak, t->kept + p->kept + p->inner + p->working);
    t->extra = larger(t->extra, p->inner + p->working);
    t->kept += p->kept;
    t->work += p->work;
}

static tally tally_of(const meg_chain *c, const int rerun[])
{
    tally t = {0};
    int *first = list_first(c);
    for (int i = 0, end; i < c->blocks; i = end) {
        end = i + 1;
        part p = {0};
        while (rerun[i] >= 0 && end < c->blocks && rerun[end] == rerun[i])
            end++;
        if (rerun[i] < 0) p = kept_block(c, first, i);
        for (int k = end - 1; rerun[i] >= 0 && k >= i; k--)
            join(c, first, k, end - 1, &p);
        count(&t, &p);
    }
    free(first);
    return t;
}

int64_t meg_chain_bytes(const meg_chain *c, const int rerun[])
{
    tally t = tally_of(c, rerun);
    return c->apart ? c->frames * t.kept + t.extra : t.peak;
}

double meg_chain_work(const meg_chain *c, const int rerun[])
{
    return tally_of(c, rerun).work;
}

/* ---- states ---- */

typedef struct state {
    int64_t kept;
    double work;
    int from, before; /* the block in front of which its last part begins; its state there */
    bool again;       /* the last part is a rerun */
} state;

typedef struct states { /* by bytes, ascending; work descends: none beats another in both */
    int count;
    state *at;
    size_t room;
} states;

typedef struct search {
    const meg_chain *c;
    const int *first;
    int64_t peak, extra, kept; /* limits; of a measure that does not ask: very large */
    int most;                  /* states of a block */
    states *before;            /* (blocks + 1) of each block */
    states other;              /* used while two lists are merged */
} search;

static bool within(const search *x, int64_t before, const part *p)
{
    return before <= x->peak - p->kept - p->inner - p->working && before <= x->kept - p->kept &&
           p->inner + p->working <= x->extra;
}

static void add(states *list, state s)
{
    if (list->count && s.work >= list->at[list->count - 1].work) return;
    if (list->count && s.kept == list->at[list->count - 1].kept) list->count--;
    list->at = meg_grow(list->at, &list->room, (size_t)list->count + 1, sizeof *list->at);
    list->at[list->count++] = s;
}

/* Of too many states some, at even steps; the one with the least bytes and the one with the least work
 * are among them. */
static void thin(states *list, int most)
{
    if (list->count <= most) return;
    for (int64_t i = 0; i < most; i++)
        list->at[i] = list->at[most > 1 ? i * (list->count - 1) / (most - 1) : 0];
    list->count = most;
}

/* The states in front of block `from`, and then this part, join those of block `to`. */
static void extend(search *x, int from, int to, const part *p, bool again)
{
    const states *old = &x->before[to], *begin = &x->before[from];
    int i = 0, k = 0, many = 0;
    while (many < begin->count && within(x, begin->at[many].kept, p))
        many++;
    x->other.count = 0;
    while (i < old->count || k < many) {
        state s = {0};
        if (k < many)
            s = (state){begin->at[k].kept + p->kept, begin->at[k].work + p->work, from, k, again};
        bool first = i < old->count && (k >= many || old->at[i].kept <= s.kept);
        if (first) add(&x->other, old->at[i++]);
        else add(&x->other, s), k++;
    }
    states merged = x->other;
    x->other = x->before[to];
    x->before[to] = merged;
    thin(&x->before[to], 4 * x->most);
}

/* Parts that end with block `end`. A rerun that is too large by itself stays so as it grows. */
static void parts_to(search *x, int end)
{
    part p = kept_block(x->c, x->first, end), s = {0};
    extend(x, end, end + 1, &p, false);
    for (int i = end; i >= 0; i--) {
        join(x->c, x->first, i, end, &s);
        if (!within(x, 0, &s)) break;
        extend(x, i, end + 1, &s, true);
    }
    thin(&x->before[end + 1], x->most);
}

/* The cut with the least work. */
static double read_back(const search *x, int rerun[])
{
    int blocks = x->c->blocks, best = x->before[blocks].count - 1, number = 0;
    if (best < 0) return INFINITY;
    double work = x->before[blocks].at[best].work;
    for (int at = blocks; at > 0;) {
        const state *s = &x->before[at].at[best];
        for (int i = s->from; i < at; i++)
            rerun[i] = s->again ? number : -1;
        number += s->again;
        at = s->from;
        best = s->before;
    }
    return work;
}

static double run(search *x, int rerun[])
{
    x->before = calloc((size_t)x->c->blocks + 1, sizeof *x->before);
    if (!x->before) abort();
    add(&x->before[0], (state){0});
    for (int end = 0; end < x->c->blocks; end++)
        parts_to(x, end);
    double work = read_back(x, rerun);
    for (int i = 0; i <= x->c->blocks; i++)
        free(x->before[i].at);
    free(x->before);
    return work;
}

/* ---- limits ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* What each part has beside the kept bytes, without doubles. */
static int64_t *list_extras(const meg_chain *c, const int first[], size_t *many)
{
    size_t count = 0, room = 0, good = 0;
    int64_t *all = NULL;
    for (int end = 0; end < c->blocks; end++) {
        part p = kept_block(c, first, end), s = {0};
        for (int i = end; i >= -1; i--) {
            all = meg_grow(all, &room, count + 1, sizeof *all);
            all[count++] = p.inner + p.working;
            if (i < 0) break;
            join(c, first, i, end, &s);
            p = s;
        }
    }
    if (count) qsort(all, count, sizeof *all, ascending);
    for (size_t i = 0; i < count; i++)
        if (!good || all[i] != all[good - 1]) all[good++] = all[i];
    *many = good;
    return all;
}

/* Working memory beside the frames: the largest is bounded by each amount that there is, or by some. */
static double cut_apart(search *x, int64_t limit, int rerun[])
{
    size_t extras, blocks = (size_t)x->c->blocks;
    int64_t *extra = list_extras(x->c, x->first, &extras);
    size_t bounds = extras <= MEG_RERUN_EXTRAS ? extras : MEG_RERUN_BOUNDS;
    int *trial = calloc(blocks + 1, sizeof *trial);
    double best = INFINITY;
    if (!trial) abort();
    for (size_t i = 0; i < bounds; i++) {
        x->extra = extra[bounds < extras ? i * (extras - 1) / (bounds - 1) : i];
        x->kept = (limit - x->extra) / x->c->frames;
        double work = x->extra <= limit ? run(x, trial) : INFINITY;
        if (work >= best) continue;
        best = work;
        memcpy(rerun, trial, blocks * sizeof *rerun);
    }
    free(trial);
    free(extra);
    return best;
}

/* `most` 1: only whether there is a cut, since who keeps less can do all that others can. */
static double cut_with(const meg_chain *c, int64_t limit, int most, int rerun[])
{
    const int64_t none = INT64_MAX / 2;
    int *first = list_first(c);
    search x = {c, first, .peak = none, .extra = none, .kept = none, .most = most};
    if (!c->apart) x.peak = limit;
    double work = c->apart ? cut_apart(&x, limit, rerun) : run(&x, rerun);
    free(first);
    free(x.other.at);
    return work;
}

double meg_chain_cut(const meg_chain *c, int64_t limit, int rerun[])
{
    return cut_with(c, limit, MEG_RERUN_STATES, rerun);
}

int64_t meg_chain_least(const meg_chain *c)
{
    int *rerun = calloc((size_t)c->blocks + 1, sizeof *rerun);
    if (!rerun) abort();
    for (int i = 0; i < c->blocks; i++)
        rerun[i] = -1;
    int64_t low = 0, high = meg_chain_bytes(c, rerun);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (isinf(cut_with(c, middle, 1, rerun))) low = middle + 1;
        else high = middle;
    }
    free(rerun);
    return low;
}
