/* Traffic: see traffic.h. */
#include "exec/traffic.h"
#include "base/clock.h"
#include "base/pool.h"
#include "plan/events/events.h"

#include <stdlib.h>
#include <string.h>

static const double NAP = 1e-3;       /* seconds: a wake may come between a look and the sleep */
static const double PATIENCE = 300.0; /* seconds: what the watchdog allows, unless told */

typedef struct under_way {
    meg_traffic_item item;
    bool started;    /* it has the memory; what comes later waits */
    bool sent, done; /* posted to other ranks; nothing of it is under way between ranks any more */
    uint64_t fetch, store; /* of the device: numbers to be reached */
    meg_letter *letter;
    meg_reduction *reduction;
    double posted, begin; /* where somebody observes */
} under_way;

struct meg_traffic_list {
    meg_comm *comm;
    meg_device *device;
    meg_arena *arena;
    int count;
    under_way *at; /* in the order they were added */
    size_t room;
    double exposed; /* seconds */
    meg_traffic_observer *observer;
    void *context;
    double waits;           /* since when, where somebody observes; 0: does not */
    double patience, still; /* seconds: of the watchdog; since when nothing has moved, 0: it has */
};

meg_traffic_list *meg_traffic_new(meg_comm *comm, meg_device *device, meg_arena *arena)
{
    meg_traffic_list *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->comm = comm;
    t->device = device;
    t->arena = arena;
    t->patience = PATIENCE;
    return t;
}

void meg_traffic_free(meg_traffic_list *t)
{
    if (!t) return;
    for (int i = 0; i < t->count; i++) {
        meg_comm_drop(t->comm, &t->at[i].letter);
        if (t->at[i].reduction) meg_reduction_drop(t->at[i].reduction);
        free(t->at[i].reduction);
    }
    free(t->at);
    free(t);
}

void meg_traffic_add(meg_traffic_list *t, const meg_traffic_item *item)
{
    t->at = meg_grow(t->at, &t->room, (size_t)t->count + 1, sizeof *t->at);
    t->at[t->count++] = (under_way){.item = *item, .posted = t->observer ? meg_clock() : 0};
}

bool meg_traffic_idle(const meg_traffic_list *t)
{
    for (int i = 0; i < t->count; i++)
        if (!t->at[i].item.lasting) return false;
    return true;
}

bool meg_traffic_gives(const meg_traffic_list *t)
{
    for (int i = 0; i < t->count; i++)
        if (!t->at[i].item.lasting && t->at[i].item.code != MEG_RECV) return true;
    return false;
}

void meg_traffic_give_up(meg_traffic_list *t)
{
    int left = 0;
    for (int i = 0; i < t->count; i++) {
        if (t->at[i].item.lasting) t->at[left++] = t->at[i];
        else meg_comm_drop(t->comm, &t->at[i].letter);
    }
    t->count = left;
}

/* ---- observing ---- */

void meg_traffic_observe(meg_traffic_list *t, meg_traffic_observer *observer, void *context)
{
    t->observer = observer;
    t->context = context;
    t->waits = 0;
}

static void tell_done(const meg_traffic_list *t, const under_way *u)
{
    if (!t->observer || u->begin == 0 || u->posted == 0) return;
    t->observer(t->context, &(meg_traffic_event){&u->item, u->posted, u->begin, meg_clock()});
}

/* Sleeps are short: those in a row, between which nothing moves, are one wait. */
static void tell_wait(meg_traffic_list *t)
{
    if (t->observer && t->waits > 0)
        t->observer(t->context, &(meg_traffic_event){NULL, t->waits, t->waits, meg_clock()});
    t->waits = 0;
}

/* ---- memory ---- */

static bool meet(const meg_traffic_item *a, int64_t at, int64_t bytes)
{
    return !a->host && a->at < at + bytes && at < a->at + a->bytes;
}

static bool meet_both(const meg_traffic_item *a, const meg_traffic_item *b)
{
    if (a->host || b->host) return a->host == b->host;
    return meet(a, b->at, b->bytes);
}

bool meg_traffic_holds(const meg_traffic_list *t, int64_t at, int64_t bytes, bool writes)
{
    for (int i = 0; i < t->count; i++) {
        const meg_traffic_item *a = &t->at[i].item;
        if ((writes || a->code != MEG_SEND) && meet(a, at, bytes)) return true;
    }
    return false;
}

bool meg_traffic_has(const meg_traffic_list *t, const void *host)
{
    for (int i = 0; i < t->count; i++)
        if (t->at[i].item.host == host) return true;
    return false;
}

