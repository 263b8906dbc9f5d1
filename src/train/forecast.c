/* Forecasts: see forecast.h. */
#include "train/forecast.h"
#include "exec/profile.h"
#include "machine/memory.h"
#include "machine/prices.h"
#include "machine/processors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t BESIDES = (int64_t)192 << 20; /* bytes of a process beside its arena */

/* ---- the machine ---- */

static meg_status read_file(meg_error *e, const char *path, meg_machine *out)
{
    char *text = calloc(1, MEG_MACHINE_TEXT_MAX + 2);
    FILE *file = fopen(path, "rb");
    int why = errno;
    if (!text) abort();
    if (file) fread(text, 1, MEG_MACHINE_TEXT_MAX + 1, file);
    if (file) fclose(file);
    meg_status status = file ? meg_machine_read(e, path, text, out)
                             : meg_fail(
                                   e, MEG_EIO,
                                   "cannot open machine=%s: %s; a description in words has = in "
                                   "it: machine=\"nodes=4 ranks=2\"",
                                   path, strerror(why));
    free(text);
    return status;
}

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
    int64_t share = meg_memory_look("").most / (real ? out->ranks : 1);
    out->memory = share > 4 * BESIDES ? share - BESIDES : share;
}

meg_status meg_context_machine(const meg_context *ctx, meg_error *e, int ranks, meg_machine *out)
{
    const char *text = ctx->options.machine;
    describe_here(ctx, ranks, out);
    if (!*text) return MEG_OK;
    return strchr(text, '=') ? meg_machine_read(e, "machine", text, out) : read_file(e, text, out);
}

/* ---- forecasts ---- */

static int64_t limit_of(const meg_plan_options *o, const meg_machine *m)
{
    return o->budget ? o->budget : m->memory;
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

static char *nearest_of(const meg_search *s, const meg_search_ask *ask)
{
    char text[512] = "";
    const char *words = *s->list[0].words ? s->list[0].words : "the words as they are";
    if (!s->fits)
        snprintf(text, sizeof text, "; that is the nearest of %d plans for %d rank%s: %s", s->count,
                 ask->ranks, ask->ranks == 1 ? "" : "s", words);
    return text_of(text);
}

static meg_status search(const meg_search_ask *ask, meg_error *e, bool table, meg_forecast *out)
{
    meg_search s;
    meg_status status = meg_search_run(ask, e, &s);
    if (status == MEG_OK) {
        char budget[48] = "";
        bool fills = s.fits && strstr(s.list[0].words, "recompute=segments") && ask->memory;
        if (fills && !meg_options_has(ask->options, "budget"))
            snprintf(budget, sizeof budget, " budget=%" PRId64, ask->memory);
        size_t size = strlen(ask->options) + strlen(s.list[0].words) + sizeof budget;
        out->options = calloc(1, size);
        if (!out->options) abort();
        snprintf(out->options, size, "%s %s%s", ask->options, s.list[0].words, budget);
        out->seconds = s.list[0].seconds;
        out->fits = s.fits;
        out->nearest = nearest_of(&s, ask);
        tell(&s, ask, table, &out->why);
    }
    meg_search_free(&s);
    return status;
}

/* The words as they are: how long does a step take? */
static meg_status replay(const meg_search_ask *ask, meg_error *e, meg_forecast *out)
{
    meg_world world = {0, ask->ranks};
    meg_plan_input in = {ask->profile, &world, ask->options, ask->samples, NULL};
    meg_whole whole;
    meg_replay r;
    MEG_TRY(e, meg_whole_sketch(ask->graph, e, &in, 0, &whole));
    meg_status status = meg_whole_replay(&whole, e, ask->machine, &r);
    if (status == MEG_OK) {
        out->options = text_of(ask->options);
        out->why = text_of("");
        out->nearest = text_of("");
        out->seconds = r.seconds;
        out->fits = ask->memory == 0 || meg_whole_bytes(&whole) <= ask->memory;
        free(r.times);
    }
    meg_whole_free(&whole);
    return status;
}

/* Of a machine whose speed was described; NULL: those of this one. */
static meg_prices *prices_of(const meg_machine *m)
{
    meg_prices_head head = {.threads = 1, .ranks = (int)m->ranks, .isa = "described"};
    head.rates = (meg_rates){m->flops, m->flops, m->bandwidth, m->launch, 0};
    return m->flops > 0 ? meg_prices_new(&head) : NULL;
}

static meg_status ask_for(const meg_search_ask *ask, meg_error *e, bool table, meg_forecast *out)
{
    if (meg_search_wanted(ask->options, ask->ranks)) return search(ask, e, table, out);
    return replay(ask, e, out);
}

meg_status meg_context_forecast(const meg_graph *g, const meg_data *d, const char *options,
                                int ranks, bool table, meg_forecast *out)
{
    meg_context *ctx = g->owner;
    meg_error *e = &ctx->error;
    meg_machine machine;
    meg_plan_options read;
    *out = (meg_forecast){0};
    if (!options) options = "";
    if (meg_comm_size(ctx->comm) == 1) MEG_TRY(e, meg_context_prices(ctx));
    meg_profile profile = meg_profile_priced(ctx->device, ctx->prices);
    MEG_TRY(e, meg_context_machine(ctx, e, ranks, &machine));
    MEG_TRY(e, meg_plan_options_read(e, options, &read));
    meg_search_ask ask = {.graph = g,
                          .profile = &profile,
                          .machine = &machine,
                          .options = options,
                          .samples = d ? d->set.count : 0,
                          .ranks = ranks,
                          .memory = limit_of(&read, &machine),
                          .goal = (meg_goal)read.goal,
                          .work = meg_search_work(ranks)};
    meg_prices *described = prices_of(&machine);
    if (described) profile.prices = described;
    meg_status status = ask_for(&ask, e, table, out);
    meg_prices_free(described);
    return status;
}

/* ---- of all ranks ---- */

static meg_status share_text(meg_comm *c, meg_error *e, char **text)
{
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
    if (first) status = meg_context_forecast(g, d, options, meg_comm_size(c), false, out);
    MEG_TRY(e, meg_context_agree(ctx, status));
    if (meg_comm_size(c) == 1) return MEG_OK;
    MEG_TRY(e, share_text(c, e, &out->options));
    MEG_TRY(e, share_text(c, e, &out->why));
    MEG_TRY(e, share_text(c, e, &out->nearest));
    MEG_TRY(e, meg_comm_share(c, e, 0, &out->seconds, sizeof out->seconds));
    return meg_comm_share(c, e, 0, &out->fits, sizeof out->fits);
}

void meg_forecast_free(meg_forecast *f)
{
    free(f->options);
    free(f->why);
    free(f->nearest);
    *f = (meg_forecast){0};
}

void meg_forecast_excuse(meg_context *ctx, const meg_forecast *f)
{
    char *message = ctx->error.message;
    size_t used = strlen(message), size = sizeof ctx->error.message;
    if (f->nearest) snprintf(message + used, size - used, "%s", f->nearest);
}
