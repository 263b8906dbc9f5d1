/* What a page draws, as one object of JSON: see page.h. Of thousands of ranks one of each kind is drawn, and of these
 * not more than a browser likes; what was left out is said.
 */
#include "base/files/json.h"
#include "cli/page/actors.h"
#include "cli/page/page.h"
#include "cli/page/path.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DRAWN = 32,    /* actors, at most */
    DEEDS = 32000, /* of all actors, about */
    POINTS = 400,  /* of a memory's curve: twice as many at most */
    ALIVE = 40,    /* of what is alive at the peak */
    PIECES = 2000, /* of the critical path */
    PLANS = 400    /* alternatives */
};

typedef struct drawing {
    const meg_page *page;
    const meg_foresight *f;
    FILE *out;
    meg_pool *pool;
    meg_error *e;
    double origin;
    int drawn, actor[DRAWN];
    int values;
    const char **value; /* their names, in the plan's graph */
} drawing;

static void text(const drawing *d, const char *key, const char *value)
{
    fprintf(d->out, "\"%s\": ", key);
    meg_json_print(d->out, value);
    fputs(", ", d->out);
}

static double micros(const drawing *d, double time)
{
    return 1e6 * (time - d->origin);
}

/* ---- an actor ---- */

/* Of each stretch of work the last and the largest; the peak is one of these. */
static void write_curve(const drawing *d, const meg_sheet *s, const meg_sheet_clock *c)
{
    double all = c->spans ? c->from[c->spans] : 0, step = all / POINTS;
    int written = 0;
    fputs("\"curve\": [", d->out);
    for (int i = 0, end; i < s->memories; i = end) {
        int most = i;
        double bound = (floor(step > 0 ? s->memory[i].from / step : 0) + 1) * step;
        for (end = i; end < s->memories && (end == i || s->memory[end].from < bound); end++)
            if (s->memory[end].bytes > s->memory[most].bytes) most = end;
        for (int k = 0; k < 2; k++) {
            int at = k ? end - 1 : most;
            if (k && at == most) continue;
            double from = s->memory[at].from;
            fprintf(d->out, "%s[%.1f,%" PRId64 "]", written++ ? "," : "",
                    micros(d, meg_sheet_clock_at(c, from, from)), s->memory[at].bytes);
        }
    }
    double from = s->memories ? s->memory[s->peak].from : 0;
    fprintf(d->out, "], \"peak\": [%.1f,%" PRId64 "], ",
            micros(d, meg_sheet_clock_at(c, from, from)),
            s->memories ? s->memory[s->peak].bytes : 0);
}

static void write_alive(const drawing *d, const meg_sheet *s)
{
    int64_t rest = 0;
    int shown = s->alives < ALIVE ? s->alives : ALIVE;
    fputs("\"alive\": [", d->out);
    for (int i = 0; i < s->alives; i++) {
        const meg_sheet_alive *a = &s->alive[i];
        if (i >= shown) {
            rest += a->bytes;
            continue;
        }
        fputs(i ? ",[" : "[", d->out);
        meg_json_print(d->out, a->name);
        fputs(",", d->out);
        meg_json_print(d->out, a->what);
        fprintf(d->out, ",%d,%" PRId64 "]", a->micro, a->bytes);
    }
    fprintf(d->out, "], \"rest\": [%d,%" PRId64 "], ", s->alives - shown, rest);
}

static void write_actor(drawing *d, int number, const meg_sheet *s)
{
    const meg_foresight *f = d->f;
    const struct meg_replay_told *told = &f->log.of[number];
    const meg_replay_times *times = &f->replay.times[number];
    double seconds = f->critical.end - f->critical.begin;
    int each = DEEDS / d->drawn < 500 ? 500 : DEEDS / d->drawn;
    meg_timing timing = {d->origin, seconds / (each < 4000 ? each : 4000)};
    meg_sheet_clock c;
    meg_deeds deeds = {0};
    meg_sheet_clock_begin(&c, &f->whole.actor[number], told);
    fprintf(
        d->out,
        "{\"rank\": %d, \"ranks\": %d, \"stages\": \"%s\", \"compute\": %.9g, \"exposed\": %.9g, "
        "\"bubble\": %.9g, \"arena\": %" PRId64 ",\n",
        s->rank, meg_actor_ranks(f, number), d->page->stages ? d->page->stages[number] : "",
        times->compute, times->exposed, times->bubble, s->arena);
    write_curve(d, s, &c);
    write_alive(d, s);
    meg_sheet_deeds(s, &f->whole.actor[number], told, &deeds);
    meg_deeds_write(&deeds, &timing, d->out);
    fputs("}", d->out);
    meg_deeds_free(&deeds);
    meg_sheet_clock_free(&c);
}

static void visit(void *context, int actor, const meg_plan *p, const meg_sheet *s)
{
    drawing *d = context;
    const meg_graph *g = p->entry[MEG_ENTRY_TRAIN].graph;
    if (!d->value) { /* they are the same on all ranks */
        d->values = g->values;
        d->value = meg_pool_alloc(d->pool, (size_t)g->values * sizeof *d->value);
        for (int i = 0; i < g->values; i++)
            d->value[i] = meg_pool_text(d->pool, "%s", g->value[i].name);
    } else {
        fputs(",\n", d->out);
    }
    write_actor(d, actor, s);
}

static meg_status write_actors(drawing *d)
{
    const meg_actors_tour tour = {d->page->graph, d->drawn, d->actor, visit, d};
    fputs("\"actors\": [\n", d->out);
    meg_status status = meg_actors_visit(d->f, d->e, &tour);
    fputs("],\n", d->out);
    return status;
}

