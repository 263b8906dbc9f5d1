/* What a file must not lose without a word (tests/golden/onnx/corners, by tools/make_onnx_corners.py):
 * each is refused with these words, or trains just these weights beside its layers, and none more are
 * saved.
 */
#include "graph/graph.h"
#include "graph/op.h"
#include "import/onnx/onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER MEG_SOURCE_DIR "/tests/golden/onnx/corners/"

static const struct {
    const char *file;
    const char *refused; /* NULL: it is read, and has: */
    const char *trained; /* beside conv and fc; "": nothing */
} CASES[] = {
    {"max-absent", "input 1 is missing", NULL},
    {"max-unknown", "which nothing before it makes", NULL},
    {"half-parameter", NULL, "gain"},
    {"half-constant", NULL, ""},
    {"truths", NULL, ""},
    {"clip-trained", NULL, "low"},
    {"clip-simplified", NULL, ""},
    {"named-val", NULL, "val_scale"},
    {"untied", "a trained weight, another shape", NULL},
    {"mask-twice", "the same random numbers", NULL},
    {"mask-inverse", "the same random numbers", NULL},
    {"mask-trained", "random numbers are supported as a mask", NULL},
    {"mask-scaled", NULL, ""},
    {"bias-of-zeros", NULL, "bias"},
    {"fixed-positions", NULL, ""},
    {"tied-and-merged", NULL, "b.weight b.bias c.weight c.bias"}, /* a is b, c is not */
    {"mask-of-heads", NULL, ""},
    {"merged-scales", NULL, "a.scale b.scale"},
    {"merged-unsaid", NULL, "a.scale"},
    {"merged-twice", NULL, "n.weight n.bias m.weight m.bias"},
    {"merged-tied", NULL, "n.weight n.bias o.weight o.bias"}, /* m is o */
    {"merged-views", NULL, "a.scale b.scale"},
    {"merged-clones", NULL, "a.w b.w"},
    {"tied-zeros", NULL, "a.weight b.bias b.weight c.weight c.bias"},
};

static bool is_layers(const char *name)
{
    return strncmp(name, "conv.", 5) == 0 || strncmp(name, "fc.", 3) == 0;
}

static void check_trained(const meg_graph *g, const char *file, const char *trained)
{
    char got[256] = "";
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        if (!meg_kind_lasts(v->kind) || is_layers(v->name)) continue;
        size_t used = strlen(got);
        if (v->kind == MEG_PARAMETER)
            snprintf(got + used, sizeof got - used, "%s%s", used ? " " : "", v->name);
        else if (!v->unsaved) fail_msg("%s: %s would be saved", file, v->name);
    }
    if (strcmp(got, trained) != 0) fail_msg("%s trains '%s', expected '%s'", file, got, trained);
}

static void nothing_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char path[512];
        meg_error e;
        meg_graph *g = NULL;
        snprintf(path, sizeof path, FOLDER "%s.onnx", CASES[i].file);
        bool read = meg_onnx_load(&e, path, "", NULL, &g) == MEG_OK;
        if (read != !CASES[i].refused || (!read && !strstr(e.message, CASES[i].refused)))
            fail_msg("%s: %s", CASES[i].file, read ? "it is read" : e.message);
        if (read) check_trained(g, CASES[i].file, CASES[i].trained);
        meg_graph_destroy(g);
    }
}

static void hear(void *context, const char *message)
{
    snprintf(context, 512, "%s", message);
}

/* Reads the file; every warning must have these words, and there is one just if there are words. */
static meg_graph *heard(const char *path, const char *words)
{
    char told[512] = "";
    meg_error e;
    meg_graph *g = NULL;
    meg_onnx_listener listener = {hear, told};
    if (meg_onnx_load(&e, path, "", &listener, &g) != MEG_OK) fail_msg("%s", e.message);
    if (words ? !strstr(told, words) : *told)
        fail_msg("%s: told '%s', expected '%s'", path, told, words ? words : "");
    return g;
}

