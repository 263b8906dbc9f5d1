/* Outputs of the OSU Micro-Benchmarks: see osu.h. Versions differ in titles' ends and in the columns behind the
 * first two; what stands before the first # is the launcher's, and is passed over.
 */
#include "machine/osu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONGEST = 1024, /* letters of a line */
    SMALLEST = 1024 /* bytes of a message whose bandwidth means something */
};

static const double LEAST = 1e-6, MOST = 1e15; /* of any figure, as it is written */

static const struct {
    const char *name;
    double unit;
} KINDS[MEG_OSU_KINDS] = {{"osu_latency", 1e-6},
                          {"osu_bw", 1e6},
                          {"osu_bibw", 1e6},
                          {"osu_mbw_mr", 1e6},
                          {"osu_allreduce", 1e-6}};

/* What a comment must have in it; the first row that any of the comments has is meant. Titles come before heads of
 * columns, which a file without its title has, too. */
static const struct {
    const char *text;
    int kind; /* -1: another benchmark */
} SIGNS[] = {{"MPI_Put", -1},
             {"MPI_Get", -1},
             {"Non-blocking", -1},
             {"Multiple Bandwidth", MEG_OSU_PAIRS},
             {"Bi-Directional Bandwidth Test", MEG_OSU_BOTH_WAYS},
             {" Allreduce Latency Test", MEG_OSU_ALLREDUCE},
             {" Bandwidth Test", MEG_OSU_BANDWIDTH},
             {"MPI Latency Test", MEG_OSU_LATENCY},
             {"CUDA Latency Test", MEG_OSU_LATENCY},
             {"ROCM Latency Test", MEG_OSU_LATENCY},
             {"# OSU ", -1},
             {"Messages/s", MEG_OSU_PAIRS},
             {"Bandwidth (MB/s)", MEG_OSU_BANDWIDTH},
             {"Latency (us)", MEG_OSU_LATENCY}};

enum {
    NO_SIGN = sizeof SIGNS / sizeof *SIGNS
};

const char *meg_osu_name(meg_osu_kind kind)
{
    return KINDS[kind].name;
}

/* ---- reading ---- */

typedef struct reader {
    meg_error *error;
    const char *what;
    int number;  /* of the line at hand */
    int sign;    /* the best that was seen */
    bool begun;  /* a # was seen */
    meg_osu osu; /* figures as they are written */
} reader;

static meg_status wrong(const reader *r, const char *message)
{
    return meg_fail(r->error, MEG_EDATA, "%s:%d: %s", r->what, r->number, message);
}

static meg_status read_row(reader *r, const char *line)
{
    char *end, *behind;
    double bytes = strtod(line, &end), figure = strtod(end, &behind);
    if (end == line || behind == end || !(bytes >= 0 && bytes <= 0x1p40 && bytes == floor(bytes)))
        return wrong(r, "a row has the bytes of a message and a figure");
    if (!(figure >= LEAST && figure <= MOST)) return wrong(r, "a figure is a number above 0");
    int n = r->osu.rows;
    if (n == MEG_OSU_ROWS) return wrong(r, "more than 64 rows");
    if (n > 0 && (int64_t)bytes <= r->osu.row[n - 1].bytes)
        return wrong(r, "sizes of messages must ascend: one run of one benchmark makes a file");
    r->osu.row[n].bytes = (int64_t)bytes;
    r->osu.row[n].figure = figure;
    r->osu.rows++;
    return MEG_OK;
}

static meg_status read_line(reader *r, const char *line)
{
    line += strspn(line, " \t\r");
    if (!*line) return MEG_OK;
    if (*line == '#') {
        r->begun = true;
        for (int i = 0; i < r->sign; i++)
            if (strstr(line, SIGNS[i].text)) r->sign = i;
        return MEG_OK;
    }
    return r->begun ? read_row(r, line) : MEG_OK;
}

static meg_status read_all(reader *r, const char *text, size_t size)
{
    const char *end = text + size;
    char line[LONGEST + 1];
    if (size > MEG_OSU_TEXT_MAX) return wrong(r, "more than 1 MiB: no output of a benchmark");
    for (r->number = 1; text < end; r->number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        if (length > LONGEST) return wrong(r, "a line of more than 1024 bytes");
        if (memchr(text, 0, length)) return wrong(r, "this is no text");
        memcpy(line, text, length);
        line[length] = '\0';
        MEG_TRY(r->error, read_line(r, line));
        text += length + (stop != NULL);
    }
    return MEG_OK;
}

