/* Groups of nodes: names at every level, cuts that are not convex, order, edges, sums; fingerprints
 * of graphs.
 */
#include "graph/fingerprint.h"
#include "graph/groups.h"
#include "graph/op.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static meg_graph *zoo(const char *model, const char *options)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, model, options, &g) != MEG_OK) fail_msg("%s", e.message);
    return g;
}

static int image(meg_graph *g)
{
    return meg_graph_input(g, "image", 4, (int64_t[]){1, 4, 8, 8});
}

static int conv(meg_graph *g, const char *name, int x)
{
    return meg_graph_add(g, "conv", name, "filters=4 kernel=3 pad=1", 1, &x);
}

static int add(meg_graph *g, const char *name, int a, int b)
{
    return meg_graph_add(g, "add", name, "", 2, (int[]){a, b});
}

/* "name: nodes | name: nodes": the picture that tests assert. */
static void check_picture(const meg_graph *g, meg_level level, const char *want)
{
    char got[4096] = "";
    assert_int_equal(g->error.status, MEG_OK);
    meg_groups *s = meg_groups_new(g, level);
    for (int i = 0; i < s->count; i++) {
        size_t used = strlen(got);
        snprintf(got + used, sizeof got - used, "%s%s:", i ? " | " : "", s->group[i].name);
        for (int k = 0; k < s->group[i].nodes; k++) {
            used = strlen(got);
            snprintf(got + used, sizeof got - used, " %s", g->node[s->group[i].node[k]].name);
        }
    }
    if (strcmp(got, want) != 0) fail_msg("\nexpected %s\ngot      %s", want, got);
    meg_groups_free(s);
}

/* What must hold of all groups of all graphs. */
static void check_sound(const meg_graph *g, meg_level level)
{
    meg_groups *s = meg_groups_new(g, level);
    int nodes = 0;
    int64_t parameters = 0;
    for (int i = 0; i < s->count; i++) {
        assert_true(s->group[i].nodes > 0);
        nodes += s->group[i].nodes;
        parameters += s->group[i].parameters;
        for (int k = 0; k < s->group[i].nodes; k++) {
            assert_int_equal(s->of[s->group[i].node[k]], i);
            assert_true(k == 0 || s->group[i].node[k] > s->group[i].node[k - 1]);
        }
        for (int k = 0; k < i; k++)
            assert_string_not_equal(s->group[i].name, s->group[k].name);
    }
    assert_int_equal(nodes, g->nodes);
    assert_int_equal(parameters, meg_graph_trainable(g));
    int crossings = 0; /* (value, group) pairs, counted the slow way */
    for (int v = 0; v < g->values; v++)
        for (int i = 0; i < s->count; i++) {
            bool reads = false, weight = meg_kind_lasts(g->value[v].kind);
            for (int k = 0; k < s->group[i].nodes; k++)
                for (int x = 0; x < g->node[s->group[i].node[k]].inputs; x++)
                    reads = reads || g->node[s->group[i].node[k]].in[x] == v;
            int from = g->value[v].maker < 0 ? -1 : s->of[g->value[v].maker];
            crossings += reads && !weight && from != i;
        }
    assert_int_equal(s->edges, crossings);
    for (int i = 0; i < s->edges; i++) {
        const meg_group_edge *e = &s->edge[i];
        int maker = g->value[e->value].maker;
        assert_true(e->from < e->to); /* so there is no cycle */
        assert_int_equal(e->from, maker < 0 ? -1 : s->of[maker]);
        assert_true(i == 0 || s->edge[i - 1].to <= e->to);
    }
    meg_groups_free(s);
}

static void test_levels(void **state)
{
    (void)state;
    meg_graph *g = meg_graph_create("levels");
    int x = conv(g, "conv1", image(g));
    x = meg_graph_add(g, "batchnorm", "bn1", "", 1, &x);
    int y = conv(g, "layer1.0.conv1", x);
    y = conv(g, "layer1.0.down.0", y);
    x = add(g, "layer1.0.add", x, y);
    x = conv(g, "layer1.1.conv1", x);
    x = conv(g, "enc1.conv1", x);
    x = conv(g, "enc1.conv2", x);
    x = conv(g, "body.layers.layer_0.fc", x);
    x = conv(g, "body.layers.layer_1.ln_1", x);
    x = conv(g, "Mixed_5b.branch5x5_1.conv", x);
    check_picture(g, MEG_LEVEL_LAYER,
                  "conv1: conv1 | bn1: bn1 | layer1.0.conv1: layer1.0.conv1 | layer1.0.down.0: "
                  "layer1.0.down.0 | layer1.0.add: layer1.0.add | layer1.1.conv1: layer1.1.conv1 | "
                  "enc1.conv1: enc1.conv1 | enc1.conv2: enc1.conv2 | body.layers.layer_0.fc: "
                  "body.layers.layer_0.fc | body.layers.layer_1.ln_1: body.layers.layer_1.ln_1 | "
                  "Mixed_5b.branch5x5_1.conv: Mixed_5b.branch5x5_1.conv");
    check_picture(g, MEG_LEVEL_BLOCK,
                  "conv1: conv1 bn1 | layer1.0: layer1.0.conv1 layer1.0.down.0 layer1.0.add | "
                  "layer1.1: layer1.1.conv1 | enc1: enc1.conv1 enc1.conv2 | body.layers.layer_0: "
                  "body.layers.layer_0.fc | body.layers.layer_1: body.layers.layer_1.ln_1 | "
                  "Mixed_5b: Mixed_5b.branch5x5_1.conv");
    check_picture(g, MEG_LEVEL_MODULE,
                  "conv1: conv1 bn1 | layer1: layer1.0.conv1 layer1.0.down.0 layer1.0.add "
                  "layer1.1.conv1 | enc1: enc1.conv1 enc1.conv2 | body: body.layers.layer_0.fc "
                  "body.layers.layer_1.ln_1 | Mixed_5b: Mixed_5b.branch5x5_1.conv");
    for (meg_level l = MEG_LEVEL_LAYER; l <= MEG_LEVEL_MODULE; l++)
        check_sound(g, l);
    meg_graph_destroy(g);
}

