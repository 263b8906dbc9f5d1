/* The search for a plan: see search.h. */
#include "plan/search/search.h"
#include "base/option.h"
#include "plan/search/estimate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 16, /* ranks; of more, estimates say which plans are looked at */
    KINDS = 8 /* 1: cuts channels, 2: runs blocks again, 4: cuts weights over ranks */
};

static const double LOOKS = 0.7; /* of the work is for shapes, the rest refines them */
static const int DEEP = 1000; /* nodes; of many ranks of such nets wide halos take too long to try */
static const double MARGIN = 1.1; /* estimates of memory are that good, or so */
static const double ROUGH = 1.15; /* so are estimates of seconds */
static const double AGAIN = 1.05; /* running blocks again costs a little more than estimates say */
static const double CLOSE = 1.25; /* while nothing fits, what may be a little more is looked at */
static const double WORK = 4e5, WORK_MANY = 7e5; /* instructions; of many ranks */

static const double SIMPLER = 1.03; /* so much slower may the plan with fewer words be */

/* Words that a search may set. */
static const char *const FREE[] = {"replicas", "stages",    "chunks",    "schedule", "replications",
                                   "assign",   "mesh",      "channels",  "wide",     "micro",
                                   "zero",     "recompute", "allreduce", "bucket",   "balance"};

/* What saves memory, in the order in which it costs time. */
static const char *const SAVERS[] = {"balance=memory", "zero=1", "zero=3", "recompute=segments",
                                     "zero=1 recompute=segments balance=memory"};

/* What may save time; tried one by one on the best shapes. */
static const char *const REFINEMENTS[] = {"recompute=none",
                                          "wide=2",
                                          "wide=4",
                                          "channels=filter",
                                          "channels=channel",
                                          "allreduce=halving_doubling",
                                          "allreduce=hierarchical",
                                          "bucket=4MiB",
                                          "bucket=64MiB",
                                          "balance=memory",
                                          "zero=1"};

typedef struct search {
    const meg_search_ask *ask;
    meg_search *out;
    meg_error error; /* of the last plan that could not be made */
    size_t room;
    int best; /* candidate; -1: none yet */
    meg_estimator *estimator;
    double off[KINDS]; /* how much more memory plans of a kind need than was estimated */
    bool last;         /* what does not fit is looked at in full: it is the answer */
} search;

bool meg_search_wanted(const char *options, int ranks)
{
    meg_given goal;
    if (options && meg_given_find(options, "goal", &goal) && meg_excerpt_is(goal.value, "given"))
        return false;
    for (size_t i = 0; i < sizeof FREE / sizeof *FREE && ranks > 0; i++)
        if (!meg_options_has(options, FREE[i])) return true;
    return false;
}

double meg_search_work(int ranks)
{
    return ranks > FEW ? WORK_MANY : WORK;
}

/* ---- one candidate ---- */

/* A budget is one number for all ranks. */
static int64_t least_limit(const search *x)
{
    int64_t least = x->ask->memory;
    for (int r = 0; x->ask->limit && r < x->ask->ranks; r++)
        if (x->ask->limit[r] < least) least = x->ask->limit[r];
    return least;
}

/* The given words with more. Memory is judged here, not by the plan: it needs a budget where it fills what there
 * is by itself. */
static const char *join(const search *x, const char *words, bool budget)
{
    char *text = meg_pool_text(x->out->pool, "%s", x->ask->options ? x->ask->options : "");
    bool given = meg_options_drop(text, "budget");
    meg_options_drop(text, "goal");
    budget = budget && x->ask->memory && (given || strstr(words, "recompute=segments"));
    return meg_pool_text(x->out->pool, "%s goal=given budget=%" PRId64 " %s", text,
                         budget ? least_limit(x) : 0, words);
}

static bool fits(const search *x, const meg_candidate *c)
{
    return x->ask->memory == 0 || c->missing <= 0;
}

