/* The zoo's transformers at small size through plan and engine: micro-batches, recompute, phases,
 * devices, and some updates. They have what other nets lack: parameters that are added to
 * activations (positions, the class token) or turned and padded before, and one that is used twice.
 */
#include "compare.h"

enum {
    BATCH = 6,
    STEPS = 3
};

typedef struct model {
    const char *name, *options;
} model;

static const model models[] = {
    {"gpt", "tokens=9 classes=13 layers=2 heads=2 width=20"},
    {"vit_b_16", "image=3x12x8 classes=5 patch=4 layers=2 heads=3 width=18 mlp=21 dropout=0.1"},
};
enum {
    MODELS = sizeof models / sizeof *models
};

/* The vision transformer's head starts with zeros, behind which no gradient passes. */
static meg_graph *network(const model *m)
{
    meg_graph *g = network_zoo(m->name, m->options);
    int head = meg_graph_find_value(g, "heads.head.weight");
    if (head >= 0) g->value[head].start = MEG_NORMAL, g->value[head].bound = 0.3;
    return g;
}

static void test_plans(void **state)
{
    static const char *const plans[] = {"batch=6 micro=3", "batch=6 micro=6", "batch=6 phases=1",
                                        "batch=6 recompute=none", "batch=6 recompute=segments"};
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        meg_graph *g = network(&models[i]);
        network_case one = {g, "batch=6", "ref64", 1}, check = {g, "batch=6 micro=2", "check", 1};
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            network_case other = {g, plans[k], "ref64", 1}, cpu = {g, plans[k], "cpu", 2};
            compare_cases(&one, &other, plans[k]);
            compare_cases(&one, &cpu, plans[k]);
        }
        compare_cases(&one, &check, "check");
        meg_graph_destroy(g);
    }
}

/* ---- updates ---- */

typedef struct weights {
    int count;
    double *data[128];
    int64_t size[128];
} weights;

static void collect(meg_engine *x, weights *w)
{
    const meg_graph *g = meg_engine_graph(x);
    for (int i = 0; i < g->values; i++) {
        if (g->value[i].kind != MEG_PARAMETER) continue;
        int at = w->count++;
        w->size[at] = meg_box_size(&g->value[i].shape);
        w->data[at] = calloc((size_t)w->size[at], sizeof(double));
        network_sink s = {&g->value[i], w->data[at], meg_engine_real(x)};
        assert_true(meg_engine_get(x, i, MEG_ROLE_VALUE, 0, network_take, &s));
    }
}

/* All weights after `steps` steps of the plan; gradients are used as soon as they are complete. */
static weights train(const network_case *c, int steps)
{
    meg_error e;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_feed f;
    meg_outcome o;
    weights w = {0};
    if (meg_device_open(&e, c->device, c->threads, &d) != MEG_OK) fail_msg("%s", e.message);
    meg_profile profile = meg_profile_of(d);
    if (meg_plan_make(c->graph, &e, &profile, c->plan, 0, &p) != MEG_OK ||
        meg_engine_new(p, d, NULL, &e, MEG_FILL, &x) != MEG_OK)
        fail_msg("%s", e.message);
    meg_engine_start(x, 5);
    network_feed(c->graph, BATCH, &f);
    for (int i = 0; i < steps; i++)
        if (meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &f, &o) != MEG_OK) fail_msg("%s", e.message);
    collect(x, &w);
    network_unfeed(&f);
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
    return w;
}

static void forget(weights *w)
{
    for (int i = 0; i < w->count; i++)
        free(w->data[i]);
}

/* The largest difference of a tensor, relative to how far training moved it; all of them move. */
static double moved_apart(const weights *start, const weights *a, const weights *b)
{
    double worst = 0;
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        double moved = network_norm(start->data[i], a->data[i], a->size[i]);
        assert_true(moved > 0);
        worst = fmax(worst, network_norm(a->data[i], b->data[i], a->size[i]) / moved);
    }
    return worst;
}

static void test_updates(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        meg_graph *g = network(&models[i]);
        network_case once = {g, "batch=6 optimizer=sgd", "ref64", 1};
        network_case micro = {g, "batch=6 micro=3 optimizer=sgd", "ref64", 1};
        network_case kept = {g, "batch=6 recompute=none optimizer=sgd", "ref64", 1};
        weights start = train(&once, 0), a = train(&once, STEPS), b = train(&micro, STEPS);
        weights c = train(&kept, STEPS);
        double by_micro = moved_apart(&start, &a, &b), by_kept = moved_apart(&start, &a, &c);
        print_message("%s: %.2e with micro-batches, %.2e with all kept\n", models[i].name, by_micro,
                      by_kept);
        assert_true(by_micro <= compare_double && by_kept <= compare_double);
        forget(&start), forget(&a), forget(&b), forget(&c);
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_updates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
