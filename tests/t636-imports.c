/* Networks as PyTorch's exporters write them (tools/make_imports.py): the losses of five steps of SGD
 * are PyTorch's, so values, gradients and what is trained are; random masks are drawn the same under
 * any plan; all that a file lacks is told at once.
 */
#include "graph/op.h"
#include "import/onnx/onnx.h"
#include "import/safetensors/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
    STEPS = 5,
    BATCH = 4
};

static const double CLOSE = 1e-9; /* double against double, relative; files hold floats */

static const char *golden(const char *name, const char *suffix)
{
    static _Thread_local char path[2][512]; /* for two in one call */
    static _Thread_local int next;
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], MEG_SOURCE_DIR "/tests/golden/imports/%s%s", name, suffix);
    return to;
}

typedef struct training {             /* of a file, on its network's batch */
    const char *net, *plan, *options; /* of the file; NULL: none */
    char file[64];
    double loss[STEPS];
    char message[1024];
} training;

static bool is_tokens(const char *net)
{
    return strcmp(net, "gpt") == 0;
}

/* False: it was refused, message says why. */
static bool train(training *r)
{
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    meg_data *d = NULL;
    meg_plan *p = NULL;
    meg_trainer *t = NULL;
    meg_report report;
    char data[1200], plan[128], path[512];
    snprintf(path, sizeof path, "%s", golden(r->file, ".onnx"));
    snprintf(data, sizeof data, "npy:images='%s' labels='%s' tokens=%d", golden(r->net, "-x.npy"),
             golden(r->net, "-y.npy"), is_tokens(r->net));
    snprintf(plan, sizeof plan, "batch=%d optimizer=sgd %s", BATCH, r->plan);
    meg_status status = meg_open("device=ref64 threads=1 log=quiet seed=3", &ctx);
    if (!status) status = meg_graph_load(ctx, path, r->options, &g);
    if (!status) status = meg_data_open(ctx, data, &d);
    if (!status) status = meg_plan_new(g, d, plan, &p);
    if (!status) status = meg_trainer_new(p, d, "lr=0.1 shuffle=no", &t);
    for (int i = 0; !status && i < STEPS; i++) {
        status = meg_train(t, 1, &report);
        r->loss[i] = report.loss;
    }
    snprintf(r->message, sizeof r->message, "%s", status ? meg_message(ctx) : "");
    meg_trainer_free(t), meg_plan_free(p), meg_data_free(d), meg_graph_free(g), meg_close(ctx);
    return status == MEG_OK;
}

static void check_losses(const char *what, const double got[STEPS], const double want[STEPS])
{
    if (!(fabs(want[STEPS - 1] - want[0]) > 1e-3 * want[0]))
        fail_msg("%s: the reference does not learn", what);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got[i] - want[i]) <= CLOSE * want[i]))
            fail_msg("%s: loss %.12g in step %d, expected %.12g: off by %.2g, allowed %.2g", what,
                     got[i], i + 1, want[i], fabs(got[i] - want[i]) / want[i], CLOSE);
}

static void expected_losses(const char *net, double out[STEPS])
{
    meg_error e = {0};
    meg_safetensors *f = NULL;
    meg_saved t = {0};
    if (meg_safetensors_open(&e, golden(net, ".safetensors"), &f) ||
        meg_safetensors_at(f, &e, meg_safetensors_find(f, "losses"), &t))
        fail_msg("%s: %s", net, e.message);
    assert_int_equal(t.dims[0], STEPS);
    memcpy(out, t.data, STEPS * sizeof *out);
    meg_safetensors_close(f);
}

static const char *const EXPORTERS[] = {"raw", "dynamo", "script"};

static void check_file(const char *net, const char *file, const char *plan, const char *options)
{
    double want[STEPS];
    training r = {.net = net, .plan = plan, .options = options};
    snprintf(r.file, sizeof r.file, "%s", file);
    expected_losses(net, want);
    if (!train(&r)) fail_msg("%s", r.message);
    check_losses(file, r.loss, want);
}

