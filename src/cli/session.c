/* Sessions: see session.h. */
#include "cli/session.h"
#include "base/random.h"
#include "cli/words.h"
#include "graph/freeze.h"
#include "import/foreign.h"
#include "import/onnx/onnx.h"
#include "plan/named.h"
#include "train/advice.h"
#include "train/checkpoint/planfile.h"
#include "train/rules.h"

#include <inttypes.h>
#include <string.h>

meg_status meg_session_said(meg_session *s, meg_status status)
{
    if (status != MEG_OK) meg_fail(s->error, status, "%s", meg_message(s->ctx));
    return status;
}

meg_status meg_session_agree(meg_session *s, meg_status status)
{
    meg_comm *c = s->ctx->comm;
    if (meg_comm_size(c) == 1) return status;
    if (status == MEG_OK) meg_error_clear(s->error);
    return meg_comm_agree(c, s->error);
}

bool meg_session_speaks(const meg_session *s)
{
    return meg_rank(s->ctx) == 0;
}

meg_status meg_session_any(meg_session *s, bool mine, bool *any)
{
    int ranks = meg_ranks(s->ctx);
    bool *all = meg_pool_alloc(s->arguments->pool, (size_t)ranks * sizeof *all);
    *any = mine;
    if (ranks == 1) return MEG_OK;
    MEG_TRY(s->error, meg_comm_gather(s->ctx->comm, s->error, &mine, sizeof mine, all));
    for (int r = 0; r < ranks; r++)
        *any = *any || all[r];
    return MEG_OK;
}

/* One rank must not evaluate, save or train on where others do not: they would wait for ever. Words of
 * the command have the same value on all ranks; names of files and data may differ, since files are
 * compared by content, but all ranks have them or none. The library compares its own words. */
static meg_status same_words(meg_session *s)
{
    const meg_arguments *a = s->arguments;
    meg_token command = {"another command", meg_hash(a->command->name)};
    int count = 0;
    MEG_TRY(s->error, meg_context_same(s->ctx, &command, 1));
    for (const meg_param *p = a->command->params; p && p->name; p++)
        count++;
    meg_token *same = meg_pool_alloc(a->pool, ((size_t)count + 1) * sizeof *same);
    for (int i = 0; i < count; i++) {
        const meg_param one[2] = {a->command->params[i]};
        const char *text = meg_options_text(a->pool, one, a->settings);
        bool name = one->kind == MEG_PARAM_TEXT || one->kind == MEG_PARAM_STRING;
        same[i].what = meg_pool_text(a->pool, "another %s--%s", name ? "use of " : "", one->name);
        same[i].value = name ? *text != '\0' : meg_hash(text);
    }
    return meg_context_same(s->ctx, same, count);
}

/* What is wrong with words is better said now than after the plan was made and printed. */
static meg_status check_words(const meg_arguments *a, meg_error *e, const meg_logger *log)
{
    meg_trainer_options scratch;
    const char *all = "";
    for (int i = 0; i < MEG_TARGETS; i++)
        all = meg_pool_text(a->pool, "%s %s", all, a->text[i]);
    const meg_command *c = a->command;
    const meg_ruled ruled = {c->name, c->params, c->rules, all, a};
    if (!log && c->takes & MEG_TAKES_TRAINER)
        MEG_TRY(e, meg_trainer_read(&(meg_trainer_words){.pool = a->pool}, e,
                                    a->text[MEG_TO_TRAINER], &scratch));
    return meg_rules_check(e, log, &ruled);
}