static bool share_scratch(const meg_reduction_spec *a, const meg_reduction_spec *b)
{
    return a->scratch && a->scratch == b->scratch;
}

/* Earlier traffic with the same memory goes first, a reduction with the same working memory, and the
 * same reduction of earlier micro-batches, whose messages have the same tag. */
static bool blocked(const meg_traffic_list *t, int i)
{
    const meg_traffic_item *a = &t->at[i].item;
    for (int k = 0; k < i; k++) {
        const meg_traffic_item *b = &t->at[k].item;
        bool reads = a->code == MEG_SEND && b->code == MEG_SEND;
        bool sums = a->code == MEG_REDUCE && b->code == MEG_REDUCE &&
                    (a->tag == b->tag || share_scratch(a->reduce, b->reduce));
        if (sums || (!reads && meet_both(a, b))) return true;
    }
    return false;
}

/* ---- within the rank: a copy on the device's queue, when both ends are there ---- */

static bool to_self(const meg_traffic_list *t, const meg_traffic_item *a)
{
    return a->code != MEG_REDUCE && a->peer == meg_comm_rank(t->comm);
}

static void drop(meg_traffic_list *t, int i)
{
    free(t->at[i].reduction);
    t->count--;
    memmove(&t->at[i], &t->at[i + 1], (size_t)(t->count - i) * sizeof *t->at);
}

/* The other end of item i, which stays within the rank; -1: it is not there yet. */
static int other_end(const meg_traffic_list *t, int i)
{
    const meg_traffic_item *a = &t->at[i].item;
    for (int k = 0; k < t->count; k++) {
        const meg_traffic_item *b = &t->at[k].item;
        if (to_self(t, b) && b->code != a->code && b->tag == a->tag) return k;
    }
    return -1;
}

/* What waits for the memory of a copy waits until the device has made it. */
static void put_behind(meg_traffic_list *t, const meg_traffic_item ends[2], uint64_t item)
{
    for (int i = 0; i < t->count; i++) {
        under_way *u = &t->at[i];
        bool touches = meet_both(&u->item, &ends[0]) || meet_both(&u->item, &ends[1]);
        if (!u->started && touches && u->item.after < item) u->item.after = item;
    }
}

/* Either end may be there first: receives are posted ahead. The queue is in order, so once the copy
 * is on it, both ends are free. Other ranks' messages from or to this memory go first. */
static bool pair_up(meg_traffic_list *t, int i)
{
    int k = other_end(t, i);
    if (k < 0 || blocked(t, i) || blocked(t, k)) return false;
    bool receives = t->at[i].item.code == MEG_RECV;
    const meg_traffic_item ends[] = {t->at[receives ? i : k].item, t->at[receives ? k : i].item};
    meg_arena_copy(t->arena, ends[0].at, ends[1].at, ends[0].bytes);
    drop(t, i > k ? i : k);
    drop(t, i > k ? k : i);
    put_behind(t, ends, meg_device_look(t->device).put);
    return true;
}

/* ---- between ranks ---- */

static void *data_of(const meg_traffic_list *t, const meg_traffic_item *a)
{
    return a->host ? a->host : meg_arena_staging(t->arena, a->at);
}

static meg_status post(meg_traffic_list *t, meg_error *e, under_way *u)
{
    const meg_traffic_item *a = &u->item;
    u->sent = true;
    if (a->code == MEG_SEND)
        return meg_comm_send(t->comm, e, a->peer, a->tag, data_of(t, a), a->bytes, &u->letter);
    if (a->code == MEG_RECV)
        return meg_comm_recv(t->comm, e, a->peer, a->tag, data_of(t, a), a->bytes, &u->letter);
    u->reduction = calloc(1, sizeof *u->reduction);
    if (!u->reduction) abort();
    return meg_reduction_start(u->reduction, t->comm, e, a->reduce);
}

/* It is this item's turn, and it has the memory. */
static void start(meg_traffic_list *t, under_way *u)
{
    const meg_traffic_item *a = &u->item;
    u->started = true;
    if (t->observer) u->begin = meg_clock();
    if (a->code != MEG_RECV && !a->host) u->fetch = meg_arena_fetch(t->arena, a->at, a->bytes);
}

/* Between ranks. */
static meg_status test(meg_traffic_list *t, meg_error *e, under_way *u)
{
    const meg_traffic_item *a = &u->item;
    if (u->reduction) MEG_TRY(e, meg_reduction_advance(u->reduction, e, &u->done));
    else MEG_TRY(e, meg_comm_test(t->comm, e, &u->letter, &u->done));
    if (!u->done) return MEG_OK;
    tell_done(t, u);
    if (a->code != MEG_SEND && !a->host) u->store = meg_arena_store(t->arena, a->at, a->bytes);
    return MEG_OK;
}

