/* Networks of pointwise operators, and every loss, under all kinds of plans: micro-batches, phases,
 * recompute, in place, on ref64 and on cpu. Denominators must be those of the whole step: labels
 * that are ignored and targets that are NaN lie unevenly in the micro-batches.
 */
#include "compare.h"
#include "smooth.h"

typedef struct loss_case {
    const char *op, *attrs;
} loss_case;

static const loss_case losses[] = {
    {"softmax_xent", "ignore=2 smoothing=0.1"},
    {"softmax_xent", "weighted=1 ignore=0"},
    {"dice", ""},
    {"dice", "mode=sigmoid ignore=1"},
    {"mse", ""},
    {"bce_logits", "weighted=1"},
};
enum {
    LOSSES = sizeof losses / sizeof *losses
};

/* Gates per channel and pixel, differences, quotients; an odd number of channels. */
static int points(meg_graph *g, int x)
{
    int a = meg_graph_add(g, "conv", "a", "filters=19 kernel=3 pad=1", 1, &x);
    a = meg_graph_add(g, "leaky_relu", "a.leak", "slope=0.1", 1, &a);
    int b = meg_graph_add(g, "conv", "b", "filters=19 kernel=1", 1, &a);
    int gate = meg_graph_add(g, "gap", "gap", "", 1, &b);
    gate = meg_graph_add(g, "sigmoid", "gate", "", 1, &gate);
    b = meg_graph_add(g, "prelu", "b.bend", "", 1, &b);
    b = meg_graph_add(g, "mul", "gated", "", 2, (int[]){b, gate});
    int c = meg_graph_add(g, "conv", "c", "filters=19 kernel=1", 1, &b);
    int d = meg_graph_add(g, "tanh", "c.tanh", "", 1, &c);
    int e = meg_graph_add(g, "gelu", "c.gelu", "", 1, &c);
    d = meg_graph_add(g, "sub", "difference", "", 2, (int[]){d, e});
    e = meg_graph_add(g, "sigmoid", "e.sigmoid", "", 1, &e);
    d = meg_graph_add(g, "mul", "product", "", 2, (int[]){d, e});
    e = meg_graph_add(g, "softmax", "shares", "", 1, &e);
    d = meg_graph_add(g, "div", "quotient", "", 2, (int[]){d, e});
    return meg_graph_add(g, "clip", "clip", "lo=-3 hi=4", 1, &d);
}

static meg_graph *network(const loss_case *k)
{
    meg_graph *g = meg_graph_create(k->op);
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 5, 7});
    x = points(g, x);
    x = meg_graph_add(g, "conv", "head", "filters=4 kernel=1", 1, &x);
    meg_graph_add_loss(g, k->op, k->attrs, x, 1.5);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

static void test_plans(void **state)
{
    static const char *const plans[] = {"batch=6 micro=3", "batch=6 phases=1",
                                        "batch=6 phases=1 micro=2", "batch=6 recompute=none"};
    (void)state;
    for (int i = 0; i < LOSSES; i++) {
        meg_graph *g = network(&losses[i]);
        network_case one = {g, "batch=6", "ref64", 1};
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            network_case other = {g, plans[k], "ref64", 1};
            compare_cases(&one, &other, losses[i].op);
        }
        meg_graph_destroy(g);
    }
}

static void test_devices(void **state)
{
    static const char *const plans[] = {"batch=6", "batch=6 micro=3", "batch=6 recompute=none"};
    (void)state;
    for (int i = 0; i < LOSSES; i++) {
        meg_graph *g = smooth_network(network(&losses[i]));
        network_case one = {g, "batch=6", "ref64", 1};
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            network_case cpu = {g, plans[k], "cpu", 2};
            compare_cases(&one, &cpu, losses[i].op);
        }
        network_case check = {g, "batch=6 micro=2", "check", 1};
        compare_cases(&one, &check, losses[i].op);
        meg_graph_destroy(g);
    }
}

static double loss_of(const meg_graph *g, const char *plan)
{
    network_result *r = network_run(&(network_case){g, plan, "ref64", 1}, MEG_ENTRY_TRAIN, 0);
    double loss = r->loss;
    network_free(r);
    return loss;
}

