/* The search for a plan: it never changes what was given, keeps to the memory that there is, prefers what is simple,
 * says what does not fit, and on small instances finds what looking at everything finds.
 *
 * The domain of that last claim: up to 8 ranks; every shape (replicas, stages, mesh of pixels or channels, chunks,
 * schedule, all numbers of micro-batches) with every set of words of EXTRA, one value of each; and of given pipelines,
 * every cut into stages. Prices are the built-in
 * ones, the machines are described: the answer does not depend on the hour.
 */
#include "base/random.h"
#include "graph/groups.h"
#include "search_help.h"

static const char CLUSTER[] =
    "nodes=4 ranks=2 cores=2 inside=2us,4GB/s between=30us,120MB/s,all:120MB/s";

/* ---- everything ---- */

static const char *const EXTRA[][4] = {
    {"recompute=none", NULL},
    {"wide=2", "wide=4", NULL},
    {"allreduce=halving_doubling", "allreduce=hierarchical", NULL},
    {"bucket=4MiB", "bucket=64MiB", NULL},
    {"zero=1", "zero=3", NULL},
    {"balance=memory", NULL}};

enum {
    EXTRAS = sizeof EXTRA / sizeof *EXTRA
};

static void try_all(const answer *a, const meg_shape *s, int k, const char *words, double *least)
{
    if (k == EXTRAS) {
        double seconds = seconds_of(a, words);
        if (seconds < *least) print_message("    %.6f s: %s\n", seconds, words);
        *least = fmin(*least, seconds);
        return;
    }
    try_all(a, s, k + 1, words, least);
    if (strncmp(EXTRA[k][0], "wide", 4) == 0 && !s->pixels) return;
    if (strncmp(EXTRA[k][0], "balance", 7) == 0 && s->stages == 1) return;
    if (s->copies == 1 && k >= 2 && k <= 4) return;
    for (int i = 0; EXTRA[k][i]; i++) {
        char more[512];
        snprintf(more, sizeof more, "%s %s", words, EXTRA[k][i]);
        try_all(a, s, k + 1, more, least);
    }
}

/* Shapes whose bound is above what is known already cannot be better. */
static double exhaustive(const answer *a)
{
    meg_pool *pool = meg_pool_new();
    meg_plan_options given;
    meg_error e;
    meg_shape *shape;
    double least = INFINITY;
    assert_int_equal(meg_plan_options_read(pool, &e, a->ask.options, &given), MEG_OK);
    int count = meg_search_shapes(&a->ask, pool, &given, a->found.one, &shape);
    for (int i = 0; i < count; i++)
        try_all(a, &shape[i], 0, shape[i].words, &least);
    free(shape);
    meg_pool_free(pool);
    return least;
}

static double least_of(const meg_search *s)
{
    double least = INFINITY;
    for (int i = 0; i < s->count; i++)
        if (s->list[i].verdict == MEG_BEST || s->list[i].verdict == MEG_SLOWER)
            least = fmin(least, s->list[i].seconds);
    return least;
}

static void test_finds_the_best(void **state)
{
    static const question small[] = {
        {"cnn", "width=4", "batch=8", NODE, 2, 0, MEG_GOAL_TIME},
        {"cnn", "width=4", "batch=8", CLUSTER, 4, 0, MEG_GOAL_TIME},
        {"gpt", "layers=2 width=16 heads=2 tokens=8 classes=64", "batch=4", CLUSTER, 2, 0,
         MEG_GOAL_TIME},
        {"vgg11", "image=3x32x32 width=4 hidden=64 classes=10", "batch=4", NODE, 2, 600000,
         MEG_GOAL_TIME},
    };
    (void)state;
    size_t count = SANITIZED ? 1 : sizeof small / sizeof *small; /* which takes ten times as long */
    for (size_t i = 0; i < count; i++) {
        answer *a = asked(&small[i]);
        best(a);
        double least = exhaustive(a), found = least_of(&a->found);
        print_message("%s on %d ranks: %.6f s, of everything %.6f s, %d plans replayed\n",
                      small[i].model, small[i].ranks, found, least, a->found.looked);
        if (!(found <= least * (1 + 1e-9)))
            fail_msg("%s: found %.9f s, there is %.9f s", small[i].model, found, least);
        drop(a);
    }
}

