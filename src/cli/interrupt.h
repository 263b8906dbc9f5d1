/* Ctrl-C ends training in order: the step is finished, the weights are saved. Signals are blocked
 * and asked for between steps, so no handler, and no global variable, is needed. */
#ifndef MEG_CLI_INTERRUPT_H
#define MEG_CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

typedef struct meg_interrupt {
    sigset_t watched; /* SIGINT and SIGTERM, unless the caller had them ignored */
    bool seen;
} meg_interrupt;

/* Before any thread is made: threads inherit what is blocked. */
void meg_interrupt_begin(meg_interrupt *i);

/* Did one come? After the first the signals do what they usually do: the second one kills. */
bool meg_interrupt_seen(meg_interrupt *i);

void meg_interrupt_end(meg_interrupt *i);

#endif