meg_status meg_session_open(meg_session *s, const meg_arguments *a, meg_error *e)
{
    meg_graph *none;
    *s = (meg_session){.arguments = a, .error = e};
    bool model = a->command->takes & MEG_TAKES_MODEL && a->places &&
                 !meg_model_is_file(a->place[0]);
    bool known = !model || meg_zoo_find(a->place[0]);
    if (!known) MEG_TRY(e, meg_foreign_model(e, a->place[0]));
    if (!known) return meg_zoo_build(e, a->place[0], "", &none);
    MEG_TRY(e, check_words(a, e, NULL));
    MEG_TRY(e, meg_session_said(s, meg_open(a->text[MEG_TO_CONTEXT], &s->ctx)));
    s->ctx->probes = a->command->priced && !meg_context_rated(s->ctx);
    MEG_TRY(e, meg_session_said(s, same_words(s)));
    return check_words(a, e, &s->ctx->log);
}

/* An error that all ranks have is told by the first, before any of them ends: a launcher ends the
 * others with it. */
static void tell_once(meg_session *s)
{
    meg_error none = {0};
    if (s->error->status == MEG_OK || meg_ranks(s->ctx) == 1) return;
    fflush(stdout);
    if (meg_session_speaks(s)) fprintf(stderr, "megalith: %s\n", s->error->message);
    meg_comm_barrier(s->ctx->comm, &none);
    s->error->message[0] = '\0';
}

void meg_session_close(meg_session *s)
{
    meg_trainer_free(s->trainer);
    meg_plan_free(s->plan);
    meg_forecast_free(&s->forecast);
    meg_graph_free(s->graph);
    meg_data_free(s->data);
    tell_once(s);
    meg_close(s->ctx);
    *s = (meg_session){0};
}

meg_status meg_session_data(meg_session *s, const char *source, meg_data **out)
{
    return meg_session_agree(s, meg_session_said(s, meg_data_open(s->ctx, source, out)));
}

/* ---- graphs ---- */

static bool table_has(const meg_param *table, const char *word)
{
    for (; table->name; table++)
        if (strcmp(table->name, word) == 0) return true;
    return false;
}

/* The words of the model, with image and classes of the data where they are not given. */
static const char *model_text(const meg_session *s, const meg_param *params)
{
    const meg_arguments *a = s->arguments;
    const char *text = a->text[MEG_TO_MODEL];
    if (!s->data) return text;
    const meg_dataset *d = &s->data->set;
    const char *sample = table_has(params, "tokens") ? "tokens" : "image";
    bool classes = table_has(params, "classes") && d->classes > 0;
    if (classes && !meg_arguments_has(a, MEG_TO_MODEL, "classes"))
        text = meg_pool_text(a->pool, "%s classes=%d", text, d->classes < 2 ? 2 : d->classes);
    if (!table_has(params, sample) || meg_arguments_has(a, MEG_TO_MODEL, sample)) return text;
    text = meg_pool_text(a->pool, "%s %s=", text, sample);
    for (int i = 1; i < d->rank; i++)
        text = meg_pool_text(a->pool, "%s%s%" PRId64, text, i > 1 ? "x" : "", d->dims[i]);
    return text;
}

/* Image and classes are taken from data only where these are certain. The input of a file of others
 * does not come from the data: a wrong one is found when they are compared. */
static meg_status check_taken(meg_session *s, const meg_model *m)
{
    const meg_arguments *a = s->arguments;
    const meg_findings *f = s->data ? &s->data->set.findings : NULL;
    bool image = f && table_has(m->params, "image") && !meg_arguments_has(a, MEG_TO_MODEL, "image");
    bool classes = f && table_has(m->params, "classes") &&
                   !meg_arguments_has(a, MEG_TO_MODEL, "classes");
    MEG_CHECK(s->error, !image || !*f->shape, MEG_EARG, "%s", f->shape);
    MEG_CHECK(s->error, !classes || !*f->classes, MEG_EARG, "%s", f->classes);
    return MEG_OK;
}

