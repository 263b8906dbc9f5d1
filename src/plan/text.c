/* Plan files: see text.h. */
#include "plan/text.h"
#include "base/nearest.h"
#include "graph/fingerprint.h"
#include "ops/optimizer/optimizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char FIRST_LINE[] = "megalith plan 1";

typedef struct given { /* a word of the plan or its optimizer, and where it stands */
    const char *word, *value;
    int number;
} given;

typedef struct reader {
    meg_error *error;
    meg_plan_text *out;
    int number; /* of the line at hand */
    given *list;
    size_t count, list_room;
} reader;

/* ---- tables ---- */

/* Can the value be read? */
static meg_status try_value(meg_error *e, const meg_param *param, const meg_form *f,
                            const char *value)
{
    _Alignas(16) char room[MEG_TEXT]; /* takes a value of any kind */
    meg_param one[] = {*param, {0}};
    one->offset = 0;
    return meg_options_set(e, &(meg_form){one, f->what, f->pool}, param->name, value, room);
}

/* The row of a word of the plan or of any optimizer. */
static const meg_param *find_any(const char *word)
{
    const meg_param *param = meg_param_find(meg_plan_params, word);
    for (int i = 0; !param && meg_optimizer_at(i); i++)
        param = meg_param_find(meg_optimizer_at(i)->params, word);
    return param;
}

static const meg_optimizer *optimizer_of(const given *list, size_t count)
{
    const char *name = meg_param_find(meg_plan_params, "optimizer")->initial;
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].word, "optimizer") == 0) name = list[i].value;
    return meg_optimizer_find(name);
}

/* ---- reading ---- */

static meg_status wrong(const reader *r, int number, const char *message)
{
    return meg_fail(r->error, MEG_EDATA, "%s:%d: %s", r->out->what, number, message);
}

static meg_status read_graph(reader *r, const char *value)
{
    r->out->graph = meg_pool_text(r->out->pool, "%s", value);
    return MEG_OK;
}

static meg_status read_fingerprint(reader *r, const char *value)
{
    char *end;
    size_t digits = strspn(value, "0123456789abcdef");
    if (digits != 16 || value[digits])
        return wrong(r, r->number, "a fingerprint is 16 hexadecimal digits, in small letters");
    r->out->fingerprint = strtoull(value, &end, 16);
    r->out->has_fingerprint = true;
    return MEG_OK;
}

static meg_status read_ranks(reader *r, const char *value)
{
    static const meg_param one[] = {{"ranks", MEG_PARAM_INT, 0, NULL, NULL, NULL, 1, 1 << 20}, {0}};
    char what[MEG_TEXT];
    snprintf(what, sizeof what, "%.200s:%d", r->out->what, r->number);
    meg_form form = {one, what, NULL};
    return meg_options_set(r->error, &form, "ranks", value, &r->out->ranks);
}

static meg_status read_goal(reader *r, const char *value)
{
    meg_param goal = *meg_param_find(meg_plan_params, "goal");
    char what[MEG_TEXT];
    snprintf(what, sizeof what, "%.200s:%d", r->out->what, r->number);
    goal.name = "chosen_for";
    goal.offset = 0;
    meg_form form = {(meg_param[]){goal, {0}}, what, NULL};
    return meg_options_set(r->error, &form, goal.name, value, &r->out->chosen_for);
}

/* Words that say what a plan was made for; all others are its own. */
static const struct descriptor {
    const char *word;
    meg_status (*read)(reader *r, const char *value);
} DESCRIPTORS[] = {{"graph", read_graph},
                   {"fingerprint", read_fingerprint},
                   {"ranks", read_ranks},
                   {"chosen_for", read_goal},
                   {NULL, NULL}};

/* NULL: the word is none of them. */
static const struct descriptor *describes(const char *word)
{
    for (const struct descriptor *d = DESCRIPTORS; d->word; d++)
        if (strcmp(d->word, word) == 0) return d;
    return NULL;
}

static meg_status unknown_word(const reader *r, const char *word)
{
    char known[512] = "graph fingerprint ranks chosen_for", hint[MEG_HINT];
    meg_nearest n = meg_nearest_to(word);
    for (const meg_param *p = meg_plan_params; p->name; p++) {
        meg_nearest_try(&n, p->name);
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", p->name);
    }
    for (int i = 0; meg_optimizer_at(i); i++)
        for (const meg_param *p = meg_optimizer_at(i)->params; p->name; p++)
            meg_nearest_try(&n, p->name);
    meg_nearest_hint(&n, hint);
    return meg_fail(r->error, MEG_EDATA,
                    "%s:%d: unknown word '%.60s'%s; known: %s, and the optimizer's", r->out->what,
                    r->number, word, hint, known);
}

