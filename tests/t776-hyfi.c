/* The plans that have names, and what they are made of: which rank has which stage in which
 * direction, and that each gives the answer of one rank, in double, with predicted bytes met on every
 * rank (tests/ranks.h).
 *
 *     t776-hyfi [word of the case]
 */
#include "plan/distribute/distribute.h"
#include "plan/events/events.h"
#include "plan/named.h"
#include "ranks.h"
#include "smooth.h"

static const char *only;

/* ---- who sits where ---- */

typedef struct shape_case {
    const char *name;
    const char *words; /* besides */
    int ranks;
    const char *there, *back; /* the stage of each rank of a replica; '-': none */
} shape_case;

static const shape_case shapes[] = {
    {"hyfi-5", "batch=4", 5, "00001", ""},
    {"hyfi-5", "batch=4 replicas=2", 10, "00001", ""},
    {"hyfi-8", "batch=4 norm=2", 8, "00001234", "43210000"},
    {"hyfi-8", "batch=4 norm=2", 16, "00001234", "43210000"},
    {"hyfi-9", "batch=4", 9, "000011112", ""},
    {"hyfi-12", "batch=4 norm=2", 12, "000011112345", "543211110000"},
    /* what was said besides counts more */
    {"hyfi-12", "batch=8 norm=2 schedule=chimera micro=4", 12, "000011112345", "543211110000"},
    {"hyfi-8", "batch=4 norm=2 schedule=1f1b", 8, "00001234", ""},
    {"hyfi-5", "batch=4 mesh=1x2,1", 3, "001", ""},
    {"hyfi-5", "batch=4 norm=2 stages=3 mesh=1,2x1,1 schedule=mast micro=2", 4, "0112", "2110"},
    {"hyfi-5", "batch=4 norm=2 stages=3 mesh=2x1,1,1 schedule=mast micro=2", 4, "0012", "2100"},
    /* a stage that would meet a part of itself shares a seat with its opposite, of the larger size */
    {"hyfi-5", "batch=4 norm=2 schedule=mast micro=2", 8, "00001---", "1---0000"},
};

static char stage_at(const meg_entry *e, int direction)
{
    char found = '-';
    for (int i = 0; i < e->stations; i++) {
        if (e->station[i].direction != direction) continue;
        if (found != '-') fail_msg("two stages in direction %d", direction);
        found = (char)('0' + e->station[i].stage);
    }
    return found;
}

/* Tiles are numbered by rank: the first rank of a stage has the first. Formats are chosen for the last
 * of the last replica, in either direction. */
static void check_tiles(const meg_plan *p, const char *row, int direction)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    int rank = p->world.rank, each = (int)strlen(row);
    for (int i = 0; i < e->stations; i++) {
        const meg_station *t = &e->station[i];
        if (t->direction != direction) continue;
        int first = (int)(strchr(row, '0' + t->stage) - row);
        int last = (int)(strrchr(row, '0' + t->stage) - row);
        int position = rank / each * e->segment[t->stage].size + rank % each - first;
        assert_int_equal(t->position[t->stage], position);
        int model = meg_segment_model(e, t->stage, position);
        assert_int_equal(meg_entry_mesh(e, direction, t->stage)->rank[model],
                         p->world.ranks - each + last);
    }
}

static void check_rank(const meg_plan *p, const shape_case *c)
{
    const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
    int rank = p->world.rank, each = (int)strlen(c->there), at = rank % each;
    char there = stage_at(t, 0), back = stage_at(t, 1), want = c->back[0] ? c->back[at] : '-';
    if (there != c->there[at] || back != want)
        fail_msg("%s %s: rank %d has %c and %c, not %c and %c", c->name, c->words, rank, there,
                 back, c->there[at], want);
    check_tiles(p, c->there, 0);
    check_tiles(p, c->back, 1);
}

/* Every rank's place, and that the job's messages match and nobody waits for ever. */
static void check_shape(const meg_graph *g, const shape_case *c)
{
    meg_error e;
    meg_pool *pool = meg_pool_new();
    meg_plan *p[RANKS_MOST] = {NULL};
    meg_events list[RANKS_MOST] = {{0}};
    const char *words = meg_named_plan_join(meg_named_plan_find(c->name), pool, c->words);
    for (int r = 0; r < c->ranks; r++) {
        meg_world world = {r, c->ranks};
        if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p[r]) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        check_rank(p[r], c);
    }
    for (int entry = 0; entry < MEG_ENTRIES; entry++) {
        if (p[0]->entry[entry].batch == 0) continue;
        for (int r = 0; r < c->ranks; r++)
            meg_events_of(p[r], entry, &list[r]);
        if (meg_job_check(&e, p[0]->entry[entry].graph, c->ranks, list) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        for (int r = 0; r < c->ranks; r++)
            meg_events_clear(&list[r]);
    }
    for (int r = 0; r < c->ranks; r++)
        meg_plan_destroy(p[r]);
    meg_pool_free(pool);
}

