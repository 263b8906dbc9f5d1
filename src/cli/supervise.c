/* A launcher under supervision: see supervise.h. Launchers end like the rank that failed first, as a
 * shell would: 137 is kill -9, perhaps the system's, for want of memory.
 */
#define _GNU_SOURCE /* strsignal */
#include "cli/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int PASSED_ON[] = {SIGINT, SIGTERM, SIGHUP};

static bool passed_on(int sign)
{
    for (size_t i = 0; i < sizeof PASSED_ON / sizeof *PASSED_ON; i++)
        if (PASSED_ON[i] == sign) return true;
    return false;
}

/* Ctrl-C reaches the launcher by itself; a second signal would be taken for impatience.
 * Was there a signal to stop? */
static bool wait_and_pass_on(pid_t child, const sigset_t *signs, int *status)
{
    bool stopped = false;
    while (waitpid(child, status, WNOHANG) == 0) {
        siginfo_t what;
        int sign = sigwaitinfo(signs, &what);
        if (sign <= 0 || !passed_on(sign)) continue;
        stopped = stopped || sign != SIGHUP;
        if (what.si_code != SI_KERNEL) kill(child, sign);
    }
    return stopped;
}

/* After Ctrl-C launchers may end with 1, or even 0, though the ranks ended with 130. */
static _Noreturn void end_like(int status, bool stopped)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), sign = code - 128;
    if (stopped && code <= 1) exit(128 + SIGINT);
    if (sign > 0 && sign < 32 && !passed_on(sign))
        fprintf(
            stderr,
            "megalith: a rank was ended by signal %d (%s), and the job with it; started again, a"
            " training with --checkpoint goes on from the newest one\n",
            sign, strsignal(sign));
    exit(code);
}

meg_status meg_supervise(meg_error *e, char *const words[])
{
    sigset_t signs, before;
    int status = 0, tube[2], why = 0; /* the tube closes when the command runs */
    sigemptyset(&signs);
    sigaddset(&signs, SIGCHLD);
    for (size_t i = 0; i < sizeof PASSED_ON / sizeof *PASSED_ON; i++)
        sigaddset(&signs, PASSED_ON[i]);
    MEG_CHECK(e, pipe2(tube, O_CLOEXEC) == 0, MEG_EIO, "cannot run %s: %s", words[0],
              strerror(errno));
    sigprocmask(SIG_BLOCK, &signs, &before);
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* ranks do not outlive who asked for them */
        execvp(words[0], words);
        why = errno;
        _exit(write(tube[1], &why, sizeof why) < 0);
    }
    if (child < 0) why = errno;
    close(tube[1]);
    bool failed = child < 0 || read(tube[0], &why, sizeof why) > 0;
    close(tube[0]);
    if (!failed) {
        bool stopped = wait_and_pass_on(child, &signs, &status);
        end_like(status, stopped);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return meg_fail(e, MEG_EIO, "cannot run %s: %s", words[0], strerror(why));
}
