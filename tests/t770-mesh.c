/* Layers cut over ranks: pixels, samples, channels, alone and with stages and replicas. Every plan must
 * give the loss, the gradients and the running statistics of one rank, in double and, on the
 * cpu, in float (tests/compare.h); predicted bytes are met on every rank (tests/ranks.h).
 *
 *     t770-mesh [word of the case]
 */
#include "mesh_list.h"
#include "smooth.h"

static const char *only;

typedef struct mesh_case {
    const char *model, *options, *plan;
    int ranks;
} mesh_case;

static const mesh_case cases[] = {
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=2x1", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=1x2", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=2x2", 4},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=n2", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=c2", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=c2 channels=filter", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=c3 channels=channel", 3},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=2x1", 2},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=1x5", 5},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=3x1", 3},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=2x2 replicas=2", 8},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=c2", 2},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=c2 channels=filter",
     2},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=c3 channels=channel",
     3},
    {"resnet-cifar", "depth=11 version=2 image=3x19x23 classes=5 width=4", "batch=4 mesh=2x2", 4},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4",
     "batch=4 norm=2 micro=2 stages=2 mesh=2x2,1", 5},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4",
     "batch=8 norm=2 micro=2 stages=2 mesh=2x1 schedule=chimera replicas=2", 8},
    {"resnet-cifar", "depth=11 version=2 image=3x20x20 classes=5 width=2",
     "batch=4 norm=2 micro=2 stages=2 mesh=c2,1x2 schedule=mast replicas=2", 8},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=h2w2/layer3.0:n4", 4},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=2x1 wide=2", 2},
    {"resnet-cifar", "depth=11 version=2 image=3x19x23 classes=5 width=4",
     "batch=4 mesh=2x2 wide=3", 4},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4",
     "batch=4 norm=2 micro=2 stages=2 mesh=2x2,1x2 wide=2", 6},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 mesh=h1:3w5:2:1", 6},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4",
     "batch=4 norm=2 micro=2 stages=2 mesh=h3:1w1:2,c1:3 wide=2", 6},
    {"unet", "image=3x48x80 width=4 classes=3", "batch=2 mesh=2x2", 4},
    {"unet", "image=3x48x80 width=4 classes=3", "batch=2 mesh=2x2 wide=4", 4},
    {"cosmoflow", "image=2x18x21x16 pools=2 width=4", "batch=2 mesh=2x2x2", 8},
    {"vit_b_16", "image=3x24x40 patch=8 layers=1 heads=2 width=8 mlp=16 classes=5",
     "batch=4 mesh=1x2", 2},
};

static void run_cases(const char *device)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mesh_case *m = &cases[i];
        char one[64], what[256];
        snprintf(what, sizeof what, "%s %s %s", device, m->model, m->plan);
        if (only && !strstr(what, only)) continue;
        meg_graph *g = network_zoo(m->model, m->options);
        const char *norm = strstr(m->plan, "norm=");
        if (strcmp(device, "cpu") == 0) g = smooth_network(g);
        snprintf(one, sizeof one, "batch=%d %.6s", atoi(m->plan + 6), norm ? norm : "");
        ranks_case judge = {.graph = g, .plan = one, .device = "ref64", .ranks = 1, .steps = 2},
                   many = judge;
        many.plan = m->plan;
        many.ranks = m->ranks;
        many.device = device;
        assert_true(ranks_agree(&judge, &many, what));
        meg_graph_destroy(g);
    }
}

static void test_mesh(void **state)
{
    (void)state;
    run_cases("ref64");
}

static void test_cpu(void **state)
{
    (void)state;
    run_cases("cpu");
}

/* Every model under a few meshes, other ones for each; all of it is ./do fuzz --mesh-list. */
static void test_list(void **state)
{
    enum {
        STRIDE = 7,
        FIRST = 3
    };
    (void)state;
    for (int k = 0; k < MESH_MODELS && !only; k++) {
        const mesh_model *m = &mesh_models[k];
        matrix *all = mesh_matrix(m, (k + FIRST) % STRIDE, STRIDE);
        const matrix_group *group = &all->group[0];
        meg_graph *g = network_zoo(m->at.model, m->at.options);
        char words[320];
        ranks_case c = matrix_case(g, group, -1, words);
        network_result *one = ranks_run(&c);
        assert_true(group->plans > 0);
        for (int i = 0; i < group->plans; i++) {
            c = matrix_case(g, group, i, words);
            network_result *many = ranks_run(&c);
            assert_true(compare_same(one, many, words));
            network_free(many);
        }
        network_free(one);
        meg_graph_destroy(g);
        free(all);
    }
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mesh), cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
