/* Interrupts: see interrupt.h.
 *
 * SIGUSR1 asks to stop, too. It is what cli/launch/supervise.c sends, since launchers pass it on and wait,
 * while they answer the others with their own idea of an end; so whoever sent it has told the user.
 */
#define _GNU_SOURCE
#include "cli/launch/interrupt.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "train/checkpoint/shelf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- words ---- */

/* A line of progress that stands on a terminal gives way. */
static void clear_line(void)
{
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

void meg_interrupt_first_words(const char *when)
{
    clear_line();
    fprintf(stderr, "megalith: stopping %s; once more to end at once\n", when);
}

void meg_interrupt_last_words(const char *checkpoint)
{
    meg_shelf shelf = {.lock = -1};
    meg_error ignored = {0};
    char path[MEG_SHELF_PATH];
    int64_t *step = NULL;
    int count = 0;
    clear_line();
    if (checkpoint && *checkpoint) {
        snprintf(shelf.path, sizeof shelf.path, "%s", checkpoint);
        meg_shelf_list(&shelf, &ignored, &step, &count);
    }
    if (count > 0) {
        meg_shelf_name(&shelf, step[0], path);
        fprintf(stderr,
                "megalith: ended at once; the newest checkpoint is %s: the same command goes on "
                "from it\n",
                path);
    } else {
        fprintf(stderr, "megalith: ended at once; there is no checkpoint%s\n",
                checkpoint && *checkpoint ? " yet" : " (--checkpoint FOLDER writes some)");
    }
    free(step);
}

/* ---- signals ---- */

bool meg_interrupt_ignored(int sign)
{
    struct sigaction now;
    return sigaction(sign, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void meg_interrupt_signals(sigset_t *out)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(out);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (!meg_interrupt_ignored(all[k])) sigaddset(out, all[k]);
}

/* As if nobody had watched. */
static void end_by(const meg_interrupt *i, int sign)
{
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, sign);
    if (i->speaks) meg_interrupt_last_words(i->checkpoint);
    signal(sign, SIG_DFL);
    kill(getpid(), sign);
    pthread_sigmask(SIG_UNBLOCK, &it, NULL);
}

static void *watch(void *argument)
{
    meg_interrupt *i = argument;
    int first = 0;
    double when = 0;
    for (;;) {
        int sign = sigwaitinfo(&i->watched, NULL);
        if (atomic_load(&i->ending)) return NULL;
        if (sign <= 0) continue;
        if (!first) {
            first = sign;
            when = meg_clock();
            atomic_store(&i->seen, true);
            if (i->speaks && sign != SIGUSR1) meg_interrupt_first_words("after this step");
            continue;
        }
        bool again = sign == first && meg_clock() - when < MEG_INTERRUPT_TWICE;
        if (sign != SIGUSR1 && !again) end_by(i, sign);
    }
}

void meg_interrupt_begin(meg_interrupt *i, const char *checkpoint)
{
    int rank = 0;
    *i = (meg_interrupt){.checkpoint = checkpoint};
    i->speaks = !meg_comm_launched(&rank);
    signal(SIGUSR1, SIG_DFL); /* ignored, it might never come */
    meg_interrupt_signals(&i->watched);
    sigaddset(&i->watched, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &i->watched, &i->before);
    i->watching = pthread_create(&i->thread, NULL, watch, i) == 0;
    if (!i->watching) pthread_sigmask(SIG_SETMASK, &i->before, NULL);
}

bool meg_interrupt_seen(meg_interrupt *i)
{
    return atomic_load(&i->seen);
}

void meg_interrupt_end(meg_interrupt *i)
{
    if (!i->watching) return;
    atomic_store(&i->ending, true);
    pthread_kill(i->thread, SIGUSR1);
    pthread_join(i->thread, NULL);
    signal(SIGUSR1, SIG_IGN); /* all is done: whoever asks again has nothing to wait for */
    pthread_sigmask(SIG_SETMASK, &i->before, NULL);
    i->watching = false;
}
