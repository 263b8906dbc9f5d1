/* Better words for the best shapes: see look.h. */
#include "plan/search/look.h"
#include "plan/search/seams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double WAYS = 200; /* cuts into stages that are few enough to look at all */
static const int DEEP =
    1000; /* nodes; of many ranks of such nets wide halos take too long to try */

/* What may save time; tried one by one on the best shapes. */
static const char *const REFINEMENTS[] = {"recompute=none",
                                          "wide=2",
                                          "wide=4",
                                          "channels=filter",
                                          "channels=channel",
                                          "allreduce=halving_doubling",
                                          "allreduce=hierarchical",
                                          "bucket=4MiB",
                                          "bucket=64MiB",
                                          "balance=memory",
                                          "replications=2",
                                          "replications=4",
                                          "zero=1"};

/* What saves memory and costs time, where memory is the goal. zero=3 and segments do not go together. */
static const char *const SMALLER[] = {"zero=3", "recompute=segments", "zero=1 recompute=segments"};

/* ---- where stages begin ---- */

/* The blocks of the network, if nobody has said of what stages are made; NULL: they cannot be named. */
static const meg_seams *blocks_of(const meg_seeker *x, const meg_shape *s)
{
    const meg_graph *g = x->ask->graph;
    meg_pool *pool = x->out->pool;
    if (!meg_search_free_word(x->ask, "level")) return NULL;
    double *seconds = meg_pool_alloc(pool, ((size_t)g->nodes + 1) * sizeof *seconds);
    meg_estimator_seconds(x->estimator, s->samples, seconds);
    return meg_seams_new(pool, g, MEG_LEVEL_BLOCK, seconds);
}

typedef struct cutting {
    const meg_shape *shape;
    const meg_seams *seams;
    int usual[MEG_STAGES]; /* the first piece of each stage, as plans have it by themselves */
    int first[MEG_STAGES]; /* as the best so far has it */
    int at;                /* its candidate */
    const char *words;     /* without assign= */
} cutting;

/* Keeps a cut that is better. */
static bool try_cut(meg_seeker *x, cutting *c, const int first[])
{
    int stages = c->shape->stages;
    size_t bytes = (size_t)stages * sizeof *first;
    if (memcmp(first, c->usual, bytes) == 0 || meg_look_enough(x, 1)) return false;
    const char *words = meg_look_both(x, c->words, meg_seams_words(c->seams, stages, first));
    int tried = meg_look_try(x, c->shape, words);
    if (meg_look_worth(x, &x->out->list[tried]) >= meg_look_worth(x, &x->out->list[c->at]))
        return false;
    memcpy(c->first, first, bytes);
    c->at = tried;
    return true;
}

/* One stage after the other begins a piece earlier or later, while that helps. */
static void move_stages(meg_seeker *x, cutting *c)
{
    int stages = c->shape->stages;
    for (bool better = true; better;) {
        better = false;
        for (int i = 0; i < 2 * (stages - 1); i++) {
            int moved[MEG_STAGES];
            memcpy(moved, c->first, sizeof moved);
            if (meg_seams_move(c->seams, stages, moved, 1 + i / 2, i % 2 ? 1 : -1))
                better = try_cut(x, c, moved) || better;
        }
    }
}

/* Where there are few, all of them. */
static void try_all_cuts(meg_seeker *x, cutting *c)
{
    int stages = c->shape->stages, first[MEG_STAGES];
    if (meg_seams_ways(c->seams, stages) > WAYS) return;
    for (int s = 0; s < stages; s++)
        first[s] = s;
    do
        try_cut(x, c, first);
    while (!meg_look_enough(x, 1) && meg_seams_next(c->seams, stages, first));
}

/* Stages that are alike in seconds of this machine, then as replay has them quickest. Returns the best candidate. */
static int refine_cut(meg_seeker *x, const meg_shape *s, int at, bool all)
{
    int even[MEG_STAGES];
    bool own = meg_search_free_word(x->ask, "assign") && meg_search_free_word(x->ask, "balance");
    cutting c = {.shape = s, .at = at, .words = x->out->list[at].words};
    if (s->stages == 1 || !own || strstr(c.words, "balance=memory")) return at;
    const int *stage = meg_estimator_stages(x->estimator, s->stages);
    c.seams = stage ? blocks_of(x, s) : NULL;
    if (!c.seams || !meg_seams_find(c.seams, stage, s->stages, c.usual)) return at;
    memcpy(c.first, c.usual, sizeof c.first);
    if (meg_seams_even(c.seams, s->stages, even)) try_cut(x, &c, even);
    if (x->ask->ranks <= MEG_SEARCH_FEW) move_stages(x, &c);
    if (x->ask->ranks <= MEG_SEARCH_FEW && all) try_all_cuts(x, &c);
    return c.at;
}

/* ---- where a mesh changes ---- */

