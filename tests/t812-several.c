/* Networks of several inputs on their way through files: written as ONNX and read again, and trained on from a
 * checkpoint on other ranks.
 */
#include "caller_help.h"
#include "scratch.h"

enum {
    SAMPLES = 16,
    IMAGE = 2 * 6 * 4,
    MORE = 7,
    IDS = 5,
    MOST = 1 << 12
};

typedef struct rows {
    float image[SAMPLES * IMAGE], more[SAMPLES * MORE];
    int32_t ids[SAMPLES * IDS];
    int64_t label[SAMPLES];
} rows;

static void fill(rows *r)
{
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        r->image[i] = (float)sin(1.3 * i + 0.2);
    for (int i = 0; i < SAMPLES * MORE; i++)
        r->more[i] = (float)cos(0.7 * i * i);
    for (int i = 0; i < SAMPLES * IDS; i++)
        r->ids[i] = i * 7 % 11;
    for (int i = 0; i < SAMPLES; i++)
        r->label[i] = i * 5 % 3;
}

static meg_graph *make(meg_context *ctx)
{
    meg_graph *g = NULL;
    REQUIRE(meg_graph_new(ctx, "several", &g) == MEG_OK, "%s", meg_message(ctx));
    meg_val image = meg_input(g, "image", "Nx2x6x4"), more = meg_input(g, "more", "Nx7");
    meg_val ids = meg_input(g, "ids", "Nx5:i32");
    meg_val x = meg_layer(g, "conv", "name=conv filters=4 kernel=3 pad=1", image);
    x = meg_layer(g, "batchnorm", "name=bn", x);
    x = meg_layer(g, "gap", "name=seen", meg_layer(g, "tanh", "name=bent", x));
    meg_val words = meg_layer(g, "embedding", "name=words vocabulary=11 features=4", ids);
    meg_val told = meg_layer(g, "gap", "name=told", words);
    meg_val facts = meg_layer(g, "dense", "name=facts units=4", more);
    x = meg_join(g, "add", "name=sum", 3, (meg_val[]){x, told, facts});
    x = meg_layer(g, "dense", "name=head units=3", meg_layer(g, "tanh", "name=last", x));
    REQUIRE(meg_graph_done(g, "softmax_xent", x) == MEG_OK, "%s", meg_message(ctx));
    return g;
}

typedef struct journey {
    const char *file, *folder, *words;
    int64_t steps;
    double *numbers; /* rank 0's: values of all tensors, or predictions */
    int64_t count;
    bool again; /* the network comes from the file */
} journey;

static meg_data *open_rows(const caller *c, rows *r)
{
    meg_data *d = NULL;
    fill(r);
    const meg_tensor t[] = {{"more", r->more, MEG_F32, 2, {SAMPLES, 7}},
                            {"label", r->label, MEG_I64, 1, {SAMPLES}},
                            {"image", r->image, MEG_F32, 4, {SAMPLES, 2, 6, 4}},
                            {"ids", r->ids, MEG_I32, 2, {SAMPLES, 5}}};
    caller_must(c, meg_data_memory(c->ctx, 4, t, "", &d));
    return d;
}

static void collect(const caller *c, meg_trainer *t, journey *j)
{
    int64_t count = 0;
    for (int i = 0; i < meg_tensors(t, "value"); i++) {
        meg_tensor x;
        meg_tensor_at(t, "value", i, &x);
        x.dtype = MEG_F64;
        x.data = meg_rank(c->ctx) == 0 ? j->numbers + count : NULL;
        caller_must(c, meg_trainer_get(t, "value", x.name, &x));
        count += caller_size(&x);
    }
    REQUIRE(count > 100 && count < MOST, "%lld", (long long)count);
    if (meg_rank(c->ctx) == 0) j->count = count;
}

static void predict(const caller *c, meg_trainer *t, meg_data *d, journey *j)
{
    meg_tensor y = {NULL, NULL, MEG_F64, 2, {SAMPLES, 3}};
    if (meg_rank(c->ctx) == 0) y.data = j->numbers + j->count, j->count += 3 * SAMPLES;
    caller_must(c, meg_predict(t, d, &y));
}

