/* Option strings: see option.h.
 *
 * Each kind of parameter is one row of KINDS: how it is read, how it is written, what help calls it. A
 * value spelled like the default is always allowed, so a default may lie outside the range ("0:
 * auto"), and may be empty for a list ("": no axes given).
 */
#include "base/option.h"
#include "base/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char BLANKS[] = " \t\r\n";

typedef struct site { /* where a value stands, for messages */
    const char *what;
    const meg_param *param;
    meg_pool *pool; /* of strings; NULL: they are constants */
} site;

typedef struct kind {
    const char *form; /* for help texts */
    meg_status (*read)(meg_error *e, const site *s, const char *text, void *out);
    size_t (*print)(const meg_param *p, const void *in, char *text, size_t size);
} kind;

typedef union any { /* room for a value of any kind */
    int64_t integer;
    double real;
    bool yes;
    int choice;
    char text[MEG_TEXT];
    const char *string;
    meg_axes axes;
    meg_pads pads;
} any;

enum {
    NUMBERS = 512 /* more than any value but strings takes */
};

/* Where the word of `p`, a pair of `text`, occurs first. */
static const char *first_place(const char *text, const meg_given *p)
{
    meg_given q = *p;
    for (const char *at = text; meg_given_next(at, &q); at = q.end)
        if (q.word.length == p->word.length &&
            memcmp(q.word.at, p->word.at, (size_t)q.word.length) == 0)
            break;
    return q.word.at;
}

/* ---- reading ---- */

static meg_status out_of_range(meg_error *e, const site *s, const char *text)
{
    double lo = s->param->lo, hi = s->param->hi;
    char range[96];
    if (lo == 0 && hi == 0) snprintf(range, sizeof range, "what 64 bits can hold");
    else if (hi >= 1e15) snprintf(range, sizeof range, "%.15g or more", lo);
    else if (lo <= -1e15) snprintf(range, sizeof range, "%.15g or less", hi);
    else snprintf(range, sizeof range, "%.15g..%.15g", lo, hi);
    return meg_fail(e, MEG_EARG, "%s: %s=%s is out of range: use %s", s->what, s->param->name, text,
                    range);
}

static bool in_range(const site *s, double value)
{
    const meg_param *p = s->param;
    return (p->lo == 0 && p->hi == 0) || (p->lo <= value && value <= p->hi);
}

static bool is_initial(const site *s, const char *text)
{
    return s->param->initial && strcmp(s->param->initial, text) == 0;
}

/* Reads a decimal number and says where it ends; false if there is none or it does not fit. */
static bool scan_int(const char *text, int64_t *out, const char **end)
{
    char *stop;
    if (!*text || !strchr("+-0123456789", *text)) return false;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    if (stop == text || errno) return false;
    *out = value;
    *end = stop;
    return true;
}

static meg_status read_int(meg_error *e, const site *s, const char *text, void *out)
{
    int64_t value = 0;
    const char *end, *digits = text + (*text == '-' || *text == '+');
    bool whole = *digits && strspn(digits, "0123456789") == strlen(digits);
    bool fits = whole && scan_int(text, &value, &end);
    if (whole && !fits) return out_of_range(e, s, text);
    MEG_CHECK(e, whole, MEG_EARG, "%s: %s=%s is not a whole number: write it in digits", s->what,
              s->param->name, text);
    if (!in_range(s, (double)value) && !is_initial(s, text)) return out_of_range(e, s, text);
    *(int64_t *)out = value;
    return MEG_OK;
}

static meg_status read_real(meg_error *e, const site *s, const char *text, void *out)
{
    char *end;
    double value = strtod(text, &end);
    bool digits = strpbrk(text, "0123456789"); /* 1e999 is infinite, too, but a number */
    bool endless = isinf(value) && !digits && s->param->choices;
    bool number = isfinite(value) || endless || (isinf(value) && digits);
    MEG_CHECK(e, end != text && !*end && number, MEG_EARG, "%s: %s=%s is not a number", s->what,
              s->param->name, text);
    bool inside = (isfinite(value) || endless) && in_range(s, value);
    if (!inside && !is_initial(s, text)) return out_of_range(e, s, text);
    *(double *)out = value;
    return MEG_OK;
}