/* Does it have the mesh, the stages, ... that a word is about? */
static bool applies(const meg_shape *s, const char *more)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;) {
        if (strcmp(word, "wide") == 0 && !s->pixels) return false;
        if (strcmp(word, "channels") == 0 && !s->channels) return false;
        if (strcmp(word, "balance") == 0 && s->stages == 1) return false;
        bool sums = strcmp(word, "allreduce") == 0 || strcmp(word, "bucket") == 0 ||
                    strcmp(word, "zero") == 0;
        if (sums && s->copies == 1) return false;
    }
    return true;
}

static bool all_free(const search *x, const char *words)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    for (const char *at = words; meg_options_next(&at, word, &value) > 0;)
        if (!meg_search_free_word(x->ask, word)) return false;
    return true;
}

static int count_words(const char *words)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    int count = 0;
    for (const char *at = words; meg_options_next(&at, word, &value) > 0;)
        count++;
    return count;
}

static meg_replay_times busiest(const meg_replay *r, int actors)
{
    int most = 0;
    for (int i = 1; i < actors; i++)
        if (r->times[i].compute > r->times[most].compute) most = i;
    return r->times[most];
}

/* Exactly: all ranks are planned and replayed; of many, one for those with the same stages. */
static void look(search *x, meg_candidate *c)
{
    const meg_search_ask *q = x->ask;
    meg_world world = {0, q->ranks};
    meg_plan_input in = {q->profile, &world, join(x, c->words, true), q->samples, NULL};
    meg_whole whole;
    meg_replay r;
    x->out->looked++;
    x->out->work += q->graph->nodes; /* what is refused costs something, too */
    c->verdict = MEG_ILLEGAL;
    c->why = "";
    x->error = (meg_error){0};
    int64_t limit = x->last ? 0 : q->memory;
    meg_status status = meg_whole_sketch(q->graph, &x->error, &in, limit, &whole);
    if (status == MEG_EBUDGET) { /* then as little as can be */
        in.options = join(x, c->words, false);
        status = meg_whole_sketch(q->graph, &x->error, &in, limit, &whole);
    }
    if (status == MEG_OK) {
        x->out->work += whole.work;
        c->bytes = meg_whole_bytes(&whole);
        c->missing = c->bytes - q->memory;
        if (q->limit) c->missing = meg_whole_missing(&whole, q->limit, &c->tightest);
        c->verdict = fits(x, c) ? MEG_SLOWER : MEG_TOO_LARGE;
        if (!fits(x, c) && !x->last) status = MEG_EBUDGET; /* how long it would take, nobody asks */
        else if (x->out->work += whole.replay,
                 meg_whole_replay(&whole, &x->error, q->machine, &r) == MEG_OK) {
            c->seconds = r.seconds;
            c->times = busiest(&r, whole.actors);
            free(r.times);
        } else c->verdict = MEG_ILLEGAL;
        meg_whole_free(&whole);
    }
    if (c->verdict == MEG_ILLEGAL) c->why = meg_pool_text(x->out->pool, "%s", x->error.message);
}

/* By the goal; what is not there is worst. */
static double worth(const search *x, const meg_candidate *c)
{
    if (c->verdict != MEG_SLOWER && c->verdict != MEG_BEST) return INFINITY;
    return x->ask->goal == MEG_GOAL_MEMORY ? (double)c->bytes : c->seconds;
}

static int add(search *x, const meg_candidate *c)
{
    meg_search *s = x->out;
    s->list = meg_grow(s->list, &x->room, (size_t)s->count + 1, sizeof *s->list);
    s->list[s->count] = *c;
    if (worth(x, c) < (x->best < 0 ? INFINITY : worth(x, &s->list[x->best]))) x->best = s->count;
    return s->count++;
}

