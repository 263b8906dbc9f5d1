/* Option strings: see option.h.
 *
 * A value runs to the next blank; one that holds blanks is quoted, dir="my data". Each kind of
 * parameter is one row of KINDS: how it is read, how it is written, what help calls it. A value
 * spelled like the default is always allowed, so a default may lie outside the range ("0: auto"),
 * and may be empty for a list ("": no axes given).
 */
#include "base/option.h"
#include "base/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char BLANKS[] = " \t\r\n";

typedef struct pair {               /* one `word=value` inside an option string */
    const char *word, *value, *end; /* value: NULL of a bare word; end: where scanning goes on */
    int word_length, value_length;
    bool open; /* a quote without its end */
} pair;

typedef struct site { /* where a value stands, for messages */
    const char *what;
    const meg_param *param;
} site;

typedef struct kind {
    const char *form; /* for help texts */
    meg_status (*read)(meg_error *e, const site *s, const char *text, void *out);
    void (*print)(const meg_param *p, const void *in, char *text, size_t size);
} kind;

typedef union any { /* room for a value of any kind */
    int64_t integer;
    double real;
    bool yes;
    int choice;
    char text[MEG_TEXT];
    meg_axes axes;
    meg_pads pads;
} any;

/* ---- pairs ---- */

static bool next_pair(const char *at, pair *p)
{
    at += strspn(at, BLANKS);
    if (!*at) return false;
    size_t length = strcspn(at, "= \t\r\n");
    *p = (pair){.word = at, .word_length = (int)length, .end = at + length};
    if (*p->end != '=') return true;

    const char *value = p->end + 1;
    if (*value == '"' || *value == '\'') {
        const char *close = strchr(value + 1, *value);
        p->open = !close;
        p->value = value + 1;
        p->value_length = (int)(close ? (size_t)(close - value - 1) : strlen(value + 1));
        p->end = close ? close + 1 : p->value + p->value_length;
        return true;
    }
    p->value = value;
    p->value_length = (int)strcspn(value, BLANKS);
    p->end = value + p->value_length;
    return true;
}

static bool word_is(const pair *p, const char *word)
{
    return strlen(word) == (size_t)p->word_length &&
           memcmp(p->word, word, (size_t)p->word_length) == 0;
}

static bool find_pair(const char *text, const char *word, pair *p)
{
    for (const char *at = text; next_pair(at, p); at = p->end)
        if (word_is(p, word)) return true;
    return false;
}

/* Where the word of `p`, a pair of `text`, occurs first. */
static const char *first_place(const char *text, const pair *p)
{
    pair q = *p;
    for (const char *at = text; next_pair(at, &q); at = q.end)
        if (q.word_length == p->word_length && memcmp(q.word, p->word, (size_t)q.word_length) == 0)
            break;
    return q.word;
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

static void print_int(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    snprintf(text, size, "%" PRId64, *(const int64_t *)in);
}

static void print_real(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    double value = *(const double *)in;
    for (int digits = 6; digits <= 17; digits++) { /* the fewest that give the same number */
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

static void print_size(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    int64_t value = *(const int64_t *)in;
    const unit *best = UNITS;
    for (const unit *u = UNITS; u->name; u++)
        if (value && u->name[0] && u->name[1] == 'i' && value % u->bytes == 0) best = u;
    snprintf(text, size, "%" PRId64 "%s", value / best->bytes, best->name);
}

static void print_bool(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    snprintf(text, size, "%s", *(const bool *)in ? "yes" : "no");
}

static void print_choice(const meg_param *p, const void *in, char *text, size_t size)
{
    const char *at = p->choices;
    for (int i = *(const int *)in; i > 0; i--)
        at += strcspn(at, "|") + 1;
    snprintf(text, size, "%.*s", (int)strcspn(at, "|"), at);
}

static void print_text(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const char *value = in;
    bool quoted = !*value || *value == '"' || *value == '\'' || strpbrk(value, BLANKS);
    const char *quote = !quoted ? "" : strchr(value, '"') ? "'" : "\"";
    snprintf(text, size, "%s%s%s", quote, value, quote);
}

static void print_axes(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const meg_axes *axes = in;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < axes->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "x" : "", axes->at[i]);
}

static void print_pads(const meg_param *p, const void *in, char *text, size_t size)
{
    (void)p;
    const meg_pads *pads = in;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < pads->count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "x" : "",
                                 pads->before[i]);
        if (pads->after[i] == pads->before[i] || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, ":%" PRId64, pads->after[i]);
    }
}

static const kind KINDS[] = {
    [MEG_PARAM_INT] = {"N", read_int, print_int},
    [MEG_PARAM_REAL] = {"X", read_real, print_real},
    [MEG_PARAM_BYTES] = {"BYTES", read_bytes, print_size},
    [MEG_PARAM_BOOL] = {"yes|no", read_bool, print_bool},
    [MEG_PARAM_CHOICE] = {NULL, read_choice, print_choice},
    [MEG_PARAM_TEXT] = {"TEXT", read_text, print_text},
    [MEG_PARAM_AXES] = {"N[xN..]", read_axes, print_axes},
    [MEG_PARAM_PADS] = {"N[:N][xN..]", read_pads, print_pads},
};

/* ---- tables ---- */

