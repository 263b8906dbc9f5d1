/* Interrupts: see interrupt.h. */
#define _GNU_SOURCE
#include "cli/interrupt.h"

#include <time.h>

/* A background job of a shell ignores SIGINT, and blocking it would undo that. */
static bool is_ignored(int signal)
{
    struct sigaction now;
    return sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void meg_interrupt_begin(meg_interrupt *i)
{
    static const int watched[] = {SIGINT, SIGTERM};
    *i = (meg_interrupt){.seen = false};
    sigemptyset(&i->watched);
    for (size_t k = 0; k < sizeof watched / sizeof *watched; k++)
        if (!is_ignored(watched[k])) sigaddset(&i->watched, watched[k]);
    pthread_sigmask(SIG_BLOCK, &i->watched, NULL);
}

bool meg_interrupt_seen(meg_interrupt *i)
{
    struct timespec now = {0, 0};
    if (i->seen || sigtimedwait(&i->watched, NULL, &now) < 0) return i->seen;
    i->seen = true;
    pthread_sigmask(SIG_UNBLOCK, &i->watched, NULL);
    return true;
}

void meg_interrupt_end(meg_interrupt *i)
{
    pthread_sigmask(SIG_UNBLOCK, &i->watched, NULL);
}
