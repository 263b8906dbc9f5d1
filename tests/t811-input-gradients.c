/* Gradients by the inputs of a network whose loss is outside (input_grads=1): against finite differences on one
 * rank, and of many ranks against one, under stages, meshes, replicas, both directions and readers.
 *
 *     image --- conv1 -- batchnorm -- tanh --+-- concat -- conv2 -- tanh --+-- head -- outside
 *        \----------------------------------/ |                            |
 *     more ----------------------------------/    (gap) aside -- outside --/
 *     ids  --- embedding -- gap ----------------------------------------- added to head's features
 */
#include "caller_help.h"

enum {
    BATCH = 8,
    IMAGE = 2 * 8 * 6,
    MORE = 3 * 8 * 6,
    IDS = 5,
    HEAD = 3 * 8 * 6,
    ASIDE = 4,
    MOST = BATCH * (IMAGE + MORE)
};

static meg_graph *make(meg_context *ctx)
{
    meg_graph *g = NULL;
    REQUIRE(meg_graph_new(ctx, "net", &g) == MEG_OK, "%s", meg_message(ctx));
    meg_val image = meg_input(g, "image", "Nx2x8x6"), more = meg_input(g, "more", "Nx3x8x6");
    meg_val ids = meg_input(g, "ids", "Nx5:i32");
    meg_val x = meg_layer(g, "conv", "name=conv1 filters=4 kernel=3 pad=1", image);
    x = meg_layer(g, "batchnorm", "name=bn1", x);
    x = meg_layer(g, "tanh", "", x);
    x = meg_layer(g, "dropout", "name=drop rate=0.3", x);
    x = meg_join(g, "concat", "name=both", 3, (meg_val[]){x, image, more});
    x = meg_layer(g, "conv", "name=conv2 filters=4 kernel=3 pad=1", x);
    x = meg_layer(g, "tanh", "name=seen", x);
    meg_val words = meg_layer(g, "embedding", "name=words vocabulary=7 features=4", ids);
    meg_val told = meg_layer(g, "gap", "name=told", words);
    meg_val sum = meg_join(g, "add", "name=sum", 2,
                           (meg_val[]){meg_layer(g, "gap", "name=mean", x), told});
    meg_graph_loss(g, "outside", meg_layer(g, "dense", "name=aside units=4", sum));
    x = meg_layer(g, "conv", "name=head filters=3 kernel=1", x);
    REQUIRE(meg_graph_done(g, "outside", x) == MEG_OK, "%s", meg_message(ctx));
    return g;
}

typedef struct batch {
    double image[BATCH * IMAGE], more[BATCH * MORE];
    int32_t ids[BATCH * IDS];
    double aside[BATCH * ASIDE], head[BATCH * HEAD]; /* outputs, then gradients by them */
} batch;

static double wave(int64_t i)
{
    return sin(1.7 * (double)i + 0.3) + 0.4 * cos(0.13 * (double)(i * i % 1009));
}

static void fill(batch *b)
{
    for (int64_t i = 0; i < BATCH * IMAGE; i++)
        b->image[i] = wave(i);
    for (int64_t i = 0; i < BATCH * MORE; i++)
        b->more[i] = wave(i + 7000);
    for (int64_t i = 0; i < BATCH * IDS; i++)
        b->ids[i] = (int32_t)(i * 5 % 7);
}

/* What this rank does not read is nonsense. */
static void forget(batch *b, const meg_plan *p)
{
    for (int64_t n = 0; n < BATCH; n++) {
        if (meg_plan_reads(p, n)) continue;
        memset(b->image + n * IMAGE, 0xff, IMAGE * sizeof *b->image);
        memset(b->more + n * MORE, 0xff, MORE * sizeof *b->more);
        for (int i = 0; i < IDS; i++)
            b->ids[n * IDS + i] = 1 << 20;
    }
}

static void forward(const caller *c, batch *b)
{
    const meg_tensor in[] = {{"image", b->image, MEG_F64, 4, {BATCH, 2, 8, 6}},
                             {"ids", b->ids, MEG_I32, 2, {BATCH, 5}},
                             {"more", b->more, MEG_F64, 4, {BATCH, 3, 8, 6}}};
    meg_tensor out[] = {{"aside", b->aside, MEG_F64, 2, {BATCH, 4}},
                        {"head", b->head, MEG_F64, 4, {BATCH, 3, 8, 6}}};
    caller_must(c, meg_forward(c->trainer, 3, in, 2, out));
}

/* sum of w * y + y^2 / 2 over all outputs; y becomes its gradient. */
static double loss_of(double *y, int64_t count, int64_t at)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double w = wave(at + i);
        sum += w * y[i] + y[i] * y[i] / 2;
        y[i] += w;
    }
    return sum;
}