/* How many nodes read the value of this name. */
static int readers(const meg_graph *g, const char *name)
{
    int value = meg_graph_find_value(g, name), count = 0;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            count += g->node[i].in[k] == value;
    return count;
}

/* Tensors that the optimizer merged are parted by PyTorch's notes, each with all of its own readers;
 * what nothing is noted of is told. */
static void merged_ones_are_parted(void **state)
{
    static const struct {
        const char *file, *name;
        int readers;
    } cases[] = {
        {"merged-scales", "a.scale", 1}, {"merged-scales", "b.scale", 2},
        {"merged-twice", "n.weight", 1}, {"merged-twice", "m.weight", 2},
        {"merged-twice", "m.bias", 2},   {"tied-zeros", "b.bias", 2},
        {"tied-zeros", "c.bias", 1},     {"merged-tied", "o.bias", 2},
        {"merged-tied", "o.weight", 2},  {"merged-clones", "b.w", 1},
        {"merged-views", "b.scale", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "%s.onnx", cases[i].file);
        meg_graph *g = heard(path, NULL);
        int got = readers(g, cases[i].name);
        if (got != cases[i].readers)
            fail_msg("%s: %d nodes read %s, expected %d", path, got, cases[i].name,
                     cases[i].readers);
        meg_graph_destroy(g);
    }
    meg_graph_destroy(heard(FOLDER "merged-unsaid.onnx", "trained as one"));
}

/* A mask of each head, not of each query, with as many heads as tokens. */
static void masks_of_heads_are_not_causal(void **state)
{
    (void)state;
    meg_graph *g = heard(FOLDER "mask-of-heads.onnx", NULL);
    for (int i = 0; i < g->nodes; i++)
        assert_string_not_equal(g->node[i].op->name, "attention");
    meg_graph_destroy(g);
}

/* The optimizer notes what it did in a list: a batch norm whose offset is 0 leaves no bias behind. */
static void foldings_are_told(void **state)
{
    char told[512] = "";
    meg_error e;
    meg_graph *g = NULL;
    meg_onnx_listener listener = {hear, told};
    (void)state;
    assert_int_equal(meg_onnx_load(&e, FOLDER "folded.onnx", "", &listener, &g), MEG_OK);
    assert_non_null(strstr(told, "optimize=False"));
    meg_graph_destroy(g);
    told[0] = '\0';
    assert_int_equal(meg_onnx_load(&e, FOLDER "tied-and-merged.onnx", "", &listener, &g), MEG_OK);
    assert_string_equal(told, "");
    meg_graph_destroy(g);
}

/* Constants are computed with as they are: 16 bits, and truths of any number but 0. */
static void constants_keep_their_numbers(void **state)
{
    static const struct {
        const char *file;
        double number[4];
    } cases[] = {{"half-constant", {0.25, 0.5, 0.75, 1}}, {"truths", {1, 0, 1, 1}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        meg_error e;
        meg_graph *g = NULL;
        int found = 0;
        snprintf(path, sizeof path, FOLDER "%s.onnx", cases[i].file);
        assert_int_equal(meg_onnx_load(&e, path, "", NULL, &g), MEG_OK);
        for (int k = 0; k < g->values; k++) {
            const meg_value *v = &g->value[k];
            if (v->kind != MEG_FIXED) continue;
            found++;
            for (int n = 0; n < 4; n++) {
                float number;
                assert_int_equal(v->stored.type, MEG_STORED_F32);
                memcpy(&number, (const char *)v->stored.data + 4 * n, sizeof number);
                assert_true((double)number == cases[i].number[n]);
            }
        }
        assert_int_equal(found, 1);
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(foldings_are_told),
        cmocka_unit_test(merged_ones_are_parted),
        cmocka_unit_test(masks_of_heads_are_not_causal),
        cmocka_unit_test(constants_keep_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
