/* Books of prices as text: see prices.h. Each line begins with what it is; what has words is read by a
 * table of parameters, and behind " : " stands a key or a family, which may hold anything but line ends.
 */
#include "base/option.h"
#include "base/pool.h"
#include "machine/prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char FIRST_LINE[] = "megalith prices 1";
static const double MOST = 1e30; /* of any figure: what is more is no measurement */

enum {
    LONGEST = 4096
};

typedef struct head_words {
    int64_t threads, ranks;
    char isa[MEG_TEXT];
} head_words;

typedef struct model_words {
    double term[MEG_TERMS], error;
    int64_t samples;
} model_words;

static const meg_param head_params[] = {
    {"threads", MEG_PARAM_INT, offsetof(head_words, threads), NULL, "of a rank", NULL, 1, 1 << 20},
    {"ranks", MEG_PARAM_INT, offsetof(head_words, ranks), NULL, "probed at once", NULL, 1, 1 << 20},
    {"isa", MEG_PARAM_TEXT, offsetof(head_words, isa), NULL, "instruction set", NULL, 0, 0},
    {0}};

static const meg_param rate_params[] = {
    {"flops", MEG_PARAM_REAL, offsetof(meg_rates, flops), NULL, "", NULL, 1, 1e30},
    {"plain", MEG_PARAM_REAL, offsetof(meg_rates, plain), NULL, "", NULL, 1, 1e30},
    {"bandwidth", MEG_PARAM_REAL, offsetof(meg_rates, bandwidth), NULL, "", NULL, 1, 1e30},
    {"launch", MEG_PARAM_REAL, offsetof(meg_rates, launch), NULL, "", NULL, 0, 1e3},
    {"step", MEG_PARAM_REAL, offsetof(meg_rates, step), NULL, "", NULL, 0, 1e3},
    {"issue", MEG_PARAM_REAL, offsetof(meg_rates, issue), "0", "", NULL, 0, 1e3},
    {"post", MEG_PARAM_REAL, offsetof(meg_rates, post), "0", "", NULL, 0, 1e3},
    {"resume", MEG_PARAM_REAL, offsetof(meg_rates, resume), "0", "", NULL, 0, 1e3},
    {"turn", MEG_PARAM_REAL, offsetof(meg_rates, turn), "0", "", NULL, 0, 1e3},
    {"turn_work", MEG_PARAM_REAL, offsetof(meg_rates, turn_work), "0", "", NULL, 0, 1e3},
    {0}};

static const meg_param price_params[] = {
    {"flops", MEG_PARAM_REAL, offsetof(meg_price, flops), "0", "", NULL, 0, 1e30},
    {"bytes", MEG_PARAM_REAL, offsetof(meg_price, traffic), "0", "", NULL, 0, 1e30},
    {"seen", MEG_PARAM_REAL, offsetof(meg_price, seen), "0", "", NULL, 0, 1e30},
    {0}};

#define TERM(name, which)                                                                          \
    {                                                                                              \
        name, MEG_PARAM_REAL, offsetof(model_words, term) + (which) * sizeof(double), "0", "",     \
            NULL, 0, 1e30                                                                          \
    }
static const meg_param model_params[] = {
    TERM("base", MEG_TERM_BASE),
    TERM("flop", MEG_TERM_FLOP),
    TERM("byte", MEG_TERM_BYTE),
    TERM("cold", MEG_TERM_COLD),
    TERM("far", MEG_TERM_FAR),
    {"error", MEG_PARAM_REAL, offsetof(model_words, error), "0", "", NULL, 0, 1e30},
    {"samples", MEG_PARAM_INT, offsetof(model_words, samples), "0", "", NULL, 0, 1 << 30},
    {0}};
#undef TERM

typedef struct reader {
    meg_error *error;
    const char *what;
    int number; /* of the line at hand */
    bool has_machine, has_rates;
    meg_prices_head head;
    meg_prices *book; /* NULL until the head is complete */
} reader;

/* ---- reading ---- */

static meg_status wrong(const reader *r, const char *message)
{
    return meg_fail(r->error, MEG_EDATA, "%s:%d: %s", r->what, r->number, message);
}

static meg_status read_words(reader *r, const meg_param *table, const char *line, void *out)
{
    char what[MEG_TEXT];
    snprintf(what, sizeof what, "%.200s:%d", r->what, r->number);
    if (meg_options_parse(r->error, table, what, line, out) == MEG_OK) return MEG_OK;
    return r->error->status = MEG_EDATA; /* it is a file that is wrong, no argument */
}

