/* `megalith help [COMMAND [MODEL] | WORD]`, and what --help prints. All of it comes from the tables. */
#include "base/nearest.h"
#include "cli/words.h"
#include "plan/search/search.h"
#include "zoo/zoo.h"

#include <string.h>

void meg_help_overview(FILE *out)
{
    fputs("Megalith trains deep networks too large for one device or one machine.\n\n"
          "usage: megalith COMMAND [--word value ...]\n\n",
          out);
    for (int i = 0; meg_command_at(i); i++)
        fprintf(out, "  %-9s %s\n", meg_command_at(i)->name, meg_command_at(i)->doc);
    fputs("\n`megalith help COMMAND` lists the words of a command, `megalith help WORD` explains "
          "one. "
          "To begin with:\n"
          "  megalith train cnn\n",
          out);
}

/* Is this a word that a search sets where it is not given? It is if there is something to search while all others are
 * given: so the search itself says which they are. */
static bool is_chosen(const char *word, meg_pool *pool)
{
    const char *others = "";
    for (const meg_param *p = meg_plan_params; p->name; p++)
        if (strcmp(p->name, word) != 0) others = meg_pool_text(pool, "%s %s=1", others, p->name);
    return meg_search_wanted(others, 2);
}

static void print_chosen(FILE *out)
{
    meg_pool *pool = meg_pool_new();
    fputs("\nOn several ranks those of these that are not given are chosen, whatever their "
          "defaults say:\n ",
          out);
    for (const meg_param *p = meg_plan_params; p->name; p++)
        if (is_chosen(p->name, pool)) fprintf(out, " %s", p->name);
    fputs(
        "\nA few lines say what was chosen, and why; --goal given leaves them at their defaults.\n"
        "One rank alone keeps the defaults where these fit into its memory.\n",
        out);
    meg_pool_free(pool);
}

void meg_help_command(const meg_command *c, const char *model, FILE *out)
{
    fprintf(out, "usage: megalith %s %s\n\n%s.\n", c->name, c->usage, c->doc);
    if (c->more) fprintf(out, "\n%s", c->more);
    meg_choice choice = {NULL, model ? meg_choice_model(model) : NULL};
    meg_book book;
    for (int i = 0; meg_book_at(c, &choice, i, &book); i++) {
        if (!book.params->name || (!choice.model && book.model)) continue;
        const char *kind = book.model       ? "model "
                           : book.optimizer ? "optimizer "
                           : i == 0         ? "the command "
                                            : "";
        if (i == 0)
            fputs("\nWords are written --word value or --word=value; - and _ are the same. "
                  "Sizes: 4096, 64KiB, 2GB.\n",
                  out);
        fprintf(out, "\nwords of %s%s:\n", kind, book.title);
        meg_options_help(book.params, out);
        if (book.params == meg_plan_params) print_chosen(out);
    }
    if (c->takes & MEG_TAKES_MODEL && !choice.model)
        fprintf(out, "\nand those of the model: `megalith help %s MODEL`, `megalith list models`\n",
                c->name);
}

static const meg_param *word_of(const meg_command *c, const char *word, meg_book *book)
{
    const meg_choice any = {NULL, NULL};
    return meg_word_find(c, &any, word, book);
}

/* A word, with each of the meanings that it has among the commands. Is there any? */
static bool explain_word(const char *given, FILE *out)
{
    char word[64];
    bool found = false;
    meg_book book;
    snprintf(word, sizeof word, "%s", given);
    for (char *at = word; *at; at++)
        if (*at == '-') *at = '_';
    for (int i = 0; meg_command_at(i); i++) {
        bool told = false;
        const meg_param *p = word_of(meg_command_at(i), word, &book);
        for (int k = 0; p && k < i && !told; k++) {
            meg_book other;
            told = word_of(meg_command_at(k), word, &other) == p;
        }
        if (!p || told) continue;
        const meg_param alone[2] = {*p, {0}};
        fprintf(out, "a word of %s%s:\n", book.model ? "model " : "", book.title);
        meg_options_help(alone, out);
        found = true;
    }
    return found;
}

/* Commands first: `help trian` means one. */
static meg_status nothing_to_explain(const char *asked, meg_error *e)
{
    const meg_choice any = {NULL, NULL};
    char hint[MEG_HINT];
    meg_nearest n = meg_nearest_to(asked);
    meg_book book;
    for (int i = 0; meg_command_at(i); i++)
        meg_nearest_try(&n, meg_command_at(i)->name);
    for (int i = 0; meg_command_at(i); i++)
        for (int k = 0; meg_book_at(meg_command_at(i), &any, k, &book); k++)
            for (const meg_param *p = book.params; p->name; p++)
                meg_nearest_try(&n, p->name);
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG,
                    "no command or word '%s'%s: `megalith help` lists commands, `megalith help "
                    "train` the words of one",
                    asked, hint);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    if (a->places == 0) {
        meg_help_overview(stdout);
        return MEG_OK;
    }
    const meg_command *c = meg_command_find(a->place[0]);
    if (!c && a->places == 1 && explain_word(a->place[0], stdout)) return MEG_OK;
    if (!c) return nothing_to_explain(a->place[0], e);
    if (a->places > 1 && !meg_choice_model(a->place[1]))
        return meg_unknown(e, "no model", a->place[1], meg_zoo_name);
    meg_help_command(c, a->place[1], stdout);
    return MEG_OK;
}

const meg_command meg_command_help = {
    .name = "help",
    .usage = "[COMMAND [MODEL] | WORD]",
    .doc = "says what there is, and the words of a command",
    .places_max = 2,
    .run = run,
};