/* Words that were tried are not tried again. */
static int try_words(search *x, const meg_shape *s, const char *words)
{
    for (int i = 0; i < x->out->count; i++)
        if (strcmp(x->out->list[i].words, words) == 0 && x->out->list[i].verdict != MEG_UNSEEN)
            return i;
    meg_candidate c = {.words = words, .count = count_words(words), .bound = s->bound, .why = ""};
    look(x, &c);
    return add(x, &c);
}

/* ---- shapes ---- */

/* Is the work done that this part of the search may take? Without any plan it goes on for a while. */
static bool enough(const search *x, double share)
{
    double most = x->ask->work * share;
    return most > 0 && x->out->work > (x->best >= 0 ? most : 2 * most);
}

/* Words, and more of them, which take the place of those that are there. */
static const char *both(const search *x, const char *words, const char *more)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    char *text = meg_pool_text(x->out->pool, "%s", words);
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;)
        meg_options_drop(text, word);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
    return meg_pool_text(x->out->pool, "%s%s%s", text, *text ? " " : "", more);
}

static bool has_fitting(const search *x, int candidate)
{
    return x->out->list[candidate].verdict == MEG_SLOWER;
}

static int64_t limit_of(const search *x, double times)
{
    return (int64_t)((double)x->ask->memory * times);
}

static size_t saver_number(const meg_shape *s)
{
    size_t i = 0;
    while (i < sizeof SAVERS / sizeof *SAVERS && strcmp(SAVERS[i], s->saver) != 0)
        i++;
    return i;
}

/* A shape that needs too much, with what saves memory: the first that fits. */
static int save_memory(search *x, const meg_shape *s, int at)
{
    for (size_t i = 0; i < sizeof SAVERS / sizeof *SAVERS; i++) {
        if (!applies(s, SAVERS[i]) || !all_free(x, SAVERS[i]) || enough(x, LOOKS)) continue;
        bool many = x->ask->ranks > FEW;
        meg_estimate e = meg_estimate_of(x->estimator, s, SAVERS[i]);
        if (many && (saver_number(s) == i || e.bytes > x->ask->memory)) continue;
        int tried = try_words(x, s, both(x, s->words, SAVERS[i]));
        if (has_fitting(x, tried)) return tried;
    }
    return at;
}

/* ---- estimates ---- */

/* With the words that save memory, if it takes some: the quickest of those that make it fit. */
static void estimate(search *x, meg_shape *s)
{
    meg_estimate e = meg_estimate_of(x->estimator, s, "");
    bool found = x->ask->memory == 0 || e.bytes <= limit_of(x, MARGIN);
    s->estimate = e.seconds;
    s->about = e.bytes;
    for (size_t i = 0; i < sizeof SAVERS / sizeof *SAVERS && *s->saver == 0 && !found; i++) {
        if (!applies(s, SAVERS[i]) || !all_free(x, SAVERS[i])) continue;
        e = meg_estimate_of(x->estimator, s, SAVERS[i]);
        if (e.bytes < s->about) s->about = e.bytes;
        if (e.bytes > limit_of(x, MARGIN)) continue;
        s->estimate = e.seconds;
        s->about = e.bytes;
        s->saver = SAVERS[i];
    }
    if (!found && *s->saver == 0) s->estimate = INFINITY;
    if (strstr(s->saver, "recompute")) s->estimate *= AGAIN;
}

/* Those that cannot fit come last, the smallest first. */
static int by_estimate(const void *a, const void *b)
{
    const meg_shape *x = a, *y = b;
    if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
    if (isinf(x->estimate) && x->about != y->about) return x->about < y->about ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return strcmp(x->words, y->words);
}

/* Not even its bound is as quick as the best; of many ranks, not even its estimate. */
static bool beyond(const search *x, const meg_shape *s)
{
    bool time = x->ask->goal != MEG_GOAL_MEMORY;
    double least = x->ask->ranks > FEW ? s->estimate / ROUGH : s->bound;
    return time && x->best >= 0 && least > x->out->list[x->best].seconds;
}

