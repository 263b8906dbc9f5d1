/* A state dict of PyTorch, saved as safetensors, fits the network that PyTorch exported: a dense layer
 * of tokens is (units, features), of tied weights one name is only noted, num_batches_tracked is
 * nobody's. Loss, gradients, running statistics are PyTorch's in double, with the file's weights and
 * with those of the state dict: tests/golden/torch (tools/make_statedict.py). What is saved has
 * PyTorch's names. Tolerance: 1e-9 by norm; the denominator is at least 1e-3, since numbers are of
 * order one and some gradients are zero but for rounding.
 */
#include "safetensors_help.h"
#include "train/trainer.h"

#include <math.h>

#define GOLDEN  MEG_SOURCE_DIR "/tests/golden/torch/"
#define CORNERS MEG_SOURCE_DIR "/tests/golden/onnx/corners/"

static int64_t tensor(const meg_safetensors *f, const char *name, meg_saved *out)
{
    meg_error e = {0};
    int64_t size = 1;
    if (meg_safetensors_at(f, &e, meg_safetensors_find(f, name), out))
        fail_msg("%s: %s", name, e.message);
    for (int i = 0; i < out->rank; i++)
        size *= out->dims[i];
    return size;
}

static double number_at(const meg_saved *t, int64_t i)
{
    double real;
    assert_int_equal(t->dtype, MEG_F64);
    memcpy(&real, (const char *)t->data + 8 * i, 8);
    return real;
}

/* Every tensor of `got` is the one of `want` with the prefix. */
static void compare(const char *path, const char *prefix, int least)
{
    meg_safetensors *got = opened(path), *want = opened(GOLDEN "want.safetensors");
    int count = meg_safetensors_count(got);
    assert_true(count >= least);
    for (int i = 0; i < count; i++) {
        const char *name = meg_safetensors_name(got, i);
        char other[128];
        meg_saved a, b;
        double difference = 0, norm = 0;
        snprintf(other, sizeof other, "%s%s", prefix, name);
        int64_t size = tensor(got, name, &a);
        assert_int_equal(size, tensor(want, other, &b));
        for (int64_t k = 0; k < size; k++) {
            double x = number_at(&a, k), y = number_at(&b, k);
            difference += (x - y) * (x - y);
            norm += y * y;
        }
        if (!(sqrt(difference) <= 1e-9 * fmax(sqrt(norm), 1e-3)))
            fail_msg("%s is off by %g of %g", other, sqrt(difference), sqrt(norm));
    }
    meg_safetensors_close(got);
    meg_safetensors_close(want);
}

static void said(const meg_context *ctx, meg_status status)
{
    if (status != MEG_OK) fail_msg("%s", meg_message(ctx));
}

typedef struct job {
    meg_context *ctx;
    meg_graph *graph;
    meg_data *data;
    meg_plan *plan;
    meg_trainer *trainer;
} job;

static job begin(void)
{
    job j = {0};
    said(NULL, meg_open("device=ref64 log=quiet", &j.ctx));
    said(j.ctx, meg_graph_load(j.ctx, GOLDEN "tokens.onnx", "", &j.graph));
    said(j.ctx, meg_data_open(
                    j.ctx, "npy:images=" GOLDEN "x.npy labels=" GOLDEN "y.npy tokens=1 classes=7",
                    &j.data));
    said(j.ctx, meg_plan_new(j.graph, j.data, "batch=4 optimizer=sgd keep_grads=1", &j.plan));
    said(j.ctx, meg_trainer_new(j.plan, j.data, "lr=0 shuffle=no", &j.trainer));
    return j;
}

static void end(job *j)
{
    meg_trainer_free(j->trainer), meg_plan_free(j->plan), meg_data_free(j->data);
    meg_graph_free(j->graph), meg_close(j->ctx);
}

static void step(job *j, const char *prefix)
{
    meg_report report;
    meg_saved loss;
    char name[64];
    scratch folder = scratch_new();
    meg_safetensors *want = opened(GOLDEN "want.safetensors");
    snprintf(name, sizeof name, "%sloss", prefix);
    tensor(want, name, &loss);
    said(j->ctx, meg_train(j->trainer, 1, &report));
    assert_true(fabs(report.loss - number_at(&loss, 0)) <= 1e-9 * fabs(report.loss));
    meg_safetensors_close(want);
    const char *path = scratch_path(&folder, "grads.safetensors");
    said(j->ctx, meg_trainer_save_gradients(j->trainer, path));
    compare(path, prefix, 9);
    scratch_free(&folder);
}

static void weights_of_the_file(void **state)
{
    (void)state;
    job j = begin();
    step(&j, "file.");
    end(&j);
}

static void weights_of_a_state_dict(void **state)
{
    (void)state;
    job j = begin();
    said(j.ctx, meg_trainer_load(j.trainer, GOLDEN "state.safetensors"));
    step(&j, "state.");
    end(&j);
}

