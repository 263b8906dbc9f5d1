/* Ranks with several stages: chunks (interleaved), both directions (mast, master, chimera). What a rank
 * needs is a sum over stages that are far from one another, so that no dynamic programming over the
 * stages in order finds the best cut. All cuts are tried, stage by stage; a branch ends where a rank
 * has as many bytes already as the largest has in the best cut so far.
 *
 *     stage 0 ends at   1       2       3 ...
 *     stage 1 ends at   2 3 ..  3 4 ..  x       x: rank 0 is too large already
 *
 * A network with very many pieces ends the search by the number of branches: the best cut so far is
 * taken, which is at least as good as the first guess.
 */
#include "plan/partition/shared.h"
#include "plan/partition/sweep.h"

#include <string.h>

enum {
    PIECES_MOST = 512,      /* of the table of all neighbours: 8 MiB */
    BRANCHES_MOST = 1000000 /* about a second */
};

typedef struct tree {
    const meg_cut *c;
    meg_footprint *of;     /* (stages) of those that are cut off */
    meg_footprint **table; /* (pieces + 1, pieces) of the pieces a .. b-1 at [b][a] */
    int *end, *best_end;   /* (stages) */
    int64_t best;
    int branches;
} tree;

static void fill_table(tree *t, meg_pool *pool)
{
    const meg_cut *c = t->c;
    meg_sweep x = meg_sweep_new(pool, c);
    t->table = meg_pool_alloc(pool, ((size_t)c->pieces + 1) * sizeof *t->table);
    for (int b = 1; b <= c->pieces; b++) {
        t->table[b] = meg_pool_alloc(pool, (size_t)b * sizeof **t->table);
        meg_sweep_begin(&x, b);
        for (int a = b - 1; a >= 0; a--) {
            meg_sweep_add(&x, a);
            t->table[b][a] = x.now;
        }
    }
}

/* Stage s begins at piece a; `most`: the largest rank of the stages before it. */
static void branch(tree *t, int s, int a, int64_t most)
{
    const meg_cut *c = t->c;
    bool last = s == c->stages - 1;
    for (int b = last ? c->pieces : a + 1; b <= c->pieces - (c->stages - 1 - s); b++) {
        if (t->branches++ >= BRANCHES_MOST) return;
        t->of[s] = t->table[b][a];
        t->end[s] = b;
        int64_t bytes = meg_stage_bytes(c, s, t->of, s + 1);
        if (bytes < most) bytes = most;
        if (bytes >= t->best) continue;
        if (!last) {
            branch(t, s + 1, b, bytes);
            continue;
        }
        t->best = bytes;
        memcpy(t->best_end, t->end, (size_t)c->stages * sizeof *t->end);
    }
}

int64_t meg_partition_shared(const meg_cut *c, int stage[])
{
    meg_pool *pool = meg_pool_new();
    tree t = {.c = c};
    t.of = meg_pool_alloc(pool, (size_t)c->stages * sizeof *t.of);
    t.end = meg_pool_alloc(pool, (size_t)c->stages * sizeof *t.end);
    t.best_end = meg_pool_alloc(pool, (size_t)c->stages * sizeof *t.best_end);
    t.best = meg_cut_bytes(c, stage, t.of);
    if (c->pieces <= PIECES_MOST) {
        fill_table(&t, pool);
        branch(&t, 0, 0, 0);
    }
    for (int s = 0, i = 0; s < c->stages && t.best_end[0] > 0; s++)
        for (; i < t.best_end[s]; i++)
            stage[i] = s;
    int64_t best = t.best;
    meg_pool_free(pool);
    return best;
}
