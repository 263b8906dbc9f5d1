/* `megalith show MODEL`: what a network is made of, as a table or a drawing. */
#include "base/files/outfile.h"
#include "cli/report/drawing.h"
#include "cli/session.h"
#include "cli/words.h"
#include "graph/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    LISTED = 3 /* outputs of a group that are named, at most */
};

typedef struct settings {
    int level, format;
    const char *out;
} settings;

typedef struct view {
    const meg_graph *graph;
    const meg_groups *groups;
    meg_pool *pool;
    FILE *out;
} view;

/* ---- what a group says of itself ---- */

/* Does a value leave its group: is it read by another, or a result of the graph? */
static bool leaves(const view *w, int group, int value)
{
    const meg_graph *g = w->graph;
    for (int i = 0; i < w->groups->edges; i++)
        if (w->groups->edge[i].value == value && w->groups->edge[i].from == group) return true;
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i] == value) return true;
    for (int i = 0; i < g->losses; i++)
        if (g->loss[i].value == value) return true;
    return false;
}

static const char *closed(const view *w, FILE *out, char **text)
{
    fclose(out);
    const char *copy = meg_pool_text(w->pool, "%s", *text);
    free(*text);
    return copy;
}

static FILE *opened(char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);
    if (!out) abort();
    return out;
}

/* Extents of the values that leave it: "256x56x56"; several are separated by blanks. */
static const char *outputs_of(const view *w, int group)
{
    char *text;
    size_t size;
    int count = 0;
    FILE *out = opened(&text, &size);
    for (int i = 0; i < w->groups->group[group].nodes; i++) {
        const meg_node *v = &w->graph->node[w->groups->group[group].node[i]];
        for (int k = 0; k < v->outputs; k++) {
            if (!leaves(w, group, v->out[k]) || ++count > LISTED) continue;
            if (count > 1) fputc(' ', out);
            meg_print_extents(out, &w->graph->value[v->out[k]]);
        }
    }
    if (count > LISTED) fprintf(out, " +%d", count - LISTED);
    return closed(w, out, &text);
}

/* "conv 3, batchnorm 3, relu", in the order of their first use. */
static const char *operators_of(const view *w, const meg_group *group)
{
    char *text;
    size_t size;
    FILE *out = opened(&text, &size);
    for (int i = 0; i < group->nodes; i++) {
        const meg_op *op = w->graph->node[group->node[i]].op;
        int before = 0, all = 0;
        for (int k = 0; k < group->nodes; k++) {
            bool same = w->graph->node[group->node[k]].op == op;
            before += same && k < i;
            all += same;
        }
        if (before) continue;
        fprintf(out, "%s%s", i ? ", " : "", op->name);
        if (all > 1) fprintf(out, " %d", all);
    }
    return closed(w, out, &text);
}

/* Where its inputs come from, unless that is simply the group before; labels go without saying. */
static const char *sources_of(const view *w, int group)
{
    char *text;
    size_t size;
    FILE *out = opened(&text, &size);
    const meg_groups *s = w->groups;
    int last = -2, count = 0;
    for (int i = 0; i < s->edges; i++) {
        const meg_group_edge *e = &s->edge[i];
        const meg_value *x = &w->graph->value[e->value];
        if (e->to != group || x->kind == MEG_LABEL || (e->from >= 0 && e->from == last)) continue;
        last = e->from;
        if (e->from >= 0 && e->from == group - 1) continue;
        fprintf(out, "%s%s", count++ ? ", " : "", e->from < 0 ? x->name : s->group[e->from].name);
    }
    return closed(w, out, &text);
}

/* 4.09 G, for flops; 25.6 M, for parameters. */
static const char *short_number(const view *w, double x)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int u = 0;
    while (x >= 999.5 && u < 4)
        x /= 1000, u++;
    return meg_pool_text(w->pool, "%.*f%s", u == 0 || x >= 100 ? 0 : x >= 10 ? 1 : 2, x, units[u]);
}

/* ---- the table ---- */

enum {
    COLUMNS = 7
};

static void print_row(const view *w, const char *const cell[COLUMNS], const int width[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        bool number = i >= 2 && i <= 4, last = true;
        for (int k = i + 1; k < COLUMNS; k++)
            last = last && !cell[k][0];
        if (number) fprintf(w->out, "%*s", width[i], cell[i]);
        else fprintf(w->out, "%-*s", last ? 0 : width[i], cell[i]);
        if (last) break;
        fputs("  ", w->out);
    }
    fputc('\n', w->out);
}

static void print_head(const view *w)
{
    const meg_graph *g = w->graph;
    double flops = 0;
    for (int i = 0; i < w->groups->count; i++)
        flops += w->groups->group[i].flops;
    fprintf(w->out, "%s:", g->name);
    for (int i = 0; i < g->values; i++) {
        if (g->value[i].kind != MEG_INPUT) continue;
        fprintf(w->out, " %s ", g->value[i].name);
        meg_print_extents(w->out, &g->value[i]);
        fputc(',', w->out);
    }
    fprintf(w->out, " %" PRId64 " parameters, %sflop forward, %d nodes in %d groups\n",
            meg_graph_trainable(g), short_number(w, flops), g->nodes, w->groups->count);
    if (g->batch != 1) fprintf(w->out, "(for a batch of %" PRId64 ")\n", g->batch);
}

