/* Drawings: see drawing.h.
 *
 *     row 0      [ image ]
 *                    |
 *     row 1      [ enc1 ]----.        arrows between neighbours are straight,
 *                    |       |        skips leave and enter at the right side;
 *     row 2      [ enc2 ]--. |        those that overlap have lanes of their own
 *                    |     | |
 *     row 3      [ dec2 ]<-' |
 *                    |       |
 *     row 4      [ dec1 ]<---'
 *
 * Viewers take 32,767 pixels a side. A long network goes on in further columns, in a picture about as
 * wide as tall; what leads from one to another goes below the one and above the other:
 *
 *      ,-->.             what is still too large (more than 100,000 boxes) is shown smaller
 *     [0]  |  [2]
 *     [1]  |  [3]
 *      '---'
 */
#include "cli/report/drawing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { /* pixels */
    LETTER = 7,
    LINE = 16,
    PAD = 10,
    GAP = 26,
    LANE = 22,
    MARGIN = 16,
    SIDE = 7,
    BOX = 2 * LINE + PAD,
    TALL = 20000, /* of one column; Graphviz needs half as much again */
    LARGEST = 32000
};

typedef struct arrow { /* from row to row, once however many values go along */
    int from, to;
    int lane; /* of a skip; -1: goes to the next row */
} arrow;

typedef struct page {
    const meg_drawing *drawing;
    int inputs; /* rows of them, then come the groups */
    int *input; /* (values): the row of each; -1: none */
    int rows, arrows, lanes;
    arrow *arrow;
    size_t room;
    int width;           /* of boxes */
    int column, columns; /* rows of a column, how many columns */
    int gutter;          /* pixels above and below columns, for what leads to others */
} page;

/* ---- rows and arrows ---- */

static void add_arrow(page *p, int from, int to)
{
    for (int i = 0; i < p->arrows; i++)
        if (p->arrow[i].from == from && p->arrow[i].to == to) return;
    p->arrow = meg_grow(p->arrow, &p->room, (size_t)p->arrows + 1, sizeof *p->arrow);
    p->arrow[p->arrows++] = (arrow){from, to, -1};
}

/* Labels are left out: every loss has them. */
static void lay_out(page *p)
{
    const meg_graph *g = p->drawing->graph;
    const meg_groups *s = p->drawing->groups;
    p->input = malloc((size_t)(g->values + 1) * sizeof *p->input);
    if (!p->input) abort();
    for (int i = 0; i < g->values; i++)
        p->input[i] = g->value[i].kind == MEG_INPUT ? p->inputs++ : -1;
    p->rows = p->inputs + s->count;
    for (int i = 0; i < s->edges; i++) {
        const meg_group_edge *e = &s->edge[i];
        int from = e->from < 0 ? p->input[e->value] : p->inputs + e->from;
        if (from >= 0) add_arrow(p, from, p->inputs + e->to);
    }
}

