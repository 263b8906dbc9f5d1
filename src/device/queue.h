/* The queue of a device: one worker thread that runs items in the order they were put.
 *
 *     putter   [ 7 8 9 . . . . 5 6 ]   worker
 *              put here ^       ^ being run: its place is free only when it is done
 *
 * A ring of fixed size. Whoever puts into a full one sleeps until half of it is done, so that a
 * long program costs a change of threads per half ring and not per item. Waiting never spins.
 */
#ifndef MEG_DEVICE_QUEUE_H
#define MEG_DEVICE_QUEUE_H

#include "device/device.h"

typedef struct meg_queue_item meg_queue_item;

struct meg_queue_item {
    void (*run)(meg_device *d, const meg_queue_item *item); /* on the worker */
    const meg_arena *arena;     /* whose addresses `at`, `to` and `from` are, unless of the host */
    const meg_prepared *kernel; /* a launch: kernel, at, moment */
    void *at[MEG_OPERANDS];
    meg_moment moment;
    void (*function)(void *); /* a host call: function, argument */
    meg_filler *load;         /* a load: load, argument, to, from (its staging), bytes */
    void *argument;
    void *to, *from; /* of what moves or sets bytes */
    int64_t bytes;
    int byte;
};

typedef struct meg_queue meg_queue;

/* `threads`: the OpenMP team of the worker. */
meg_status meg_queue_new(meg_error *e, meg_device *d, int threads, meg_queue **out);
void meg_queue_free(meg_queue *q); /* runs what is left first */

void meg_queue_put(meg_queue *q, const meg_queue_item *item); /* copies it */
void meg_queue_wait(meg_queue *q);                            /* until all that was put is done */

/* How many items were put, are done, since the beginning; is there room for another? */
typedef struct meg_queue_state {
    uint64_t put, done;
    bool room;
} meg_queue_state;

meg_queue_state meg_queue_look(meg_queue *q);

/* Calls `wake` on the worker once this many items are done (0: never), and whenever a full queue is
 * half empty again. */
void meg_queue_watch(meg_queue *q, uint64_t done, void (*wake)(void *), void *context);

#endif
