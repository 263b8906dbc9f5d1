/* Traffic: see traffic.h. */
#include "exec/traffic.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double NAP = 1e-3; /* seconds: a wake may come between a look and the sleep */

typedef struct under_way {
    meg_traffic_item item;
    bool started;
    meg_letter *letter;
    meg_reduction *reduction;
} under_way;

struct meg_traffic_list {
    meg_comm *comm;
    meg_device *device;
    double exposed; /* seconds */
    int count;
    under_way *at; /* in the order they were added */
    size_t room;
};

meg_traffic_list *meg_traffic_new(meg_comm *comm, meg_device *device)
{
    meg_traffic_list *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->comm = comm;
    t->device = device;
    return t;
}

void meg_traffic_free(meg_traffic_list *t)
{
    if (!t) return;
    for (int i = 0; i < t->count; i++)
        free(t->at[i].reduction);
    free(t->at);
    free(t);
}

void meg_traffic_add(meg_traffic_list *t, const meg_traffic_item *item)
{
    t->at = meg_grow(t->at, &t->room, (size_t)t->count + 1, sizeof *t->at);
    t->at[t->count++] = (under_way){.item = *item};
}

bool meg_traffic_idle(const meg_traffic_list *t)
{
    return t->count == 0;
}

static bool meet(const meg_traffic_item *a, const char *data, int64_t bytes)
{
    return a->data < data + bytes && data < a->data + a->bytes;
}

bool meg_traffic_holds(const meg_traffic_list *t, const char *data, int64_t bytes, bool writes)
{
    for (int i = 0; i < t->count; i++) {
        const meg_traffic_item *a = &t->at[i].item;
        if ((writes || a->code != MEG_SEND) && meet(a, data, bytes)) return true;
    }
    return false;
}

/* Earlier traffic with the same memory goes first. */
static bool blocked(const meg_traffic_list *t, int i)
{
    const meg_traffic_item *a = &t->at[i].item;
    for (int k = 0; k < i; k++) {
        const meg_traffic_item *b = &t->at[k].item;
        bool reads = a->code == MEG_SEND && b->code == MEG_SEND;
        if (!reads && meet(b, a->data, a->bytes)) return true;
    }
    return false;
}

/* ---- within the rank: a copy on the device's queue, when both ends are there ---- */

typedef struct handover {
    char *to;
    const char *from;
    int64_t bytes;
} handover;

static void hand_over(void *argument)
{
    handover *h = argument;
    memcpy(h->to, h->from, (size_t)h->bytes);
    free(h);
}

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

/* The queue is in order: once the copy is on it, both ends are free. */
static bool pair_up(meg_traffic_list *t, int i)
{
    const meg_traffic_item *recv = &t->at[i].item;
    for (int k = 0; k < i && recv->code == MEG_RECV; k++) {
        const meg_traffic_item *send = &t->at[k].item;
        if (send->code != MEG_SEND || !to_self(t, send) || send->tag != recv->tag) continue;
        handover *h = malloc(sizeof *h);
        if (!h) abort();
        *h = (handover){recv->data, send->data, recv->bytes};
        meg_device_call(t->device, hand_over, h);
        drop(t, i);
        drop(t, k);
        return true;
    }
    return false;
}

/* ---- between ranks ---- */

static meg_status start(meg_traffic_list *t, meg_error *e, under_way *u)
{
    const meg_traffic_item *a = &u->item;
    u->started = true;
    if (a->code == MEG_SEND)
        return meg_comm_send(t->comm, e, a->peer, a->tag, a->data, a->bytes, &u->letter);
    if (a->code == MEG_RECV)
        return meg_comm_recv(t->comm, e, a->peer, a->tag, a->data, a->bytes, &u->letter);
    u->reduction = calloc(1, sizeof *u->reduction);
    if (!u->reduction) abort();
    return meg_reduction_start(u->reduction, t->comm, e, a->reduce);
}

static meg_status test(meg_traffic_list *t, meg_error *e, under_way *u, bool *done)
{
    if (u->reduction) return meg_reduction_advance(u->reduction, e, done);
    return meg_comm_test(t->comm, e, &u->letter, done);
}

meg_status meg_traffic_advance(meg_traffic_list *t, meg_error *e, bool *moved)
{
    uint64_t finished = t->count ? meg_device_look(t->device).done : 0;
    *moved = false;
    for (int i = 0; i < t->count; i++) {
        under_way *u = &t->at[i];
        bool done = false;
        if (to_self(t, &u->item)) {
            if (!pair_up(t, i)) continue;
            *moved = true;
            i = -1; /* two are gone: once more from the first */
            continue;
        }
        if (!u->started) {
            if (u->item.after > finished || blocked(t, i)) continue;
            MEG_TRY(e, start(t, e, u));
            *moved = true;
        }
        MEG_TRY(e, test(t, e, u, &done));
        if (!done) continue;
        drop(t, i--);
        *moved = true;
    }
    return MEG_OK;
}

static void wake(void *comm)
{
    meg_comm_wake(comm);
}

/* The device's item that the first of those not started waits for. */
static uint64_t awaited(const meg_traffic_list *t)
{
    uint64_t first = 0;
    for (int i = 0; i < t->count; i++) {
        const under_way *u = &t->at[i];
        if (!u->started && (first == 0 || u->item.after < first)) first = u->item.after;
    }
    return first;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

meg_status meg_traffic_wait(meg_traffic_list *t, meg_error *e)
{
    bool moved = false;
    MEG_TRY(e, meg_traffic_advance(t, e, &moved));
    if (moved) return MEG_OK;
    meg_pace pace = meg_device_look(t->device);
    uint64_t next = awaited(t);
    double begin = now();
    meg_device_watch(t->device, next > pace.done ? next : UINT64_MAX, wake, t->comm);
    meg_status status = meg_comm_sleep(t->comm, e, NAP);
    meg_device_watch(t->device, 0, wake, t->comm);
    if (pace.done == pace.put) t->exposed += now() - begin;
    return status;
}

double meg_traffic_exposed(const meg_traffic_list *t)
{
    return t->exposed;
}
