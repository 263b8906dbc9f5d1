/* Cuts that are impossible are refused when the plan is made, on every rank with the same words: they
 * name the layer, the axis and what would be possible.
 */
#include "network.h"

typedef struct refused_case {
    const char *model, *options, *plan;
    int ranks;
    const char *says[4];
} refused_case;

static const refused_case cases[] = {
    /* an axis is shorter than its parts: in the network, in a deep layer, of tokens, of samples */
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=14x1",
     14,
     {"conv1", "14 parts along h", "extent of 13", "use 1..13"}},
    {"resnet-cifar",
     "depth=8 image=3x19x23 classes=5 width=4",
     "batch=2 mesh=1x8",
     8,
     {"layer3.0", "8 parts along w", "extent of 6", "use 1..6"}},
    {"cosmoflow",
     "image=2x9x8x11 pools=2 width=2",
     "batch=2 mesh=d3",
     3,
     {"pool2", "3 parts along d", "extent of 2", "use 1..2"}},
    {"gpt",
     "tokens=7 classes=13 layers=1 heads=2 width=8",
     "batch=2 mesh=1x8",
     8,
     {"8 parts along w", "extent of 7", "use 1..7", NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=n3",
     3,
     {"2 samples", "mesh n3", "use n1..n2", "larger batch"}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=8 norm=2 micro=4 mesh=n2 replicas=2",
     4,
     {"2 samples", "2 replicas", "mesh n2", "use n1, or a larger batch"}},
    /* an axis that there is not; more channels than any layer has */
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=d2",
     2,
     {"2 parts along d", "no layer there has more than one", "leave d out", NULL}},
    {"gpt",
     "tokens=7 classes=13 layers=1 heads=2 width=8",
     "batch=2 mesh=2x1",
     2,
     {"2 parts along h", "no layer there has more than one", "leave h out", NULL}},
    {"cosmoflow",
     "image=2x9x8x11 pools=2 width=2",
     "batch=2 mesh=c512",
     512,
     {"512 parts along c", "can be cut so", "fewer parts", NULL}},
    /* sums over some of the ranks */
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=4 mesh=c2 replicas=2 zero=3 allreduce=mpi",
     4,
     {"all ranks", "mesh=c2", "allreduce=ring", NULL}},
    /* channels that are there, but in nothing that begins a cut; wide halos of nothing */
    {"resnet-cifar",
     "depth=8 image=3x19x23 classes=5 width=4",
     "batch=2 mesh=1/avgpool:c2/fc:1",
     2,
     {"2 parts along c", "avgpool", "conv or dense", "leave c out"}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=c3/conv2:1 channels=channel",
     3,
     {"3 parts along c", "conv1", "use channels=auto", "leave c out"}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=c2 wide=2",
     2,
     {"wide=2", "no pixels are cut", "leave wide out", NULL}},
    /* words */
    {"cnn", "image=1x13x11 classes=7", "batch=2 mesh=q2", 2, {"mesh=q2", "n c d h w", NULL, NULL}},
    {"cnn", "image=1x13x11 classes=7", "batch=2 mesh=h2h2", 4, {"comes twice", NULL, NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=h1:2:",
     2,
     {"no number", "at its end", NULL, NULL}},
    {"cnn", "image=1x13x11 classes=7", "batch=4 mesh=n1:3", 2, {"equal parts", NULL, NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=w1:1:1:1:1:1",
     6,
     {"6 parts along w", NULL, NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=h2/nowhere:w2",
     2,
     {"no group 'nowhere'", "level=block", "megalith show cnn", NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=h2/fc1:n2/conv2:w2",
     2,
     {"conv2", "order", NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=2x1,1",
     2,
     {"more stages", "stages=1", NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 stages=2 mesh=2x1,1,1",
     4,
     {"more stages", "stages=2", NULL, NULL}},
    {"cnn",
     "image=1x13x11 classes=7",
     "batch=2 mesh=2x2",
     3,
     {"3 ranks", "mesh=2x2 want 4", "-np 4", NULL}},
};

static void refuse(const meg_graph *g, const refused_case *c)
{
    char first[sizeof(meg_error)] = "";
    for (int r = 0; r < c->ranks; r++) {
        meg_error e;
        meg_plan *p = NULL;
        meg_world world = {r, c->ranks};
        if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, c->plan, 0, &p) == MEG_OK)
            fail_msg("%s %s is not refused", c->model, c->plan);
        if (r == 0) print_message("%s\n", e.message);
        if (r == 0) snprintf(first, sizeof first, "%s", e.message);
        assert_string_equal(e.message, first);
        for (int i = 0; i < 4 && c->says[i]; i++)
            if (!strstr(e.message, c->says[i]))
                fail_msg("%s: '%s' lacks '%s'", c->plan, e.message, c->says[i]);
    }
}

static void test_zoo(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_graph *g = network_zoo(cases[i].model, cases[i].options);
        refuse(g, &cases[i]);
        meg_graph_destroy(g);
    }
}

/* Nothing but an operator that cannot be cut along the axis asked for. */
static void test_operator(void **state)
{
    static const refused_case tokens = {
        "tokens",
        "",
        "batch=2 mesh=w2",
        2,
        {"2 parts along w", "reshape", "use another axis", "leave w out"}};
    (void)state;
    meg_graph *g = meg_graph_create("tokens");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 1, 1});
    x = meg_graph_add(g, "conv", "widen", "filters=12 kernel=1", 1, &x);
    x = meg_graph_add(g, "reshape", "tokens", "dims=0x3x4", 1, &x);
    x = meg_graph_add(g, "slice", "first", "axes=2 begin=0 end=1", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    refuse(g, &tokens);
    meg_graph_destroy(g);
}

/* Groups of a convolution stay whole: filters are cut in multiples of a group's. */
static void test_grain(void **state)
{
    static const refused_case four = {
        "groups",
        "",
        "batch=2 mesh=c4",
        4,
        {"4 parts along c", "by_three (conv)", "extent of 12 in multiples of 4", "use 1..3 parts"}};
    (void)state;
    meg_error e;
    meg_plan *p = NULL;
    meg_graph *g = meg_graph_create("groups");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 6, 5, 5});
    x = meg_graph_add(g, "conv", "by_three", "filters=12 kernel=5 groups=3", 1, &x);
    x = meg_graph_add(g, "flatten", "logits", "", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    refuse(g, &four);
    for (int parts = 2; parts <= 3; parts++) { /* what it says would do */
        char words[32];
        snprintf(words, sizeof words, "batch=2 mesh=c%d", parts);
        meg_world world = {0, parts};
        if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        meg_plan_destroy(p);
    }
    meg_graph_destroy(g);
}

/* It is the data's last batch that is too small. */
static void test_tail(void **state)
{
    (void)state;
    meg_error e;
    meg_plan *p = NULL;
    meg_graph *g = network_zoo("cnn", "image=1x13x11 classes=7");
    assert_int_not_equal(
        meg_plan_make_for(g, &e, &meg_profile_plain, &(meg_world){0, 2}, "batch=4 mesh=n2", 9, &p),
        MEG_OK);
    print_message("%s\n", e.message);
    assert_non_null(strstr(e.message, "1 sample of a micro-batch"));
    assert_non_null(strstr(e.message, "data's last one"));
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_zoo), cmocka_unit_test(test_operator),
                                       cmocka_unit_test(test_grain), cmocka_unit_test(test_tail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
