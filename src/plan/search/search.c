/* The search for a plan: see search.h. */
#include "base/option.h"
#include "plan/search/look.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LOOKS = 0.7;  /* of the work is for shapes, the rest refines them */
static const double MARGIN = 1.1; /* estimates of memory are that good, or so */
static const double AGAIN = 1.05; /* running blocks again costs a little more than estimates say */
static const double CLOSE = 1.25; /* while nothing fits, what may be a little more is looked at */
static const double WRONG = 2;    /* times as much as there is, though it was to fit */
static const double WORK = 4e5, WORK_MANY = 7e5; /* instructions; of many ranks */

static const double SIMPLER = 1.03; /* so much slower may the plan with fewer words be */

/* Words that a search may set. */
static const char *const FREE[] = {"replicas", "stages",    "chunks",    "schedule", "replications",
                                   "assign",   "mesh",      "channels",  "wide",     "micro",
                                   "zero",     "recompute", "allreduce", "bucket",   "balance"};

/* What saves memory, about in the order in which it costs time. The last is for shapes that nothing else makes fit. */
static const char *const SAVER[] = {"balance=memory", "zero=1", "zero=3", "recompute=segments",
                                    "zero=1 recompute=segments balance=memory"};

enum {
    SAVERS = sizeof SAVER / sizeof *SAVER,
    NEAREST = 3 /* so many plans that do not fit by estimates are looked at */
};

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
    return ranks > MEG_SEARCH_FEW ? WORK_MANY : WORK;
}

/* ---- shapes ---- */

static bool has_fitting(const meg_seeker *x, int candidate)
{
    return x->out->list[candidate].verdict == MEG_SLOWER;
}

static int64_t limit_of(const meg_seeker *x, double times)
{
    return (int64_t)((double)x->ask->memory * times);
}

static int saver_number(const meg_shape *s)
{
    int i = 0;
    while (i < SAVERS && strcmp(SAVER[i], s->saver) != 0)
        i++;
    return i;
}

static bool may_save(const meg_seeker *x, const meg_shape *s, int i)
{
    return meg_look_applies(s, SAVER[i]) && meg_look_free(x, SAVER[i]);
}

/* Of many ranks: the first way that fits, besides the one that was estimated to. Estimates that are far off say nothing
 * of the others either. */
static int save_any(meg_seeker *x, const meg_shape *s, int at)
{
    if (x->out->list[at].bytes > limit_of(x, WRONG)) return at;
    for (int i = 0; i < SAVERS && !meg_look_enough(x, LOOKS); i++) {
        if (!may_save(x, s, i) || saver_number(s) == i) continue;
        if (meg_estimate_of(x->estimator, s, SAVER[i]).bytes > x->ask->memory) continue;
        int tried = meg_look_try(x, s, meg_look_both(x, s->words, SAVER[i]));
        if (has_fitting(x, tried)) return tried;
    }
    return at;
}

/* A shape that needs too much, with what saves memory: the best of the ways that fit. Ways that are far slower by
 * estimates than one that fits are left out. */
static int save_memory(meg_seeker *x, const meg_shape *s, int at)
{
    bool time = x->ask->goal != MEG_GOAL_MEMORY;
    double quick = INFINITY;
    if (x->ask->ranks > MEG_SEARCH_FEW) return save_any(x, s, at);
    for (int i = 0; i < SAVERS && !meg_look_enough(x, LOOKS); i++) {
        if (!may_save(x, s, i) || (i == SAVERS - 1 && has_fitting(x, at))) continue;
        double seconds = meg_estimate_of(x->estimator, s, SAVER[i]).seconds;
        if (time && seconds > quick * MEG_SEARCH_ROUGH) continue;
        int tried = meg_look_try(x, s, meg_look_both(x, s->words, SAVER[i]));
        if (meg_look_worth(x, &x->out->list[tried]) >= meg_look_worth(x, &x->out->list[at]))
            continue;
        at = tried;
        quick = seconds;
    }
    return at;
}

/* ---- estimates ---- */

/* With the words that save memory, if it takes some: the quickest of those that make it fit (of many ranks, whose looks
 * are dear, the first in the order of the table), or those that come nearest to it. */