static double loss(batch *b)
{
    return loss_of(b->aside, BATCH * ASIDE, 100) + loss_of(b->head, BATCH * HEAD, 900);
}

static void backward(const caller *c, batch *b)
{
    const meg_tensor out[] = {{"head", b->head, MEG_F64, 4, {BATCH, 3, 8, 6}},
                              {"aside", b->aside, MEG_F64, 2, {BATCH, 4}}};
    caller_must(c, meg_backward(c->trainer, 2, out));
}

typedef struct outcome {
    double numbers[MOST]; /* gradients by image, by more */
} outcome;

static void gradients(const caller *c, double *image, double *more)
{
    bool first = meg_rank(c->ctx) == 0;
    meg_tensor x = {"image", image, MEG_F64, 4, {BATCH, 2, 8, 6}};
    meg_tensor y = {"more", first ? more : NULL, MEG_F64, 4, {BATCH, 3, 8, 6}};
    caller_must(c, meg_input_gradient(c->trainer, &x)); /* to all ranks */
    caller_must(c, meg_input_gradient(c->trainer, &y));
}

static void step(caller *c, void *argument)
{
    outcome *o = argument;
    batch *b = calloc(1, sizeof *b);
    double *image = calloc(BATCH * IMAGE, sizeof *image), *more = o->numbers + BATCH * IMAGE;
    for (int k = 0; k < 2; k++) { /* the second time with other gradients */
        fill(b);
        forget(b, c->plan);
        forward(c, b);
        if (k) loss(b);
        backward(c, b);
        gradients(c, image, more);
    }
    double norm = 0;
    for (int64_t i = 0; i < BATCH * IMAGE; i++)
        norm += image[i] * image[i];
    REQUIRE(norm > 1e-3 && isfinite(norm), "rank %d: gradients of norm %g", meg_rank(c->ctx), norm);
    if (meg_rank(c->ctx) == 0) memcpy(o->numbers, image, (size_t)(BATCH * IMAGE) * sizeof *image);
    REQUIRE(meg_engine_touched(c->trainer->engine) <= c->plan->arena, "%lld bytes of %lld",
            (long long)meg_engine_touched(c->trainer->engine), (long long)c->plan->arena);
    free(image);
    free(b);
}

static double moved(const caller *c, batch *b, double *number, double by)
{
    double before = *number;
    *number = before + by;
    forward(c, b);
    *number = before;
    return loss(b);
}

/* Central differences of some of the numbers. */
static void differences(caller *c, void *argument)
{
    const outcome *o = argument;
    const double h = 1e-5, allowed = 1e-8; /* h^2, and 1e-16 / h of a loss of size 100 */
    batch *b = calloc(1, sizeof *b);
    fill(b);
    forward(c, b); /* the mask of dropout is that of the step: the first was done by `step`, too */
    backward(c, b);
    for (int64_t i = 0; i < MOST; i += 5) {
        bool first = i < BATCH * IMAGE;
        double *number = first ? &b->image[i] : &b->more[i - BATCH * IMAGE];
        double up = moved(c, b, number, h), down = moved(c, b, number, -h);
        double slope = (up - down) / (2 * h);
        REQUIRE(fabs(slope - o->numbers[i]) < allowed * (10 + fabs(slope)), "%lld: %g, not %g",
                (long long)i, o->numbers[i], slope);
    }
    free(b);
}

static void want(const caller *c, meg_tensor x, const char *text)
{
    REQUIRE(meg_input_gradient(c->trainer, &x) == MEG_EARG, "refused");
    REQUIRE(strstr(meg_message(c->ctx), text), "%s", meg_message(c->ctx));
}

static void without(caller *c, void *argument)
{
    outcome *o = argument;
    want(c, (meg_tensor){"image", o->numbers, MEG_F64, 4, {BATCH, 2, 8, 6}}, "input_grads=1");
}

static void run_case(const char *device, const char *words, int ranks, caller_function *run,
                     outcome *o)
{
    char plan[256];
    snprintf(plan, sizeof plan, "batch=8 goal=given %s %s", run == without ? "" : "input_grads=1",
             words);
    caller_case k = {
        .device = device, .graph = make, .plan = plan, .trainer = "lr=0", .ranks = ranks};
    caller_run(&k, run, o);
}

static void test_differences(void **state)
{
    (void)state;
    outcome *o = calloc(1, sizeof *o);
    run_case("ref64", "", 1, step, o);
    run_case("ref64", "", 1, differences, o);
    free(o);
}

