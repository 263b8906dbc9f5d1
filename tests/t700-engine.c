/* The same answer under every plan, device and thread count; predicted bytes are met.
 *
 * Judge: the one-rank plan with one micro-batch on ref64.
 */
#include "compare.h"
#include "smooth.h"

#include <dirent.h>
#include <omp.h>

/* A graph with everything that the zoo's small nets lack: branches, concat, dropout, both pools,
 * a flatten that dense absorbs and one that it does not, groups, odd sizes. */
static meg_graph *branches(void)
{
    meg_graph *g = meg_graph_create("branches");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 11, 13});
    int a = meg_graph_add(g, "conv", "a", "filters=18 kernel=3 stride=2 pad=1", 1, &x);
    a = meg_graph_add(g, "relu", "a.relu", "", 1, &a);
    int b = meg_graph_add(g, "conv", "b", "filters=7 kernel=3 dilation=2 pad=2:1x1:2", 1, &a);
    int c = meg_graph_add(g, "maxpool", "c", "kernel=2 stride=1", 1, &a);
    int d = meg_graph_add(g, "conv", "d", "filters=6 kernel=1 groups=3", 1, &c);
    int e = meg_graph_add(g, "concat", "e", "", 2, (int[]){b, d});
    e = meg_graph_add(g, "avgpool", "pool", "kernel=2 count_pad=1 pad=1", 1, &e);
    e = meg_graph_add(g, "dropout", "drop", "rate=0.3", 1, &e);
    int f = meg_graph_add(g, "flatten", "flat1", "", 1, &e);
    f = meg_graph_add(g, "dense", "hidden", "units=20", 1, &f);
    f = meg_graph_add(g, "relu", "hidden.relu", "", 1, &f);
    int h = meg_graph_add(g, "gap", "gap", "", 1, &e);
    int i = meg_graph_add(g, "flatten", "flat2", "", 1, &e);
    i = meg_graph_add(g, "relu", "flat2.relu", "", 1, &i);
    i = meg_graph_add(g, "concat", "joined", "", 3, (int[]){f, h, i});
    i = meg_graph_add(g, "dense", "head", "units=5", 1, &i);
    meg_graph_add_loss(g, "softmax_xent", "", i, 1.5);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* The normalisations inside samples, of groups, channels, samples and pixels. */
static meg_graph *sets(void)
{
    meg_graph *g = meg_graph_create("sets");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 7, 9});
    x = meg_graph_add(g, "conv", "a", "filters=6 kernel=3 pad=1", 1, &x);
    x = meg_graph_add(g, "groupnorm", "a.norm", "groups=2", 1, &x);
    x = meg_graph_add(g, "relu", "a.relu", "", 1, &x);
    x = meg_graph_add(g, "conv", "b", "filters=5 kernel=3 stride=2", 1, &x);
    x = meg_graph_add(g, "instancenorm", "b.norm", "affine=1", 1, &x);
    x = meg_graph_add(g, "conv", "c", "filters=8 kernel=1", 1, &x);
    x = meg_graph_add(g, "layernorm", "c.norm", "", 1, &x);
    x = meg_graph_add(g, "layernorm", "c.all", "axes=all", 1, &x);
    x = meg_graph_add(g, "dense", "head", "units=5", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

typedef struct model {
    const char *name, *options, *plan;
} model;

static const model models[] = {
    {"branches", "", "batch=6"},
    {"cnn", "image=1x13x11 classes=7", "batch=6"},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=6"},
    {"resnet-cifar", "depth=11 version=2 image=3x12x9 classes=5", "batch=6"},
    {"resnet18", "image=3x40x37 classes=5", "batch=4"},
    {"vgg11", "image=3x32x64 classes=5", "batch=2"},
};

static meg_graph *build(const model *m)
{
    return strcmp(m->name, "branches") == 0 ? branches() : network_zoo(m->name, m->options);
}

/* ---- in double: exact up to summation order ---- */

static void test_micro_batches(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        meg_graph *g = build(&models[i]);
        network_case one = {g, "batch=12 norm=3", "ref64", 1};
        network_case four = {g, "batch=12 norm=3 micro=4", "ref64", 1};
        network_case two = {g, "batch=12 norm=3 micro=2", "ref64", 1};
        compare_cases(&one, &four, models[i].name);
        compare_cases(&one, &two, models[i].name);
        meg_graph_destroy(g);
    }
}

static void test_phases(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        meg_graph *g = i ? build(&models[i]) : sets();
        network_case fused = {g, "batch=6 norm=3", "ref64", 1};
        network_case phased = {g, "batch=6 norm=3 phases=1", "ref64", 1};
        network_case micro = {g, "batch=6 norm=3 phases=1 micro=2", "ref64", 1};
        compare_cases(&fused, &phased, g->name);
        compare_cases(&fused, &micro, g->name);
        meg_graph_destroy(g);
    }
}

