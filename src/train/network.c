/* Graphs and plans of the public interface. */
#include "base/random.h"
#include "exec/alike.h"
#include "exec/profile.h"
#include "graph/fingerprint.h"
#include "graph/freeze.h"
#include "import/foreign.h"
#include "import/onnx/onnx.h"
#include "train/advice.h"
#include "train/checkpoint/planfile.h"
#include "train/context.h"
#include "train/forecast.h"
#include "train/outlook/limits.h"
#include "train/resume.h"
#include "zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static meg_context *context_of(const meg_graph *g)
{
    return g->owner;
}

/* ---- graphs ---- */

meg_status meg_graph_new(meg_context *ctx, const char *name, meg_graph **out)
{
    meg_graph *g = meg_graph_create(name);
    g->owner = ctx;
    *out = g;
    return MEG_OK;
}

meg_status meg_graph_model(meg_context *ctx, const char *model, const char *options,
                           meg_graph **out)
{
    MEG_TRY(&ctx->error, meg_zoo_build(&ctx->error, model, options, out));
    (*out)->owner = ctx;
    return MEG_OK;
}

static void warn(void *context, const char *message)
{
    const meg_context *ctx = context;
    meg_log(&ctx->log, MEG_WARN, "%s", message);
}

meg_status meg_graph_load(meg_context *ctx, const char *path, const char *options, meg_graph **out)
{
    meg_onnx_listener listener = {warn, ctx};
    MEG_TRY(&ctx->error, meg_foreign_model(&ctx->error, path));
    MEG_TRY(&ctx->error, meg_onnx_load(&ctx->error, path, options, &listener, out));
    (*out)->owner = ctx;
    return MEG_OK;
}

void meg_graph_free(meg_graph *g)
{
    meg_graph_destroy(g);
}

int64_t meg_graph_parameters(const meg_graph *g)
{
    return meg_graph_trainable(g);
}

meg_status meg_graph_freeze(meg_graph *g, const char *patterns)
{
    return meg_graph_freeze_names(g, &context_of(g)->error, patterns);
}

meg_status meg_graph_train(meg_graph *g, const char *patterns)
{
    return meg_graph_train_names(g, &context_of(g)->error, patterns);
}

/* "Nx3x224x224", perhaps with ":f32" or ":i32" behind it. */
static bool read_shape(const char *shape, int *rank, int64_t dims[MEG_AXES], meg_dtype *dtype)
{
    const char *at = shape;
    bool good = *at++ == 'N';
    *rank = 1;
    *dtype = MEG_F32;
    dims[0] = 1;
    while (good && *at == 'x') {
        char *end;
        good = *rank < MEG_AXES;
        if (good) dims[(*rank)++] = strtoll(at + 1, &end, 10), at = end;
    }
    if (strcmp(at, ":i32") == 0) *dtype = MEG_I32, at += strlen(at);
    if (strcmp(at, ":f32") == 0) at += strlen(at);
    return good && !*at && *rank >= 2;
}

meg_val meg_input(meg_graph *g, const char *name, const char *shape)
{
    int64_t dims[MEG_AXES];
    int rank;
    meg_dtype dtype;
    if (g->error.status != MEG_OK) return -1;
    if (!read_shape(shape, &rank, dims, &dtype)) {
        meg_fail(&g->error, MEG_EARG,
                 "%s: shape '%s' is not like Nx3x224x224 (up to 5 axes), or Nx128:i32 for ids",
                 name, shape);
        return -1;
    }
    return meg_graph_input_typed(g, name, dtype, rank, dims);
}

meg_val meg_join(meg_graph *g, const char *op, const char *options, int count, const meg_val x[])
{
    if (g->error.status != MEG_OK) return -1;
    char *text = meg_pool_text(g->pool, "%s", options ? options : "");
    char *name = meg_pool_text(g->pool, "%s", text); /* as long as the text, at most */
    if (!meg_options_take(text, "name", name, strlen(text) + 1)) *name = '\0';
    return meg_graph_add(g, op, name, text, count, x);
}

