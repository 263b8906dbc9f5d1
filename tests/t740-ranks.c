/* Many ranks give the answer of one: data parallelism, stages, every schedule, both directions. */
#include "ranks.h"
#include "smooth.h"

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
            ranks_case one = {.graph = g,
                              .plan = m->one,
                              .device = "ref64",
                              .ranks = 1,
                              .steps = steps},
                       all = one;
            all.plan = m->plan;
            all.ranks = m->ranks;
            assert_true(ranks_agree(&one, &all, m->plan));
        }
        meg_graph_destroy(g);
    }
}

/* Weights lie as the device's kernels want them, and gradients are summed as they lie: also where
 * replicas have different numbers of samples, none at all, or different users of a tied weight. */
static const many on_cpu[] = {
    {"cnn", "image=1x13x11 classes=7", "", "replicas=3", 3},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=16", "", "replicas=3", 3},
    {"resnet-cifar", "depth=8 image=3x13x11 classes=5 width=16", "norm=2",
     "norm=2 stages=2 schedule=chimera micro=2", 2},
    {"gpt", "tokens=7 classes=13 layers=2 heads=2 width=16 dropout=0", "", "stages=2 micro=2", 2},
};

static void on_device(const meg_graph *g, const many *m, int batch)
{
    char one[64], all[128];
    snprintf(one, sizeof one, "batch=%d %s", batch, m->one);
    snprintf(all, sizeof all, "batch=%d %s", batch, m->plan);
    ranks_case judge = {.graph = g,
                        .plan = one,
                        .device = "ref64",
                        .ranks = 1,
                        .steps = 1,
                        .samples = batch + 2},
               cpu = judge;
    cpu.plan = all;
    cpu.ranks = m->ranks;
    cpu.device = "cpu";
    assert_true(ranks_agree(&judge, &cpu, all));
}

static void test_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof on_cpu / sizeof *on_cpu; i++) {
        meg_graph *g = smooth_network(network_zoo(on_cpu[i].model, on_cpu[i].options));
        on_device(g, &on_cpu[i], 4);
        setenv("MEGALITH_WINOGRAD", "all", 1);
        on_device(g, &on_cpu[i], 8);
        unsetenv("MEGALITH_WINOGRAD");
        meg_graph_destroy(g);
    }
}

/* A device whose kernels want weights in another format for an odd number of samples. */
static void odd(void *context, const meg_request *r, meg_spec *s)
{
    (void)context;
    bool conv = r->code == MEG_KERNEL && strcmp(r->node->op->name, "conv") == 0;
    if (!conv || meg_extent(&r->box[MEG_X], MEG_N) % 2 == 0) return;
    s->format[MEG_X + 1] = s->format[MEG_DX + 1] = MEG_FORMAT_C8;
}

static void test_layout(void **state)
{
    (void)state;
    meg_error e;
    meg_plan *p[3] = {NULL};
    const meg_profile profile = {NULL, odd, MEG_F32, false, NULL};
    meg_graph *g = network_zoo("cnn", "image=1x13x11 classes=7");
    for (int r = 0; r < 3; r++)
        if (meg_plan_make_for(g, &e, &profile, &(meg_world){r, 3}, "batch=10 replicas=3", 12,
                              &p[r]))
            fail_msg("%s", e.message);
    for (int r = 1; r < 3; r++) {
        assert_int_equal(p[r]->held_slots, p[0]->held_slots);
        for (int i = 0; i < p[0]->held_slots; i++) {
            const meg_held_slot *a = &p[0]->held[i], *b = &p[r]->held[i];
            assert_true(a->value == b->value && a->role == b->role && a->index == b->index);
            assert_true(a->offset == b->offset && a->bytes == b->bytes && a->format == b->format);
        }
    }
    for (int r = 0; r < 3; r++)
        meg_plan_destroy(p[r]);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
