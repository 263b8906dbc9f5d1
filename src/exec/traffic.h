/* Traffic: the communication of a rank that is under way, and what it keeps others from.
 *
 * SEND, RECV and REDUCE are handed over in the order of the walk. One starts as soon as the kernels
 * issued before it are done (a RECV: those that used its frame) and no earlier one uses the same memory
 * (two sends may), the same working memory of a reduction, or is the same reduction of another
 * micro-batch. A kernel waits for traffic whose memory it touches, and for no other. On a far device a message is fetched before it is sent and stored after it came:
 *
 *     SEND      wait its turn - fetch - send
 *     RECV      wait its turn - receive - store
 *     REDUCE    wait its turn - fetch - sum - store
 *
 * So messages overlap with every kernel that does not depend on them.
 */
#ifndef MEG_EXEC_TRAFFIC_H
#define MEG_EXEC_TRAFFIC_H

#include "comm/allreduce/reduction.h"
#include "device/device.h"

typedef struct meg_traffic_item { /* what is to be communicated */
    meg_code code;
    int peer;   /* SEND, RECV */
    int tag;    /* SEND, RECV: also of the micro-batch; REDUCE: one at a time has it */
    int64_t at; /* its place in the arena */
    void *host; /* instead: memory of the host's own; NULL: none */
    int64_t bytes;
    uint64_t after;                   /* the device's items that must be done first */
    const meg_reduction_spec *reduce; /* REDUCE, over the staging of its place: must stay */
    const char *what;                 /* the value, for messages; must stay */
    int micro;
    bool gradient; /* of the value */
    bool lasting;  /* may go on beyond its step; of the host's memory: who wants it asks for it */
} meg_traffic_item;

typedef struct meg_traffic_list meg_traffic_list;

typedef struct meg_traffic_event { /* what was communicated, when it is done */
    const meg_traffic_item *item;  /* NULL: nothing; the rank has waited, and its device was idle */
    double posted, begin, end;     /* seconds of meg_clock; posted: it was handed over */
} meg_traffic_event;

typedef void meg_traffic_observer(void *context, const meg_traffic_event *v);

/* `arena`: that of the places; NULL where all is the host's. */
meg_traffic_list *meg_traffic_new(meg_comm *comm, meg_device *device, meg_arena *arena);
void meg_traffic_free(meg_traffic_list *t); /* gives up what is under way: after an error */

void meg_traffic_add(meg_traffic_list *t, const meg_traffic_item *item);
bool meg_traffic_idle(const meg_traffic_list *t); /* nothing is under way but what lasts */

bool meg_traffic_gives(
    const meg_traffic_list *t); /* something other ranks may wait for is under way */
/* Forgets messages that are awaited, but were not sent yet: a step that is not gone on with. */
void meg_traffic_give_up(meg_traffic_list *t);

/* Does traffic under way touch these bytes in a way that a kernel that reads (or writes) them must
 * wait for? */
bool meg_traffic_holds(const meg_traffic_list *t, int64_t at, int64_t bytes, bool writes);
bool meg_traffic_has(const meg_traffic_list *t, const void *host); /* is it under way? */

/* Starts and ends what can be; `moved`: something did. Never waits. */
meg_status meg_traffic_advance(meg_traffic_list *t, meg_error *e, bool *moved);

/* Advances; where nothing moves, sleeps until a message or the device does. Where nothing has moved
 * for the watchdog's time although the device is idle: an error that says what is waited for. */
meg_status meg_traffic_wait(meg_traffic_list *t, meg_error *e);
void meg_traffic_watchdog(meg_traffic_list *t, double seconds);

/* Tells of every item between ranks that is done, and of waiting; NULL: of nothing. */
void meg_traffic_observe(meg_traffic_list *t, meg_traffic_observer *observer, void *context);

/* Seconds so far that meg_traffic_wait slept while the device had nothing to do: communication that
 * nothing hides, and bubbles. */
double meg_traffic_exposed(const meg_traffic_list *t);

#endif
