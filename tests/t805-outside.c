/* A loss outside: outputs of a training step, gradients by them from the test, gradients of weights and running
 * statistics as those of a loss inside. Under stages, meshes, replicas, with several micro-batches, with dropout.
 */
#include "caller_help.h"

enum {
    BATCH = 8,
    MOST = 1 << 15
};

static meg_graph *make(meg_context *ctx, const char *loss, bool pixels)
{
    meg_graph *g = NULL;
    REQUIRE(meg_graph_new(ctx, "net", &g) == MEG_OK, "%s", meg_message(ctx));
    meg_val x = meg_input(g, "image", "Nx2x8x8");
    x = meg_layer(g, "conv", "name=conv1 filters=8 kernel=3 pad=1", x);
    x = meg_layer(g, "batchnorm", "name=bn1", x);
    x = meg_layer(g, "tanh", "", x);
    x = meg_layer(g, "dropout", "name=drop rate=0.3", x);
    x = meg_layer(g, "conv", "name=conv2 filters=8 kernel=3 pad=1", x);
    x = meg_layer(g, "batchnorm", "name=bn2", x);
    x = meg_layer(g, "tanh", "", x);
    if (pixels) x = meg_layer(g, "conv", "name=head filters=3 kernel=1", x);
    else {
        x = meg_layer(g, "avgpool", "kernel=2", x);
        x = meg_layer(g, "flatten", "", x);
        x = meg_layer(g, "dense", "name=head units=3", x);
    }
    REQUIRE(meg_graph_done(g, loss, x) == MEG_OK, "%s", meg_message(ctx));
    return g;
}

static meg_graph *inside(meg_context *ctx)
{
    return make(ctx, "softmax_xent", false);
}
static meg_graph *outside(meg_context *ctx)
{
    return make(ctx, "outside", false);
}
static meg_graph *pixels_inside(meg_context *ctx)
{
    return make(ctx, "softmax_xent", true);
}
static meg_graph *pixels_outside(meg_context *ctx)
{
    return make(ctx, "outside", true);
}

typedef struct outcome {
    double *numbers; /* rank 0's: gradients, then values */
    int64_t count;
    bool twice; /* a step is given up first */
} outcome;

static void collect(caller *c, outcome *o)
{
    static const char *const sorts[] = {"gradient", "value"};
    int64_t count = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < meg_tensors(c->trainer, sorts[k]); i++) {
            meg_tensor t;
            meg_tensor_at(c->trainer, sorts[k], i, &t);
            t.dtype = MEG_F64;
            t.data = meg_rank(c->ctx) == 0 ? o->numbers + count : NULL;
            caller_must(c, meg_trainer_get(c->trainer, sorts[k], t.name, &t));
            count += caller_size(&t);
        }
    REQUIRE(count > 500 && count < MOST, "%lld", (long long)count);
    if (meg_rank(c->ctx) == 0) o->count = count;
}

static void train_inside(caller *c, void *argument)
{
    caller_must(c, meg_train(c->trainer, 2, NULL));
    collect(c, argument);
}

/* Sample and labels of a batch, as the data set has them. */
static void read_batch(const caller *c, int64_t step, float *x, int32_t *label, int64_t labels)
{
    const meg_dataset *d = &c->data->set;
    meg_error *e = &c->ctx->error;
    int64_t each = meg_box_size(&d->sample);
    for (int64_t n = 0; n < BATCH; n++) {
        OK(e, d->reader->read(d, e, step * BATCH + n, &d->sample, x + n * each));
        OK(e, d->reader->label(d, e, step * BATCH + n, &d->label, label + n * labels));
    }
}

/* Mean cross-entropy: (softmax - 1 at the label) / labels of the batch; y (n, 3, p). */
static void gradient_of(const double *y, const int32_t *label, int64_t pixels, double *out)
{
    double all = (double)(BATCH * pixels);
    for (int64_t n = 0; n < BATCH; n++)
        for (int64_t p = 0; p < pixels; p++) {
            double sum = 0;
            for (int64_t k = 0; k < 3; k++)
                sum += exp(y[(n * 3 + k) * pixels + p]);
            for (int64_t k = 0; k < 3; k++) {
                int64_t at = (n * 3 + k) * pixels + p;
                out[at] = (exp(y[at]) / sum - (label[n * pixels + p] == k)) / all;
            }
        }
}

static void step_outside(caller *c, int64_t step, const outcome *o)
{
    float x[BATCH * 2 * 8 * 8];
    double *y = calloc(MOST, sizeof *y), *dy = calloc(MOST, sizeof *dy);
    int32_t label[BATCH * 64];
    int64_t pixels = meg_box_size(&c->data->set.label);
    meg_tensor in = {
        .name = "image", .data = x, .dtype = MEG_F32, .rank = 4, .shape = {BATCH, 2, 8, 8}};
    meg_tensor out;
    read_batch(c, step, x, label, pixels);
    REQUIRE(meg_output_at(c->trainer, 0, &out), "an output");
    out.dtype = MEG_F64;
    out.data = y;
    REQUIRE(caller_size(&out) == BATCH * 3 * pixels, "outputs");
    bool first = meg_rank(c->ctx) == 0;
    if (o->twice && step == 1) { /* with wrong samples, and not gone on with */
        float wrong[BATCH * 2 * 8 * 8] = {0};
        in.data = wrong;
        caller_must(c, meg_forward(c->trainer, 1, &in, 1, &out));
        in.data = x;
    }
    caller_must(c, meg_forward(c->trainer, 1, &in, 1, &out)); /* to all ranks */
    gradient_of(y, label, pixels, dy);
    meg_tensor back = out;
    back.data = first ? dy : NULL;
    caller_must(c, meg_backward(c->trainer, 1, &back));
    free(y);
    free(dy);
}