static int kind_of(const meg_shape *s)
{
    return (s->channels ? 1 : 0) + (strstr(s->saver, "recompute=segments") ? 2 : 0) +
           (strstr(s->saver, "zero=3") ? 4 : 0);
}

/* What was learnt of one plan is said of others of its kind: the least that was seen. */
static void learn(search *x, const meg_shape *s, const meg_candidate *c)
{
    double *off = &x->off[kind_of(s)];
    if (s->about == 0 || c->bytes == 0) return;
    double ratio = (double)c->bytes / (double)s->about;
    if (*off == 0 || ratio < *off) *off = ratio;
}

static double expected(const search *x, const meg_shape *s)
{
    return (double)s->about * fmax(1, x->off[kind_of(s)]);
}

/* Not worth a look, and why; MEG_BEST: it is. */
static meg_standing look_not(const search *x, const meg_shape *s)
{
    bool many = x->ask->ranks > FEW && x->ask->memory > 0;
    if (many && expected(x, s) > (double)limit_of(x, x->best < 0 ? CLOSE : MARGIN))
        return MEG_TOO_LARGE;
    if (beyond(x, s)) return MEG_BEYOND;
    return enough(x, LOOKS) ? MEG_UNSEEN : MEG_BEST;
}

/* In the order of the estimates. as[i]: the candidate that shape i became. */
static void look_at_shapes(search *x, const meg_shape *shape, int count, int *as)
{
    for (int i = 0; i < count; i++) {
        const meg_shape *s = &shape[i];
        meg_standing standing = look_not(x, s);
        as[i] = -1;
        if (standing != MEG_BEST) {
            meg_candidate c = {.words = s->words,
                               .count = s->count,
                               .bound = s->bound,
                               .bytes = standing == MEG_TOO_LARGE ? (int64_t)expected(x, s) : 0,
                               .missing = (int64_t)expected(x, s) - x->ask->memory,
                               .why = standing == MEG_TOO_LARGE ? "about " : "",
                               .verdict = standing};
            add(x, &c);
            continue;
        }
        bool saves = x->ask->ranks > FEW && *s->saver;
        as[i] = try_words(x, s, saves ? both(x, s->words, s->saver) : s->words);
        learn(x, s, &x->out->list[as[i]]);
        if (x->out->list[as[i]].verdict == MEG_TOO_LARGE) as[i] = save_memory(x, s, as[i]);
    }
}

/* Word by word, keeping what helps, until nothing does. */
static void refine(search *x, const meg_shape *s, int at)
{
    for (bool better = true; better;) {
        better = false;
        for (size_t i = 0; i < sizeof REFINEMENTS / sizeof *REFINEMENTS; i++) {
            const char *words = x->out->list[at].words;
            bool slow = x->ask->ranks > FEW && x->ask->graph->nodes > DEEP &&
                        strncmp(REFINEMENTS[i], "wide", 4) == 0;
            if (slow || !applies(s, REFINEMENTS[i]) || !all_free(x, REFINEMENTS[i])) continue;
            if (enough(x, 1)) return;
            int tried = try_words(x, s, both(x, words, REFINEMENTS[i]));
            if (worth(x, &x->out->list[tried]) >= worth(x, &x->out->list[at])) continue;
            at = tried;
            better = true;
        }
    }
}

/* ---- the choice ---- */

static void choose(search *x)
{
    meg_search *s = x->out;
    int best = x->best;
    if (best < 0) return;
    double limit = worth(x, &s->list[best]) * SIMPLER;
    for (int i = 0; i < s->count; i++) {
        const meg_candidate *c = &s->list[i], *b = &s->list[best];
        bool simpler = c->count < b->count || (c->count == b->count && worth(x, c) < worth(x, b));
        if (worth(x, c) <= limit && simpler) best = i;
    }
    s->list[best].verdict = MEG_BEST;
    s->fits = true;
}

