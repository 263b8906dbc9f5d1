/* Forecasts: see forecast.h. */
#include "train/forecast.h"
#include "exec/meters/disk.h"
#include "exec/profile.h"
#include "machine/links.h"
#include "machine/memory.h"
#include "machine/prices.h"
#include "machine/processors.h"
#include "plan/replay/resources.h"
#include "train/outlook/limits.h"
#include "train/outlook/remedy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the machine ---- */

/* Ranks share the memory of a node; imaginary ones may be spread over machines like this one. */
static void describe_here(const meg_context *ctx, int ranks, meg_machine *out)
{
    meg_processors mine = meg_processors_mine();
    bool real = ranks == meg_comm_size(ctx->comm);
    *out = meg_machine_default;
    out->nodes = real ? meg_comm_nodes(ctx->comm) : 1;
    out->ranks = (ranks + out->nodes - 1) / out->nodes;
    int64_t cores = meg_processors_count(&mine), online = sysconf(_SC_NPROCESSORS_ONLN);
    if (real && ctx->options.pin)
        cores *= out->ranks; /* of which each rank has a part, if there are enough */
    out->cores = online > 0 && cores > online ? online : cores;
    out->all_cores = real ? ctx->all_cores : 0;
    int64_t share = meg_memory_look("").most / (real ? out->ranks : 1);
    out->memory = meg_limits_left(share, meg_limits_besides());
    meg_disk disk;
    for (int i = 0; ctx->prices && meg_prices_link_at(ctx->prices, i); i++)
        if (meg_disk_scan(meg_prices_link_at(ctx->prices, i), &disk)) {
            out->read = disk.read;
            out->write = disk.write;
        }
}

meg_status meg_context_machine(const meg_context *ctx, meg_error *e, int ranks, meg_machine *out)
{
    const char *text = ctx->options.machine;
    describe_here(ctx, ranks, out);
    if (!*text) return ctx->prices ? meg_links_read(e, ctx->prices, out) : MEG_OK;
    if (strchr(text, '=')) return meg_machine_read(e, "machine", text, out);
    if (access(text, R_OK) == 0) return meg_machine_load(e, text, out);
    return meg_fail(e, MEG_EIO,
                    "cannot open machine=%s: %s; a description in words has = in it: "
                    "machine=\"nodes=4 ranks=2\"",
                    text, strerror(errno));
}

/* ---- ranks that are not there ---- */

bool meg_context_computes(const meg_context *ctx, const meg_machine *m)
{
    const meg_prices_head head = meg_machine_head(ctx->device, ctx->comm);
    return *m->device ? strcmp(m->device, head.isa) == 0 : m->flops == 0;
}

bool meg_context_rated(const meg_context *ctx)
{
    meg_machine m;
    meg_error ignored = {0}; /* what is wrong with a description is told by whoever needs it */
    if (!*ctx->options.machine) return false;
    return meg_context_machine(ctx, &ignored, 1, &m) == MEG_OK && m.flops > 0;
}

/* More threads than this process has cores cannot be measured here: then prices are those of all its cores. */
static meg_status take_threads(meg_context *ctx, int threads)
{
    meg_error *e = &ctx->error;
    meg_device *d = NULL;
    int mine = meg_device_threads(ctx->device);
    if (ctx->told || threads == mine) return MEG_OK;
    if (threads > mine) MEG_TRY(e, meg_context_prices(ctx));
    MEG_TRY(e, meg_device_open(e, ctx->options.device, threads, &d));
    meg_device_close(ctx->device);
    ctx->device = d;
    ctx->options.threads = threads;
    return MEG_OK;
}

meg_status meg_context_imagine(meg_context *ctx, int ranks)
{
    meg_machine m;
    bool described = *ctx->options.machine;
    if (meg_comm_size(ctx->comm) > 1 || (ranks == 1 && !described)) return MEG_OK;
    MEG_TRY(&ctx->error, meg_context_machine(ctx, &ctx->error, ranks, &m));
    if (!meg_context_computes(ctx, &m)) return MEG_OK;
    ctx->imagined = (int)m.ranks;
    return take_threads(ctx, (int)meg_cores_of_rank(&m));
}

