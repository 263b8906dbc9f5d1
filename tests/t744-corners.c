/* Corners of many ranks: what the usual networks and schedules pass by. Each case hung, crashed or
 * gave other numbers once.
 */
#include "ranks.h"

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

/* The weight of `a` is used once more where no gradient comes back (behind a maximum without one):
 * before `a`, or behind it. Who has only that use must follow the updates.
 *
 *     stem --+--------------- a -- b --+-- both -- d -- head: loss        off: behind b, or stem
 *            +-- off -- top -----------+
 */
static meg_graph *tied(bool before)
{
    static const char same[] = "filters=4 kernel=3 pad=1 bias=0";
    meg_graph *g = meg_graph_create("tied");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 6, 5}), off = -1;
    int stem = layer(g, "conv", "stem", same, x);
    if (before) off = layer(g, "conv", "off", same, stem);
    int shared = before ? meg_graph_find_value(g, "off.weight") : -1;
    int a = meg_graph_add(g, "conv", "a", same, before ? 2 : 1, (int[]){stem, shared});
    if (!before) shared = meg_graph_find_value(g, "a.weight");
    int b = layer(g, "tanh", "b", "", a);
    if (!before) off = meg_graph_add(g, "conv", "off", same, 2, (int[]){b, shared});
    int top = layer(g, "top", "top", "", off);
    int both = meg_graph_add(g, "concat", "both", "", 2, (int[]){b, top});
    int flat = layer(g, "flatten", "flat", "", layer(g, "conv", "d", same, both));
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", flat), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* As above, but the weight's other use is what a loss compares with. */
static meg_graph *target(void)
{
    meg_graph *g = meg_graph_create("target");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 7});
    int stem = layer(g, "tanh", "stem", "", x);
    int a = layer(g, "dense", "a", "units=7", stem);
    int b = layer(g, "tanh", "b", "", a);
    int w = meg_graph_find_value(g, "a.weight"), bias = meg_graph_find_value(g, "a.bias");
    int other = meg_graph_add(g, "dense", "other", "units=7", 3, (int[]){b, w, bias});
    meg_graph_add_loss(g, "mse", "", b, 1);
    int count = -1;
    for (int i = 0; i < g->nodes; i++)
        if (strcmp(g->node[i].op->name, "mse") == 0) count = g->node[i].in[2];
    int pull = meg_graph_add(g, "mse", "pull", "", 3, (int[]){b, other, count});
    g->loss[g->losses++] = (meg_loss){pull, 0.5};
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* A batch norm that is applied twice. */
static meg_graph *shared_states(void)
{
    meg_graph *g = meg_graph_create("shared");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 4, 3}), in[5];
    int a = layer(g, "batchnorm", "a", "", x);
    static const char *const weight[] = {"a.weight", "a.bias", "a.running_mean", "a.running_var"};
    in[0] = layer(g, "tanh", "b", "", a);
    for (int i = 0; i < 4; i++)
        in[1 + i] = meg_graph_find_value(g, weight[i]);
    int c = meg_graph_add(g, "batchnorm", "c", "", 5, in);
    int flat = layer(g, "flatten", "flat", "", c);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", flat), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* The weight behind a flatten has another reader, for whom it cannot become one over (c, h, w). */
static meg_graph *tied_flat(void)
{
    meg_graph *g = meg_graph_create("tied_flat");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 2, 3, 2});
    int stem = layer(g, "conv", "stem", "filters=2 kernel=3 pad=1", x);
    int a = layer(g, "dense", "a", "units=12 bias=0", layer(g, "flatten", "flat", "", stem));
    int b = layer(g, "tanh", "b", "", a), w = meg_graph_find_value(g, "a.weight");
    int c = meg_graph_add(g, "dense", "c", "units=12 bias=0", 2, (int[]){b, w});
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", c), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

static meg_graph *tied_before(void)
{
    return tied(true);
}

static meg_graph *tied_behind(void)
{
    return tied(false);
}

/* ---- same numbers ---- */

typedef struct network_own {
    const char *name;
    meg_graph *(*make)(void);
} network_own;

static const network_own own[] = {{"corners", corners},
                                  {"tied_before", tied_before},
                                  {"tied_behind", tied_behind},
                                  {"tied_flat", tied_flat},
                                  {"target", target}};

static meg_graph *make_network(const char *model, const char *options)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].name, model ? model : "corners") == 0) return own[i].make();
    return network_zoo(model, options);
}

