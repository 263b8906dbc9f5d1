/* Tensors by name: weights, running statistics, gradients and optimizer states, read and written through
 * the public interface. Ranks that hold them in stages, in parts of a mesh, in shards, as copies give what
 * one rank gives.
 */
#include "caller_help.h"

typedef struct way { /* to share the work */
    const char *plan;
    int ranks;
} way;

static const way WAYS[] = {{"micro=2 norm=4", 1},
                           {"replicas=2 norm=8", 2},
                           {"stages=2 micro=2 norm=4 schedule=gpipe", 2},
                           {"mesh=2x2 norm=8", 4},
                           {"mesh=c2 norm=8", 2},
                           {"replicas=2 stages=2 micro=2 norm=4 schedule=chimera", 4},
                           {"replicas=3 zero=3 norm=8", 3},
                           {"replicas=2 zero=1 norm=8", 2}};

/* Everything of every sort, as one list of numbers. */
static void read_all(caller *c, double *to, int64_t *count)
{
    static const char *const sorts[] = {"value", "gradient", "state"};
    *count = 0;
    for (size_t k = 0; k < sizeof sorts / sizeof *sorts; k++) {
        int tensors = meg_tensors(c->trainer, sorts[k]);
        REQUIRE(tensors > 0, "no %s", sorts[k]);
        for (int i = 0; i < tensors; i++) {
            meg_tensor t;
            REQUIRE(meg_tensor_at(c->trainer, sorts[k], i, &t), "%s %d", sorts[k], i);
            int64_t size = caller_size(&t);
            t.dtype = MEG_F64;
            t.data = to + *count;
            caller_must(c, meg_trainer_get(c->trainer, sorts[k], t.name, &t));
            *count += size;
        }
    }
    meg_tensor none;
    REQUIRE(!meg_tensor_at(c->trainer, "value", meg_tensors(c->trainer, "value"), &none), "end");
}

enum {
    MOST = 1 << 16
};

static const char *const NET = "depth=8 image=1x12x12 classes=4 width=4";

typedef struct outcome {
    const char *device;
    double *numbers; /* of rank 0 */
    int64_t count;
} outcome;

/* All ranks ask; each gets the same. */
static void train_and_read(caller *c, void *argument)
{
    outcome *o = argument;
    double *mine = calloc(MOST, sizeof *mine);
    int64_t count;
    caller_must(c, meg_train(c->trainer, 2, NULL));
    read_all(c, mine, &count);
    REQUIRE(count < MOST && count > 1000, "%lld numbers", (long long)count);
    if (meg_rank(c->ctx) == 0) {
        memcpy(o->numbers, mine, (size_t)count * sizeof *mine);
        o->count = count;
    }
    meg_comm_barrier(c->ctx->comm, &c->ctx->error);
    REQUIRE(memcmp(o->numbers, mine, (size_t)count * sizeof *mine) == 0,
            "rank %d has other numbers", meg_rank(c->ctx));
    free(mine);
}

static outcome run_way(const char *device, const way *w)
{
    outcome o = {.device = device, .numbers = calloc(MOST, sizeof(double))};
    char plan[256];
    snprintf(plan, sizeof plan, "batch=8 keep_grads=1 goal=given optimizer=sgd momentum=0.9 %s",
             w->plan);
    caller_case k = {.device = device,
                     .model = "resnet-cifar",
                     .net = NET,
                     .data = "synthetic:image=1x12x12 classes=4 count=16",
                     .plan = plan,
                     .trainer = "lr=0.05",
                     .ranks = w->ranks};
    caller_run(&k, train_and_read, &o);
    return o;
}

/* One rank with batch norms over as many samples judges. Sums over ranks come in another order: 1e-10. */
static void test_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        way one = {strstr(WAYS[i].plan, "norm=4") ? "norm=4" : "norm=8", 1};
        outcome judge = run_way("ref64", &one), o = run_way("ref64", &WAYS[i]);
        assert_int_equal(o.count, judge.count);
        double worst = caller_distance(o.numbers, judge.numbers, o.count);
        if (!(worst < 1e-10)) fail_msg("%s: distance %g", WAYS[i].plan, worst);
        free(o.numbers);
        free(judge.numbers);
    }
}

/* ---- writing ---- */

static double odd_number(int64_t i)
{
    return (double)(i % 97) / 64 - 0.5; /* floats have it exactly */
}

