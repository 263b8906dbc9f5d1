/* ONNX in and out: outputs of onnxruntime (tools/make_onnx.py), round trips, weights that reach the
 * engine, and files that are wrong in every way that was thought of.
 */
#include "exec/reference.h"
#include "import/onnx/onnx.h"
#include "import/onnx/wire/file.h"
#include "import/safetensors/safetensors.h"
#include "scratch.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const double CLOSE = 1e-5; /* float against float, relative by norm */

typedef struct told {
    int count;
    char last[600];
} told;

static void hear(void *context, const char *message)
{
    told *t = context;
    t->count++;
    snprintf(t->last, sizeof t->last, "%s", message);
}

static const char *golden(const char *name, const char *suffix)
{
    static _Thread_local char path[512];
    snprintf(path, sizeof path, MEG_SOURCE_DIR "/tests/golden/onnx/%s%s", name, suffix);
    return path;
}

static meg_graph *load(const char *path, const char *options)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    if (meg_onnx_load(&e, path, options, NULL, &g) != MEG_OK) fail_msg("%s", e.message);
    return g;
}

/* ---- outputs ---- */

static meg_saved tensor_of(const meg_safetensors *f, const char *name)
{
    meg_error e;
    meg_saved t = {0};
    int at = meg_safetensors_find(f, name);
    if (at < 0 || meg_safetensors_at(f, &e, at, &t) != MEG_OK) fail_msg("no tensor %s", name);
    return t;
}

static meg_reference *run(meg_graph *g, const meg_safetensors *f, meg_pass pass)
{
    meg_error e;
    int image = meg_graph_find_value(g, "image");
    if (image < 0) image = meg_graph_find_value(g, "ids");
    meg_saved x = tensor_of(f, g->value[image].name);
    assert_int_equal(meg_graph_rebatch(g, &e, x.dims[0]), MEG_OK);
    meg_reference *r = meg_reference_new(g, 1);
    memcpy(r->data[image], x.data, (size_t)meg_box_size(&g->value[image].shape) * 4);
    meg_reference_run(r, pass);
    return r;
}

/* Relative by norm; refuses a reference that is constant. */
static void check_close(const char *what, const float *got, const float *want, int64_t count)
{
    double difference = 0, norm = 0, mean = 0, spread = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)got[i] - (double)want[i], 2);
        norm += pow((double)want[i], 2);
        mean += (double)want[i] / (double)count;
    }
    for (int64_t i = 0; i < count; i++)
        spread += pow((double)want[i] - mean, 2);
    if (!(spread > 1e-6 * norm)) fail_msg("%s: the reference is constant", what);
    if (!(sqrt(difference / norm) < CLOSE))
        fail_msg("%s: differs by %g, allowed %g", what, sqrt(difference / norm), CLOSE);
}

static void check_outputs(const char *name, meg_graph *g, meg_pass pass)
{
    meg_error e;
    meg_safetensors *f = NULL;
    if (meg_safetensors_open(&e, golden(name, ".safetensors"), &f) != MEG_OK)
        fail_msg("%s", e.message);
    meg_reference *r = run(g, f, pass);
    for (int i = 0; i < g->outputs; i++) {
        char which[64];
        snprintf(which, sizeof which, "output%d", i);
        meg_saved want = tensor_of(f, which);
        const meg_value *y = &g->value[g->output[i]];
        assert_int_equal(y->rank, want.rank);
        for (int k = 0; k < want.rank; k++)
            assert_int_equal(y->dims[k], want.dims[k]);
        float *copy = malloc((size_t)meg_box_size(&y->shape) * sizeof *copy);
        memcpy(copy, want.data, (size_t)meg_box_size(&y->shape) * sizeof *copy);
        check_close(name, r->data[y->id], copy, meg_box_size(&y->shape));
        free(copy);
    }
    meg_reference_free(r);
    meg_safetensors_close(f);
}

static const char *const MODELS[] = {"cnn",    "floats", "points",   "shapes",      "tokens",
                                     "norms",  "ids",    "moved",    "external",    "folded",
                                     "means",  "merged", "nameless", "entries",     "products",
                                     "bounds", "turned", "heads",    "heads-masked"};
enum {
    COUNT = sizeof MODELS / sizeof *MODELS
};

static void outputs_are_those_of_onnxruntime(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        meg_graph *g = load(golden(MODELS[i], ".onnx"), "loss=none");
        check_outputs(MODELS[i], g, MEG_EVAL);
        meg_graph_destroy(g);
    }
    meg_graph *g = load(golden("heads-seen", ".onnx"), "loss=none");
    check_outputs("heads-seen", g, MEG_EVAL);
    meg_graph_destroy(g);
}