typedef struct way {
    const char *plan;
    int ranks;
    const char *one;
} way;

static const way WAYS[] = {
    {"micro=2 norm=4", 1, "norm=4"},
    {"micro=2 norm=4 recompute=segments", 1, "norm=4"},
    {"replicas=2", 2, ""},
    {"replicas=3 norm=2", 3, "norm=2"},
    {"stages=2", 2, ""},
    {"stages=3 micro=4 norm=2 level=layer assign=both,seen", 3, "norm=2"},
    {"stages=2 micro=2 norm=4 level=layer assign=both replicas=2", 4, "norm=4"},
    {"stages=2 schedule=chimera micro=2 norm=4", 2, "norm=4"},
    {"stages=2 schedule=chimera micro=2 norm=4 mesh=2x1 replicas=2", 8, "norm=4"},
    {"mesh=2x2", 4, ""},
    {"mesh=2x2 wide=2", 4, ""},
    {"mesh=c2", 2, ""},
    {"mesh=n2", 2, ""},
    {"mesh=1x2/head:2x1 level=layer", 2, ""},
    {"stages=2 mesh=1x2,1 micro=2 norm=4 level=layer assign=both", 3, "norm=4"},
    {"replicas=2 zero=3 norm=2", 2, "norm=2"},
    {"stages=2 schedule=zb_h1 norm=8", 2, ""},
    {"feed=reader", 1, ""},
    {"replicas=2 feed=reader", 2, ""},
    {"stages=3 micro=4 norm=2 level=layer assign=both,seen feed=reader", 3, "norm=2"},
    {"stages=2 schedule=chimera micro=2 norm=4 mesh=2x1 replicas=2 feed=reader", 8, "norm=4"},
    {"mesh=2x2 feed=reader", 4, ""},
    {"mesh=2x2 micro=2 norm=4 recompute=segments feed=reader", 4, "norm=4"},
    {"mesh=c2 feed=reader", 2, ""},
    {"mesh=1x2/head:2x1 level=layer feed=reader", 2, ""},
    {"stages=2 mesh=1x2,1 micro=2 norm=4 level=layer assign=both feed=reader", 3, "norm=4"},
};

static void agree(const char *device, const way *w, double allowed)
{
    outcome *one = calloc(1, sizeof *one), *all = calloc(1, sizeof *all);
    run_case("ref64", w->one, 1, step, one);
    run_case(device, w->plan, w->ranks, step, all);
    double image = caller_distance(all->numbers, one->numbers, BATCH * IMAGE);
    double more = caller_distance(all->numbers + BATCH * IMAGE, one->numbers + BATCH * IMAGE,
                                  BATCH * MORE);
    if (!(image < allowed && more < allowed))
        fail_msg("%s '%s': distances %g, %g", device, w->plan, image, more);
    free(one);
    free(all);
}

static void test_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        agree("ref64", &WAYS[i], 1e-10);
}

/* Kernels of the cpu, and memory that is spoilt when it is freed, or that the host cannot touch. */
static void test_devices(void **state)
{
    (void)state;
    static const int rows[] = {2, 5, 9, 24};
    for (int i = 0; i < 4; i++) {
        agree("cpu", &WAYS[rows[i]], 1e-4);
        agree("check", &WAYS[rows[i]], 1e-4);
        agree("far", &WAYS[rows[i]], 1e-10);
    }
}

/* ---- what is refused ---- */

static void misuse(caller *c, void *argument)
{
    outcome *o = argument;
    batch *b = calloc(1, sizeof *b);
    meg_tensor x = {"image", o->numbers, MEG_F64, 4, {BATCH, 2, 8, 6}};
    want(c, x, "meg_backward comes first");
    fill(b);
    forward(c, b);
    want(c, x, "meg_backward comes first");
    backward(c, b);
    caller_must(c, meg_input_gradient(c->trainer, &x));
    x.name = "ids";
    want(c, x, "whole numbers");
    x.name = "nothing";
    want(c, x, "no input 'nothing'");
    x.name = NULL; /* the first */
    x.shape[0] = 4;
    want(c, x, "image");
    x.shape[0] = BATCH;
    caller_must(c, meg_input_gradient(c->trainer, &x));
    forward(c, b);
    want(c, x, "meg_backward comes first");
    free(b);
}

static void test_misuse(void **state)
{
    (void)state;
    outcome *o = calloc(1, sizeof *o);
    run_case("ref64", "", 1, misuse, o);
    run_case("ref64", "stages=2", 2, misuse, o);
    run_case("ref64", "", 1, without, o);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_ways), cmocka_unit_test(test_devices),
                                       cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
