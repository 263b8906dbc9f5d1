/* A launcher under supervision: see supervise.h. Launchers end like the rank that failed first, as a
 * shell would: 137 is kill -9, perhaps the system's, for want of memory.
 *
 * What launchers make of a signal, and why ranks that have work to save get SIGUSR1 instead:
 *
 *     Open MPI   INT, TERM, HUP: SIGTERM to the ranks after 1 s, SIGKILL after 2
 *     MPICH      INT, TERM: passed on; HUP: ends, and the ranks with it
 *     srun       INT: a second one within 1 s ends the step; TERM, HUP: end it at once
 *     all        USR1: passed on
 *
 * A terminal sends Ctrl-C and Ctrl-Z to all of its foreground process group, hence the launcher's own.
 */
#define _GNU_SOURCE /* strsignal */
#include "cli/launch/supervise.h"
#include "base/clock.h"
#include "cli/launch/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double PATIENCE = 3.0; /* seconds for an end at once */
static const double AGAIN = 1.0; /* seconds from start to first SIGUSR1, and from one to the next */

typedef struct job {
    const meg_care *care;
    pid_t launcher;
    sigset_t stops; /* signals that ask for an end */
    int asked;      /* how often */
    int last;       /* the signal that asked last, */
    double when;    /* and when it did */
    double due;     /* when the ranks are to be told next */
    int status;     /* of waitpid */
} job;

/* ---- signals ---- */

static void pass_on(job *j, int sign, const siginfo_t *what)
{
    /* Ctrl-C reaches the launcher by itself; a second signal would be taken for impatience. */
    if (what->si_code != SI_KERNEL) kill(j->launcher, sign);
    j->asked += sign != SIGHUP;
}

/* Again and again, and not at once: Open MPI's mpirun drops a signal that comes before its ranks are
 * started, and MPICH's, in its first hundredth of a second, is deaf to all further ones. To a rank that
 * knows already another one means nothing (interrupt.c). */
static void tell_ranks(job *j)
{
    double now = meg_clock();
    if (now < j->due) return;
    kill(j->launcher, SIGUSR1);
    j->due = now + AGAIN;
}

static void ask(job *j, int sign)
{
    double now = meg_clock();
    if (j->asked && sign == j->last && now - j->when < MEG_INTERRUPT_TWICE) return;
    j->last = sign;
    j->when = now;
    j->asked++;
    if (j->asked == 1) {
        meg_interrupt_first_words("after this step or the next");
        tell_ranks(j);
    } else if (j->asked == 2) {
        kill(j->launcher, SIGTERM);
    } else {
        kill(-j->launcher, SIGKILL);
    }
}

/* Ctrl-Z, which would else stop this process alone. */
static void pause_together(const job *j)
{
    kill(-j->launcher, SIGTSTP);
    raise(SIGSTOP);
    kill(-j->launcher, SIGCONT);
}

static void wait_for(job *j, const sigset_t *signs)
{
    const struct timespec tick = {0, 100000000};
    while (waitpid(j->launcher, &j->status, WNOHANG) == 0) {
        siginfo_t what;
        bool asked = j->care->stops && j->asked, hurry = asked && j->asked > 1;
        int sign = asked ? sigtimedwait(signs, &what, &tick) : sigwaitinfo(signs, &what);
        if (hurry && meg_clock() - j->when > PATIENCE) kill(-j->launcher, SIGKILL);
        if (asked && !hurry) tell_ranks(j);
        if (sign == SIGTSTP) pause_together(j);
        if (sign <= 0 || !sigismember(&j->stops, sign)) continue;
        if (j->care->stops) ask(j, sign);
        else pass_on(j, sign, &what);
    }
}

/* ---- the end ---- */

static bool asks(int sign)
{
    return sign == SIGINT || sign == SIGTERM || sign == SIGHUP;
}

/* After Ctrl-C launchers may end with 1, or even 0, though the ranks ended with 130; a rank that was
 * not ready for SIGUSR1 has ended by it, and had nothing to lose. */
static _Noreturn void end_like(const job *j)
{
    int status = j->status;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), sign = code - 128;
    if (j->care->stops && j->asked > 1) {
        kill(-j->launcher, SIGKILL); /* what the launcher has left */
        meg_interrupt_last_words(j->care->checkpoint);
        exit(128 + j->last);
    }
    if (j->asked && (code <= 1 || sign == SIGUSR1)) exit(128 + SIGINT);
    if (sign > 0 && sign < 32 && !asks(sign))
        fprintf(
            stderr,
            "megalith: a rank was ended by signal %d (%s), and the job with it; started again, a"
            " training with --checkpoint goes on from the newest one\n",
            sign, strsignal(sign));
    exit(code);
}

/* ---- the beginning ---- */

/* In a process group of its own, which is in the background: it may write to the terminal even where
 * `stty tostop` forbids that, and has nothing to read from it. */
static void stand_apart(void)
{
    int none = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);
    if (none >= 0) dup2(none, STDIN_FILENO), close(none);
}

static _Noreturn void become(char *const words[], const meg_care *care, int tube)
{
    prctl(PR_SET_PDEATHSIG,
          care->stops ? SIGUSR1 : SIGTERM); /* ranks end with who asked for them */
    execvp(words[0], words);
    int why = errno;
    _exit(write(tube, &why, sizeof why) < 0);
}

meg_status meg_supervise(meg_error *e, char *const words[], const meg_care *care)
{
    job j = {.care = care};
    sigset_t signs, before;
    int tube[2], why = 0;     /* the tube closes when the command runs */
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, nobody is told that the launcher has ended */
    meg_interrupt_signals(&j.stops);
    signs = j.stops;
    sigaddset(&signs, SIGCHLD);
    if (care->stops && !meg_interrupt_ignored(SIGTSTP)) sigaddset(&signs, SIGTSTP);
    MEG_CHECK(e, pipe2(tube, O_CLOEXEC) == 0, MEG_EIO, "cannot run %s: %s", words[0],
              strerror(errno));
    sigprocmask(SIG_BLOCK, &signs, &before);
    j.launcher = fork();
    if (j.launcher == 0) {
        if (care->stops) stand_apart();
        sigprocmask(SIG_SETMASK, &before, NULL);
        become(words, care, tube[1]);
    }
    if (j.launcher < 0) why = errno;
    if (care->stops && j.launcher > 0) setpgid(j.launcher, j.launcher); /* whoever is first */
    close(tube[1]);
    bool failed = j.launcher < 0 || read(tube[0], &why, sizeof why) > 0;
    close(tube[0]);
    if (!failed) {
        j.due = meg_clock() + AGAIN;
        wait_for(&j, &signs);
        end_like(&j);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return meg_fail(e, MEG_EIO, "cannot run %s: %s", words[0], strerror(why));
}
