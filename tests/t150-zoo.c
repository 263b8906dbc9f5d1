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

/* torchvision 0.29 (resnet, vgg), the Keras example (ResNet-110 v2), tools/torch_models.py and its
 * torch_zoo_*.py; U-Net 3-D: the 19,069,955 of its paper; CosmoFlow: the sum of ParaDL's table */
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
    {"vgg19", "classes=2", 139578434},
    {"resnet50", "classes=2", 23512130},
    {"resnet-cifar", "depth=1001 version=2", 30347658},
    {"alexnet", "", 61100840},
    {"alexnet", "classes=2", 57012034},
    {"alexnet", "classes=2 image=3x63x95", 57012034},
    {"inception-v3", "", 27161264},
    {"inception-v3", "classes=2", 24348900},
    {"inception-v3", "image=3x75x75 aux=0", 23834568},
    {"amoebanet-d", "", 81505540},
    {"amoebanet-d", "filters=214 classes=10", 81242028},
    {"amoebanet-d", "filters=214 classes=2 pool=avg", 81214884},
    {"amoebanet-d", "filters=256", 122470120},
    {"amoebanet-d", "filters=416", 319024120},
    {"amoebanet-d", "layers=36 filters=544 image=3x32x32", 1055832376},
    {"amoebanet-d", "layers=72 filters=512 image=3x32x32", 1844858344},
    {"gpt", "tokens=1024", 124439808},
    {"gpt", "tokens=7 classes=11 layers=2 heads=3 width=12", 4008},
    {"vit_b_16", "", 86567656},
    {"vit_b_32", "", 88224232},
    {"vit_l_16", "", 304326632},
    {"unet", "image=1x512x512", 31030658},
    {"unet", "image=1x572x572 crop=1", 31030658},
    {"unet", "", 31031810},
    {"unet", "bn=1", 31037698},
    {"unet", "up=nearest", 28942850},
    {"unet", "up=bilinear depth=2 width=8", 27554},
    {"unet3d", "image=3x132x132x116 classes=3 bn=0 crop=1", 19069955},
    {"unet3d", "", 19070498},
    {"relaynet", "", 777489},
    {"relaynet", "image=3x512x64", 780177},
    {"relaynet", "image=3x64x51 classes=2", 779657},
    {"cosmoflow", "", 2131252},
    {"cosmoflow", "bias=0", 2128064},
    {"cosmoflow", "form=256 image=4x256x256x256 bias=0", 2128064},
    {"cosmoflow", "form=512 image=4x512x512x512 bias=0", 2128064},
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

    g = build("alexnet", "");
    assert_dims(g, "features.12", 4, (int64_t[]){1, 256, 6, 6});
    assert_dims(g, "classifier.1.weight", 2, (int64_t[]){4096, 9216});
    meg_graph_destroy(g);
    g = build("alexnet", "image=3x63x128"); /* the pools leave 1x3, the bins are 6x6 */
    assert_dims(g, "features.12", 4, (int64_t[]){1, 256, 1, 3});
    assert_dims(g, "avgpool", 4, (int64_t[]){1, 256, 6, 6});
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

/* Names and shapes of torchvision's modules; two losses, of which the second counts 0.4, and one
 * label. */
