/* Steps on batches from memory on many ranks: the answer of one rank, whoever has the data; what is wrong on
 * one rank is an error of all, and nothing was done.
 */
#include "caller_help.h"

enum {
    BATCH = 8,
    STEPS = 4,
    WORDS = 5,
    WEIGHTS = 4096
};

/* As in tests/inputs.h, by the calls of the public interface. */
static meg_graph *network(meg_context *ctx)
{
    meg_graph *g = NULL;
    REQUIRE(meg_graph_new(ctx, "steps", &g) == MEG_OK, "graph");
    meg_val image = meg_input(g, "image", "Nx2x6x4"), ids = meg_input(g, "ids", "Nx5:i32");
    meg_val a = meg_layer(g, "conv", "name=a filters=4 kernel=3 pad=1", image);
    meg_val b = meg_layer(g, "conv", "name=b filters=4 kernel=3 pad=1",
                          meg_layer(g, "tanh", "name=t", a));
    meg_val words = meg_layer(g, "embedding", "name=w vocabulary=11 features=4", ids);
    meg_val both[] = {meg_layer(g, "gap", "name=seen", b), meg_layer(g, "gap", "name=told", words)};
    meg_val sum = meg_join(g, "add", "name=sum", 2, both);
    meg_graph_loss(g, "softmax_xent target=marks weight=0.5",
                   meg_layer(g, "conv", "name=pixels filters=3 kernel=1", b));
    meg_graph_loss(g, "mse target=where", meg_layer(g, "dense", "name=p units=2", sum));
    REQUIRE(meg_graph_done(g, "softmax_xent target=kind",
                           meg_layer(g, "dense", "name=h units=3", sum)) == MEG_OK,
            "%s", meg_message(ctx));
    return g;
}

typedef struct batch {
    double image[BATCH][48], where[BATCH][2];
    int64_t ids[BATCH][WORDS], kind[BATCH];
    uint8_t marks[BATCH][24];
} batch;

static void fill(batch *b, int step)
{
    uint32_t s = 7 + (uint32_t)step;
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < 48; k++)
            b->image[i][k] = (double)((s = s * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
        for (int k = 0; k < WORDS; k++)
            b->ids[i][k] = (s = s * 1664525u + 1013904223u) >> 8 & 7;
        for (int k = 0; k < 24; k++)
            b->marks[i][k] = (uint8_t)(((s = s * 1664525u + 1013904223u) >> 8) % 3);
        b->kind[i] = (i + step) % 3;
        b->where[i][0] = 0.1 * i;
        b->where[i][1] = 0.3;
    }
}

static void tensors_of(batch *b, int count, meg_tensor x[5])
{
    x[0] = (meg_tensor){"image", b->image, MEG_F64, 4, {count, 2, 6, 4}};
    x[1] = (meg_tensor){"ids", b->ids, MEG_I64, 2, {count, WORDS}};
    x[2] = (meg_tensor){"marks", b->marks, MEG_U8, 3, {count, 6, 4}};
    x[3] = (meg_tensor){"where", b->where, MEG_F64, 2, {count, 2}};
    x[4] = (meg_tensor){"kind", b->kind, MEG_I64, 1, {count}};
}

typedef struct way {
    const char *plan;
    int ranks, readers;
} way;

static const way WAYS[] = {
    {"", 1, 1},
    {"replicas=2", 2, 2},
    {"replicas=2 feed=reader", 2, 2},
    {"stages=3 micro=2 level=layer assign=b,w feed=reader", 3, 1},
    {"stages=3 micro=2 level=layer assign=b,w", 3, 2},
    {"stages=2 micro=4 schedule=1f1b level=layer assign=b replicas=2 feed=reader", 4, 2},
    {"stages=2 micro=4 schedule=chimera level=layer assign=b feed=reader", 2, 2},
    {"mesh=2x1 feed=reader", 2, 1},
    {"mesh=2x2 micro=2 feed=reader", 4, 1},
    {"mesh=c2 feed=reader", 2, 1},
    {"mesh=2x1,1 stages=2 micro=2 level=layer assign=w replicas=2 feed=reader", 6, 2},
};

typedef struct outcome {
    double loss[2 * STEPS], weight[WEIGHTS];
    int readers;
} outcome;

static void take_weights(caller *c, double *out)
{
    meg_tensor t;
    for (int i = 0; meg_tensor_at(c->trainer, "weight", i, &t); i++) {
        double room[WEIGHTS] = {0};
        int64_t size = caller_size(&t);
        t.data = room;
        t.dtype = MEG_F64;
        caller_must(c, meg_trainer_get(c->trainer, "weight", t.name, &t));
        memcpy(out, room, (size_t)size * sizeof *out);
        out += size;
    }
}

