/* Links of a book: see links.h. */
#include "machine/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes a second that a core copies through the system's network stack: a message between nodes keeps so
 * much of a core busy as it is slower than this. A round figure; inside a node the copy is the message. */
static const double THROUGH_STACK = 2e9;
static const double SLOWER = 0.9; /* than alone, where messages share something */

enum {
    LARGE = 1 << 20 /* bytes of a message whose latency does not count any more */
};

typedef struct line {
    bool inside;
    double latency, hop;
    int64_t pairs;
    bool both;
    char at[MEG_TEXT], sums[MEG_TEXT];
} line;

static const meg_param PARAMS[] = {
    {"latency", MEG_PARAM_REAL, offsetof(line, latency), NULL, "seconds", NULL, 0, 1e3},
    {"hop", MEG_PARAM_REAL, offsetof(line, hop), "0", "seconds", NULL, 0, 1e3},
    {"pairs", MEG_PARAM_INT, offsetof(line, pairs), "1", "at once", NULL, 1, 1 << 20},
    {"both", MEG_PARAM_BOOL, offsetof(line, both), "no", "ways at once", NULL, 0, 0},
    {"at", MEG_PARAM_TEXT, offsetof(line, at), NULL, "bytes:rate,...", NULL, 0, 0},
    {"sums", MEG_PARAM_TEXT, offsetof(line, sums), "", "bytes:rate,...", NULL, 0, 0},
    {0}};

static meg_status read_points(meg_error *e, const char *text, meg_link_point at[], int *points)
{
    *points = 0;
    for (const char *from = text; *from;) {
        char *end;
        double bytes = strtod(from, &end);
        MEG_CHECK(e, *end == ':' && end > from && bytes >= 0 && bytes < 1e15, MEG_EDATA,
                  "at=%s: bytes:rate, one behind the other with commas", text);
        const char *second = end + 1;
        double rate = strtod(second, &end);
        MEG_CHECK(e, end > second && (*end == ',' || !*end) && rate > 0 && isfinite(rate),
                  MEG_EDATA, "at=%s: %s is no rate", text, second);
        MEG_CHECK(e, *points < MEG_LINK_POINTS, MEG_EDATA, "at=%s: more than %d sizes", text,
                  MEG_LINK_POINTS);
        bool ascends = !*points || (int64_t)bytes > at[*points - 1].bytes;
        MEG_CHECK(e, ascends, MEG_EDATA, "at=%s: sizes ascend", text);
        at[(*points)++] = (meg_link_point){(int64_t)bytes, rate};
        from = *end ? end + 1 : end;
    }
    return MEG_OK;
}

static meg_status read_line(meg_error *e, const char *text, line *out)
{
    const char *words = strchr(text, ' ');
    *out = (line){.inside = strncmp(text, "inside", 6) == 0};
    return meg_options_parse(e, PARAMS, "a link of a book of prices", words ? words + 1 : "", out);
}

/* Of large messages: the best of them, since others on the machine only ever slow one down. */
static double rate_of_large(const meg_link *l)
{
    double best = l->at[l->points - 1].bandwidth;
    for (int i = 0; i < l->points; i++)
        if (l->at[i].bytes >= LARGE) best = fmax(best, l->at[i].bandwidth);
    return best;
}

/* What many messages have together: inside a node a limit if it is less than as many alone, where both ways count; between
 * nodes, each way for itself, what the network was seen to carry. */
static void limit(const line *w, const meg_link *together, meg_link *l)
{
    double messages = (double)w->pairs * (w->both && w->inside ? 2 : 1);
    double all = messages * rate_of_large(together);
    if (w->both && !w->inside && rate_of_large(together) < SLOWER * rate_of_large(l))
        l->both = 2 * (double)w->pairs * rate_of_large(together);
    if (messages > 1 && all < SLOWER * messages * rate_of_large(l)) l->all = all;
    else if (!w->inside) l->all = fmax(l->all, all);
}

meg_status meg_links_read(meg_error *e, const meg_prices *book, meg_machine *m)
{
    for (int i = 0; meg_prices_link_at(book, i); i++) {
        line w;
        meg_link read = {0};
        const char *text = meg_prices_link_at(book, i);
        if (strncmp(text, "inside ", 7) != 0 && strncmp(text, "between ", 8) != 0) continue;
        MEG_TRY(e, read_line(e, text, &w));
        MEG_TRY(e, read_points(e, w.at, read.at, &read.points));
        MEG_CHECK(e, read.points > 0, MEG_EDATA, "at=%s has no sizes", w.at);
        MEG_TRY(e, read_points(e, w.sums, read.sum, &read.sums));
        meg_link *l = w.inside ? &m->inside : &m->between;
        bool alone = w.pairs == 1 && !w.both;
        if (!alone) {
            limit(&w, &read, l);
            continue;
        }
        read.latency = w.latency;
        read.hop = w.hop;
        read.cpu = w.inside ? 1 : fmin(1, rate_of_large(&read) / THROUGH_STACK);
        *l = read;
        if (!w.inside) l->all = rate_of_large(&read);
    }
    return MEG_OK;
}
