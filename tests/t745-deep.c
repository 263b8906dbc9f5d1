/* A thousand layers, 64 micro-batches, 8 stages: the part of a rank is planned and checked in less
 * than 2 s and 300 MB. */
#include "network.h"

#include <sys/resource.h>
#include <time.h>

static const double most_seconds = 2;
#ifdef __SANITIZE_ADDRESS__
static const long most_kilobytes = 900 << 10; /* it keeps what was freed for a while */
#else
static const long most_kilobytes = 300 << 10;
#endif

static void plan(const meg_graph *g, const meg_profile *profile, int rank, const char *what)
{
    meg_error e;
    meg_plan *p = NULL;
    struct rusage use;
    clock_t start = clock(); /* processor time: the machine may be busy */
    meg_world world = {rank, 8};
    if (meg_plan_make_for(g, &e, profile, &world, "batch=64 micro=64 norm=1 stages=8", 64, &p))
        fail_msg("%s", e.message);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    getrusage(RUSAGE_SELF, &use);
    print_message("%s, rank %d: %.2f s, %ld MB\n", what, rank, seconds, use.ru_maxrss >> 10);
    assert_true(seconds < most_seconds);
    assert_true(use.ru_maxrss < most_kilobytes);
    meg_plan_destroy(p);
}

static void test_deep(void **state)
{
    (void)state;
    meg_error e;
    meg_device *d = NULL;
    meg_graph *g = network_zoo("resnet-cifar", "depth=1001 version=2");
    if (meg_device_open(&e, "cpu", 1, &d) != MEG_OK) fail_msg("%s", e.message);
    meg_profile cpu = meg_profile_of(d);
    for (int rank = 0; rank < 8; rank += 7) {
        plan(g, &meg_profile_plain, rank, "plain");
        plan(g, &cpu, rank, "cpu");
    }
    meg_device_close(d);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
