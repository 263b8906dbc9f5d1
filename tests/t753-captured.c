/* Operators that captured models need, in small networks, under plans of many ranks: replicas, stages,
 * micro-batches, partial batches and, where they may be cut, meshes give the losses, gradients and weights of one
 * rank in double. What cannot be cut is refused by a sentence.
 */
#include "ranks.h"

static int layer(meg_graph *g, const char *op, const char *name, const char *attrs, int x)
{
    return meg_graph_add(g, op, name, attrs, 1, (int[]){x});
}

static meg_graph *finish(meg_graph *g, int x)
{
    int flat = layer(g, "flatten", "flat", "", x);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", flat), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* Two layers, the first in both directions, over six steps. */
static meg_graph *recurrent(const char *op, int gates)
{
    char words[64];
    meg_graph *g = meg_graph_create(op);
    int x = meg_graph_input(g, "x", 3, (int64_t[]){1, 3, 6}), side[2];
    for (int i = 0; i < 2; i++) {
        snprintf(words, sizeof words, "filters=%d kernel=1", gates * 4);
        int in = layer(g, "conv", i ? "back.in" : "there.in", words, x);
        snprintf(words, sizeof words, "units=4 reverse=%d", i);
        side[i] = layer(g, op, i ? "back.cell" : "there.cell", words, in);
    }
    x = meg_graph_add(g, "concat", "both", "", 2, side);
    snprintf(words, sizeof words, "filters=%d kernel=1", gates * 3);
    x = layer(g, "conv", "second.in", words, x);
    return finish(g, layer(g, op, "second.cell", "units=3 bias=0", x));
}

static meg_graph *lstm(void)
{
    return recurrent("lstm", 4);
}

static meg_graph *gru(void)
{
    return recurrent("gru", 3);
}

/* A table is lifted, entries of it are taken and added to all samples; the image is rolled. */
static meg_graph *table(void)
{
    meg_graph *g = meg_graph_create("table");
    meg_weight_spec spec = {.kind = MEG_PARAMETER,
                            .shape = meg_box_of(1, 1, 1, 7, 4),
                            .rank = 2,
                            .dims = {7, 4},
                            .start = MEG_NORMAL,
                            .bound = 1};
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 6, 4});
    x = layer(g, "conv", "a", "filters=4 kernel=3 pad=1", x);
    x = layer(g, "roll", "roll", "axes=2x3 shift=-2x1", x);
    int rows = meg_graph_parameter(g, "table", &spec);
    rows = layer(g, "take", "take", "axis=1 count=6", layer(g, "lift", "lift", "dims=7x4", rows));
    rows = layer(g, "reshape", "wide", "dims=0x1x6x4", rows);
    x = meg_graph_add(g, "add", "sum", "", 2, (int[]){x, rows});
    x = layer(g, "pad", "ring", "pad=1 mode=wrap", x);
    return finish(g, layer(g, "conv", "b", "filters=3 kernel=3", layer(g, "tanh", "c", "", x)));
}

/* The weight of a convolution and of a dense layer, normalised. */
static meg_graph *normed(void)
{
    meg_graph *g = meg_graph_create("normed");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 6, 4}), in[2];
    in[0] = layer(g, "conv", "a", "filters=4 kernel=3 pad=1 bias=0", x);
    in[1] = meg_graph_find_value(g, "a.weight");
    x = meg_graph_add(g, "weightnorm", "a.norm", "shape=4x3x3x3", 2, in);
    x = layer(g, "flatten", "rows", "", layer(g, "tanh", "b", "", x));
    in[0] = layer(g, "dense", "c", "units=7 bias=0", x);
    in[1] = meg_graph_find_value(g, "c.weight");
    x = meg_graph_add(g, "weightnorm", "c.norm", "shape=7x96", 2, in);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", x), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* Weights divided by their largest singular values, of all three sorts of layers. */
