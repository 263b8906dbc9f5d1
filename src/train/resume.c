/* Words of checkpoints: see resume.h. */
#include "train/resume.h"
#include "graph/fingerprint.h"
#include "train/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is learned, and what a search never touches: not taken from a checkpoint. */
static const char *const LEARNING[] = {"batch",       "norm",    "optimizer", "keep_grads",
                                       "input_grads", "predict", "goal"};

typedef struct recalled { /* what the first rank has found */
    char *options;        /* the given words and those of the checkpoint; "": they are not taken */
    char *chosen;         /* those that come from there and are not the defaults */
    char *line;           /* for people; "": there is nothing to say */
    int chosen_for;
} recalled;

static bool is_learning(const char *word)
{
    for (size_t i = 0; i < sizeof LEARNING / sizeof *LEARNING; i++)
        if (strcmp(LEARNING[i], word) == 0) return true;
    return false;
}

/* The value of a word, or its default. */
static const char *value_of(meg_pool *pool, const char *options, const meg_param *p)
{
    meg_given pair;
    if (!meg_given_find(options, p->name, &pair)) return p->initial;
    return pair.value.at ? meg_pool_text(pool, "%.*s", pair.value.length, pair.value.at) : "yes";
}

static const char *goal_name(meg_pool *pool, int goal)
{
    meg_plan_options o = {.goal = goal};
    char text[MEG_TEXT];
    meg_param one[] = {*meg_param_find(meg_plan_params, "goal"), {0}};
    one->initial = NULL;
    meg_options_print(one, &o, text, sizeof text);
    return meg_pool_text(pool, "%s", text + strlen("goal="));
}

/* Why the words of a checkpoint are not those of this plan; NULL: they are. Words that it was given count, and so does
 * what is learned, on which the others depend. */
static const char *objection(const meg_plan_text *t, const char *given, int ranks)
{
    meg_pool *pool = t->pool;
    if (t->ranks != ranks)
        return meg_pool_text(pool, "it was made on %" PRId64 " rank%s, now there are %d", t->ranks,
                             t->ranks == 1 ? "" : "s", ranks);
    for (const meg_param *p = meg_plan_params; p->name; p++) {
        bool has = meg_options_has(given, p->name);
        if (!has && (!is_learning(p->name) || strcmp(p->name, "goal") == 0)) continue;
        const char *mine = value_of(pool, given, p), *then = value_of(pool, t->options, p);
        if (strcmp(p->name, "goal") == 0) then = goal_name(pool, t->chosen_for);
        if (!meg_param_same(p, mine, then))
            return meg_pool_text(pool, "%s=%s %s, but there it is %s=%s", p->name, mine,
                                 has ? "is given" : "is the default", p->name, then);
    }
    return NULL;
}

static char *kept(const char *text)
{
    char *copy = strdup(text);
    if (!copy) abort();
    return copy;
}

static void take(const meg_plan_text *t, const char *given, recalled *out)
{
    char *own = meg_pool_text(t->pool, "%s", given);
    const char *all, *found = "";
    meg_options_drop(own, "goal");
    all = meg_pool_text(t->pool, "goal=given %s", own);
    for (const meg_param *p = meg_plan_params; p->name; p++) {
        if (is_learning(p->name) || meg_options_has(given, p->name)) continue;
        const char *value = value_of(t->pool, t->options, p);
        if (meg_param_same(p, value, p->initial) || !*value) continue;
        const char *quote = strpbrk(value, " \t'") ? "\"" : "";
        found = meg_pool_text(t->pool, "%s%s%s=%s%s%s", found, *found ? " " : "", p->name, quote,
                              value, quote);
    }
    out->options = kept(meg_pool_text(t->pool, "%s %s", all, found));
    out->chosen = kept(found);
    out->chosen_for = t->chosen_for;
    out->line = kept(meg_pool_text(t->pool, "auto: the words of %s: %s\n", t->what,
                                   *found ? found : "replicas alone, no more words"));
}