meg_val meg_layer(meg_graph *g, const char *op, const char *options, meg_val x)
{
    return meg_join(g, op, options, 1, &x);
}

meg_val meg_graph_loss(meg_graph *g, const char *loss, meg_val logits)
{
    char op[64], weight[64] = "";
    double factor = 1;
    char *end = weight, *options = meg_pool_text(g->pool, "%s", loss + strcspn(loss, " "));
    if (g->error.status != MEG_OK) return -1;
    snprintf(op, sizeof op, "%.*s", (int)strcspn(loss, " "), loss);
    if (meg_options_take(options, "weight", weight, sizeof weight)) {
        factor = strtod(weight, &end);
        if (!*weight || *end || !isfinite(factor)) {
            meg_fail(&g->error, MEG_EARG, "%s: weight=%s is no number", op, weight);
            return -1;
        }
    }
    return meg_graph_add_loss(g, op, options, logits, factor);
}

meg_status meg_graph_done(meg_graph *g, const char *loss, meg_val logits)
{
    if (loss) meg_graph_loss(g, loss, logits);
    if (g->error.status == MEG_OK && g->losses == 0)
        meg_fail(&g->error, MEG_EARG, "%s has no loss: give one, or call meg_graph_loss before",
                 g->name);
    if (g->error.status == MEG_OK) return MEG_OK;
    context_of(g)->error = g->error;
    return g->error.status;
}

/* ---- plans ---- */

/* For its summary. */
static void name_data(meg_plan *p, const meg_data *d)
{
    if (d) p->data = meg_pool_text(p->pool, "%s", d->set.source);
}

meg_status meg_context_plan(meg_graph *g, const meg_data *d, const meg_world *world,
                            const char *options, meg_plan **out)
{
    meg_context *ctx = context_of(g);
    if (d) MEG_TRY(&ctx->error, meg_data_fits(d, g));
    if (meg_comm_size(ctx->comm) == 1) MEG_TRY(&ctx->error, meg_context_prices(ctx));
    meg_profile profile = meg_profile_priced(ctx->device, ctx->prices);
    MEG_TRY(&ctx->error,
            meg_plan_make_for(g, &ctx->error, &profile, world, options, d ? d->set.count : 0, out));
    name_data(*out, d);
    return MEG_OK;
}

static void tell_unlike(const meg_context *ctx, const meg_alike *a)
{
    meg_log(&ctx->log, MEG_WARN,
            "ranks are unlike: rank %d would hold %s as %s, rank %d as %s; all hold %d weight%s in "
            "plain format, which takes more time",
            a->rank[0], a->value, meg_format_name(a->format[0]), a->rank[1],
            meg_format_name(a->format[1]), a->plain, a->plain == 1 ? "" : "s");
}

/* Some numbers of every weight that a file brings along: enough to know another file by. */
static uint64_t hash_stored(const meg_graph *g)
{
    enum {
        PROBES = 16
    };
    uint64_t hash = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        int64_t last = meg_box_size(&v->shape) - 1;
        for (int k = 0; v->stored.data && last >= 0 && k < PROBES; k++) {
            double number;
            uint64_t bits;
            meg_stored_read(&v->stored, last * k / (PROBES - 1), 1, &number);
            memcpy(&bits, &number, sizeof bits);
            hash = meg_hash_word(hash, bits);
        }
    }
    return hash;
}

/* Ranks make their parts of the plan without talking: of the same things, they must fit. */
static meg_status check_ranks(meg_context *ctx, const meg_graph *g, const meg_data *d,
                              const char *options)
{
    if (meg_comm_size(ctx->comm) == 1) return MEG_OK;
    const meg_token same[] = {
        {"another model (or model file)", meg_graph_fingerprint(g)},
        {"other weights in its model file", hash_stored(g)},
        {"other options of the plan", meg_hash(options ? options : "")},
        {"another device", meg_hash(ctx->options.device)},
        {"another seed", (uint64_t)ctx->options.seed},
        {"another number of samples", d ? (uint64_t)d->set.count : 0},
    };
    return meg_context_same(ctx, same, (int)(sizeof same / sizeof *same));
}

