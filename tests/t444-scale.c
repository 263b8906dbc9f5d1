/* The search at thousands of ranks: it ends after a fixed amount of work, which is seconds; it finds a plan that fits; it
 * finds the same one again; and what it says of the plan is what planning every class of ranks says. Given plans are
 * proven in seconds, too, and all of it in little memory.
 */
#include "base/clock.h"
#include "device_help.h"
#include "plan/proof.h"
#include "plan/search/search.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* On an idle core each takes at most 10; sanitizers and neighbours take their share. */
static const double SECONDS = 90;

typedef struct job {
    const char *model, *model_words, *words, *machine;
    int ranks;
} job;

static const job jobs[] = {
    {"unet", "image=3x16384x16384", "batch=16", "nodes=512 ranks=8 cores=8 memory=16GiB", 4096},
    {"gpt", "tokens=1024 layers=24 heads=16 width=2048", "batch=512",
     "nodes=64 ranks=8 cores=8 memory=8GiB", 512},
    {"resnet-cifar", "depth=110 version=2 image=3x512x512", "batch=512 norm=1",
     "nodes=32 ranks=8 cores=8 memory=6GiB", 256},
};

static meg_status search(const job *j, const meg_graph *g, const meg_machine *m, meg_search *out)
{
    meg_error e = {0};
    meg_search_ask ask = {.graph = g,
                          .profile = &meg_profile_plain,
                          .machine = m,
                          .options = j->words,
                          .ranks = j->ranks,
                          .memory = m->memory,
                          .work = meg_search_work(j->ranks)};
    meg_status status = meg_search_run(&ask, &e, out);
    if (status != MEG_OK) print_message("%s: %s\n", j->model, e.message);
    return status;
}

/* All classes: a sketch looks at the middle of a mesh. */
static void check_plan(const job *j, const meg_graph *g, const meg_machine *m,
                       const meg_candidate *c)
{
    meg_world world = {0, j->ranks};
    char words[1024];
    meg_error e = {0};
    meg_whole whole;
    meg_replay r;
    bool fills = strstr(c->words, "recompute=segments") != NULL;
    snprintf(words, sizeof words, "%s goal=given %s budget=%lld", j->words, c->words,
             fills ? (long long)m->memory : 0LL);
    meg_plan_input in = {&meg_profile_plain, &world, words, 0, NULL};
    if (meg_whole_make(g, &e, &in, &whole) != MEG_OK) fail_msg("%s: %s", words, e.message);
    if (meg_whole_replay(&whole, &e, m, &r) != MEG_OK) fail_msg("%s: %s", words, e.message);
    print_message("  %d classes: %.4f s, %lld bytes; the search said %.4f s, %lld bytes\n",
                  whole.actors, r.seconds, (long long)meg_whole_bytes(&whole), c->seconds,
                  (long long)c->bytes);
    assert_true(meg_whole_bytes(&whole) <= m->memory);
    assert_true(fabs(r.seconds - c->seconds) <= 0.12 * r.seconds); /* t440-replay says why */
    free(r.times);
    meg_whole_free(&whole);
}

static void test_scale(void **state)
{
    (void)state;
    size_t count = SANITIZED ? 1 : sizeof jobs / sizeof *jobs;
    for (size_t i = 0; i < count; i++) {
        const job *j = &jobs[i];
        meg_error e = {0};
        meg_graph *g;
        meg_machine m;
        meg_search first, second;
        if (meg_zoo_build(&e, j->model, j->model_words, &g) != MEG_OK ||
            meg_machine_read(&e, "test", j->machine, &m) != MEG_OK)
            fail_msg("%s", e.message);
        double began = meg_clock_thread();
        assert_int_equal(search(j, g, &m, &first), MEG_OK);
        double seconds = meg_clock_thread() - began;
        print_message("%s on %d ranks: %s; %d plans, %d looked at, work %.0f, %.1f s\n", j->model,
                      j->ranks, first.list[0].words, first.count, first.looked, first.work,
                      seconds);
        assert_true(first.fits);
        assert_true(seconds < SECONDS);
        check_plan(j, g, &m, &first.list[0]);
        assert_int_equal(search(j, g, &m, &second), MEG_OK);
        assert_string_equal(first.list[0].words, second.list[0].words);
        assert_int_equal(first.looked, second.looked);
        meg_search_free(&first);
        meg_search_free(&second);
        meg_graph_destroy(g);
    }
}

/* A given plan, several stages with a mesh each: planned and proven free of deadlock, by classes, and its
 * forecast replayed. Seconds are the processor's. 5 are allowed on an idle core, where these take 0.2 to 4.2:
 * the test says 8, since neighbours who share caches make all of it slower. Memory is that of the whole process, and
 * is not shared. */