/* ---- forecasts ---- */

static void keep(meg_context *ctx, meg_foresight *f)
{
    meg_foresight_free(ctx->foresight);
    ctx->foresight = f;
}

/* What each rank may have: the budget, what the description says of its node, or what was found on it. */
static void set_limits(const meg_context *ctx, const meg_plan_options *o, meg_pool *pool,
                       meg_search_ask *ask)
{
    const meg_machine *m = ask->machine;
    bool here = ctx->limit && !*ctx->options.machine && ask->ranks == meg_comm_size(ctx->comm);
    ask->memory = o->budget ? o->budget : m->memory;
    if (o->budget || !(here || m->memories)) return;
    int64_t *limit = meg_pool_alloc(pool, (size_t)ask->ranks * sizeof *limit);
    ask->memory = 0;
    for (int r = 0; r < ask->ranks; r++) {
        limit[r] = here ? ctx->limit[r] : meg_machine_memory(m, r / m->ranks);
        if (limit[r] > ask->memory) ask->memory = limit[r];
        if (limit[r] != limit[0]) ask->limit = limit;
    }
}

static char *text_of(const char *text)
{
    char *copy = strdup(text ? text : "");
    if (!copy) abort();
    return copy;
}

static void tell(const meg_search *s, const meg_search_ask *ask, bool table, char **out)
{
    size_t size = 0;
    FILE *f = open_memstream(out, &size);
    if (!f) abort();
    (table ? meg_search_table : meg_search_tell)(s, ask, f);
    fclose(f);
}

/* Words that were found, complete: those that fill the memory by themselves need to know how much there is. */
static const char *words_of(const meg_search *s, const meg_search_ask *ask, int i)
{
    const char *words = s->list[i].words;
    bool fills = s->fits && strstr(words, "recompute=segments") && ask->memory;
    if (ask->goal == MEG_GOAL_MEMORY || !fills || meg_options_has(ask->options, "budget"))
        return words;
    return meg_pool_text(s->pool, "%s budget=%" PRId64, words, meg_search_limit(ask));
}

/* Candidates that can be run, in the order of forecast.h. */
static void list_best(const meg_search *s, const meg_search_ask *ask, char **out)
{
    int count = 0, *kind = calloc((size_t)s->count + 1, sizeof *kind);
    bool *listed = calloc((size_t)s->count + 1, sizeof *listed);
    size_t size = 0;
    FILE *f = open_memstream(out, &size);
    if (!kind || !listed || !f) abort();
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->count && count < MEG_FORECAST_BEST; i++) {
            meg_standing v = s->list[i].verdict;
            bool told = listed[i];
            kind[i] = meg_search_kind(s->list[i].words);
            for (int k = 0; k < i && pass == 0; k++)
                told = told || (listed[k] && kind[k] == kind[i]);
            if (told || v == MEG_TOO_LARGE || v == MEG_ILLEGAL) continue;
            listed[i] = true;
            count++;
            fprintf(f, "%s\n", words_of(s, ask, i));
        }
    fclose(f);
    free(listed);
    free(kind);
}

static char *nearest_of(const meg_search *s, const meg_search_ask *ask)
{
    const char *words = *s->list[0].words ? s->list[0].words : "the words as they are";
    const meg_context *ctx = ask->graph->owner;
    int64_t has = *ctx->options.machine ? ask->machine->nodes * ask->machine->ranks : 0;
    if (s->fits) return text_of("");
    char lacks[32];
    meg_print_bytes(s->list[0].missing, lacks);
    return text_of(meg_pool_text(
        s->pool, "; the nearest of %d plan%s for %d rank%s lacks %" PRId64 " bytes (%s): %s%s",
        s->count, s->count == 1 ? "" : "s", ask->ranks, ask->ranks == 1 ? "" : "s",
        s->list[0].missing, lacks, words, meg_remedy_find(ask, has, s->pool)));
}