static void training_form_moves_statistics(void **state)
{
    (void)state;
    meg_graph *g = load(golden("training", ".onnx"), "loss=none");
    assert_int_equal(g->outputs, 3);
    check_outputs("training", g, MEG_FORWARD);
    meg_graph_destroy(g);
}

/* ---- round trips ---- */

typedef struct numbers {
    const meg_graph *g;
    const meg_reference *r;
} numbers;

static bool from_reference(void *context, const meg_value *v,
                           meg_status (*put)(void *to, const float *piece, int64_t count), void *to)
{
    const numbers *n = context;
    int64_t count = meg_box_size(&v->shape), half = count / 2;
    int id = meg_graph_find_value(n->g, v->name); /* of a graph whose numbering may be another */
    if (id < 0 || meg_box_size(&n->g->value[id].shape) != count) return false;
    const float *data = n->r->data[id];
    put(to, data, half); /* in two pieces */
    put(to, data + half, count - half);
    return true;
}

static void check_same_graph(const meg_graph *a, const meg_graph *b)
{
    assert_int_equal(a->nodes, b->nodes);
    assert_int_equal(a->values, b->values);
    for (int i = 0; i < a->nodes; i++) {
        const meg_node *v = &a->node[i], *w = &b->node[i];
        char first[1024] = "", second[1024] = "";
        assert_string_equal(v->name, w->name);
        assert_string_equal(v->op->name, w->op->name);
        assert_int_equal(v->inputs, w->inputs);
        for (int k = 0; k < v->inputs; k++)
            assert_string_equal(a->value[v->in[k]].name, b->value[w->in[k]].name);
        if (v->op->params) meg_options_print(v->op->params, v->attr, first, sizeof first);
        if (w->op->params) meg_options_print(w->op->params, w->attr, second, sizeof second);
        assert_string_equal(first, second);
    }
    for (int i = 0; i < a->values; i++) {
        int at = meg_graph_find_value(b, a->value[i].name);
        assert_true(at >= 0);
        assert_int_equal(a->value[i].kind, b->value[at].kind);
        assert_true(meg_box_equal(&a->value[i].shape, &b->value[at].shape));
    }
}

static void round_trip(scratch *s, const char *name, int64_t inside)
{
    meg_error e = {0};
    meg_graph *g = load(golden(name, ".onnx"), "loss=none");
    assert_int_equal(meg_graph_rebatch(g, &e, 1), MEG_OK);
    meg_reference *r = meg_reference_new(g, 1);
    numbers all = {g, r};
    meg_onnx_source weights = {from_reference, &all};
    const char *path = scratch_path(s, "again.onnx");
    if (meg_onnx_save(&e, path, g, &weights, inside) != MEG_OK) fail_msg("%s", e.message);
    meg_graph *again = load(path, "loss=none");
    check_outputs(name, again, MEG_EVAL);
    if (meg_onnx_save(&e, scratch_path(s, "third.onnx"), again, &weights, inside) != MEG_OK)
        fail_msg("%s", e.message);
    meg_graph *third = load(scratch_path(s, "third.onnx"), "loss=none");
    assert_int_equal(meg_graph_rebatch(again, &e, 1), MEG_OK);
    check_same_graph(again, third);
    meg_graph_destroy(third);
    meg_graph_destroy(again);
    meg_reference_free(r);
    meg_graph_destroy(g);
}

/* What was written reads as it was; once written, graphs stay as they are. */
static void round_trips_keep_everything(void **state)
{
    scratch *s = *state;
    for (int i = 0; i < COUNT; i++) {
        round_trip(s, MODELS[i], 0);
        if (i == 0) round_trip(s, MODELS[i], 1); /* weights in a file of their own */
    }
}

