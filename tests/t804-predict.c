/* Predictions: what the network makes of samples without labels, on one rank as the operators define it, on
 * many as on one, whatever the plan. The last batch is a partial one.
 */
#include "caller_help.h"
#include "exec/reference.h"

enum {
    SAMPLES = 11,
    MOST = 1 << 16
};

typedef struct net {
    const char *model, *words, *data;
} net;

static const net CNN = {"resnet-cifar", "depth=8 image=1x12x12 classes=4 width=4",
                        "synthetic:image=1x12x12 classes=4"};
static const net UNET = {"unet", "image=1x16x16 classes=3 width=4 depth=2",
                         "synthetic:image=1x16x16 classes=3 labels=pixels"};
static const net GPT = {"gpt", "classes=13 tokens=8 layers=2 heads=2 width=8",
                        "synthetic:image=8 tokens=yes classes=13"};

typedef struct way { /* to share the work */
    const net *net;
    const char *plan;
    int ranks;
} way;

static const way WAYS[] = {
    {&CNN, "micro=2 norm=4", 1},
    {&CNN, "replicas=2 norm=8", 2},
    {&CNN, "replicas=3 norm=8", 3},
    {&CNN, "stages=2 micro=2 norm=4 schedule=1f1b", 2},
    {&CNN, "stages=2 micro=2 norm=4 schedule=chimera", 2},
    {&CNN, "replicas=2 stages=2 micro=2 norm=4", 4},
    {&CNN, "mesh=2x2 norm=8", 4},
    {&CNN, "mesh=c2 norm=8", 2},
    {&CNN, "mesh=c2 channels=filter norm=8", 2},
    {&CNN, "replicas=2 zero=3 norm=8", 2},
    {&UNET, "mesh=2x2", 4},
    {&UNET, "mesh=h3:1", 2},
    {&UNET, "stages=2 mesh=2x1,1 micro=2", 3},
    {&UNET, "mesh=c2", 2},
    {&UNET, "mesh=2x1 feed=reader", 2},
    {&CNN, "stages=2 norm=8 feed=reader", 2},
    {&UNET, "replicas=2 mesh=1x2 wide=2", 4},
    {&GPT, "replicas=2", 2},
    {&GPT, "mesh=c2", 2},
    {&GPT, "mesh=1x2", 2},
    {&GPT, "stages=2 micro=4", 2},
};

typedef struct outcome {
    const net *net;
    double *numbers; /* rank 0's */
    int64_t count;
    bool others; /* want them, too */
} outcome;

/* ---- as the operators define it ---- */

static void take_weights(const caller *c, const meg_reference *r)
{
    for (int i = 0; i < meg_tensors(c->trainer, "value"); i++) {
        meg_tensor t;
        meg_tensor_at(c->trainer, "value", i, &t);
        int value = meg_graph_find_value(r->graph, t.name);
        REQUIRE(value >= 0 && caller_size(&t) == meg_box_size(&r->graph->value[value].shape), "%s",
                t.name);
        t.dtype = MEG_F32;
        t.data = r->data[value];
        caller_must(c, meg_trainer_get(c->trainer, "value", t.name, &t));
    }
}

static void take_samples(const caller *c, const meg_data *d, const meg_reference *r)
{
    const meg_graph *g = r->graph;
    const meg_dataset *set = &d->set;
    int64_t each = meg_box_size(&set->sample);
    int input = 0;
    while (g->value[input].kind != MEG_INPUT)
        input++;
    float *x = calloc((size_t)(SAMPLES * each), sizeof *x);
    for (int64_t n = 0; n < SAMPLES; n++)
        OK(&c->ctx->error, set->reader->read(set, &c->ctx->error, n, &set->sample, x + n * each));
    for (int64_t i = 0; i < SAMPLES * each; i++)
        if (g->value[input].dtype == MEG_I32) ((int32_t *)r->data[input])[i] = (int32_t)x[i];
        else ((float *)r->data[input])[i] = x[i];
    free(x);
}