/* ---- the critical path ---- */

/* "conv1, 4.00 MiB" */
static const char *what_of(const drawing *d, const meg_critical_piece *p)
{
    if (p->what != MEG_CRITICAL_MESSAGE && p->what != MEG_CRITICAL_SUM) return "";
    const meg_traffic_note *n = &d->f->whole.actor[p->teller].events.note[p->number];
    bool one = n->value >= 0 && n->value < d->values;
    char bytes[32];
    meg_print_bytes(n->bytes, bytes);
    return meg_pool_text(d->pool, "%s, %s", one ? d->value[n->value] : "gradients", bytes);
}

static void write_path(const drawing *d)
{
    const meg_critical *c = &d->f->critical;
    text(d, "path", meg_path_line(d->f, d->pool, d->page->stages));
    meg_path_group *group;
    int groups = meg_path_groups(d->f, d->pool, d->page->stages, &group);
    fputs("\"parts\": [", d->out);
    for (int i = 0; i < groups; i++) {
        fputs(i ? ",[" : "[", d->out);
        meg_json_print(d->out, group[i].text);
        fprintf(d->out, ",%.9g,%d,%d]", group[i].seconds, (int)group[i].what, group[i].pieces);
    }
    fputs("],\n\"pieces\": [", d->out);
    for (int i = 0; i < c->pieces && i < PIECES; i++) {
        const meg_critical_piece *p = &c->piece[i];
        int from = d->f->whole.actor[p->actor].rank;
        int to = p->what == MEG_CRITICAL_MESSAGE ? d->f->whole.actor[p->other].rank : p->other;
        fprintf(d->out, "%s[%d,%d,%d,%.1f,%.1f,", i ? "," : "", (int)p->what, from, to,
                micros(d, p->begin), micros(d, p->end));
        meg_json_print(d->out, what_of(d, p));
        fputs("]", d->out);
    }
    fputs("],\n", d->out);
}

/* ---- alternatives ---- */

static const char *why_of(const drawing *d, const meg_candidate *c)
{
    char *why = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&why, &size);
    if (!f) abort();
    const meg_search_ask ask = {.memory = d->f->memory};
    meg_search_reason(&d->f->search, c, &ask, f);
    fclose(f);
    const char *kept = meg_pool_text(d->pool, "%s", why);
    free(why);
    return kept;
}

static void write_plans(const drawing *d)
{
    static const char *const verdict[] = {"chosen", "slower",  "bound",
                                          "large",  "illegal", "unseen"};
    const meg_search *s = &d->f->search;
    int count = d->f->searched ? s->count : 0, shown = count < PLANS ? count : PLANS;
    fprintf(d->out, "\"all\": %d, \"looked\": %d, \"bound\": %.9g, \"one\": %.9g, \"plans\": [",
            count, d->f->searched ? s->looked : 0, d->f->searched ? s->bound : 0,
            d->f->searched ? s->one : 0);
    for (int i = 0; i < shown; i++) {
        const meg_candidate *c = &s->list[i];
        fprintf(d->out, "%s{", i ? ",\n" : "");
        text(d, "words", *c->words ? c->words : "no more words");
        text(d, "why", why_of(d, c));
        fprintf(d->out,
                "\"verdict\": \"%s\", \"seconds\": %.9g, \"bound\": %.9g, \"bytes\": %" PRId64 "}",
                verdict[c->verdict], c->seconds, c->bound, c->bytes);
    }
    fputs("],\n", d->out);
}

/* ---- all ---- */

static void write_head(const drawing *d)
{
    const meg_page *p = d->page;
    char machine[1024];
    text(d, "title", p->title);
    fputs("\"facts\": [", d->out);
    for (int i = 0; i < p->facts; i++) {
        fputs(i ? ",[" : "[", d->out);
        meg_json_print(d->out, p->fact[i].name);
        fputs(",", d->out);
        meg_json_print(d->out, p->fact[i].value);
        fputs("]", d->out);
    }
    fputs("],\n", d->out);
    meg_machine_print(&p->foresight->machine, machine, sizeof machine);
    text(d, "machine", machine);
    fprintf(d->out,
            "\"ranks\": %d, \"kinds\": %d, \"batch\": %" PRId64 ", \"predicted\": %.9g, "
            "\"measured\": %.9g, \"memory\": %" PRId64 ", \"end\": %.1f,\n",
            d->f->whole.ranks, d->f->whole.actors, p->batch, p->predicted, p->measured,
            d->f->memory, micros(d, d->f->critical.end));
}

static void write_measured(const drawing *d)
{
    const meg_recorded *r = d->page->recorded;
    char piece[4096];
    size_t got;
    fprintf(d->out, "\"step\": %" PRId64 ", \"step_seconds\": %.9g, \"run\": [\n", r ? r->step : 0,
            r ? r->seconds : 0);
    if (r && r->text && r->step) {
        rewind(r->text);
        while ((got = fread(piece, 1, sizeof piece, r->text)) > 0)
            fwrite(piece, 1, got, d->out);
    }
    fputs("]", d->out);
}

meg_status meg_page_data(const meg_page *p, meg_error *e, FILE *out)
{
    drawing d = {.page = p, .f = p->foresight, .out = out, .e = e, .pool = meg_pool_new()};
    d.origin = d.f->critical.begin;
    d.drawn = meg_actors_choose(d.f, DRAWN, d.actor);
    fputs("{", out);
    write_head(&d);
    meg_status status = write_actors(&d);
    if (status == MEG_OK) write_path(&d);
    write_plans(&d);
    write_measured(&d);
    fputs("}", out);
    meg_pool_free(d.pool);
    return status;
}
