/* Data in the caller's memory: whole data sets, sets that are read sample by sample, single batches. */
#include <megalith.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    COUNT = 22,
    BATCH = 8,
    WORDS = 5
};

static meg_context *ctx;

#define OK(call) assert_ok(call, #call, __LINE__)

static void assert_ok(meg_status status, const char *call, int line)
{
    if (status != MEG_OK) fail_msg("line %d: %s: %s", line, call, meg_message(ctx));
}

static void assert_says(meg_status status, meg_status want, const char *text)
{
    if (status != want || !strstr(meg_message(ctx), text))
        fail_msg("expected %d with '%s', got %d with '%s'", want, text, status, meg_message(ctx));
}

/* Two inputs, ids and an image; two targets. */
static meg_graph *network(bool norm)
{
    meg_graph *g;
    OK(meg_graph_new(ctx, "two", &g));
    meg_val image = meg_input(g, "image", "Nx2x4x3"), ids = meg_input(g, "ids", "Nx5:i32");
    meg_val a = meg_layer(g, "conv", "name=a filters=4 kernel=3 pad=1", image);
    if (norm) a = meg_layer(g, "batchnorm", "name=n", a);
    meg_val seen = meg_layer(g, "gap", "name=seen", meg_layer(g, "tanh", "name=t", a));
    meg_val words = meg_layer(g, "embedding", "name=w vocabulary=11 features=4", ids);
    meg_val told = meg_layer(g, "gap", "name=told", words);
    meg_val sum = meg_join(g, "add", "name=sum", 2, (meg_val[]){seen, told});
    meg_graph_loss(g, "softmax_xent target=kind", meg_layer(g, "dense", "name=h units=3", sum));
    OK(meg_graph_done(g, "mse target=where weight=0.5",
                      meg_layer(g, "dense", "name=p units=2", sum)));
    return g;
}

typedef struct samples {
    float image[COUNT][2][4][3];
    int64_t ids[COUNT][WORDS];
    uint8_t kind[COUNT];
    double where[COUNT][2];
    int reads, broken;
} samples;

static samples *made(void)
{
    samples *s = calloc(1, sizeof *s);
    uint32_t state = 1;
    s->broken = -1;
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 24; k++)
            ((float *)s->image[i])[k] = (float)((state = state * 1664525u + 1013904223u) >> 20) /
                                            2048 -
                                        1;
        for (int k = 0; k < WORDS; k++)
            s->ids[i][k] = (state = state * 1664525u + 1013904223u) >> 8 & 7;
        s->kind[i] = (uint8_t)((i * 7 + 1) % 3);
        s->where[i][0] = i * 0.0625 - 0.5;
        s->where[i][1] = 0.25;
    }
    return s;
}

/* Samples from `first` on. */
static void tensors_of(samples *s, int first, int count, meg_tensor out[4])
{
    out[0] = (meg_tensor){"image", s->image[first], MEG_F32, 4, {count, 2, 4, 3}};
    out[1] = (meg_tensor){"ids", s->ids[first], MEG_I64, 2, {count, WORDS}};
    out[2] = (meg_tensor){"kind", &s->kind[first], MEG_U8, 1, {count}};
    out[3] = (meg_tensor){"where", s->where[first], MEG_F64, 2, {count, 2}};
}

static int read_one(void *user, int64_t index, int count, const meg_tensor out[])
{
    samples *s = user;
    s->reads++;
    if (index == s->broken) return 7;
    assert_int_equal(count, 4);
    assert_string_equal(out[0].name, "image");
    assert_int_equal(out[0].rank, 3);
    assert_int_equal(out[2].rank, 0);
    memcpy(out[0].data, s->image[index], sizeof s->image[index]);
    memcpy(out[1].data, s->ids[index], sizeof s->ids[index]);
    memcpy(out[2].data, &s->kind[index], 1);
    memcpy(out[3].data, s->where[index], sizeof s->where[index]);
    return 0;
}

static double weight_of(meg_trainer *t, const char *name)
{
    double out[256] = {0};
    meg_tensor x = {.data = out, .dtype = MEG_F64};
    for (int i = 0; meg_tensor_at(t, "value", i, &x); i++)
        if (strcmp(x.name, name) == 0) break;
    x.data = out;
    x.dtype = MEG_F64;
    OK(meg_trainer_get(t, "value", name, &x));
    double sum = 0;
    for (int i = 0; i < 256; i++)
        sum += out[i] * (i + 1);
    return sum;
}