/* No plan, no engine, no gathering: node by node, with the trainer's weights. In float, so 1e-4 apart. */
static void judge_by_definition(const caller *c, const meg_data *d, const double *numbers)
{
    meg_graph *g = NULL;
    int result[MEG_OUTPUTS];
    caller_must(c, meg_graph_model(c->ctx, c->k->model, c->k->net, &g));
    OK(&c->ctx->error, meg_graph_rebatch(g, &c->ctx->error, SAMPLES));
    meg_reference *r = meg_reference_new(g, 1);
    take_weights(c, r);
    take_samples(c, d, r);
    meg_reference_run(r, MEG_EVAL);
    meg_graph_results(g, result);
    const float *y = r->data[result[0]];
    int64_t count = meg_box_size(&g->value[result[0]].shape);
    double *wide = calloc((size_t)count, sizeof *wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)y[i];
    double far = caller_distance(numbers, wide, count);
    REQUIRE(far < 1e-4, "%s: %g from what its operators make", c->k->model, far);
    free(wide);
    meg_reference_free(r);
    meg_graph_free(g);
}

/* ---- predictions ---- */

static void predict(caller *c, void *argument)
{
    outcome *o = argument;
    char source[256];
    meg_data *d = NULL;
    meg_tensor y;
    meg_report r;
    snprintf(source, sizeof source, "%s count=%d seed=2", o->net->data, SAMPLES);
    caller_must(c, meg_data_open(c->ctx, source, &d));
    caller_must(c, meg_train(c->trainer, 2, NULL)); /* running statistics that are no ones */
    assert_int_equal(meg_outputs(c->trainer), 1);
    REQUIRE(meg_output_at(c->trainer, 0, &y) && !meg_output_at(c->trainer, 1, &y), "one output");
    y.shape[0] = SAMPLES;
    y.dtype = MEG_F64;
    int64_t size = caller_size(&y);
    REQUIRE(size < MOST, "%lld outputs", (long long)size);
    double *mine = calloc(MOST, sizeof *mine);
    bool wants = meg_rank(c->ctx) == 0 || o->others;
    y.data = wants ? mine : NULL;
    caller_must(c, meg_predict(c->trainer, d, &y));
    if (meg_rank(c->ctx) == 0) {
        memcpy(o->numbers, mine, (size_t)size * sizeof *mine);
        o->count = size;
    }
    if (meg_ranks(c->ctx) == 1) judge_by_definition(c, d, mine);
    meg_comm_barrier(c->ctx->comm, &c->ctx->error);
    REQUIRE(!wants || memcmp(o->numbers, mine, (size_t)size * sizeof *mine) == 0, "rank %d",
            meg_rank(c->ctx));
    caller_must(c, meg_evaluate(c->trainer, d, &r)); /* goes on as ever */
    REQUIRE(r.measured_peak_bytes == r.predicted_peak_bytes, "%s: %lld bytes, predicted %lld",
            c->k->plan, (long long)r.measured_peak_bytes, (long long)r.predicted_peak_bytes);
    free(mine);
    meg_data_free(d);
}

static outcome run_way(const char *device, const way *w, bool others)
{
    outcome o = {.net = w->net, .numbers = calloc(MOST, sizeof(double)), .others = others};
    char plan[256], data[256];
    snprintf(plan, sizeof plan, "batch=8 predict=1 goal=given %s", w->plan);
    snprintf(data, sizeof data, "%s count=16", w->net->data);
    caller_case k = {.device = device,
                     .model = w->net->model,
                     .net = w->net->words,
                     .data = data,
                     .plan = plan,
                     .trainer = "lr=0.01",
                     .ranks = w->ranks};
    caller_run(&k, predict, &o);
    return o;
}

/* Weights after two steps are those of one rank to rounding, and so are outputs. */
static void compare(const char *device, double allowed)
{
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        const char *norm = strstr(WAYS[i].plan, "norm=");
        char text[8] = "";
        if (norm) snprintf(text, sizeof text, "%.6s", norm);
        way one = {WAYS[i].net, text, 1};
        outcome judge = run_way(device, &one, false), o = run_way(device, &WAYS[i], i % 2);
        assert_int_equal(o.count, judge.count);
        double far = caller_distance(o.numbers, judge.numbers, o.count);
        if (!(far < allowed)) fail_msg("%s %s: distance %g", device, WAYS[i].plan, far);
        free(o.numbers);
        free(judge.numbers);
    }
}

static void test_double(void **state)
{
    (void)state;
    compare("ref64", 1e-12);
}

static void test_float(void **state)
{
    (void)state;
    compare("cpu", 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_double), cmocka_unit_test(test_float)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
