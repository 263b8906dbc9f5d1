/* What files of PyTorch's exporters train is what PyTorch trains: names and shapes of parameters and
 * buffers, and the losses of five steps in double (tests/golden/onnx/kinds/kinds.txt, by
 * tools/make_onnx_kinds.py); the same after the network was written and read again. And what --freeze
 * and --train change of it.
 */
#include "graph/freeze.h"
#include "import/onnx/onnx.h"
#include "import/onnx/wire/file.h"
#include "import/safetensors/safetensors.h"
#include "megalith.h"
#include "plan/plan.h"
#include "scratch.h"
#include "train/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER MEG_SOURCE_DIR "/tests/golden/onnx/kinds/"

static const double SAME = 1e-12; /* relative, of losses in double: a float on the way has 1e-9 */

enum {
    STEPS = 5,
    FIELDS = 6,
    TEXT = 2048
};

typedef struct row { /* of kinds.txt */
    char *field[FIELDS];
} row;

enum {
    FILE_NAME,
    DATA,
    WORDS,
    LOSSES,
    PARAMETERS,
    BUFFERS
};

static bool next_row(FILE *in, char line[TEXT], row *r)
{
    if (!fgets(line, TEXT, in)) return false;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < FIELDS; i++) {
        r->field[i] = line;
        size_t length = strcspn(line, "|");
        assert_true((line[length] == '|') == (i < FIELDS - 1));
        line[length] = '\0';
        line += length + 1;
    }
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "conv.bias:4 conv.weight:4x2x3x3": what files of weights have of one kind, sorted. */
static void list(const meg_graph *g, meg_kind kind, char out[TEXT])
{
    char *entry[64];
    int count = 0;
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        if (v->kind != kind || v->unsaved) continue;
        assert_true(count < 64);
        char *text = entry[count++] = calloc(1, 256);
        snprintf(text, 256, "%s:%s", v->name, v->rank ? "" : "-");
        for (int k = 0; k < v->rank; k++)
            snprintf(text + strlen(text), 256 - strlen(text), "%s%lld", k ? "x" : "",
                     (long long)v->dims[k]);
    }
    qsort(entry, (size_t)count, sizeof *entry, by_text);
    strcpy(out, count ? "" : "-");
    for (int i = 0; i < count; i++) {
        snprintf(out + strlen(out), TEXT - strlen(out), "%s%s", i ? " " : "", entry[i]);
        free(entry[i]);
    }
}

static void check_kinds(const meg_graph *g, const row *r, const char *when)
{
    char got[TEXT];
    list(g, MEG_PARAMETER, got);
    if (strcmp(got, r->field[PARAMETERS]) != 0)
        fail_msg("%s%s trains\n  %s, expected\n  %s", r->field[FILE_NAME], when, got,
                 r->field[PARAMETERS]);
    list(g, MEG_FIXED, got);
    if (strcmp(got, r->field[BUFFERS]) != 0)
        fail_msg("%s%s holds fixed\n  %s, expected\n  %s", r->field[FILE_NAME], when, got,
                 r->field[BUFFERS]);
}

static void want(meg_context *ctx, meg_status status, const char *what)
{
    if (status != MEG_OK) fail_msg("%s: %s", what, meg_message(ctx));
}

typedef struct training {
    scratch scratch;
    meg_context *ctx;
    meg_data *data;
    meg_plan *plan;
    meg_trainer *trainer;
} training;

static training begin(meg_context *ctx, meg_graph *g, const row *r, const char *plan)
{
    training t = {.scratch = scratch_new(), .ctx = ctx};
    char source[512];
    snprintf(source, sizeof source, "npy:images=%s%s.npy labels=%slabels.npy tokens=%d", FOLDER,
             r->field[DATA], FOLDER, strcmp(r->field[DATA], "ids") == 0);
    want(ctx, meg_data_open(ctx, source, &t.data), r->field[FILE_NAME]);
    want(ctx, meg_plan_new(g, t.data, plan, &t.plan), r->field[FILE_NAME]);
    want(ctx, meg_trainer_new(t.plan, t.data, "lr=0.1 shuffle=no", &t.trainer),
         r->field[FILE_NAME]);
    return t;
}

static void end(training *t)
{
    meg_trainer_free(t->trainer);
    meg_plan_free(t->plan);
    meg_data_free(t->data);
    scratch_free(&t->scratch);
}

static void check_losses(training *t, const row *r)
{
    char *at = r->field[LOSSES];
    for (int i = 0; i < STEPS; i++) {
        meg_report report;
        double expected = strtod(at, &at);
        want(t->ctx, meg_train(t->trainer, 1, &report), r->field[FILE_NAME]);
        if (!(fabs(report.loss - expected) <= SAME * expected))
            fail_msg("%s: loss %.15g after %d steps, PyTorch's is %.15g", r->field[FILE_NAME],
                     report.loss, i, expected);
        assert_int_equal(report.measured_peak_bytes, report.predicted_peak_bytes);
    }
}

