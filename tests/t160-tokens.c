/* Sequences: a small language model built by hand, whose output projection is its embedding, and a
 * net of all shape operators, through plan and engine. Judge: ref64 with one micro-batch, which in
 * turn is judged by finite differences of the whole net's loss.
 */
#include "compare.h"
#include "smooth.h"

static const double same_slope = 1e-6; /* truncation STEP^2, cancellation 1e-16 / STEP */
static const double STEP = 1e-5;

enum {
    VOCABULARY = 11,
    FEATURES = 12,
    TOKENS = 9
};

/* ---- graphs ---- */

typedef struct maker { /* names and builds the layers of one block */
    meg_graph *g;
    int block;
} maker;

static int layer(const maker *m, const char *op, const char *name, const char *attrs, int x)
{
    return meg_graph_add(m->g, op, meg_pool_text(m->g->pool, "h.%d.%s", m->block, name), attrs, 1,
                         &x);
}

/* Attention and a perceptron, each added to what it read. Biases start at 0 and ReLUs cut half. */
static int block(meg_graph *g, int number, int x)
{
    maker m = {g, number};
    int part[3];
    int qkv = layer(&m, "conv", "qkv", "filters=36 kernel=1", x);
    meg_graph_split(g, qkv, 1, 3, part);
    int y = meg_graph_add(g, "attention", meg_pool_text(g->pool, "h.%d.attention", number),
                          "heads=3 causal=1", 3, part);
    y = layer(&m, "conv", "proj", "filters=12 kernel=1", y);
    x = meg_graph_add(g, "add", meg_pool_text(g->pool, "h.%d.join", number), "", 2, (int[]){x, y});
    y = layer(&m, "conv", "up", "filters=48 kernel=1", x);
    y = layer(&m, "relu", "relu", "", y);
    y = layer(&m, "conv", "down", "filters=12 kernel=1", y);
    return meg_graph_add(g, "add", "", "", 2, (int[]){x, y});
}

static meg_graph *checked(meg_graph *g)
{
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

static meg_graph *language_model(void)
{
    meg_graph *g = meg_graph_create("gpt");
    int x = meg_graph_input_typed(g, "ids", MEG_I32, 2, (int64_t[]){1, TOKENS});
    x = meg_graph_add(g, "embedding", "wte", "vocabulary=11 features=12 deviation=0.5", 1, &x);
    x = meg_graph_add(g, "position", "wpe", "deviation=0.5", 1, &x);
    for (int i = 0; i < 2; i++)
        x = block(g, i, x);
    int tied = meg_graph_find_value(g, "wte.weight");
    x = meg_graph_add(g, "conv", "head", "filters=11 kernel=1 bias=0", 2, (int[]){x, tied});
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    return checked(g);
}

/* Every operator of shapes, and a product of two values. */
static meg_graph *shapes(void)
{
    meg_graph *g = meg_graph_create("shapes");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 7, 5});
    int part[2];
    x = meg_graph_add(g, "conv", "a", "filters=18 kernel=3 pad=1", 1, &x);
    x = meg_graph_add(g, "slice", "b", "axes=1x2 begin=1x0 end=17x-1", 1, &x);
    x = meg_graph_add(g, "pad", "c", "pad=1:0x2:1 mode=reflect", 1, &x);
    x = meg_graph_add(g, "pad", "d", "pad=0:1x-1:1x-1:1 value=0.5", 1, &x);
    x = meg_graph_add(g, "reshape", "e", "dims=0x0x-1", 1, &x);
    meg_graph_split(g, x, 2, 2, part);
    int t = meg_graph_add(g, "transpose", "f", "axes=0x2x1", 1, &part[0]);
    x = meg_graph_add(g, "matmul", "h", "", 2, (int[]){t, part[1]});
    x = meg_graph_add(g, "flatten", "i", "", 1, &x);
    x = meg_graph_add(g, "dense", "j", "units=5", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    return checked(g);
}

