/* A loss outside: outputs of a training step, gradients by them from the test, gradients of weights and running
 * statistics as those of a loss inside. Under stages, meshes, replicas, with several micro-batches, with dropout.
 */
#include "caller_help.h"

enum {
    BATCH = 8,
    MOST = 1 << 15
};

typedef enum heads {
    FLAT,
    PIXELS,
    TWO /* of one shape, with the same labels; the second in an earlier layer */
} heads;

static meg_val flat_head(meg_graph *g, const char *name, meg_val x)
{
    char words[32];
    snprintf(words, sizeof words, "name=%s units=3", name);
    x = meg_layer(g, "avgpool", "kernel=2", x);
    x = meg_layer(g, "flatten", "", x);
    return meg_layer(g, "dense", words, x);
}

static meg_graph *make(meg_context *ctx, const char *loss, heads h)
{
    meg_graph *g = NULL;
    REQUIRE(meg_graph_new(ctx, "net", &g) == MEG_OK, "%s", meg_message(ctx));
    meg_val x = meg_input(g, "image", "Nx2x8x8");
    x = meg_layer(g, "conv", "name=conv1 filters=8 kernel=3 pad=1", x);
    x = meg_layer(g, "batchnorm", "name=bn1", x);
    x = meg_layer(g, "tanh", "", x);
    x = meg_layer(g, "dropout", "name=drop rate=0.3", x);
    if (h == TWO) meg_graph_loss(g, loss, flat_head(g, "aside", x));
    x = meg_layer(g, "conv", "name=conv2 filters=8 kernel=3 pad=1", x);
    x = meg_layer(g, "batchnorm", "name=bn2", x);
    x = meg_layer(g, "tanh", "", x);
    if (h == PIXELS) x = meg_layer(g, "conv", "name=head filters=3 kernel=1", x);
    else x = flat_head(g, "head", x);
    REQUIRE(meg_graph_done(g, loss, x) == MEG_OK, "%s", meg_message(ctx));
    return g;
}

static meg_graph *inside(meg_context *ctx)
{
    return make(ctx, "softmax_xent", FLAT);
}
static meg_graph *outside(meg_context *ctx)
{
    return make(ctx, "outside", FLAT);
}
static meg_graph *pixels_inside(meg_context *ctx)
{
    return make(ctx, "softmax_xent", PIXELS);
}
static meg_graph *pixels_outside(meg_context *ctx)
{
    return make(ctx, "outside", PIXELS);
}
static meg_graph *two_inside(meg_context *ctx)
{
    return make(ctx, "softmax_xent", TWO);
}
static meg_graph *two_outside(meg_context *ctx)
{
    return make(ctx, "outside", TWO);
}