static int by_verdict(const void *a, const void *b)
{
    const meg_candidate *x = a, *y = b;
    if (x->verdict != y->verdict) return x->verdict < y->verdict ? -1 : 1;
    double s = x->seconds > 0 ? x->seconds : x->bound, t = y->seconds > 0 ? y->seconds : y->bound;
    if (x->verdict == MEG_TOO_LARGE) s = (double)x->missing, t = (double)y->missing;
    return s < t ? -1 : s > t;
}

/* ---- all of it ---- */

/* The words of one rank: what they say of batch, optimizer and the like. */
static char *words_of_one(const search *x)
{
    static const char *const many[] = {"replicas", "stages", "chunks",       "schedule", "assign",
                                       "mesh",     "wide",   "replications", "channels", "zero",
                                       "balance",  "micro",  "allreduce",    "bucket"};
    char *text = meg_pool_text(x->out->pool, "%s", join(x, "", false));
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        meg_options_drop(text, many[i]);
    return text;
}

/* The options as given, and the seconds of one rank that has the whole step. */
static meg_status look_at_one(search *x, meg_error *e, meg_plan_options *given)
{
    static const char *const step[] = {"batch", "norm", "recompute"};
    const meg_search_ask *q = x->ask;
    char *text = words_of_one(x);
    meg_plan *p = NULL;
    MEG_TRY(e, meg_plan_make(q->graph, e, q->profile, text, 0, &p));
    x->out->one = p->seconds;
    meg_plan_destroy(p);
    for (size_t i = 0; i < sizeof step / sizeof *step; i++)
        meg_options_drop(text, step[i]);
    text = meg_pool_text(x->out->pool, "%s batch=2 micro=2 norm=1", text);
    MEG_TRY(e, meg_estimator_new(q, e, x->out->pool, text, &x->estimator));
    return meg_plan_options_read(x->out->pool, e, join(x, "", false), given);
}

typedef struct finalist {
    const meg_shape *shape;
    int at; /* its candidate */
    double worth;
} finalist;

static int by_worth(const void *a, const void *b)
{
    const finalist *x = a, *y = b;
    if (x->worth != y->worth) return x->worth < y->worth ? -1 : 1;
    return x->at - y->at;
}

/* The best shapes first; those whose bound is above the best that is known by then are left. */
static void refine_all(search *x, const meg_shape *shape, int count, const int *as)
{
    finalist *list = calloc((size_t)count + 1, sizeof *list);
    int found = 0;
    if (!list) abort();
    for (int i = 0; i < count; i++)
        if (as[i] >= 0 && isfinite(worth(x, &x->out->list[as[i]])))
            list[found++] = (finalist){&shape[i], as[i], worth(x, &x->out->list[as[i]])};
    qsort(list, (size_t)found, sizeof *list, by_worth);
    for (int i = 0; i < found && !enough(x, 1); i++)
        if (!beyond(x, list[i].shape)) refine(x, list[i].shape, list[i].at);
    free(list);
}

/* The words as they are, which other ways of the same shape must beat. */
static void look_at_given(search *x)
{
    const meg_shape same = {.words = "", .bound = x->out->one / x->ask->ranks};
    try_words(x, &same, "");
}

/* Where nothing fits: what the plan that lacks least would take. */
static void look_at_nearest(search *x)
{
    meg_candidate *c = x->out->list;
    if (x->out->count == 0 || c->verdict != MEG_TOO_LARGE) return;
    x->last = true;
    look(x, c);
}

/* Seconds of a step on so many ranks; INFINITY: there is no such plan, or it does not fit. */
static double seconds_of(search *x, const char *words, int ranks)
{
    meg_search_ask ask = *x->ask;
    search y = {.ask = &ask, .out = x->out};
    meg_candidate c = {.words = words};
    ask.ranks = ranks;
    look(&y, &c);
    return c.verdict == MEG_SLOWER ? c.seconds : INFINITY;
}