static bool reached(const meg_traffic_list *t, uint64_t number)
{
    return number == 0 || meg_arena_reached(t->arena, number);
}

/* As far as item i can go now; *moved, if it did. */
static meg_status go_on(meg_traffic_list *t, meg_error *e, int i, uint64_t finished, bool *moved)
{
    under_way *u = &t->at[i];
    if (!u->started) {
        if (u->item.after > finished || blocked(t, i)) return MEG_OK;
        start(t, u);
        *moved = true;
    }
    if (!u->sent) {
        if (!reached(t, u->fetch)) return MEG_OK;
        MEG_TRY(e, post(t, e, u));
        *moved = true;
    }
    if (!u->done) MEG_TRY(e, test(t, e, u));
    return MEG_OK;
}

meg_status meg_traffic_advance(meg_traffic_list *t, meg_error *e, bool *moved)
{
    uint64_t finished = t->count ? meg_device_look(t->device).done : 0;
    *moved = false;
    for (int i = 0; i < t->count; i++) {
        if (to_self(t, &t->at[i].item)) {
            if (!pair_up(t, i)) continue;
            *moved = true;
            i = -1; /* two are gone: once more from the first */
            continue;
        }
        MEG_TRY(e, go_on(t, e, i, finished, moved));
        if (!t->at[i].done || !reached(t, t->at[i].store)) continue;
        drop(t, i--);
        *moved = true;
    }
    return MEG_OK;
}

/* ---- the watchdog ---- */

void meg_traffic_watchdog(meg_traffic_list *t, double seconds)
{
    t->patience = seconds;
}

/* Nothing moves; the device's work counts as a move. */
static meg_status watch(meg_traffic_list *t, meg_error *e)
{
    static const char *const how[] = {"sends", "waits for", "sums up"};
    meg_pace pace = meg_device_look(t->device);
    if (pace.done < pace.put || pace.moving || t->still == 0) {
        t->still = meg_clock();
        return MEG_OK;
    }
    double waited = meg_clock() - t->still;
    if (waited < t->patience) return MEG_OK;
    int first = 0; /* what lasts is seldom the reason */
    while (first < t->count - 1 && t->at[first].item.lasting)
        first++;
    const meg_traffic_item *a = &t->at[first].item;
    char peer[48] = "with its team";
    if (a->code != MEG_REDUCE) snprintf(peer, sizeof peer, "rank %d", a->peer);
    return meg_fail(e, MEG_EPEER,
                    "rank %d %s %s of micro-batch %d (%s, tag %d, %d more under way), and nothing "
                    "has moved for %.0f s: another rank is lost or hangs",
                    meg_comm_rank(t->comm), how[a->code - MEG_SEND], a->what, a->micro, peer,
                    a->tag, t->count - 1, waited);
}

static void wake(void *comm)
{
    meg_comm_wake(comm);
}

/* The device's item that the first of those not started waits for, else the last it has: then it
 * runs dry. 0: it has none. */
static uint64_t awaited(const meg_traffic_list *t, const meg_pace *pace)
{
    uint64_t first = pace->put;
    for (int i = 0; i < t->count; i++) {
        const under_way *u = &t->at[i];
        if (!u->started && u->item.after > pace->done && u->item.after < first)
            first = u->item.after;
    }
    return first > pace->done ? first : 0;
}

meg_status meg_traffic_wait(meg_traffic_list *t, meg_error *e)
{
    bool moved = false;
    MEG_TRY(e, meg_traffic_advance(t, e, &moved));
    if (moved) {
        tell_wait(t);
        t->still = 0;
        return MEG_OK;
    }
    if (t->count) MEG_TRY(e, watch(t, e));
    meg_pace pace = meg_device_look(t->device);
    uint64_t next = awaited(t, &pace);
    bool busy = next || pace.moving;
    double begin = meg_clock();
    meg_device_watch(t->device, next, wake, t->comm);
    meg_status status = busy ? meg_comm_doze(t->comm, e, MEG_EVENTS_LOOK)
                             : meg_comm_sleep(t->comm, e, NAP);
    meg_device_watch(t->device, 0, NULL, NULL);
    if (!busy) t->exposed += meg_clock() - begin;
    if (busy) tell_wait(t);
    else if (t->observer && t->waits == 0) t->waits = begin;
    return status;
}

double meg_traffic_exposed(const meg_traffic_list *t)
{
    return t->exposed;
}