static void forget(recalled *r)
{
    free(r->options);
    free(r->chosen);
    free(r->line);
    *r = (recalled){.chosen_for = MEG_GOAL_GIVEN};
}

/* On the first rank. One rank alone looks only for what one had to choose, since its memory was short. */
static void recall(const meg_graph *g, const meg_resumption *r, int ranks, recalled *out)
{
    meg_plan_text *t = NULL;
    const char *given = r->options ? r->options : "";
    if (*r->folder) meg_checkpoint_words(r->folder, &t);
    bool ours = t && t->has_fingerprint && t->fingerprint == meg_graph_fingerprint(g);
    ours = ours && (ranks > 1 || t->ranks == 1);
    const char *why = ours ? objection(t, given, ranks) : NULL;
    if (ours && !why) take(t, given, out);
    if (why)
        out->line = kept(
            meg_pool_text(t->pool, "auto: the words of %s are not taken: %s\n", t->what, why));
    if (ranks == 1 && out->chosen && !*out->chosen) forget(out);
    meg_plan_text_free(t);
}

static meg_status share(const meg_context *ctx, meg_error *e, recalled *r)
{
    MEG_TRY(e, meg_context_share(ctx, e, &r->options));
    MEG_TRY(e, meg_context_share(ctx, e, &r->chosen));
    MEG_TRY(e, meg_context_share(ctx, e, &r->line));
    return meg_comm_share(ctx->comm, e, 0, &r->chosen_for, sizeof r->chosen_for);
}

/* What is said before the lines of the forecast. */
static void say_first(meg_forecast *f, const char *line)
{
    size_t size = strlen(line) + strlen(f->why) + 1;
    char *both = calloc(1, size);
    if (!both) abort();
    snprintf(both, size, "%s%s", line, f->why);
    free(f->why);
    f->why = both;
}

/* The plan of these words; false: there is none any more, or not one that fits, as the line then says. */
static bool plan_again(const meg_graph *g, const meg_data *d, recalled *r, meg_forecast *out)
{
    meg_context *ctx = g->owner;
    meg_status status = meg_context_forecast_all(g, d, r->options, out);
    bool good = status == MEG_OK && out->fits;
    if (good) {
        free(out->chosen);
        out->chosen = kept(r->chosen);
        out->chosen_for = r->chosen_for;
        return true;
    }
    meg_pool *pool = meg_pool_new();
    char *line = kept(
        meg_pool_text(pool, "%.*s; they are not taken: %s\n", (int)strcspn(r->line, "\n"), r->line,
                      status == MEG_OK ? "they do not fit into the memory" : ctx->error.message));
    meg_pool_free(pool);
    free(r->line);
    r->line = line;
    meg_forecast_free(out);
    return false;
}

/* Words that are the whole plan leave nothing to take. */
static bool is_given(const char *options)
{
    meg_plan_options o;
    meg_error ignored = {0};
    meg_pool *pool = meg_pool_new();
    bool read = meg_plan_options_read(pool, &ignored, options, &o) == MEG_OK;
    meg_pool_free(pool);
    return !read || o.goal == MEG_GOAL_GIVEN; /* what cannot be read: others say why */
}

meg_status meg_context_forecast_again(const meg_graph *g, const meg_data *d,
                                      const meg_resumption *r, meg_forecast *out)
{
    meg_context *ctx = g->owner;
    meg_error *e = &ctx->error;
    recalled found = {.chosen_for = MEG_GOAL_GIVEN};
    meg_status status = MEG_OK;
    bool looks = !is_given(r->options);
    if (looks && meg_comm_rank(ctx->comm) == 0) recall(g, r, meg_comm_size(ctx->comm), &found);
    if (looks) status = share(ctx, e, &found);
    bool taken = looks && status == MEG_OK && *found.options && plan_again(g, d, &found, out);
    if (!taken && status == MEG_OK) status = meg_context_forecast_all(g, d, r->options, out);
    if (status == MEG_OK && found.line && *found.line) say_first(out, found.line);
    forget(&found);
    return status;
}