static void names_and_attributes_survive(void **state)
{
    (void)state;
    meg_graph *g = load(golden("cnn", ".onnx"), "");
    static const char *const names[] = {"conv1",   "bn1",          "layer.0.conv",
                                        "fc",      "conv1.weight", "bn1.running_var",
                                        "fc.bias", "label",        "loss"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (meg_graph_find_value(g, names[i]) < 0) fail_msg("no value '%s'", names[i]);
    assert_int_equal(g->losses, 1);
    assert_int_equal(g->batch, 1);
    assert_int_equal(g->value[meg_graph_find_value(g, "bn1.running_mean")].kind, MEG_STATE);
    const meg_node *bn = &g->node[g->value[meg_graph_find_value(g, "bn1")].maker];
    char text[512];
    meg_options_print(bn->op->params, bn->attr, text, sizeof text);
    assert_string_equal(text, "epsilon=0.001 momentum=0.2 variance=population");
    meg_graph_destroy(g);
}

static void a_loss_has_words(void **state)
{
    (void)state;
    meg_graph *g = load(golden("cnn", ".onnx"), "loss='softmax_xent smoothing=0.25 ignore=3'");
    const meg_node *loss = &g->node[g->value[meg_graph_find_value(g, "loss")].maker];
    char text[512];
    meg_options_print(loss->op->params, loss->attr, text, sizeof text);
    assert_string_equal(text, "ignore=3 smoothing=0.25");
    meg_graph_destroy(g);
}

static void losses_of_the_export_are_told(void **state)
{
    static const struct {
        const char *model, *word;
    } cases[] = {{"cnn", "exported for inference"},
                 {"folded", "folded"},
                 {"floats", "Softmax"},
                 {"training", NULL},
                 {"keras", "a file of Keras"},
                 {"merged", "share the scales of others"},
                 {"nameless", "have lost their names"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        told t = {0};
        meg_error e;
        meg_graph *g = NULL;
        meg_onnx_listener listener = {hear, &t};
        const char *output = i == 2 ? "output=probabilities" : i == 3 ? "output=y" : "";
        if (meg_onnx_load(&e, golden(cases[i].model, ".onnx"), output, &listener, &g) != MEG_OK)
            fail_msg("%s", e.message);
        assert_int_equal(t.count, cases[i].word ? 1 : 0);
        if (cases[i].word && !strstr(t.last, cases[i].word)) fail_msg("told '%s'", t.last);
        meg_graph_destroy(g);
    }
}

/* ---- through the engine ---- */

/* One step with lr=0 leaves the weights: what comes out is what went in. */
static void weights_reach_the_engine_and_come_back(void **state)
{
    scratch *s = *state;
    static const char *const devices[] = {"device=cpu threads=1 log=quiet", "device=ref log=quiet",
                                          "device=ref64 log=quiet"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        meg_context *ctx = NULL;
        meg_graph *g = NULL, *again = NULL;
        meg_data *d = NULL;
        meg_plan *p = NULL;
        meg_trainer *t = NULL;
        const char *path = scratch_path(s, "engine.onnx");
        meg_status status = meg_open(devices[i], &ctx);
        if (!status) status = meg_graph_load(ctx, golden("cnn", ".onnx"), NULL, &g);
        if (!status) status = meg_data_open(ctx, "synthetic:image=3x13x11 classes=5 count=8", &d);
        if (!status) status = meg_plan_new(g, d, "batch=4", &p);
        if (!status) status = meg_trainer_new(p, d, "lr=0", &t);
        if (!status) status = meg_trainer_export(t, path);
        if (!status) status = meg_graph_load(ctx, path, "loss=none", &again);
        if (status) fail_msg("%s", meg_message(ctx));
        check_outputs("cnn", again, MEG_EVAL);
        if (meg_train(t, 2, NULL) != MEG_OK) fail_msg("%s", meg_message(ctx));
        meg_graph_free(again);
        meg_trainer_free(t);
        meg_plan_free(p);
        meg_graph_free(g);
        meg_data_free(d);
        meg_close(ctx);
    }
}

/* ---- what must be refused ---- */

static void bad_models_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *model, *words;
    } cases[] = {
        {"bad-if", "If 'choose': it has a graph inside"},
        {"bad-operator", "Unique 'mix': this operator is not supported"},
        {"bad-cycle", "run in a circle"},
        {"bad-type", "input 'image' is"},
        {"bad-negative", "extent -1 on axis 0"},
        {"bad-huge", "extent 4611686018427387904 on axis 0"},
        {"bad-short", "has 24 bytes of numbers, but its shape asks for 36"},
        {"bad-attribute", "attribute 'slope' is not supported"},
        {"bad-old", "operator set 9"},
        {"bad-past", "give all tokens at once"},
        {"bad-softcap", "write Div, Tanh, Mul"},
        {"bad-open", "image=CxHxW"},
        {"bad-twice", "'y' is made twice"},
        {"bad-outside", "want a file in the model's folder"},
        {"bad-loop", "Loop 'again': it has a graph inside"},
        {"bad-batch", "the batch must be the first axis of output 'y'"},
        {"bad-pool", "GlobalAveragePool 'pool': the batch must be the first axis"},
        {"bad-weights", "Conv 'taps': it reads 'w', which nodes compute of 'u', a trained weight"},
        {"bad-vast", "Expand 'spread': a constant of too many numbers"},
        {"bad-perm", "Transpose 'turn': perm does not name every axis once"},
        {"bad-perm4", "Transpose 'turn': perm does not name every axis once"},
        {"bad-many", "Expand 'spread2': the file's nodes compute or read more than 1048"},
        {"missing", "No such file"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        meg_status status = meg_onnx_load(&e, golden(cases[i].model, ".onnx"), "", NULL, &g);
        if (status == MEG_OK || g) fail_msg("%s was accepted", cases[i].model);
        if (!strstr(e.message, cases[i].words))
            fail_msg("%s: expected '%s', got '%s'", cases[i].model, cases[i].words, e.message);
    }
    meg_graph_destroy(load(golden("bad-open", ".onnx"), "image=3x5x6"));
}

static size_t slurp(const char *path, uint8_t *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t got = fread(to, 1, room, f);
    fclose(f);
    assert_true(got > 0 && got < room);
    return got;
}

/* Whatever it says, it must not crash; sanitizers watch. */
static meg_status try_bytes(scratch *s, const uint8_t *data, size_t bytes)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    unlink(scratch_path(s, "broken.onnx")); /* ext4 syncs a file that is written over */
    const char *path = scratch_write(s, "broken.onnx", data, bytes);
    meg_status status = meg_onnx_load(&e, path, "loss=none", NULL, &g);
    if (status != MEG_OK && (!e.message[0] || g)) fail_msg("an error without message");
    meg_graph_destroy(g);
    return status;
}

