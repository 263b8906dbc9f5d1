/* zero=: optimizer states (1), or weights and gradients as well (3), are cut over the ranks that share a
 * weight. Losses, gradients, states and running statistics are those of one rank after several steps;
 * each rank holds its part only, and predicted bytes are met (tests/ranks.h).
 *
 *     t775-zero [word of the case]
 */
#include "plan/program/walk.h"
#include "ranks.h"
#include "smooth.h"

static const char *only;

typedef struct zero_case {
    const char *model, *options;
    const char *one, *many; /* the plan of one rank; what more ranks add to it */
    int ranks;
    int64_t samples; /* the rest is a small last batch; 0: none */
} zero_case;

#define CNN    "cnn", "image=1x13x11 classes=7"
#define RESNET "resnet-cifar", "depth=8 image=3x19x23 classes=5 width=4"
#define GPT    "gpt", "tokens=7 classes=13 layers=2 heads=2 width=16 dropout=0"

static const zero_case cases[] = {
    {CNN, "batch=4 momentum=0.9", "replicas=2", 2, 0},
    {CNN, "batch=8 norm=4 optimizer=adam", "replicas=4", 4, 0},
    {CNN, "batch=10 momentum=0.9", "replicas=3", 3, 0},
    {CNN, "batch=8 momentum=0.9 norm=2", "replicas=4 micro=2", 4,
     18}, /* a tail that leaves two idle */
    {CNN, "batch=6 momentum=0.9 norm=3", "replicas=3 stages=2 micro=2", 6, 13},
    {CNN, "batch=4 optimizer=adam", "mesh=c2 replicas=2", 4, 0},
    {CNN, "batch=4 momentum=0.9", "mesh=c3 channels=channel", 3, 0},
    {CNN, "batch=4", "mesh=2x2 replicas=2 allreduce=halving_doubling", 8, 0},
    {RESNET, "batch=4 momentum=0.9 norm=2", "replicas=2", 2, 0},
    {RESNET, "batch=8 momentum=0.9 norm=2", "replicas=4 recompute=none", 4, 0},
    {RESNET, "batch=4 momentum=0.9", "mesh=2x1 replicas=2", 4, 0},
    {RESNET, "batch=4 momentum=0.9 norm=2", "micro=2 stages=2 schedule=1f1b replicas=2", 4, 0},
    {RESNET, "batch=4 momentum=0.9 norm=2", "micro=2 stages=2 schedule=zb_h1 replicas=2", 4, 0},
    {RESNET, "batch=4 momentum=0.9 norm=2", "micro=2 stages=2 schedule=chimera replicas=2", 4, 0},
    {RESNET, "batch=4 norm=1", "micro=2 stages=4 chunks=2 replicas=2", 4, 0},
    {RESNET, "batch=4 momentum=0.9", "mesh=h2w2/layer3.0:n4", 4, 0},
    /* idle ranks, and uneven parts, of which some ranks fetch more ahead than others */
    {RESNET, "batch=4 momentum=0.9 norm=1", "mesh=c3 channels=channel replicas=2 bucket=1500", 6,
     9},
    {GPT, "batch=4 optimizer=adamw", "replicas=2", 2, 0},
    {GPT, "batch=4 optimizer=adamw", "micro=2 stages=2 replicas=2", 4, 0},
    {GPT, "batch=4 optimizer=adamw", "mesh=c2 micro=2 schedule=zb_h1 stages=2 replicas=2", 8, 0},
};

static void compare(const zero_case *c, const char *zero, const char *device, bool weights)
{
    char plan[256], what[320];
    snprintf(plan, sizeof plan, "%s %s zero=%s", c->one, c->many, zero);
    snprintf(what, sizeof what, "%s %s %s%s", device, c->model, plan, weights ? " weights" : "");
    if (only && !strstr(what, only)) return;
    meg_graph *g = network_zoo(c->model, c->options);
    if (strcmp(device, "cpu") == 0) g = smooth_network(g);
    ranks_case judge = {.graph = g,
                        .plan = c->one,
                        .device = "ref64",
                        .ranks = 1,
                        .steps = 3,
                        .rate = 1e-3,
                        .samples = c->samples,
                        .weights = weights},
               many = judge;
    many.plan = plan;
    many.ranks = c->ranks;
    many.device = device;
    assert_true(ranks_agree(&judge, &many, what));
    meg_graph_destroy(g);
}

static void compare_all(const char *zero, const char *device, bool weights)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(&cases[i], zero, device, weights);
}

static void test_states(void **state)
{
    (void)state;
    compare_all("1", "ref64", false);
}

static void test_parts(void **state)
{
    (void)state;
    compare_all("3", "ref64", false);
}

/* Gradients are not kept: with one micro-batch, weights are updated within backward. */
static void test_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strstr(cases[i].many, "micro=") || cases[i].samples)
            compare(&cases[i], "3", "ref64", true);
}

static void test_cpu(void **state)
{
    (void)state;
    compare_all("3", "cpu", false);
}

/* Most of its weights are in dense layers. */
static void test_dense(void **state)
{
    (void)state;
    meg_graph *g = network_zoo("vgg11", "image=3x32x32 classes=5 hidden=1024 width=16");
    g = smooth_network(g);
    ranks_case judge = {.graph = g,
                        .plan = "batch=4 momentum=0.9",
                        .device = "ref64",
                        .ranks = 1,
                        .steps = 2,
                        .rate = 1e-3},
               many = judge;
    many.plan = "batch=4 momentum=0.9 replicas=4 zero=3";
    many.ranks = 4;
    many.device = "cpu";
    assert_true(ranks_agree(&judge, &many, "vgg11 zero=3"));
    meg_graph_destroy(g);
}