meg_status meg_osu_read(meg_error *e, const char *what, const char *text, size_t size, meg_osu *out)
{
    reader r = {.error = e, .what = what, .number = 1, .sign = NO_SIGN};
    MEG_TRY(e, read_all(&r, text, size));
    MEG_CHECK(e, r.sign < NO_SIGN && SIGNS[r.sign].kind >= 0, MEG_EDATA,
              "%s: no output of osu_latency, osu_bw, osu_bibw, osu_mbw_mr or osu_allreduce: "
              "its lines with # do not say so",
              what);
    MEG_CHECK(e, r.osu.rows > 0, MEG_EDATA, "%s: no rows", what);
    *out = r.osu;
    out->kind = (meg_osu_kind)SIGNS[r.sign].kind;
    for (int i = 0; i < out->rows; i++)
        out->row[i].figure *= KINDS[out->kind].unit;
    return MEG_OK;
}

/* ---- a link ---- */

static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", value);
    return strtod(text, NULL);
}

static const meg_osu *find(const meg_osu *osu, int count, meg_osu_kind kind)
{
    for (int i = 0; i < count; i++)
        if (osu[i].kind == kind) return &osu[i];
    return NULL;
}

static double best(const meg_osu *o)
{
    double most = 0;
    for (int i = 0; o && i < o->rows; i++)
        most = fmax(most, o->row[i].figure);
    return most;
}

/* What one message alone reaches. Of half a round trip the latency is taken off, which is all of a small
 * message: hence not more than three quarters (as exec/probe/links.c has it). */
static double bandwidth_at(const meg_osu *o, int row, double latency)
{
    double figure = o->row[row].figure;
    if (o->kind == MEG_OSU_BANDWIDTH) return figure;
    return (double)o->row[row].bytes / fmax(figure - latency, figure / 4);
}

/* Sizes a factor of four apart, and the largest. */
static void add_points(const meg_osu *o, meg_link *l)
{
    for (int i = 0; i < o->rows && l->points < MEG_LINK_POINTS; i++) {
        bool last = i + 1 == o->rows;
        int64_t before = l->points ? l->at[l->points - 1].bytes : SMALLEST / 4;
        if (!last && o->row[i].bytes < 4 * before) continue;
        if (o->row[i].bytes == 0) continue;
        l->at[l->points].bytes = o->row[i].bytes;
        l->at[l->points++].bandwidth = rounded(bandwidth_at(o, i, l->latency));
    }
}

static double sharing(const meg_osu *osu, int count)
{
    double all = best(find(osu, count, MEG_OSU_PAIRS));
    double both = best(find(osu, count, MEG_OSU_BOTH_WAYS)) / 2;
    if (all == 0) all = best(find(osu, count, MEG_OSU_BANDWIDTH));
    return both > 0 && (all == 0 || both < all) ? both : all;
}

meg_status meg_osu_link(meg_error *e, const char *what, const meg_osu *osu, int count,
                        meg_link *out)
{
    const meg_osu *latency = find(osu, count, MEG_OSU_LATENCY);
    const meg_osu *bandwidth = find(osu, count, MEG_OSU_BANDWIDTH);
    meg_link l = {.latency = INFINITY};
    MEG_CHECK(e, latency, MEG_EDATA, "%s: no output of osu_latency is among the files", what);
    for (int i = 0; i < latency->rows; i++) /* no message is faster than the smallest */
        l.latency = fmin(l.latency, latency->row[i].figure);
    l.latency = rounded(l.latency);
    bool large = latency->row[latency->rows - 1].bytes >= SMALLEST;
    MEG_CHECK(e, large || bandwidth, MEG_EDATA,
              "%s: osu_latency ends before messages of %d bytes, and there is no osu_bw", what,
              SMALLEST);
    add_points(large ? latency : bandwidth, &l);
    MEG_CHECK(e, l.points > 0, MEG_EDATA, "%s: no messages of any size", what);
    l.all = rounded(sharing(osu, count));
    *out = l;
    return MEG_OK;
}