static void train_outside(caller *c, void *argument)
{
    outcome *o = argument;
    meg_report r;
    meg_tensor y;
    for (int64_t step = 0; step < 2; step++)
        step_outside(c, step, o);
    collect(c, o);
    REQUIRE(meg_engine_touched(c->trainer->engine) <= c->plan->arena, "%lld bytes of %lld",
            (long long)meg_engine_touched(c->trainer->engine), (long long)c->plan->arena);
    REQUIRE(meg_train(c->trainer, 1, &r) == MEG_EARG, "refused");
    REQUIRE(strstr(meg_message(c->ctx), "meg_forward"), "%s", meg_message(c->ctx));
    REQUIRE(meg_output_at(c->trainer, 0, &y), "an output");
    y.data = o->numbers;
    REQUIRE(meg_backward(c->trainer, 1, &y) == MEG_EARG, "refused");
    REQUIRE(strstr(meg_message(c->ctx), "meg_forward comes first"), "%s", meg_message(c->ctx));
}

static outcome run_case(const char *device, bool late, bool pixels, const char *words, int ranks)
{
    outcome o = {.numbers = calloc(MOST, sizeof(double)), .twice = strstr(words, "replicas")};
    char plan[256];
    snprintf(plan, sizeof plan, "batch=8 keep_grads=1 goal=given momentum=0.9 %s", words);
    caller_case k = {.device = device,
                     .graph = late ? (pixels ? pixels_outside : outside)
                                   : (pixels ? pixels_inside : inside),
                     .data = pixels ? "synthetic:image=2x8x8 classes=3 count=16 labels=pixels"
                                    : "synthetic:image=2x8x8 classes=3 count=16",
                     .plan = plan,
                     .trainer = "lr=0.1 shuffle=no",
                     .ranks = ranks};
    caller_run(&k, late ? train_outside : train_inside, &o);
    return o;
}

typedef struct way {
    const char *plan;
    int ranks;
    bool pixels;
} way;

static const way WAYS[] = {
    {"", 1, false},
    {"micro=2 norm=4", 1, false},
    {"micro=2 norm=4 recompute=segments", 1, true},
    {"replicas=2 norm=8", 2, false},
    {"replicas=3 norm=8", 3, true},
    {"stages=2", 2, false},
    {"stages=3 micro=4 norm=2 level=layer", 3, false},
    {"stages=2 replicas=2 micro=2 norm=4", 4, true},
    {"mesh=2x2", 4, true},
    {"mesh=2x2", 4, false},
    {"mesh=c2", 2, false},
    {"mesh=c2", 2, true},
    {"stages=2 mesh=1x2,1 micro=2 norm=4", 3, true},
    {"replicas=2 zero=3 norm=8", 2, false},
};

static void test_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        const char *norm = strstr(WAYS[i].plan, "norm=");
        char text[8] = "";
        if (norm) snprintf(text, sizeof text, "%.6s", norm);
        outcome judge = run_case("ref64", false, WAYS[i].pixels, text, 1);
        outcome o = run_case("ref64", true, WAYS[i].pixels, WAYS[i].plan, WAYS[i].ranks);
        assert_int_equal(o.count, judge.count);
        double far = caller_distance(o.numbers, judge.numbers, o.count);
        if (!(far < 1e-10)) fail_msg("'%s': distance %g", WAYS[i].plan, far);
        free(o.numbers);
        free(judge.numbers);
    }
}

static void test_float(void **state)
{
    (void)state;
    outcome judge = run_case("ref64", false, true, "", 1);
    outcome o = run_case("cpu", true, true, "stages=2", 2);
    double far = caller_distance(o.numbers, judge.numbers, o.count);
    if (!(far < 1e-4)) fail_msg("distance %g", far);
    free(o.numbers);
    free(judge.numbers);
}

/* Schedules that go back too early are refused, and another is chosen where none is given. */
static void test_schedules(void **state)
{
    (void)state;
    meg_context *ctx = NULL;
    meg_plan *p = NULL;
    assert_int_equal(meg_open("device=ref prices=builtin log=quiet", &ctx), MEG_OK);
    meg_graph *g = outside(ctx);
    assert_int_equal(meg_plan_new(g, NULL, "batch=8 micro=2 norm=4 schedule=serial", &p),
                     MEG_EUNSUPPORTED);
    assert_non_null(strstr(meg_message(ctx), "use schedule=gpipe, or micro=1"));
    assert_int_equal(meg_plan_new(g, NULL, "batch=8 feed=reader", &p), MEG_EUNSUPPORTED);
    assert_non_null(strstr(meg_message(ctx), "use feed=each"));
    assert_int_equal(meg_plan_new(g, NULL, "batch=8 micro=2 norm=4", &p), MEG_OK);
    meg_plan_free(p);
    meg_graph_free(g);
    meg_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_float),
                                       cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