/* Where stages begin: of all cuts of a pipeline, the one that replay has quickest. */
static double best_cut(const answer *a, const meg_groups *s, int from, int stages,
                       const char *words)
{
    double least = INFINITY;
    if (stages == 1) return seconds_of(a, words);
    for (int i = from; i + stages - 1 <= s->count; i++) {
        char more[512];
        const char *name = s->group[i].name;
        snprintf(more, sizeof more, "%s%s%s", words,
                 strstr(words, "assign=") ? "," : " assign=", name);
        least = fmin(least, best_cut(a, s, i + 1, stages - 1, more));
    }
    return least;
}

static void test_cuts(void **state)
{
    static const question small[] = {
        {"resnet-cifar", "depth=20 width=8", "batch=8 norm=1 stages=2 schedule=gpipe micro=4", NODE,
         2, 0, MEG_GOAL_TIME},
        {"vgg11", "image=3x32x32 width=4 hidden=64 classes=10",
         "batch=4 stages=3 schedule=1f1b micro=4", CLUSTER, 3, 0, MEG_GOAL_TIME},
        {"gpt", "layers=6 width=16 heads=2 tokens=8 classes=64",
         "batch=8 stages=4 schedule=gpipe micro=8", NODE, 4, 0, MEG_GOAL_TIME},
    };
    (void)state;
    for (size_t i = 0; i < (SANITIZED ? 1 : sizeof small / sizeof *small); i++) {
        answer *a = asked(&small[i]);
        best(a);
        meg_groups *s = meg_groups_new(a->graph, MEG_LEVEL_BLOCK);
        int stages = small[i].ranks;
        double least = best_cut(a, s, 1, stages, ""), found = least_of(&a->found);
        print_message("%s in %d stages of %d blocks: %.6f s, of all cuts %.6f s\n", small[i].model,
                      stages, s->count, found, least);
        if (!(found <= least * (1 + 1e-9)))
            fail_msg("%s: found %.9f s, there is %.9f s", small[i].model, found, least);
        meg_groups_free(s);
        drop(a);
    }
}

/* ---- cases that nobody tuned ---- */

/* A network, its words, and how a person would cut it over 2, 3, 4, 6, 8 ranks. */
typedef struct network {
    const char *model, *model_words, *words;
    const char *mesh[5];
} network;

static const int RANKS[] = {2, 3, 4, 6, 8};

static const network NETWORKS[] = {
    {"resnet18", "image=3x64x64 classes=10", "batch=24", {"2x1", "3x1", "2x2", "3x2", "4x2"}},
    {"resnet-cifar", "depth=20", "batch=24 norm=1", {"2x1", "3x1", "2x2", "3x2", "4x2"}},
    {"vgg11",
     "image=3x64x64 width=16 hidden=256 classes=10",
     "batch=24",
     {"2x1", "3x1", "2x2", "3x2", "4x2"}},
    {"unet", "image=3x64x64 width=8", "batch=24", {"2x1", "3x1", "2x2", "3x2", "4x2"}},
    {"gpt",
     "tokens=32 layers=4 width=64 heads=4 classes=256",
     "batch=24",
     {"c2", "w3", "c4", "w6", "w8"}},
};

static const char *const MACHINES[] = {
    "ranks=8 cores=8 inside=2us,4GB/s,cpu:1",
    "nodes=8 ranks=1 cores=1 between=40us,117MB/s,all:117MB/s",
    "nodes=4 ranks=2 cores=2 inside=2us,6GB/s between=10us,1.2GB/s,all:1.2GB/s"};

/* What an expert tries; recompute=segments only where it does not fit otherwise. */
static double by_hand(const answer *a, const network *n, int k)
{
    char words[5][128];
    double least = INFINITY;
    int ranks = RANKS[k];
    bool halves = ranks % 2 == 0, micro = !strstr(n->model, "resnet18");
    snprintf(words[0], sizeof *words, "replicas=%d", ranks);
    snprintf(words[1], sizeof *words, "replicas=%d zero=3", ranks);
    snprintf(words[2], sizeof *words, "stages=%d schedule=1f1b micro=%d", ranks, micro ? 24 : 1);
    snprintf(words[3], sizeof *words, "mesh=%s", n->mesh[k]);
    snprintf(words[4], sizeof *words, "stages=%d schedule=%s micro=%d", halves ? 2 : ranks,
             halves ? "1f1b" : "gpipe", micro ? 12 : 1);
    for (int i = 0; i < 5; i++) {
        char again[1024];
        snprintf(again, sizeof again, "%s recompute=segments budget=%lld", words[i],
                 (long long)a->ask.memory);
        double seconds = seconds_of(a, words[i]);
        if (isinf(seconds) && a->ask.memory) seconds = seconds_of(a, again);
        least = fmin(least, seconds);
    }
    return least;
}