/* Of an empty file, of one that ends early, and of text. */
static void files_of_no_model_are_told(void **state)
{
    static const struct {
        const char *bytes, *words;
    } cases[] = {{"", "is empty"},
                 {"\x3a\x7f", "it was cut short"},
                 {"{\"a\": 1}\n", "this is no ONNX file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        const char *path = scratch_write(*state, "no.onnx", cases[i].bytes, strlen(cases[i].bytes));
        assert_int_equal(meg_onnx_load(&e, path, "", NULL, &g), MEG_EDATA);
        if (!strstr(e.message, cases[i].words))
            fail_msg("expected '%s', got '%s'", cases[i].words, e.message);
    }
}

static void cut_files_are_refused(void **state)
{
    scratch *s = *state;
    uint8_t data[4096];
    size_t bytes = slurp(golden("cnn", ".onnx"), data, sizeof data);
    int accepted = 0;
    for (size_t cut = 0; cut < bytes; cut++)
        accepted += try_bytes(s, data, cut) == MEG_OK;
    assert_int_equal(accepted, 0);
    assert_int_equal(try_bytes(s, data, bytes), MEG_OK);
}

static void broken_bytes_do_no_harm(void **state)
{
    scratch *s = *state;
    uint64_t random = 1;
    for (int model = 0; model < 8; model++) {
        uint8_t data[8192], broken[8192];
        size_t bytes = slurp(golden(MODELS[model], ".onnx"), data, sizeof data);
        for (int i = 0; i < 1000; i++) {
            memcpy(broken, data, bytes);
            for (int k = 0; k < 1 + i % 3; k++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                broken[(random >> 33) % bytes] = (uint8_t)(random >> 20);
            }
            try_bytes(s, broken, bytes);
        }
    }
}

/* ---- size ---- */

/* A weight of 2.4 GB inside the file, all of it a hole on the disk. */
static void more_than_2_gigabytes_are_read(void **state)
{
    scratch *s = *state;
    const int64_t count = 600000000;
    meg_wire t = {0}, graph = {0}, model = {0};
    meg_wire_int(&t, 1, count);
    meg_wire_int(&t, 2, MEG_ONNX_FLOAT);
    meg_wire_text(&t, 8, "w");
    meg_wire_hole(&t, 9, 4 * count, 0);
    meg_wire_message(&graph, 5, &t);
    meg_wire_message(&model, 7, &graph);
    assert_int_equal(model.holes, 1);
    const char *path = scratch_write(s, "large.onnx", model.data, model.hole[0].at);
    int64_t all = meg_wire_bytes(&model);
    meg_wire_free(&model);
    if (truncate(path, all) != 0) skip();
    meg_error e;
    meg_onnx_file *f = NULL;
    if (meg_onnx_open(&e, path, &f) != MEG_OK) fail_msg("%s", e.message);
    assert_int_equal(f->tensors, 1);
    assert_int_equal(f->tensor[0].size, count);
    assert_true(fabs(meg_onnx_number(&f->tensor[0], count - 1)) <= 0);
    meg_onnx_close(f);
    assert_int_equal(truncate(path, all - 1), 0);
    assert_int_not_equal(meg_onnx_open(&e, path, &f), MEG_OK);
}

static int open_scratch(void **state)
{
    static scratch s;
    s = scratch_new();
    *state = &s;
    return 0;
}

static int close_scratch(void **state)
{
    scratch_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_those_of_onnxruntime),
        cmocka_unit_test(training_form_moves_statistics),
        cmocka_unit_test(round_trips_keep_everything),
        cmocka_unit_test(names_and_attributes_survive),
        cmocka_unit_test(a_loss_has_words),
        cmocka_unit_test(losses_of_the_export_are_told),
        cmocka_unit_test(weights_reach_the_engine_and_come_back),
        cmocka_unit_test(bad_models_are_refused_with_a_reason),
        cmocka_unit_test(files_of_no_model_are_told),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(broken_bytes_do_no_harm),
        cmocka_unit_test(more_than_2_gigabytes_are_read),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