/* An epoch of a data set, and the same batches by hand, the last one smaller: the same losses and weights. */
static void epoch(bool norm)
{
    samples *s = made();
    meg_tensor x[4];
    meg_data *d;
    meg_plan *p;
    meg_trainer *a, *b;
    meg_report r, q;
    meg_graph *g = network(norm);
    tensors_of(s, 0, COUNT, x);
    OK(meg_data_memory(ctx, 4, x, "name=mine", &d));
    assert_int_equal(meg_data_count(d), COUNT);
    OK(meg_plan_new(g, d, "batch=8 norm=2", &p));
    OK(meg_trainer_new(p, d, "lr=0.2 shuffle=0 epochs=1", &a));
    OK(meg_trainer_new(p, NULL, "lr=0.2", &b));
    for (int i = 0; i * BATCH < COUNT; i++) {
        int count = COUNT - i * BATCH < BATCH ? COUNT - i * BATCH : BATCH;
        tensors_of(s, i * BATCH, count, x);
        OK(meg_train(a, 1, &r));
        OK(meg_step(b, 4, x, &q));
        assert_int_equal(q.step, i + 1);
        if (fabs(r.loss - q.loss) > 1e-13 * r.loss || !(q.loss > 0))
            fail_msg("batch %d: loss %.17g, by hand %.17g", i, r.loss, q.loss);
        assert_true(r.accuracy == q.accuracy);
    }
    assert_true(weight_of(a, "a.weight") == weight_of(b, "a.weight"));
    assert_true(weight_of(a, "w.weight") == weight_of(b, "w.weight"));

    tensors_of(s, 0, COUNT, x);
    OK(meg_evaluate(a, d, &r));
    double loss = 0;
    for (int i = 0; i * BATCH < COUNT; i++) {
        int count = COUNT - i * BATCH < BATCH ? COUNT - i * BATCH : BATCH;
        tensors_of(s, i * BATCH, count, x);
        OK(meg_evaluate_batch(b, 4, x, &q));
        loss += q.loss * count / COUNT;
    }
    assert_true(fabs(loss - r.loss) < 1e-13 * loss);
    assert_says(meg_train(b, 1, &r), MEG_EARG, "no data set to train on");
    meg_trainer_free(a);
    meg_trainer_free(b);
    meg_plan_free(p);
    meg_data_free(d);
    meg_graph_free(g);
    free(s);
}

static void test_epoch(void **state)
{
    (void)state;
    epoch(false);
    epoch(true);
}

/* Read sample by sample, it is the same data set. */
static void test_lazy(void **state)
{
    (void)state;
    samples *s = made();
    meg_tensor x[4];
    meg_data *d, *lazy;
    meg_plan *p;
    meg_trainer *a, *b;
    meg_report r, q;
    meg_graph *g = network(true);
    tensors_of(s, 0, COUNT, x);
    OK(meg_data_memory(ctx, 4, x, "", &d));
    for (int i = 0; i < 4; i++)
        x[i].data = NULL;
    OK(meg_data_lazy(ctx, 4, x, &(meg_lazy){read_one, s}, &lazy));
    OK(meg_plan_new(g, d, "batch=8 norm=2", &p));
    OK(meg_trainer_new(p, d, "lr=0.2 epochs=2", &a));
    OK(meg_trainer_new(p, lazy, "lr=0.2 epochs=2", &b));
    OK(meg_train(a, 0, &r));
    OK(meg_train(b, 0, &q));
    assert_true(r.loss == q.loss);
    assert_true(weight_of(a, "w.weight") == weight_of(b, "w.weight"));
    assert_in_range(s->reads, 2 * COUNT, 3 * COUNT); /* once for all four arrays; some ahead */
    s->broken = 3;
    assert_says(meg_train(b, 3, &q), MEG_EDATA, "samples: sample 3 could not be read (7)");
    meg_trainer_free(a);
    meg_trainer_free(b);
    meg_plan_free(p);
    meg_data_free(d);
    meg_data_free(lazy);
    meg_graph_free(g);
    free(s);
}

/* A step of fewer samples is that of these alone, where samples do not meet. */
static void test_fewer(void **state)
{
    (void)state;
    samples *s = made();
    meg_tensor x[4];
    meg_plan *p, *exact;
    meg_trainer *a, *b;
    meg_report r, q;
    meg_graph *g = network(false), *n = network(true);
    OK(meg_plan_new(g, NULL, "batch=8 micro=2", &p));
    OK(meg_plan_new(g, NULL, "batch=5", &exact));
    OK(meg_trainer_new(p, NULL, "lr=0.2", &a));
    OK(meg_trainer_new(exact, NULL, "lr=0.2", &b));
    tensors_of(s, 3, 5, x);
    for (int i = 0; i < 3; i++) {
        OK(meg_step(a, 4, x, &r));
        OK(meg_step(b, 4, x, &q));
        if (fabs(r.loss - q.loss) > 1e-12 * q.loss) fail_msg("%.17g, exact %.17g", r.loss, q.loss);
        assert_true(r.accuracy == q.accuracy);
    }
    meg_trainer_lr(a, 0);
    double before = weight_of(a, "a.weight");
    OK(meg_step(a, 4, x, &r));
    assert_true(weight_of(a, "a.weight") == before);
    meg_trainer_lr(a, -1);
    OK(meg_step(a, 4, x, &r));
    assert_true(weight_of(a, "a.weight") != before);
    meg_trainer_free(a);
    meg_trainer_free(b);
    meg_plan_free(p);
    meg_plan_free(exact);
    OK(meg_plan_new(n, NULL, "batch=8", &p));
    OK(meg_trainer_new(p, NULL, "lr=0.2", &a));
    assert_says(
        meg_step(a, 4, x, &r), MEG_EARG,
        "'n' normalises over samples: a batch of 5 cannot be filled up to 8; give batches of 8");
    meg_trainer_free(a);
    meg_plan_free(p);
    meg_graph_free(g);
    meg_graph_free(n);
    free(s);
}

