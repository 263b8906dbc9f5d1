/* The check that no two ranks of a timetable wait for one another: see meg_timetable_check.
 *
 * Each rank has a cursor in its list, taken twice (two steps follow without barrier). A task may
 * run
 *     when the tasks that make its input have run, and
 *     when no more than `staging` sends of its rank still wait; a send to task k of another rank
 *     ends when that rank is ready for its task k - ahead (its own sends do not hold it up), for
 *     then it posts the receive.
 * Nothing here depends on time. If no cursor can move, the waits are followed from rank to rank
 * until one comes up twice: that is the cycle.
 *
 *     1f1b on two ranks with blocking sends:  rank 0   F0>F1>...      F1's send waits for rank 1,
 *                                             rank 1   F0 B0>...      B0's send waits for rank 0
 */
#ifndef MEG_TESTS_RENDEZVOUS_H
#define MEG_TESTS_RENDEZVOUS_H

#include "replay.h"

typedef struct meg_rendezvous { /* how ranks communicate */
    int ahead;   /* receives are posted when the rank is so many tasks before their consumer */
    int staging; /* sends of a rank that may wait for their receiver while it goes on; < 0: any
                    number; 0: blocking */
    const meg_skip *skip; /* (skips) */
    int skips;
} meg_rendezvous;

typedef struct letter { /* a send that waits */
    int task;           /* place in the sender's list */
    int rank, ready;    /* it ends when this rank has come so far */
} letter;

typedef struct walk {
    const meg_timetable *t;
    meg_rendezvous how;
    meg_links out, in;
    int *place;       /* (steps, stages, micro) where the task stands in its rank's list */
    int *cursor;      /* (ranks) tasks run: 0 .. 2 * length */
    int *ready;       /* (ranks) the same, but behind while sends wait: what receives go by */
    letter *wait;     /* (ranks, room) */
    int *waits, room; /* (ranks) */
    int *todo, *queued, count;
} walk;

typedef struct reason { /* why a rank does not go on */
    int peer;           /* the rank it waits for; < 0: it does not wait */
    char text[224];
} reason;

static int length_of(const walk *x, int r)
{
    return x->t->first[r + 1] - x->t->first[r];
}

static const meg_task *task_at(const walk *x, int r, int cursor)
{
    return &x->t->task[x->t->first[r] + cursor % length_of(x, r)];
}

static int *place_of(const walk *x, int step, int s, int m)
{
    return &x->place[((size_t)step * (size_t)x->t->stages + (size_t)s) * (size_t)x->t->micro +
                     (size_t)m];
}

static void say(char *text, size_t size, const meg_task *k)
{
    static const char *const names[] = {"F", "B", "BI", "BW"};
    snprintf(text, size, "%s of stage %d, micro-batch %d", names[k->kind], k->stage, k->micro);
}

/* ---- every task once, on its rank, in an order that can be ---- */

static meg_status check_task(meg_error *e, const walk *x, int r, int i)
{
    const meg_timetable *t = x->t;
    const meg_task *k = &t->task[t->first[r] + i];
    char what[64];
    say(what, sizeof what, k);
    MEG_CHECK(e, k->stage >= 0 && k->stage < t->stages && k->micro >= 0 && k->micro < t->micro,
              MEG_EARG, "timetable %s: rank %d, task %d: there is no %s", t->schedule, r, i, what);
    MEG_CHECK(e, (k->kind == MEG_TASK_B) != t->split || k->kind == MEG_TASK_F, MEG_EARG,
              "timetable %s: rank %d has %s, but backward is%s parted here", t->schedule, r, what,
              t->split ? "" : " not");
    int seat = meg_timetable_seat(t, t->direction[k->micro], k->stage);
    int step = meg_task_step(k->kind), *place = place_of(x, step, k->stage, k->micro);
    MEG_CHECK(e, seat == r && k->direction == t->direction[k->micro], MEG_EARG,
              "timetable %s: rank %d has %s, which belongs to rank %d", t->schedule, r, what, seat);
    MEG_CHECK(e, *place < 0, MEG_EARG, "timetable %s: rank %d has %s twice", t->schedule, r, what);
    MEG_CHECK(e, step == 0 || *place_of(x, step - 1, k->stage, k->micro) >= 0, MEG_EARG,
              "timetable %s: rank %d has %s before what it is made from", t->schedule, r, what);
    *place = i;
    return MEG_OK;
}

