/* Networks that make images smaller and larger again, under every plan and device: the operators of
 * segmentation and generation, in one graph. Its max-pool has two outputs, of which the second,
 * with integers and without a gradient, is read far behind and again in backward.
 *
 *     conv groupnorm relu -> maxpool -> conv instancenorm relu -> max_unpool -> conv_transpose
 *                               \......... indices ................./                  |
 *     loss <- dense <- flatten <- adaptive_avgpool <- resize <- layernorm <- resize <--'
 */
#include "network.h"

static const double same_double = 1e-10; /* STYLE 14: up to summation order, in double */
static const double same_float = 1e-4;   /* STYLE 14: in float */

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

static double compare(const char *plan, const char *device, const char *other_plan,
                      const char *other)
{
    meg_graph *g = hourglass();
    network_case a = {g, plan, device, 1}, b = {g, other_plan, other, 2};
    network_result *x = network_run(&a, MEG_ENTRY_TRAIN, 0),
                   *y = network_run(&b, MEG_ENTRY_TRAIN, 0);
    double d = network_difference(x, y, other);
    assert_int_equal(y->predicted, y->touched);
    network_free(x);
    network_free(y);
    meg_graph_destroy(g);
    return d;
}

static void test_plans(void **state)
{
    (void)state;
    assert_true(compare("batch=6", "ref64", "batch=6 micro=3", "ref64") <= same_double);
    assert_true(compare("batch=6", "ref64", "batch=6 recompute=none", "ref64") == 0);
    assert_true(compare("batch=6", "ref64", "batch=6 phases=1", "ref64") <= same_double);
}

static void test_devices(void **state)
{
    (void)state;
    assert_true(compare("batch=4", "ref64", "batch=4", "ref") <= same_float);
    assert_true(compare("batch=4", "ref64", "batch=4", "cpu") <= same_float);
    assert_true(compare("batch=4 micro=2", "ref", "batch=4 micro=2", "check") == 0);
    assert_true(compare("batch=4", "cpu", "batch=4", "cpu") <= same_float);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