/* Image and classes as the graph has them. */
static void look_at(meg_session *s)
{
    const meg_graph *g = s->graph;
    s->model = (meg_zoo_common){0};
    for (int i = g->values - 1; i >= 0; i--) {
        const meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT) continue;
        s->model.image.count = x->rank - 1;
        memcpy(s->model.image.at, x->dims + 1, (size_t)(x->rank - 1) * sizeof *x->dims);
    }
    if (g->outputs) s->model.classes = g->value[g->output[0]].shape.hi[MEG_C];
}

/* All patterns of --freeze, or of --train, between commas. */
static meg_status patterns_of(meg_session *s, const char *wanted, const char **all)
{
    const meg_arguments *a = s->arguments;
    const char *at = a->text[MEG_TO_KINDS];
    char word[MEG_TEXT];
    meg_excerpt value;
    *all = "";
    while (meg_options_next(&at, word, &value) > 0)
        if (strcmp(word, wanted) == 0)
            *all = meg_pool_text(a->pool, "%s%s%.*s", *all, **all ? "," : "", value.length,
                                 value.at);
    return MEG_OK;
}

static meg_status choose_weights(meg_session *s)
{
    meg_freezing choice = {0};
    MEG_TRY(s->error, patterns_of(s, "freeze", &choice.freeze));
    MEG_TRY(s->error, patterns_of(s, "train", &choice.train));
    return meg_graph_choose(s->graph, s->error, &choice);
}

/* The reader of files is told at once: it warns about weights of which a file does not say enough. */
static meg_status load_graph(meg_session *s)
{
    const char *path = s->arguments->place[0], *text = model_text(s, meg_onnx_params);
    static const char *const words[] = {"freeze", "train"};
    for (int i = 0; i < 2; i++) {
        const char *patterns;
        MEG_TRY(s->error, patterns_of(s, words[i], &patterns));
        const char *pair = *patterns ? meg_quoted(s->arguments->pool, words[i], patterns) : "";
        MEG_CHECK(s->error, pair, MEG_EARG, "--%s %s: it has ' and \" in it", words[i], patterns);
        text = meg_pool_text(s->arguments->pool, "%s %s", text, pair);
    }
    meg_status status = meg_session_said(s, meg_graph_load(s->ctx, path, text, &s->graph));
    if (status != MEG_OK && s->data && *s->data->set.findings.shape) {
        meg_error was = *s->error;
        return meg_fail(s->error, status, "%s; %s", was.message, s->data->set.findings.shape);
    }
    MEG_TRY(s->error, status);
    look_at(s);
    return s->data ? meg_session_fits(s, s->data) : MEG_OK;
}

/* An extent that a model cannot take may be the data's, and another image= would not fit them. */
static meg_status blame_data(meg_session *s, meg_status status)
{
    meg_error was = *s->error;
    if (status == MEG_OK || !s->data) return status;
    if (meg_arguments_has(s->arguments, MEG_TO_MODEL, "image")) return status;
    return meg_fail(s->error, status, "%s (the image is that of %s: --data names another)",
                    was.message, s->data->set.source);
}

static meg_status make_graph(meg_session *s)
{
    const meg_model *m = meg_zoo_find(s->arguments->place[0]);
    if (!m) return load_graph(s);
    MEG_TRY(s->error, check_taken(s, m));
    const char *text = model_text(s, m->params);
    void *settings = meg_pool_alloc(s->arguments->pool, m->option_bytes);
    MEG_TRY(s->error, meg_options_parse(s->error, m->params, m->name, text, settings));
    s->model = *(const meg_zoo_common *)settings;
    meg_status status = meg_session_said(s, meg_graph_model(s->ctx, m->name, text, &s->graph));
    MEG_TRY(s->error, blame_data(s, status));
    MEG_TRY(s->error, choose_weights(s));
    return s->data ? meg_session_fits(s, s->data) : MEG_OK;
}

meg_status meg_session_graph(meg_session *s)
{
    return meg_session_agree(s, make_graph(s));
}

