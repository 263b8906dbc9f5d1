/* Ranks as threads of one process, so that hundreds of plans are tested without a launch.
 *
 * All ranks meet in one hall with one lock. A message is a parcel on its receiver's table until a
 * receive takes it; a receive that comes first waits on the same rank's list. Both are searched in
 * order, so that messages of one (sender, tag) keep theirs. With rendezvous a parcel is the
 * sender's own memory and the sender waits; without, it is a copy.
 *
 * The library's allreduce is what a library would do on one node: the last rank to come combines
 * all, in rank order, and hands the result to everybody.
 */
#include "comm/kind.h"
#include "comm/waker.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct parcel {
    struct parcel *next;
    int from, tag;
    int64_t bytes;
    const void *data;
    void *copy;         /* NULL: `data` is the sender's */
    meg_letter *sender; /* waits for the receiver; NULL: did not */
} parcel;

struct meg_letter {
    struct meg_letter *next; /* among the waiting receives of its rank */
    int owner, from, tag;
    void *data;
    int64_t bytes, got;
    bool done;
};

typedef struct joint { /* an allreduce that not all ranks have joined */
    struct joint *next;
    int64_t index; /* the how-manieth of each rank */
    int joined;
    meg_numbers *part;   /* (size) */
    meg_letter **member; /* (size) */
} joint;

typedef struct seat { /* what belongs to one rank; under the lock */
    pthread_cond_t rang;
    bool woken;
    int64_t joints;
    parcel *parcels;
    meg_letter *receives;
} seat;

typedef struct hall {
    pthread_mutex_t lock;
    int size, users;
    bool rendezvous;
    int tags;
    int *node;
    joint *joints;
    seat seat[];
} hall;

typedef struct threads {
    meg_comm base;
    hall *hall;
} threads;

static const meg_comm_kind KIND;

static hall *hall_of(meg_comm *c)
{
    return ((threads *)c)->hall;
}

static void ring(hall *h, int rank)
{
    h->seat[rank].woken = true;
    pthread_cond_signal(&h->seat[rank].rang);
}

/* ---- messages ---- */

static meg_letter *message_new(meg_comm *c, int from, int tag, void *data, int64_t bytes)
{
    meg_letter *m = calloc(1, sizeof *m);
    if (m)
        *m = (meg_letter){
            .owner = c->rank, .from = from, .tag = tag, .data = data, .bytes = bytes, .got = bytes};
    return m;
}

/* Hands a parcel over; sizes that differ are the receiver's error, told by its test. */
static void deliver(hall *h, parcel *p, meg_letter *m)
{
    m->got = p->bytes;
    if (p->bytes == m->bytes && p->bytes > 0) memcpy(m->data, p->data, (size_t)p->bytes);
    m->done = true;
    ring(h, m->owner);
    if (p->sender) {
        p->sender->done = true;
        ring(h, p->sender->owner);
    }
    free(p->copy);
    free(p);
}

static parcel *parcel_new(meg_comm *c, int tag, const void *data, int64_t bytes)
{
    parcel *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (parcel){.from = c->rank, .tag = tag, .bytes = bytes, .data = data};
    if (hall_of(c)->rendezvous || bytes == 0) return p;
    p->data = p->copy = malloc((size_t)bytes);
    if (p->copy) memcpy(p->copy, data, (size_t)bytes);
    if (p->copy) return p;
    free(p);
    return NULL;
}

static meg_status send(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                       int64_t bytes, meg_letter **out)
{
    hall *h = hall_of(c);
    parcel *p = parcel_new(c, tag, data, bytes);
    meg_letter *m = p ? message_new(c, c->rank, tag, NULL, bytes) : NULL;
    if (!m) {
        if (p) free(p->copy);
        free(p);
        return meg_fail(e, MEG_ENOMEM, "no memory for a message of %lld bytes", (long long)bytes);
    }
    pthread_mutex_lock(&h->lock);
    if (h->rendezvous) p->sender = m;
    else m->done = true;
    meg_letter **r = &h->seat[peer].receives;
    while (*r && ((*r)->from != c->rank || (*r)->tag != tag))
        r = &(*r)->next;
    if (*r) {
        meg_letter *taker = *r;
        *r = taker->next;
        deliver(h, p, taker);
    } else {
        parcel **last = &h->seat[peer].parcels;
        while (*last)
            last = &(*last)->next;
        *last = p;
    }
    pthread_mutex_unlock(&h->lock);
    *out = m;
    return MEG_OK;
}