static meg_status add_word(reader *r, const char *word, meg_excerpt seen)
{
    meg_pool *pool = r->out->pool;
    const char *value = meg_pool_text(pool, "%.*s", seen.length, seen.at);
    const struct descriptor *d = describes(word);
    if (!d && !find_any(word)) return unknown_word(r, word);
    for (size_t i = 0; i < r->count; i++)
        MEG_CHECK(r->error, strcmp(r->list[i].word, word) != 0, MEG_EDATA,
                  "%s:%d: '%s' is given again; line %d has it already", r->out->what, r->number,
                  word, r->list[i].number);
    r->list = meg_grow(r->list, &r->list_room, r->count + 1, sizeof *r->list);
    r->list[r->count++] = (given){meg_pool_text(pool, "%s", word), value, r->number};
    return d ? d->read(r, value) : MEG_OK;
}

static meg_status read_line(reader *r, const char *line)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    int state;
    while ((state = meg_options_next(&line, word, &value)) > 0)
        MEG_TRY(r->error, add_word(r, word, value));
    if (state < 0)
        return wrong(r, r->number, "a quote without its end, or a word of more than 255 letters");
    return MEG_OK;
}

/* Every word must be one of the plan or of the chosen optimizer, with a value that can be read. */
static meg_status check_word(reader *r, const meg_optimizer *o, const given *w)
{
    meg_plan_text *t = r->out;
    const meg_param *param = meg_param_find(meg_plan_params, w->word);
    if (!param) param = meg_param_find(o->params, w->word);
    MEG_CHECK(r->error, param, MEG_EDATA, "%s:%d: '%s' is not a word of optimizer=%s", t->what,
              w->number, w->word, o->name);
    const meg_form form = {param, meg_pool_text(t->pool, "%.200s:%d", t->what, w->number), t->pool};
    MEG_TRY(r->error, try_value(r->error, param, &form, w->value));
    bool plain = *w->value && !strpbrk(w->value, " \t'\"");
    const char *quote = plain ? "" : strchr(w->value, '"') ? "'" : "\"";
    t->options = meg_pool_text(t->pool, "%s%s%s=%s%s%s", t->options, *t->options ? " " : "",
                               w->word, quote, w->value, quote);
    return MEG_OK;
}

static meg_status check_words(reader *r)
{
    const meg_optimizer *o = optimizer_of(r->list, r->count);
    MEG_CHECK(r->error, o, MEG_EDATA,
              "%s: the optimizer is not known: `megalith list optimizers` names those that are",
              r->out->what);
    for (size_t i = 0; i < r->count; i++)
        if (!describes(r->list[i].word)) MEG_TRY(r->error, check_word(r, o, &r->list[i]));
    return MEG_OK;
}

/* A line without its comment: # counts at the start of a word. */
static void cut_comment(char *line)
{
    for (char *at = line; *at; at++) {
        bool starts = at == line || at[-1] == ' ' || at[-1] == '\t';
        if (*at != '#' || !starts) continue;
        *at = '\0';
        return;
    }
}

static meg_status read_all(reader *r, const char *text, size_t size)
{
    MEG_CHECK(r->error, size <= MEG_PLAN_TEXT_MAX, MEG_EDATA, "%s: more than %d bytes",
              r->out->what, MEG_PLAN_TEXT_MAX);
    const char *end = text + size;
    for (r->number = 1; text < end; r->number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        bool first = r->number == 1;
        if (memchr(text, 0, length)) return wrong(r, r->number, "this is no text");
        size_t shown = length && text[length - 1] == '\r' ? length - 1 : length;
        char *line = meg_pool_text(r->out->pool, "%.*s", (int)shown, text);
        if (first && strcmp(line, FIRST_LINE) != 0)
            return wrong(r, 1, "not a plan: its first line must be 'megalith plan 1'");
        cut_comment(line);
        if (!first) MEG_TRY(r->error, read_line(r, line));
        text += length + (stop != NULL);
    }
    if (r->number == 1) return wrong(r, 1, "not a plan: it is empty");
    return check_words(r);
}

meg_status meg_plan_text_read(meg_error *e, const char *what, const char *text, size_t size,
                              meg_plan_text **out)
{
    meg_pool *pool = meg_pool_new();
    meg_plan_text *t = meg_pool_alloc(pool, sizeof *t);
    *t = (meg_plan_text){.pool = pool, .what = meg_pool_text(pool, "%s", what)};
    t->graph = t->options = "";
    t->chosen_for = MEG_GOAL_GIVEN;
    reader r = {.error = e, .out = t};
    meg_status status = read_all(&r, text, size);
    free(r.list);
    if (status == MEG_OK) *out = t;
    else meg_plan_text_free(t);
    return status;
}

void meg_plan_text_free(meg_plan_text *t)
{
    if (t) meg_pool_free(t->pool);
}

/* ---- using ---- */