meg_status meg_session_fits(meg_session *s, const meg_data *d)
{
    const meg_dataset *set = &d->set;
    bool same = set->rank == s->model.image.count + 1;
    for (int i = 1; same && i < set->rank; i++)
        same = set->dims[i] == s->model.image.at[i - 1];
    char has[MEG_TEXT] = "";
    for (int i = 1; i < set->rank; i++)
        snprintf(has + strlen(has), sizeof has - strlen(has), "%s%" PRId64, i > 1 ? "x" : "",
                 set->dims[i]);
    const meg_findings *f = &set->findings;
    MEG_CHECK(s->error, same, MEG_EARG,
              "%s: its samples are %s, but %s was made for another shape: use %s=%s%s%s",
              set->source, has, s->graph->name, set->tokens ? "tokens" : "image", has,
              *f->shape ? "; " : "", f->shape);
    return meg_session_said(s, (s->unlabelled ? meg_data_feeds : meg_data_fits)(d, s->graph));
}

/* ---- plans and trainers ---- */

static const char *joined(const meg_session *s, meg_target target, const char *more)
{
    return meg_pool_text(s->arguments->pool, "%s %s", s->arguments->text[target], more);
}

/* The words of a plan file, of the command line and of the command. Nothing is chosen besides, unless one of
 * them says so. */
static meg_status read_plan(meg_session *s, const char *path, int ranks, const char **out)
{
    const char *all = NULL, *given = *out;
    meg_plan_text *t = NULL;
    MEG_TRY(s->error, meg_plan_file_read(s->error, path, &t));
    meg_status status = meg_plan_text_fits(t, s->error, s->graph, ranks);
    if (status == MEG_OK) status = meg_plan_text_join(t, s->error, given, &all);
    if (status == MEG_OK)
        *out = meg_pool_text(s->arguments->pool, "%s%s",
                             meg_options_has(all, "goal") ? "" : "goal=given ", all);
    meg_plan_text_free(t);
    return status;
}

meg_status meg_session_words(meg_session *s, const meg_wording *w, const char **out)
{
    const meg_arguments *a = s->arguments;
    const meg_named_plan *named = w->plan ? meg_named_plan_find(w->plan) : NULL;
    *out = joined(s, MEG_TO_PLAN, w->more);
    if (named && !meg_arguments_has(a, MEG_TO_PLAN, "goal")) /* such a plan is complete */
        *out = meg_pool_text(a->pool, "goal=given %s", *out);
    if (named) *out = meg_named_plan_join(named, a->pool, *out);
    return w->plan && !named ? read_plan(s, w->plan, w->ranks, out) : MEG_OK;
}

/* With those of the plan file, or plan with a name, that the command line has. */
static meg_status plan_words(meg_session *s, const char *more, int ranks, const char **out)
{
    const char *at = s->arguments->text[MEG_TO_PLAN_FILE];
    char word[MEG_TEXT];
    meg_excerpt value;
    meg_wording w = {NULL, more, ranks};
    while (meg_options_next(&at, word, &value) > 0) {
        MEG_CHECK(s->error, !w.plan, MEG_EARG,
                  "--plan %s and --plan %.*s: there can be only one (compare takes several)",
                  w.plan, value.length, value.at);
        w.plan = meg_pool_text(s->arguments->pool, "%.*s", value.length, value.at);
    }
    return meg_session_words(s, &w, out);
}

/* Where a checkpoint may say how the plan was; "": nowhere. */
static const char *checkpoints(const meg_session *s)
{
    const char *folder = meg_arguments_value(s->arguments, MEG_TO_TRAINER, "checkpoint");
    const char *resume = meg_arguments_value(s->arguments, MEG_TO_TRAINER, "resume");
    return folder && !(resume && strcmp(resume, "no") == 0) ? folder : "";
}