/* All names that a file lacks are told at once; another shape is told with both. */
static void refusals(void **state)
{
    (void)state;
    static const float zeros[42];
    job j = begin();
    scratch folder = scratch_new();
    const char *path = scratch_path(&folder, NAME);
    meg_saved_file few = {.count = 1,
                          .tensor = &(meg_saved){"fc.weight", MEG_F32, 2, {4, 4}, zeros}};
    meg_error e = {0};
    assert_int_equal(meg_safetensors_write(&e, path, &few), MEG_OK);
    assert_int_not_equal(meg_trainer_load(j.trainer, path), MEG_OK);
    assert_non_null(strstr(meg_message(j.ctx), "bn.weight"));
    assert_non_null(strstr(meg_message(j.ctx), "norm.bias"));
    static const char *const names[] = {"wte.weight", "norm.weight",     "norm.bias",
                                        "fc.bias",    "bn.running_mean", "bn.running_var",
                                        "bn.weight",  "bn.bias"};
    meg_saved all[9] = {{"fc.weight", MEG_F32, 2, {2, 8}, zeros}};
    for (int i = 0; i < 8; i++)
        all[i + 1] = (meg_saved){names[i], MEG_F32, i ? 1 : 2, {i ? 4 : 7, 4}, zeros};
    meg_saved_file other = {.count = 9, .tensor = all};
    assert_int_equal(meg_safetensors_write(&e, path, &other), MEG_OK);
    assert_int_not_equal(meg_trainer_load(j.trainer, path), MEG_OK);
    assert_non_null(strstr(meg_message(j.ctx),
                           "fc.weight has another shape than tokens needs: (2, 8), not (4, 4"));
    all[0] = (meg_saved){
        "fc.weight", MEG_F32, 4, {4, 1, 4, 1}, zeros}; /* extents of 1 say nothing */
    assert_int_equal(meg_safetensors_write(&e, path, &other), MEG_OK);
    said(j.ctx, meg_trainer_load(j.trainer, path));
    all[4].dtype = MEG_I32;
    assert_int_equal(meg_safetensors_write(&e, path, &other), MEG_OK);
    assert_int_not_equal(meg_trainer_load(j.trainer, path), MEG_OK);
    assert_non_null(strstr(meg_message(j.ctx), "fc.bias is of whole numbers"));
    scratch_free(&folder);
    end(&j);
}

/* ---- state dicts of other types ---- */

static const struct { /* of conv.bias and the mask `seen`, in corners/truth-buffer.onnx */
    const char *type, *mask;
    size_t bytes;
    unsigned char bias[16], seen[32]; /* 1.5, -2, 0.25, 0; and 0, 1, 1, 0 */
} NARROW[] = {
    {"F16", "BOOL", 2, "\x00\x3e\x00\xc0\x00\x34\x00\x00", "\0\1\1\0"},
    {"BF16", "U8", 2, "\xc0\x3f\x00\xc0\x80\x3e\x00\x00", "\0\1\1\0"},
    {"F32", "I64", 4, "\0\0\xc0\x3f\0\0\x00\xc0\0\0\x80\x3e\0\0\0\0",
     "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"},
};

static size_t add_tensor(char *header, const char *name, const char *type, const char *shape,
                         const size_t at[2])
{
    snprintf(header + strlen(header), 512 - strlen(header),
             "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             *header ? ',' : '{', name, type, shape, at[0], at[0] + at[1]);
    return at[0] + at[1];
}

/* The file with NARROW[i]; convolution and dense layer are zeros of half precision. */
static const char *write_narrow(scratch *folder, size_t i)
{
    char file[1024] = {0}, header[512] = "";
    size_t mask = strcmp(NARROW[i].mask, "I64") == 0 ? 32 : 4, at = 0;
    at = add_tensor(header, "conv.bias", NARROW[i].type, "4", (size_t[]){at, 4 * NARROW[i].bytes});
    at = add_tensor(header, "seen", NARROW[i].mask, "4,1,1", (size_t[]){at, mask});
    at = add_tensor(header, "conv.weight", "F16", "4,3,3,3", (size_t[]){at, 2 * 108});
    at = add_tensor(header, "fc.weight", "BF16", "5,4", (size_t[]){at, 2 * 20});
    at = add_tensor(header, "fc.bias", "F16", "5", (size_t[]){at, 2 * 5});
    strcat(header, "}");
    uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, NARROW[i].bias, 4 * NARROW[i].bytes);
    memcpy(file + 8 + length + 4 * NARROW[i].bytes, NARROW[i].seen, mask);
    return scratch_write(folder, "narrow.safetensors", file, 8 + length + at);
}

static void expect(const char *path, const char *name, const double want[4])
{
    meg_saved t;
    meg_safetensors *f = opened(path);
    assert_int_equal(tensor(f, name, &t), 4);
    for (int i = 0; i < 4; i++)
        if (fabs(number_at(&t, i) - want[i]) > 0)
            fail_msg("%s[%d] is %g, expected %g", name, i, number_at(&t, i), want[i]);
    meg_safetensors_close(f);
}

/* Weights of half precision and masks of truths or whole numbers are taken for what they are; a weight
 * of whole numbers is not. */
static void other_types(void **state)
{
    (void)state;
    job j = {0};
    scratch folder = scratch_new();
    const char *out = scratch_path(&folder, "out.safetensors");
    said(NULL, meg_open("device=ref64 log=quiet", &j.ctx));
    said(j.ctx, meg_graph_load(j.ctx, CORNERS "truth-buffer.onnx", "", &j.graph));
    said(j.ctx, meg_data_open(j.ctx, "synthetic:image=3x4x4 classes=5 count=2", &j.data));
    said(j.ctx, meg_plan_new(j.graph, j.data, "batch=2 optimizer=sgd", &j.plan));
    said(j.ctx, meg_trainer_new(j.plan, j.data, "lr=0 shuffle=no", &j.trainer));
    for (size_t i = 0; i < sizeof NARROW / sizeof *NARROW; i++) {
        said(j.ctx, meg_trainer_load(j.trainer, write_narrow(&folder, i)));
        said(j.ctx, meg_trainer_save(j.trainer, out));
        expect(out, "conv.bias", (double[]){1.5, -2, 0.25, 0});
        expect(out, "seen", (double[]){0, 1, 1, 0});
    }
    scratch_free(&folder);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_of_the_file),
                                       cmocka_unit_test(weights_of_a_state_dict),
                                       cmocka_unit_test(refusals), cmocka_unit_test(other_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
