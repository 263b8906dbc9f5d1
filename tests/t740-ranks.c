/* Many ranks give the answer of one: data parallelism, stages, every schedule, both directions. */
#include "ranks.h"

static const double same_double = 1e-10;

typedef struct many {
    const char *model, *options, *one, *plan;
    int ranks;
} many;

static const many cases[] = {
    {"cnn", "image=1x13x11 classes=7", "batch=6 norm=3", "batch=6 norm=3 replicas=2", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=6", "batch=6 replicas=2", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=10", "batch=10 replicas=3",
     3},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=10 norm=5",
     "batch=10 norm=5 stages=2 micro=2", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=3 micro=4 schedule=gpipe", 3},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=2 micro=4 schedule=zb_h1", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=2 micro=4 schedule=chimera", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=3 micro=4 schedule=mast", 3},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=2 micro=4 schedule=master replications=2", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=12 norm=3",
     "batch=12 norm=3 stages=4 chunks=2 micro=4 schedule=interleaved", 2},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=8", "batch=16 norm=4",
     "batch=16 norm=4 stages=2 micro=4 schedule=chimera replicas=2", 4},
};

static void test_many(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const many *m = &cases[i];
        meg_graph *g = network_zoo(m->model, m->options);
        for (int steps = 1; steps <= 2; steps++) {
            ranks_case one = {.graph = g, .plan = m->one, .device = "ref64", .ranks = 1,
                              .steps = steps},
                       all = one;
            all.plan = m->plan;
            all.ranks = m->ranks;
            network_result *a = ranks_run(&one), *b = ranks_run(&all);
            assert_true(network_difference(a, b, m->plan) <= same_double);
            assert_true(a->correct == b->correct);
            network_free(a);
            network_free(b);
        }
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