static void test_recompute(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        meg_graph *g = build(&models[i]);
        network_case kept = {g, "batch=6 recompute=none", "ref64", 1};
        network_case again = {g, "batch=6", "ref64", 1};
        network_case blocks = {g, "batch=6 recompute=segments", "ref64", 1};
        network_case layers = {g, "batch=6 recompute=segments level=layer", "ref64", 1};
        compare_bits(&kept, &again, models[i].name);
        compare_bits(&kept, &blocks, models[i].name);
        compare_bits(&kept, &layers, models[i].name);
        meg_graph_destroy(g);
    }
}

/* The partial batch at the end of an epoch is a batch like any other. */
static void test_tail(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        meg_graph *g = build(&models[i]);
        network_case whole = {g, "batch=4", "ref64", 1};
        network_case tail = {g, "batch=6", "ref64", 1};
        network_case micro = {g, "batch=8 micro=4 norm=2", "ref64", 1};
        network_case groups = {g, "batch=4 norm=2", "ref64", 1};
        network_result *a = network_run(&whole, MEG_ENTRY_TRAIN, 0);
        network_result *b = network_run(&tail, MEG_ENTRY_TRAIN_TAIL, 6 * 3 + 4);
        assert_true(compare_same(a, b, models[i].name));
        network_result *c = network_run(&groups, MEG_ENTRY_TRAIN, 0);
        network_result *d = network_run(&micro, MEG_ENTRY_TRAIN_TAIL, 8 + 4);
        assert_true(compare_same(c, d, models[i].name));
        network_free(a);
        network_free(b);
        network_free(c);
        network_free(d);
        meg_graph_destroy(g);
    }
}

/* ---- devices ---- */

/* Kernels of the cpu, direct and Winograd's, and plain C in float, by the rule of tests/compare.h. */
static void test_devices(void **state)
{
    static const struct {
        const char *device, *winograd;
        int threads;
    } others[] = {{"ref", "0", 1}, {"cpu", "0", 1}, {"cpu", "0", 2}, {"cpu", "all", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        meg_graph *g = smooth_network(build(&models[i]));
        network_case judge = {g, models[i].plan, "ref64", 1};
        network_result *answer = compare_run(&judge);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            char what[128];
            network_case other = {g, models[i].plan, others[k].device, others[k].threads};
            snprintf(what, sizeof what, "%s on %s, %d threads, winograd=%s", g->name, other.device,
                     other.threads, others[k].winograd);
            setenv("MEGALITH_WINOGRAD", others[k].winograd, 1);
            if (i < 4 || k > 0) compare_with(&judge, answer, &other, what); /* plain C is slow */
        }
        unsetenv("MEGALITH_WINOGRAD");
        network_free(answer);
        meg_graph_destroy(g);
    }
}

static void test_check_device(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        meg_graph *g = build(&models[i]);
        network_case ref = {g, "batch=4 norm=2 micro=2", "ref", 1};
        network_case check = {g, "batch=4 norm=2 micro=2", "check", 1};
        compare_bits(&ref, &check, models[i].name);
        meg_graph_destroy(g);
    }
}

/* One seed and thread count: the same bits. Other thread counts: see test_devices. */
static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 1; i < sizeof models / sizeof *models; i++) {
        meg_graph *g = build(&models[i]);
        network_case two = {g, models[i].plan, "cpu", 2};
        compare_bits(&two, &two, models[i].name);
        meg_graph_destroy(g);
    }
}

static int tasks(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d) skip();
    for (struct dirent *at = readdir(d); at; at = readdir(d))
        count += at->d_name[0] != '.';
    closedir(d);
    return count;
}

/* How many threads come up while first weights are made, where OpenMP alone would take four. */
static int start_threads(const char *options, int threads)
{
    meg_error e;
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_graph *g = network_zoo("cnn", options);
    if (meg_device_open(&e, "ref64", threads, &d) != MEG_OK) fail_msg("%s", e.message);
    if (meg_plan_make(g, &e, &meg_profile_plain, "batch=1", 0, &p) != MEG_OK ||
        meg_engine_new(p, d, NULL, &e, MEG_FILL, &x) != MEG_OK)
        fail_msg("%s", e.message);
    int team = omp_get_max_threads();
    omp_set_num_threads(4);
    int before = tasks();
    meg_engine_start(x, 5);
    int after = tasks();
    assert_int_equal(omp_get_max_threads(), 4);
    omp_set_num_threads(team);
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_graph_destroy(g);
    meg_device_close(d);
    return after - before;
}

/* First weights take the device's threads, no more, and no team where there is little to do: ranks that
 * keep to a core each would have a team wait for its turn once for every run of a weight's part. */
static void test_start_threads(void **state)
{
    (void)state;
    const char *small = "image=1x9x9 classes=3 width=2", *large = "image=1x28x28 classes=10";
    assert_int_equal(start_threads(small, 2), 0);
    assert_int_equal(start_threads(large, 1), 0);
    assert_int_equal(start_threads(large, 2), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_threads), /* first: no team has come up before */
        cmocka_unit_test(test_micro_batches), cmocka_unit_test(test_phases),
        cmocka_unit_test(test_recompute),     cmocka_unit_test(test_tail),
        cmocka_unit_test(test_devices),       cmocka_unit_test(test_check_device),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