/* Trains as the words say, and writes the file, if it has a name. */
static void go(caller *c, void *argument)
{
    journey *j = argument;
    rows *r = calloc(1, sizeof *r);
    meg_graph *g = NULL;
    meg_plan *p = NULL;
    meg_trainer *t = NULL;
    char words[256], how[256];
    meg_data *d = open_rows(c, r);
    snprintf(words, sizeof words, "batch=8 norm=4 goal=given predict=1 momentum=0.9 %s", j->words);
    snprintf(how, sizeof how, "lr=0.1 epochs=3%s%s", j->folder ? " checkpoint=" : "",
             j->folder ? j->folder : "");
    if (j->again) caller_must(c, meg_graph_load(c->ctx, j->file, "", &g));
    caller_must(c, meg_plan_new(g ? g : c->net, d, words, &p));
    caller_must(c, meg_trainer_new(p, d, how, &t));
    if (j->steps) caller_must(c, meg_train(t, j->steps, NULL));
    if (j->folder) caller_must(c, meg_trainer_checkpoint(t));
    collect(c, t, j);
    predict(c, t, d, j);
    if (j->file && !j->again) caller_must(c, meg_trainer_export(t, j->file));
    meg_trainer_free(t);
    meg_plan_free(p);
    meg_graph_free(g);
    meg_data_free(d);
    free(r);
}

static void run(journey *j, int ranks)
{
    const caller_case k = {.device = "ref64",
                           .graph = make,
                           .plan = "batch=8 norm=4 goal=given",
                           .trainer = "lr=0.1",
                           .ranks = ranks};
    j->numbers = calloc(MOST, sizeof *j->numbers);
    caller_run(&k, go, j);
}

static void compare(const char *what, const journey *a, const journey *b, double allowed)
{
    assert_int_equal(a->count, b->count);
    double far = caller_distance(a->numbers, b->numbers, a->count);
    if (!(far < allowed)) fail_msg("%s: distance %g", what, far);
}

/* Written by one plan, read and trained on under others: weights are floats in the file. */
static void test_onnx(void **state)
{
    (void)state;
    scratch s = scratch_new();
    const char *path = scratch_path(&s, "several.onnx");
    journey first = {.file = path, .words = "", .steps = 2};
    run(&first, 1);
    journey read = {.file = path, .words = "", .again = true}, on = read, many = read;
    run(&read, 1);
    compare("read again", &read, &first, 1e-6);
    on.steps = many.steps = 2;
    run(&on, 1);
    many.words = "stages=2 micro=2 level=layer feed=reader";
    run(&many, 2);
    compare("two stages", &many, &on, 1e-10);
    free(first.numbers), free(read.numbers), free(on.numbers), free(many.numbers);
    scratch_free(&s);
}

static void test_resume(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        int ranks;
    } ways[] = {{"", 1},
                {"replicas=2", 2},
                {"stages=2 micro=2 level=layer", 2},
                {"mesh=2x1 feed=reader", 2},
                {"stages=3 micro=2 level=layer schedule=gpipe feed=reader", 3}};
    journey whole = {.words = "", .steps = 6};
    run(&whole, 1);
    for (int i = 0; i < 5; i++) {
        scratch s = scratch_new();
        const char *folder = scratch_path(&s, "checkpoints");
        journey half = {.folder = folder, .words = ways[4 - i].words, .steps = 3};
        run(&half, ways[4 - i].ranks);
        journey rest = {.folder = folder, .words = ways[i].words, .steps = 3};
        run(&rest, ways[i].ranks);
        compare(ways[i].words, &rest, &whole, 1e-10);
        free(half.numbers), free(rest.numbers);
        scratch_clear(folder);
        scratch_free(&s);
    }
    free(whole.numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_onnx), cmocka_unit_test(test_resume)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
