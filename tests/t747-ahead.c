/* No barrier between steps: a rank goes on as soon as the messages of its own step are done, however
 * long others still compute; the losses of the step come later.
 */
#include "network.h"
#include "threads_help.h"

#include <time.h>

enum {
    STEPS = 3,
    TRIES = 20 /* the machine may be busy */
};

static const char words[] = "batch=4 norm=1 stages=2 level=layer assign=layer1.0.conv1";

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Evaluation goes one way, from rank 0, which has a single convolution, to rank 1, which has all
 * others. took[r]: seconds of rank r. */
static void time_step(meg_engine *x, meg_comm *c, const meg_feed *f, double took[2])
{
    meg_error e = {0};
    OK(&e, meg_comm_barrier(c, &e));
    double begin = now();
    OK(&e, meg_engine_run(x, &e, MEG_ENTRY_EVAL, f));
    double mine = now() - begin;
    OK(&e, meg_comm_gather(c, &e, &mine, sizeof mine, took));
}

static void rank(meg_comm *c, void *graph)
{
    const meg_graph *g = graph;
    meg_error e = {0};
    meg_device *d = NULL;
    meg_plan *p = NULL;
    meg_engine *x = NULL;
    meg_feed f;
    meg_outcome o[STEPS], late;
    meg_world world = {meg_comm_rank(c), 2};
    OK(&e, meg_device_open(&e, "ref64", 1, &d));
    meg_profile profile = meg_profile_of(d);
    OK(&e, meg_plan_make_for(g, &e, &profile, &world, words, 0, &p));
    OK(&e, meg_engine_new(p, d, c, &e, 0, &x));
    meg_engine_start(x, 1);
    network_feed(g, 4, &f);
    for (int i = 0; i < STEPS; i++) /* each ends with what all know */
        OK(&e, meg_engine_step(x, &e, i ? MEG_ENTRY_TRAIN : MEG_ENTRY_EVAL, &f, &o[i]));
    REQUIRE(o[0].loss > 0 && o[1].loss > 0 && o[1].loss != o[2].loss, "losses %g %g %g", o[0].loss,
            o[1].loss, o[2].loss);
    double took[2] = {1, 1};
    for (int i = 0; i < TRIES && took[0] >= 0.5 * took[1]; i++) {
        time_step(x, c, &f, took);
        OK(&e, meg_engine_outcome(x, &e, &late));
        REQUIRE(late.loss > 0, "loss %g", late.loss);
    }
    REQUIRE(took[0] < 0.5 * took[1], "%g s, but the other rank %g s", took[0], took[1]);
    OK(&e, meg_engine_run(x, &e, MEG_ENTRY_EVAL, &f));
    OK(&e, meg_engine_run(x, &e, MEG_ENTRY_TRAIN, &f));
    REQUIRE(meg_engine_waiting(x) == 2, "%d steps", meg_engine_waiting(x));
    REQUIRE(meg_engine_run(x, &e, MEG_ENTRY_TRAIN, &f) == MEG_EARG, "a third step");
    double loss[2];
    for (int i = 0; i < 2; i++) {
        OK(&e, meg_engine_outcome(x, &e, &late));
        loss[i] = late.loss;
    }
    REQUIRE(loss[0] > 0 && loss[1] > 0 && loss[0] != loss[1], "losses %g %g", loss[0], loss[1]);
    double other[2];
    OK(&e, meg_comm_gather(c, &e, &loss[1], sizeof loss[1], other));
    REQUIRE(other[0] == other[1], "losses %g and %g on two ranks", other[0], other[1]);
    REQUIRE(meg_engine_outcome(x, &e, &late) == MEG_EARG, "one outcome too many");
    network_unfeed(&f);
    meg_engine_free(x);
    meg_plan_destroy(p);
    meg_device_close(d);
}

static void test_ahead(void **state)
{
    (void)state;
    meg_graph *g = network_zoo("resnet-cifar", "depth=20 image=3x24x24 classes=5 width=16");
    run_ranks(&(meg_threads_options){.ranks = 2, .rendezvous = true}, rank, g);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ahead)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