typedef struct unit {
    const char *name;
    int64_t bytes;
} unit;

static const unit UNITS[] = {
    {"", 1},
    {"B", 1},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {NULL, 0},
};

/* long double holds every int64_t on the machines we know, so whole numbers stay exact. */
static bool scan_bytes(const char *text, int64_t *out)
{
    char *end;
    long double value = strtold(text, &end);
    if (end == text || !strchr("0123456789.", *text)) return false;
    for (const unit *u = UNITS; u->name; u++) {
        if (strcmp(end, u->name) != 0) continue;
        value *= (long double)u->bytes;
        if (!(value < 0x1p63L)) return false;
        *out = (int64_t)value;
        return true;
    }
    return false;
}

static meg_status read_bytes(meg_error *e, const site *s, const char *text, void *out)
{
    int64_t value;
    MEG_CHECK(e, scan_bytes(text, &value), MEG_EARG,
              "%s: %s=%s is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB", s->what,
              s->param->name, text);
    if (!in_range(s, (double)value) && !is_initial(s, text)) return out_of_range(e, s, text);
    *(int64_t *)out = value;
    return MEG_OK;
}

static meg_status read_bool(meg_error *e, const site *s, const char *text, void *out)
{
    static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on", NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *(bool *)out = i % 2;
        return MEG_OK;
    }
    return meg_fail(e, MEG_EARG, "%s: %s=%s is neither yes nor no", s->what, s->param->name, text);
}

static meg_status read_choice(meg_error *e, const site *s, const char *text, void *out)
{
    const char *at = s->param->choices;
    char choice[MEG_TEXT], meant[MEG_TEXT] = "", hint[MEG_HINT];
    meg_nearest n = meg_nearest_to(text);
    for (int i = 0; *at; i++, at += *at == '|') {
        at += snprintf(choice, sizeof choice, "%.*s", (int)strcspn(at, "|"), at);
        if (strcmp(text, choice) == 0) {
            *(int *)out = i;
            return MEG_OK;
        }
        meg_nearest_try(&n, choice);
        if (n.word == choice) n.word = strcpy(meant, choice);
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "%s: %s=%s is not known%s: use %s", s->what, s->param->name, text,
                    hint, s->param->choices);
}

static meg_status read_text(meg_error *e, const site *s, const char *text, void *out)
{
    (void)e, (void)s; /* the length was checked with the pair */
    memcpy(out, text, strlen(text) + 1);
    return MEG_OK;
}

static meg_status read_string(meg_error *e, const site *s, const char *text, void *out)
{
    (void)e;
    if (s->pool) {
        size_t size = strlen(text) + 1;
        text = memcpy(meg_pool_alloc(s->pool, size), text, size);
    } else if (text != s->param->initial) {
        fprintf(stderr, "megalith: %s: %s= needs a pool\n", s->what, s->param->name);
        abort();
    }
    *(const char **)out = text;
    return MEG_OK;
}

static meg_status read_axes(meg_error *e, const site *s, const char *text, void *out)
{
    meg_axes axes = {0};
    const char *at = text;
    while (!(axes.count == 0 && is_initial(s, text) && !*text)) { /* an empty default: none */
        int64_t value;
        MEG_CHECK(e, axes.count < MEG_AXES_MAX && scan_int(at, &value, &at) && (!*at || *at == 'x'),
                  MEG_EARG, "%s: %s=%s is not a list of 1 to %d numbers like 3 or 3x5", s->what,
                  s->param->name, text, MEG_AXES_MAX);
        if (!in_range(s, (double)value) && !is_initial(s, text)) return out_of_range(e, s, text);
        axes.at[axes.count++] = value;
        if (!*at++) break;
    }
    *(meg_axes *)out = axes;
    return MEG_OK;
}

