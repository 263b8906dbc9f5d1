/* The public interface: refusals with their messages, saving and loading, the same bits twice. */
#include "scratch.h"

#include <megalith.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct job {
    meg_context *ctx;
    meg_graph *net;
    meg_data *data;
    meg_plan *plan;
    meg_trainer *trainer;
} job;

static void must(const job *j, meg_status status)
{
    if (status != MEG_OK) fail_msg("%s", meg_message(j->ctx));
}

static void says(const meg_context *ctx, const char *part)
{
    if (!strstr(meg_message(ctx), part)) fail_msg("expected '%s' in: %s", part, meg_message(ctx));
}

static meg_context *open_context(const char *options)
{
    meg_context *ctx = NULL;
    assert_int_equal(meg_open(options, &ctx), MEG_OK);
    return ctx;
}

static void test_contexts(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } bad[] = {{"device=gpu", "cpu"}, {"thread=2", "threads"}, {"threads=x", "threads"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        meg_context *ctx = NULL;
        assert_int_equal(meg_open(bad[i].options, &ctx), MEG_EARG);
        says(ctx, bad[i].says);
        meg_close(ctx);
    }
}

/* The first error of a chain is the one that is told, and it names its node. */
static void refuse_layer(const char *op, const char *options, const char *part)
{
    meg_context *ctx = open_context("device=ref");
    meg_graph *g = NULL;
    assert_int_equal(meg_graph_new(ctx, "net", &g), MEG_OK);
    meg_val x = meg_input(g, "image", "Nx3x5x5");
    x = meg_layer(g, op, options, x);
    assert_int_equal(x, -1);
    x = meg_layer(g, "nonsense", "", x); /* not told: the first error stays */
    assert_int_equal(meg_graph_done(g, "softmax_xent", x), MEG_EARG);
    says(ctx, part);
    meg_graph_free(g);
    meg_close(ctx);
}

static void test_layers(void **state)
{
    (void)state;
    refuse_layer("convolution", "", "unknown operator 'convolution' (did you mean conv?); known:");
    refuse_layer("convolution", "", " conv ");
    refuse_layer("conv", "name=stem filters=4 kernal=3", "kernal");
    refuse_layer("conv", "name=stem filters=4 kernel=7", "stem: ");
    refuse_layer("conv", "name=stem filters=4 kernel=3 groups=2", "stem: ");
    refuse_layer("relu", "name=r slope=1", "r: ");
    refuse_layer("add", "name=sum", "sum: ");
}

static void test_graphs(void **state)
{
    (void)state;
    meg_context *ctx = open_context("device=ref");
    meg_graph *g = NULL;
    assert_int_equal(meg_graph_model(ctx, "resnet51", "", &g), MEG_EARG);
    says(ctx, "resnet50");
    assert_int_equal(meg_graph_model(ctx, "cnn", "clases=3", &g), MEG_EARG);
    says(ctx, "classes");
    assert_int_equal(meg_graph_new(ctx, "net", &g), MEG_OK);
    assert_int_equal(meg_input(g, "image", "3x5x5"), -1);
    assert_int_equal(meg_graph_done(g, "softmax_xent", -1), MEG_EARG);
    says(ctx, "3x5x5");
    meg_graph_free(g);
    meg_close(ctx);
}

/* ---- a whole training ---- */

static job begin(const char *context, const char *plan)
{
    job j = {.ctx = open_context(context)};
    must(&j,
         meg_graph_model(j.ctx, "resnet-cifar", "depth=8 image=1x12x12 classes=4 width=8", &j.net));
    must(&j, meg_data_open(j.ctx, "synthetic:image=1x12x12 classes=4 count=40", &j.data));
    must(&j, meg_plan_new(j.net, j.data, plan, &j.plan));
    must(&j, meg_trainer_new(j.plan, j.data, "lr=0.05 epochs=3 flip=1 shift=1", &j.trainer));
    return j;
}

static void end(job *j)
{
    meg_trainer_free(j->trainer);
    meg_plan_free(j->plan);
    meg_data_free(j->data);
    meg_graph_free(j->net);
    meg_close(j->ctx);
}

static char *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*size + 1);
    assert_int_equal(fread(text, 1, *size, f), *size);
    fclose(f);
    return text;
}