static meg_status check_lists(meg_error *e, const walk *x)
{
    const meg_timetable *t = x->t;
    for (int i = 0; i < t->directions * t->stages; i++)
        MEG_CHECK(e, t->width[i] == 1, MEG_EUNSUPPORTED,
                  "timetable %s: stage %d has %d ranks: such are proven as programs "
                  "(plan/events/events.h)",
                  t->schedule, i % t->stages, t->width[i]);
    size_t all = (size_t)(t->split ? 3 : 2) * (size_t)t->stages * (size_t)t->micro;
    for (size_t i = 0; i < all; i++)
        x->place[i] = -1;
    for (int r = 0; r < t->ranks; r++)
        for (int i = 0; i < length_of(x, r); i++)
            MEG_TRY(e, check_task(e, x, r, i));
    for (size_t i = 0; i < all; i++) {
        int m = (int)(i % (size_t)t->micro), s = (int)(i / (size_t)t->micro) % t->stages;
        MEG_CHECK(e, x->place[i] >= 0, MEG_EARG,
                  "timetable %s: rank %d lacks the %s of stage %d, micro-batch %d", t->schedule,
                  meg_timetable_seat(t, t->direction[m], s),
                  i < all / (t->split ? 3 : 2) ? "forward" : "backward", s, m);
    }
    return MEG_OK;
}

/* ---- walking ---- */

/* The links of a task's inputs (or of what it sends); NULL: a weight gradient has none. */
static const meg_links *links_of(const walk *x, const meg_task *k, bool inputs)
{
    int step = meg_task_step(k->kind);
    if (step == 2) return NULL;
    return (step == 0) == inputs ? &x->in : &x->out;
}

/* Cursor at which the task (step, s, m) stands in the same step as `cursor` of rank r. */
static int cursor_of(const walk *x, const meg_task *k, int stage, int r, int cursor, int *peer)
{
    *peer = meg_timetable_seat(x->t, k->direction, stage);
    int at = *place_of(x, meg_task_step(k->kind), stage, k->micro);
    return at + cursor / length_of(x, r) * length_of(x, *peer);
}

static bool taken(const walk *x, const letter *l)
{
    return x->ready[l->rank] >= l->ready;
}

static reason waits_to_send(const walk *x, int r, const meg_task *next)
{
    const letter *l = x->wait + (size_t)r * (size_t)x->room;
    reason why = {.peer = l->rank};
    char what[64], sent[64];
    say(what, sizeof what, next);
    say(sent, sizeof sent, task_at(x, r, l->task));
    snprintf(why.text, sizeof why.text, "rank %d, before %s, waits for rank %d to take its %s", r,
             what, l->rank, sent);
    return why;
}

static reason waits_for_input(int r, const meg_task *next, int stage, int peer)
{
    reason why = {.peer = peer};
    char what[64];
    say(what, sizeof what, next);
    snprintf(why.text, sizeof why.text, "rank %d, at %s, waits for stage %d of rank %d", r, what,
             stage, peer);
    return why;
}

static reason why_not(const walk *x, int r)
{
    const meg_task *k = task_at(x, r, x->cursor[r]);
    if (x->ready[r] < x->cursor[r]) return waits_to_send(x, r, k);
    if (x->cursor[r] == 2 * length_of(x, r)) return (reason){.peer = -1};
    const meg_links *l = links_of(x, k, true);
    for (int i = l ? l->first[k->stage] : 0; l && i < l->first[k->stage + 1]; i++) {
        int peer, at = cursor_of(x, k, l->stage[i], r, x->cursor[r], &peer);
        if (x->cursor[peer] <= at) return waits_for_input(r, k, l->stage[i], peer);
    }
    return (reason){.peer = -1};
}

static void wake(walk *x, int rank)
{
    if (x->queued[rank]) return;
    x->queued[rank] = 1;
    x->todo[x->count++] = rank;
}

/* All that the task at the cursor is linked with gets another look. */
static void wake_linked(walk *x, int r, int cursor, bool inputs)
{
    const meg_task *k = task_at(x, r, cursor);
    const meg_links *l = links_of(x, k, inputs);
    for (int i = l ? l->first[k->stage] : 0; l && i < l->first[k->stage + 1]; i++)
        wake(x, meg_timetable_seat(x->t, k->direction, l->stage[i]));
}