typedef struct corner {
    const char *model, *options; /* NULL: corners; or another of the networks above */
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
    {NULL, NULL, "batch=8 norm=2", "stages=3 micro=4 schedule=mast level=layer assign=b,both", 3,
     0},
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
    {NULL, NULL, "batch=8 norm=1 micro=4", "stages=3 schedule=mast level=layer assign=b,both", 3,
     9},
    {"cnn", "image=1x13x11 classes=7", "batch=12 norm=3 micro=2", "stages=2 replicas=2", 4, 18},
    {"cnn", "image=1x13x11 classes=7", "batch=12", "replicas=3", 3, 17},
    /* a tied weight, one use of which has no gradient: in another stage, on the same rank, alone */
    {"tied_before", NULL, "batch=4", "stages=2 micro=2 level=layer assign=a", 2, 0},
    {"tied_behind", NULL, "batch=4", "stages=2 micro=2 level=layer assign=off", 2, 0},
    {"tied_behind", NULL, "batch=4", "stages=2 micro=2 level=layer assign=off schedule=zb_h1", 2,
     0},
    {"tied_before", NULL, "batch=4 micro=2", "stages=2 level=layer assign=a schedule=chimera", 2,
     7},
    {"tied_behind", NULL, "batch=4 micro=2",
     "stages=2 level=layer assign=off schedule=chimera replicas=2", 4, 7},
    {"tied_before", NULL, "batch=4",
     "stages=4 chunks=2 micro=2 schedule=interleaved level=layer assign=a,both,flat", 2, 0},
    {"tied_behind", NULL, "batch=4",
     "stages=4 chunks=2 micro=2 schedule=interleaved level=layer assign=a,off,flat", 2, 0},
    {"tied_flat", NULL, "batch=4", "stages=2 micro=2 level=layer assign=c", 2, 0},
    {"tied_flat", NULL, "batch=4", "mesh=h3", 3, 0},
    {"target", NULL, "batch=4", "stages=2 micro=2 level=layer assign=other", 2, 0},
};

static void same(const corner *c)
{
    char words[256];
    snprintf(words, sizeof words, "%s %s", c->one, c->more);
    meg_graph *g = make_network(c->model, c->options);
    ranks_case one = {.graph = g, .plan = c->one, .device = "ref64", .ranks = 1, .steps = 2}, all;
    one.samples = c->samples;
    one.eval = c->samples > 0;
    all = one;
    all.plan = words;
    all.ranks = c->ranks;
    if (!ranks_agree(&one, &all, words))
        fail_msg("%s, %d samples: one rank and %d differ", words, c->samples, c->ranks);
    meg_graph_destroy(g);
}

static void test_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        same(&cases[i]);
}

/* A partial last batch under every schedule: of 1, 2 and 7 micro-batches, where 4 are usual. */
static void test_tails(void **state)
{
    (void)state;
    static const char *const rows[] = {"serial", "gpipe",   "1f1b",
                                       "zb_h1",  "mast",    "master replications=2",
                                       "master", "chimera", "interleaved chunks=2"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int replicas = 1; replicas <= 2; replicas++)
            for (int tail = 1; tail < 8; tail += 3) {
                char more[160];
                bool many = strstr(rows[i], "chunks") != NULL;
                snprintf(more, sizeof more,
                         "stages=%d level=layer assign=%s schedule=%s replicas=%d", many ? 4 : 2,
                         many ? "b,c,d" : "c", rows[i], replicas);
                same(&(corner){NULL, NULL, "batch=8 norm=1 micro=4", more, 2 * replicas, 8 + tail});
            }
}

/* The device that spoils freed memory. A rank frees what it has sent to itself long before it takes
 * it in: it must not wait for that. */
static void test_spoils(void **state)
{
    (void)state;
    meg_graph *g = corners();
    ranks_case one = {.graph = g,
                      .plan = "batch=8 norm=2",
                      .device = "ref64",
                      .ranks = 1,
                      .steps = 1},
               all = one;
    all.plan = "batch=8 norm=2 stages=4 chunks=2 micro=4 schedule=interleaved level=layer "
               "assign=b,c,d";
    all.ranks = 2;
    all.device = "check";
    assert_true(ranks_agree(&one, &all, "check"));
    meg_graph_destroy(g);
}

/* ---- refused, with a reason ---- */

static void refuses(meg_graph *g, const char *words, int ranks, const char *says)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_world world = {0, ranks};
    meg_status s = meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p);
    if ((s == MEG_OK) == (says != NULL) || (says && !strstr(e.message, says)))
        fail_msg("%s: %s", words, e.message);
    meg_plan_destroy(p);
    meg_graph_destroy(g);
}

static void test_refuses(void **state)
{
    (void)state;
    refuses(corners(), "batch=8 replicas=2 allreduce=rnig", 2, "known: ring");
    refuses(corners(), "batch=8 norm=2 stages=2 micro=2 allreduce=mpi", 2, "use stages=1");
    refuses(shared_states(), "batch=8 norm=2", 1, NULL);
    refuses(shared_states(), "batch=8 norm=2 stages=2", 2, "a.running_mean");
    refuses(shared_states(), "batch=8 norm=2 replicas=2", 2, "a.running_mean");
    refuses(shared_states(), "batch=8 norm=2 micro=2", 1, "a.running_mean");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_tails),
                                       cmocka_unit_test(test_spoils),
                                       cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