static void estimate(meg_seeker *x, meg_shape *s)
{
    meg_estimate e = meg_estimate_of(x->estimator, s, "");
    s->estimate = e.seconds;
    s->about = e.bytes;
    if (x->ask->memory == 0 || e.bytes <= limit_of(x, MARGIN)) return;
    s->estimate = INFINITY;
    for (int i = 0; i < SAVERS; i++) {
        bool again = strstr(SAVER[i], "recompute") != NULL, any = isfinite(s->estimate);
        if (!may_save(x, s, i) || (any && x->ask->ranks > MEG_SEARCH_FEW)) continue;
        e = meg_estimate_of(x->estimator, s, SAVER[i]);
        bool fits = e.bytes <= limit_of(x, MARGIN);
        double seconds = fits ? e.seconds * (again ? AGAIN : 1) : INFINITY;
        if (fits || any ? seconds >= s->estimate : e.bytes >= s->about) continue;
        s->estimate = seconds;
        s->about = e.bytes;
        s->saver = SAVER[i];
    }
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

static int kind_of(const meg_shape *s)
{
    return (s->channels ? 1 : 0) + (strstr(s->saver, "recompute=segments") ? 2 : 0) +
           (strstr(s->saver, "zero=3") ? 4 : 0);
}

/* What was learnt of one plan is said of others of its kind: the least that was seen. */
static void learn(meg_seeker *x, const meg_shape *s, const meg_candidate *c)
{
    double *off = &x->off[kind_of(s)];
    if (s->about == 0 || c->bytes == 0) return;
    double ratio = (double)c->bytes / (double)s->about;
    if (*off == 0 || ratio < *off) *off = ratio;
}

static double expected(const meg_seeker *x, const meg_shape *s)
{
    return (double)s->about * fmax(1, x->off[kind_of(s)]);
}

/* Not worth a look, and why; MEG_BEST: it is. */
static meg_standing look_not(const meg_seeker *x, const meg_shape *s)
{
    bool many = x->ask->ranks > MEG_SEARCH_FEW && x->ask->memory > 0;
    if (many && expected(x, s) > (double)limit_of(x, x->best < 0 ? CLOSE : MARGIN))
        return MEG_TOO_LARGE;
    if (meg_look_beyond(x, s)) return MEG_BEYOND;
    return meg_look_enough(x, LOOKS) ? MEG_UNSEEN : MEG_BEST;
}

/* Left out, and why. */
static void leave(meg_seeker *x, const meg_shape *s, const char *words, meg_standing standing)
{
    bool large = standing == MEG_TOO_LARGE, many = x->ask->ranks > MEG_SEARCH_FEW;
    meg_candidate c = {.words = words,
                       .count = meg_look_count(words),
                       .bound = many && standing == MEG_BEYOND ? s->estimate : s->bound,
                       .bytes = large ? (int64_t)expected(x, s) : 0,
                       .missing = (int64_t)expected(x, s) - x->ask->memory,
                       .why = large ? "about " : "",
                       .verdict = standing};
    meg_look_add(x, &c);
}

/* In the order of the estimates. as[i]: the candidate that shape i became. */
static void look_at_shapes(meg_seeker *x, const meg_shape *shape, int count, int *as)
{
    for (int i = 0; i < count; i++) {
        const meg_shape *s = &shape[i];
        bool saves = x->ask->ranks > MEG_SEARCH_FEW && *s->saver;
        const char *words = saves ? meg_look_both(x, s->words, s->saver) : s->words;
        meg_standing standing = look_not(x, s);
        as[i] = -1;
        if (standing != MEG_BEST) {
            leave(x, s, words, standing);
            continue;
        }
        as[i] = meg_look_try(x, s, words);
        learn(x, s, &x->out->list[as[i]]);
        if (x->out->list[as[i]].verdict == MEG_TOO_LARGE) as[i] = save_memory(x, s, as[i]);
    }
}

/* ---- the choice ---- */

/* The best, or what is nearly as good with fewer words; -1: nothing fits. */
static int choice(const meg_seeker *x)
{
    const meg_search *s = x->out;
    int best = -1;
    for (int i = 0; i < s->count; i++) {
        double least = best < 0 ? INFINITY : meg_look_worth(x, &s->list[best]);
        if (meg_look_worth(x, &s->list[i]) < least) best = i;
    }
    if (best < 0) return -1;
    double limit = meg_look_worth(x, &s->list[best]) * SIMPLER;
    for (int i = 0; i < s->count; i++) {
        const meg_candidate *c = &s->list[i], *b = &s->list[best];
        bool simpler = c->count < b->count ||
                       (c->count == b->count && meg_look_worth(x, c) < meg_look_worth(x, b));
        if (meg_look_worth(x, c) <= limit && simpler) best = i;
    }
    return best;
}

/* The quickest by its bound of those that were not looked at since something else was quicker; -1: none. */
static int least_beyond(const meg_search *s)
{
    int least = -1;
    for (int i = 0; i < s->count; i++)
        if (s->list[i].verdict == MEG_BEYOND &&
            (least < 0 || s->list[i].bound < s->list[least].bound))
            least = i;
    return least;
}

/* A choice that did not hold had kept others from being looked at. */
static void look_beyond(meg_seeker *x)
{
    meg_search *s = x->out;
    for (int at; (at = least_beyond(s)) >= 0 && !meg_look_enough(x, 1); x->best = choice(x)) {
        meg_candidate *c = &s->list[at];
        if (x->best >= 0 && c->bound / MEG_SEARCH_ROUGH > s->list[x->best].seconds) return;
        meg_look(x, c);
    }
}

static int nearest(const meg_search *s)
{
    int least = -1;
    for (int i = 0; i < s->count; i++)
        if (s->list[i].verdict == MEG_TOO_LARGE &&
            (least < 0 || s->list[i].missing < s->list[least].missing))
            least = i;
    return least;
}

/* Where nothing fits: what the plan that lacks least would take. Of many ranks that is an estimate: the plan may fit
 * after all, or lack more than others. */
static void look_at_nearest(meg_seeker *x)
{
    meg_search *s = x->out;
    int at = nearest(s);
    for (int i = 0; i < NEAREST && at >= 0 && *s->list[at].why && x->best < 0; i++) {
        meg_look(x, &s->list[at]);
        if (has_fitting(x, at)) x->best = at;
        at = nearest(s);
    }
    if (at < 0 || x->best >= 0 || s->list[at].seconds > 0) return;
    x->last = true;
    meg_look(x, &s->list[at]);
    if (has_fitting(x, at)) x->best = at;
}

/* Where none fits, those that were never looked at are not said to be slower than one. */
static void give_up(meg_search *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->list[i].verdict == MEG_BEYOND) s->list[i].verdict = MEG_UNSEEN;
}

