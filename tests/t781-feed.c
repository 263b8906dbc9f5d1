/* feed=reader: one rank of a replica reads data, the others get it by messages: the answer of one rank. */
#include "classes_check.h"
#include "inputs.h"
#include "plan/program/walk.h"

static const inputs_plan more_plans[] = {
    {"batch=4 norm=2", "mesh=n2", 2, 0},
    {"batch=8 norm=2", "mesh=n2 stages=2 micro=2 level=layer assign=both replicas=2", 8, 0},
    {"batch=8 norm=2 micro=4", "stages=3 schedule=mast level=layer assign=both,seen", 3, 10},
    {"batch=12 norm=2 micro=2", "mesh=2x1 replicas=3", 6, 14}, /* a replica without samples */
    {"batch=12 norm=1", "mesh=2x1 micro=3 replicas=2", 4,
     0}, /* labels per pixel that stay are cut, too */
    {"batch=8 norm=2", "stages=2 micro=4 schedule=gpipe level=layer assign=seen", 2, 0},
    {"batch=8 norm=2", "stages=2 micro=4 schedule=serial level=layer assign=both", 2, 0},
    {"batch=4 norm=2", "mesh=1x2/both:2x1 level=layer", 2, 0},
};

static void agree(const meg_graph *g, const inputs_plan *p, const char *device)
{
    char words[256];
    snprintf(words, sizeof words, "%s %s feed=reader", p->one, p->more);
    ranks_case one = {.graph = g, .plan = p->one, .device = "ref64", .ranks = 1, .steps = 2};
    one.samples = p->samples;
    one.eval = p->samples > 0;
    ranks_case all = one;
    all.plan = words;
    all.ranks = p->ranks;
    all.device = device;
    if (!ranks_agree(&one, &all, words)) fail_msg("%s: one rank and %d differ", words, p->ranks);
}

static void test_same(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    for (int i = 0; i < INPUTS_PLANS; i++)
        agree(g, &inputs_plans[i], "ref64");
    for (size_t i = 0; i < sizeof more_plans / sizeof *more_plans; i++)
        agree(g, &more_plans[i], "ref64");
    meg_graph_destroy(g);
}

/* Kernels of the cpu, and memory that is spoilt when it is freed. */
static void test_devices(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    static const int rows[] = {4, 9, 12, 14};
    for (int i = 0; i < 4; i++) {
        agree(g, &inputs_plans[rows[i]], "cpu");
        agree(g, &inputs_plans[rows[i]], "check");
    }
    meg_graph_destroy(g);
}

