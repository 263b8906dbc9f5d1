/* Which blocks are run again (recompute=segments): cuts into reruns that the chain of blocks finds the best
 * (plan/partition/reruns.h), for more and less memory, are lowered one after the other, and what they
 * really need decides. With a budget it is the least work that fits; without one, or where nothing fits,
 * the least arena. Each rank chooses for itself: what is run again sends nothing.
 */
#include "plan/lower/lowering.h"

#include <string.h>

enum {
    ATTEMPTS = 16
};

typedef struct attempt { /* a cut of every station into reruns, lowered */
    int **rerun;         /* (stations)(blocks) */
    double work;         /* done twice */
    int64_t need;        /* bytes of the arena */
} attempt;

typedef struct search {
    meg_plan *plan;
    meg_entry *entry;
    int rank, stations, count;
    meg_weighed *weighed;  /* (stations) */
    int64_t *least, *most; /* (stations) bytes of the chain: at least; with nothing run again */
    attempt tried[ATTEMPTS];
} search;

/* What the arena would be, were this the last entry. */
static int64_t arena_with(const meg_plan *p, const meg_entry *e)
{
    int64_t at = p->bytes[MEG_HELD], end = at;
    for (int r = MEG_STEP; r < MEG_REGIONS; r++) {
        int64_t bytes = e->bytes[r] > p->bytes[r] ? e->bytes[r] : p->bytes[r];
        at = meg_aligned(at);
        if (bytes) end = at + bytes;
        at += bytes;
    }
    return end;
}

/* Lowered as this attempt has it; returns the arena. */
static int64_t lower_cut(const search *x, const attempt *a)
{
    const int **again = meg_pool_alloc(x->plan->lowered, (size_t)x->stations * sizeof *again);
    size_t nodes = (size_t)x->entry->graph->nodes + 1;
    for (int s = 0; s < x->stations; s++) {
        const int *block_of = x->weighed[s].block_of;
        int *of = meg_pool_alloc(x->plan->lowered, nodes * sizeof *of);
        for (size_t i = 0; i + 1 < nodes; i++)
            of[i] = block_of[i] < 0 ? -1 : a->rerun[s][block_of[i]];
        again[s] = of;
    }
    meg_lower_stations(x->plan, x->entry, x->rank, &(meg_variant){.again = again});
    return arena_with(x->plan, x->entry);
}

static bool same_cut(const search *x, const attempt *a, const attempt *b)
{
    for (int s = 0; s < x->stations; s++) {
        size_t bytes = (size_t)x->weighed[s].chain.blocks * sizeof(int);
        if (memcmp(a->rerun[s], b->rerun[s], bytes) != 0) return false;
    }
    return true;
}

/* The best cut of each station within its least memory and a share of what nothing run again adds. */
static const attempt *try_share(search *x, double share)
{
    attempt *a = &x->tried[x->count];
    *a = (attempt){0};
    a->rerun = meg_pool_alloc(x->plan->lowered, (size_t)x->stations * sizeof *a->rerun);
    for (int s = 0; s < x->stations; s++) {
        const meg_chain *c = &x->weighed[s].chain;
        int64_t more = (int64_t)(share * (double)(x->most[s] - x->least[s]));
        a->rerun[s] = meg_pool_alloc(x->plan->lowered, ((size_t)c->blocks + 1) * sizeof(int));
        a->work += meg_chain_cut(c, x->least[s] + more, a->rerun[s]);
    }
    for (int i = 0; i < x->count; i++)
        if (same_cut(x, a, &x->tried[i])) return &x->tried[i];
    a->need = lower_cut(x, a);
    return &x->tried[x->count++];
}

/* The stations without reruns, weighed. */
static void weigh_stations(search *x)
{
    const meg_timetable *t = x->entry->timetable;
    size_t most = (size_t)(t->directions * t->stages) + 1;
    x->weighed = meg_pool_alloc(x->plan->lowered, most * sizeof *x->weighed);
    meg_lower_stations(x->plan, x->entry, x->rank, &(meg_variant){.weighed = x->weighed});
    x->stations = x->entry->stations;
    x->least = meg_pool_alloc(x->plan->lowered, most * sizeof *x->least);
    x->most = meg_pool_alloc(x->plan->lowered, most * sizeof *x->most);
    attempt *none = &x->tried[x->count++];
    none->rerun = meg_pool_alloc(x->plan->lowered, most * sizeof *none->rerun);
    none->need = arena_with(x->plan, x->entry);
    for (int s = 0; s < x->stations; s++) {
        const meg_chain *c = &x->weighed[s].chain;
        none->rerun[s] = meg_pool_alloc(x->plan->lowered, ((size_t)c->blocks + 1) * sizeof(int));
        for (int i = 0; i < c->blocks; i++)
            none->rerun[s][i] = -1;
        x->least[s] = meg_chain_least(c);
        x->most[s] = meg_chain_bytes(c, none->rerun[s]);
    }
}

/* The least work among what fits; if nothing does, or there is no budget, among what is within a
 * hundredth of the least arena. */
static const attempt *choose(const search *x, int64_t budget)
{
    int64_t least = INT64_MAX;
    const attempt *best = NULL;
    for (int i = 0; i < x->count; i++)
        if (x->tried[i].need < least) least = x->tried[i].need;
    int64_t most = budget >= least ? budget : budget ? least : least + least / 100;
    for (int i = 0; i < x->count; i++) {
        const attempt *a = &x->tried[i];
        if (a->need <= most && (!best || a->work < best->work)) best = a;
    }
    return best;
}

/* The chain measures, lowering decides: as much memory as the budget has is found by halving. */
void meg_lower_reruns(meg_plan *p, meg_entry *e, int rank)
{
    enum {
        HALVINGS = 8
    };
    static const double small[] = {0, 0.01, 0.03, 0.06, 0.12, 0.25};
    search x = {.plan = p, .entry = e, .rank = rank};
    int64_t budget = p->options.budget;
    double low = 0, high = 1;
    weigh_stations(&x);
    if (budget && x.tried[0].need <= budget) return;
    bool fits = false;
    for (int i = 0; i < 6 && !fits; i++)
        fits = try_share(&x, small[i])->need <= budget;
    for (int i = 0; i < HALVINGS && fits; i++) {
        double middle = (low + high) / 2;
        if (try_share(&x, middle)->need <= budget) low = middle;
        else high = middle;
    }
    lower_cut(&x, choose(&x, budget));
}
