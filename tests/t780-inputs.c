/* Several inputs and several targets: one rank against many, each of which loads its part of each. */
#include "inputs.h"

static void test_same(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    for (int i = 0; i < INPUTS_PLANS; i++) {
        const inputs_plan *p = &inputs_plans[i];
        char words[256];
        snprintf(words, sizeof words, "%s %s", p->one, p->more);
        ranks_case one = {.graph = g, .plan = p->one, .device = "ref64", .ranks = 1, .steps = 2};
        one.samples = p->samples;
        one.eval = p->samples > 0;
        ranks_case all = one;
        all.plan = words;
        all.ranks = p->ranks;
        if (!ranks_agree(&one, &all, words))
            fail_msg("%s: one rank and %d differ", words, p->ranks);
    }
    meg_graph_destroy(g);
}

/* Losses whose labels have one shape, but names of their own, do not share them. */
static void test_names(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    const char *const labels[] = {"kind", "sort", "where", "marks"};
    for (int i = 0; i < 4; i++) {
        int id = meg_graph_find_value(g, labels[i]);
        assert_true(id >= 0);
        assert_int_equal(g->value[id].kind, MEG_LABEL);
        assert_int_equal(g->node[g->value[g->loss[i].value].maker].in[1], id);
    }
    assert_int_equal(meg_graph_kinds(g, meg_graph_find_value(g, "ids")), 11);
    assert_int_equal(meg_graph_kinds(g, meg_graph_find_value(g, "kind")), 5);
    assert_int_equal(meg_graph_kinds(g, meg_graph_find_value(g, "where")), 0);
    meg_graph_destroy(g);
    g = meg_graph_create("twice");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 4});
    int y = inputs_layer(g, "dense", "y", "units=3", x), z = inputs_layer(g, "tanh", "z", "", y);
    meg_graph_add_loss(g, "mse", "target=t", y, 1);
    meg_graph_add_loss(g, "mse", "target=t", z, 1); /* the same */
    assert_int_equal(g->error.status, MEG_OK);
    meg_graph_add_loss(g, "softmax_xent", "target=t", z, 1);
    assert_string_equal(g->error.message,
                        "target=t: there is already a value of this name, and it is no label of "
                        "this loss's shape: use another name");
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