/* By the first few of the exporters. */
static void check_net(const char *net, int count)
{
    for (int i = 0; i < count; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s-%s", net, EXPORTERS[i]);
        check_file(net, file, "", NULL);
    }
}

/* All attention is one operator of this kind, twice. */
static void check_attention(const char *net, const char *words, int count)
{
    for (int i = 0; i < count; i++) {
        char file[64];
        meg_error e = {0};
        meg_graph *g = NULL;
        int found = 0;
        snprintf(file, sizeof file, "%s-%s", net, EXPORTERS[i]);
        if (meg_onnx_load(&e, golden(file, ".onnx"), "", NULL, &g)) fail_msg("%s", e.message);
        for (int k = 0; k < g->nodes; k++) {
            const meg_node *v = &g->node[k];
            char text[128] = "";
            if (strcmp(v->op->name, "softmax") == 0) fail_msg("%s: %s is left", file, v->name);
            if (strcmp(v->op->name, "attention") != 0) continue;
            meg_options_print(v->op->params, v->attr, text, sizeof text);
            found += strstr(text, words) != NULL;
            if (strstr(text, "scale")) fail_msg("%s: %s", file, text); /* the usual one is exact */
        }
        if (found != 2) fail_msg("%s: %d attentions, expected 2", file, found);
        meg_graph_destroy(g);
    }
}

static void test_convnext(void **state)
{
    (void)state;
    check_net("convnext", 3);
}

static void test_log_softmax(void **state)
{
    (void)state;
    check_net("logs", 3);
}

static void test_functions(void **state)
{
    (void)state;
    check_net("functions", 3);
}

static void test_choices(void **state)
{
    (void)state;
    check_net("choices", 3);
}

static void test_reductions(void **state)
{
    (void)state;
    check_net("reductions", 3);
}

static void test_layernorm_without_bias(void **state)
{
    (void)state;
    check_net("lone", 3);
}

/* Arithmetic of weights: the gradient reaches the weights. Of buffers: they stay. */
static void test_sums(void **state)
{
    (void)state;
    check_file("sums", "sums-raw", "", NULL);
    check_file("sums", "sums-raw", "micro=2", NULL);
}

/* Windows that are joined to the batch, a table by constants, products by letters, blocks of pixels. */
static void test_windows(void **state)
{
    (void)state;
    check_file("windows", "windows-raw", "", NULL);
    check_file("windows", "windows-raw", "micro=4", NULL);
    check_file("windows", "windows-raw", "recompute=segments micro=2", NULL);
}

/* A slice that takes all of a weight is the weight. */
static void test_places(void **state)
{
    (void)state;
    check_file("places", "places-script", "", NULL);
}

/* With all rates 0 they are not there. */
static void test_no_masks(void **state)
{
    (void)state;
    check_net("masks", 3);
}

/* A matrix for q, k and v, masked_fill of a buffer: attention, of which no matrix is kept. */
static void test_gpt(void **state)
{
    (void)state;
    check_net("gpt", 3);
    check_attention("gpt", "causal=yes", 3);
}

static void test_encoder(void **state)
{
    (void)state;
    check_net("encoder", 3);
    check_attention("encoder", "heads=2", 3);
}

/* The mask is a sum, and the batch is not the first axis in between. */
static void test_causal_encoder(void **state)
{
    (void)state;
    check_net("causal", 3);
    check_attention("causal", "causal=yes", 3);
}

/* The output is what the file says, logarithms of probabilities, and is saved so. */
static void test_logs_stay(void **state)
{
    (void)state;
    meg_error e = {0};
    meg_graph *g = NULL;
    if (meg_onnx_load(&e, golden("logs", "-raw.onnx"), "", NULL, &g)) fail_msg("%s", e.message);
    const meg_node *v = &g->node[g->value[g->output[0]].maker];
    assert_string_equal(v->op->name, "softmax");
    meg_graph_destroy(g);
}