static void test_inception(void **state)
{
    (void)state;
    meg_graph *g = build("inception-v3", "classes=7");
    assert_dims(g, "Conv2d_4a_3x3.conv.weight", 4, (int64_t[]){192, 80, 3, 3});
    assert_dims(g, "maxpool2", 4, (int64_t[]){1, 192, 35, 35});
    assert_dims(g, "Mixed_5b.branch_pool.bn.running_var", 1, (int64_t[]){32});
    assert_dims(g, "Mixed_5d.concat", 4, (int64_t[]){1, 288, 35, 35});
    assert_dims(g, "Mixed_6d.branch7x7dbl_4.conv.weight", 4, (int64_t[]){160, 160, 7, 1});
    assert_dims(g, "Mixed_6e.concat", 4, (int64_t[]){1, 768, 17, 17});
    assert_dims(g, "AuxLogits.conv1.relu", 4, (int64_t[]){1, 768, 1, 1});
    assert_dims(g, "AuxLogits.fc.weight", 2, (int64_t[]){7, 768});
    assert_dims(g, "Mixed_7a.concat", 4, (int64_t[]){1, 1280, 8, 8});
    assert_dims(g, "Mixed_7c.branch3x3dbl_3b.conv.weight", 4, (int64_t[]){384, 384, 3, 1});
    assert_dims(g, "Mixed_7c.concat", 4, (int64_t[]){1, 2048, 8, 8});

    assert_int_equal(g->losses, 2);
    const meg_node *main = &g->node[g->value[g->loss[0].value].maker];
    const meg_node *aux = &g->node[g->value[g->loss[1].value].maker];
    assert_int_equal(main->in[0], meg_graph_find_value(g, "fc"));
    assert_int_equal(aux->in[0], meg_graph_find_value(g, "AuxLogits.fc"));
    assert_int_equal(main->in[1], aux->in[1]);
    assert_true(g->loss[0].weight == 1 && g->loss[1].weight == 0.4);
    meg_graph_destroy(g);

    g = build("inception-v3", "aux=0 image=3x75x75");
    assert_int_equal(g->losses, 1);
    assert_int_equal(meg_graph_find_value(g, "AuxLogits.fc"), -1);
    assert_dims(g, "Mixed_7c.concat", 4, (int64_t[]){1, 2048, 1, 1});
    meg_graph_destroy(g);
}

/* 22 cells; a normal one behind a reduction sees the older state factorized; between like cells the
 * older state is taken as it is only if it has the cell's width. */
static void test_amoebanet(void **state)
{
    (void)state;
    meg_graph *g = build("amoebanet-d", "");
    assert_dims(g, "stem.conv1", 4, (int64_t[]){1, 52, 112, 112});
    assert_dims(g, "cells.0.concat", 4, (int64_t[]){1, 3 * 104, 56, 56});
    assert_dims(g, "cells.0.reduce2.conv1.weight", 4, (int64_t[]){104, 52, 1, 1});
    assert_dims(g, "cells.1.reduce2.conv1.weight", 4, (int64_t[]){104, 52, 1, 1});
    assert_dims(g, "cells.2.reduce2.conv2", 4, (int64_t[]){1, 104, 28, 28});
    assert_dims(g, "cells.2.ops.3.conv2.weight", 4, (int64_t[]){52, 52, 1, 7});
    assert_dims(g, "cells.7.concat", 4, (int64_t[]){1, 4 * 208, 28, 28});
    assert_dims(g, "cells.8.ops.3.conv2", 4, (int64_t[]){1, 104, 14, 14});
    assert_dims(g, "cells.21.concat", 4, (int64_t[]){1, 4 * 832, 7, 7});
    assert_int_equal(meg_graph_find_value(g, "cells.22.concat"), -1);
    assert_int_equal(meg_graph_find_value(g, "cells.3.reduce2.conv2"), -1);
    /* the genotype's maxima are maxima by default */
    const meg_value *pool = &g->value[meg_graph_find_value(g, "cells.2.ops.1.maxpool")];
    assert_string_equal(g->node[pool->maker].op->name, "maxpool");
    meg_graph_destroy(g);

    g = build("amoebanet-d", "layers=3 filters=16 image=3x32x32 pool=avg");
    pool = &g->value[meg_graph_find_value(g, "cells.2.ops.1.avgpool")];
    assert_string_equal(g->node[pool->maker].op->name, "avgpool");
    meg_graph_destroy(g);
}