/* Other networks: labels per pixel, tokens, two heads on one label. */
static void test_zoo(void **state)
{
    (void)state;
    static const struct {
        const char *model, *options;
        inputs_plan plan;
    } rows[] = {
        {"unet", "image=1x32x32 width=4", {"batch=4 norm=1", "mesh=2x2", 4, 0}},
        {"unet",
         "image=1x32x32 width=4",
         {"batch=4 norm=1", "stages=3 micro=2 mesh=2x1,1,1", 4, 0}},
        {"gpt",
         "tokens=6 layers=2 heads=2 width=8 classes=11",
         {"batch=4", "stages=2 micro=2", 2, 0}},
        {"gpt", "tokens=6 layers=2 heads=2 width=8 classes=11", {"batch=4", "mesh=c2", 2, 0}},
        {"resnet-cifar",
         "depth=8 image=3x13x11 classes=5 width=8",
         {"batch=16 norm=2", "stages=3 micro=4 schedule=mast replicas=2", 6, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        meg_graph *g = network_zoo(rows[i].model, rows[i].options);
        agree(g, &rows[i].plan, "ref64");
        meg_graph_destroy(g);
    }
}

/* Ranks of one class have the same program, and the proof by classes says what that of all ranks says, also of
 * broken lists. */
static void classes(const meg_graph *g, const inputs_plan *p)
{
    meg_error e;
    meg_device *d = NULL;
    meg_plan *plan = NULL;
    uint64_t strict[RANKS_MOST], loose[RANKS_MOST];
    int64_t broken = 0, found = 0;
    char words[256];
    snprintf(words, sizeof words, "%s %s feed=reader", p->one, p->more);
    assert_int_equal(meg_device_open(&e, "ref64", 1, &d), MEG_OK);
    meg_profile profile = meg_profile_of(d);
    for (int r = 0; r < p->ranks; r++) {
        meg_world world = {r, p->ranks};
        meg_plan_destroy(plan);
        plan = NULL;
        if (meg_plan_make_for(g, &e, &profile, &world, words, p->samples, &plan) != MEG_OK)
            fail_msg("%s", e.message);
        strict[r] = classes_hash(plan, false);
        loose[r] = classes_hash(plan, true);
    }
    if (!classes_agree(words, plan, strict, loose) || !classes_prove(words, plan, &broken, &found))
        fail_msg("%s: classes are wrong", words);
    if (p->ranks > 1) assert_true(found > 0);
    meg_plan_destroy(plan);
    meg_device_close(d);
}

static void test_classes(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    for (int i = 0; i < INPUTS_PLANS; i++)
        if (!strstr(inputs_plans[i].more, "segments")) classes(g, &inputs_plans[i]);
    for (size_t i = 0; i < sizeof more_plans / sizeof *more_plans; i++)
        classes(g, &more_plans[i]);
    meg_graph_destroy(g);
}

/* A loss outside: its target comes to all ranks, from the caller. */
static void test_outside(void **state)
{
    (void)state;
    static const inputs_plan plans[] = {
        {"batch=4", "mesh=2x2", 4, 0},
        {"batch=4", "stages=2 mesh=2x1 micro=2 replicas=2 level=layer", 8, 0},
        {"batch=4", "stages=2 schedule=chimera micro=2 level=layer", 2, 0},
        {"batch=4", "mesh=2x2 input_grads=1", 4, 0},
        {"batch=4", "stages=2 mesh=2x1 micro=2 level=layer input_grads=1", 4, 0},
    };
    meg_graph *g = meg_graph_create("outside");
    int x = meg_graph_input(g, "image", 4, (int64_t[]){1, 3, 8, 6});
    int a = inputs_layer(g, "conv", "a", "filters=4 kernel=3 pad=1", x);
    meg_graph_add_loss(g, "outside", "", inputs_layer(g, "gap", "told", "", a), 1);
    meg_graph_add_loss(g, "outside", "",
                       inputs_layer(g, "conv", "c", "filters=3 kernel=3 pad=1", a), 1);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        classes(g, &plans[i]);
    meg_graph_destroy(g);
}

/* How many ranks load samples or labels in training, and how many bytes all of them send. */
static int readers(const meg_graph *g, const char *words, int ranks, int64_t *bytes)
{
    meg_error e;
    meg_device *d = NULL;
    int count = 0;
    assert_int_equal(meg_device_open(&e, "ref64", 1, &d), MEG_OK);
    meg_profile profile = meg_profile_of(d);
    *bytes = 0;
    for (int r = 0; r < ranks; r++) {
        meg_world world = {r, ranks};
        meg_plan *p = NULL;
        bool loads = false;
        if (meg_plan_make_for(g, &e, &profile, &world, words, 0, &p) != MEG_OK)
            fail_msg("%s", e.message);
        const meg_entry *t = &p->entry[MEG_ENTRY_TRAIN];
        for (int i = 0; i < t->stations; i++)
            for (int k = 0; k < t->station[i].instrs; k++) {
                const meg_instr *in = &t->station[i].instr[k];
                const meg_slot *s = in->slot[MEG_Y] >= 0 ? &t->station[i].slot[in->slot[MEG_Y]]
                                                         : NULL;
                loads = loads || (in->code == MEG_LOAD && s->role == MEG_ROLE_VALUE);
            }
        *bytes += meg_entry_messages(t).bytes;
        count += loads;
        meg_plan_destroy(p);
    }
    meg_device_close(d);
    return count;
}

static void test_readers(void **state)
{
    (void)state;
    meg_graph *g = inputs_network(true);
    int64_t each, reader;
    const char *stages = "batch=4 norm=2 stages=3 micro=2 level=layer assign=both,seen replicas=2";
    char words[256];
    snprintf(words, sizeof words, "%s feed=reader", stages);
    assert_int_equal(readers(g, stages, 6, &each), 6);
    assert_int_equal(readers(g, words, 6, &reader), 2); /* one a replica */
    /* In double, of four samples: more, in the second stage; ids (i32), in the third, where all words of a sample are
     * read, and meta and all targets. */
    int64_t numbers = 4 * (2 * 8 * 6 + 7 + 3), whole = 4 * (5 + 1 + 1 + 8 * 6);
    assert_int_equal(reader - each, 8 * numbers + 4 * whole);
    assert_int_equal(readers(g, "batch=4 norm=2 mesh=2x2 feed=reader", 4, &reader), 1);
    assert_int_equal(readers(g, "batch=4 norm=2 replicas=4 feed=reader", 4, &reader), 4);
    assert_int_equal(readers(g,
                             "batch=8 norm=2 stages=2 micro=4 schedule=chimera level=layer "
                             "assign=both feed=reader",
                             2, &reader),
                     2);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readers), cmocka_unit_test(test_classes),
        cmocka_unit_test(test_outside), cmocka_unit_test(test_same),
        cmocka_unit_test(test_zoo),     cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