static int by_length(const void *a, const void *b)
{
    const arrow *x = a, *y = b;
    int dx = x->to - x->from, dy = y->to - y->from;
    if (dx != dy) return dx - dy;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* Short skips first, so that they lie inside the long ones. Two may touch at a box. */
static void choose_lanes(page *p)
{
    if (p->arrows) qsort(p->arrow, (size_t)p->arrows, sizeof *p->arrow, by_length);
    for (int i = 0; i < p->arrows; i++) {
        arrow *a = &p->arrow[i];
        if (a->to == a->from + 1) continue;
        for (a->lane = 0;; a->lane++) {
            bool free_here = true;
            for (int k = 0; k < i && free_here; k++) {
                const arrow *o = &p->arrow[k];
                free_here = o->lane != a->lane || o->to <= a->from || a->to <= o->from;
            }
            if (free_here) break;
        }
        if (a->lane >= p->lanes) p->lanes = a->lane + 1;
    }
}

/* ---- texts ---- */

void meg_print_extents(FILE *out, const meg_value *v)
{
    for (int i = 1; i < v->rank; i++)
        fprintf(out, "%s%" PRId64, i > 1 ? "x" : "", v->dims[i]);
    if (v->rank < 2) fputc('1', out);
}

/* Names of files may hold anything: what is not printable ASCII becomes a question mark. */
static char plain(char c)
{
    return c >= 0x20 && c < 0x7f ? c : '?';
}

static void put_xml(FILE *out, const char *text)
{
    for (; *text; text++) {
        char c = plain(*text);
        const char *word = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : NULL;
        if (c == '"') word = "&quot;";
        if (word) fputs(word, out);
        else fputc(c, out);
    }
}

static void put_dot(FILE *out, const char *text)
{
    for (; *text; text++) {
        char c = plain(*text);
        if (c == '"' || c == '\\') fputc('\\', out);
        fputc(c, out);
    }
}

static const meg_value *input_of_row(const page *p, int row)
{
    int i = 0;
    while (p->input[i] != row)
        i++;
    return &p->drawing->graph->value[i];
}

/* The two lines of a row; the second one is to be freed. */
static const char *lines_of(const page *p, int row, char **second)
{
    size_t size;
    FILE *out = open_memstream(second, &size);
    if (!out) abort();
    const char *first = NULL;
    if (row < p->inputs) {
        const meg_value *v = input_of_row(p, row);
        first = v->name;
        meg_print_extents(out, v);
    } else {
        first = p->drawing->groups->group[row - p->inputs].name;
        fputs(p->drawing->note[row - p->inputs], out);
    }
    fclose(out);
    return first;
}

static void measure(page *p)
{
    size_t longest = 8;
    for (int row = 0; row < p->rows; row++) {
        char *second = NULL;
        const char *first = lines_of(p, row, &second);
        if (strlen(first) > longest) longest = strlen(first);
        if (strlen(second) > longest) longest = strlen(second);
        free(second);
    }
    p->width = (int)longest * LETTER + 2 * PAD;
}

static int stride(const page *p)
{
    return 2 * MARGIN + p->width + (p->lanes + 1) * LANE;
}

static void choose_columns(page *p)
{
    int64_t height = (int64_t)p->rows * (BOX + GAP);
    p->column = p->rows;
    p->columns = 1;
    if (height <= TALL) return;
    int64_t wanted = (int64_t)ceil(sqrt((double)height / stride(p)));
    int64_t least = (height + TALL - 1) / TALL; /* where lanes are wider than all boxes are tall */
    if (wanted < least) wanted = least;
    p->column = (int)((p->rows + wanted - 1) / wanted);
    p->columns = (p->rows + p->column - 1) / p->column;
    p->gutter = (p->lanes + 2) * SIDE;
}

static bool changes_column(const page *p, const arrow *a)
{
    return a->from / p->column != a->to / p->column;
}

static page open_page(const meg_drawing *d)
{
    page p = {.drawing = d};
    lay_out(&p);
    choose_lanes(&p);
    measure(&p);
    choose_columns(&p);
    return p;
}

static void close_page(page *p)
{
    free(p->input);
    free(p->arrow);
}

/* ---- dot ---- */

void meg_draw_dot(const meg_drawing *d, FILE *out)
{
    page p = open_page(d);
    fputs("digraph \"", out);
    put_dot(out, d->graph->name);
    fputs("\" {\n    node [shape=box, style=rounded, fontname=\"monospace\", fontsize=10];\n", out);
    for (int row = 0; row < p.rows; row++) {
        char *second = NULL;
        fprintf(out, "    n%d [label=\"", row);
        put_dot(out, lines_of(&p, row, &second));
        fputs("\\n", out);
        put_dot(out, second);
        fputs("\"];\n", out);
        free(second);
    }
    for (int i = 0; i < p.arrows; i++)
        fprintf(out, "    n%d -> n%d%s;\n", p.arrow[i].from, p.arrow[i].to,
                p.arrow[i].lane >= 0 || changes_column(&p, &p.arrow[i]) ? " [constraint=false]"
                                                                        : "");
    fputs("}\n", out);
    close_page(&p);
}

/* ---- SVG ---- */

static int left_of(const page *p, int row)
{
    return MARGIN + row / p->column * stride(p);
}

static int top_of(const page *p, int row)
{
    return MARGIN + p->gutter + row % p->column * (BOX + GAP);
}

/* The lines above and below all columns along which a lane goes; -1: that of the next row. */
static int above(const page *p, int lane)
{
    return MARGIN + p->gutter - (lane + 2) * SIDE;
}

static int below(const page *p, int lane)
{
    return MARGIN + p->gutter + p->column * (BOX + GAP) - GAP + (lane + 2) * SIDE;
}

static void draw_box(const page *p, int row, FILE *out)
{
    char *second = NULL;
    const char *first = lines_of(p, row, &second);
    int left = left_of(p, row), middle = left + p->width / 2, y = top_of(p, row);
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"%s/>\n", left, y,
            p->width, BOX, row < p->inputs ? " class=\"input\"" : "");
    fprintf(out, "<text x=\"%d\" y=\"%d\" class=\"name\">", middle, y + LINE);
    put_xml(out, first);
    fprintf(out, "</text>\n<text x=\"%d\" y=\"%d\">", middle, y + 2 * LINE);
    put_xml(out, second);
    fputs("</text>\n", out);
    free(second);
}