/* Each turn ends with what holds, or with one candidate less. */
static void choose(meg_seeker *x)
{
    meg_search *s = x->out;
    x->best = choice(x);
    while (x->best >= 0 && !meg_look_confirm(x, &s->list[x->best])) {
        x->best = choice(x);
        look_beyond(x);
        look_at_nearest(x);
    }
    s->fits = x->best >= 0;
    if (s->fits) s->list[x->best].verdict = MEG_BEST;
    else give_up(s);
}

/* Of those that are too large, what is known comes before estimates. */
static int compare(const meg_candidate *x, const meg_candidate *y, bool memory)
{
    bool large = x->verdict == MEG_TOO_LARGE;
    if (x->verdict != y->verdict) return x->verdict < y->verdict ? -1 : 1;
    if (large && (x->seconds > 0) != (y->seconds > 0)) return x->seconds > 0 ? -1 : 1;
    double s = x->seconds > 0 ? x->seconds : x->bound, t = y->seconds > 0 ? y->seconds : y->bound;
    if (large) s = (double)x->missing, t = (double)y->missing;
    if (memory && x->verdict == MEG_SLOWER) s = (double)x->bytes, t = (double)y->bytes;
    if (s != t) return s < t ? -1 : 1;
    return strcmp(x->words, y->words);
}

static int by_seconds(const void *a, const void *b)
{
    return compare(a, b, false);
}

static int by_bytes(const void *a, const void *b)
{
    return compare(a, b, true);
}

static void sort(meg_search *s)
{
    if (s->count == 0) return;
    qsort(s->list, (size_t)s->count, sizeof *s->list,
          s->goal == MEG_GOAL_MEMORY ? by_bytes : by_seconds);
}

/* ---- all of it ---- */

