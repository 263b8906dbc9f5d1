/* Ctrl-C ends training in order: the step is finished, the weights are saved. A second one ends it at
 * once, in the middle of a step.
 *
 * Signals are blocked, and a thread of its own waits for them, so no handler, and no global variable,
 * is needed, and a step of minutes does not keep the second one waiting.
 */
#ifndef MEG_CLI_LAUNCH_INTERRUPT_H
#define MEG_CLI_LAUNCH_INTERRUPT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct meg_interrupt {
    sigset_t watched; /* SIGUSR1; SIGINT, SIGTERM, SIGHUP unless the caller had them ignored */
    sigset_t before;  /* what was blocked */
    const char *checkpoint; /* folder that the last words name; NULL: none */
    bool speaks;   /* tells what a signal does; not under a launcher, which sends some, too, when
                               another rank has failed */
    bool watching; /* there is a thread */
    pthread_t thread;
    atomic_bool seen, ending;
} meg_interrupt;

/* Before any thread is made: threads inherit what is blocked. `checkpoint` stays the caller's. */
void meg_interrupt_begin(meg_interrupt *i, const char *checkpoint);

bool meg_interrupt_seen(meg_interrupt *i); /* Did one come? */

void meg_interrupt_end(meg_interrupt *i);

/* ---- what whoever passes signals on to ranks needs, too ---- */

/* Terminal and launcher, or `timeout` and its process group, may each send the same signal for one
 * wish: within so many seconds it is one. */
#define MEG_INTERRUPT_TWICE 0.5

/* SIGINT, SIGTERM, SIGHUP, but those that are ignored. */
void meg_interrupt_signals(sigset_t *out);

/* A background job of a shell ignores SIGINT, nohup SIGHUP: blocking would undo that. */
bool meg_interrupt_ignored(int sign);

/* One line on stderr: what has been asked for; what is left after an end at once. */
void meg_interrupt_first_words(const char *when);
void meg_interrupt_last_words(const char *checkpoint);

#endif
