/* What a search chooses among, and what it says of it: words that others make possible, the least memory, what is nearest
 * where nothing fits, choices of many ranks that every rank can hold, and errors.
 */
#include "search_help.h"

static bool tried(const answer *a, const char *word)
{
    for (int i = 0; i < a->found.count; i++)
        if (a->found.list[i].verdict != MEG_ILLEGAL && strstr(a->found.list[i].words, word))
            return true;
    return false;
}

#define GPT "gpt", "layers=4 width=16 heads=2 tokens=8 classes=64"

/* ---- what there is to choose among ---- */

/* replications= is of schedule=master, whoever said that. */
static void test_replications(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){GPT, "batch=8 stages=2 schedule=master micro=8", NODE, 2, 0, MEG_GOAL_TIME});
    best(a);
    assert_true(tried(a, "replications=2"));
    drop(a);
    a = asked(&(question){GPT, "batch=8 stages=2 schedule=gpipe", NODE, 2, 0, MEG_GOAL_TIME});
    best(a);
    assert_false(tried(a, "replications="));
    drop(a);
}

/* Of 30 samples for 3 stages, not 1, 2 and 30 alone. */
static void test_micros(void **state)
{
    static const char *const micro[] = {"micro=3", "micro=5", "micro=6", "micro=10"};
    (void)state;
    answer *a = asked(&(question){GPT, "batch=30 stages=3", NODE, 3, 0, MEG_GOAL_TIME});
    best(a);
    for (size_t i = 0; i < sizeof micro / sizeof *micro; i++)
        if (!tried(a, micro[i])) fail_msg("%s was not thought of", micro[i]);
    drop(a);
}

static bool has_micro(const meg_shape shape[], int count, int64_t from, int64_t to)
{
    for (int i = 0; i < count; i++)
        if (shape[i].micro >= from && shape[i].micro <= to) return true;
    return false;
}

/* Of very many divisors some: the ends, and of all sizes between. */
static void test_many_micros(void **state)
{
    (void)state;
    question q = {GPT, "batch=5040 stages=2 schedule=serial", NODE, 2, (int64_t)1 << 40, 0};
    answer *a = asked_for(&q, 1);
    meg_pool *pool = meg_pool_new();
    meg_plan_options given;
    meg_error e;
    meg_shape *shape;
    assert_int_equal(meg_plan_options_read(pool, &e, q.words, &given), MEG_OK);
    int count = meg_search_shapes(&a->ask, pool, &given, 1, &shape);
    if (count < 10 || count > 16) fail_msg("%d of 60", count);
    assert_true(has_micro(shape, count, 1, 1) && has_micro(shape, count, 5040, 5040));
    for (int64_t k = 1; k < 5040; k *= 2)
        if (!has_micro(shape, count, k, 2 * k)) fail_msg("none of %d to %d", (int)k, 2 * (int)k);
    free(shape);
    meg_pool_free(pool);
    drop(a);
}

/* ---- goal=memory ---- */

static const char VGG[] = "image=3x32x32 width=8 hidden=64 classes=10";

/* Of all shapes, with all that saves memory. */
static int64_t least_of_all(const answer *a)
{
    static const char *const zero[] = {"", "zero=1", "zero=3"};
    static const char *const again[] = {"", "recompute=segments"};
    meg_pool *pool = meg_pool_new();
    meg_plan_options given;
    meg_error e;
    meg_shape *shape;
    int64_t least = INT64_MAX;
    assert_int_equal(meg_plan_options_read(pool, &e, a->ask.options, &given), MEG_OK);
    int count = meg_search_shapes(&a->ask, pool, &given, a->found.one, &shape);
    for (int i = 0; i < 6 * count; i++) {
        const meg_shape *s = &shape[i / 6];
        char words[512];
        snprintf(words, sizeof words, "%s %s %s", s->words, zero[i % 3], again[i % 6 / 3]);
        int64_t bytes = figures_of(a, words, 0).bytes;
        if (bytes < least) print_message("    %lld bytes: %s\n", (long long)bytes, words);
        if (bytes < least) least = bytes;
    }
    free(shape);
    meg_pool_free(pool);
    return least;
}

static char *told(const answer *a)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    meg_search_tell(&a->found, &a->ask, out);
    fclose(out);
    return text;
}

