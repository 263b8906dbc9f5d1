/* The zoo builds what the papers and torchvision have: parameter counts to the last one, shapes,
 * parameter names, and messages that say what would be right.
 */
#include "graph/op.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct count_case {
    const char *model, *options;
    int64_t parameters;
} count_case;

/* torchvision 0.29 (resnet, vgg), the Keras example (ResNet-110 v2), tools/torch_models.py */
static const count_case counts[] = {
    {"resnet18", "", 11689512},
    {"resnet34", "", 21797672},
    {"resnet50", "", 25557032},
    {"resnet101", "", 44549160},
    {"resnet152", "", 60192808},
    {"resnet18", "image=1x64x64", 11683240},
    {"resnet-cifar", "", 272474},
    {"resnet-cifar", "image=1x28x28", 272186},
    {"resnet-cifar", "depth=110 version=2", 3302442},
    {"resnet-cifar", "depth=29 version=2 image=1x28x28", 843498},
    {"vgg11", "", 132863336},
    {"vgg11", "bn=1", 132868840},
    {"vgg13", "", 133047848},
    {"vgg16", "", 138357544},
    {"vgg19", "", 143667240},
    {"vgg11", "image=3x32x32 hidden=64 classes=10", 9258122},
    {"cnn", "", 218586},
};

static meg_graph *build(const char *model, const char *options)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    meg_status status = meg_zoo_build(&e, model, options, &g);
    if (status != MEG_OK) fail_msg("%s %s: %s", model, options, e.message);
    return g;
}

static void test_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const count_case *c = &counts[i];
        meg_graph *g = build(c->model, c->options);
        if (meg_graph_trainable(g) != c->parameters)
            fail_msg("%s %s: expected %lld parameters, got %lld", c->model, c->options,
                     (long long)c->parameters, (long long)meg_graph_trainable(g));
        meg_graph_destroy(g);
    }
}

static void assert_dims(const meg_graph *g, const char *name, int rank, const int64_t dims[])
{
    int id = meg_graph_find_value(g, name);
    if (id < 0) fail_msg("%s: no value %s", g->name, name);
    const meg_value *v = &g->value[id];
    assert_int_equal(v->rank, rank);
    for (int i = 0; i < rank; i++)
        if (v->dims[i] != dims[i])
            fail_msg("%s: axis %d: expected %lld, got %lld", name, i, (long long)dims[i],
                     (long long)v->dims[i]);
}

static void test_names(void **state)
{
    (void)state;
    meg_graph *g = build("resnet50", "");
    assert_dims(g, "image", 4, (int64_t[]){1, 3, 224, 224});
    assert_dims(g, "conv1.weight", 4, (int64_t[]){64, 3, 7, 7});
    assert_dims(g, "layer1.0.downsample.0.weight", 4, (int64_t[]){256, 64, 1, 1});
    assert_dims(g, "layer4.2.bn3.running_var", 1, (int64_t[]){2048});
    assert_dims(g, "layer4.2.relu", 4, (int64_t[]){1, 2048, 7, 7});
    assert_dims(g, "fc.weight", 2, (int64_t[]){1000, 2048});
    assert_int_equal(meg_graph_find_value(g, "layer1.1.downsample.0.weight"), -1);
    /* v1.5: the 3x3 strides */
    assert_dims(g, "layer2.0.conv1", 4, (int64_t[]){1, 128, 56, 56});
    assert_dims(g, "layer2.0.conv2", 4, (int64_t[]){1, 128, 28, 28});
    meg_graph_destroy(g);

    g = build("vgg16", "");
    assert_dims(g, "features.28.weight", 4, (int64_t[]){512, 512, 3, 3});
    assert_dims(g, "classifier.0.weight", 2, (int64_t[]){4096, 25088});
    assert_dims(g, "classifier.6.bias", 1, (int64_t[]){1000});
    meg_graph_destroy(g);
}

