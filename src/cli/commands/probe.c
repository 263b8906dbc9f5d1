/* `megalith probe [MODEL]`: measures what kernels cost on this machine, and keeps it for plans. */
#include "cli/session.h"
#include "exec/probe/machine.h"
#include "exec/probe/run.h"

#include <string.h>

typedef struct settings {
    double seconds;
    bool text;
} settings;

static const double PATIENCE = 4; /* times as long may it take where others have the cores */

enum {
    LEAST = 5, /* steps of a model */
    MOST = 50,
    LONGER = 4 /* times as many, where the machine is at another pace than the book's */
};

/* ---- the machine ---- */

static meg_status probe_machine(meg_session *s, const settings *o)
{
    meg_context *ctx = s->ctx;
    meg_prices *book = NULL;
    const meg_probe_time time = {o->seconds, PATIENCE};
    MEG_TRY(s->error, meg_machine_probe(ctx->device, ctx->comm, s->error, &time, &book));
    meg_prices_free(ctx->prices);
    ctx->prices = book;
    ctx->priced = true;
    return MEG_OK;
}

/* The book that there is, or a new one: a model adds to it. */
static meg_status open_book(meg_session *s, const char *path, const settings *o)
{
    meg_prices *found = NULL;
    meg_status status = meg_session_speaks(s) ? meg_prices_load(s->error, path, &found) : MEG_OK;
    bool there = found != NULL;
    meg_prices_free(found);
    MEG_TRY(s->error, meg_session_agree(s, status));
    MEG_TRY(s->error, meg_session_any(s, there, &there));
    if (!there) return probe_machine(s, o);
    return meg_session_said(s, meg_context_prices(s->ctx));
}

/* ---- a model ---- */

/* As `bench` trains: with momentum, unless told. */
static const char *words_of(const meg_arguments *a)
{
    bool told = meg_arguments_has(a, MEG_TO_PLAN, "momentum") ||
                meg_arguments_has(a, MEG_TO_PLAN, "optimizer") ||
                meg_arguments_value(a, MEG_TO_PLAN_FILE, "plan");
    return told ? "" : "momentum=0.9";
}

/* A book of an earlier version knows no pace. */
static void tell_kernels(const meg_session *s, const meg_timings *t, int kernels,
                         const meg_probe_seen *seen)
{
    printf("%s: %d kernels a step, %d kinds of them; ", s->graph->name, kernels,
           meg_timings_count(t));
    if (meg_prices_head_of(s->ctx->prices)->rates.turn_work > 0)
        printf("%d of %d steps at the book's pace\n", seen->kept, seen->steps);
    else printf("%d steps\n", seen->steps);
}

static meg_status probe_model(meg_session *s, const settings *o)
{
    meg_context *ctx = s->ctx;
    meg_timings *t = meg_timings_new();
    meg_probe_seen seen = {0};
    meg_probe_site site = {.device = ctx->device,
                           .comm = ctx->comm,
                           .seconds = o->seconds,
                           .least = LEAST,
                           .most = MOST,
                           .patience = LONGER,
                           .seen = &seen};
    int kernels = 0;
    site.turn_work = meg_prices_head_of(ctx->prices)->rates.turn_work;
    meg_status status = meg_drift_new(ctx->device, ctx->comm, s->error, &site.drift);
    status = meg_session_agree(s, status);
    if (status == MEG_OK) status = meg_session_graph(s);
    if (status == MEG_OK) status = meg_session_plan(s, words_of(s->arguments));
    if (status == MEG_OK) status = meg_probe_plan(s->plan, s->error, &site, t, &kernels);
    if (status == MEG_OK) status = meg_timings_share(t, ctx->comm, s->error);
    if (status == MEG_OK) {
        meg_timings_prices(t, ctx->prices);
        meg_timings_models(t, ctx->prices, false);
        if (meg_session_speaks(s)) tell_kernels(s, t, kernels, &seen);
    }
    meg_timings_free(t);
    meg_drift_free(site.drift);
    return status;
}

