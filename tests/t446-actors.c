/* Equal ranks are replayed as one (plan/whole.h), also where a class of ranks is its own neighbour: the inner ones of four
 * in a row. With links that cost nothing a step of many replicas takes as long as one of few, each rank of which is
 * replayed for itself; and what a sum over all ranks takes of a link, it takes once.
 */
#include "plan/whole.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    FEW = 16, /* all are their own actors */
    MANY = 8 * FEW,
    SAMPLES = 2
};

typedef struct job {
    const char *model, *words;
    const char *machine;
    const char *mesh;
    int cut; /* ranks of the mesh */
} job;

static const char QUICK[] = "ranks=4 nodes=64 inside=1us,10GB/s between=0s,1000000TB/s";
/* A ring over all ranks: one of a node's four sends to the next node. */
static const char SHARED[] = "ranks=4 nodes=64 inside=0s,1000000TB/s between=0s,10MB/s,all:10MB/s";

/* An actor whose ranks have unlike neighbours waits for any like message: its ranks in the middle of a row do not
 * wait for those at its ends, as each rank by itself does. */
static const double APPROXIMATE = 0.05;

static double seconds_of(const job *j, int ranks, int *actors)
{
    meg_graph *g = NULL;
    meg_error e = {0};
    meg_machine m;
    meg_whole whole;
    meg_replay r;
    meg_world world = {0, ranks};
    char words[256];
    snprintf(words, sizeof words, "mesh=%s batch=%d norm=%d", j->mesh, ranks / j->cut * SAMPLES,
             SAMPLES);
    meg_plan_input in = {&meg_profile_plain, &world, words, 0, NULL};
    if (meg_machine_read(&e, "test", j->machine, &m) != MEG_OK ||
        meg_zoo_build(&e, j->model, j->words, &g) != MEG_OK ||
        meg_whole_make(g, &e, &in, &whole) != MEG_OK ||
        meg_whole_replay(&whole, &e, &m, &r) != MEG_OK)
        fail_msg("%s on %d ranks: %s", j->mesh, ranks, e.message);
    double seconds = r.seconds;
    *actors = whole.actors;
    free(r.times);
    meg_whole_free(&whole);
    meg_graph_destroy(g);
    return seconds;
}

static void check(const char *mesh, int cut, int most)
{
    const job j = {"resnet-cifar", "depth=8", QUICK, mesh, cut};
    int few, many;
    double want = seconds_of(&j, FEW, &few), got = seconds_of(&j, MANY, &many);
    assert_int_equal(few, FEW);
    if (many > most) fail_msg("%s: %d actors, expected at most %d", mesh, many, most);
    if (!(fabs(got - want) <= APPROXIMATE * want))
        fail_msg("%s: expected %g s, got %g s", mesh, want, got);
}

static void test_rows(void **state)
{
    (void)state;
    check("w2", 2, 8);
    check("w4", 4, 16);
    check("h4", 4, 16);
    check("2x2", 4, 16);
    check("4x2", 8, 32);
}

/* The ring's share of the bytes, 15/16 and 127/128, is all the difference. */
static void test_sum_over_all(void **state)
{
    const job j = {"unet", "image=3x32x32 width=4", SHARED, "1", 1};
    int few, many;
    double want = seconds_of(&j, FEW, &few), got = seconds_of(&j, MANY, &many);
    (void)state;
    assert_true(many < FEW);
    if (!(got > want && got < 1.1 * want)) fail_msg("%g s on few ranks, %g s on many", want, got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_sum_over_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
