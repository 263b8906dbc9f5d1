/* Equal ranks are replayed as one (plan/whole.h), also where a class of ranks is its own neighbour: the inner ones of four
 * in a row. With links that cost nothing a step of many replicas takes as long as one of few, each rank of which is
 * replayed for itself.
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
    SAMPLES = 2
};

static const char QUICK[] = "ranks=4 nodes=64 inside=1us,10GB/s between=0s,1000000TB/s";

static double seconds_of(const char *mesh, int cut, int ranks, int *actors)
{
    meg_graph *g = NULL;
    meg_error e = {0};
    meg_machine m;
    meg_whole whole;
    meg_replay r;
    meg_world world = {0, ranks};
    char words[256];
    snprintf(words, sizeof words, "mesh=%s batch=%d norm=%d", mesh, ranks / cut * SAMPLES, SAMPLES);
    meg_plan_input in = {&meg_profile_plain, &world, words, 0, NULL};
    if (meg_machine_read(&e, "test", QUICK, &m) != MEG_OK ||
        meg_zoo_build(&e, "resnet-cifar", "depth=8", &g) != MEG_OK ||
        meg_whole_make(g, &e, &in, &whole) != MEG_OK ||
        meg_whole_replay(&whole, &e, &m, &r) != MEG_OK)
        fail_msg("%s on %d ranks: %s", mesh, ranks, e.message);
    double seconds = r.seconds;
    *actors = whole.actors;
    free(r.times);
    meg_whole_free(&whole);
    meg_graph_destroy(g);
    return seconds;
}

static void check(const char *mesh, int cut, int most)
{
    int few, many;
    double want = seconds_of(mesh, cut, FEW, &few), got = seconds_of(mesh, cut, 8 * FEW, &many);
    assert_int_equal(few, FEW);
    if (many > most) fail_msg("%s: %d actors, expected at most %d", mesh, many, most);
    if (!(fabs(got - want) <= 0.02 * want))
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
