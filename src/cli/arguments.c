/* Sorting a command line: see command.h.
 *
 * Two passes, since MODEL and --optimizer, which decide what words there are, may come last: the
 * first reads words by the tables of all models and optimizers, the second by those of the chosen.
 */
#include "cli/words.h"
#include "ops/optimizer/optimizer.h"
#include "zoo/zoo.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct given { /* one word of the command line */
    const char *word;  /* with underscores */
    const char *value; /* NULL: a bare word */
} given;

typedef struct reader {
    meg_arguments *a;
    meg_error *error;
    char **rest; /* what is not read yet */
    given *list;
    size_t count, room;
} reader;

/* ---- first pass ---- */

/* Dashes before a word; 0: it is none, but a place or a value. Numbers may have a minus sign. */
static size_t dashes(const char *text)
{
    if (text[0] != '-') return 0;
    if (text[1] == '-') return 2;
    return isalpha((unsigned char)text[1]) ? 1 : 0;
}

static bool is_yes_or_no(const char *text)
{
    static const meg_param one[] = {{"flag", MEG_PARAM_BOOL, 0, "no", NULL, NULL, 0, 0}, {0}};
    meg_error e;
    bool value;
    return meg_options_set(&e, &(meg_form){one, "", NULL}, "flag", text, &value) == MEG_OK;
}

/* The value after a word: what follows "=", else the next argument; of a flag only if that is a yes
 * or no. */
static const char *take_value(reader *r, const char *equals, const meg_param *p)
{
    if (equals) return equals + 1;
    const char *next = *r->rest;
    bool taken = next && !dashes(next) && (p->kind != MEG_PARAM_BOOL || is_yes_or_no(next));
    if (!taken) return NULL;
    r->rest++;
    return next;
}

static meg_status read_word(reader *r, const char *text)
{
    const meg_command *c = r->a->command;
    meg_choice any = {NULL, r->a->places ? r->a->place[0] : NULL};
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    size_t skip = dashes(text);
    char *word = meg_pool_text(r->a->pool, "%.*s", (int)(length - skip), text + skip);
    meg_book book;
    for (char *at = word; *at; at++)
        if (*at == '-') *at = '_';
    const meg_param *p = meg_word_find(c, &(meg_choice){NULL, NULL}, word, &book);
    if (!p) return meg_word_unknown(r->error, c, &any, word);

    const char *value = take_value(r, equals, p);
    MEG_CHECK(r->error, value || p->kind == MEG_PARAM_BOOL, MEG_EARG, "%s: %.*s has no value: %s",
              c->name, (int)length, text, p->doc);
    r->list = meg_grow(r->list, &r->room, r->count + 1, sizeof *r->list);
    r->list[r->count++] = (given){word, value};
    return MEG_OK;
}

static meg_status read_all(reader *r)
{
    meg_arguments *a = r->a;
    while (*r->rest) {
        const char *text = *r->rest++;
        if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
            a->help = true;
        } else if (dashes(text)) {
            MEG_TRY(r->error, read_word(r, text));
        } else if (a->command->hands_on) {
            a->rest = r->rest - 1;
            break;
        } else {
            MEG_CHECK(r->error, a->places < a->command->places_max, MEG_EARG,
                      "%s: what is '%s'? usage: megalith %s %s", a->command->name, text,
                      a->command->name, a->command->usage);
            a->place[a->places++] = text;
        }
    }
    bool enough = a->places >= a->command->places && (a->rest || !a->command->hands_on);
    MEG_CHECK(r->error, a->help || enough, MEG_EARG,
              "usage: megalith %s %s (`megalith help %s` says more)", a->command->name,
              a->command->usage, a->command->name);
    return MEG_OK;
}

/* ---- second pass ---- */

static const char *initial_of(const meg_param *table, const char *word)
{
    while (table->name && strcmp(table->name, word) != 0)
        table++;
    return table->initial;
}

/* An unknown optimizer or model has no table: the library will say what is wrong. A plan file may
 * name the optimizer. */
static meg_choice choice_of(const reader *r)
{
    const meg_arguments *a = r->a;
    meg_book plan;
    meg_choice choice = {NULL, NULL};
    if (!(a->command->takes & MEG_TAKES_MODEL)) return choice;
    if (a->places) choice.model = meg_choice_model(a->place[0]);
    if (!meg_word_find(a->command, &choice, "optimizer", &plan)) return choice;
    choice.optimizer = initial_of(plan.params, "optimizer");
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->list[i].word, "optimizer") == 0) choice.optimizer = r->list[i].value;
        if (strcmp(r->list[i].word, "plan") == 0) return choice.optimizer = NULL, choice;
    }
    if (!meg_optimizer_find(choice.optimizer)) choice.optimizer = NULL;
    return choice;
}

char *meg_quoted(meg_pool *p, const char *word, const char *value)
{
    bool plain = *value && !strpbrk(value, " \t\r\n'\"");
    const char *quote = plain ? "" : strchr(value, '"') ? "'" : "\"";
    if (*quote && strchr(value, *quote)) return NULL;
    return meg_pool_text(p, "%s=%s%s%s", word, quote, value, quote);
}

static meg_status assign(reader *r, const meg_choice *choice, const given *w)
{
    meg_arguments *a = r->a;
    meg_book book;
    if (!meg_word_find(a->command, choice, w->word, &book))
        return meg_word_unknown(r->error, a->command, choice, w->word);
    const char **to = &a->text[book.to];
    const char *pair = book.raw ? w->value : w->word;
    if (w->value && !book.raw) pair = meg_quoted(a->pool, w->word, w->value);
    MEG_CHECK(r->error, pair, MEG_EARG, "%s: --%s %s: a value has ' or \" in it, not both",
              a->command->name, w->word, w->value);
    *to = meg_pool_text(a->pool, "%s%s%s", *to, **to ? " " : "", pair);
    return MEG_OK;
}

static meg_status sort(reader *r)
{
    MEG_TRY(r->error, read_all(r));
    meg_choice choice = choice_of(r);
    for (size_t i = 0; i < r->count && !r->a->help; i++)
        MEG_TRY(r->error, assign(r, &choice, &r->list[i]));
    return MEG_OK;
}

meg_status meg_arguments_read(meg_arguments *a, meg_error *e, const meg_command *c, char *argv[])
{
    *a = (meg_arguments){.command = c, .pool = meg_pool_new()};
    for (int i = 0; i < MEG_TARGETS; i++)
        a->text[i] = "";
    reader r = {.a = a, .error = e, .rest = argv};
    meg_status status = sort(&r);
    free(r.list);
    return status;
}

meg_status meg_arguments_settle(meg_arguments *a, meg_error *e)
{
    const meg_command *c = a->command;
    void *settings = meg_pool_alloc(a->pool, c->settings_bytes + 1);
    a->settings = settings;
    const meg_form form = {c->params, c->name, a->pool};
    return meg_options_fill(e, &form, a->text[MEG_TO_COMMAND], settings);
}

void meg_arguments_free(meg_arguments *a)
{
    meg_pool_free(a->pool);
    *a = (meg_arguments){0};
}

const char *meg_arguments_value(const meg_arguments *a, meg_target target, const char *word)
{
    meg_given p;
    if (!meg_given_find(a->text[target], word, &p) || !p.value.at || p.open) return NULL;
    return meg_pool_text(a->pool, "%.*s", p.value.length, p.value.at);
}

bool meg_arguments_has(const meg_arguments *a, meg_target target, const char *word)
{
    return meg_arguments_value(a, target, word) != NULL;
}