/* What is written is read again, in either type, and the others of its kind stay. */
static void write_and_read(caller *c, void *argument)
{
    static const char *const sorts[] = {"weight", "statistic", "state"};
    (void)argument;
    caller_must(c, meg_train(c->trainer, 1, NULL));
    for (size_t k = 0; k < sizeof sorts / sizeof *sorts; k++)
        for (int i = 0; i < meg_tensors(c->trainer, sorts[k]); i++) {
            meg_tensor t;
            double *wide = calloc(MOST, sizeof *wide);
            float *small = calloc(MOST, sizeof *small);
            meg_tensor_at(c->trainer, sorts[k], i, &t);
            int64_t size = caller_size(&t);
            for (int64_t p = 0; p < size; p++)
                small[p] = meg_rank(c->ctx) == 0 ? (float)odd_number(p + i) : -7;
            t.data = meg_rank(c->ctx) == 0 ? small : NULL;
            t.dtype = MEG_F32;
            caller_must(c, meg_trainer_set(c->trainer, sorts[k], t.name, &t));
            t.data = wide;
            t.dtype = MEG_F64;
            caller_must(c, meg_trainer_get(c->trainer, sorts[k], t.name, &t));
            for (int64_t p = 0; p < size; p++)
                REQUIRE(wide[p] == odd_number(p + i), "%s[%lld]: %g, not %g", t.name, (long long)p,
                        wide[p], odd_number(p + i));
            free(wide);
            free(small);
        }
    caller_must(c, meg_train(c->trainer, 1, NULL)); /* goes on with them */
}

static void test_writing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        for (int wide = 0; wide < 2; wide++) {
            char plan[256];
            snprintf(plan, sizeof plan, "batch=8 goal=given optimizer=adam %s", WAYS[i].plan);
            caller_case k = {.device = wide ? "ref64" : "cpu",
                             .model = "resnet-cifar",
                             .net = NET,
                             .data = "synthetic:image=1x12x12 classes=4 count=16",
                             .plan = plan,
                             .trainer = "lr=0.0001",
                             .ranks = WAYS[i].ranks};
            caller_run(&k, write_and_read, NULL);
        }
}

/* ---- refusals ---- */

static void refuse(caller *c, meg_status status, const char *part)
{
    REQUIRE(status == MEG_EARG, "status %d, not refused: %s", status, part);
    REQUIRE(strstr(meg_message(c->ctx), part), "expected '%s' in: %s", part, meg_message(c->ctx));
}

static void be_refused(caller *c, void *argument)
{
    (void)argument;
    float room[64] = {0};
    meg_tensor bias = {.data = room, .rank = 1, .shape = {4}};
    meg_tensor none = bias, long_one = bias, whole = bias;
    none.data = NULL;
    long_one.shape[0] = 10;
    whole.dtype = MEG_I64;
    meg_trainer *t = c->trainer;
    caller_must(c, meg_trainer_get(t, "weight", "fc.bias", &bias));
    refuse(c, meg_trainer_get(t, "weights", "fc.bias", &bias), "use value, weight, statistic");
    refuse(c, meg_trainer_get(t, "weight", "fc.bais", &bias), "no weight 'fc.bais'");
    refuse(c, meg_trainer_get(t, "statistic", "fc.bias", &bias), "no statistic 'fc.bias'");
    refuse(c, meg_trainer_get(t, "weight", "fc.bias", &none), "rank 0 has no memory");
    refuse(c, meg_trainer_get(t, "weight", "fc.bias", &long_one), "(4), not (10)");
    refuse(c, meg_trainer_get(t, "weight", "fc.bias", &whole), "MEG_F32 or MEG_F64");
    refuse(c, meg_trainer_get(t, "gradient", "fc.bias", &bias), "keep_grads=1");
    refuse(c, meg_trainer_set(t, "gradient", "fc.bias", &bias), "set \"weight\" instead");
    assert_int_equal(meg_tensors(t, "gradient"), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        caller_case k = {.device = "ref",
                         .model = "resnet-cifar",
                         .net = NET,
                         .data = "synthetic:image=1x12x12 classes=4 count=16",
                         .plan = ranks == 1 ? "batch=8" : "batch=8 replicas=2 norm=8",
                         .trainer = "",
                         .ranks = ranks};
        caller_run(&k, be_refused, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_writing),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
