/* The command `megalith`: finds the command in the registry, sorts its arguments, runs it.
 *
 * On many ranks all run it; only the first one's results are printed, and an error that all have is
 * told once.
 *
 * Exit codes: 0 done; 1 an error, which stderr names; 2 wrong usage; 130 interrupted, in order.
 */
#define _GNU_SOURCE
#include "base/nearest.h"
#include "base/registry.h"
#include "cli/launch/calm.h"
#include "cli/launch/launch.h"
#include "cli/words.h"
#include "comm/comm.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_DONE = 0,
    EXIT_ERROR = 1,
    EXIT_USAGE = 2,
    EXIT_INTERRUPTED = 130
};

static const meg_command *const COMMANDS[] = {
#define MEG_COMMAND(id) &meg_command_##id,
#include "cli/commands.def"
#undef MEG_COMMAND
};

MEG_REGISTRY_AT(meg_command, meg_command_at, COMMANDS)

MEG_REGISTRY_NAME(meg_command_name, meg_command_at)

MEG_REGISTRY_FIND(meg_command, meg_command_find, meg_command_at)

/* The usual options in place of a command. */
static const char *by_alias(const char *name)
{
    static const struct {
        const char *alias, *name;
    } aliases[] = {{"--help", "help"}, {"-h", "help"}, {"--version", "version"}};
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].alias, name) == 0) return aliases[i].name;
    return name;
}

static int unknown_command(const char *name)
{
    meg_error e = {0};
    meg_unknown(&e, "unknown command", name, meg_command_name);
    fprintf(stderr, "megalith: %s\n", e.message);
    return EXIT_USAGE;
}

/* What was printed is a result only if it arrived; why an earlier line did not is not known now. */
static meg_status flush_results(meg_error *e)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return MEG_OK;
    return meg_fail(e, MEG_EIO, "the results could not all be written to stdout");
}

/* The error of a command. An error before ranks know each other (a wrong word, an unknown model) is
 * one that all have, most likely, but perhaps only this one: they meet to agree, as the others do who
 * open a context, and the first tells it. */
static void tell(meg_error *e)
{
    int rank = 0;
    meg_error trouble = {0};
    meg_comm *c = NULL;
    if (!e->message[0]) return; /* it was told, as meg_session_close does */
    if (meg_comm_launched(&rank) && meg_comm_open(&trouble, &c) == MEG_OK) {
        meg_comm_agree(c, e);
        rank = meg_comm_rank(c);
        if (rank == 0) fprintf(stderr, "megalith: %s\n", e->message);
        meg_comm_barrier(c, &trouble); /* a rank that ends takes the others with it */
        meg_comm_free(c);
        return;
    }
    if (rank > 0) sleep(1); /* in which the launcher may end this one, too */
    fprintf(stderr, "megalith: %s\n", e->message);
}

/* -np 4: the same command line, as it is run by four ranks. Returns only if it was not asked for, or
 * cannot be. */
static meg_status spread(const meg_arguments *a, meg_error *e, char *argv[])
{
    int rank;
    const char *np = meg_arguments_value(a, MEG_TO_RANKS, "np");
    if (!np) return MEG_OK;
    meg_launch l = {.mpi = ""};
    l.care = meg_launch_care(a);
    MEG_TRY(e, meg_launch_ranks(e, np, &l.np));
    if (l.np == 1) return MEG_OK;
    MEG_CHECK(e, !meg_comm_launched(&rank), MEG_EARG,
              "%s: -np %s, but a launcher has started this process already: leave -np out",
              a->command->name, np);
    return meg_launch_run(e, a->pool, &l, meg_launch_without_np(a->pool, argv));
}

static int run(meg_arguments *a, meg_error *e, char *argv[])
{
    const char *model = a->command->takes & MEG_TAKES_MODEL ? a->place[0] : NULL;
    meg_status status = MEG_OK;
    if (a->help) meg_help_command(a->command, model, stdout);
    else status = meg_arguments_settle(a, e);
    if (status == MEG_OK && !a->help) status = spread(a, e, argv);
    if (status == MEG_OK && !a->help && a->command->takes & MEG_TAKES_CONTEXT) meg_calm(argv);
    if (status == MEG_OK && !a->help) status = a->command->run(a, e);
    if (status == MEG_OK) status = flush_results(e);
    if (status == MEG_OK) return EXIT_DONE;
    fflush(stdout); /* before the message, where both go to one place */
    tell(e);
    return status == MEG_EINTERRUPTED ? EXIT_INTERRUPTED : EXIT_ERROR;
}

int main(int argc, char *argv[])
{
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of write, with a message */
    if (argc < 2) {
        meg_help_overview(stderr);
        return EXIT_USAGE;
    }
    int rank = 0;
    if (meg_comm_launched(&rank) && rank > 0 && !freopen("/dev/null", "w", stdout))
        return EXIT_ERROR;
    if (argc > 2 && strcmp(argv[1], "bench") == 0 && strcmp(argv[2], "allreduce") == 0) {
        argv[1] = argv[0]; /* a bench of its own, not of a model */
        argv++;
    }
    const char *name = by_alias(argv[1]);
    const meg_command *c = meg_command_find(name);
    if (!c) return unknown_command(name);
    meg_arguments a;
    meg_error e = {0};
    int code = EXIT_USAGE;
    if (meg_arguments_read(&a, &e, c, argv + 2) == MEG_OK) code = run(&a, &e, argv);
    else tell(&e);
    meg_arguments_free(&a);
    return code;
}