/* A skip leaves its box below the middle and enters one above it, so that both can be told. Where it
 * comes into another column it goes up half a lane beside the one that it comes down. */
static void draw_skip(const page *p, const arrow *a, FILE *out)
{
    int right = left_of(p, a->from) + p->width, to = left_of(p, a->to) + p->width;
    int lane = LANE + a->lane * LANE, x = right + lane;
    int begin = top_of(p, a->from) + BOX / 2 + SIDE, end = top_of(p, a->to) + BOX / 2 - SIDE;
    fprintf(out, "<path class=\"skip\" d=\"M%d %d C%d %d %d %d %d %d", right, begin, x, begin, x,
            begin, x, begin + LANE);
    if (changes_column(p, a))
        fprintf(out, " V%d H%d V%d H%d", below(p, a->lane), to + lane - LANE / 2, above(p, a->lane),
                to + lane);
    x = to + lane;
    fprintf(out, " V%d C%d %d %d %d %d %d\"/>\n", end - LANE, x, end, x, end, to, end);
}

static void draw_arrow(const page *p, const arrow *a, FILE *out)
{
    int from = left_of(p, a->from), to = left_of(p, a->to), half = p->width / 2;
    if (a->lane >= 0) {
        draw_skip(p, a, out);
        return;
    }
    fprintf(out, "<path d=\"M%d %d", from + half, top_of(p, a->from) + BOX);
    if (changes_column(p, a))
        fprintf(out, " V%d H%d V%d H%d", below(p, a->lane), to - MARGIN / 2, above(p, a->lane),
                to + half);
    fprintf(out, " V%d\"/>\n", top_of(p, a->to));
}

void meg_draw_svg(const meg_drawing *d, FILE *out)
{
    page p = open_page(d);
    int64_t width = (int64_t)p.columns * stride(&p);
    int64_t height = 2 * MARGIN + 2 * p.gutter + (int64_t)p.column * (BOX + GAP) - GAP;
    double scale = fmin(1, LARGEST / (double)(width > height ? width : height));
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %" PRId64 " %" PRId64 "\">\n<title>",
            scale * (double)width, scale * (double)height, width, height);
    put_xml(out, d->graph->name);
    fputs("</title>\n<style>\n"
          "text { font: 11px monospace; text-anchor: middle; fill: #222 }\n"
          ".name { font-weight: bold }\n"
          "rect { fill: #eef3fa; stroke: #456 }\n"
          ".input { fill: #f6f0dc }\n"
          "path { fill: none; stroke: #456; marker-end: url(#tip) }\n"
          ".skip { stroke: #b5562c }\n"
          "</style>\n"
          "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
          "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
          "style=\"fill: #456; stroke: none; marker-end: none\"/></marker></defs>\n"
          "<rect width=\"100%\" height=\"100%\" style=\"fill: #fff; stroke: none\"/>\n",
          out);
    for (int i = 0; i < p.arrows; i++)
        draw_arrow(&p, &p.arrow[i], out);
    for (int row = 0; row < p.rows; row++)
        draw_box(&p, row, out);
    fputs("</svg>\n", out);
    close_page(&p);
}