static void test_cifar(void **state)
{
    (void)state;
    meg_graph *g = build("resnet-cifar", "depth=110 version=2");
    assert_int_equal(meg_graph_find_value(g, "layer1.0.bn1.weight"), -1);
    assert_dims(g, "layer1.1.bn1.weight", 1, (int64_t[]){64});
    assert_dims(g, "layer1.0.downsample.bias", 1, (int64_t[]){64});
    assert_dims(g, "layer3.11.add", 4, (int64_t[]){1, 256, 8, 8});
    assert_dims(g, "fc", 2, (int64_t[]){1, 10});
    meg_graph_destroy(g);

    g = build("resnet-cifar", "image=1x28x28");
    assert_dims(g, "layer3.2.relu", 4, (int64_t[]){1, 64, 7, 7});
    meg_graph_destroy(g);
}

/* Weights start as torchvision's do; what is not said starts as the operator has it. */
static void test_starts(void **state)
{
    (void)state;
    meg_graph *g = build("vgg11", "image=3x32x32 hidden=64");
    const meg_value *conv = &g->value[meg_graph_find_value(g, "features.3.weight")];
    assert_int_equal(conv->start, MEG_NORMAL);
    assert_true(fabs(conv->bound - sqrt(2.0 / (128 * 9))) < 1e-12);
    assert_int_equal(g->value[meg_graph_find_value(g, "features.3.bias")].start, MEG_ZEROS);
    const meg_value *dense = &g->value[meg_graph_find_value(g, "classifier.3.weight")];
    assert_int_equal(dense->start, MEG_NORMAL);
    assert_true(fabs(dense->bound - 0.01) < 1e-12);
    meg_graph_destroy(g);
}

static void test_rebatch(void **state)
{
    (void)state;
    const meg_model *m;
    for (int i = 0; (m = meg_zoo_at(i)); i++) {
        meg_graph *g = build(m->name, "");
        int64_t before = meg_graph_trainable(g);
        int logits = g->node[g->nodes - 1].in[0];
        assert_int_equal(g->losses, 1);
        meg_error e = {0};
        assert_int_equal(meg_graph_rebatch(g, &e, 6), MEG_OK);
        assert_int_equal(g->batch, 6);
        assert_int_equal(meg_graph_trainable(g), before);
        assert_int_equal(g->value[logits].shape.hi[MEG_N], 6);
        assert_int_equal(g->value[g->loss[0].value].shape.hi[MEG_N], 1);
        meg_graph_destroy(g);
    }
}

typedef struct error_case {
    const char *model, *options, *says;
} error_case;

static const error_case errors[] = {
    {"resnet51", "", "unknown model 'resnet51'; known: cnn resnet18 resnet34 resnet50"},
    {"resnet-cifar", "depth=21", "depth=21, but version 1 has 6n+2 layers: use 20 or 26"},
    {"resnet-cifar", "depth=8 version=2", "version 2 has 9n+2 layers: use 11 or 20"},
    {"resnet-cifar", "version=3", "version=3 is out of range: use 1..2"},
    {"resnet50", "depth=20", "resnet50: unknown word 'depth'; known: image classes"},
    {"cnn", "image=28", "image has 1 extent, but wants CxHxW (image=3x224x224) or CxDxHxW"},
    {"cnn", "classes=1", "classes=1 is out of range"},
    {"vgg11", "image=3x16x64", "an extent of 16, but is halved 5 times: use 32 or more"},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        const error_case *c = &errors[i];
        meg_error e = {0};
        meg_graph *g = NULL;
        assert_int_equal(meg_zoo_build(&e, c->model, c->options, &g), MEG_EARG);
        assert_null(g);
        if (!strstr(e.message, c->says))
            fail_msg("%s %s: expected '%s', got '%s'", c->model, c->options, c->says, e.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_cifar),   cmocka_unit_test(test_starts),
        cmocka_unit_test(test_rebatch), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