typedef struct wording { /* of a plan of all ranks of the job */
    meg_graph *graph;
    const meg_data *data;
    const char *given;
    meg_forecast found; /* what was chosen besides, if anything was */
} wording;

static meg_status make_alike(const wording *w, meg_alike *out)
{
    meg_context *ctx = context_of(w->graph);
    const char *options = w->found.options ? w->found.options : w->given;
    meg_world world = {meg_comm_rank(ctx->comm), meg_comm_size(ctx->comm)};
    meg_profile profile = meg_profile_priced(ctx->device, ctx->prices);
    meg_plan_input in = {&profile, &world, options, w->data ? w->data->set.count : 0, NULL};
    return meg_plan_alike(ctx->comm, &ctx->error, w->graph, &in, out);
}

/* Says what is to be said of the plan. */
static meg_status finish(const wording *w, const meg_alike *a, meg_plan **out)
{
    meg_context *ctx = context_of(w->graph);
    if (a->plain) tell_unlike(ctx, a);
    meg_status status = meg_plan_judge(a->plan, &ctx->error, &ctx->log, w->given);
    status = meg_context_agree(ctx, status);
    if (status != MEG_OK) {
        meg_plan_destroy(a->plan);
        return status;
    }
    name_data(a->plan, w->data);
    meg_plan_foretell(a->plan, &w->found);
    *out = a->plan;
    return MEG_OK;
}

static meg_status make_plan(const wording *w, meg_plan **out)
{
    meg_context *ctx = context_of(w->graph);
    meg_alike alike = {0};
    meg_status status = make_alike(w, &alike);
    if (status == MEG_EBUDGET) {
        const char *options = w->found.options ? w->found.options : w->given;
        meg_forecast_excuse(ctx, &w->found);
        meg_context_advise(w->graph, w->data,
                           &(meg_too_large){options, meg_comm_size(ctx->comm), 0});
    }
    MEG_TRY(&ctx->error, status);
    return finish(w, &alike, out);
}

/* ---- one rank alone ---- */

/* What a described machine has, only the forecast knows. */
static meg_status holds(meg_context *ctx, const meg_plan *p, bool *out)
{
    bool here = !*ctx->options.machine;
    if (here && !ctx->limit)
        MEG_TRY(&ctx->error, meg_limits_gather(ctx->comm, &ctx->error, &ctx->limit));
    *out = here && p->arena <= ctx->limit[0];
    return MEG_OK;
}

/* The plan of the words as they are; *out stays NULL where it needs more than there is. */
static meg_status plan_as_given(const wording *w, meg_plan **out)
{
    meg_context *ctx = context_of(w->graph);
    meg_alike alike = {0};
    bool enough = false;
    meg_status status = make_alike(w, &alike);
    if (status == MEG_OK) status = holds(ctx, alike.plan, &enough);
    if (enough) return finish(w, &alike, out);
    meg_plan_destroy(alike.plan);
    if (status != MEG_OK && status != MEG_EBUDGET) return status;
    meg_error_clear(&ctx->error);
    return MEG_OK;
}

void meg_plan_foretell(meg_plan *p, const meg_forecast *f)
{
    if (!f->options) return;
    p->seconds = f->seconds;
    if (*f->why) p->why = meg_pool_text(p->pool, "%s", f->why);
    if (f->chosen_for != MEG_GOAL_GIVEN &&
        !p->chosen) { /* of a plan that became another rank's it is known */
        p->chosen = meg_pool_text(p->pool, "%s", f->chosen);
        p->chosen_for = f->chosen_for;
    }
    p->options.goal = MEG_GOAL_GIVEN; /* the words are complete now, for whoever saves them */
}

