/* The command `megalith`: finds the command in the registry, sorts its arguments, runs it.
 *
 * Exit codes: 0 done; 1 an error, which stderr names; 2 wrong usage; 130 interrupted, in order.
 */
#define _GNU_SOURCE
#include "cli/words.h"

#include <signal.h>
#include <string.h>

enum {
    EXIT_DONE = 0,
    EXIT_ERROR = 1,
    EXIT_USAGE = 2,
    EXIT_INTERRUPTED = 130,
    FAR = 4 /* letters between a wrong command and what may have been meant */
};

static const meg_command *const COMMANDS[] = {
#define MEG_COMMAND(id) &meg_command_##id,
#include "cli/commands.def"
#undef MEG_COMMAND
};

const meg_command *meg_command_at(int i)
{
    return i >= 0 && i < (int)(sizeof COMMANDS / sizeof *COMMANDS) ? COMMANDS[i] : NULL;
}

const meg_command *meg_command_find(const char *name)
{
    for (int i = 0; meg_command_at(i); i++)
        if (strcmp(meg_command_at(i)->name, name) == 0) return meg_command_at(i);
    return NULL;
}

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
    const meg_command *best = meg_command_at(0);
    fprintf(stderr, "megalith: unknown command '%s'; known:", name);
    for (int i = 0; meg_command_at(i); i++) {
        const meg_command *c = meg_command_at(i);
        fprintf(stderr, " %s", c->name);
        if (meg_word_distance(name, c->name) < meg_word_distance(name, best->name)) best = c;
    }
    if (meg_word_distance(name, best->name) < FAR)
        fprintf(stderr, "; did you mean %s?", best->name);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

/* What was printed is a result only if it arrived; why an earlier line did not is not known now. */
static meg_status flush_results(meg_error *e)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return MEG_OK;
    return meg_fail(e, MEG_EIO, "the results could not all be written to stdout");
}

static int run(meg_arguments *a, meg_error *e)
{
    const char *model = a->command->takes & MEG_TAKES_MODEL ? a->place[0] : NULL;
    meg_status status = MEG_OK;
    if (a->help) meg_help_command(a->command, model, stdout);
    else status = meg_arguments_settle(a, e);
    if (status == MEG_OK && !a->help) status = a->command->run(a, e);
    if (status == MEG_OK) status = flush_results(e);
    if (status == MEG_OK) return EXIT_DONE;
    fflush(stdout); /* before the message, where both go to one place */
    fprintf(stderr, "megalith: %s\n", e->message);
    return status == MEG_EINTERRUPTED ? EXIT_INTERRUPTED : EXIT_ERROR;
}

int main(int argc, char *argv[])
{
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of write, with a message */
    if (argc < 2) {
        meg_help_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = by_alias(argv[1]);
    const meg_command *c = meg_command_find(name);
    if (!c) return unknown_command(name);
    meg_arguments a;
    meg_error e = {0};
    int code = EXIT_USAGE;
    if (meg_arguments_read(&a, &e, c, argv + 2) == MEG_OK) code = run(&a, &e);
    else fprintf(stderr, "megalith: %s\n", e.message);
    meg_arguments_free(&a);
    return code;
}
