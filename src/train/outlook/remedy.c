/* What would fit: see remedy.h. */
#include "train/outlook/remedy.h"

#include <inttypes.h>
#include <string.h>

enum {
    TIMES = 64, /* as many ranks, */
    MOST = 4096 /* and so many in all */
};

static const double SHARE = 0.125; /* of a search's work, for each try */

/* The words of a plan that fits; NULL: none was found. */
static const char *words_for(const meg_search_ask *ask, meg_pool *pool)
{
    meg_search s;
    meg_error e = {0};
    const char *words = NULL;
    if (meg_search_run(ask, &e, &s) == MEG_OK && s.fits)
        words = meg_pool_text(pool, "%s", *s.list[0].words ? s.list[0].words : "no more words");
    meg_search_free(&s);
    return words;
}

/* Blocks that were not to be run again. */
static const char *with_recompute(const meg_search_ask *ask, meg_pool *pool)
{
    char *options = meg_pool_text(pool, "%s", ask->options ? ask->options : "");
    if (!meg_options_drop(options, "recompute")) return NULL;
    meg_search_ask again = *ask;
    again.options = options;
    again.work = SHARE * meg_search_work(ask->ranks);
    const char *words = words_for(&again, pool);
    return words && strstr(words, "recompute=") ? words : NULL;
}

static const char *with_ranks(int64_t has, int ranks, const char *words, meg_pool *pool)
{
    const char *more = "";
    if (has && ranks > has)
        more = meg_pool_text(pool, " (the described machine has %" PRId64 ")", has);
    return meg_pool_text(pool, MEG_REMEDY "on %d ranks%s: %s", ranks, more, words);
}

const char *meg_remedy_find(const meg_search_ask *ask, int64_t has, meg_pool *pool)
{
    const char *again = with_recompute(ask, pool);
    if (again) return meg_pool_text(pool, MEG_REMEDY "with %s", again);
    meg_search_ask more = *ask;
    more.memory = meg_search_limit(ask);
    more.limit = NULL;
    int most = ask->ranks;
    for (int n = 2 * ask->ranks; n <= TIMES * ask->ranks && n <= MOST; n *= 2) {
        more.ranks = most = n;
        more.work = SHARE * meg_search_work(n);
        const char *words = words_for(&more, pool);
        if (words) return with_ranks(has, n, words, pool);
    }
    return meg_pool_text(pool, "; no plan for up to %d ranks was found that fits either", most);
}