static meg_status unknown(meg_error *e, const meg_param *table, const char *what, const pair *p)
{
    char known[700] = "", word[64], hint[MEG_HINT];
    size_t used = 0;
    snprintf(word, sizeof word, "%.*s", p->word_length, p->word);
    meg_nearest n = meg_nearest_to(word);
    for (const meg_param *q = table; q && q->name; q++) {
        meg_nearest_try(&n, q->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, " %s", q->name);
    }
    meg_nearest_hint(&n, hint);
    return meg_fail(e, MEG_EARG, "%s: unknown word '%s'%s; known:%s", what, word, hint,
                    used ? known : " none");
}

const meg_param *meg_param_find(const meg_param *table, const char *word)
{
    for (; table && table->name; table++)
        if (strcmp(table->name, word) == 0) return table;
    return NULL;
}

static meg_status assign(meg_error *e, const meg_param *table, const char *what, const pair *p,
                         void *out)
{
    const meg_param *param = table;
    while (param && param->name && !word_is(p, param->name))
        param++;
    if (!param || !param->name) return unknown(e, table, what, p);

    MEG_CHECK(e, !p->open, MEG_EARG, "%s: %s: the quote is not closed", what, param->name);
    MEG_CHECK(e, p->value || param->kind == MEG_PARAM_BOOL, MEG_EARG,
              "%s: '%s' has no value: write %s=...", what, param->name, param->name);
    MEG_CHECK(e, p->value_length < MEG_TEXT, MEG_EARG,
              "%s: the value of %s has %d characters; at most %d are allowed", what, param->name,
              p->value_length, MEG_TEXT - 1);
    char value[MEG_TEXT];
    if (p->value) snprintf(value, sizeof value, "%.*s", p->value_length, p->value);
    else snprintf(value, sizeof value, "yes");
    site s = {what, param};
    return KINDS[param->kind].read(e, &s, value, (char *)out + param->offset);
}

static void set_initial(const meg_param *p, void *out)
{
    meg_error e;
    site s = {"default", p};
    meg_status status = KINDS[p->kind].read(&e, &s, p->initial, out);
    if (status == MEG_OK) return;
    fprintf(stderr, "megalith: bad table: %s\n", e.message);
    abort();
}

meg_status meg_options_parse(meg_error *e, const meg_param *table, const char *what,
                             const char *text, void *out)
{
    pair p;
    if (!text) text = "";
    for (const meg_param *q = table; q && q->name; q++)
        if (q->initial) set_initial(q, (char *)out + q->offset);

    for (const char *at = text; next_pair(at, &p); at = p.end) {
        MEG_TRY(e, assign(e, table, what, &p, out));
        MEG_CHECK(e, first_place(text, &p) == p.word, MEG_EARG, "%s: '%.*s' is given twice", what,
                  p.word_length, p.word);
    }
    for (const meg_param *q = table; q && q->name; q++)
        MEG_CHECK(e, q->initial || find_pair(text, q->name, &p), MEG_EARG,
                  "%s: '%s' is missing: write %s=... (%s)", what, q->name, q->name,
                  q->doc ? q->doc : "required");
    return MEG_OK;
}

meg_status meg_options_set(meg_error *e, const meg_param *table, const char *what, const char *word,
                           const char *value, void *out)
{
    pair p = {.word = word, .word_length = (int)strlen(word), .value = value};
    if (value) p.value_length = (int)strlen(value);
    MEG_TRY(e, assign(e, table, what, &p, out));
    return MEG_OK;
}

bool meg_options_take(char *text, const char *word, char *value, size_t size)
{
    pair p;
    if (!text || !find_pair(text, word, &p)) return false;
    if (!p.value || p.open || (size_t)p.value_length >= size) return false;
    memcpy(value, p.value, (size_t)p.value_length);
    value[p.value_length] = '\0';
    memmove(text + (p.word - text), p.end, strlen(p.end) + 1);
    return true;
}

bool meg_options_has(const char *text, const char *word)
{
    pair p;
    return text && find_pair(text, word, &p);
}

int meg_options_next(const char **at, char word[MEG_TEXT], char value[MEG_TEXT])
{
    pair p;
    if (!next_pair(*at, &p)) return 0;
    if (p.open || p.word_length >= MEG_TEXT || p.value_length >= MEG_TEXT) return -1;
    snprintf(word, MEG_TEXT, "%.*s", p.word_length, p.word);
    snprintf(value, MEG_TEXT, "%.*s", p.value ? p.value_length : 3, p.value ? p.value : "yes");
    *at = p.end;
    return 1;
}

void meg_options_print(const meg_param *table, const void *in, char *text, size_t size)
{
    size_t used = 0;
    if (size) text[0] = '\0';
    for (const meg_param *p = table; p && p->name; p++) {
        char now[MEG_TEXT + 2], initial[MEG_TEXT + 2];
        any fresh;
        KINDS[p->kind].print(p, (const char *)in + p->offset, now, sizeof now);
        if (p->initial) {
            set_initial(p, &fresh);
            KINDS[p->kind].print(p, &fresh, initial, sizeof initial);
            if (strcmp(now, initial) == 0) continue;
        }
        if (used >= size) return;
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? " " : "", p->name,
                                 now);
    }
}

bool meg_param_same(const meg_param *p, const char *a, const char *b)
{
    const char *const value[] = {a, b};
    char text[2][2 * MEG_TEXT];
    for (int i = 0; i < 2; i++) {
        meg_error e;
        any room;
        site s = {"", p};
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