/* What is saved before the first step are the file's own tensors, where it has them by name. */
static void check_order(training *t, const char *path)
{
    meg_error e;
    meg_onnx_file *net = NULL;
    meg_safetensors *f = NULL;
    const char *out = scratch_path(&t->scratch, "first.safetensors");
    int found = 0;
    want(t->ctx, meg_trainer_save(t->trainer, out), path);
    assert_int_equal(meg_onnx_open(&e, path, &net), MEG_OK);
    assert_int_equal(meg_safetensors_open(&e, out, &f), MEG_OK);
    for (size_t i = 0; i < net->tensors; i++) {
        const meg_onnx_tensor *x = &net->tensor[i];
        char name[256];
        meg_saved saved;
        snprintf(name, sizeof name, "%.*s", MEG_SPAN_TEXT(x->name));
        int at = meg_safetensors_find(f, name);
        if (at < 0) continue;
        found++;
        assert_int_equal(meg_safetensors_at(f, &e, at, &saved), MEG_OK);
        for (int64_t k = 0; k < x->size; k++) {
            double number;
            memcpy(&number, (const char *)saved.data + 8 * k, sizeof number);
            bool same = fabs(number - meg_onnx_number(x, k)) <= 0 || isinf(number);
            if (!same) fail_msg("%s: %s, element %lld", path, name, (long long)k);
        }
    }
    assert_true(found > 0);
    meg_safetensors_close(f);
    meg_onnx_close(net);
}

/* A file of weights has the parameters, buffers and statistics, no more, as PyTorch has them. */
static void check_saved(training *t, const meg_graph *g, const row *r)
{
    meg_error e;
    meg_safetensors *f = NULL;
    const char *path = scratch_path(&t->scratch, "kinds.safetensors");
    int expected = 0;
    want(t->ctx, meg_trainer_save(t->trainer, path), r->field[FILE_NAME]);
    assert_int_equal(meg_safetensors_open(&e, path, &f), MEG_OK);
    for (int i = 0; i < g->values; i++) {
        const meg_value *v = &g->value[i];
        meg_saved saved;
        int at = meg_safetensors_find(f, v->name);
        bool wanted = meg_kind_lasts(v->kind) && !v->unsaved;
        if ((at >= 0) != wanted) fail_msg("%s: %s", r->field[FILE_NAME], v->name);
        if (!wanted) continue;
        expected++;
        assert_int_equal(meg_safetensors_at(f, &e, at, &saved), MEG_OK);
        assert_int_equal(saved.rank, v->rank);
        assert_memory_equal(saved.dims, v->dims, (size_t)v->rank * sizeof *v->dims);
    }
    assert_int_equal(meg_safetensors_count(f), expected);
    meg_safetensors_close(f);
    want(t->ctx, meg_trainer_load(t->trainer, path), r->field[FILE_NAME]);
}

/* Written as ONNX and read again: the same kinds, and the loss of the step after. */
static void check_again(training *t, const row *r)
{
    const char *path = scratch_path(&t->scratch, "kinds.onnx");
    meg_graph *g = NULL;
    meg_report before, after;
    want(t->ctx, meg_trainer_export(t->trainer, path), r->field[FILE_NAME]);
    want(t->ctx, meg_train(t->trainer, 1, &before), r->field[FILE_NAME]);
    want(t->ctx, meg_graph_load(t->ctx, path, "", &g), r->field[FILE_NAME]);
    check_kinds(g, r, ", written and read again,");
    training again = begin(t->ctx, g, r, "batch=4");
    want(t->ctx, meg_train(again.trainer, 1, &after), r->field[FILE_NAME]);
    if (fabs(before.loss - after.loss) > 1e-5 * before.loss) /* the file has floats */
        fail_msg("%s: loss %.9g, of the file written %.9g", r->field[FILE_NAME], before.loss,
                 after.loss);
    end(&again);
    meg_graph_free(g);
}

static void check_file(const row *r)
{
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s%s.onnx", FOLDER, r->field[FILE_NAME]);
    assert_int_equal(meg_open("device=ref64 log=quiet", &ctx), MEG_OK);
    want(ctx, meg_graph_load(ctx, path, r->field[WORDS], &g), r->field[FILE_NAME]);
    check_kinds(g, r, "");
    training t = begin(ctx, g, r, "batch=4");
    check_order(&t, path);
    check_losses(&t, r);
    check_saved(&t, g, r);
    check_again(&t, r);
    end(&t);
    meg_graph_free(g);
    meg_close(ctx);
}