/* a -> b -> a: the second part of a cannot be with the first. But where a is only left, and b
 * only entered, they stay whole, however the nodes lie in between. */
static void test_convex(void **state)
{
    (void)state;
    meg_graph *g = meg_graph_create("hourglass");
    int x = conv(g, "a.1x", image(g));
    int y = conv(g, "b.one", x);
    int z = conv(g, "a.two", x);
    y = conv(g, "b.two", y);
    z = add(g, "a.join", z, y);
    conv(g, "a.three", z);
    check_picture(g, MEG_LEVEL_MODULE, "a: a.1x a.two | b: b.one b.two | a#2: a.join a.three");
    check_sound(g, MEG_LEVEL_MODULE);
    meg_graph_destroy(g);

    g = meg_graph_create("crossed"); /* a and b feed each other: one of them is cut */
    x = image(g);
    int a = conv(g, "a.0x", x), b = conv(g, "b.0x", x);
    int a2 = add(g, "a.1x", b, b), b2 = add(g, "b.1x", a, a);
    add(g, "end", a2, b2);
    check_picture(g, MEG_LEVEL_MODULE, "b: b.0x | a: a.0x a.1x | b#2: b.1x | end: end");
    check_sound(g, MEG_LEVEL_MODULE);
    meg_graph_destroy(g);
}

static void test_edges(void **state)
{
    (void)state;
    meg_graph *g = meg_graph_create("skip");
    int x = image(g);
    int a = conv(g, "a", x), b = conv(g, "b", a), c = add(g, "c", a, b);
    c = add(g, "c.again", c, a);
    meg_groups *s = meg_groups_new(g, MEG_LEVEL_MODULE);
    const meg_group_edge want[] = {{x, -1, 0}, {a, 0, 1}, {a, 0, 2}, {b, 1, 2}};
    assert_int_equal(s->edges, 4);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(&s->edge[i], &want[i], sizeof *want);
    assert_int_equal(s->group[0].parameters, 4 * 4 * 9 + 4);
    assert_int_equal(s->group[2].activation, 2 * 4 * 8 * 8 * 4);
    assert_true(s->group[0].flops >= 2.0 * 4 * 64 * 4 * 9);
    meg_groups_free(s);
    meg_graph_destroy(g);
    meg_groups_free(NULL);
}

static void test_zoo(void **state)
{
    (void)state;
    for (int i = 0; meg_zoo_at(i); i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        if (meg_zoo_build(&e, meg_zoo_at(i)->name, "", &g) != MEG_OK) fail_msg("%s", e.message);
        for (meg_level l = MEG_LEVEL_LAYER; l <= MEG_LEVEL_MODULE; l++)
            if (l != MEG_LEVEL_LAYER || g->nodes < 400) check_sound(g, l);
        meg_graph_destroy(g);
    }
    meg_graph *g = zoo("resnet50", "");
    meg_groups *s = meg_groups_new(g, MEG_LEVEL_BLOCK);
    assert_int_equal(s->count, 20); /* stem, 16 blocks, pool, fc, loss */
    assert_string_equal(s->group[1].name, "layer1.0");
    assert_string_equal(s->group[19].name, "loss");
    assert_int_equal(s->group[19].nodes, 3);
    meg_groups_free(s);
    s = meg_groups_new(g, MEG_LEVEL_MODULE);
    assert_int_equal(s->count, 8);
    meg_groups_free(s);
    meg_graph_destroy(g);
}

static uint64_t print_of(meg_graph *g)
{
    uint64_t print = meg_graph_fingerprint(g);
    meg_graph_destroy(g);
    return print;
}

static void test_fingerprint(void **state)
{
    (void)state;
    meg_error e;
    uint64_t first = print_of(zoo("resnet18", ""));
    assert_true(first == print_of(zoo("resnet18", "")));
    assert_true(first != print_of(zoo("resnet34", "")));
    assert_true(first != print_of(zoo("resnet18", "classes=7")));
    assert_true(first != print_of(zoo("resnet18", "image=3x192x192")));
    meg_graph *g = zoo("resnet18", "");
    assert_int_equal(meg_graph_rebatch(g, &e, 4), MEG_OK);
    assert_true(first == print_of(g)); /* the batch is the plan's */
    g = meg_graph_create("small");
    conv(g, "a", image(g));
    uint64_t small = print_of(g);
    g = meg_graph_create("small");
    int x = image(g);
    meg_graph_add(g, "conv", "a", "filters=4 kernel=3 pad=1 groups=1", 1, &x);
    assert_true(small == print_of(g)); /* a default, spelled out */
    g = meg_graph_create("small");
    x = image(g);
    meg_graph_add(g, "conv", "a", "filters=4 kernel=3 pad=1 stride=2", 1, &x);
    assert_true(small != print_of(g)); /* same weights, another attribute */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),      cmocka_unit_test(test_convex),
        cmocka_unit_test(test_edges),       cmocka_unit_test(test_zoo),
        cmocka_unit_test(test_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
