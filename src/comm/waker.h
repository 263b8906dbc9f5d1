/* Something to sleep on that another thread can end, even before the sleep began: a wake between
 * two sleeps ends the second at once, so nothing is missed.
 */
#ifndef MEG_COMM_WAKER_H
#define MEG_COMM_WAKER_H

#include <pthread.h>
#include <stdbool.h>

typedef struct meg_waker {
    pthread_mutex_t lock;
    pthread_cond_t rang;
    bool woken;
} meg_waker;

void meg_waker_open(meg_waker *w);
void meg_waker_close(meg_waker *w);
void meg_waker_wake(meg_waker *w);
bool meg_waker_sleep(meg_waker *w, double seconds); /* was it woken? */

/* The moment that many seconds from now, on the clock of the condition variables here. */
struct timespec meg_waker_deadline(double seconds);
void meg_waker_condition(pthread_cond_t *c); /* initialises one with that clock */

#endif