static void test_drawn(void **state)
{
    uint64_t draw = 13;
    (void)state;
    for (int i = 0; i < (SANITIZED ? 1 : 20); i++) {
        draw = meg_hash_mix(draw + 1);
        const network *n = &NETWORKS[draw % 5];
        int k = (int)((draw >> 8) % 5), part = (int)((draw >> 24) % 4);
        question q = {n->model, n->model_words, n->words, MACHINES[(draw >> 16) % 3], 1,
                      0,        MEG_GOAL_TIME};
        answer *one = asked(&q);
        q.ranks = RANKS[k];
        if (part > 0) q.memory = best(one)->bytes * (4 - part) / 4; /* of one rank: 3/4, 1/2, 1/4 */
        drop(one);
        answer *a = asked_for(&q, meg_search_work(q.ranks));
        double least = by_hand(a, n, k), found = a->found.fits ? least_of(&a->found) : INFINITY;
        print_message("%s on %d ranks, %lld bytes: %.6f s, by hand %.6f s: %s\n", n->model, q.ranks,
                      (long long)q.memory, found, least,
                      a->found.fits ? a->found.list[0].words : "");
        if (isfinite(least) && !(a->found.list[0].seconds <= 1.05 * least && a->found.fits))
            fail_msg("%s on %d ranks: %s takes %.6f s, by hand %.6f s", n->model, q.ranks,
                     a->found.list[0].words, a->found.list[0].seconds, least);
        drop(a);
    }
}

/* ---- what was given ---- */

static void test_keeps_what_was_given(void **state)
{
    static const char *const given[] = {"stages=1",       "micro=1",        "mesh=1",
                                        "zero=0",         "schedule=gpipe", "replicas=2",
                                        "recompute=auto", "bucket=16MiB"};
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char words[64], word[32];
        snprintf(words, sizeof words, "batch=8 %s", given[i]);
        snprintf(word, sizeof word, "%.*s=", (int)strcspn(given[i], "="), given[i]);
        answer *a = asked(&(question){"cnn", "width=4", words, NODE, 4, 0, MEG_GOAL_TIME});
        best(a);
        for (int k = 0; k < a->found.count; k++)
            if (strstr(a->found.list[k].words, word))
                fail_msg("%s was given, but %s was tried", given[i], a->found.list[k].words);
        drop(a);
    }
}

static void test_simple_wins(void **state)
{
    (void)state;
    answer *a = asked(&(question){"cnn", "width=4", "batch=8", NODE, 2, 0, MEG_GOAL_TIME});
    const meg_candidate *b = best(a);
    for (int i = 1; i < a->found.count; i++) {
        const meg_candidate *c = &a->found.list[i];
        if (c->verdict == MEG_SLOWER && c->seconds <= 1.03 * least_of(&a->found) &&
            c->count < b->count)
            fail_msg("'%s' is as good as '%s', and simpler", c->words, b->words);
    }
    assert_true(b->seconds <= 1.03 * least_of(&a->found));
    drop(a);
}

static void test_wanted(void **state)
{
    (void)state;
    assert_true(meg_search_wanted("", 2));
    assert_true(meg_search_wanted("stages=2", 2));
    assert_false(meg_search_wanted("goal=given", 2));
    assert_false(meg_search_wanted("batch=3 goal=given stages=2", 2));
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    question q = {"vgg11",
                  "image=3x32x32 width=8 hidden=64 classes=10",
                  "batch=8 momentum=0.9",
                  NODE,
                  4,
                  0,
                  MEG_GOAL_TIME};
    answer *a = asked(&q);
    int64_t most = best(a)->bytes;
    drop(a);
    q.memory = most * 3 / 5;
    a = asked(&q);
    assert_true(best(a)->bytes <= q.memory);
    bool told = false; /* the first choice is in the list, with what it lacks */
    for (int i = 0; i < a->found.count; i++)
        told = told ||
               (a->found.list[i].verdict == MEG_TOO_LARGE && a->found.list[i].bytes > q.memory);
    assert_true(told);
    drop(a);
    q.memory = 4096; /* fits nowhere: the nearest comes first */
    a = asked(&q);
    assert_int_equal(a->status, MEG_OK);
    assert_false(a->found.fits);
    assert_int_equal(a->found.list[0].verdict, MEG_TOO_LARGE);
    for (int i = 1; i < a->found.count; i++)
        if (a->found.list[i].verdict == MEG_TOO_LARGE)
            assert_true(a->found.list[i].bytes >= a->found.list[0].bytes);
    drop(a);
    q.memory = 0;
    q.goal = MEG_GOAL_MEMORY;
    a = asked(&q);
    assert_true(best(a)->bytes < most);
    drop(a);
}