/* 40 samples in batches of 16: every epoch ends with a batch of 8. */
static void test_training(void **state)
{
    (void)state;
    scratch s = scratch_new();
    char first[600], second[600];
    snprintf(first, sizeof first, "%s", scratch_path(&s, "first.safetensors"));
    snprintf(second, sizeof second, "%s", scratch_path(&s, "second.safetensors"));
    meg_report r, before, after;
    for (int i = 0; i < 2; i++) {
        job j = begin("device=cpu threads=2 seed=7", "batch=16 momentum=0.9");
        must(&j, meg_train(j.trainer, 0, &r));
        assert_int_equal(r.step, 9);
        assert_int_equal(r.predicted_peak_bytes, r.measured_peak_bytes);
        must(&j, meg_trainer_save(j.trainer, i ? second : first));
        must(&j, meg_evaluate(j.trainer, j.data, &before));
        end(&j);
    }
    size_t a, b;
    char *x = slurp(first, &a), *y = slurp(second, &b);
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a); /* one seed, one thread count: the same bits */
    free(x);
    free(y);

    job j = begin("device=cpu threads=2 seed=8", "batch=8");
    must(&j, meg_trainer_load(j.trainer, first));
    must(&j, meg_evaluate(j.trainer, j.data, &after));
    assert_true(after.accuracy == before.accuracy);
    assert_float_equal(after.loss, before.loss, 1e-5);
    assert_int_equal(meg_trainer_load(j.trainer, "no-such-file"), MEG_EIO);
    says(j.ctx, "no-such-file");
    end(&j);
    scratch_free(&s);
}

static void test_mismatches(void **state)
{
    (void)state;
    job j = begin("device=ref", "batch=8");
    meg_data *other = NULL;
    meg_plan *p = NULL;
    must(&j, meg_data_open(j.ctx, "synthetic:image=3x12x12 classes=4 count=40", &other));
    assert_int_equal(meg_plan_new(j.net, other, "batch=8", &p), MEG_EARG);
    says(j.ctx, "image");
    assert_int_equal(meg_evaluate(j.trainer, other, NULL), MEG_EARG);
    meg_data_free(other);
    must(&j, meg_data_open(j.ctx, "synthetic:image=1x12x12 classes=9 count=40", &other));
    assert_int_equal(meg_plan_new(j.net, other, "batch=8", &p), MEG_EARG);
    says(j.ctx, "classes=9");
    assert_int_equal(meg_evaluate(j.trainer, other, NULL), MEG_EARG);
    says(j.ctx, "classes=9");
    meg_data_free(other);
    assert_int_equal(meg_data_open(j.ctx, "imagenet:", &other), MEG_EARG);
    says(j.ctx, "fashion-mnist");
    assert_int_equal(meg_plan_print(j.plan, "poem", stdout), MEG_EARG);
    says(j.ctx, "summary program");
    assert_int_equal(meg_plan_new(j.net, j.data, "batch=8 budget=100KiB", &p), MEG_EBUDGET);
    says(j.ctx, "bytes are missing");
    end(&j);
}

/* Names of layers of 300 bytes each, and a cut into stages that names them all. */
static void test_long_words(void **state)
{
    (void)state;
    enum {
        LAYERS = 16,
        NAME = 300
    };
    meg_context *ctx = open_context("device=ref threads=1");
    job j = {.ctx = ctx};
    char name[NAME + 8], *text = NULL;
    size_t size = 0;
    FILE *words = open_memstream(&text, &size);
    fputs("batch=4 micro=2 goal=given level=layer schedule=interleaved stages=16 chunks=16 assign=",
          words);
    must(&j, meg_graph_new(ctx, "net", &j.net));
    meg_val x = meg_input(j.net, "image", "Nx3x1x1");
    for (int i = 0; i < LAYERS; i++) {
        char options[NAME + 64];
        snprintf(name, sizeof name, "%0*d", NAME, i);
        snprintf(options, sizeof options, "units=3 name=%s", name);
        x = meg_layer(j.net, "dense", options, x);
        if (i > 0) fprintf(words, "%s%s", i > 1 ? "," : "", name);
    }
    must(&j, meg_graph_done(j.net, "softmax_xent", x));
    must(&j, meg_data_open(ctx, "synthetic:image=3x1x1 classes=3 count=8", &j.data));
    fclose(words);
    assert_true(size > (LAYERS - 1) * NAME);
    must(&j, meg_plan_new(j.net, j.data, text, &j.plan));
    must(&j, meg_trainer_new(j.plan, j.data, "", &j.trainer));
    must(&j, meg_train(j.trainer, 2, NULL));
    meg_plan *wrong = NULL;
    text[size - 1]++; /* the last name is another */
    assert_int_equal(meg_plan_new(j.net, j.data, text, &wrong), MEG_EARG);
    says(ctx, "has no layer");
    free(text);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts),   cmocka_unit_test(test_layers),
        cmocka_unit_test(test_graphs),     cmocka_unit_test(test_training),
        cmocka_unit_test(test_mismatches), cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
