/* Looking at candidates: see look.h. */
#include "plan/search/look.h"
#include "base/option.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory is judged here, not by the plan: it needs a budget where it fills what there is by itself. Without one it
 * takes as little as it can, which is right where that is the goal. */
const char *meg_look_join(const meg_seeker *x, const char *words, bool budget)
{
    char *text = meg_pool_text(x->out->pool, "%s", x->ask->options ? x->ask->options : "");
    bool given = meg_options_drop(text, "budget");
    bool fills = strstr(words, "recompute=segments") && x->ask->goal != MEG_GOAL_MEMORY;
    meg_options_drop(text, "goal");
    budget = budget && x->ask->memory && (given || fills);
    return meg_pool_text(x->out->pool, "%s goal=given budget=%" PRId64 " %s", text,
                         budget ? meg_search_limit(x->ask) : 0, words);
}

/* Does it have the mesh, the stages, ... that a word is about? */
bool meg_look_applies(const meg_shape *s, const char *more)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;) {
        if (strcmp(word, "wide") == 0 && !s->pixels) return false;
        if (strcmp(word, "channels") == 0 && !s->channels) return false;
        if (strcmp(word, "balance") == 0 && s->stages == 1) return false;
        if (strcmp(word, "replications") == 0 && strcmp(s->schedule, "master") != 0) return false;
        bool sums = strcmp(word, "allreduce") == 0 || strcmp(word, "bucket") == 0 ||
                    strcmp(word, "zero") == 0;
        if (sums && s->copies == 1) return false;
    }
    return true;
}

bool meg_look_free(const meg_seeker *x, const char *words)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    for (const char *at = words; meg_options_next(&at, word, &value) > 0;)
        if (!meg_search_free_word(x->ask, word)) return false;
    return true;
}

int meg_look_count(const char *words)
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

/* Where no budget would do, as little as can be. */
meg_status meg_look_plan(meg_seeker *x, const char *words, bool all, meg_whole *out)
{
    const meg_search_ask *q = x->ask;
    meg_world world = {0, q->ranks};
    meg_plan_input in = {q->profile, &world, NULL, q->samples, NULL};
    int64_t limit = x->last ? 0 : q->memory;
    meg_status status = MEG_EBUDGET;
    x->error = (meg_error){0};
    for (int budget = 1; budget >= 0 && status == MEG_EBUDGET; budget--) {
        in.options = meg_look_join(x, words, budget);
        status = all ? meg_whole_make(q->graph, &x->error, &in, out)
                     : meg_whole_sketch(q->graph, &x->error, &in, limit, out);
    }
    return status;
}

bool meg_look_judge(const meg_seeker *x, const meg_whole *whole, meg_candidate *c)
{
    const meg_search_ask *q = x->ask;
    c->bytes = meg_whole_bytes(whole);
    c->missing = c->bytes - q->memory;
    if (q->limit) c->missing = meg_whole_missing(whole, q->limit, &c->tightest);
    bool fits = q->memory == 0 || c->missing <= 0;
    c->verdict = fits ? MEG_SLOWER : MEG_TOO_LARGE;
    return fits;
}

static meg_status replay(meg_seeker *x, const meg_whole *whole, meg_candidate *c)
{
    meg_replay r;
    x->out->work += whole->replay;
    MEG_TRY(&x->error, meg_whole_replay(whole, &x->error, x->ask->machine, &r));
    c->seconds = r.seconds;
    c->times = busiest(&r, whole->actors);
    free(r.times);
    return MEG_OK;
}

/* Exactly: all ranks are planned and replayed; of many, one for those with the same stages. How long what does not fit
 * would take, nobody asks, but of the last. */
void meg_look(meg_seeker *x, meg_candidate *c)
{
    meg_whole whole;
    c->why = "";
    x->out->work += x->ask->graph->nodes; /* what is refused costs something, too */
    meg_status status = meg_look_plan(x, c->words, false, &whole);
    if (status == MEG_OK) {
        x->out->work += whole.work;
        bool fits = meg_look_judge(x, &whole, c);
        if (fits || x->last) status = replay(x, &whole, c);
        meg_whole_free(&whole);
    }
    if (status == MEG_OK) return;
    c->verdict = MEG_ILLEGAL;
    c->why = meg_pool_text(x->out->pool, "%s", x->error.message);
}

/* By the goal; what is not there is worst. */
double meg_look_worth(const meg_seeker *x, const meg_candidate *c)
{
    if (c->verdict != MEG_SLOWER && c->verdict != MEG_BEST) return INFINITY;
    return x->ask->goal == MEG_GOAL_MEMORY ? (double)c->bytes : c->seconds;
}

int meg_look_add(meg_seeker *x, const meg_candidate *c)
{
    meg_search *s = x->out;
    s->list = meg_grow(s->list, &x->room, (size_t)s->count + 1, sizeof *s->list);
    s->list[s->count] = *c;
    double least = x->best < 0 ? INFINITY : meg_look_worth(x, &s->list[x->best]);
    if (meg_look_worth(x, c) < least) x->best = s->count;
    return s->count++;
}

/* Words that were tried are not tried again. */
int meg_look_try(meg_seeker *x, const meg_shape *s, const char *words)
{
    for (int i = 0; i < x->out->count; i++)
        if (strcmp(x->out->list[i].words, words) == 0 && x->out->list[i].verdict != MEG_UNSEEN)
            return i;
    meg_candidate c = {
        .words = words, .count = meg_look_count(words), .bound = s->bound, .why = ""};
    meg_look(x, &c);
    return meg_look_add(x, &c);
}

/* Is the work done that this part of the search may take? Without any plan it goes on for a while. */
bool meg_look_enough(const meg_seeker *x, double share)
{
    double most = x->ask->work * share;
    return most > 0 && x->out->work > (x->best >= 0 ? most : 2 * most);
}

/* Words, and more of them, which take the place of those that are there. */
const char *meg_look_both(const meg_seeker *x, const char *words, const char *more)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    char *text = meg_pool_text(x->out->pool, "%s", words);
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;)
        meg_options_drop(text, word);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
    text += strspn(text, " ");
    return meg_pool_text(x->out->pool, "%s%s%s", text, *text ? " " : "", more);
}

/* Not even its bound is as quick as the best; of many ranks, not even its estimate. */
bool meg_look_beyond(const meg_seeker *x, const meg_shape *s)
{
    bool time = x->ask->goal != MEG_GOAL_MEMORY;
    double least = x->ask->ranks > MEG_SEARCH_FEW ? s->estimate / MEG_SEARCH_ROUGH : s->bound;
    return time && x->best >= 0 && least > x->out->list[x->best].seconds;
}