static void test_shapes(void **state)
{
    (void)state;
    meg_graph *g = network_zoo("resnet-cifar",
                               "depth=20 version=2 image=3x16x16 classes=5 width=2");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(g, &shapes[i]);
    meg_graph_destroy(g);
}

/* ---- names ---- */

static void test_names(void **state)
{
    (void)state;
    char names[64];
    meg_pool *pool = meg_pool_new();
    const meg_named_plan *p = meg_named_plan_find("hyfi-8");
    meg_named_plan_names(names, sizeof names);
    assert_string_equal(names, "hyfi-5 hyfi-8 hyfi-9 hyfi-12");
    assert_null(meg_named_plan_find("hyfi-7"));
    for (int i = 0; meg_named_plan_at(i); i++)
        assert_int_equal(meg_named_plan_at(i)->ranks, atoi(meg_named_plan_at(i)->name + 5));
    const char *all = meg_named_plan_join(p, pool, "micro=4 batch=8");
    assert_non_null(strstr(all, "micro=4"));
    assert_null(strstr(all, "micro=2"));
    assert_non_null(strstr(all, "mesh=2x2,1,1,1,1"));
    assert_non_null(strstr(all, "schedule=master"));
    meg_pool_free(pool);
}

/* ---- the answer of one rank ---- */

typedef struct hyfi_case {
    const char *name, *words;
    int micro, ranks;
    int64_t samples;
} hyfi_case;

static const hyfi_case cases[] = {
    {"hyfi-5", "", 2, 5, 0},
    {"hyfi-5", "replicas=2", 2, 10, 0},
    {"hyfi-8", "", 2, 8, 0},
    {"hyfi-8", "", 2, 16, 0},
    {"hyfi-8", "", 4, 8, 10}, /* and two samples more, which go one way only */
    {"hyfi-8", "schedule=gpipe", 2, 8, 0},
    {"hyfi-9", "", 2, 9, 0},
    {"hyfi-12", "", 2, 12, 0},
    {"hyfi-12", "schedule=chimera", 4, 12, 0},
    {"hyfi-5", "schedule=mast", 2, 8, 0}, /* seats of four ranks; one stage leaves three of them */
};

typedef struct hyfi_model {
    const char *model, *options;
} hyfi_model;

static const hyfi_model models[] = {
    {"amoebanet-d", "image=3x64x64 classes=5 layers=3 filters=8"},
    {"resnet-cifar", "depth=20 version=2 image=3x18x20 classes=5 width=2"},
};

static void run_case(const meg_graph *g, const hyfi_model *m, const hyfi_case *c,
                     const char *device)
{
    char what[256];
    meg_pool *pool = meg_pool_new();
    const char *batch = meg_pool_text(pool, "batch=%d micro=%d norm=2", 2 * c->micro, c->micro);
    const char *given = meg_pool_text(pool, "%s %s", batch, c->words);
    ranks_case one = {.graph = g,
                      .plan = batch, /* micro: evaluation has as many samples as one of these */
                      .device = "ref64",
                      .ranks = 1,
                      .steps = 2,
                      .rate = 1e-3,
                      .samples = c->samples,
                      .eval = true},
               many = one;
    many.plan = meg_named_plan_join(meg_named_plan_find(c->name), pool, given);
    many.ranks = c->ranks;
    many.device = device;
    snprintf(what, sizeof what, "%s %s %s %s micro=%d, %d ranks", device, m->model, c->name,
             c->words, c->micro, c->ranks);
    if (!only || strstr(what, only)) assert_true(ranks_agree(&one, &many, what));
    meg_pool_free(pool);
}

/* More than a published shape: a tail, another schedule. */
static bool further(const hyfi_case *c)
{
    return c->samples || strstr(c->words, "schedule=");
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        meg_graph *g = network_zoo(models[i].model, models[i].options);
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            if (i > 0 || !further(&cases[k])) /* for time's sake */
                run_case(g, &models[i], &cases[k], "ref64");
        meg_graph_destroy(g);
    }
}

/* Formats of weights: all that share one must choose the same. */
static void test_cpu(void **state)
{
    (void)state;
    static const hyfi_model model = {"resnet-cifar",
                                     "depth=20 version=2 image=3x18x20 classes=5 width=8"};
    meg_graph *g = smooth_network(network_zoo(model.model, model.options));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (!further(&cases[k])) run_case(g, &model, &cases[k], "cpu");
    meg_graph_destroy(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_cpu),
    };
    only = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
