/* Plans that have names: see named.h. */
#include "plan/named.h"
#include "base/option.h"
#include "base/registry.h"

#include <stdio.h>
#include <string.h>

static const meg_named_plan PLANS[] = {
#define MEG_NAMED_PLAN(name_, ranks_, words_, doc_, paper_)                                        \
    {.name = name_, .ranks = ranks_, .words = words_, .doc = doc_, .paper = paper_},
#include "plan/plans.def"
#undef MEG_NAMED_PLAN
};

const meg_named_plan *meg_named_plan_at(int i)
{
    return i >= 0 && i < (int)(sizeof PLANS / sizeof *PLANS) ? &PLANS[i] : NULL;
}

MEG_REGISTRY_FIND(meg_named_plan, meg_named_plan_find, meg_named_plan_at)

void meg_named_plan_names(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; meg_named_plan_at(i) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? " " : "", PLANS[i].name);
}

const char *meg_named_plan_join(const meg_named_plan *n, meg_pool *pool, const char *given)
{
    char word[MEG_TEXT];
    meg_excerpt value;
    const char *all = given;
    for (const char *at = n->words; meg_options_next(&at, word, &value) > 0;)
        if (!meg_options_has(given, word))
            all = meg_pool_text(pool, "%s=%.*s %s", word, value.length, value.at, all);
    return all;
}
