/* Commands: one const descriptor each, in one file of commands/, one line in commands.def.
 *
 *     megalith COMMAND PLACE.. --word value --word=value --flag ..
 *     megalith COMMAND --word value .. PROGRAM ARGUMENTS..               (hands_on)
 *
 * One dash is as good as two, so that -np is what it is elsewhere.
 *
 * A word belongs to the first of these tables that has it: the command's own, then those of the
 * library that the command takes. The library's words are handed on as option strings, so that the
 * command line and the C interface know the same words. Results go to stdout, all else to stderr.
 */
#ifndef MEG_CLI_COMMAND_H
#define MEG_CLI_COMMAND_H

#include "base/pool.h"
#include "base/rule.h"

typedef enum meg_target { /* where a word goes */
    MEG_TO_COMMAND,
    MEG_TO_CONTEXT,
    MEG_TO_PLAN, /* the optimizer's words, too */
    MEG_TO_TRAINER,
    MEG_TO_MODEL,
    MEG_TO_PLAN_FILE,
    MEG_TO_RANKS, /* np: main sees to it */
    MEG_TO_KINDS, /* freeze, train: of every command that takes a model */
    MEG_TARGETS
} meg_target;

enum {
    MEG_PLACES = 2,
    MEG_TAKES_CONTEXT = 1 << MEG_TO_CONTEXT,
    MEG_TAKES_PLAN = 1 << MEG_TO_PLAN,
    MEG_TAKES_TRAINER = 1 << MEG_TO_TRAINER,
    MEG_TAKES_MODEL = 1 << MEG_TO_MODEL,
    MEG_TAKES_PLAN_FILE = 1 << MEG_TO_PLAN_FILE,
    MEG_TAKES_RANKS = 1 << MEG_TO_RANKS,
};

typedef struct meg_arguments { /* a command line, sorted */
    const struct meg_command *command;
    meg_pool *pool;
    int places; /* arguments without dashes */
    const char *place[MEG_PLACES];
    char **rest; /* of a command that hands it on: from the first argument without dashes on */
    const char *text[MEG_TARGETS]; /* option strings */
    const void *settings;          /* of the command's own table */
    bool help;                     /* --help was among them */
} meg_arguments;

typedef struct meg_command {
    const char *name;
    const char *usage; /* what follows the name */
    const char *doc;
    const char *more; /* paragraphs of its help, after the usage; NULL: none */
    unsigned takes;   /* the library's tables: MEG_TAKES_... */
    int places;       /* how many must be given; more, up to MEG_PLACES, may be */
    int places_max;
    bool hands_on;           /* another command line follows its words, to be read by others */
    bool priced;             /* its seconds matter: the machine is probed if nobody did */
    bool stops;              /* in order, when SIGUSR1 asks it to (interrupt.h) */
    const meg_param *params; /* its own words; NULL: none */
    const meg_rule *rules;   /* words of any table that have no effect, by a meg_arguments */
    size_t settings_bytes;
    meg_status (*run)(const meg_arguments *a, meg_error *e);
} meg_command;

#define MEG_COMMAND(id) extern const meg_command meg_command_##id;
#include "cli/commands.def"
#undef MEG_COMMAND

const meg_command *meg_command_at(int i);              /* NULL past the end */
const char *meg_command_name(int i);                   /* likewise */
const meg_command *meg_command_find(const char *name); /* NULL: unknown */

/* Sorts the arguments after the command's name. An error is one of usage: a word that no table has,
 * a value that is missing; what is wrong with a value is said by whoever reads it. */
meg_status meg_arguments_read(meg_arguments *a, meg_error *e, const meg_command *c, char *argv[]);
void meg_arguments_free(meg_arguments *a);

/* Reads the command's own words into a->settings. */
meg_status meg_arguments_settle(meg_arguments *a, meg_error *e);

/* The value of a word of one of the tables; NULL: it was not given. */
const char *meg_arguments_value(const meg_arguments *a, meg_target target, const char *word);

/* Was this word given? */
bool meg_arguments_has(const meg_arguments *a, meg_target target, const char *word);

/* `word=value`, quoted where the syntax of option strings asks for it; NULL: it cannot be. */
char *meg_quoted(meg_pool *p, const char *word, const char *value);

/* The pages of `megalith help`. */
void meg_help_overview(FILE *out);
void meg_help_command(const meg_command *c, const char *model, FILE *out);

#endif