static void send_all(walk *x, int r, int cursor)
{
    const meg_task *k = task_at(x, r, cursor);
    const meg_links *l = links_of(x, k, false);
    for (int i = l ? l->first[k->stage] : 0; l && i < l->first[k->stage + 1]; i++) {
        int peer, at = cursor_of(x, k, l->stage[i], r, cursor, &peer);
        if (peer == r) continue;
        x->wait[(size_t)r * (size_t)x->room + (size_t)x->waits[r]++] = (letter){
            cursor % length_of(x, r), peer, at - x->how.ahead};
    }
}

/* Forgets sends that have been taken; when few enough are left, the rank posts its receives. */
static void settle(walk *x, int r)
{
    letter *mine = x->wait + (size_t)r * (size_t)x->room;
    int left = 0;
    for (int i = 0; i < x->waits[r]; i++)
        if (!taken(x, &mine[i])) mine[left++] = mine[i];
    x->waits[r] = left;
    if (x->ready[r] == x->cursor[r] || (x->how.staging >= 0 && left > x->how.staging)) return;
    x->ready[r] = x->cursor[r];
    for (int i = 0; i <= x->how.ahead && x->ready[r] + i < 2 * length_of(x, r); i++)
        wake_linked(x, r, x->ready[r] + i, true);
}

static void walk_rank(walk *x, int r)
{
    for (settle(x, r); x->cursor[r] < 2 * length_of(x, r); settle(x, r)) {
        if (why_not(x, r).peer >= 0) return;
        int done = x->cursor[r]++;
        if (x->how.staging >= 0) send_all(x, r, done);
        wake_linked(x, r, done, false);
    }
}

/* ---- the verdict ---- */

static meg_status report(meg_error *e, const walk *x, int r)
{
    char text[900] = "";
    size_t used = 0;
    for (int i = 0; i <= x->t->ranks; i++) { /* by now it is in the cycle, if there is one */
        int peer = why_not(x, r).peer;
        if (peer < 0) break;
        r = peer;
    }
    for (int begin = r, first = 1; first || r != begin; first = 0) {
        reason why = why_not(x, r);
        if (why.peer < 0) break;
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", first ? "" : "; ",
                                     why.text);
        r = why.peer;
    }
    return meg_fail(e, MEG_EARG, "timetable %s: ranks wait for one another: %s", x->t->schedule,
                    text);
}

static meg_status walk_through(meg_error *e, walk *x)
{
    for (int r = x->t->ranks - 1; r >= 0; r--)
        wake(x, r);
    while (x->count > 0) {
        int r = x->todo[--x->count];
        x->queued[r] = 0;
        walk_rank(x, r);
    }
    for (int r = 0; r < x->t->ranks; r++)
        if (x->ready[r] < 2 * length_of(x, r)) return report(e, x, r);
    return MEG_OK;
}

/* Runs two concatenated steps with messages of rendezvous: a send ends only when its receive is
 * posted. Fails where a task is missing, doubled or on the wrong rank, and where ranks wait for one
 * another; the message then names the cycle. `how` NULL: what the engine does, receives posted one
 * task ahead, any number of sends under way. */
static inline meg_status meg_timetable_check(meg_error *e, const meg_timetable *t,
                                             const meg_rendezvous *how)
{
    meg_pool *work = meg_pool_new();
    walk x = {.t = t, .how = how ? *how : (meg_rendezvous){.ahead = 1, .staging = -1}};
    size_t ranks = (size_t)t->ranks;
    meg_costs skips = {.skip = x.how.skip, .skips = x.how.skips};
    x.place = meg_pool_alloc(work, (size_t)MEG_STEPS * (size_t)t->stages * (size_t)t->micro *
                                       sizeof *x.place);
    x.cursor = meg_pool_alloc(work, ranks * sizeof *x.cursor);
    x.ready = meg_pool_alloc(work, ranks * sizeof *x.ready);
    x.todo = meg_pool_alloc(work, ranks * sizeof *x.todo);
    x.queued = meg_pool_alloc(work, ranks * sizeof *x.queued);
    x.waits = meg_pool_alloc(work, ranks * sizeof *x.waits);
    /* A task starts with at most `staging` sends waiting, and adds at most one per link. */
    x.room = (x.how.staging < 0 ? 0 : x.how.staging) + x.how.skips + 1;
    x.wait = meg_pool_alloc(work, ranks * (size_t)x.room * sizeof *x.wait);
    meg_status status = meg_links_new(e, work, t, &skips, &x.out, &x.in);
    if (status == MEG_OK) status = check_lists(e, &x);
    if (status == MEG_OK) status = walk_through(e, &x);
    meg_pool_free(work);
    return status;
}

#endif