/* ---- random masks ---- */

static int count_drops(const meg_graph *g, const char *words)
{
    int found = 0;
    for (int i = 0; i < g->nodes; i++) {
        const meg_node *v = &g->node[i];
        char text[128] = "";
        if (strcmp(v->op->name, "dropout") != 0) continue;
        meg_options_print(v->op->params, v->attr, text, sizeof text);
        found += strstr(text, words) != NULL;
    }
    return found;
}

static void test_masks_are_found(void **state)
{
    static const struct {
        const char *file, *words;
        int count;
    } cases[] = {
        {"convnext-raw-random", "per=sample", 1},    {"convnext-dynamo-random", "per=sample", 1},
        {"convnext-script-random", "per=sample", 1}, {"masks-raw-random", "per=sample", 2},
        {"masks-raw-random", "per=batch", 1},        {"masks-dynamo-random", "per=sample", 2},
        {"masks-dynamo-random", "per=batch", 1},     {"masks-script-random", "per=sample", 2},
        {"masks-script-random", "per=batch", 1},     {"masks-raw-random", "rate=0.4", 4},
        {"masks-script-random", "rate=0.4", 4}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        if (meg_onnx_load(&e, golden(cases[i].file, ".onnx"), "", NULL, &g))
            fail_msg("%s", e.message);
        int found = count_drops(g, cases[i].words);
        if (found != cases[i].count)
            fail_msg("%s: %d dropouts with '%s', expected %d", cases[i].file, found, cases[i].words,
                     cases[i].count);
        meg_graph_destroy(g);
    }
}

/* Micro-batches draw what the whole batch draws; masks are not those of no masks. */
static void test_masks_under_plans(void **state)
{
    static const char *const nets[] = {"convnext", "masks"};
    (void)state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        double without[STEPS];
        training one = {.net = nets[i], .plan = ""}, two;
        snprintf(one.file, sizeof one.file, "%s-raw-random", nets[i]);
        two = one;
        two.plan = "micro=2";
        expected_losses(nets[i], without);
        if (!train(&one)) fail_msg("%s", one.message);
        if (!train(&two)) fail_msg("%s", two.message);
        for (int k = 0; k < STEPS; k++) {
            if (!(fabs(one.loss[k] - two.loss[k]) <= 1e-10 * one.loss[k]))
                fail_msg("%s: loss %.12g in step %d, in micro-batches %.12g", nets[i], one.loss[k],
                         k + 1, two.loss[k]);
            if (fabs(one.loss[k] - without[k]) < 1e-6)
                fail_msg("%s: step %d dropped nothing", nets[i], k + 1);
        }
    }
}

/* ---- what is lacking ---- */

static void test_all_that_lacks_is_told(void **state)
{
    static const char *const words[] = {
        "2 operators are not supported: ", "Det (4 nodes: 'd1', 'd2', 'd3', ...)",
        "If (1 node: 'choose'; a graph inside)"};
    meg_error e = {0};
    meg_graph *g = NULL;
    (void)state;
    assert_int_not_equal(meg_onnx_load(&e, golden("lacks", ".onnx"), "", NULL, &g), MEG_OK);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(e.message, words[i])) fail_msg("no '%s' in '%s'", words[i], e.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convnext),
                                       cmocka_unit_test(test_log_softmax),
                                       cmocka_unit_test(test_functions),
                                       cmocka_unit_test(test_choices),
                                       cmocka_unit_test(test_reductions),
                                       cmocka_unit_test(test_layernorm_without_bias),
                                       cmocka_unit_test(test_no_masks),
                                       cmocka_unit_test(test_gpt),
                                       cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_encoder),
                                       cmocka_unit_test(test_causal_encoder),
                                       cmocka_unit_test(test_logs_stay),
                                       cmocka_unit_test(test_masks_are_found),
                                       cmocka_unit_test(test_masks_under_plans),
                                       cmocka_unit_test(test_all_that_lacks_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
