/* Cuts into stages: see seams.h. */
#include "plan/search/seams.h"
#include "plan/partition/stages.h"

#include <math.h>
#include <string.h>

struct meg_seams {
    meg_pool *pool;
    const meg_graph *graph;
    int pieces;
    const char **name; /* (pieces) */
    double *seconds;   /* (pieces) */
    int *of;           /* (nodes) piece; -1: losses, which have no piece of their own */
};

static void add_group(meg_seams *c, const meg_group *s, const bool loss[], const double seconds[])
{
    bool any = false;
    for (int i = 0; i < s->nodes; i++)
        any = any || !loss[s->node[i]];
    for (int i = 0; i < s->nodes; i++) {
        c->of[s->node[i]] = any && !loss[s->node[i]] ? c->pieces : -1;
        if (any) c->seconds[c->pieces] += seconds[s->node[i]];
    }
    if (any) c->name[c->pieces++] = meg_pool_text(c->pool, "%s", s->name);
}

meg_seams *meg_seams_new(meg_pool *pool, const meg_graph *g, meg_level level,
                         const double seconds[])
{
    meg_groups *groups = meg_groups_new(g, level);
    meg_seams *c = meg_pool_alloc(pool, sizeof *c);
    size_t most = (size_t)groups->count + 1, nodes = (size_t)g->nodes + 1;
    *c = (meg_seams){.pool = pool,
                     .graph = g,
                     .name = meg_pool_alloc(pool, most * sizeof *c->name),
                     .seconds = meg_pool_alloc(pool, most * sizeof *c->seconds),
                     .of = meg_pool_alloc(pool, nodes * sizeof *c->of)};
    const bool *loss = meg_losses_of(pool, g);
    bool plain = true;
    for (int i = 0; i < groups->count; i++)
        add_group(c, &groups->group[i], loss, seconds);
    for (int i = 0; i < c->pieces; i++)
        plain = plain && !strpbrk(c->name[i], ", =");
    meg_groups_free(groups);
    return plain ? c : NULL;
}

int meg_seams_pieces(const meg_seams *c)
{
    return c->pieces;
}

const char *meg_seams_name(const meg_seams *c, int piece)
{
    return c->name[piece];
}

/* Stages of at most so many seconds, each filled as far as that goes, with a piece left for each behind it.
 * False: they are not enough. */
static bool fill(const meg_seams *c, int stages, double most, int first[])
{
    int at = 0;
    for (int s = 0; s < stages; s++) {
        double sum = c->seconds[at];
        first[s] = at++;
        while (at < c->pieces - (stages - 1 - s) && sum + c->seconds[at] <= most)
            sum += c->seconds[at++];
        if (sum > most) return false;
    }
    return at == c->pieces;
}

bool meg_seams_even(const meg_seams *c, int stages, int first[])
{
    double low = 0, high = 0;
    if (stages > c->pieces) return false;
    for (int i = 0; i < c->pieces; i++)
        high += c->seconds[i];
    high *= 1 + 1e-9;
    for (int i = 0; i < 60 && high > low * (1 + 1e-9); i++) {
        double middle = (low + high) / 2;
        *(fill(c, stages, middle, first) ? &high : &low) = middle;
    }
    return fill(c, stages, high, first);
}

bool meg_seams_find(const meg_seams *c, const int stage_of_node[], int stages, int first[])
{
    int *stage = meg_pool_alloc(c->pool, (size_t)c->pieces * sizeof *stage), at = 0;
    for (int i = 0; i < c->graph->nodes; i++)
        if (c->of[i] >= 0) stage[c->of[i]] = stage_of_node[i];
    for (int i = 0; i < c->pieces; i++) {
        if (i == 0 ? stage[i] != 0 : stage[i] < stage[i - 1] || stage[i] > at) return false;
        if (i > 0 && stage[i] == stage[i - 1]) continue;
        first[at++] = i;
    }
    return at == stages;
}

bool meg_seams_move(const meg_seams *c, int stages, int first[], int s, int by)
{
    int to = first[s] + by, end = s + 1 < stages ? first[s + 1] : c->pieces;
    if (s == 0 || to <= first[s - 1] || to >= end) return false;
    first[s] = to;
    return true;
}

double meg_seams_ways(const meg_seams *c, int stages)
{
    double ways = 1;
    for (int s = 1; s < stages; s++)
        ways = ways * (c->pieces - s) / s;
    return ways;
}

bool meg_seams_next(const meg_seams *c, int stages, int first[])
{
    int s = stages - 1;
    while (s > 0 && first[s] == c->pieces - (stages - s))
        s--;
    if (s <= 0) return false;
    for (int to = first[s] + 1; s < stages; s++)
        first[s] = to++;
    return true;
}

const char *meg_seams_words(const meg_seams *c, int stages, const int first[])
{
    const char *text = "assign=";
    for (int s = 1; s < stages; s++)
        text = meg_pool_text(c->pool, "%s%s%s", text, s > 1 ? "," : "", c->name[first[s]]);
    return text;
}