static meg_status search(const meg_search_ask *ask, meg_error *e, bool table, meg_forecast *out)
{
    meg_search s;
    meg_status status = meg_search_run(ask, e, &s);
    if (status == MEG_OK) {
        out->chosen_for = ask->goal;
        out->chosen = text_of(words_of(&s, ask, 0));
        out->options = text_of(meg_pool_text(s.pool, "%s %s", ask->options, out->chosen));
        list_best(&s, ask, &out->best);
        out->seconds = s.list[0].seconds;
        out->fits = s.fits;
        out->nearest = nearest_of(&s, ask);
        tell(&s, ask, table, &out->why);
    }
    meg_context *ctx = ask->graph->owner;
    meg_foresight *f = NULL;
    if (status == MEG_OK && s.fits && ctx->foresees)
        status = meg_foresight_make(ask, e, out->options, &f);
    if (f) {
        f->searched = true;
        f->search = s;
        keep(ctx, f);
    } else {
        meg_search_free(&s);
    }
    return status;
}

/* The words as they are: how long does a step take? */
static meg_status replay(const meg_search_ask *ask, meg_error *e, meg_forecast *out)
{
    meg_context *ctx = ask->graph->owner;
    meg_foresight *f;
    int rank;
    MEG_TRY(e, meg_foresight_make(ask, e, ask->options, &f));
    out->options = text_of(ask->options);
    out->why = text_of("");
    out->chosen_for = MEG_GOAL_GIVEN;
    out->chosen = text_of("");
    out->best = text_of("");
    out->nearest = text_of("");
    out->seconds = f->replay.seconds;
    out->fits = ask->memory == 0 ||
                (ask->limit ? meg_whole_missing(&f->whole, ask->limit, &rank) <= 0
                            : meg_whole_bytes(&f->whole) <= ask->memory);
    if (ctx->foresees) keep(ctx, f);
    else meg_foresight_free(f);
    return MEG_OK;
}

/* Of a machine whose speed was described; NULL: those of this one. */
static meg_prices *prices_of(const meg_machine *m)
{
    meg_prices_head head = {.threads = 1, .ranks = (int)m->ranks, .isa = "described"};
    head.rates = (meg_rates){
        .flops = m->flops, .plain = m->flops, .bandwidth = m->bandwidth, .launch = m->launch};
    return m->flops > 0 ? meg_prices_new(&head) : NULL;
}

typedef struct wish { /* what is asked for */
    const meg_graph *graph;
    const meg_data *data;
    const char *options;
    int ranks;
    bool table, given; /* tell all; nothing is to be chosen */
} wish;

bool meg_forecast_tries(const char *options, int ranks)
{
    meg_given goal;
    bool least = options && meg_given_find(options, "goal", &goal) &&
                 meg_excerpt_is(goal.value, "memory");
    return ranks == 1 && !least;
}

static meg_status ask_for(const meg_search_ask *ask, const wish *w, meg_error *e, meg_forecast *out)
{
    bool choose = !w->given && meg_search_wanted(ask->options, ask->ranks);
    if (choose && (w->table || !meg_forecast_tries(ask->options, ask->ranks)))
        return search(ask, e, w->table, out);
    meg_status status = replay(ask, e, out);
    bool enough = status == MEG_OK ? out->fits : status != MEG_EBUDGET;
    if (!choose || enough) return status;
    meg_forecast_free(out);
    meg_error_clear(e);
    return search(ask, e, w->table, out);
}

/* Budget and goal of the words. */
static meg_status read_words(meg_error *e, const char *options, meg_plan_options *out)
{
    meg_pool *pool = meg_pool_new();
    meg_status status = meg_plan_options_read(pool, e, options, out);
    meg_pool_free(pool);
    out->assign = out->mesh = "";
    return status;
}