static meg_status read_machine(reader *r, char *line)
{
    head_words w;
    if (r->has_machine) return wrong(r, "the machine is told twice");
    MEG_TRY(r->error, read_words(r, head_params, line, &w));
    size_t length = strspn(w.isa,
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (!length || w.isa[length] || length >= sizeof r->head.isa)
        return wrong(r, "isa is one word of letters, digits, dots and dashes");
    r->head.threads = (int)w.threads;
    r->head.ranks = (int)w.ranks;
    memcpy(r->head.isa, w.isa, length + 1);
    r->has_machine = true;
    return MEG_OK;
}

static meg_status read_rates(reader *r, char *line)
{
    if (r->has_rates || !r->has_machine)
        return wrong(r, "rates stand once, behind the line 'machine'");
    MEG_TRY(r->error, read_words(r, rate_params, line, &r->head.rates));
    r->has_rates = true;
    r->book = meg_prices_new(&r->head);
    return MEG_OK;
}

/* Cuts the line at " : ", and returns what is behind it; NULL: there is none. */
static char *cut_name(char *line)
{
    char *colon = strncmp(line, ": ", 2) == 0 ? line - 1 : strstr(line, " : ");
    if (!colon || !colon[3]) return NULL;
    *colon = '\0';
    return colon + 3;
}

static meg_status read_model(reader *r, char *line)
{
    model_words w;
    char *family = cut_name(line);
    if (!family) return wrong(r, "a model needs ' : ' and the family that it is of");
    MEG_TRY(r->error, read_words(r, model_params, line, &w));
    meg_price_model m = {.family = family, .error = w.error, .samples = (int)w.samples};
    memcpy(m.term, w.term, sizeof m.term);
    meg_prices_add_model(r->book, &m);
    return MEG_OK;
}

static meg_status read_price(reader *r, char *line)
{
    char *key = cut_name(line), *end = line;
    meg_price one = {.key = key, .seconds = strtod(line, &end)};
    if (!key) return wrong(r, "a price needs ' : ' and the kernel that it is of");
    if (end == line || (*end && *end != ' ') || !(one.seconds >= 0 && one.seconds < MOST))
        return wrong(r, "a price is a number of seconds, 0 or more");
    MEG_TRY(r->error, read_words(r, price_params, end, &one));
    meg_prices_add(r->book, &one);
    return MEG_OK;
}

static const struct {
    const char *word;
    meg_status (*read)(reader *r, char *line); /* NULL: it is kept as it is */
    bool head;
} kinds[] = {{"machine", read_machine, true},
             {"rates", read_rates, true},
             {"model", read_model, false},
             {"price", read_price, false},
             {"inside", NULL, false},
             {"between", NULL, false},
             {"disk", NULL, false}};

static meg_status read_line(reader *r, char *line)
{
    size_t length = strcspn(line, " "), count = sizeof kinds / sizeof *kinds, i = 0;
    if (!*line || *line == '#') return MEG_OK;
    while (i < count &&
           !(strlen(kinds[i].word) == length && strncmp(kinds[i].word, line, length) == 0))
        i++;
    if (i == count)
        return wrong(r, "a line begins with machine, rates, model, price, inside, between or disk");
    if (!kinds[i].head && !r->book)
        return wrong(r, "the lines 'machine' and 'rates' come before all others");
    if (kinds[i].read) return kinds[i].read(r, line + length + (line[length] == ' '));
    meg_prices_add_link(r->book, line);
    return MEG_OK;
}

static meg_status read_all(reader *r, const char *text, size_t size)
{
    const char *end = text + size;
    if (size > MEG_PRICES_TEXT_MAX) return wrong(r, "more bytes than any book has");
    for (r->number = 1; text < end; r->number++) {
        char line[LONGEST + 1];
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        if (length > LONGEST) return wrong(r, "a line of more than 4096 bytes");
        if (memchr(text, 0, length)) return wrong(r, "this is no text");
        memcpy(line, text, length);
        line[length] = '\0';
        if (r->number == 1 && strcmp(line, FIRST_LINE) != 0)
            return wrong(r, "no book of prices: its first line must be 'megalith prices 1'");
        if (r->number > 1) MEG_TRY(r->error, read_line(r, line));
        text += length + (stop != NULL);
    }
    return r->book ? MEG_OK : wrong(r, "no book of prices: 'machine' or 'rates' is missing");
}

meg_status meg_prices_read(meg_error *e, const char *what, const char *text, size_t size,
                           meg_prices **out)
{
    reader r = {.error = e, .what = what, .number = 1};
    meg_status status = read_all(&r, text, size);
    if (status == MEG_OK) *out = r.book;
    else meg_prices_free(r.book);
    return status;
}

/* ---- writing ---- */

void meg_prices_write(const meg_prices *p, FILE *out)
{
    static const char *const name[MEG_TERMS] = {"base", "flop", "byte", "cold", "far"};
    const meg_prices_head *h = meg_prices_head_of(p);
    const meg_rates *r = &h->rates;
    fprintf(out, "%s\nmachine threads=%d ranks=%d isa=%s\n", FIRST_LINE, h->threads, h->ranks,
            h->isa);
    fprintf(out, "rates flops=%.4g plain=%.4g bandwidth=%.4g launch=%.4g step=%.4g", r->flops,
            r->plain, r->bandwidth, r->launch, r->step);
    if (r->issue > 0) fprintf(out, " issue=%.4g", r->issue);
    if (r->post > 0) fprintf(out, " post=%.4g", r->post);
    if (r->resume > 0) fprintf(out, " resume=%.4g", r->resume);
    if (r->turn > 0) fprintf(out, " turn=%.4g turn_work=%.4g", r->turn, r->turn_work);
    fputs("\n", out);
    for (int i = 0; meg_prices_link_at(p, i); i++)
        fprintf(out, "%s\n", meg_prices_link_at(p, i));
    for (int i = 0; meg_prices_model_at(p, i); i++) {
        const meg_price_model *m = meg_prices_model_at(p, i);
        fputs("model", out);
        for (int k = 0; k < MEG_TERMS; k++)
            fprintf(out, " %s=%.4g", name[k], m->term[k]);
        fprintf(out, " error=%.3g samples=%d : %s\n", m->error, m->samples, m->family);
    }
    for (int i = 0; meg_prices_at(p, i); i++) {
        const meg_price *one = meg_prices_at(p, i);
        fprintf(out, "price %.4g", one->seconds);
        if (one->flops + one->traffic > 0)
            fprintf(out, " flops=%.4g bytes=%.4g", one->flops, one->traffic);
        if (one->seen > 0) fprintf(out, " seen=%.3g", one->seen);
        fprintf(out, " : %s\n", one->key);
    }
}