static void files_train_what_pytorch_trains(void **state)
{
    (void)state;
    char line[TEXT];
    row r;
    int files = 0;
    FILE *in = fopen(FOLDER "kinds.txt", "r");
    assert_non_null(in);
    while (next_row(in, line, &r)) {
        files++;
        if (strncmp(r.field[FILE_NAME], "folded", 6) != 0) check_file(&r);
    }
    fclose(in);
    assert_true(files > 40);
}

/* ---- what is told ---- */

typedef struct told {
    int count;
    char text[4096];
} told;

static void hear(void *context, const char *message)
{
    told *t = context;
    t->count++;
    snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text), "%s\n", message);
}

static void warnings_have_causes(void **state)
{
    static const struct {
        const char *file, *words, *told; /* NULL: nothing */
    } cases[] = {
        {"folded-dynamo", "", "optimize=False"},
        {"affine-dynamo", "", NULL},
        {"affine-script", "", NULL},
        {"dense-dynamo", "", NULL},
        {"dense-script", "", NULL},
        {"encoder-dynamo", "", NULL},
        {"tied-dynamo", "", NULL},
        {"tied-script", "", NULL},
        {"mask-train", "", "whether pos is trained"},
        {"buffers-train", "", "whether mean, std are trained"},
        {"buffers-train", "freeze=mean,std", NULL},
        {"buffers-train", "freeze=mean train=std", NULL}, /* is settled */
        {"buffers-dynamo", "", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        told t = {0};
        meg_error e;
        meg_graph *g = NULL;
        meg_onnx_listener listener = {hear, &t};
        snprintf(path, sizeof path, "%s%s.onnx", FOLDER, cases[i].file);
        if (meg_onnx_load(&e, path, cases[i].words, &listener, &g) != MEG_OK)
            fail_msg("%s", e.message);
        bool good = cases[i].told ? t.count == 1 && strstr(t.text, cases[i].told) : t.count == 0;
        if (!good)
            fail_msg("%s: told '%s', expected '%s'", cases[i].file, t.text,
                     cases[i].told ? cases[i].told : "");
        meg_graph_destroy(g);
    }
}

/* ---- freezing ---- */

static meg_graph *small(void)
{
    meg_graph *g = meg_graph_create("small");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){2, 3, 8, 8});
    x = meg_graph_add(g, "conv", "conv1", "filters=4 kernel=3", 1, &x);
    x = meg_graph_add(g, "batchnorm", "bn1", "", 1, &x);
    x = meg_graph_add(g, "conv", "conv2", "filters=4 kernel=3", 1, &x);
    x = meg_graph_add(g, "dense", "fc", "units=5", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "weighted=1", x, 1);
    assert_int_equal(g->error.status, MEG_OK);
    return g;
}

static meg_kind kind_of(const meg_graph *g, const char *name)
{
    return g->value[meg_graph_find_value(g, name)].kind;
}

static void patterns_choose(void **state)
{
    (void)state;
    meg_error e;
    meg_graph *g = small();
    int64_t all = meg_graph_trainable(g);
    assert_int_equal(meg_graph_freeze_names(g, &e, "bn1.*,conv?.bias"), MEG_OK);
    assert_int_equal(kind_of(g, "bn1.weight"), MEG_FIXED);
    assert_int_equal(kind_of(g, "bn1.running_mean"), MEG_STATE);
    assert_int_equal(kind_of(g, "conv2.bias"), MEG_FIXED);
    assert_int_equal(meg_graph_trainable(g), all - 4 * 4);
    assert_int_equal(meg_graph_freeze_names(g, &e, "*"), MEG_OK);
    assert_int_equal(meg_graph_trainable(g), 0);
    assert_int_equal(meg_graph_train_names(g, &e, "fc.*"), MEG_OK);
    assert_int_equal(meg_graph_trainable(g), 5 * 64 + 5);
    assert_int_equal(meg_graph_freeze_names(g, &e, "conv1.wieght"), MEG_EARG);
    assert_non_null(strstr(e.message, "conv1.weight"));
    assert_int_equal(meg_graph_train_names(g, &e, "fc.*"), MEG_EARG);
    assert_non_null(strstr(e.message, "are trained anyway"));
    assert_int_equal(meg_graph_train_names(g, &e, "loss.weight"), MEG_EARG);
    assert_non_null(strstr(e.message, "has no gradient"));
    meg_graph_destroy(g);
}

typedef struct passes {
    int backward, weight, update;
    int64_t held;
} passes;