/* Batch norm over the whole batch forbids micro-batches. */
static void test_norm(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){"resnet-cifar", "depth=8 width=4", "batch=8", NODE, 2, 0, MEG_GOAL_TIME});
    for (int i = 0; i < a->found.count; i++)
        if (a->found.list[i].verdict <= MEG_SLOWER && strstr(a->found.list[i].words, "micro="))
            fail_msg("%s splits the batch that is normalised", a->found.list[i].words);
    bool told = false; /* what norm= would give is said, not done */
    for (int i = 0; i < a->found.count; i++)
        told = told || (a->found.list[i].verdict == MEG_ILLEGAL &&
                        strstr(a->found.list[i].why, "norm=4 would give"));
    assert_true(told);
    drop(a);
}

/* Also with words that were given, of batches that ranks do not divide, and of many ranks. */
static void test_norm_given(void **state)
{
    static const struct {
        const char *words, *norm, *pipeline;
        int ranks;
    } cases[] = {
        {"batch=8 stages=2", "norm=4 would give", "schedule=1f1b micro=2", 2},
        {"batch=8 stages=2 schedule=gpipe", "norm=4 would give", "micro=2", 4},
        {"batch=30", "norm=6 would give", "stages=4 schedule=1f1b micro=5", 4},
        {"batch=64", "would give", "schedule=1f1b micro=", 32},
        {"batch=8 stages=1", NULL, NULL, 2},
        {"batch=8 norm=8", NULL, NULL, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answer *a = asked_for(&(question){"resnet-cifar", "depth=8 width=4", cases[i].words, NODE,
                                          cases[i].ranks, 0, MEG_GOAL_TIME},
                              meg_search_work(32));
        const meg_candidate *told = NULL;
        for (int k = 0; k < a->found.count; k++)
            if (strstr(a->found.list[k].why, "would give")) told = &a->found.list[k];
        if (!told != !cases[i].norm)
            fail_msg("%s: %s", cases[i].words, told ? told->why : "not told");
        if (told && (!strstr(told->why, cases[i].norm) || !strstr(told->words, cases[i].pipeline)))
            fail_msg("%s: %s: %s", cases[i].words, told->words, told->why);
        drop(a);
    }
}

/* On links this slow one rank is quicker than two. */
static void test_fewer(void **state)
{
    (void)state;
    question q = {"cnn", "width=4", "batch=8",    "nodes=2 ranks=1 cores=1 between=100ms,1MB/s",
                  2,     0,         MEG_GOAL_TIME};
    answer *a = asked(&q);
    assert_int_equal(a->found.fewer, 1);
    assert_true(a->found.fewer_seconds < best(a)->seconds);
    drop(a);
    q.machine = NODE;
    a = asked(&q);
    assert_int_equal(a->found.fewer, 0);
    drop(a);
    q.goal = MEG_GOAL_COST; /* two ranks are not twice as quick as one */
    a = asked(&q);
    assert_int_equal(a->found.fewer, 1);
    drop(a);
    q.words = "batch=32"; /* of many, too */
    q.ranks = 32;
    q.machine = "nodes=32 ranks=1 cores=1 between=100ms,1MB/s";
    a = asked_for(&q, meg_search_work(q.ranks));
    best(a);
    assert_int_equal(a->found.fewer, 1);
    drop(a);
}

static void test_impossible(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){"cnn", "width=4", "batch=8 stages=64", NODE, 2, 0, MEG_GOAL_TIME});
    assert_int_not_equal(a->status, MEG_OK);
    assert_true(strlen(a->error.message) > 10);
    drop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_best), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_drawn),          cmocka_unit_test(test_keeps_what_was_given),
        cmocka_unit_test(test_simple_wins),    cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_given),     cmocka_unit_test(test_fewer),
        cmocka_unit_test(test_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