/* The way down and up of U-Nets, and what the original form cuts off. */
static void test_unet(void **state)
{
    (void)state;
    meg_graph *g = build("unet", "");
    assert_dims(g, "enc1.conv1.weight", 4, (int64_t[]){64, 3, 3, 3});
    assert_dims(g, "mid.relu2", 4, (int64_t[]){1, 1024, 32, 32});
    assert_dims(g, "dec4.up.weight", 4, (int64_t[]){1024, 512, 2, 2});
    assert_dims(g, "dec1.concat", 4, (int64_t[]){1, 128, 512, 512});
    assert_dims(g, "label", 3, (int64_t[]){1, 512, 512});
    meg_graph_destroy(g);

    g = build("unet", "image=1x572x572 crop=1");
    assert_dims(g, "mid.relu2", 4, (int64_t[]){1, 1024, 28, 28});
    assert_dims(g, "dec4.crop", 4, (int64_t[]){1, 512, 56, 56});
    assert_dims(g, "dec1.crop", 4, (int64_t[]){1, 64, 392, 392});
    assert_dims(g, "head", 4, (int64_t[]){1, 2, 388, 388});
    assert_dims(g, "label", 3, (int64_t[]){1, 388, 388});
    meg_graph_destroy(g);

    g = build("unet3d", "image=3x116x132x132 crop=1");
    assert_dims(g, "enc1.conv1.weight", 5, (int64_t[]){32, 3, 3, 3, 3});
    assert_dims(g, "dec3.up.weight", 5, (int64_t[]){512, 512, 2, 2, 2});
    assert_dims(g, "dec3.concat", 5, (int64_t[]){1, 768, 14, 18, 18});
    assert_dims(g, "head", 5, (int64_t[]){1, 2, 28, 44, 44});
    meg_graph_destroy(g);
}

static void test_volumes(void **state)
{
    (void)state;
    meg_graph *g = build("relaynet", "image=1x36x45");
    assert_dims(g, "encode2.maxpool", 4, (int64_t[]){1, 64, 9, 11});
    assert_dims(g, "decode1.concat", 4, (int64_t[]){1, 128, 9, 11});
    assert_dims(g, "decode3.prelu.weight", 1, (int64_t[]){1});
    assert_dims(g, "classifier.conv", 4, (int64_t[]){1, 10, 36, 45});
    meg_graph_destroy(g);

    g = build("cosmoflow", "form=512 image=4x512x512x512");
    assert_dims(g, "pool2", 5, (int64_t[]){1, 32, 126, 126, 126});
    assert_dims(g, "conv3", 5, (int64_t[]){1, 64, 62, 62, 62});
    assert_dims(g, "pool6", 5, (int64_t[]){1, 256, 2, 2, 2});
    assert_dims(g, "fc1.weight", 2, (int64_t[]){2048, 128});
    assert_dims(g, "target", 2, (int64_t[]){1, 4});
    meg_graph_destroy(g);

    g = build("cosmoflow", "form=256 image=4x256x256x512");
    assert_dims(g, "conv4", 5, (int64_t[]){1, 128, 16, 16, 32});
    assert_dims(g, "fc1.weight", 2, (int64_t[]){2048, 128 * 3});
    meg_graph_destroy(g);
}

