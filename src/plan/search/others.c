/* What a search may not choose, but says: fewer ranks, and norm=. Both within the given words, and a part of the work. */
#include "base/option.h"
#include "plan/search/look.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SHARE = 1.25; /* of the work, together with all that was done before */

enum {
    STAGES = 16 /* of a pipeline of small micro-batches, at most */
};

/* Seconds of a step on so many ranks; INFINITY: there is no such plan, or it does not fit. */
static double seconds_of(const meg_seeker *x, const char *words, int ranks)
{
    meg_search_ask ask = *x->ask;
    meg_seeker y = {.ask = &ask, .out = x->out};
    meg_candidate c = {.words = words};
    ask.ranks = ranks;
    meg_look(&y, &c);
    return c.verdict == MEG_SLOWER ? c.seconds : INFINITY;
}

/* ---- norm ---- */

/* At least as many as there are stages; 0: the batch has none. */
static int64_t micro_of(const meg_seeker *x, const meg_plan_options *given, int stages)
{
    int64_t micro = stages;
    if (!meg_search_free_word(x->ask, "micro")) micro = given->micro;
    else
        while (micro < given->batch && given->batch % micro)
            micro++;
    return micro > 1 && given->batch % micro == 0 ? micro : 0;
}

static const char *add_word(const meg_seeker *x, const char *words, const char *more)
{
    return meg_look_free(x, more) ? meg_look_both(x, words, more) : words;
}

/* False: there is no such pipeline. */
static bool tell_pipeline(meg_seeker *x, const meg_plan_options *given, int stages)
{
    meg_pool *pool = x->out->pool;
    int64_t micro = micro_of(x, given, stages);
    if (micro == 0) return false;
    int64_t norm = given->batch / micro;
    const char *words = add_word(x, "", meg_pool_text(pool, "stages=%d", stages));
    words = add_word(x, words, "schedule=1f1b");
    words = add_word(x, words, meg_pool_text(pool, "micro=%" PRId64, micro));
    double seconds = seconds_of(x, meg_pool_text(pool, "%s norm=%" PRId64, words, norm),
                                x->ask->ranks);
    if (*words == 0 || isinf(seconds)) return false;
    meg_candidate c = {.words = words, .count = meg_look_count(words), .verdict = MEG_ILLEGAL};
    c.why = meg_pool_text(pool,
                          "micro-batches would split the batch that is normalised together; "
                          "norm=%" PRId64 " would give %.4f s",
                          norm, seconds);
    meg_look_add(x, &c);
    return true;
}

/* Of as many stages as there can be, or as were given. */
void meg_others_norm(meg_seeker *x, const meg_plan_options *given)
{
    const meg_search_ask *q = x->ask;
    bool asks = meg_graph_normalises(q->graph) && given->norm == 0 &&
                meg_search_free_word(q, "norm");
    bool any = meg_search_free_word(q, "stages");
    for (int s = q->ranks < STAGES ? q->ranks : STAGES; s > 1 && asks; s--) {
        if (any ? q->ranks % s != 0 : given->stages != s) continue;
        asks = !meg_look_enough(x, SHARE) && !tell_pipeline(x, given, s);
    }
}

/* ---- fewer ranks ---- */

/* All ranks are used; where fewer are quicker with the given words, or cheaper, that is said. Nothing is chosen for them:
 * where the words say no more they share the samples. */
void meg_others_fewer(meg_seeker *x)
{
    meg_search *s = x->out;
    bool cost = x->ask->goal == MEG_GOAL_COST;
    int ranks = x->ask->ranks;
    if (x->best < 0 || x->ask->goal == MEG_GOAL_MEMORY) return;
    double best = s->list[x->best].seconds * (cost ? ranks : 1);
    for (ranks /= 2; ranks >= 1 && !meg_look_enough(x, SHARE);
         ranks = ranks > 4 ? ranks / 4 : ranks / 2) {
        double seconds = seconds_of(x, "", ranks);
        if (seconds * (cost ? ranks : 1) >= best) continue;
        best = seconds * (cost ? ranks : 1);
        s->fewer = ranks;
        s->fewer_seconds = seconds;
    }
}
