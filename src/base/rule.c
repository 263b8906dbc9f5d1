/* Rules for words: see rule.h. */
#include "base/rule.h"

#include <string.h>

static bool asks(const meg_ruled *r, const meg_rule *rule, const char *value)
{
    const meg_param *p = meg_param_find(r->table, rule->word);
    if (!rule->off) return true;
    return p ? !meg_param_same(p, rule->off, value) : strcmp(rule->off, value) != 0;
}

static meg_status judge(meg_error *e, const meg_logger *log, const meg_ruled *r,
                        const meg_rule *rule, const char *value)
{
    MEG_CHECK(e, rule->verdict == MEG_WARNS, MEG_EARG, "%s: %s=%s %s", r->what, rule->word, value,
              rule->says);
    meg_log(log, MEG_WARN, "%s=%s %s", rule->word, value, rule->says);
    return MEG_OK;
}

static meg_status judge_all(meg_error *e, const meg_logger *log, const meg_ruled *r, meg_pool *pool)
{
    char word[MEG_TEXT];
    meg_excerpt seen;
    const char *at = r->text ? r->text : "";
    while (r->rules && meg_options_next(&at, word, &seen) > 0) {
        const char *value = meg_pool_text(pool, "%.*s", seen.length, seen.at);
        for (const meg_rule *rule = r->rules; rule->word; rule++) {
            if (strcmp(rule->word, word) != 0 || !asks(r, rule, value)) continue;
            if (!rule->counts(r->state)) MEG_TRY(e, judge(e, log, r, rule, value));
        }
    }
    return MEG_OK;
}

meg_status meg_rules_check(meg_error *e, const meg_logger *log, const meg_ruled *r)
{
    meg_pool *pool = meg_pool_new(); /* of values */
    meg_status status = judge_all(e, log, r, pool);
    meg_pool_free(pool);
    return status;
}