/* Equal weights of all classes cancel, since the denominator has them, too. */
static void test_weights_cancel(void **state)
{
    (void)state;
    meg_graph *plain = network(&(loss_case){"softmax_xent", "ignore=1"});
    meg_graph *heavy = network(&(loss_case){"softmax_xent", "ignore=1 weighted=1"});
    meg_value *weight = &heavy->value[meg_graph_find_value(heavy, "loss.weight")];
    assert_int_equal(weight->kind, MEG_FIXED);
    weight->start = MEG_CONSTANT;
    weight->bound = 3;
    double a = loss_of(plain, "batch=6 micro=2"), b = loss_of(heavy, "batch=6 micro=2");
    if (!(fabs(a - b) <= compare_double * a)) fail_msg("loss %.17g, with weights %.17g", a, b);
    meg_graph_destroy(plain);
    meg_graph_destroy(heavy);
}

/* The mean over what is there, by hand: targets 1, NaN; values come from a bias alone. */
static void test_missing_targets(void **state)
{
    (void)state;
    meg_error e;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_outcome out;
    meg_graph *g = meg_graph_create("by hand");
    int y = meg_graph_input(g, "image", 2, (int64_t[]){1, 1});
    meg_graph_add_loss(g, "mse", "", meg_graph_add(g, "dense", "y", "units=1", 1, &y), 1);
    assert_int_equal(g->error.status, MEG_OK);
    assert_true(g->correct >= 0);
    g->value[meg_graph_find_value(g, "y.bias")].start = MEG_CONSTANT;
    g->value[meg_graph_find_value(g, "y.bias")].bound = 4;
    assert_int_equal(meg_device_open(&e, "ref64", 1, &d), MEG_OK);
    meg_profile profile = meg_profile_of(d);
    assert_int_equal(meg_plan_make(g, &e, &profile, "batch=4 micro=2", 0, &p), MEG_OK);
    assert_int_equal(meg_engine_new(p, d, NULL, &e, MEG_FILL, &x), MEG_OK);
    meg_engine_start(x, 5);
    meg_fed fed[] = {{.name = "image", .data = (float[]){0, 0, 0, 0}},
                     {.name = "target", .data = (float[]){1, NAN, NAN, NAN}}};
    meg_feed feed = {.count = 2, .fed = fed, .scalars = {0.05, 1, 0, 1}};
    assert_int_equal(meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &feed, &out), MEG_OK);
    assert_true(out.loss == 9);
    feed.count = 1;
    assert_int_equal(meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &feed, &out), MEG_EARG);
    assert_string_equal(e.message, "by hand reads 'target', but the step has no numbers for it");
    feed.count = 2;
    fed[1].dtype = MEG_I32;
    assert_int_equal(meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &feed, &out), MEG_EARG);
    assert_string_equal(e.message,
                        "'target' of by hand takes real numbers, but the step has them as i32");
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
    meg_graph_destroy(g);
}

static void expect(const char *op, const char *attrs, int inputs, const char *message)
{
    meg_graph *g = meg_graph_create("wrong");
    int in[2] = {meg_graph_input(g, "a", 4, (int64_t[]){2, 3, 4, 5}),
                 meg_graph_input(g, "b", 4, (int64_t[]){2, 3, 4, 6})};
    assert_int_equal(meg_graph_add(g, op, "node", attrs, inputs, in), -1);
    assert_string_equal(g->error.message, message);
    meg_graph_destroy(g);
}

static void test_messages(void **state)
{
    (void)state;
    expect("mul", "", 2,
           "node: 'a' is 2x3x4x5, but 'b' is 2x3x4x6: along each axis mul wants the first's "
           "extent, or 1");
    expect("clip", "lo=2 hi=1", 1, "node: lo=2 must not be above hi=1");
    expect("leaky_relu", "slope=-1", 1, "node: slope=-1 is out of range: use 0 or more");
    expect("gelu", "approximate=sigmoid", 1,
           "node: approximate=sigmoid is not known: use none|tanh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),          cmocka_unit_test(test_devices),
        cmocka_unit_test(test_weights_cancel), cmocka_unit_test(test_missing_targets),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
