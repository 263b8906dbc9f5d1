/* Training goes on after a checkpoint as if nothing had happened: on other ranks, under another
 * schedule, on another device.
 */
#include "checkpoint_help.h"
#include "compare.h"
#include "smooth.h"

typedef struct leg { /* of a training: these ranks, up to this step */
    const char *words;
    int ranks;
    int64_t until;
} leg;

typedef struct journey {
    const char *model, *options, *words; /* words that all legs share */
    leg leg[4];
} journey;

static const journey journeys[] = {
    {"resnet-cifar",
     "depth=8 image=3x13x11 classes=5 width=8",
     "batch=12 norm=3 optimizer=sgd momentum=0.9 weight_decay=1e-3 nesterov",
     {{"stages=4 micro=4 schedule=1f1b", 4, 10}, {"replicas=3 zero=3", 3, 20}, {"", 1, 30}}},
    {"cnn",
     "image=1x13x11 classes=7 width=4 dropout=0.3",
     "batch=12 norm=3 optimizer=adamw",
     {{"replicas=2 stages=2 micro=4 schedule=chimera", 4, 5},
      {"", 1, 8},
      {"stages=2 micro=4 schedule=gpipe replicas=2 zero=3", 4, 13},
      {"replicas=2", 2, 16}}},
};

static void travel(const journey *y, const meg_graph *g, const run_result *whole, const char *dir)
{
    const leg *before = NULL;
    for (const leg *l = y->leg; l < y->leg + 4 && l->ranks; l++) {
        char words[512];
        snprintf(words, sizeof words, "%s %s", y->words, l->words);
        run_case c = {.graph = g, .plan = words, .device = "ref64", .ranks = l->ranks};
        c.folder = dir, c.keep = 2, c.seed = 3;
        c.until = c.every = l->until; /* one checkpoint, at its end */
        run_result *r = run_training(&c);
        if (r->status != MEG_OK) fail_msg("%s: %s", words, r->message);
        assert_true(r->begin == (before ? before->until : 0));
        for (int64_t i = r->begin; i < l->until; i++) {
            double apart = fabs(r->loss[i] - whole->loss[i]) / fabs(whole->loss[i]);
            if (!(apart <= compare_double))
                fail_msg("%s: step %lld: loss %.17g, undisturbed %.17g", words, (long long)i + 1,
                         r->loss[i], whole->loss[i]);
        }
        if (l == y->leg + 3 || !l[1].ranks) assert_true(run_apart(whole, r) <= compare_double);
        run_free(r);
        before = l;
    }
}

static void test_journeys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof journeys / sizeof *journeys; i++) {
        const journey *y = &journeys[i];
        scratch s = scratch_new();
        meg_graph *g = network_zoo(y->model, y->options);
        int64_t until = 0;
        for (const leg *l = y->leg; l < y->leg + 4 && l->ranks; l++)
            until = l->until;
        run_case c = {.graph = g, .plan = y->words, .device = "ref64", .ranks = 1};
        c.until = until, c.every = 1, c.seed = 3;
        run_result *whole = run_training(&c);
        assert_true(fabs(whole->loss[until - 1] - whole->loss[0]) > 0.05); /* it does train */
        travel(y, g, whole, scratch_path(&s, "checkpoints"));
        run_free(whole);
        meg_graph_destroy(g);
        scratch_clear(scratch_path(&s, "checkpoints"));
        scratch_free(&s);
    }
}

/* Weights of several pieces, in blocked formats, come back to the bit; numbers of another type are
 * converted. */
static void test_devices(void **state)
{
    (void)state;
    scratch s = scratch_new();
    const char *dir = scratch_path(&s, "checkpoints");
    meg_graph *g = network_zoo("cnn", "image=3x52x52 classes=7 width=32 dropout=0");
    g = smooth_network(g);
    run_case first = {.graph = g, .device = "cpu", .ranks = 2, .folder = dir, .keep = 1, .seed = 3};
    first.plan = "batch=4 norm=2 micro=2 stages=2 optimizer=adam";
    first.until = first.every = 2;
    run_result *a = run_training(&first);
    assert_int_equal(a->status, MEG_OK);
    int64_t largest = 0;
    for (int i = 0; i < a->tensors; i++)
        if (a->count[i] > largest) largest = a->count[i];
    assert_true(largest * 4 > 2 << 22); /* more than two messages */
    static const struct {
        const char *device, *words;
        int ranks;
    } other[] = {{"cpu", "", 1}, {"ref", "replicas=2 zero=3", 2}, {"ref64", "stages=2 micro=2", 2}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char words[256];
        snprintf(words, sizeof words, "batch=4 norm=2 optimizer=adam %s", other[i].words);
        run_case then = first;
        then.plan = words, then.device = other[i].device, then.ranks = other[i].ranks;
        then.resume = MEG_RESUME_YES, then.dry = true;
        run_result *b = run_training(&then);
        if (b->status != MEG_OK) fail_msg("%s", b->message);
        assert_true(b->begin == 2);
        assert_true(run_apart(a, b) == 0);
        run_free(b);
        then.dry = false, then.until = first.until = 3, then.every = first.every = 100;
        run_result *c = run_training(&then), *d = run_training(&first);
        if (!(fabs(c->loss[2] - d->loss[2]) <= compare_float * fabs(d->loss[2])))
            fail_msg("%s: loss %.9g, expected %.9g", words, c->loss[2], d->loss[2]);
        run_free(c);
        run_free(d);
    }
    run_free(a);
    meg_graph_destroy(g);
    scratch_clear(dir);
    scratch_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_journeys),
                                       cmocka_unit_test(test_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