static meg_status read_pads(meg_error *e, const site *s, const char *text, void *out)
{
    meg_pads pads = {0};
    const char *at = text;
    while (!(pads.count == 0 && is_initial(s, text) && !*text)) {
        int64_t before = 0, after = 0;
        bool good = pads.count < MEG_AXES_MAX && scan_int(at, &before, &at);
        after = before;
        if (good && *at == ':') good = scan_int(at + 1, &after, &at);
        MEG_CHECK(e, good && (!*at || *at == 'x'), MEG_EARG,
                  "%s: %s=%s is not a list of 1 to %d pads like 1, 1x2 or 0:1x2:2", s->what,
                  s->param->name, text, MEG_AXES_MAX);
        bool inside = in_range(s, (double)before) && in_range(s, (double)after);
        if (!inside && !is_initial(s, text)) return out_of_range(e, s, text);
        pads.before[pads.count] = before;
        pads.after[pads.count++] = after;
        if (!*at++) break;
    }
    *(meg_pads *)out = pads;
    return MEG_OK;
}

/* ---- writing ---- */

static size_t print_int(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    return (size_t)snprintf(text, size, "%" PRId64, *(const int64_t *)in);
}

static size_t print_real(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    double value = *(const double *)in;
    char all[64] = "";
    for (int digits = 6; digits <= 17; digits++) { /* the fewest that give the same number */
        snprintf(all, sizeof all, "%.*g", digits, value);
        if (strtod(all, NULL) == value) break;
    }
    return (size_t)snprintf(text, size, "%s", all);
}

static size_t print_size(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    int64_t value = *(const int64_t *)in;
    const unit *best = UNITS;
    for (const unit *u = UNITS; u->name; u++)
        if (value && u->name[0] && u->name[1] == 'i' && value % u->bytes == 0) best = u;
    return (size_t)snprintf(text, size, "%" PRId64 "%s", value / best->bytes, best->name);
}

static size_t print_bool(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    return (size_t)snprintf(text, size, "%s", *(const bool *)in ? "yes" : "no");
}

static size_t print_choice(const meg_param *p, const void *in, char *text, size_t size)
{
    const char *at = p->choices;
    for (int i = *(const int *)in; i > 0; i--)
        at += strcspn(at, "|") + 1;
    return (size_t)snprintf(text, size, "%.*s", (int)strcspn(at, "|"), at);
}

static size_t print_text(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const char *value = in;
    bool quoted = !*value || *value == '"' || *value == '\'' || strpbrk(value, BLANKS);
    const char *quote = !quoted ? "" : strchr(value, '"') ? "'" : "\"";
    return (size_t)snprintf(text, size, "%s%s%s", quote, value, quote);
}

static size_t print_string(const meg_param *p, const void *in, char *text, size_t size)
{
    return print_text(p, *(const char *const *)in, text, size);
}

static size_t print_axes(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const meg_axes *axes = in;
    char all[NUMBERS] = "";
    int used = 0;
    for (int i = 0; i < axes->count; i++)
        used += snprintf(all + used, sizeof all - (size_t)used, "%s%" PRId64, i ? "x" : "",
                         axes->at[i]);
    return (size_t)snprintf(text, size, "%s", all);
}

static size_t print_pads(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const meg_pads *pads = in;
    char all[NUMBERS] = "";
    int used = 0;
    for (int i = 0; i < pads->count; i++) {
        used += snprintf(all + used, sizeof all - (size_t)used, "%s%" PRId64, i ? "x" : "",
                         pads->before[i]);
        if (pads->after[i] == pads->before[i]) continue;
        used += snprintf(all + used, sizeof all - (size_t)used, ":%" PRId64, pads->after[i]);
    }
    return (size_t)snprintf(text, size, "%s", all);
}

static const kind KINDS[] = {
    [MEG_PARAM_INT] = {"N", read_int, print_int},
    [MEG_PARAM_REAL] = {"X", read_real, print_real},
    [MEG_PARAM_BYTES] = {"BYTES", read_bytes, print_size},
    [MEG_PARAM_BOOL] = {"yes|no", read_bool, print_bool},
    [MEG_PARAM_CHOICE] = {NULL, read_choice, print_choice},
    [MEG_PARAM_TEXT] = {"TEXT", read_text, print_text},
    [MEG_PARAM_STRING] = {"TEXT", read_string, print_string},
    [MEG_PARAM_AXES] = {"N[xN..]", read_axes, print_axes},
    [MEG_PARAM_PADS] = {"N[:N][xN..]", read_pads, print_pads},
};