static void print_text(const view *w)
{
    static const char *const heads[COLUMNS] = {"group",
                                               "output",
                                               "parameters",
                                               "flop",
                                               "activation",
                                               "operators",
                                               "inputs, if not from the line above"};
    int rows = w->groups->count + 1, width[COLUMNS] = {0};
    const char *(*cell)[COLUMNS] = meg_pool_alloc(w->pool, (size_t)rows * sizeof *cell);
    memcpy(cell[0], heads, sizeof heads);
    for (int i = 0; i < w->groups->count; i++) {
        const meg_group *group = &w->groups->group[i];
        const char **c = cell[i + 1];
        char bytes[32];
        meg_print_bytes(group->activation, bytes);
        c[0] = group->name;
        c[1] = outputs_of(w, i);
        c[2] = meg_pool_text(w->pool, "%" PRId64, group->parameters);
        c[3] = short_number(w, group->flops);
        c[4] = meg_pool_text(w->pool, "%s", bytes);
        c[5] = operators_of(w, group);
        const char *from = sources_of(w, i);
        c[6] = *from ? meg_pool_text(w->pool, "<- %s", from) : "";
    }
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < COLUMNS; k++)
            if ((int)strlen(cell[i][k]) > width[k]) width[k] = (int)strlen(cell[i][k]);
    print_head(w);
    for (int i = 0; i < rows; i++)
        print_row(w, cell[i], width);
}

/* ---- drawings ---- */

static void draw(const view *w, void (*draw_as)(const meg_drawing *d, FILE *out))
{
    const meg_groups *s = w->groups;
    const char **note = meg_pool_alloc(w->pool, (size_t)s->count * sizeof *note);
    for (int i = 0; i < s->count; i++) {
        const char *parameters = s->group[i].parameters
                                     ? meg_pool_text(
                                           w->pool, "  (%s)",
                                           short_number(w, (double)s->group[i].parameters))
                                     : "";
        bool one = s->group[i].nodes == 1;
        note[i] = meg_pool_text(w->pool, "%s%s%s%s",
                                one ? w->graph->node[s->group[i].node[0]].op->name : "",
                                one ? "  " : "", outputs_of(w, i), parameters);
    }
    draw_as(&(meg_drawing){w->graph, s, note}, w->out);
}

static void draw_dot(const view *w)
{
    draw(w, meg_draw_dot);
}

static void draw_svg(const view *w)
{
    draw(w, meg_draw_svg);
}

/* ---- the command ---- */

static meg_status deliver(meg_error *e, const char *path, const char *text, size_t size)
{
    meg_outfile file;
    if (!path[0]) {
        fwrite(text, 1, size, stdout);
        return MEG_OK;
    }
    meg_status status = meg_outfile_open(&file, e, path);
    if (status == MEG_OK) status = meg_outfile_write(&file, e, text, (int64_t)size);
    if (status == MEG_OK) status = meg_outfile_commit(&file, e);
    meg_outfile_close(&file);
    return status;
}

static meg_status show(meg_session *s, const settings *o)
{
    static void (*const print[])(const view *w) = {print_text, draw_dot, draw_svg};
    char *text;
    size_t size;
    MEG_TRY(s->error, meg_session_graph(s));
    meg_groups *groups = meg_groups_new(s->graph, (meg_level)o->level);
    view w = {s->graph, groups, groups->pool, opened(&text, &size)};
    print[o->format](&w);
    fclose(w.out);
    meg_status status = deliver(s->error, o->out, text, size);
    free(text);
    meg_groups_free(groups);
    return status;
}

/* A file is shown as it is, without a loss, unless one is asked for. */
static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    meg_arguments plain = *a;
    if (meg_model_is_file(a->place[0]) && !meg_arguments_has(a, MEG_TO_MODEL, "loss"))
        plain.text[MEG_TO_MODEL] = meg_pool_text(a->pool, "%s loss=none", a->text[MEG_TO_MODEL]);
    meg_status status = meg_session_open(&s, &plain, e);
    if (status == MEG_OK) status = show(&s, a->settings);
    meg_session_close(&s);
    return status;
}

static const meg_param PARAMS[] = {
    {"level", MEG_PARAM_CHOICE, offsetof(settings, level), "block",
     "what a line or box stands for, by the parts of names", "layer|block|module", 0, 0},
    {"format", MEG_PARAM_CHOICE, offsetof(settings, format), "text",
     "a table, or a drawing: for Graphviz, or for browsers", "text|dot|svg", 0, 0},
    {"out", MEG_PARAM_STRING, offsetof(settings, out), "", "file to write (default: stdout)", NULL,
     0, 0},
    {0},
};

const meg_command meg_command_show = {
    .name = "show",
    .usage = "MODEL [--level layer|block|module] [--format text|dot|svg] [--word value ...]",
    .doc = "prints or draws the layers, blocks or modules of a model",
    .takes = MEG_TAKES_MODEL,
    .places = 1,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