/* Ranks that read nothing of a batch give none; of others' rows there is nonsense. */
static void steps(caller *c, void *argument)
{
    outcome *o = argument;
    batch b, mine;
    meg_tensor x[5];
    meg_report r;
    int rank = meg_rank(c->ctx), reads = 0;
    for (int64_t i = 0; i < BATCH; i++)
        reads += meg_plan_reads(c->plan, i);
    REQUIRE(!meg_plan_reads(c->plan, BATCH) && !meg_plan_reads(c->plan, -1), "beyond the batch");
    meg_trainer *t = NULL;
    caller_must(c, meg_trainer_new(c->plan, NULL, "lr=0.1", &t));
    meg_trainer_free(c->trainer);
    c->trainer = t;
    for (int step = 0; step < STEPS; step++) {
        int count = step == 2 ? 5 : BATCH; /* one is smaller */
        fill(&b, step);
        memset(&mine, 0x7f, sizeof mine);
        for (int i = 0; i < BATCH; i++) {
            if (!meg_plan_reads(c->plan, i)) continue;
            memcpy(mine.image[i], b.image[i], sizeof b.image[i]);
            memcpy(mine.where[i], b.where[i], sizeof b.where[i]);
            memcpy(mine.ids[i], b.ids[i], sizeof b.ids[i]);
            memcpy(mine.marks[i], b.marks[i], sizeof b.marks[i]);
            mine.kind[i] = b.kind[i];
        }
        tensors_of(&mine, count, x);
        mine.where[3][1] = (double)NAN; /* does not count */
        caller_must(c, meg_step(t, reads ? 5 : 0, x, &r));
        REQUIRE(r.step == step + 1, "step %lld", (long long)r.step);
        REQUIRE(r.measured_peak_bytes == r.predicted_peak_bytes || step < 1, "%s: bytes",
                c->k->plan);
        if (rank == 0) o->loss[step] = r.loss;
        mine.where[3][1] = 0.3;
        caller_must(c, meg_evaluate_batch(t, reads ? 5 : 0, x, &r));
        if (rank == 0) o->loss[STEPS + step] = r.loss;
    }
    double weights[WEIGHTS] = {0};
    take_weights(c, weights);
    if (rank == 0) memcpy(o->weight, weights, sizeof weights);
    double all[16];
    double readers = reads > 0;
    OK(&c->ctx->error,
       meg_comm_gather(c->ctx->comm, &c->ctx->error, &readers, sizeof readers, all));
    for (int i = 0; rank == 0 && i < meg_ranks(c->ctx); i++)
        o->readers += all[i] > 0;
}

static outcome run_way(const way *w, caller_function *run)
{
    outcome o = {0};
    char plan[256];
    snprintf(plan, sizeof plan, "batch=8 goal=given %s", w->plan);
    caller_case k = {.device = "ref64", .graph = network, .plan = plan, .ranks = w->ranks};
    caller_run(&k, run, &o);
    return o;
}

static void test_same(void **state)
{
    (void)state;
    outcome one = run_way(&WAYS[0], steps);
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        outcome o = run_way(&WAYS[i], steps);
        double loss = caller_distance(o.loss, one.loss, 2 * STEPS);
        double weight = caller_distance(o.weight, one.weight, WEIGHTS);
        if (!(loss < 1e-10) || !(weight < 1e-10))
            fail_msg("%s: losses differ by %g, weights by %g", WAYS[i].plan, loss, weight);
        if (o.readers != WAYS[i].readers)
            fail_msg("%s: %d ranks read, expected %d", WAYS[i].plan, o.readers, WAYS[i].readers);
    }
}

static void says(caller *c, meg_status status, const char *text)
{
    REQUIRE(status != MEG_OK && strstr(meg_message(c->ctx), text),
            "rank %d: %d, '%s', expected '%s'", meg_rank(c->ctx), (int)status, meg_message(c->ctx),
            text);
}

/* The last rank's batch is wrong; all are told, and go on. */
static void wrong(caller *c, void *argument)
{
    (void)argument;
    batch b;
    meg_tensor x[5];
    meg_report r;
    bool last = meg_rank(c->ctx) == meg_ranks(c->ctx) - 1;
    fill(&b, 0);
    tensors_of(&b, BATCH, x);
    if (last) b.kind[BATCH - 1] = 5;
    says(c, meg_step(c->trainer, 5, x, &r), "sample 7 has the label 5 in 'kind'");
    b.kind[BATCH - 1] = 0;
    if (last) tensors_of(&b, BATCH - 2, x);
    says(c, meg_step(c->trainer, 5, x, &r), "rank 0 has a batch of 8 samples, rank 1 one of 6");
    tensors_of(&b, BATCH, x);
    says(c, meg_step(c->trainer, last ? 0 : 5, x, &r), "rank 1 reads a part of each batch");
    caller_must(c, meg_step(c->trainer, 5, x, &r));
    REQUIRE(r.step == 1, "step %lld", (long long)r.step);
    for (int i = 0; i < BATCH; i++)
        b.image[i][0] = (double)NAN;
    says(c, meg_step(c->trainer, 5, x, &r), "the loss of step 2 is");
}

static void test_wrong(void **state)
{
    (void)state;
    run_way(&WAYS[1], wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
