/* Corners of many ranks: what the usual networks and schedules pass by. Each case hung, crashed or
 * gave other numbers once.
 */
#include "ranks.h"

static const double same_double = 1e-10;

/* ---- networks ---- */

static int layer(meg_graph *g, const char *op, const char *name, const char *attrs, int x)
{
    return meg_graph_add(g, op, name, attrs, 1, (int[]){x});
}

/* `small` has no gradient, but is read beside a value that has one, in a later stage; each stage but
 * the first has a loss of its own.
 *
 *     x --+-- small -----------------+
 *         +-- a --+-- b --+-- c -----+-- both -- d -- head: loss
 *                 |       +-- side: loss
 */
static meg_graph *corners(void)
{
    meg_graph *g = meg_graph_create("corners");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 8, 8});
    int small = layer(g, "avgpool", "small", "kernel=2", x);
    int a = layer(g, "conv", "a", "filters=4 kernel=3 stride=2 pad=1", x);
    int b = layer(g, "batchnorm", "b", "", a);
    int flat = layer(g, "flatten", "side_flat", "", b);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "side", "units=5", flat), 0.3);
    int c = layer(g, "conv", "c", "filters=4 kernel=3 pad=1", b);
    int both = meg_graph_add(g, "concat", "both", "", 2, (int[]){c, small});
    int d = layer(g, "conv", "d", "filters=4 kernel=3 pad=1", both);
    flat = layer(g, "flatten", "head_flat", "", d);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", flat), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* ---- same numbers ---- */

typedef struct corner {
    const char *model, *options; /* NULL: the network above */
    const char *one, *more;      /* the plan of one rank, and what many add to it */
    int ranks, samples;
} corner;

static const corner cases[] = {
    /* messages of a rank to itself: long skips, indices of max-pooling; the receive comes first */
    {"unet", "image=1x32x32 width=4", "batch=4 norm=1",
     "stages=4 chunks=2 micro=2 schedule=interleaved", 2, 0},
    {"relaynet", "image=1x32x32 width=4", "batch=8 norm=2",
     "stages=4 chunks=2 micro=2 schedule=interleaved", 2, 0},
    /* one rank has the middle stage in both directions: its running statistics, its loss */
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=16 norm=2",
     "stages=3 micro=4 schedule=mast replicas=2", 6, 0},
    {NULL, NULL, "batch=8 norm=2", "stages=3 micro=4 schedule=mast level=layer assign=b,both", 3, 0},
    {NULL, NULL, "batch=8 norm=2",
     "stages=3 micro=2 schedule=mast level=layer assign=b,both replicas=2", 6, 0},
    /* a value without a gradient crosses */
    {NULL, NULL, "batch=8 norm=2", "stages=2 micro=2 level=layer assign=c", 2, 0},
    {NULL, NULL, "batch=8 norm=2", "stages=2 micro=2 level=layer assign=both schedule=zb_h1", 2, 0},
    /* ways of reducing */
    {NULL, NULL, "batch=8 norm=4", "replicas=2 allreduce=hierarchical", 2, 0},
    {NULL, NULL, "batch=8 norm=4", "replicas=2 allreduce=halving_doubling", 2, 0},
    {NULL, NULL, "batch=8", "replicas=3 allreduce=mpi", 3, 0},
    /* a partial last batch, one also that the schedule cannot have; then evaluation, with the running
     * statistics */
    {NULL, NULL, "batch=8 norm=1 micro=2",
     "stages=2 schedule=chimera level=layer assign=c replicas=2", 4, 12},
    {NULL, NULL, "batch=8 norm=1 micro=4",
     "stages=3 schedule=mast level=layer assign=b,both", 3, 9},
    {"cnn", "image=1x13x11 classes=7", "batch=12 norm=3 micro=2",
     "stages=2 replicas=2", 4, 18},
    {"cnn", "image=1x13x11 classes=7", "batch=12", "replicas=3", 3, 17},
};

static void test_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const corner *c = &cases[i];
        char words[256];
        snprintf(words, sizeof words, "%s %s", c->one, c->more);
        meg_graph *g = c->model ? network_zoo(c->model, c->options) : corners();
        ranks_case one = {.graph = g, .plan = c->one, .device = "ref64", .ranks = 1, .steps = 2},
                   all;
        one.samples = c->samples;
        one.eval = c->samples > 0;
        all = one;
        all.plan = words;
        all.ranks = c->ranks;
        network_result *a = ranks_run(&one), *b = ranks_run(&all);
        assert_true(network_difference(a, b, words) <= same_double);
        assert_true(a->correct == b->correct);
        network_free(a);
        network_free(b);
        meg_graph_destroy(g);
    }
}

/* ---- refused, with a reason ---- */

static void refuses(const char *words, int ranks, const char *says)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_graph *g = corners();
    meg_world world = {0, ranks};
    meg_status s = meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p);
    if (s == MEG_OK || !strstr(e.message, says)) fail_msg("%s: %s", words, e.message);
    meg_graph_destroy(g);
}

static void test_refuses(void **state)
{
    (void)state;
    refuses("batch=8 replicas=2 allreduce=rnig", 2, "known: ring");
    refuses("batch=8 norm=2 stages=2 micro=2 allreduce=mpi", 2, "use stages=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