/* What costs time is tried, too, and not told to fill the memory that there is. Reasons are of bytes. */
static void test_least_memory(void **state)
{
    static const char *const words[] = {"batch=8 momentum=0.9",
                                        "batch=8 momentum=0.9 stages=1 mesh=1"};
    (void)state;
    for (size_t i = 0; i < (SANITIZED ? 0 : sizeof words / sizeof *words); i++) {
        question q = {"vgg11", VGG, words[i], NODE, 2, (int64_t)1 << 32, MEG_GOAL_MEMORY};
        answer *a = asked(&q);
        int64_t least = least_of_all(a), found = INT64_MAX;
        best(a);
        for (int k = 0; k < a->found.count; k++)
            if (a->found.list[k].verdict <= MEG_SLOWER && a->found.list[k].bytes < found)
                found = a->found.list[k].bytes;
        print_message("%s: %lld bytes, of everything %lld: %s\n", words[i], (long long)found,
                      (long long)least, a->found.list[0].words);
        assert_true(found <= least);
        if (!tried(a, "zero=3") || !tried(a, "recompute=segments")) fail_msg("%s", told(a));
        char *text = told(a);
        if (!strstr(text, "memory") || strstr(text, "slower")) fail_msg("%s", text);
        free(text);
        drop(a);
    }
}

/* ---- what does not fit, what is no plan ---- */

static const char SLOW[] = "nodes=2 ranks=1 cores=1 between=30us,20MB/s";

/* Of all words that make a plan fit, those with which it is quickest; not the first ones. */
static void test_quickest_saver(void **state)
{
    static const char *const saver[] = {"zero=1", "zero=3", "recompute=segments"};
    (void)state;
    for (int part = 95; part >= 60; part -= 5) {
        question q = {"vgg11",      VGG, "batch=16 momentum=0.9 replicas=2 stages=1 mesh=1 micro=1",
                      SLOW,         2,   0,
                      MEG_GOAL_TIME};
        answer *a = asked_for(&q, 1);
        double least = INFINITY, found = INFINITY;
        q.memory = figures_of(a, "", 0).bytes * part / 100;
        drop(a);
        a = asked(&q);
        for (size_t i = 0; i < sizeof saver / sizeof *saver; i++) {
            char words[64];
            snprintf(words, sizeof words, "%s budget=%lld", saver[i], (long long)q.memory);
            double seconds = seconds_of(a, words);
            print_message("  %d %%: %.6f s with %s\n", part, seconds, words);
            least = fmin(least, seconds);
        }
        for (int i = 0; i < a->found.count; i++)
            if (a->found.list[i].verdict <= MEG_SLOWER)
                found = fmin(found, a->found.list[i].seconds);
        print_message("%d %% of the memory: %.6f s, of each way %.6f s\n", part, found, least);
        if (found > least * (1 + 1e-9)) fail_msg("found %.6f s", found);
        drop(a);
    }
}

/* Of many ranks the bytes of most plans are estimates, here too many of them. What fits to the byte is chosen. */
static void test_nearest_fits(void **state)
{
    static const char words[] = "batch=64 stages=1 replicas=2 micro=1 zero=0 balance=compute "
                                "bucket=16MiB recompute=auto";
    static const char *const nets[][2] = {
        {"cnn", "image=1x64x64 width=4"},
        {"gpt", "layers=34 width=64 heads=4 tokens=128 classes=64"},
    };
    (void)state;
    for (size_t i = 0; i < (SANITIZED ? 1 : sizeof nets / sizeof *nets); i++) {
        question q = {nets[i][0], nets[i][1], words, "ranks=8 cores=8", 32, 0, MEG_GOAL_TIME};
        answer *a = asked_for(&q, meg_search_work(32));
        q.memory = figures_of(a, best(a)->words, 0).bytes;
        print_message("%s: %s: %lld bytes\n", nets[i][1], best(a)->words, (long long)q.memory);
        drop(a);
        a = asked_for(&q, meg_search_work(32));
        if (!a->found.fits || best(a)->missing > 0) fail_msg("%s", told(a));
        drop(a);
        q.memory = 4096;
        a = asked_for(&q, meg_search_work(32));
        if (a->found.fits || a->found.list[0].missing < 1) fail_msg("%s", told(a));
        drop(a);
    }
}