/* ---- tables ---- */

static meg_status unknown(meg_error *e, const meg_form *f, const meg_given *p)
{
    char known[700] = "", word[64], hint[MEG_HINT];
    size_t used = 0;
    snprintf(word, sizeof word, "%.*s", p->word.length, p->word.at);
    meg_nearest n = meg_nearest_to(word);
    for (const meg_param *q = f->table; q && q->name; q++) {
        meg_nearest_try(&n, q->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, " %s", q->name);
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "%s: unknown word '%s'%s; known:%s", f->what, word, hint,
                    used ? known : " none");
}

const meg_param *meg_param_find(const meg_param *table, const char *word)
{
    for (; table && table->name; table++)
        if (strcmp(table->name, word) == 0) return table;
    return NULL;
}

static meg_status assign(meg_error *e, const meg_form *f, const meg_given *p, void *out)
{
    const meg_param *param = f->table;
    while (param && param->name && !meg_excerpt_is(p->word, param->name))
        param++;
    if (!param || !param->name) return unknown(e, f, p);

    MEG_CHECK(e, !p->open, MEG_EARG, "%s: %s: the quote is not closed", f->what, param->name);
    MEG_CHECK(e, p->value.at || param->kind == MEG_PARAM_BOOL, MEG_EARG,
              "%s: '%s' has no value: write %s=...", f->what, param->name, param->name);
    MEG_CHECK(e, p->value.length < MEG_TEXT || param->kind == MEG_PARAM_STRING, MEG_EARG,
              "%s: the value of %s has %d characters; at most %d are allowed", f->what, param->name,
              p->value.length, MEG_TEXT - 1);
    char *value = p->value.at ? strndup(p->value.at, (size_t)p->value.length) : strdup("yes");
    MEG_CHECK(e, value, MEG_ENOMEM, "%s: no memory for %s=", f->what, param->name);
    site s = {f->what, param, f->pool};
    meg_status status = KINDS[param->kind].read(e, &s, value, (char *)out + param->offset);
    free(value);
    return status;
}

static void set_initial(const meg_param *p, void *out)
{
    meg_error e;
    site s = {"default", p, NULL};
    meg_status status = KINDS[p->kind].read(&e, &s, p->initial, out);
    if (status == MEG_OK) return;
    fprintf(stderr, "megalith: bad table: %s\n", e.message);
    abort();
}

meg_status meg_options_fill(meg_error *e, const meg_form *f, const char *text, void *out)
{
    meg_given p;
    if (!text) text = "";
    for (const meg_param *q = f->table; q && q->name; q++)
        if (q->initial) set_initial(q, (char *)out + q->offset);

    for (const char *at = text; meg_given_next(at, &p); at = p.end) {
        MEG_TRY(e, assign(e, f, &p, out));
        MEG_CHECK(e, first_place(text, &p) == p.word.at, MEG_EARG, "%s: '%.*s' is given twice",
                  f->what, p.word.length, p.word.at);
    }
    for (const meg_param *q = f->table; q && q->name; q++)
        MEG_CHECK(e, q->initial || meg_given_find(text, q->name, &p), MEG_EARG,
                  "%s: '%s' is missing: write %s=... (%s)", f->what, q->name, q->name,
                  q->doc ? q->doc : "required");
    return MEG_OK;
}

meg_status meg_options_parse(meg_error *e, const meg_param *table, const char *what,
                             const char *text, void *out)
{
    return meg_options_fill(e, &(meg_form){table, what, NULL}, text, out);
}

meg_status meg_options_set(meg_error *e, const meg_form *f, const char *word, const char *value,
                           void *out)
{
    meg_given p = {.word = {word, (int)strlen(word)}, .value = {value, 0}};
    if (value) p.value.length = (int)strlen(value);
    return assign(e, f, &p, out);
}