/* The words of one rank: what they say of batch, optimizer and the like. */
static char *words_of_one(const meg_seeker *x)
{
    static const char *const many[] = {"replicas", "stages", "chunks",       "schedule", "assign",
                                       "mesh",     "wide",   "replications", "channels", "zero",
                                       "balance",  "micro",  "allreduce",    "bucket"};
    char *text = meg_pool_text(x->out->pool, "%s", meg_look_join(x, "", false));
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        meg_options_drop(text, many[i]);
    return text;
}

/* Keeps the seconds of one rank if they are fewer. */
static meg_status time_one(meg_seeker *x, meg_error *e, const char *text)
{
    meg_search *s = x->out;
    meg_plan *p = NULL;
    MEG_TRY(e, meg_plan_make(x->ask->graph, e, x->ask->profile, text, 0, &p));
    if (s->one == 0 || p->seconds < s->one) s->one = p->seconds;
    meg_plan_destroy(p);
    return MEG_OK;
}

/* The options as given, and the seconds of one rank that has the whole step, with what is quicker: values that are made
 * again or values that are kept. */
static meg_status look_at_one(meg_seeker *x, meg_error *e, meg_plan_options *given)
{
    static const char *const step[] = {"batch", "norm", "recompute"};
    const meg_search_ask *q = x->ask;
    char *text = words_of_one(x);
    MEG_TRY(e, time_one(x, e, text));
    if (meg_look_free(x, "recompute=none"))
        MEG_TRY(e, time_one(x, e, meg_pool_text(x->out->pool, "%s recompute=none", text)));
    for (size_t i = 0; i < sizeof step / sizeof *step; i++)
        meg_options_drop(text, step[i]);
    text = meg_pool_text(x->out->pool, "%s batch=2 micro=2 norm=1", text);
    MEG_TRY(e, meg_estimator_new(q, e, x->out->pool, text, &x->estimator));
    return meg_plan_options_read(x->out->pool, e, meg_look_join(x, "", false), given);
}

/* The words as they are, which other ways of the same shape must beat. */
static void look_at_given(meg_seeker *x)
{
    meg_search *s = x->out;
    for (int i = 0; i < s->count; i++)
        if (!*s->list[i].words) { /* as an estimate, then */
            meg_look(x, &s->list[i]);
            return;
        }
    const meg_shape same = {.words = "", .bound = x->out->one / x->ask->ranks};
    meg_look_try(x, &same, "");
}

static int replayed(const meg_search *s)
{
    int count = 0;
    for (int i = 0; i < s->count; i++)
        count += s->list[i].seconds > 0;
    return count;
}

/* What the given words themselves say, where no others do either. */
static meg_status say_impossible(const meg_search *s, meg_error *e)
{
    const char *why = "";
    for (int i = 0; i < s->count; i++)
        if (!*s->list[i].words) why = s->list[i].why;
    return meg_fail(e, MEG_EARG, "%s", why);
}

meg_status meg_search_run(const meg_search_ask *ask, meg_error *e, meg_search *out)
{
    meg_seeker x = {.ask = ask, .out = out, .best = -1};
    meg_plan_options given;
    meg_shape *shape = NULL;
    *out = (meg_search){.pool = meg_pool_new(), .goal = ask->goal};
    MEG_TRY(e, look_at_one(&x, e, &given));
    int count = meg_search_shapes(ask, out->pool, &given, out->one, &shape);
    int *as = calloc((size_t)count + 1, sizeof *as);
    if (!as) abort();
    out->bound = out->one / ask->ranks;
    for (int i = 0; i < count; i++)
        estimate(&x, &shape[i]);
    if (count) qsort(shape, (size_t)count, sizeof *shape, by_estimate);
    if (ask->ranks <= MEG_SEARCH_FEW || count == 0) look_at_given(&x);
    look_at_shapes(&x, shape, count, as);
    meg_refine_all(&x, shape, count, as);
    look_at_nearest(&x);
    if (replayed(out) == 0) look_at_given(&x);
    choose(&x);
    meg_others_norm(&x, &given);
    meg_others_fewer(&x);
    sort(out);
    out->looked = replayed(out);
    free(as);
    free(shape);
    return out->looked ? MEG_OK : say_impossible(out, e);
}

void meg_search_free(meg_search *s)
{
    free(s->list);
    if (s->pool) meg_pool_free(s->pool);
    *s = (meg_search){0};
}