/* What is chosen for many ranks, each of them can hold, though not each was looked at. */
static void test_all_hold(void **state)
{
    static const char *const nets[][3] = {
        {"cnn", "image=1x50x50 width=4", "batch=34 stages=1 mesh=1"},
        {"cnn", "image=1x50x50 width=4", "batch=34 stages=1"},
        {"unet", "image=3x48x48 width=4", "batch=34 stages=1 replicas=2"},
        {"resnet-cifar", "depth=8 width=4", "batch=33 norm=1"},
        {"gpt", "layers=4 width=16 heads=2 tokens=18 classes=64", "batch=34"},
    };
    (void)state;
    for (size_t i = 0; i < (SANITIZED ? 1 : sizeof nets / sizeof *nets); i++) {
        question q = {nets[i][0], nets[i][1], nets[i][2], NODE, 34, 0, MEG_GOAL_TIME};
        answer *a = asked_for(&q, meg_search_work(q.ranks));
        int64_t sketch = best(a)->bytes, need = figures_of(a, best(a)->words, 0).bytes;
        print_message("%s %s: '%s': %lld bytes, of all ranks %lld\n", nets[i][0], nets[i][2],
                      best(a)->words, (long long)sketch, (long long)need);
        drop(a);
        q.memory = need > sketch ? need - 1 : need;
        a = asked_for(&q, meg_search_work(q.ranks));
        if (a->found.fits && figures_of(a, best(a)->words, 0).bytes > q.memory)
            fail_msg("%s", told(a));
        const meg_candidate *nearest = a->found.list;
        if (!a->found.fits && (nearest->missing <= 0 || nearest->seconds <= 0))
            fail_msg("%s", told(a));
        drop(a);
    }
}

/* Of many ranks, too, the words themselves say what is wrong with them. */
static void test_impossible(void **state)
{
    (void)state;
    answer *a = asked(
        &(question){GPT, "batch=64 stages=4 assign=nosuch,a,b", NODE, 32, 0, MEG_GOAL_TIME});
    assert_int_not_equal(a->status, MEG_OK);
    if (!strstr(a->error.message, "nosuch")) fail_msg("'%s'", a->error.message);
    drop(a);
}

/* ---- what is said ---- */

/* Replayed are those of the list that have seconds. */
static void test_counts(void **state)
{
    (void)state;
    question q = {"vgg11", VGG, "batch=8 momentum=0.9", NODE, 4, 0, MEG_GOAL_TIME};
    answer *a = asked(&q);
    q.memory = best(a)->bytes * 3 / 5;
    drop(a);
    a = asked(&q);
    int replayed = 0;
    for (int i = 0; i < a->found.count; i++)
        replayed += a->found.list[i].seconds > 0;
    assert_int_equal(a->found.looked, replayed);
    drop(a);
}

/* One rank is as quick as it can be: values are made again where that is quicker, else kept. */
static void test_one(void **state)
{
    static const char *const models[] = {"cnn", "unet", "resnet-cifar"};
    static const char *const recompute[] = {"recompute=auto", "recompute=none"};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        answer *a = asked_for(&(question){models[i / 2], "", "batch=4", NODE, 2, 0, MEG_GOAL_TIME},
                              1);
        meg_plan *p = NULL;
        char words[64];
        snprintf(words, sizeof words, "batch=4 goal=given %s", recompute[i % 2]);
        if (meg_plan_make(a->graph, &a->error, a->ask.profile, words, 0, &p) != MEG_OK)
            fail_msg("%s", a->error.message);
        print_message("%s %s: %.6f s; the search: %.6f s\n", models[i / 2], words, p->seconds,
                      a->found.one);
        assert_true(a->found.one <= p->seconds);
        meg_plan_destroy(p);
        drop(a);
    }
}

/* The bound is an estimate; a plan may be quicker. */
static void test_gap(void **state)
{
    static const double seconds[] = {0.9, 0.98, 1, 1.02};
    (void)state;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        meg_candidate c = {
            .words = "", .why = "", .seconds = seconds[i], .bytes = 1, .verdict = MEG_BEST};
        meg_search s = {.list = &c, .count = 1, .bound = 1, .fits = true};
        answer a = {.found = s};
        char *text = told(&a);
        if (strchr(text, '-') || !strstr(text, "about 1.0000 s")) fail_msg("%s", text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replications),
        cmocka_unit_test(test_micros),
        cmocka_unit_test(test_many_micros),
        cmocka_unit_test(test_least_memory),
        cmocka_unit_test(test_quickest_saver),
        cmocka_unit_test(test_nearest_fits),
        cmocka_unit_test(test_all_hold),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