/* More tokens than the cpu's tiles hold: 300 queries, with or without a look ahead. */
static meg_graph *long_attention(const char *attrs)
{
    meg_graph *g = meg_graph_create("long");
    int part[3], x = meg_graph_input(g, "signal", 3, (int64_t[]){1, 5, 300});
    int qkv = meg_graph_add(g, "conv", "qkv", "filters=48 kernel=3 pad=1", 1, &x);
    meg_graph_split(g, qkv, 1, 3, part);
    x = meg_graph_add(g, "attention", "attention", attrs, 3, part);
    x = meg_graph_add(g, "conv", "proj", "filters=4 kernel=1", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    return checked(g);
}

/* ---- plans and devices ---- */

/* The same answer with micro-batches, everything kept, on the other devices and with threads. Frees
 * the graph. */
static void agree(meg_graph *g, const char *name)
{
    network_case judge = {g, "batch=4", "ref64", 1}, micro = {g, "batch=4 micro=2", "ref64", 1};
    network_case kept = {g, "batch=4 recompute=none", "ref64", 1};
    compare_cases(&judge, &micro, name);
    compare_cases(&judge, &kept, name);
    judge.graph = g = smooth_network(g);
    network_case cpu = {g, "batch=4", "cpu", 2}, one = {g, "batch=4", "cpu", 1};
    network_case check = {g, "batch=4", "check", 1};
    compare_cases(&judge, &check, name);
    compare_cases(&judge, &cpu, name);
    compare_cases(&judge, &one, name);
    meg_graph_destroy(g);
}

static void test_language_model(void **state)
{
    (void)state;
    agree(language_model(), "language model");
}

static void test_shapes(void **state)
{
    (void)state;
    agree(shapes(), "shapes");
}

static void test_long_attention(void **state)
{
    (void)state;
    static const char *const attrs[] = {"heads=2", "heads=2 causal=1"};
    for (int i = 0; i < 2; i++) {
        meg_graph *g = long_attention(attrs[i]);
        network_case judge = {g, "batch=2", "ref64", 1}, cpu = {g, "batch=2", "cpu", 2};
        compare_cases(&judge, &cpu, attrs[i]);
        meg_graph_destroy(g);
    }
}

/* ---- finite differences of the whole net ---- */

typedef struct net {
    meg_device *device;
    meg_plan *plan;
    meg_engine *engine;
    meg_feed feed;
} net;

static net net_open(const meg_graph *g)
{
    meg_error e;
    net t = {0};
    if (meg_device_open(&e, "ref64", 1, &t.device) != MEG_OK) fail_msg("%s", e.message);
    meg_profile profile = meg_profile_of(t.device);
    if (meg_plan_make(g, &e, &profile, "batch=3 keep_grads=1", 0, &t.plan) != MEG_OK ||
        meg_engine_new(t.plan, t.device, NULL, &e, 0, &t.engine) != MEG_OK)
        fail_msg("%s", e.message);
    network_feed(g, 3, &t.feed);
    return t;
}

static void net_close(net *t)
{
    network_unfeed(&t->feed);
    meg_engine_free(t->engine);
    meg_plan_destroy(t->plan);
    meg_device_close(t->device);
}

typedef struct nudge { /* adds `by` to one element of a value */
    const meg_value *value;
    int64_t element;
    double by, *whole;
} nudge;

static void put_nudged(void *context, const meg_box *box, void *data)
{
    const nudge *u = context;
    int64_t first = meg_box_at(&u->value->shape, box->lo);
    for (int64_t i = 0; i < meg_box_size(box); i++)
        ((double *)data)[i] = u->whole[first + i] + (first + i == u->element ? u->by : 0);
}

/* The loss with the weights of the seed, one of them nudged. */
static double loss_of(net *t, nudge *u)
{
    meg_error e;
    meg_outcome o;
    network_sink sink = {u->value, u->whole, MEG_F64};
    meg_engine_start(t->engine, 5);
    assert_true(meg_engine_get(t->engine, u->value->id, MEG_ROLE_VALUE, 0, network_take, &sink));
    assert_true(meg_engine_put(t->engine, u->value->id, MEG_ROLE_VALUE, 0, put_nudged, u));
    if (meg_engine_step(t->engine, &e, MEG_ENTRY_TRAIN, &t->feed, &o) != MEG_OK)
        fail_msg("%s", e.message);
    return o.loss;
}

/* Some elements of one parameter. */
static void check_slopes(net *t, const meg_value *v)
{
    enum {
        PROBES = 6
    };
    int64_t count = meg_box_size(&v->shape);
    nudge u = {v, 0, 0, calloc((size_t)count, sizeof(double))};
    double *gradient = calloc((size_t)count, sizeof *gradient), error = 0, norm = 0;
    network_sink sink = {v, gradient, MEG_F64};
    loss_of(t, &u);
    assert_true(meg_engine_get(t->engine, v->id, MEG_ROLE_GRADIENT, 0, network_take, &sink));
    for (int64_t i = 0; i < PROBES; i++) {
        u.element = meg_random_permuted((meg_stream){9, 0, meg_hash(v->name)}, count, i % count);
        u.by = STEP;
        double up = loss_of(t, &u);
        u.by = -STEP;
        double slope = (up - loss_of(t, &u)) / (2 * STEP), g = gradient[u.element];
        error += (slope - g) * (slope - g);
        norm += slope * slope;
    }
    if (!(sqrt(error) <= same_slope * fmax(sqrt(norm), 1e-3)))
        fail_msg("%s: gradient is off by %.3g, its norm is %.3g", v->name, sqrt(error), sqrt(norm));
    free(u.whole);
    free(gradient);
}

static void slopes(meg_graph *g)
{
    net t = net_open(g);
    const meg_graph *fused = meg_engine_graph(t.engine);
    for (int i = 0; i < fused->values; i++)
        if (fused->value[i].kind == MEG_PARAMETER) check_slopes(&t, &fused->value[i]);
    net_close(&t);
    meg_graph_destroy(g);
}

static void test_slopes(void **state)
{
    (void)state;
    slopes(language_model());
    slopes(shapes());
}

/* ---- ids ---- */

/* An id that is none gives no features; one without a row is an error, not a wrong number. */
static void test_ids(void **state)
{
    (void)state;
    meg_graph *g = language_model();
    net t = net_open(g);
    meg_error e;
    meg_outcome o;
    float *ids = network_fed(&t.feed);
    meg_engine_start(t.engine, 5);
    ids[4] = -1;
    assert_int_equal(meg_engine_step(t.engine, &e, MEG_ENTRY_TRAIN, &t.feed, &o), MEG_OK);
    ids[4] = VOCABULARY;
    assert_int_equal(meg_engine_step(t.engine, &e, MEG_ENTRY_TRAIN, &t.feed, &o), MEG_ENAN);
    net_close(&t);
    meg_graph_destroy(g);
}

/* ---- errors ---- */

typedef struct mistake {
    const char *op, *attrs, *says;
} mistake;

static const mistake mistakes[] = {
    {"slice", "axes=0 end=1", "node: axis 0 is the batch"},
    {"slice", "axes=4 end=1", "node: 'x' has no axis 4: slice takes axes 1 to 3 here"},
    {"slice", "axes=2 begin=5 end=5", "is empty: it has the indices 0 to 6"},
    {"slice", "begin=0x1x2 end=1x2", "node: a list of 2 numbers for 3 axes"},
    {"pad", "pad=-7:0", "node: pad -7:0 leaves nothing of axis 2, which has 7"},
    {"pad", "pad=7 mode=reflect", "a mirror image has at most one less"},
    {"pad", "pad=1x1x1x1", "node: axis 0 is the batch, which cannot be padded"},
    {"transpose", "axes=1x0x2x3", "node: axis 0 is the batch and must stay first"},
    {"transpose", "axes=0x1x1x2", "node: axis 1 is named twice"},
    {"transpose", "axes=0x1", "node: transpose names 2 axes, but 'x' has 4"},
    {"reshape", "dims=2x-1", "node: reshape keeps the batch"},
    {"reshape", "dims=0x-1x-1", "node: reshape can find only one axis"},
    {"reshape", "dims=0x4x-1", "node: a sample of 'x' has 105 numbers"},
    {"embedding", "vocabulary=3 features=2", "node: ids 'x' are f32, but must be i32"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        meg_graph *g = meg_graph_create("mistake");
        int x = meg_graph_input(g, "x", 4, (int64_t[]){2, 3, 7, 5});
        assert_int_equal(meg_graph_add(g, m->op, "node", m->attrs, 1, &x), -1);
        if (!strstr(g->error.message, m->says))
            fail_msg("%s %s: expected '%s', got '%s'", m->op, m->attrs, m->says, g->error.message);
        meg_graph_destroy(g);
    }
}

/* Of operators with several inputs: q, k, v and two matrices. */
static void test_misfits(void **state)
{
    (void)state;
    static const struct {
        const char *op, *attrs, *says;
        int64_t tokens;
    } misfits[] = {
        {"attention", "heads=5", "node: heads=5 does not divide the 12 features", 9},
        {"attention", "heads=3 causal=1", "node: causal attention wants as many queries", 7},
        {"attention", "heads=0", "heads=0 is out of range", 9},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        meg_graph *g = meg_graph_create("misfit");
        int q = meg_graph_input(g, "q", 3, (int64_t[]){2, FEATURES, TOKENS});
        int k = meg_graph_input(g, "k", 3, (int64_t[]){2, FEATURES, misfits[i].tokens});
        meg_graph_add(g, misfits[i].op, "node", misfits[i].attrs, 3, (int[]){q, k, k});
        assert_non_null(strstr(g->error.message, misfits[i].says));
        meg_graph_destroy(g);
    }
    meg_graph *g = meg_graph_create("misfit");
    int a = meg_graph_input(g, "a", 3, (int64_t[]){2, 4, 5});
    assert_int_equal(meg_graph_add(g, "matmul", "node", "", 2, (int[]){a, a}), -1);
    assert_non_null(strstr(g->error.message, "node: 'a' is 2x4x5, but 'a' is 2x4x5: matmul wants"));
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_model),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_long_attention),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_misfits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
