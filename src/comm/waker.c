/* Sleeping until woken: see waker.h. */
#include "comm/waker.h"

#include <errno.h>
#include <time.h>

struct timespec meg_waker_deadline(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (seconds < 0) seconds = 0;
    if (seconds > 1e6) seconds = 1e6;
    long whole = (long)seconds;
    t.tv_sec += whole;
    t.tv_nsec += (long)(1e9 * (seconds - (double)whole));
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

void meg_waker_condition(pthread_cond_t *c)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

void meg_waker_open(meg_waker *w)
{
    pthread_mutex_init(&w->lock, NULL);
    meg_waker_condition(&w->rang);
    w->woken = false;
}

void meg_waker_close(meg_waker *w)
{
    pthread_cond_destroy(&w->rang);
    pthread_mutex_destroy(&w->lock);
}

void meg_waker_wake(meg_waker *w)
{
    pthread_mutex_lock(&w->lock);
    w->woken = true;
    pthread_cond_signal(&w->rang);
    pthread_mutex_unlock(&w->lock);
}

bool meg_waker_sleep(meg_waker *w, double seconds)
{
    struct timespec until = meg_waker_deadline(seconds);
    pthread_mutex_lock(&w->lock);
    int late = seconds > 0 ? 0 : ETIMEDOUT;
    while (!w->woken && late != ETIMEDOUT)
        late = pthread_cond_timedwait(&w->rang, &w->lock, &until);
    bool woken = w->woken;
    w->woken = false;
    pthread_mutex_unlock(&w->lock);
    return woken;
}
