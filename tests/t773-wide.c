/* wide=: one exchange of halos for several layers. The answer is that of one rank, fewer messages are
 * sent, and halos that a rank makes itself cost it no more than their pixels. Flow is checked against all
 * subsets of small networks.
 */
#include "plan/layout/mincut.h"
#include "plan/program/walk.h"
#include "ranks.h"

typedef struct wide_case {
    const char *model, *options, *plan;
    int ranks, wide;
    double fewer; /* messages, of those without */
} wide_case;

static const wide_case cases[] = {
    {"cnn", "image=1x29x26 classes=7", "batch=2 mesh=2x1", 2, 2, 0.7},
    {"resnet-cifar", "depth=14 image=3x32x32 classes=5 width=4", "batch=2 mesh=2x1", 2, 2, 0.6},
    {"resnet-cifar", "depth=29 version=2 image=3x32x32 classes=5 width=4", "batch=2 mesh=2x2", 4, 3,
     0.5},
    {"unet", "image=1x64x48 classes=3 width=2 bn=1", "batch=2 mesh=1x2", 2, 4, 0.5},
    {"amoebanet-d", "image=3x96x64 classes=5 layers=3 filters=8", "batch=2 mesh=2x1", 2, 4, 0.7},
    {"unet3d", "image=1x16x16x16 classes=3 width=2", "batch=2 mesh=2x2x1", 4, 2, 0.8},
    {"resnet-cifar", "depth=14 image=3x32x32 classes=5 width=4",
     "batch=4 norm=2 micro=2 stages=2 mesh=2x1 replicas=2", 8, 2, 0.75},
    /* cut channels and sums over them are exchanged: what is between them may grow */
    {"resnet-cifar", "depth=14 image=3x20x17 classes=5 width=4", "batch=2 mesh=c2h2", 4, 3, 1.0},
    {"cnn", "image=1x29x26 classes=7", "batch=2 mesh=c2h2 channels=channel", 4, 3, 1.0},
    {"unet", "image=1x32x48 classes=3 width=2 bn=1", "batch=2 mesh=c2w2 channels=filter", 4, 4,
     1.0},
};

static meg_messages messages(meg_graph *g, const char *words, int ranks)
{
    meg_error e;
    meg_plan *p = NULL;
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &(meg_world){0, ranks}, words, 0, &p))
        fail_msg("%s", e.message);
    meg_messages m = meg_entry_messages(&p->entry[MEG_ENTRY_TRAIN]);
    meg_plan_destroy(p);
    return m;
}

static void test_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wide_case *c = &cases[i];
        char one[64], plan[160];
        meg_graph *g = network_zoo(c->model, c->options);
        const char *norm = strstr(c->plan, "norm=");
        snprintf(one, sizeof one, "batch=%d %.6s", atoi(c->plan + 6), norm ? norm : "");
        snprintf(plan, sizeof plan, "%s wide=%d", c->plan, c->wide);
        ranks_case judge = {.graph = g,
                            .plan = one,
                            .device = "ref64",
                            .ranks = 1,
                            .steps = 2,
                            .rate = 1e-3},
                   many = judge;
        many.plan = plan;
        many.ranks = c->ranks;
        bool good = ranks_agree(&judge, &many, plan);
        meg_messages narrow = messages(g, c->plan, c->ranks), wide = messages(g, plan, c->ranks);
        print_message("%s %s: %lld messages instead of %lld\n", c->model, plan,
                      (long long)wide.sent, (long long)narrow.sent);
        meg_graph_destroy(g);
        if (!good) fail_msg("%s %s: not the answer of one rank", c->model, plan);
        assert_true((double)wide.sent <= c->fewer * (double)narrow.sent);
        assert_int_equal(wide.sums, narrow.sums);
    }
}

/* Six convolutions in a row: every halo is read by one, so the exchanges can be counted by hand. The
 * image's own halo is read from the data. */
static void test_chain(void **state)
{
    static const int exchanges[] = {0, 5, 2, 1, 1, 0, 0};
    (void)state;
    meg_graph *g = meg_graph_create("chain");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 1, 40, 8});
    for (int i = 0; i < 6; i++) {
        char name[8];
        snprintf(name, sizeof name, "c%d", i);
        x = meg_graph_add(g, "conv", name, "filters=2 kernel=3 pad=1", 1, &x);
    }
    x = meg_graph_add(g, "gap", "pool", "", 1, &x);
    x = meg_graph_add(g, "flatten", "flat", "", 1, &x);
    x = meg_graph_add(g, "dense", "fc", "units=3", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    for (int wide = 1; wide <= 6; wide++) {
        char plan[64];
        snprintf(plan, sizeof plan, "batch=2 mesh=2x1 wide=%d", wide);
        meg_messages m = messages(g, plan, 2);
        assert_int_equal(m.sent, 2 * exchanges[wide]); /* there and back */
    }
    meg_graph_destroy(g);
}

static void test_refused(void **state)
{
    (void)state;
    meg_error e;
    meg_plan *p = NULL;
    meg_graph *g = network_zoo("cnn", "image=1x13x11 classes=7");
    assert_int_not_equal(meg_plan_make_for(g, &e, &meg_profile_plain, &(meg_world){0, 2},
                                           "batch=4 replicas=2 wide=2", 0, &p),
                         MEG_OK);
    assert_non_null(strstr(e.message, "no pixels are cut"));
    meg_graph_destroy(g);
}

/* ---- the fewest places ---- */

enum {
    PLACES = 7
};

static bool leads(const int way[PLACES][PLACES], int without, int at, int to, int *seen)
{
    if (at == to) return true;
    *seen |= 1 << at;
    for (int i = 0; i < PLACES; i++)
        if (way[at][i] && !(*seen >> i & 1) && !(without >> i & 1) &&
            leads(way, without, i, to, seen))
            return true;
    return false;
}

static int ones(int set)
{
    int count = 0;
    for (; set; set &= set - 1)
        count++;
    return count;
}

/* A place that is taken out is an arc of room 1 from its front to its back. */
static void test_flow(void **state)
{
    (void)state;
    unsigned seed = 7;
    for (int round = 0; round < 300; round++) {
        int way[PLACES][PLACES] = {{0}}, best = PLACES, seen;
        meg_pool *pool = meg_pool_new();
        meg_mincut f = meg_mincut_new(pool, 2 * PLACES, PLACES * PLACES + PLACES);
        bool behind[2 * PLACES];
        for (int i = 0; i < PLACES; i++)
            for (int k = i + 1; k < PLACES; k++) {
                seed = seed * 1103515245 + 12345;
                way[i][k] = (seed >> 16) % 3 == 0 && !(i == 0 && k == PLACES - 1);
                if (way[i][k]) meg_mincut_arc(&f, 2 * i + 1, 2 * k, MEG_MINCUT_ANY);
            }
        for (int i = 1; i < PLACES - 1; i++)
            meg_mincut_arc(&f, 2 * i, 2 * i + 1, 1);
        for (int set = 0; set < 1 << PLACES; set += 2) {
            if (set >> (PLACES - 1)) break;
            seen = 0;
            if (!leads(way, set, 0, PLACES - 1, &seen) && ones(set) < best) best = ones(set);
        }
        meg_mincut_cut(&f, 1, 2 * (PLACES - 1), behind);
        int cut = 0;
        for (int i = 1; i < PLACES - 1; i++)
            if (behind[2 * i + 1] && !behind[2 * i]) cut |= 1 << i;
        assert_int_equal(ones(cut), best);
        seen = 0;
        assert_false(leads(way, cut, 0, PLACES - 1, &seen));
        meg_pool_free(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_flow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