static meg_status recv(meg_comm *c, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                       meg_letter **out)
{
    hall *h = hall_of(c);
    meg_letter *m = message_new(c, peer, tag, data, bytes);
    MEG_CHECK(e, m, MEG_ENOMEM, "no memory for a message");
    pthread_mutex_lock(&h->lock);
    parcel **p = &h->seat[c->rank].parcels;
    while (*p && ((*p)->from != peer || (*p)->tag != tag))
        p = &(*p)->next;
    if (*p) {
        parcel *taken = *p;
        *p = taken->next;
        deliver(h, taken, m);
    } else {
        meg_letter **last = &h->seat[c->rank].receives;
        while (*last)
            last = &(*last)->next;
        *last = m;
    }
    pthread_mutex_unlock(&h->lock);
    *out = m;
    return MEG_OK;
}

static meg_status test(meg_comm *c, meg_error *e, meg_letter **m, bool *done)
{
    hall *h = hall_of(c);
    pthread_mutex_lock(&h->lock);
    *done = (*m)->done;
    pthread_mutex_unlock(&h->lock);
    if (!*done) return MEG_OK;
    meg_letter old = **m;
    free(*m);
    *m = NULL;
    MEG_CHECK(e, old.got == old.bytes, MEG_EDATA,
              "rank %d expected %lld bytes from rank %d (tag %d), but %lld came", c->rank,
              (long long)old.bytes, old.from, old.tag, (long long)old.got);
    return MEG_OK;
}

/* What was not received yet is taken back. */
static void drop_parcel(seat *s, const meg_letter *m)
{
    parcel **p = &s->parcels;
    while (*p && (*p)->sender != m)
        p = &(*p)->next;
    parcel *found = *p;
    if (!found) return;
    *p = found->next;
    free(found->copy);
    free(found);
}

static void drop(meg_comm *c, meg_letter *m)
{
    hall *h = hall_of(c);
    pthread_mutex_lock(&h->lock);
    meg_letter **r = &h->seat[c->rank].receives;
    while (*r && *r != m)
        r = &(*r)->next;
    if (*r) *r = m->next;
    for (int i = 0; i < h->size; i++)
        drop_parcel(&h->seat[i], m);
    for (joint *j = h->joints; j; j = j->next)
        if (j->member[c->rank] == m) j->joined = INT_MIN; /* is never complete */
    pthread_mutex_unlock(&h->lock);
    free(m);
}

static meg_status sleep_threads(meg_comm *c, meg_error *e, double seconds)
{
    (void)e;
    hall *h = hall_of(c);
    seat *s = &h->seat[c->rank];
    struct timespec until = meg_waker_deadline(seconds);
    int late = 0;
    pthread_mutex_lock(&h->lock);
    while (!s->woken && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&s->rang, &h->lock, &until);
    s->woken = false;
    pthread_mutex_unlock(&h->lock);
    return MEG_OK;
}

static void wake(meg_comm *c)
{
    hall *h = hall_of(c);
    pthread_mutex_lock(&h->lock);
    ring(h, c->rank);
    pthread_mutex_unlock(&h->lock);
}

/* ---- the library's allreduce ---- */

static void joint_free(joint *j)
{
    free(j->part);
    free(j->member);
    free(j);
}

static joint *joint_new(int size, int64_t index)
{
    joint *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->index = index;
    j->part = calloc((size_t)size, sizeof *j->part);
    j->member = calloc((size_t)size, sizeof *j->member);
    if (j->part && j->member) return j;
    joint_free(j);
    return NULL;
}