meg_status meg_plan_text_fits(const meg_plan_text *t, meg_error *e, const meg_graph *g, int ranks)
{
    uint64_t print = meg_graph_fingerprint(g);
    MEG_CHECK(e, !t->has_fingerprint || t->fingerprint == print, MEG_EARG,
              "%s was made for another graph: %s with fingerprint %016" PRIx64 ", but %s, as it is "
              "now, has %016" PRIx64
              ": make a plan anew, or drop the line fingerprint= to use its words",
              t->what, *t->graph ? t->graph : "one", t->fingerprint, g->name, print);
    MEG_CHECK(e, t->ranks == 0 || t->ranks == ranks, MEG_EARG,
              "%s was made for %" PRId64 " rank%s, but here %s %d: start %" PRId64 " (-np %" PRId64
              "; plan, explain: --ranks %" PRId64
              "), make a plan anew, or drop the line ranks= to use its words",
              t->what, t->ranks, t->ranks == 1 ? "" : "s", ranks == 1 ? "is" : "are", ranks,
              t->ranks, t->ranks, t->ranks);
    return MEG_OK;
}

meg_status meg_plan_text_join(const meg_plan_text *t, meg_error *e, const char *extra,
                              const char **out)
{
    char word[MEG_TEXT], brief[2][MEG_BRIEF];
    meg_excerpt seen;
    meg_given theirs;
    const char *all = t->options, *at = extra, *begin = at;
    for (; meg_options_next(&at, word, &seen) > 0; begin = at) {
        if (!meg_given_find(t->options, word, &theirs)) {
            begin += strspn(begin, " ");
            all = meg_pool_text(t->pool, "%s%s%.*s", all, *all ? " " : "", (int)(at - begin),
                                begin);
            continue;
        }
        const meg_param *param = find_any(word);
        const char *value = meg_pool_text(t->pool, "%.*s", seen.length, seen.at);
        const char *held = meg_pool_text(t->pool, "%.*s", theirs.value.length, theirs.value.at);
        MEG_CHECK(e, param && meg_param_same(param, value, held), MEG_EARG,
                  "%s=%s was given, but %s has %s=%s: change one of them, or drop it", word,
                  meg_brief(value, brief[0]), t->what, word, meg_brief(held, brief[1]));
    }
    *out = meg_pool_text(t->pool, "%s%s", all, begin); /* what cannot be read: others say why */
    return MEG_OK;
}

/* ---- writing ---- */

enum {
    CHOSEN,
    GIVEN,
    BY_DEFAULT,
    SECTIONS
};

/* Which section a word of the plan stands in. */
static int section_of(const meg_plan *p, const char *word)
{
    if (p->chosen && meg_options_has(p->chosen, word)) return CHOSEN;
    return p->words && meg_options_has(p->words, word) ? GIVEN : BY_DEFAULT;
}

typedef struct writer {
    const meg_plan *plan;
    FILE *out;
    int section;
    bool begun; /* it has its headline */
} writer;

static void write_headline(writer *w)
{
    static const char *const goals[] = {"time", "memory", "cost"};
    static const char *const headline[] = {
        "chosen by a search: change them, or take them away for the default", "given",
        "neither chosen nor given: as they are by default"};
    if (w->begun) return;
    w->begun = true;
    bool none = w->section == CHOSEN && !*w->plan->chosen;
    fprintf(w->out, "\n# %s\n",
            none ? "a search found nothing better than the defaults" : headline[w->section]);
    if (w->section == CHOSEN) fprintf(w->out, "chosen_for=%s\n", goals[w->plan->chosen_for]);
}

static void write_words(writer *w, const meg_param *table, const void *settings)
{
    meg_pool *pool = meg_pool_new();
    for (; table && table->name; table++) {
        meg_param one[] = {*table, {0}};
        if (section_of(w->plan, table->name) != w->section) continue;
        one->initial = NULL; /* defaults are written, too: a later version may have others */
        write_headline(w);
        fprintf(w->out, "%s\n", meg_options_text(pool, one, settings));
    }
    meg_pool_free(pool);
}

void meg_plan_text_write(const meg_plan *p, FILE *out)
{
    fprintf(out, "%s\n", FIRST_LINE);
    char *name = strdup(p->source->name);
    if (!name) abort();
    for (char *at = name; *at; at++) /* it is for people; a file's name may hold anything */
        if (*at <= ' ' || strchr("\"'#", *at)) *at = '_';
    fprintf(out, "graph=%s\nfingerprint=%016" PRIx64 "\nranks=%d\n", name,
            meg_graph_fingerprint(p->source), p->world.ranks);
    free(name);
    meg_plan_options complete = p->options; /* whoever reads it has nothing to choose */
    complete.goal = MEG_GOAL_GIVEN;
    for (int i = 0; i < SECTIONS; i++) {
        writer w = {p, out, i, false};
        if (i == CHOSEN && p->chosen_for != MEG_GOAL_GIVEN) write_headline(&w);
        write_words(&w, meg_plan_params, &complete);
        write_words(&w, p->optimizer->params, p->settings);
    }
}
