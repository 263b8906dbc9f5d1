/* Networks that make images smaller and larger again, under every plan and device: the operators of
 * segmentation and generation, in one graph. Its max-pool has two outputs, of which the second,
 * with integers and without a gradient, is read far behind and again in backward.
 *
 *     conv groupnorm relu -> maxpool -> conv instancenorm relu -> max_unpool -> conv_transpose
 *                               \......... indices ................./                  |
 *     loss <- dense <- flatten <- adaptive_avgpool <- resize <- layernorm <- resize <--'
 */
#include "compare.h"
#include "smooth.h"

static meg_graph *hourglass(void)
{
    meg_graph *g = meg_graph_create("hourglass");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 12, 10});
    x = meg_graph_add(g, "conv", "a", "filters=18 kernel=3 pad=1", 1, &x);
    x = meg_graph_add(g, "groupnorm", "a.norm", "groups=6", 1, &x);
    x = meg_graph_add(g, "relu", "a.relu", "", 1, &x);
    x = meg_graph_add(g, "maxpool", "pool", "kernel=2 indices=1", 1, &x);
    int where = meg_graph_find_value(g, "pool:1");
    x = meg_graph_add(g, "conv", "b", "filters=18 kernel=3 pad=1", 1, &x);
    x = meg_graph_add(g, "instancenorm", "b.norm", "affine=1", 1, &x);
    x = meg_graph_add(g, "relu", "b.relu", "", 1, &x);
    x = meg_graph_add(g, "max_unpool", "unpool", "kernel=2", 2, (int[]){x, where});
    x = meg_graph_add(g, "conv_transpose", "up", "filters=9 kernel=3 stride=2 pad=1", 1, &x);
    x = meg_graph_add(g, "resize", "grow", "mode=linear size=17x15", 1, &x);
    x = meg_graph_add(g, "layernorm", "norm", "", 1, &x);
    x = meg_graph_add(g, "resize", "near", "scale=1.5", 1, &x);
    x = meg_graph_add(g, "adaptive_avgpool", "bins", "size=4x3", 1, &x);
    x = meg_graph_add(g, "flatten", "flat", "", 1, &x);
    x = meg_graph_add(g, "dense", "head", "units=5", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

static void test_plans(void **state)
{
    (void)state;
    meg_graph *g = hourglass();
    network_case judge = {g, "batch=6", "ref64", 1}, micro = {g, "batch=6 micro=3", "ref64", 2};
    network_case kept = {g, "batch=6 recompute=none", "ref64", 2};
    network_case phases = {g, "batch=6 phases=1", "ref64", 2};
    network_case again = {g, "batch=6 recompute=segments level=layer", "ref64", 2};
    compare_cases(&judge, &micro, "micro-batches");
    compare_cases(&judge, &phases, "phases");
    compare_bits(&judge, &kept, "all kept");
    compare_bits(&judge, &again, "blocks run again");
    meg_graph_destroy(g);
}

/* On the cpu also as it is, for the sake of the places of its maxima: of 8,640 activations and 2,160
 * windows none is within rounding of a kink with these weights, as is the case for 99 seeds of 100. */
static void test_devices(void **state)
{
    (void)state;
    meg_graph *g = smooth_network(hourglass());
    network_case judge = {g, "batch=4", "ref64", 1}, ref = {g, "batch=4", "ref", 2};
    network_case one = {g, "batch=4", "cpu", 1}, two = {g, "batch=4", "cpu", 2};
    compare_cases(&judge, &ref, "ref");
    compare_cases(&judge, &one, "cpu, one thread");
    compare_cases(&judge, &two, "cpu, two threads");
    meg_graph_destroy(g);
    judge.graph = two.graph = g = hourglass();
    compare_cases(&judge, &two, "cpu, with kinks");
    network_case plain = {g, "batch=4 micro=2", "ref", 1};
    network_case check = {g, "batch=4 micro=2", "check", 2};
    compare_bits(&plain, &check, "check");
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