static void test_transformers(void **state)
{
    (void)state;
    meg_graph *g = build("gpt", "");
    assert_dims(g, "tokens", 2, (int64_t[]){1, 128});
    assert_dims(g, "wpe.weight", 3, (int64_t[]){1, 128, 768});
    assert_dims(g, "h.11.attn.c_attn.weight", 2, (int64_t[]){2304, 768});
    assert_dims(g, "h.0.mlp.c_proj.weight", 2, (int64_t[]){768, 3072});
    assert_dims(g, "lm_head", 3, (int64_t[]){1, 50257, 128});
    assert_dims(g, "label", 2, (int64_t[]){1, 128});
    assert_int_equal(meg_graph_find_value(g, "lm_head.weight"), -1);
    assert_int_equal(meg_graph_consumers(g, meg_graph_find_value(g, "wte.weight")), 2);
    const meg_value *join = &g->value[meg_graph_find_value(g, "h.3.attn.c_proj.weight")];
    assert_true(fabs(join->bound - 0.02 / sqrt(24)) < 1e-12);
    meg_graph_destroy(g);

    g = build("vit_b_16", "");
    assert_dims(g, "conv_proj", 4, (int64_t[]){1, 768, 14, 14});
    assert_dims(g, "class_token", 3, (int64_t[]){1, 1, 768});
    assert_dims(g, "encoder.pos_embedding", 3, (int64_t[]){1, 197, 768});
    assert_dims(g, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", 2,
                (int64_t[]){2304, 768});
    assert_dims(g, "encoder.layers.encoder_layer_0.mlp.3.bias", 1, (int64_t[]){768});
    assert_dims(g, "heads.head", 2, (int64_t[]){1, 1000});
    assert_int_equal(g->value[meg_graph_find_value(g, "heads.head.weight")].start, MEG_ZEROS);
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

    g = build("alexnet", "");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "features.3.bias" : "features.3.weight";
        const meg_value *v = &g->value[meg_graph_find_value(g, name)];
        assert_int_equal(v->start, MEG_UNIFORM);
        assert_true(fabs(v->bound - 1 / sqrt(64 * 25)) < 1e-12);
    }
    dense = &g->value[meg_graph_find_value(g, "classifier.4.weight")];
    assert_true(dense->start == MEG_UNIFORM && fabs(dense->bound - 1.0 / 64) < 1e-12);
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
        assert_int_equal(g->losses, strcmp(m->name, "inception-v3") ? 1 : 2);
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
    {"resnet51", "", "unknown model 'resnet51' (did you mean resnet50?); known: alexnet "},
    {"resnet-cifar", "depth=21", "depth=21, but version 1 has 6n+2 layers: use 20 or 26"},
    {"resnet-cifar", "depth=8 version=2", "version 2 has 9n+2 layers: use 11 or 20"},
    {"resnet-cifar", "version=3", "version=3 is out of range: use 1..2"},
    {"resnet50", "depth=20", "resnet50: unknown word 'depth'; known: image classes"},
    {"cnn", "image=28", "image has 1 extent, but wants CxHxW (image=3x224x224) or CxDxHxW"},
    {"cnn", "classes=1", "classes=1 is out of range"},
    {"vit_b_32", "image=3x64x48", "an extent of 48, but is cut into patches of 32"},
    {"gpt", "tokens=8x8", "tokens has 2 extents, but wants one (tokens=128)"},
    {"vgg11", "image=3x16x64", "an extent of 16, but is halved 5 times: use 32 or more"},
    {"alexnet", "image=3x224x62", "an extent of 62, which its pools use up: use 63 or more"},
    {"inception-v3", "image=3x298x299", "298, but wants 299 or more for its auxiliary head (75"},
    {"inception-v3", "image=3x74x75 aux=0", "an extent of 74, but wants 75 or more"},
    {"amoebanet-d", "layers=20", "layers=20, but there are three equal groups: use 18 or 21"},
    {"amoebanet-d", "layers=2", "layers=2, but there are three equal groups: use 3 or 6"},
    {"amoebanet-d", "image=3x32x48",
     "an extent of 48, but is halved 5 times: use a multiple of 32"},
    {"unet", "image=3x500x512",
     "an extent of 500, which 4 pools do not halve without rest: use 496 "
     "or 512"},
    {"unet", "image=3x512x512 crop=1",
     "4 pools and crop=1 do not halve without rest: use 508 or 524"},
    {"unet", "image=3x8x8", "use 16"},
    {"unet3d", "image=1x64x64", "image has 3 extents, but wants CxDxHxW"},
    {"relaynet", "image=1x7x64", "wants images CxHxW, 8 pixels high and wide or more"},
    {"cosmoflow", "image=4x64x128x128", "with 6 pools wants volumes CxDxHxW, 128 voxels or more"},
    {"cosmoflow", "form=512", "with 6 pools wants volumes CxDxHxW, 394 voxels or more"},
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
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_cifar),        cmocka_unit_test(test_inception),
        cmocka_unit_test(test_amoebanet),    cmocka_unit_test(test_unet),
        cmocka_unit_test(test_volumes),      cmocka_unit_test(test_starts),
        cmocka_unit_test(test_transformers), cmocka_unit_test(test_rebatch),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