/* ---- memory ---- */

static meg_plan *plan_of(const meg_graph *g, const char *words, int rank, int ranks)
{
    meg_error e;
    meg_plan *p = NULL;
    meg_world world = {rank, ranks};
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
        fail_msg("%s: %s", words, e.message);
    return p;
}

/* Elements that a rank holds in some roles. */
static int64_t held(const meg_plan *p, meg_role role)
{
    int64_t count = 0;
    for (int i = 0; i < p->held_slots; i++)
        if (p->held[i].role == role &&
            p->entry[MEG_ENTRY_TRAIN].graph->value[p->held[i].value].kind == MEG_PARAMETER)
            count += meg_box_size(&p->held[i].box);
    return count;
}

/* An even part of every weight, along its first axis that has more than one. */
static int64_t even_parts(const meg_graph *g, int rank, int ranks)
{
    int64_t count = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_box *b = &g->value[i].shape;
        if (g->value[i].kind != MEG_PARAMETER) continue;
        int axis = 0;
        while (axis < MEG_AXES - 1 && meg_extent(b, axis) == 1)
            axis++;
        int64_t n = meg_extent(b, axis);
        count += meg_box_size(b) / n * (n * (rank + 1) / ranks - n * rank / ranks);
    }
    return count;
}

static void test_held(void **state)
{
    enum {
        RANKS = 4
    };
    (void)state;
    meg_graph *g = network_zoo("cnn", "image=1x28x28 classes=10");
    for (int r = 0; r < RANKS; r++) {
        meg_plan *one = plan_of(g, "batch=8 optimizer=adam zero=1", r, RANKS);
        meg_plan *all = plan_of(g, "batch=8 optimizer=adam zero=3 keep_grads=1", r, RANKS);
        int64_t part = even_parts(g, r, RANKS), whole = even_parts(g, 0, 1);
        assert_int_equal(held(one, MEG_ROLE_VALUE), whole);
        assert_int_equal(held(one, MEG_ROLE_STATE), 2 * part);
        assert_int_equal(held(all, MEG_ROLE_VALUE), part);
        assert_int_equal(held(all, MEG_ROLE_GRADIENT), part);
        assert_int_equal(held(all, MEG_ROLE_STATE), 2 * part);
        assert_true(part < whole / 3);
        meg_plan_destroy(one);
        meg_plan_destroy(all);
    }
    meg_graph_destroy(g);
}

/* A network of many weights and few pixels: its arena is weights. */
static void test_arena(void **state)
{
    enum {
        PLANS = 4
    };
    static const char *const words[PLANS] = {"zero=0", "zero=1", "zero=3", "zero=3 bucket=1"};
    int64_t arena[PLANS];
    (void)state;
    meg_graph *g = network_zoo("vgg11", "image=3x32x32 classes=10 hidden=256");
    for (int i = 0; i < PLANS; i++) {
        char plan[64];
        snprintf(plan, sizeof plan, "batch=8 momentum=0.9 %s", words[i]);
        meg_plan *p = plan_of(g, plan, 1, 4);
        arena[i] = p->arena;
        print_message("%s: %.1f MB\n", words[i], (double)p->arena / 1e6);
        meg_plan_destroy(p);
    }
    meg_graph_destroy(g);
    assert_true(arena[1] < arena[0]);
    assert_true(arena[2] < arena[1]);
    assert_true(arena[3] < arena[2] && arena[3] < arena[0] / 2); /* nothing is fetched ahead */
}

/* Without optimizer states zero=1 has nothing to cut, and gathers nothing. */
static void test_stateless(void **state)
{
    (void)state;
    meg_graph *g = network_zoo("cnn", "image=1x28x28 classes=10");
    meg_plan *whole = plan_of(g, "batch=8", 1, 4), *states = plan_of(g, "batch=8 zero=1", 1, 4);
    meg_messages a = meg_entry_messages(&whole->entry[MEG_ENTRY_TRAIN]);
    meg_messages b = meg_entry_messages(&states->entry[MEG_ENTRY_TRAIN]);
    assert_int_equal(a.sums, b.sums);
    assert_int_equal(whole->arena, states->arena);
    meg_plan_destroy(whole);
    meg_plan_destroy(states);
    meg_graph_destroy(g);
}

/* Two gathers and a sum by parts are three halves of a reduction. */
static void test_bytes(void **state)
{
    (void)state;
    meg_graph *g = network_zoo("cnn", "image=1x28x28 classes=10");
    meg_plan *whole = plan_of(g, "batch=8 bucket=1", 1, 4);
    meg_plan *parts = plan_of(g, "batch=8 bucket=1 zero=3", 1, 4);
    int64_t all = meg_entry_messages(&whole->entry[MEG_ENTRY_TRAIN]).sum_bytes;
    int64_t halves = meg_entry_messages(&parts->entry[MEG_ENTRY_TRAIN]).sum_bytes;
    print_message("summed: %lld bytes, in halves %lld\n", (long long)all, (long long)halves);
    assert_true(halves > all && halves <= all + all / 2);
    meg_plan_destroy(whole);
    meg_plan_destroy(parts);
    meg_graph_destroy(g);
}

static void test_refused(void **state)
{
    (void)state;
    meg_error e;
    meg_plan *p = NULL;
    meg_graph *g = network_zoo("cnn", "image=1x28x28 classes=10");
    assert_int_equal(meg_plan_make(g, &e, &meg_profile_plain, "zero=2", 0, &p), MEG_EARG);
    assert_string_equal(e.message, "plan: zero=2 is not known: use 0|1|3");
    meg_graph_destroy(g);
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_at_once),   cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_dense),     cmocka_unit_test(test_held),
        cmocka_unit_test(test_arena),     cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_stateless), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