static void test_messages(void **state)
{
    (void)state;
    samples *s = made();
    meg_tensor x[5];
    meg_data *d;
    meg_plan *p;
    meg_trainer *t;
    meg_report r;
    meg_graph *g = network(false);
    OK(meg_plan_new(g, NULL, "batch=8", &p));
    OK(meg_trainer_new(p, NULL, "lr=0.1", &t));
    tensors_of(s, 0, 8, x);
    s->kind[2] = 3;
    assert_says(
        meg_step(t, 4, x, &r), MEG_EDATA,
        "the batch: sample 2 has the label 3 in 'kind', but the network knows the classes 0..2");
    s->kind[2] = 0;
    s->ids[1][4] = 11;
    assert_says(meg_step(t, 4, x, &r), MEG_EDATA,
                "sample 1 has the token 11, but the network knows 0..10");
    s->ids[1][4] = INT64_C(1) << 33;
    assert_says(meg_step(t, 4, x, &r), MEG_EDATA,
                "sample 1 of 'ids' has the number 8589934592, but ids and classes have 32 bits");
    s->ids[1][4] = 1;
    assert_says(meg_step(t, 3, x, &r), MEG_EARG,
                "the batch has nothing for 'where': two takes image, ids, kind, where");
    x[4] = (meg_tensor){"extra", s->kind, MEG_U8, 1, {8}};
    assert_says(meg_step(t, 5, x, &r), MEG_EARG,
                "'extra' is no input and no target of two: it takes image, ids, kind, where");
    x[1].shape[1] = 4;
    assert_says(meg_step(t, 4, x, &r), MEG_EARG,
                "'ids' has the shape (n, 4), but two takes (n, 5)");
    tensors_of(s, 0, 8, x);
    x[1].dtype = MEG_F32;
    assert_says(meg_step(t, 4, x, &r), MEG_EARG,
                "'ids' has real numbers (f32), but two takes ids: use whole ones, like int64");
    tensors_of(s, 0, 8, x);
    x[2].shape[0] = 7;
    assert_says(meg_step(t, 4, x, &r), MEG_EARG, "'kind' has 7 samples, but 'image' has 8");
    tensors_of(s, 0, 9, x);
    assert_says(meg_step(t, 4, x, &r), MEG_EARG,
                "the batch has 9 samples, but the plan was made for 8");
    assert_says(meg_step(t, 0, NULL, &r), MEG_EARG,
                "reads a part of each batch, but it was given none");
    tensors_of(s, 0, 8, x);
    OK(meg_step(t, 4, x, &r)); /* none of these has done anything */
    assert_int_equal(r.step, 1);
    s->image[0][0][0][0] = NAN;
    assert_says(meg_step(t, 4, x, &r), MEG_ENAN, "the loss of step 2 is");

    x[3].data = NULL;
    assert_says(meg_data_memory(ctx, 4, x, "", &d), MEG_EARG, "memory: 'where' has no data");
    tensors_of(s, 0, 8, x);
    x[3].name = "kind";
    assert_says(meg_data_memory(ctx, 4, x, "name=mine", &d), MEG_EARG,
                "mine: 'kind' is there twice");
    assert_says(meg_data_memory(ctx, 0, x, "", &d), MEG_EARG, "memory: there is no array");
    assert_says(meg_data_memory(ctx, 4, x, "nam=x", &d), MEG_EARG, "nam");
    assert_says(meg_data_lazy(ctx, 4, x, NULL, &d), MEG_EARG, "no function that reads");
    tensors_of(s, 0, 8, x);
    OK(meg_data_memory(ctx, 2, x, "name=half", &d));
    meg_plan *q;
    assert_says(meg_plan_new(g, d, "batch=8", &q), MEG_EARG, "half has nothing for 'kind'");
    meg_data_free(d);
    OK(meg_data_open(ctx, "synthetic:image=2x4x3 classes=3", &d));
    assert_says(meg_plan_new(g, d, "batch=8", &q), MEG_EARG,
                "has one array of samples, but two takes image, ids, kind, where");
    meg_data_free(d);
    meg_trainer_free(t);
    assert_says(meg_trainer_new(p, NULL, "lr_schedule=cosine", &t), MEG_EARG, "count epochs");
    meg_plan_free(p);
    meg_graph_free(g);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_fewer),
        cmocka_unit_test(test_messages),
    };
    if (meg_open("device=ref64 threads=1 log=quiet", &ctx) != MEG_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    meg_close(ctx);
    return failed;
}