typedef struct change { /* of a mesh of pixels, to one of channels or of samples */
    const meg_shape *shape;
    const meg_seams *seams;
    const char *words, *mesh;
    char letter;
    int at, piece; /* the best candidate so far, and where it changes; 0: nowhere */
} change;

static bool try_change(meg_seeker *x, change *c, int piece)
{
    if (piece < 1 || piece >= meg_seams_pieces(c->seams) || meg_look_enough(x, 1)) return false;
    const char *mesh = meg_pool_text(x->out->pool, "mesh=%s/%s:%c%d", c->mesh,
                                     meg_seams_name(c->seams, piece), c->letter, c->shape->size);
    int tried = meg_look_try(x, c->shape, meg_look_both(x, c->words, mesh));
    if (meg_look_worth(x, &x->out->list[tried]) >= meg_look_worth(x, &x->out->list[c->at]))
        return false;
    c->at = tried;
    c->piece = piece;
    return true;
}

/* Deep layers have few pixels and many channels: from one of them on, those are cut, or whole samples are dealt out.
 * From some places, then from its neighbours. */
static int refine_mesh(meg_seeker *x, const meg_shape *s, int at)
{
    static const char letters[] = "cn";
    meg_given mesh;
    bool whole = s->pixels && s->stages == 1 && meg_search_free_word(x->ask, "mesh");
    if (!whole || x->ask->ranks > MEG_SEARCH_FEW) return at;
    change c = {.shape = s, .at = at, .words = x->out->list[at].words};
    c.seams = blocks_of(x, s);
    if (!c.seams || !meg_given_find(c.words, "mesh", &mesh)) return at;
    c.mesh = meg_pool_text(x->out->pool, "%.*s", (int)mesh.value.length, mesh.value.at);
    for (int i = 0; letters[i]; i++) {
        int pieces = meg_seams_pieces(c.seams);
        c.letter = letters[i];
        c.piece = 0;
        for (int k = 1; k < 4; k++)
            try_change(x, &c, pieces * k / 4);
        while (c.piece && (try_change(x, &c, c.piece - 1) || try_change(x, &c, c.piece + 1)))
            continue;
    }
    return c.at;
}

/* ---- words ---- */

/* The next words to try; NULL: those were all. */
static const char *refinement(const meg_seeker *x, size_t i)
{
    size_t count = sizeof REFINEMENTS / sizeof *REFINEMENTS;
    bool memory = x->ask->goal == MEG_GOAL_MEMORY;
    if (i < count) return REFINEMENTS[i];
    return memory && i - count < sizeof SMALLER / sizeof *SMALLER ? SMALLER[i - count] : NULL;
}

/* Word by word, keeping what helps, until nothing does. */
static int refine(meg_seeker *x, const meg_shape *s, int at)
{
    for (bool better = true; better;) {
        better = false;
        const char *more;
        for (size_t i = 0; (more = refinement(x, i)); i++) {
            const char *words = x->out->list[at].words;
            bool slow = x->ask->ranks > MEG_SEARCH_FEW && x->ask->graph->nodes > DEEP &&
                        strncmp(more, "wide", 4) == 0;
            if (slow || !meg_look_applies(s, more) || !meg_look_free(x, more)) continue;
            if (meg_look_enough(x, 1)) return at;
            int tried = meg_look_try(x, s, meg_look_both(x, words, more));
            if (meg_look_worth(x, &x->out->list[tried]) >= meg_look_worth(x, &x->out->list[at]))
                continue;
            at = tried;
            better = true;
        }
    }
    return at;
}

static void refine_shape(meg_seeker *x, const meg_shape *s, int at)
{
    at = refine_mesh(x, s, refine(x, s, at));
    int cut = refine_cut(x, s, at, false);
    if (x->best == cut) refine_cut(x, s, at, true);
}

typedef struct finalist {
    const meg_shape *shape;
    int at; /* its candidate */
    double worth;
} finalist;

static int by_worth(const void *a, const void *b)
{
    const finalist *x = a, *y = b;
    if (x->worth != y->worth) return x->worth < y->worth ? -1 : 1;
    return x->at - y->at;
}

/* The best shapes first; those whose bound is above the best that is known by then are left. */
void meg_refine_all(meg_seeker *x, const meg_shape *shape, int count, const int *as)
{
    finalist *list = calloc((size_t)count + 1, sizeof *list);
    int found = 0;
    if (!list) abort();
    for (int i = 0; i < count; i++)
        if (as[i] >= 0 && isfinite(meg_look_worth(x, &x->out->list[as[i]])))
            list[found++] = (finalist){&shape[i], as[i], meg_look_worth(x, &x->out->list[as[i]])};
    qsort(list, (size_t)found, sizeof *list, by_worth);
    for (int i = 0; i < found && !meg_look_enough(x, 1); i++)
        if (!meg_look_beyond(x, list[i].shape)) refine_shape(x, list[i].shape, list[i].at);
    free(list);
}
