#define _GNU_SOURCE /* SCHED_BATCH */
/* The queue: see queue.h. One mutex, and three reasons to sleep: nothing to do, no room, not yet
 * all done.
 *
 * The worker blocks all signals, and so do the OpenMP threads that it starts: an interrupt reaches
 * the thread that can end the step in order.
 */
#include "device/queue.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    RING = 256
};

struct meg_queue {
    meg_device *device;
    int threads;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied, done;
    int first, count; /* of the ring; the worker is at `first` */
    bool closing;
    uint64_t put, finished; /* items so far */
    uint64_t watched;       /* `wake` is called when this many are done; 0: nobody waits */
    void (*wake)(void *context);
    void *context;
    meg_queue_item ring[RING];
};

/* The next item, or NULL when the queue is closing and has no more. */
static const meg_queue_item *next(meg_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closing)
        pthread_cond_wait(&q->filled, &q->lock);
    const meg_queue_item *item = q->count ? &q->ring[q->first] : NULL;
    pthread_mutex_unlock(&q->lock);
    return item;
}

static void finish(meg_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->first = (q->first + 1) % RING;
    q->count--;
    q->finished++;
    if (q->watched && (q->finished == q->watched || q->count == RING / 2)) q->wake(q->context);
    if (q->count == RING / 2) pthread_cond_broadcast(&q->emptied);
    if (q->count == 0) pthread_cond_broadcast(&q->done);
    pthread_mutex_unlock(&q->lock);
}

/* Where the worker shares a core with the thread that fills the queue, each item would wake it, and it would
 * take the core at once: two switches for every kernel. As a batch task it waits until the other sleeps,
 * which has then filled the queue; on a core of its own it begins at once all the same. */
static void be_patient(void)
{
#ifdef SCHED_BATCH
    const struct sched_param plain = {0};
    sched_setscheduler(0, SCHED_BATCH, &plain); /* where it may not, it costs some switches */
#endif
}

static void *work(void *argument)
{
    meg_queue *q = argument;
    be_patient();
#ifdef _OPENMP
    omp_set_num_threads(q->threads); /* of this thread's parallel regions only */
#endif
    for (const meg_queue_item *item = next(q); item; item = next(q)) {
        item->run(q->device, item);
        finish(q);
    }
    return NULL;
}

static int start(meg_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&q->worker, NULL, work, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void discard(meg_queue *q)
{
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->emptied);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

meg_status meg_queue_new(meg_error *e, meg_device *d, int threads, meg_queue **out)
{
    meg_queue *q = calloc(1, sizeof *q);
    MEG_CHECK(e, q, MEG_ENOMEM, "no memory for the queue of a device: %zu bytes", sizeof *q);
    q->device = d;
    q->threads = threads;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->filled, NULL);
    pthread_cond_init(&q->emptied, NULL);
    pthread_cond_init(&q->done, NULL);
    int error = start(q);
    if (error) {
        discard(q);
        return meg_fail(e, MEG_ENOMEM, "the worker thread of a device did not start: %s",
                        strerror(error));
    }
    *out = q;
    return MEG_OK;
}

void meg_queue_free(meg_queue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->worker, NULL);
    discard(q);
}

void meg_queue_put(meg_queue *q, const meg_queue_item *item)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == RING)
        pthread_cond_wait(&q->emptied, &q->lock);
    q->ring[(q->first + q->count) % RING] = *item;
    q->count++;
    q->put++;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

void meg_queue_wait(meg_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->count > 0)
        pthread_cond_wait(&q->done, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

meg_queue_state meg_queue_look(meg_queue *q)
{
    pthread_mutex_lock(&q->lock);
    meg_queue_state s = {q->put, q->finished, q->count < RING};
    pthread_mutex_unlock(&q->lock);
    return s;
}

void meg_queue_watch(meg_queue *q, uint64_t done, void (*wake)(void *), void *context)
{
    pthread_mutex_lock(&q->lock);
    q->watched = done;
    q->wake = wake;
    q->context = context;
    bool late = done && q->finished >= done;
    pthread_mutex_unlock(&q->lock);
    if (late) wake(context);
}