/* Micro-batches that batch norm over the whole batch forbids: what they would give. norm= is the user's. */
static void look_at_norm(search *x, const meg_plan_options *given)
{
    int ranks = x->ask->ranks;
    bool asks = meg_graph_normalises(x->ask->graph) && given->norm == 0 && ranks > 1 &&
                all_free(x, "stages=1 schedule=auto micro=1 mesh=1");
    if (!asks || ranks > FEW || given->batch % ranks || meg_options_has(x->ask->options, "norm"))
        return;
    const char *words = meg_pool_text(x->out->pool, "stages=%d schedule=1f1b micro=%d", ranks,
                                      ranks);
    int64_t norm = given->batch / ranks;
    double seconds = seconds_of(x, meg_pool_text(x->out->pool, "%s norm=%" PRId64, words, norm),
                                ranks);
    if (isinf(seconds)) return;
    meg_candidate c = {.words = words, .count = count_words(words), .verdict = MEG_ILLEGAL};
    c.why = meg_pool_text(x->out->pool,
                          "micro-batches would split the batch that is normalised together; "
                          "norm=%" PRId64 " would give %.4f s",
                          norm, seconds);
    add(x, &c);
}

/* All ranks are used; where fewer that share the samples are quicker, or cheaper, that is said. */
static void look_at_fewer(search *x)
{
    meg_search *s = x->out;
    bool cost = x->ask->goal == MEG_GOAL_COST;
    bool few = x->ask->ranks <= FEW && !meg_options_has(x->ask->options, "replicas");
    if (x->best < 0 || x->ask->goal == MEG_GOAL_MEMORY || !few) return;
    double best = s->list[x->best].seconds * (cost ? x->ask->ranks : 1);
    for (int ranks = x->ask->ranks / 2; ranks >= 1; ranks = ranks > 4 ? ranks / 4 : ranks / 2) {
        double seconds = seconds_of(x, "", ranks);
        if (seconds * (cost ? ranks : 1) >= best) continue;
        best = seconds * (cost ? ranks : 1);
        s->fewer = ranks;
        s->fewer_seconds = seconds;
    }
}

/* What the given words themselves say, where no others do either. */
static meg_status say_impossible(const search *x, meg_error *e)
{
    const meg_search *s = x->out;
    const char *why = "";
    for (int i = 0; i < s->count; i++) {
        if (s->list[i].verdict != MEG_ILLEGAL && s->list[i].bytes) return MEG_OK;
        if (!*s->list[i].words) why = s->list[i].why;
    }
    return meg_fail(e, MEG_EARG, "%s", why);
}

meg_status meg_search_run(const meg_search_ask *ask, meg_error *e, meg_search *out)
{
    search x = {.ask = ask, .out = out, .best = -1};
    meg_plan_options given;
    meg_shape *shape = NULL;
    *out = (meg_search){.pool = meg_pool_new()};
    MEG_TRY(e, look_at_one(&x, e, &given));
    int count = meg_search_shapes(ask, out->pool, &given, out->one, &shape);
    int *as = calloc((size_t)count + 1, sizeof *as);
    if (!as) abort();
    out->bound = out->one / ask->ranks;
    for (int i = 0; i < count; i++)
        estimate(&x, &shape[i]);
    if (count) qsort(shape, (size_t)count, sizeof *shape, by_estimate);
    if (ask->ranks <= FEW || count == 0) look_at_given(&x);
    look_at_shapes(&x, shape, count, as);
    refine_all(&x, shape, count, as);
    look_at_norm(&x, &given);
    look_at_fewer(&x);
    choose(&x);
    if (out->count) qsort(out->list, (size_t)out->count, sizeof *out->list, by_verdict);
    look_at_nearest(&x);
    free(as);
    free(shape);
    return say_impossible(&x, e);
}

void meg_search_free(meg_search *s)
{
    free(s->list);
    if (s->pool) meg_pool_free(s->pool);
    *s = (meg_search){0};
}