meg_status meg_session_plan(meg_session *s, const char *more)
{
    const char *text, *folder = checkpoints(s);
    MEG_TRY(s->error, meg_session_agree(s, plan_words(s, more, meg_ranks(s->ctx), &text)));
    meg_status status = meg_plan_resume(s->graph, s->data, text, folder, &s->plan);
    MEG_TRY(s->error, meg_session_said(s, status));
    meg_need mine = meg_need_of(s->plan);
    s->needs = meg_pool_alloc(s->arguments->pool, (size_t)s->plan->world.ranks * sizeof mine);
    return meg_comm_gather(s->ctx->comm, s->error, &mine, sizeof mine, s->needs);
}

/* What is said of the words holds for all ranks. */
static meg_status forecast(meg_session *s, int ranks, const char *given)
{
    return meg_session_said(
        s, meg_context_forecast(s->graph, s->data, given, ranks, s->table, &s->forecast));
}

meg_status meg_session_plan_for(meg_session *s, const meg_world *world)
{
    const char *text, *given;
    bool first = !s->plan;
    MEG_TRY(s->error, plan_words(s, "", world->ranks, &given));
    if (first) MEG_TRY(s->error, meg_session_said(s, meg_context_imagine(s->ctx, world->ranks)));
    if (first) MEG_TRY(s->error, forecast(s, world->ranks, given));
    text = s->forecast.options;
    meg_plan_free(s->plan);
    s->plan = NULL;
    meg_status status = meg_context_plan(s->graph, s->data, world, text, &s->plan);
    if (status == MEG_EBUDGET) {
        meg_forecast_excuse(s->ctx, &s->forecast);
        meg_context_advise(s->graph, s->data, &(meg_too_large){text, world->ranks, 0});
    }
    if (status == MEG_OK && first)
        status = meg_plan_judge(s->plan, &s->ctx->error, &s->ctx->log, given);
    if (status == MEG_OK) meg_plan_foretell(s->plan, &s->forecast);
    return meg_session_said(s, status);
}

meg_status meg_session_plan_turn(meg_session *s, int rank)
{
    const char *text;
    int ranks = s->plan->world.ranks;
    meg_status status = meg_plan_turn(s->plan, &s->ctx->error, rank);
    if (status == MEG_OK) { /* the forecast is of all ranks */
        meg_plan_foretell(s->plan, &s->forecast);
        return MEG_OK;
    }
    meg_plan_free(s->plan);
    s->plan = NULL;
    MEG_TRY(s->error, plan_words(s, "", ranks, &text));
    if (status == MEG_EBUDGET) {
        meg_forecast_excuse(s->ctx, &s->forecast);
        meg_context_advise(s->graph, s->data, &(meg_too_large){text, ranks, 0});
    }
    return meg_session_said(s, status);
}

meg_status meg_session_trainer(meg_session *s, const char *more)
{
    const char *text = joined(s, MEG_TO_TRAINER, more);
    return meg_session_said(s, meg_trainer_new(s->plan, s->data, text, &s->trainer));
}

meg_status meg_session_save(meg_session *s, const char *path)
{
    bool network = meg_model_is_file(path);
    return meg_session_said(s, (network ? meg_trainer_export : meg_trainer_save)(s->trainer, path));
}

void meg_session_record(const meg_session *s, meg_record *r)
{
    const meg_plan *p = s->plan;
    meg_record_text(r, "model", s->graph->name);
    meg_record_int(r, "parameters", meg_graph_parameters(s->graph));
    meg_record_int(r, "batch", p->options.batch);
    meg_record_int(r, "micro", p->options.micro);
    meg_record_text(r, "optimizer", p->optimizer->name);
    meg_record_text(r, "device", s->ctx->options.device);
    meg_record_int(r, "threads", meg_device_threads(s->ctx->device));
    meg_record_int(r, "ranks", p->world.ranks);
    meg_record_int(r, "predicted_peak_bytes", meg_needs_bytes(s->plan, s->needs));
    meg_record_real(r, "predicted_seconds_per_step", meg_needs_seconds(s->plan, s->needs));
}