static passes count_passes(meg_graph *g)
{
    meg_error e;
    meg_plan *p = NULL;
    passes c = {0};
    if (meg_plan_make(g, &e, &meg_profile_plain, "batch=2 momentum=0.9", 0, &p) != MEG_OK)
        fail_msg("%s", e.message);
    const meg_station *t = p->entry[MEG_ENTRY_TRAIN].station;
    for (int i = 0; i < t->instrs; i++) {
        const meg_instr *at = &t->instr[i];
        c.backward += at->code == MEG_KERNEL && at->pass == MEG_BACKWARD;
        c.weight += at->code == MEG_KERNEL && at->pass == MEG_WEIGHT;
        c.update += at->code == MEG_UPDATE;
    }
    for (int i = 0; i < p->held_slots; i++)
        c.held += p->held[i].bytes;
    meg_plan_destroy(p);
    return c;
}

/* Nothing is computed that only a frozen weight would want, nor held. */
static void frozen_weights_cost_nothing(void **state)
{
    (void)state;
    meg_error e;
    meg_graph *g = small();
    passes all = count_passes(g);
    assert_int_equal(meg_graph_freeze_names(g, &e, "conv*,bn1.*"), MEG_OK);
    passes few = count_passes(g);
    assert_int_equal(all.weight, 3);
    assert_int_equal(few.weight, 1);
    assert_int_equal(few.backward, 1); /* the loss's; none goes past the dense layer */
    assert_int_equal(few.update, 2);
    int64_t frozen = 4 * (4 * 3 * 9 + 4 + 4 + 4 + 4 * 4 * 9 + 4);
    assert_true(all.held - few.held >= 2 * frozen);
    meg_graph_destroy(g);
}

/* What is frozen stays as it was, and is saved; all else moves. */
static void frozen_weights_stay(void **state)
{
    (void)state;
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    meg_error e;
    row r = {{"dense-dynamo", "tokens", "", "", "", ""}};
    assert_int_equal(meg_open("device=ref64 log=quiet", &ctx), MEG_OK);
    want(ctx, meg_graph_load(ctx, FOLDER "dense-dynamo.onnx", "freeze=* train=fc.*", &g), "load");
    training t = begin(ctx, g, &r, "batch=4 momentum=0.9");
    meg_safetensors *file[2];
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path(&t.scratch, i ? "after.safetensors" : "before.safetensors");
        if (i) want(ctx, meg_train(t.trainer, 2, NULL), "train");
        want(ctx, meg_trainer_save(t.trainer, path), "save");
        assert_int_equal(meg_safetensors_open(&e, path, &file[i]), MEG_OK);
    }
    int count = meg_safetensors_count(file[0]);
    assert_int_equal(count, 5);
    for (int i = 0; i < count; i++) {
        meg_saved a, b;
        assert_int_equal(meg_safetensors_at(file[0], &e, i, &a), MEG_OK);
        int at = meg_safetensors_find(file[1], a.name);
        assert_int_equal(meg_safetensors_at(file[1], &e, at, &b), MEG_OK);
        size_t bytes = sizeof(double);
        for (int k = 0; k < a.rank; k++)
            bytes *= (size_t)a.dims[k];
        bool same = memcmp(a.data, b.data, bytes) == 0;
        if (same != (strncmp(a.name, "fc.", 3) != 0)) fail_msg("%s", a.name);
    }
    meg_safetensors_close(file[0]);
    meg_safetensors_close(file[1]);
    end(&t);
    meg_graph_free(g);
    meg_close(ctx);
}

/* What could not be saved after training is told before it. */
static void spoilt_weights_are_told(void **state)
{
    (void)state;
    static const double bad[24] = {[7] = NAN};
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    training t = {0};
    assert_int_equal(meg_open("device=ref64 log=quiet", &ctx), MEG_OK);
    want(ctx, meg_graph_load(ctx, FOLDER "dense-raw.onnx", "", &g), "load");
    g->value[meg_graph_find_value(g, "fc.weight")].stored = (meg_stored){.data = bad,
                                                                         .type = MEG_STORED_F64};
    want(ctx,
         meg_data_open(ctx, "npy:images=" FOLDER "tokens.npy labels=" FOLDER "labels.npy", &t.data),
         "data");
    want(ctx, meg_plan_new(g, t.data, "batch=4", &t.plan), "plan");
    assert_int_equal(meg_trainer_new(t.plan, t.data, "", &t.trainer), MEG_EDATA);
    assert_non_null(strstr(meg_message(ctx), "fc.weight has numbers that are not finite"));
    meg_plan_free(t.plan);
    meg_data_free(t.data);
    meg_graph_free(g);
    meg_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_train_what_pytorch_trains),
        cmocka_unit_test(warnings_have_causes),
        cmocka_unit_test(patterns_choose),
        cmocka_unit_test(frozen_weights_cost_nothing),
        cmocka_unit_test(frozen_weights_stay),
        cmocka_unit_test(spoilt_weights_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