/* Rank 0 combines with 1, the result with 2, ...; then all get a copy. A rank with another count is
 * told so. */
static void joint_end(hall *h, joint *j, meg_combine combine)
{
    const meg_numbers *first = &j->part[0];
    int64_t bytes = first->count * meg_number_bytes(first->type);
    for (int r = 0; r < h->size; r++)
        j->member[r]->got = bytes;
    for (int r = 1; r < h->size; r++)
        if (j->member[r]->bytes == bytes)
            meg_numbers_combine(combine, first->type, first->data, j->part[r].data, first->count);
    for (int r = 0; r < h->size; r++) {
        if (r > 0 && j->member[r]->bytes == bytes && bytes > 0)
            memcpy(j->part[r].data, first->data, (size_t)bytes);
        j->member[r]->done = true;
        ring(h, r);
    }
}

static meg_status allreduce(meg_comm *c, meg_error *e, const meg_numbers *data, meg_combine combine,
                            meg_letter **out)
{
    hall *h = hall_of(c);
    int64_t bytes = data->count * meg_number_bytes(data->type);
    meg_letter *m = message_new(c, 0, 0, data->data, bytes);
    MEG_CHECK(e, m, MEG_ENOMEM, "no memory for a message");
    pthread_mutex_lock(&h->lock);
    joint **j = &h->joints;
    while (*j && (*j)->index != h->seat[c->rank].joints)
        j = &(*j)->next;
    if (!*j) *j = joint_new(h->size, h->seat[c->rank].joints);
    bool there = *j != NULL;
    if (there) {
        h->seat[c->rank].joints++;
        (*j)->part[c->rank] = *data;
        (*j)->member[c->rank] = m;
        if (++(*j)->joined == h->size) {
            joint *complete = *j;
            *j = complete->next;
            joint_end(h, complete, combine);
            joint_free(complete);
        }
    }
    pthread_mutex_unlock(&h->lock);
    if (!there) free(m);
    MEG_CHECK(e, there, MEG_ENOMEM, "no memory for a reduction");
    *out = m;
    return MEG_OK;
}

/* ---- halls ---- */

static hall *hall_new(int size, bool rendezvous, int tags)
{
    hall *h = calloc(1, sizeof *h + (size_t)size * sizeof *h->seat);
    if (!h) return NULL;
    h->node = calloc((size_t)size, sizeof *h->node);
    if (!h->node) {
        free(h);
        return NULL;
    }
    h->size = h->users = size;
    h->rendezvous = rendezvous;
    h->tags = tags ? tags : INT32_MAX;
    pthread_mutex_init(&h->lock, NULL);
    for (int r = 0; r < size; r++)
        meg_waker_condition(&h->seat[r].rang);
    return h;
}

/* What nobody received goes, too: after an error ranks leave in the middle of things. */
static void hall_free(hall *h)
{
    for (int r = 0; r < h->size; r++) {
        for (parcel *p = h->seat[r].parcels, *next; p; p = next) {
            next = p->next;
            free(p->copy);
            free(p);
        }
        pthread_cond_destroy(&h->seat[r].rang);
    }
    for (joint *j = h->joints, *next; j; j = next) {
        next = j->next;
        joint_free(j);
    }
    pthread_mutex_destroy(&h->lock);
    free(h->node);
    free(h);
}

static void leave(hall *h)
{
    pthread_mutex_lock(&h->lock);
    bool last = --h->users == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) hall_free(h);
}

static void threads_free(meg_comm *c)
{
    leave(hall_of(c));
    free(c);
}

/* A rank's place in the hall; without memory for it, it leaves. */
static meg_status enter(meg_error *e, hall *h, int rank, meg_comm **out)
{
    threads *t = calloc(1, sizeof *t);
    if (!t) {
        leave(h);
        return meg_fail(e, MEG_ENOMEM, "no memory for a communicator");
    }
    int nodes = 0;
    for (int r = 0; r < h->size; r++)
        nodes = h->node[r] >= nodes ? h->node[r] + 1 : nodes;
    t->base = (meg_comm){.kind = &KIND,
                         .rank = rank,
                         .size = h->size,
                         .nodes = nodes,
                         .tags = h->tags,
                         .node = h->node,
                         .library = "threads"};
    t->hall = h;
    *out = &t->base;
    return MEG_OK;
}