/* ---- printing ---- */

static void print_book(const meg_prices *p)
{
    const meg_prices_head *h = meg_prices_head_of(p);
    const meg_rates *r = &h->rates;
    printf("%s, %d thread%s, %d rank%s at once: %.1f GFLOP/s, %.1f GB/s, plain C %.2f GFLOP/s\n",
           h->isa, h->threads, h->threads == 1 ? "" : "s", h->ranks, h->ranks == 1 ? "" : "s",
           1e-9 * r->flops, 1e-9 * r->bandwidth, 1e-9 * r->plain);
    printf("%.2f us between kernels, %.0f us a step besides them\n", 1e6 * r->launch,
           1e6 * r->step);
    for (int i = 0; meg_prices_link_at(p, i); i++)
        printf("%s\n", meg_prices_link_at(p, i));
    printf("%8s %8s  %s\n", "shapes", "error", "fitted");
    for (int i = 0; meg_prices_model_at(p, i); i++) {
        const meg_price_model *m = meg_prices_model_at(p, i);
        printf("%8d %6.1f %%  %s\n", m->samples, 100 * m->error, m->family);
    }
    int measured = 0;
    while (meg_prices_at(p, measured))
        measured++;
    printf("%d kernels measured for themselves\n", measured);
}

static meg_status probe(meg_session *s, const settings *o)
{
    char path[MEG_PRICES_PATH];
    meg_book_ask ask = meg_context_book(s->ctx);
    MEG_CHECK(s->error, meg_book_path(&ask, path), MEG_EARG,
              "where shall the prices be kept? name a file: --prices FILE");
    if (s->arguments->places) {
        MEG_TRY(s->error, open_book(s, path, o));
        MEG_TRY(s->error, probe_model(s, o));
    } else {
        MEG_TRY(s->error, probe_machine(s, o));
    }
    bool speaks = meg_session_speaks(s);
    meg_status status = speaks ? meg_prices_save(s->error, path, s->ctx->prices) : MEG_OK;
    MEG_TRY(s->error, meg_session_agree(s, status));
    if (!speaks) return MEG_OK;
    if (o->text) meg_prices_write(s->ctx->prices, stdout);
    else print_book(s->ctx->prices);
    printf("%skept in %s\n", o->text ? "# " : "", path);
    return MEG_OK;
}

static meg_status run(const meg_arguments *a, meg_error *e)
{
    meg_session s;
    meg_status status = meg_session_open(&s, a, e);
    if (status == MEG_OK) status = probe(&s, a->settings);
    meg_session_close(&s);
    return status;
}

static const meg_param PARAMS[] = {
    {"seconds", MEG_PARAM_REAL, offsetof(settings, seconds), "4",
     "for the machine, or for the steps of a model", NULL, 0.1, 3600},
    {"text", MEG_PARAM_BOOL, offsetof(settings, text), "no", "prints the book as it is kept", NULL,
     0, 0},
    {0},
};

const meg_command meg_command_probe = {
    .name = "probe",
    .usage = "[MODEL] [--word value ...]",
    .doc = "measures what kernels cost here, for predictions",
    .more =
        "Without MODEL: what this machine does per second, and a spread of kernels, to which "
        "models\n"
        "are fitted; with MODEL: every kernel of its plan, in place, as it runs in a step. Plans "
        "find\n"
        "a measured kernel first, then the model of its family. With -np all ranks measure at "
        "once,\n"
        "since they share the machine. The book is text, kept for each number of threads and of\n"
        "ranks on a node in the cache folder ($XDG_CACHE_HOME or ~/.cache, megalith/), or where\n"
        "--prices or MEGALITH_PRICES say.\n",
    .takes = MEG_TAKES_CONTEXT | MEG_TAKES_PLAN | MEG_TAKES_PLAN_FILE | MEG_TAKES_MODEL |
             MEG_TAKES_RANKS,
    .places = 0,
    .places_max = 1,
    .params = PARAMS,
    .settings_bytes = sizeof(settings),
    .run = run,
};