meg_status meg_plan_new(meg_graph *g, const meg_data *d, const char *options, meg_plan **out)
{
    return meg_plan_resume(g, d, options, "", out);
}

/* One rank alone has nothing to choose, unless its plan does not fit, or the least memory is asked for. */
meg_status meg_plan_resume(meg_graph *g, const meg_data *d, const char *options, const char *folder,
                           meg_plan **out)
{
    meg_context *ctx = context_of(g);
    int ranks = meg_comm_size(ctx->comm);
    wording w = {g, d, options, {0}};
    bool chooses = ranks > 1 || meg_search_wanted(options, ranks);
    meg_plan *p = NULL;
    MEG_TRY(&ctx->error, check_ranks(ctx, g, d, options));
    MEG_TRY(&ctx->error, meg_context_agree(ctx, d ? meg_data_fits(d, g) : MEG_OK));
    MEG_TRY(&ctx->error, meg_context_prices(ctx));
    meg_status status = MEG_OK;
    if (chooses && !*folder && meg_forecast_tries(options, ranks)) status = plan_as_given(&w, &p);
    if (status == MEG_OK && chooses && !p)
        status = meg_context_forecast_again(g, d, &(meg_resumption){options, folder}, &w.found);
    if (status == MEG_OK && !p) status = make_plan(&w, &p);
    meg_forecast_free(&w.found);
    if (status == MEG_OK) *out = p;
    return status;
}

int64_t meg_plan_bytes(const meg_plan *p)
{
    return p->arena;
}

double meg_plan_seconds(const meg_plan *p)
{
    return p->seconds;
}

meg_status meg_plan_print(const meg_plan *p, const char *what, FILE *out)
{
    meg_context *ctx = p->owner;
    if (strcmp(what, "summary") == 0) meg_plan_summary(p, out);
    else if (strcmp(what, "program") == 0)
        for (int i = 0; i < MEG_ENTRIES; i++) {
            if (p->entry[i].batch) meg_entry_print(&p->entry[i], true, out);
        }
    else return meg_fail(&ctx->error, MEG_EARG, "cannot print '%s'; known: summary program", what);
    return MEG_OK;
}

meg_status meg_plan_save(const meg_plan *p, const char *path)
{
    meg_context *ctx = p->owner;
    meg_status status = meg_rank(ctx) == 0 ? meg_plan_file_write(&ctx->error, path, p) : MEG_OK;
    return meg_context_agree(ctx, status);
}

/* All that a rank does for itself. The words are the plan: nothing is chosen besides, unless they say so. */
static meg_status read_file(meg_graph *g, const char *path, const char *given, meg_pool *pool,
                            const char **out)
{
    meg_context *ctx = context_of(g);
    meg_plan_text *t = NULL;
    const char *all = NULL;
    MEG_TRY(&ctx->error, meg_plan_file_read(&ctx->error, path, &t));
    meg_status status = meg_plan_text_fits(t, &ctx->error, g, meg_ranks(ctx));
    if (status == MEG_OK) status = meg_plan_text_join(t, &ctx->error, given ? given : "", &all);
    if (status == MEG_OK)
        *out = meg_pool_text(pool, "%s%s", meg_options_has(all, "goal") ? "" : "goal=given ", all);
    meg_plan_text_free(t);
    return status;
}

meg_status meg_plan_load(meg_graph *g, const meg_data *d, const char *path, const char *options,
                         meg_plan **out)
{
    meg_context *ctx = context_of(g);
    meg_pool *pool = meg_pool_new();
    const char *words = NULL;
    meg_status status = meg_context_agree(ctx, read_file(g, path, options, pool, &words));
    if (status == MEG_OK) status = meg_plan_new(g, d, words, out);
    meg_pool_free(pool);
    return status;
}

void meg_plan_free(meg_plan *p)
{
    meg_plan_destroy(p);
}