/* As a text in which numbers are spelled one way. */
static bool is_default(const meg_param *p, const void *in)
{
    char now[NUMBERS], initial[NUMBERS];
    any fresh;
    if (!p->initial) return false;
    if (p->kind == MEG_PARAM_STRING) return strcmp(*(const char *const *)in, p->initial) == 0;
    set_initial(p, &fresh);
    KINDS[p->kind].print(p, in, now, sizeof now);
    KINDS[p->kind].print(p, &fresh, initial, sizeof initial);
    return strcmp(now, initial) == 0;
}

size_t meg_options_print(const meg_param *table, const void *in, char *text, size_t size)
{
    size_t used = 0;
    if (size) text[0] = '\0';
    for (const meg_param *p = table; p && p->name; p++) {
        const void *at = (const char *)in + p->offset;
        if (is_default(p, at)) continue;
        size_t left = used < size ? size - used : 0;
        used += (size_t)snprintf(left ? text + used : NULL, left, "%s%s=", used ? " " : "",
                                 p->name);
        left = used < size ? size - used : 0;
        used += KINDS[p->kind].print(p, at, left ? text + used : NULL, left);
    }
    return used;
}

char *meg_options_text(meg_pool *pool, const meg_param *table, const void *in)
{
    size_t size = meg_options_print(table, in, NULL, 0) + 1;
    char *text = meg_pool_alloc(pool, size);
    meg_options_print(table, in, text, size);
    return text;
}

bool meg_param_same(const meg_param *p, const char *a, const char *b)
{
    const char *const value[] = {a, b};
    char text[2][NUMBERS];
    if (p->kind == MEG_PARAM_STRING) return strcmp(a, b) == 0;
    for (int i = 0; i < 2; i++) {
        meg_error e;
        any room;
        site s = {"", p, NULL};
        if (strlen(value[i]) >= MEG_TEXT) return false;
        if (KINDS[p->kind].read(&e, &s, value[i], &room) != MEG_OK) return false;
        KINDS[p->kind].print(p, &room, text[i], sizeof text[i]);
    }
    return strcmp(text[0], text[1]) == 0;
}

/* A flag's default in the words that its form has: yes, no. */
static const char *initial_text(const meg_param *p)
{
    bool flag = false;
    if (p->kind != MEG_PARAM_BOOL) return p->initial;
    meg_param alone = *p;
    alone.offset = 0;
    set_initial(&alone, &flag);
    return flag ? "yes" : "no";
}

void meg_options_help(const meg_param *table, FILE *out)
{
    for (const meg_param *p = table; p && p->name; p++) {
        char left[MEG_TEXT];
        const char *form = p->kind == MEG_PARAM_CHOICE ? p->choices : KINDS[p->kind].form;
        snprintf(left, sizeof left, "%s=%s", p->name, form);
        fprintf(out, "  %-24s %s", left, p->doc ? p->doc : "");
        if (!p->initial) fputs(" (required)", out);
        else if (*p->initial) fprintf(out, " (default %s)", initial_text(p));
        fputc('\n', out);
    }
}

const char *meg_brief(const char *value, char out[MEG_BRIEF])
{
    size_t length = strlen(value), most = MEG_BRIEF - 1 - strlen("...");
    bool whole = length <= most + strlen("...");
    snprintf(out, MEG_BRIEF, "%.*s%s", (int)(whole ? length : most), value, whole ? "" : "...");
    return out;
}

/* ---- bytes ---- */

meg_status meg_parse_bytes(meg_error *e, const char *what, const char *text, int64_t *out)
{
    MEG_CHECK(e, scan_bytes(text, out), MEG_EARG,
              "%s: %s is not a size: write it like 4096, 64KiB, 1.5GiB or 2GB", what, text);
    return MEG_OK;
}

void meg_print_bytes(int64_t bytes, char text[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes > -1024 && bytes < 1024) {
        snprintf(text, 32, "%" PRId64 " B", bytes);
        return;
    }
    double value = (double)bytes / 1024;
    int u = 0;
    for (; fabs(value) >= 1024 && u < 5; u++)
        value /= 1024;
    snprintf(text, 32, "%.2f %s", value, units[u]);
}
