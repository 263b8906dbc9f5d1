/* A rehearsal of many ranks: see rehearsal.h. Nothing is asked twice: what is done wakes those that stand
 * behind it. */
#include "plan/events/rehearsal.h"

#include <stdlib.h>

enum {
    UNKNOWN,
    POSTED,
    BEGUN,
    DONE
};

typedef struct behind { /* of one list of events: which notes stand behind each */
    int *first, *note;
} behind;

typedef struct runner {
    const meg_rehearsal *r;
    meg_pool *pool;
    behind **behind; /* (lists) */
    char *state;     /* (notes) */
    int *front;      /* (notes) how many in front of a posted one are not done */
    int *come;       /* (meetings) how many have begun it */
    int *member;     /* (meetings) its last note, + 1; 0: none */
    int *before;     /* (notes) the member before this one, + 1 */
    int *at;         /* (lists) */
    int *ready;      /* lists that may go on */
    int readies;
    int *ended; /* notes that are done, whose followers do not know yet */
    int endeds;
} runner;

static int list_of(const meg_rehearsal *r, int note)
{
    int lo = 0, hi = r->lists;
    while (hi - lo > 1) {
        int middle = lo + (hi - lo) / 2;
        if (r->first[middle] <= note) lo = middle;
        else hi = middle;
    }
    return lo;
}

static behind *find_behind(meg_pool *pool, const meg_packed *v)
{
    behind *b = meg_pool_alloc(pool, sizeof *b);
    int afters = v->first[v->notes];
    b->first = meg_pool_alloc(pool, ((size_t)v->notes + 2) * sizeof(int));
    b->note = meg_pool_alloc(pool, ((size_t)afters + 1) * sizeof(int));
    for (int i = 0; i < afters; i++)
        b->first[v->after[i] + 2]++;
    for (int i = 2; i < v->notes + 2; i++)
        b->first[i] += b->first[i - 1];
    for (int i = 0; i < v->notes; i++)
        for (int k = v->first[i]; k < v->first[i + 1]; k++)
            b->note[b->first[v->after[k] + 1]++] = i;
    return b;
}

static void end(runner *u, int note)
{
    u->state[note] = DONE;
    u->ended[u->endeds++] = note;
}

static void begin(runner *u, int list, int note)
{
    int partner = u->r->partner[note];
    u->state[note] = BEGUN;
    if (meg_packed_code(u->r->list[list], note - u->r->first[list]) != MEG_REDUCE) {
        if (u->state[partner] < BEGUN) return;
        end(u, note);
        end(u, partner);
        return;
    }
    u->before[note] = u->member[partner];
    u->member[partner] = note + 1;
    if (++u->come[partner] < u->r->expected[partner]) return;
    for (int i = u->member[partner]; i; i = u->before[i - 1])
        end(u, i - 1);
}

static void post(runner *u, int list, int number)
{
    const meg_packed *v = u->r->list[list];
    int first = u->r->first[list], note = first + number;
    u->state[note] = POSTED;
    for (int i = v->first[number]; i < v->first[number + 1]; i++)
        u->front[note] += u->state[first + v->after[i]] != DONE;
    if (u->front[note] == 0) begin(u, list, note);
}

static bool waits_for(const runner *u, int list, int note)
{
    const meg_packed *v = u->r->list[list];
    return u->at[list] < v->steps && v->step[u->at[list]] == -1 - (note - u->r->first[list]);
}

/* Tells those behind it, and its rank. */
static void tell(runner *u, int note)
{
    int list = list_of(u->r, note), first = u->r->first[list];
    const behind *b = u->behind[list];
    for (int i = b->first[note - first]; i < b->first[note - first + 1]; i++) {
        int next = first + b->note[i];
        if (u->state[next] == POSTED && --u->front[next] == 0) begin(u, list, next);
    }
    if (waits_for(u, list, note)) u->ready[u->readies++] = list;
}

/* As far as the list can go. */
static void advance(runner *u, int list)
{
    const meg_packed *v = u->r->list[list];
    for (; u->at[list] < v->steps; u->at[list]++) {
        int step = v->step[u->at[list]];
        if (step < 0 && u->state[u->r->first[list] - 1 - step] != DONE) return;
        if (step >= 0) post(u, list, step);
    }
}

static void run(runner *u)
{
    for (int i = u->r->lists - 1; i >= 0; i--)
        u->ready[u->readies++] = i;
    while (u->readies || u->endeds)
        if (u->endeds) tell(u, u->ended[--u->endeds]);
        else advance(u, u->ready[--u->readies]);
}

/* One for all lists that are the same. */
static behind *behind_of(const runner *u, int list)
{
    for (int i = list - 1; i >= 0; i--)
        if (u->r->list[i] == u->r->list[list]) return u->behind[i];
    return find_behind(u->pool, u->r->list[list]);
}

static runner runner_new(const meg_rehearsal *r)
{
    runner u = {.r = r, .pool = meg_pool_new()};
    size_t notes = (size_t)r->first[r->lists] + 1, lists = (size_t)r->lists + 1;
    size_t meetings = (size_t)r->meetings + 1;
    u.behind = meg_pool_alloc(u.pool, lists * sizeof *u.behind);
    for (int i = 0; i < r->lists; i++)
        u.behind[i] = behind_of(&u, i);
    u.state = meg_pool_alloc(u.pool, notes);
    u.front = meg_pool_alloc(u.pool, notes * sizeof(int));
    u.before = meg_pool_alloc(u.pool, notes * sizeof(int));
    u.ended = meg_pool_alloc(u.pool, notes * sizeof(int));
    u.come = meg_pool_alloc(u.pool, meetings * sizeof(int));
    u.member = meg_pool_alloc(u.pool, meetings * sizeof(int));
    u.at = meg_pool_alloc(u.pool, lists * sizeof(int));
    u.ready = meg_pool_alloc(u.pool, 2 * lists * sizeof(int));
    return u;
}

int meg_rehearsal_stuck(const meg_rehearsal *r, int *at)
{
    runner u = runner_new(r);
    int stuck = -1;
    run(&u);
    for (int i = 0; i < r->lists && stuck < 0; i++)
        if (u.at[i] < r->list[i]->steps) stuck = i, *at = u.at[i];
    meg_pool_free(u.pool);
    return stuck;
}
