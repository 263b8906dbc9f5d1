/* The critical path in words: see path.h. */
#include "cli/page/path.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARTS = 4 /* of a line */
};

int meg_actor_ranks(const meg_foresight *f, int actor)
{
    int count = 0;
    for (int r = 0; r < f->whole.ranks; r++)
        count += f->whole.actor_of[r] == actor;
    return count;
}

typedef struct teller {
    const meg_foresight *f;
    meg_pool *pool;
    const char *const *stages;
} teller;

static const char *stage_of(const teller *t, int actor)
{
    return t->stages && t->stages[actor] ? t->stages[actor] : "";
}

/* "rank 1", "rank 1 (stage 0)", "rank 5 and 511 like it" */
static const char *name_of(const teller *t, int actor)
{
    int ranks = meg_actor_ranks(t->f, actor);
    const char *name = meg_pool_text(t->pool, "rank %d", t->f->whole.actor[actor].rank);
    if (ranks > 1) name = meg_pool_text(t->pool, "%s and %d like it", name, ranks - 1);
    if (!*stage_of(t, actor)) return name;
    return meg_pool_text(t->pool, "%s (stage %s)", name, stage_of(t, actor));
}

static const char *text_of(const teller *t, const meg_critical_part *p)
{
    const meg_actor *actor = t->f->whole.actor;
    switch (p->what) {
    case MEG_CRITICAL_WORK:
        return meg_pool_text(t->pool, "kernels of %s", name_of(t, p->actor));
    case MEG_CRITICAL_MESSAGE:
        return meg_pool_text(t->pool, "messages rank %d -> %d", actor[p->actor].rank,
                             actor[p->other].rank);
    case MEG_CRITICAL_SUM:
        return meg_pool_text(t->pool, "sums over %d ranks", p->other);
    default:
        return meg_pool_text(t->pool, "waiting of %s", name_of(t, p->actor));
    }
}

/* Where there are stages, and several ranks in one: of what it is told as one with others; "": alone. */
static const char *common_text(const teller *t, const meg_critical_part *p)
{
    const char *from = stage_of(t, p->actor);
    if (p->what == MEG_CRITICAL_SUM) return text_of(t, p);
    if (!*from) return "";
    if (p->what == MEG_CRITICAL_WORK) return meg_pool_text(t->pool, "kernels of stage %s", from);
    if (p->what != MEG_CRITICAL_MESSAGE) return "";
    const char *to = stage_of(t, p->other);
    return strcmp(from, to) == 0 ? meg_pool_text(t->pool, "messages within stage %s", from)
                                 : meg_pool_text(t->pool, "messages stage %s -> %s", from, to);
}

static int larger(const void *a, const void *b)
{
    const meg_path_group *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return strcmp(x->text, y->text);
}

int meg_path_groups(const meg_foresight *f, meg_pool *pool, const char *const stages[],
                    meg_path_group **out)
{
    const meg_critical *c = &f->critical;
    const teller t = {f, pool, stages};
    meg_path_group *group = meg_pool_alloc(pool, ((size_t)c->parts + 1) * sizeof *group);
    const char **key = meg_pool_alloc(pool, ((size_t)c->parts + 1) * sizeof *key);
    int count = 0;
    for (int i = 0; i < c->parts; i++) {
        const meg_critical_part *p = &c->part[i];
        const char *common = common_text(&t, p);
        int k = 0;
        while (k < count && (!*common || strcmp(key[k], common) != 0))
            k++;
        if (k == count) {
            key[count] = common;
            group[count++] = (meg_path_group){text_of(&t, p), p->what, 0, 0, 0};
        }
        if (group[k].actors++ == 1) group[k].text = common;
        group[k].pieces += p->pieces;
        group[k].seconds += p->seconds;
    }
    qsort(group, (size_t)count, sizeof *group, larger);
    *out = group;
    return count;
}

const char *meg_path_line(const meg_foresight *f, meg_pool *pool, const char *const stages[])
{
    const meg_critical *c = &f->critical;
    meg_path_group *group;
    int count = meg_path_groups(f, pool, stages, &group), told = 0;
    double all = c->end - c->begin, rest = 100;
    const char *line = "critical path:";
    for (; told < count && told < PARTS; told++) {
        double share = all > 0 ? 100 * group[told].seconds / all : 0;
        if (told > 0 && share < 0.5) break;
        line = meg_pool_text(pool, "%s%s %.0f %% %s", line, told ? "," : "", share,
                             group[told].text);
        rest -= share;
    }
    if (count > told && rest >= 0.5) line = meg_pool_text(pool, "%s, %.0f %% others", line, rest);
    return line;
}

double meg_path_seconds(const meg_foresight *f, meg_critical_what what)
{
    double seconds = 0;
    for (int i = 0; i < f->critical.parts; i++)
        if (f->critical.part[i].what == what) seconds += f->critical.part[i].seconds;
    return seconds;
}