static meg_status forecast(const wish *w, meg_forecast *out)
{
    const meg_graph *g = w->graph;
    const meg_data *d = w->data;
    meg_context *ctx = g->owner;
    meg_error *e = &ctx->error;
    int ranks = w->ranks;
    meg_machine machine;
    meg_plan_options read;
    const char *options = w->options ? w->options : "";
    *out = (meg_forecast){0};
    if (meg_comm_size(ctx->comm) == 1) MEG_TRY(e, meg_context_prices(ctx));
    meg_profile profile = meg_profile_priced(ctx->device, ctx->prices);
    MEG_TRY(e, meg_context_machine(ctx, e, ranks, &machine));
    MEG_TRY(e, read_words(e, options, &read));
    meg_search_ask ask = {.graph = g,
                          .profile = &profile,
                          .machine = &machine,
                          .options = options,
                          .samples = d ? d->set.count : 0,
                          .ranks = ranks,
                          .goal = (meg_goal)read.goal,
                          .work = meg_search_work(ranks)};
    meg_pool *pool = meg_pool_new();
    meg_prices *described = prices_of(&machine);
    if (described) profile.prices = described;
    set_limits(ctx, &read, pool, &ask);
    const meg_foresight *before = ctx->foresight;
    meg_status status = ask_for(&ask, w, e, out);
    bool kept = described && ctx->foresight && ctx->foresight != before;
    if (kept) ctx->foresight->described = described;
    else meg_prices_free(described);
    meg_pool_free(pool);
    return status;
}

meg_status meg_context_forecast(const meg_graph *g, const meg_data *d, const char *options,
                                int ranks, bool table, meg_forecast *out)
{
    return forecast(&(wish){g, d, options, ranks, table, false}, out);
}

meg_status meg_context_foresee(const meg_graph *g, const meg_data *d, const char *options,
                               int ranks)
{
    meg_context *ctx = g->owner;
    meg_forecast f;
    bool was = ctx->foresees;
    ctx->foresees = true;
    meg_status status = forecast(&(wish){g, d, options, ranks, false, true}, &f);
    ctx->foresees = was;
    meg_forecast_free(&f);
    return status;
}

/* ---- of all ranks ---- */

meg_status meg_context_share(const meg_context *ctx, meg_error *e, char **text)
{
    meg_comm *c = ctx->comm;
    int64_t size = *text ? (int64_t)strlen(*text) + 1 : 0;
    MEG_TRY(e, meg_comm_share(c, e, 0, &size, sizeof size));
    if (!*text) *text = calloc((size_t)size + 1, 1);
    if (!*text) abort();
    return meg_comm_share(c, e, 0, *text, size);
}

meg_status meg_context_forecast_all(const meg_graph *g, const meg_data *d, const char *options,
                                    meg_forecast *out)
{
    meg_context *ctx = g->owner;
    meg_error *e = &ctx->error;
    meg_comm *c = ctx->comm;
    bool first = meg_comm_rank(c) == 0;
    meg_status status = MEG_OK;
    *out = (meg_forecast){0};
    if (!ctx->limit) MEG_TRY(e, meg_limits_gather(c, e, &ctx->limit));
    if (first) status = meg_context_forecast(g, d, options, meg_comm_size(c), false, out);
    MEG_TRY(e, meg_context_agree(ctx, status));
    if (meg_comm_size(c) == 1) return MEG_OK;
    char **text[] = {&out->options, &out->why, &out->nearest, &out->chosen, &out->best};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        MEG_TRY(e, meg_context_share(ctx, e, text[i]));
    MEG_TRY(e, meg_comm_share(c, e, 0, &out->chosen_for, sizeof out->chosen_for));
    MEG_TRY(e, meg_comm_share(c, e, 0, &out->seconds, sizeof out->seconds));
    return meg_comm_share(c, e, 0, &out->fits, sizeof out->fits);
}

void meg_forecast_free(meg_forecast *f)
{
    free(f->options);
    free(f->why);
    free(f->nearest);
    free(f->chosen);
    free(f->best);
    *f = (meg_forecast){0};
}

void meg_forecast_excuse(meg_context *ctx, const meg_forecast *f)
{
    char *message = ctx->error.message;
    size_t used = strlen(message), size = sizeof ctx->error.message;
    if (f->nearest) snprintf(message + used, size - used, "%s", f->nearest);
}