static meg_graph *spectral(void)
{
    meg_graph *g = meg_graph_create("spectral");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 3, 6, 4}), in[2];
    in[0] = layer(g, "conv", "a", "filters=4 kernel=3 pad=1 bias=0", x);
    in[1] = meg_graph_find_value(g, "a.weight");
    x = meg_graph_add(g, "spectralnorm", "a.norm", "shape=4x3x3x3", 2, in);
    in[0] = layer(g, "conv_transpose", "t", "filters=2 kernel=3 pad=1 bias=0",
                  layer(g, "tanh", "b", "", x));
    in[1] = meg_graph_find_value(g, "t.weight");
    x = meg_graph_add(g, "spectralnorm", "t.norm", "shape=4x2x3x3 dim=1 iterations=2", 2, in);
    in[0] = layer(g, "dense", "c", "units=7 bias=0", layer(g, "flatten", "rows", "", x));
    in[1] = meg_graph_find_value(g, "c.weight");
    x = meg_graph_add(g, "spectralnorm", "c.norm", "shape=7x48", 2, in);
    meg_graph_add_loss(g, "softmax_xent", "", layer(g, "dense", "head", "units=5", x), 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

typedef struct network_own {
    const char *name;
    meg_graph *(*make)(void);
    const char *stages; /* where the second begins */
    const char *mesh;   /* one that cuts it; NULL: none does */
} network_own;

static const network_own own[] = {{"lstm", lstm, "second.in", NULL},
                                  {"gru", gru, "back.cell", NULL},
                                  {"table", table, "ring", "mesh=h2"},
                                  {"normed", normed, "c", "mesh=h2"},
                                  {"spectral", spectral, "t", "mesh=h2"}};

typedef struct
    way { /* micro-batches of one rank and of all, for what is evaluated is one of them */
    int micro, ranks, samples;
} way;

static void same(const network_own *n, const char *more, way w)
{
    char words[256];
    meg_graph *g = n->make();
    char few[64];
    snprintf(few, sizeof few, "batch=4 micro=%d", w.samples ? w.micro : 1);
    ranks_case one = {.graph = g, .plan = few, .device = "ref64", .ranks = 1, .steps = 2};
    one.samples = w.samples;
    one.eval = w.samples > 0;
    ranks_case all = one;
    snprintf(words, sizeof words, "batch=4 micro=%d %s", w.micro, more);
    all.plan = words;
    all.ranks = w.ranks;
    if (!ranks_agree(&one, &all, words)) fail_msg("%s: one rank and %d differ", n->name, w.ranks);
    meg_graph_destroy(g);
}

static void plans_agree(void **state)
{
    char words[128];
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        same(&own[i], "", (way){4, 1, 0});
        same(&own[i], "recompute=segments", (way){2, 1, 0});
        same(&own[i], "replicas=2", (way){1, 2, 7});
        same(&own[i], "replicas=4 zero=1", (way){1, 4, 0});
        snprintf(words, sizeof words, "stages=2 level=layer assign=%s", own[i].stages);
        same(&own[i], words, (way){4, 2, 7});
        snprintf(words, sizeof words, "stages=2 level=layer schedule=chimera replicas=2 assign=%s",
                 own[i].stages);
        same(&own[i], words, (way){2, 4, 0});
        if (own[i].mesh) same(&own[i], own[i].mesh, (way){1, 2, 0});
    }
}

/* States that go on before each step: once, whoever holds them, also where a rank has no samples. */
static void states_first(void **state)
{
    const network_own *n = &own[4];
    (void)state;
    same(n, "mesh=c2", (way){1, 2, 0});
    same(n, "mesh=c2 channels=filter", (way){2, 2, 0});
    same(n, "mesh=n2 replicas=2", (way){1, 4, 0});
    same(n, "replicas=3", (way){1, 3, 7});
    same(n, "replicas=4", (way){1, 4, 5});
    same(n, "replicas=4 zero=1", (way){1, 4, 5});
    same(n, "replicas=4 zero=3", (way){1, 4, 8});
    same(n, "replicas=4 zero=3", (way){1, 4, 5}); /* one sample in the last batch */
    same(n, "replicas=4", (way){1, 4, 9});
    same(n, "mesh=2x2 feed=reader", (way){2, 4, 0});
    same(n, "stages=2 level=layer schedule=mast assign=t", (way){4, 2, 0});
    same(n, "stages=2 level=layer schedule=mast assign=t zero=3 replicas=2", (way){2, 4, 0});
}

/* What two nodes would go on with is refused. */
static void shared_states(void **state)
{
    (void)state;
    meg_error e;
    meg_plan *p = NULL;
    meg_device *d = NULL;
    meg_graph *g = meg_graph_create("twice");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 4}), in[4];
    in[0] = layer(g, "dense", "a", "units=4 bias=0", x);
    in[1] = meg_graph_find_value(g, "a.weight");
    in[0] = meg_graph_add(g, "spectralnorm", "first", "shape=4x4", 2, in);
    in[2] = meg_graph_find_value(g, "first.weight_u");
    in[3] = meg_graph_find_value(g, "first.weight_v");
    x = meg_graph_add(g, "spectralnorm", "second", "shape=4x4", 4, in);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    assert_int_equal(meg_device_open(&e, "ref64", 1, &d), MEG_OK);
    meg_profile profile = meg_profile_of(d);
    assert_int_equal(meg_plan_make_for(g, &e, &profile, &(meg_world){0, 1}, "batch=4", 0, &p),
                     MEG_EUNSUPPORTED);
    if (!strstr(e.message, "a spectralnorm of its own")) fail_msg("%s", e.message);
    meg_device_close(d);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_agree),
                                       cmocka_unit_test(states_first),
                                       cmocka_unit_test(shared_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