static const double GIVEN_SECONDS = 8, SEARCH_SECONDS = 30;
static const int64_t GIVEN_BYTES = (int64_t)1 << 30;

#define LARGE  "nodes=512 ranks=8 cores=8 memory=16GiB", 4096
#define GPT    "gpt", "tokens=2048 layers=96 heads=96 width=12288"
#define RESNET "resnet-cifar", "depth=1001 version=2 image=3x1024x1024"

static const job given[] = {
    {GPT, "batch=1536 goal=given stages=8 schedule=serial micro=12 mesh=c4 zero=3", LARGE},
    {GPT, "batch=1536 goal=given stages=4 schedule=serial micro=24 mesh=c8w2 zero=3", LARGE},
    {GPT, "batch=1536 goal=given stages=16 schedule=1f1b micro=48 mesh=c8", LARGE},
    {"unet", "image=3x16384x16384", "batch=16 goal=given micro=4 stages=4 mesh=16x16", LARGE},
    {RESNET, "batch=4096 norm=1 goal=given stages=2 micro=16 mesh=h16", LARGE},
};

/* Without a word. Whether anything fits depends on the device, which is a plain one here. */
static const job searched[] = {
    {GPT, "batch=1536", LARGE},
    {RESNET, "batch=4096 norm=1", LARGE},
};

static void check_limits(const job *j, double seconds, double limit)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    int64_t bytes = (int64_t)used.ru_maxrss * 1024;
    print_message("%s %s: %.1f s, %lld MiB\n", j->model, j->words, seconds,
                  (long long)(bytes >> 20));
    if (seconds >= limit) fail_msg("%.1f s, less than %.0f were expected", seconds, limit);
    if (bytes >= GIVEN_BYTES)
        fail_msg("%lld bytes, less than 1 GiB were expected", (long long)bytes);
}

static void prove_and_replay(const job *j, const meg_graph *g, const meg_machine *m)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_world last = {j->ranks - 1, j->ranks};
    meg_plan_input in = {&meg_profile_plain, &last, j->words, 0, NULL};
    meg_whole sketch;
    meg_replay r;
    if (meg_whole_sketch(g, &e, &in, 0, &sketch) != MEG_OK ||
        meg_whole_replay(&sketch, &e, m, &r) != MEG_OK || meg_plan_from(g, &e, &in, &p) != MEG_OK)
        fail_msg("%s: %s", j->words, e.message);
    meg_classes *c = meg_classes_new(p);
    meg_proof *proof = meg_proof_new(c);
    for (int k = j->ranks - 1; k >= 0; k--) {
        if (c->last[c->of[k]] != k) continue;
        if (meg_plan_turn(p, &e, k) != MEG_OK) fail_msg("%s: %s", j->words, e.message);
        meg_proof_add(proof, p);
    }
    if (meg_proof_check(proof, &e, p) != MEG_OK) fail_msg("%s: %s", j->words, e.message);
    print_message("  %d classes, %.4f s a step\n", c->count, r.seconds);
    free(r.times);
    meg_proof_free(proof);
    meg_classes_free(c);
    meg_plan_destroy(p);
    meg_whole_free(&sketch);
}

static void test_given(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof *given && !SANITIZED; i++) {
        const job *j = &given[i];
        meg_error e = {0};
        meg_graph *g;
        meg_machine m;
        if (meg_zoo_build(&e, j->model, j->model_words, &g) != MEG_OK ||
            meg_machine_read(&e, "test", j->machine, &m) != MEG_OK)
            fail_msg("%s", e.message);
        double began = meg_clock_thread();
        prove_and_replay(j, g, &m);
        double seconds = meg_clock_thread() - began;
        check_limits(j, seconds, GIVEN_SECONDS);
        meg_graph_destroy(g);
    }
}

static void test_searched(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof searched / sizeof *searched && !SANITIZED; i++) {
        const job *j = &searched[i];
        meg_error e = {0};
        meg_graph *g;
        meg_machine m;
        meg_search found;
        if (meg_zoo_build(&e, j->model, j->model_words, &g) != MEG_OK ||
            meg_machine_read(&e, "test", j->machine, &m) != MEG_OK)
            fail_msg("%s", e.message);
        double began = meg_clock_thread();
        assert_int_equal(search(j, g, &m, &found), MEG_OK);
        double seconds = meg_clock_thread() - began;
        assert_true(found.count > 0);
        print_message("  %s\n", found.list[0].words);
        check_limits(j, seconds, SEARCH_SECONDS);
        meg_search_free(&found);
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_given),
                                       cmocka_unit_test(test_searched),
                                       cmocka_unit_test(test_scale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
