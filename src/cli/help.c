/* `megalith help [COMMAND [MODEL]]`, and what --help prints. All of it comes from the tables. */
#include "cli/words.h"
#include "zoo/zoo.h"

#include <string.h>

void meg_help_overview(FILE *out)
{
    fputs("Megalith trains deep networks too large for one device or one machine.\n\n"
          "usage: megalith COMMAND [--word value ...]\n\n",
          out);
    for (int i = 0; meg_command_at(i); i++)
        fprintf(out, "  %-9s %s\n", meg_command_at(i)->name, meg_command_at(i)->doc);
    fputs("\n`megalith help COMMAND` lists the words of a command. To begin with:\n"
          "  megalith train cnn\n",
          out);
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
    }
    if (c->takes & MEG_TAKES_MODEL && !choice.model)
        fprintf(out, "\nand those of the model: `megalith help %s MODEL`, `megalith list models`\n",
                c->name);
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    if (a->places == 0) {
        meg_help_overview(stdout);
        return MEG_OK;
    }
    const meg_command *c = meg_command_find(a->place[0]);
    MEG_CHECK(e, c, MEG_EARG, "no command '%s': `megalith help` lists them", a->place[0]);
    meg_help_command(c, a->place[1], stdout);
    return MEG_OK;
}

const meg_command meg_command_help = {
    .name = "help",
    .usage = "[COMMAND [MODEL]]",
    .doc = "says what there is, and the words of a command",
    .places_max = 2,
    .run = run,
};
