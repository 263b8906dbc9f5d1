/* zero=1: the optimizer's states are cut over the ranks that share a weight. Losses, gradients, states
 * and running statistics are those of one rank after several steps; each rank holds its part only.
 */
#include "ranks.h"

static const double same = 1e-10;

typedef struct zero_case {
    const char *model, *options, *one, *plan;
    int ranks;
} zero_case;

static const zero_case cases[] = {
    {"cnn", "image=1x13x11 classes=7", "batch=4 momentum=0.9", "batch=4 momentum=0.9 replicas=2", 2},
    {"cnn", "image=1x13x11 classes=7", "batch=8 optimizer=adam", "batch=8 optimizer=adam replicas=4",
     4},
    {"cnn", "image=1x13x11 classes=7", "batch=4 optimizer=adam",
     "batch=4 optimizer=adam mesh=c2 replicas=2", 4},
    {"resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4", "batch=4 momentum=0.9 norm=2",
     "batch=4 momentum=0.9 norm=2 micro=2 stages=2 schedule=chimera replicas=2", 4},
    {"gpt", "tokens=7 classes=13 layers=2 heads=2 width=16 dropout=0", "batch=4 optimizer=adamw",
     "batch=4 optimizer=adamw micro=2 stages=2 replicas=2", 4},
};

static void test_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const zero_case *c = &cases[i];
        char plan[256];
        meg_graph *g = network_zoo(c->model, c->options);
        snprintf(plan, sizeof plan, "%s zero=1", c->plan);
        ranks_case judge = {.graph = g, .plan = c->one, .device = "ref64", .ranks = 1, .steps = 3,
                            .rate = 1e-3},
                   many = judge;
        many.plan = plan;
        many.ranks = c->ranks;
        network_result *a = ranks_run(&judge), *b = ranks_run(&many);
        double d = network_difference(a, b, plan);
        network_free(a);
        network_free(b);
        meg_graph_destroy(g);
        if (d > same) fail_msg("%s %s: off by %g", c->model, plan, d);
    }
}

/* Bytes of optimizer states that a rank holds. */
static int64_t state_bytes(const char *plan, int rank, int ranks)
{
    meg_error e;
    meg_plan *p = NULL;
    meg_graph *g = network_zoo("cnn", "image=1x28x28 classes=10");
    int64_t bytes = 0;
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &(meg_world){rank, ranks}, plan, 0, &p))
        fail_msg("%s", e.message);
    for (int i = 0; i < p->held_slots; i++)
        if (p->held[i].role == MEG_ROLE_STATE) bytes += p->held[i].bytes;
    meg_plan_destroy(p);
    meg_graph_destroy(g);
    return bytes;
}

static void test_memory(void **state)
{
    (void)state;
    int64_t all = state_bytes("batch=8 optimizer=adam", 0, 4), sum = 0;
    for (int r = 0; r < 4; r++) {
        int64_t own = state_bytes("batch=8 optimizer=adam zero=1", r, 4);
        assert_true(own < all / 3);
        sum += own;
    }
    assert_int_equal(sum, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