meg_status meg_comm_threads(meg_error *e, const meg_threads_options *o, meg_comm *out[])
{
    MEG_CHECK(e, o->ranks >= 1, MEG_EARG, "a communicator of %d ranks: use at least 1", o->ranks);
    hall *h = hall_new(o->ranks, o->rendezvous, o->tags);
    MEG_CHECK(e, h, MEG_ENOMEM, "no memory for a communicator of %d ranks", o->ranks);
    for (int r = 0; r < o->ranks; r++)
        h->node[r] = o->per_node > 0 ? r / o->per_node : 0;
    meg_status status = MEG_OK;
    memset(out, 0, (size_t)o->ranks * sizeof *out);
    for (int r = 0; r < o->ranks; r++)
        if (enter(e, h, r, &out[r]) != MEG_OK) status = MEG_ENOMEM;
    for (int r = 0; r < o->ranks && status != MEG_OK; r++) {
        meg_comm_free(out[r]);
        out[r] = NULL;
    }
    return status;
}

/* Fills `member` with the ranks of this colour; returns how many there are. */
static int members(const meg_comm *c, const int colour[], int mine, int member[])
{
    int count = 0;
    for (int r = 0; r < c->size; r++)
        if (colour[r] == mine) member[count++] = r;
    return count;
}

/* A hall for some ranks of an old one; nodes are numbered anew, in the order of their ranks. */
static hall *hall_part(meg_comm *c, const int member[], int count)
{
    hall *h = hall_new(count, hall_of(c)->rendezvous, hall_of(c)->tags);
    int nodes = 0;
    for (int i = 0; h && i < count; i++) {
        int first = 0;
        while (c->node[member[first]] != c->node[member[i]])
            first++;
        h->node[i] = first < i ? h->node[first] : nodes++;
    }
    return h;
}

/* The lowest rank of each colour makes the hall; all learn of all halls by a second gather. */
static meg_status split_into(meg_comm *c, meg_error *e, const int member[], int count,
                             meg_comm **out)
{
    assert(c->size > 0);
    hall *mine = NULL, **all = calloc((size_t)c->size, sizeof *all);
    MEG_CHECK(e, all, MEG_ENOMEM, "no memory to split a communicator");
    if (count > 0 && member[0] == c->rank) mine = hall_part(c, member, count);
    meg_status status = meg_comm_gather(c, e, &mine, sizeof mine, all);
    hall *h = status == MEG_OK && count > 0 ? all[member[0]] : NULL;
    free(all);
    if (status != MEG_OK) return status;
    if (count == 0) {
        *out = NULL;
        return MEG_OK;
    }
    MEG_CHECK(e, h, MEG_ENOMEM, "no memory for a communicator of %d ranks", count);
    int rank = 0;
    while (member[rank] != c->rank)
        rank++;
    return enter(e, h, rank, out);
}

static meg_status split(meg_comm *c, meg_error *e, int colour, meg_comm **out)
{
    int *colours = calloc(2 * (size_t)c->size, sizeof *colours);
    MEG_CHECK(e, colours, MEG_ENOMEM, "no memory to split a communicator");
    int *member = colours + c->size;
    meg_status status = meg_comm_gather(c, e, &colour, sizeof colour, colours);
    if (status == MEG_OK) {
        int count = colour < 0 ? 0 : members(c, colours, colour, member);
        status = split_into(c, e, member, count, out);
    }
    free(colours);
    return status;
}

static __attribute__((noreturn)) void end(meg_comm *c, int code)
{
    (void)c;
    _Exit(code);
}

static const meg_comm_kind KIND = {
    .send = send,
    .recv = recv,
    .test = test,
    .drop = drop,
    .sleep = sleep_threads,
    .wake = wake,
    .allreduce = allreduce,
    .split = split,
    .abort = end,
    .free = threads_free,
};