typedef struct outcome {
    double *numbers; /* rank 0's: gradients, then values, then what is predicted */
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
    for (int i = 0; i < meg_outputs(c->trainer); i++) {
        meg_tensor t;
        meg_output_at(c->trainer, i, &t);
        t.shape[0] = meg_data_count(c->data);
        t.dtype = MEG_F64;
        t.data = meg_rank(c->ctx) == 0 ? o->numbers + count : NULL;
        caller_must(c, meg_predict(c->trainer, c->data, &t));
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

typedef struct batch {
    int64_t count; /* the last one of an epoch may be smaller */
    float x[BATCH * 2 * 8 * 8];
    int32_t label[BATCH * 64];
} batch;

/* Sample and labels of a batch, as the data set has them; nonsense in place of samples that this rank does not
 * read. Returns how many it reads. */
static int read_batch(const caller *c, int64_t step, int64_t labels, batch *b)
{
    const meg_dataset *d = &c->data->set;
    meg_error *e = &c->ctx->error;
    int64_t each = meg_box_size(&d->sample), rest = d->count - step * BATCH;
    int reads = 0;
    b->count = rest < BATCH ? rest : BATCH;
    memset(b->x, 0xff, sizeof b->x);
    for (int64_t n = 0; n < b->count; n++) {
        OK(e, d->reader->label(d, e, step * BATCH + n, &d->label, b->label + n * labels));
        if (!meg_plan_reads(c->plan, n)) continue;
        OK(e, d->reader->read(d, e, step * BATCH + n, &d->sample, b->x + n * each));
        reads++;
    }
    return reads;
}

/* Mean cross-entropy: (softmax - 1 at the label) / labels of the batch; y (n, 3, p). */
static void gradient_of(const batch *b, const double *y, int64_t pixels, double *out)
{
    double all = (double)(b->count * pixels);
    for (int64_t n = 0; n < b->count; n++)
        for (int64_t p = 0; p < pixels; p++) {
            double sum = 0;
            for (int64_t k = 0; k < 3; k++)
                sum += exp(y[(n * 3 + k) * pixels + p]);
            for (int64_t k = 0; k < 3; k++) {
                int64_t at = (n * 3 + k) * pixels + p;
                out[at] = (exp(y[at]) / sum - (b->label[n * pixels + p] == k)) / all;
            }
        }
}

static int outputs_of(const caller *c, int64_t samples, double *y, meg_tensor out[2])
{
    int count = meg_outputs(c->trainer);
    REQUIRE(count == 1 || count == 2, "%d outputs", count);
    for (int i = 0; i < count; i++) {
        REQUIRE(meg_output_at(c->trainer, i, &out[i]), "an output");
        out[i].dtype = MEG_F64;
        out[i].data = y + i * MOST;
        out[i].shape[0] = samples;
    }
    return count;
}

static void step_outside(caller *c, int64_t step, const outcome *o)
{
    batch *b = calloc(1, sizeof *b);
    double *y = calloc(2 * MOST, sizeof *y), *dy = calloc(2 * MOST, sizeof *dy);
    int64_t pixels = meg_box_size(&c->data->set.label);
    int reads = read_batch(c, step, pixels, b);
    meg_tensor in = {.name = "image",
                     .data = reads ? b->x : NULL,
                     .dtype = MEG_F32,
                     .rank = 4,
                     .shape = {b->count, 2, 8, 8}};
    meg_tensor out[2];
    int count = outputs_of(c, b->count, y, out);
    if (o->twice && step == 1) { /* with wrong samples, and not gone on with */
        float wrong[BATCH * 2 * 8 * 8] = {0};
        in.data = wrong;
        caller_must(c, meg_forward(c->trainer, 1, &in, count, out));
        in.data = reads ? b->x : NULL;
    }
    caller_must(c, meg_forward(c->trainer, 1, &in, count, out)); /* to all ranks */
    for (int i = 0; i < count; i++) {
        gradient_of(b, y + i * MOST, pixels, dy + i * MOST);
        out[i].data = meg_rank(c->ctx) == 0 ? dy + i * MOST : NULL;
    }
    caller_must(c, meg_backward(c->trainer, count, out));
    free(b);
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

typedef struct way {
    const char *plan;
    int ranks;
    heads heads;
    int samples; /* 0: 16 */
} way;

static outcome run_case(const char *device, bool late, const char *words, const way *w)
{
    static meg_graph *(*const nets[][2])(meg_context *) = {
        [FLAT] = {inside, outside},
        [PIXELS] = {pixels_inside, pixels_outside},
        [TWO] = {two_inside, two_outside}};
    outcome o = {.numbers = calloc(MOST, sizeof(double)), .twice = strstr(words, "replicas")};
    char plan[256], data[128];
    snprintf(plan, sizeof plan, "batch=8 keep_grads=1 goal=given momentum=0.9 predict=1 %s", words);
    snprintf(data, sizeof data, "synthetic:image=2x8x8 classes=3 count=%d%s",
             w->samples ? w->samples : 16, w->heads == PIXELS ? " labels=pixels" : "");
    caller_case k = {.device = device,
                     .graph = nets[w->heads][late],
                     .data = data,
                     .plan = plan,
                     .trainer = "lr=0.1 shuffle=no",
                     .ranks = late ? w->ranks : 1};
    caller_run(&k, late ? train_outside : train_inside, &o);
    return o;
}

static const way WAYS[] = {
    {"", 1, FLAT, 0},
    {"micro=2 norm=4", 1, FLAT, 0},
    {"micro=2 norm=4 recompute=segments", 1, PIXELS, 0},
    {"replicas=2 norm=8", 2, FLAT, 0},
    {"replicas=3 norm=8", 3, PIXELS, 0},
    {"stages=2", 2, FLAT, 0},
    {"stages=3 micro=4 norm=2 level=layer", 3, FLAT, 0},
    {"stages=2 replicas=2 micro=2 norm=4", 4, PIXELS, 0},
    {"mesh=2x2", 4, PIXELS, 0},
    {"mesh=2x2", 4, FLAT, 0},
    {"mesh=c2", 2, FLAT, 0},
    {"mesh=c2", 2, PIXELS, 0},
    {"stages=2 mesh=1x2,1 micro=2 norm=4", 3, PIXELS, 0},
    {"replicas=2 zero=3 norm=8", 2, FLAT, 0},
    {"norm=2", 1, TWO, 12},
    {"replicas=2 norm=2", 2, FLAT, 12}, /* a last batch of 4 samples */
    {"stages=2 norm=2", 2, TWO, 0},
    {"stages=3 micro=2 norm=4 level=layer", 3, TWO, 0},
    {"mesh=2x2 norm=4", 4, TWO, 0},
    {"mesh=c2 norm=2", 2, TWO, 12},
    {"stages=2 schedule=chimera micro=2 norm=4", 2, PIXELS, 0},
    {"stages=2 schedule=chimera micro=2 norm=4 replicas=2", 4, TWO, 0},
    {"stages=2 schedule=chimera micro=2 norm=4 mesh=2x1", 4, PIXELS, 0},
    {"norm=8 feed=reader", 1, FLAT, 0},
    {"stages=2 norm=2 feed=reader", 2, FLAT, 12},
    {"stages=3 micro=4 norm=2 level=layer feed=reader", 3, TWO, 0},
    {"replicas=2 norm=2 feed=reader", 2, PIXELS, 12},
    {"mesh=2x2 feed=reader", 4, PIXELS, 0},
    {"mesh=2x2 feed=reader", 4, FLAT, 0},
    {"mesh=2x2 micro=2 norm=4 feed=reader recompute=segments", 4, TWO, 0},
    {"mesh=c2 feed=reader", 2, PIXELS, 0},
    {"mesh=n2 norm=4 feed=reader", 2, TWO, 0},
    {"mesh=1x2/head:2x1 level=layer feed=reader", 2, PIXELS, 0},
    {"stages=2 mesh=1x2,1 micro=2 norm=4 feed=reader", 3, PIXELS, 0},
    {"stages=2 mesh=2x1 micro=2 norm=4 replicas=2 feed=reader", 8, TWO, 0},
    {"replicas=2 mesh=2x1 norm=2 feed=reader zero=1", 4, PIXELS, 12},
    {"stages=2 schedule=chimera micro=2 norm=4 feed=reader", 2, PIXELS, 0},
    {"stages=2 schedule=chimera micro=2 norm=4 replicas=2 feed=reader", 4, TWO, 0},
    {"stages=2 schedule=chimera micro=2 norm=4 mesh=2x1 feed=reader", 4, PIXELS, 0},
};

static void test_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        const char *norm = strstr(WAYS[i].plan, "norm=");
        char text[8] = "";
        if (norm) snprintf(text, sizeof text, "%.6s", norm);
        outcome judge = run_case("ref64", false, text, &WAYS[i]);
        outcome o = run_case("ref64", true, WAYS[i].plan, &WAYS[i]);
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
    const way w = {"stages=2", 2, PIXELS, 0};
    outcome judge = run_case("ref64", false, "", &w);
    outcome o = run_case("cpu", true, w.plan, &w);
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
    assert_int_equal(meg_plan_new(g, NULL, "batch=8 micro=2 norm=4", &p), MEG_OK);
    meg_plan_free(p);
    meg_graph_free(g);
    meg_close(ctx);
}

/* A target is one loss's gradient: it is nobody else's, and not a label that is there before. */
static void test_targets(void **state)
{
    (void)state;
    meg_context *ctx = NULL;
    static const char *const rows[][3] = {
        {"outside", "softmax_xent", "do not go together"},
        {"mse", "outside", "do not go together"},
        {"outside target=a", "outside target=a", "already a value 'a'"},
        {"outside", "outside target=image", "already a value 'image'"},
    };
    assert_int_equal(meg_open("device=ref prices=builtin log=quiet", &ctx), MEG_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        meg_graph *g = NULL;
        assert_int_equal(meg_graph_new(ctx, "net", &g), MEG_OK);
        meg_val x = meg_layer(g, "dense", "name=a1 units=3", meg_input(g, "image", "Nx5"));
        meg_graph_loss(g, rows[i][0], x);
        assert_int_equal(meg_graph_done(g, rows[i][1], meg_layer(g, "tanh", "", x)), MEG_EARG);
        if (!strstr(meg_message(ctx), rows[i][2])) fail_msg("%s", meg_message(ctx));
        meg_graph_free(g);
    }
    meg_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_float),
                                       cmocka_unit_test(test_schedules),
                                       cmocka_unit_test(test_targets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
