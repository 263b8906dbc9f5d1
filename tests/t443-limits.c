/* Ranks of unlike memory: who shares a limit with whom; a plan fits if each rank's arena fits that rank; the search keeps to
 * it, says who lacks how much, and finds what fits only where the large stage is on the large node.
 */
#include "device_help.h"
#include "plan/search/search.h"
#include "train/outlook/limits.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MIB = 1 << 20
};

static void test_shares(void **state)
{
    (void)state;
    /* Node 0: two ranks under its memory, one in a group of its own; node 1: two ranks in a group of the same name. */
    const int node[] = {0, 0, 0, 1, 1};
    const meg_place place[] = {{(int64_t)8000 * MIB, 0, 100 * MIB},
                               {(int64_t)8000 * MIB, 0, 300 * MIB},
                               {(int64_t)1000 * MIB, 7, 100 * MIB},
                               {(int64_t)2000 * MIB, 7, 100 * MIB},
                               {(int64_t)2000 * MIB, 7, 400 * MIB}};
    const int64_t expected[] = {3900, 3700, 900, 900, 1000}; /* the last: no room for its process */
    int64_t limit[5];
    meg_limits_share(place, node, 5, limit);
    for (int r = 0; r < 5; r++)
        if (limit[r] != expected[r] * MIB)
            fail_msg("rank %d: %lld MiB, expected %lld", r, (long long)(limit[r] / MIB),
                     (long long)expected[r]);
}

static meg_graph *build(void)
{
    meg_error e;
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, "cnn", "image=1x16x16 classes=10", &g) != MEG_OK)
        fail_msg("%s", e.message);
    return g;
}

typedef struct found {
    meg_search s;
    char *told;
} found;

static found ask(const meg_graph *g, const char *words, const int64_t limit[2])
{
    static const char nodes[] = "nodes=2 inside=2us,4GB/s between=5us,4GB/s";
    meg_error e;
    meg_machine m;
    found f = {0};
    size_t size = 0;
    if (meg_machine_read(&e, "test", nodes, &m) != MEG_OK) fail_msg("%s", e.message);
    meg_search_ask q = {.graph = g,
                        .profile = &meg_profile_plain,
                        .machine = &m,
                        .options = words,
                        .ranks = 2,
                        .memory = limit[0] > limit[1] ? limit[0] : limit[1],
                        .limit = limit};
    if (meg_search_run(&q, &e, &f.s) != MEG_OK) fail_msg("%s", e.message);
    FILE *out = open_memstream(&f.told, &size);
    meg_search_tell(&f.s, &q, out);
    fclose(out);
    return f;
}

static void drop(found *f)
{
    meg_search_free(&f->s);
    free(f->told);
}

static void arenas(const meg_graph *g, const char *words, int64_t out[2])
{
    for (int r = 0; r < 2; r++) {
        meg_error e;
        meg_plan *p = NULL;
        meg_world world = {r, 2};
        if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        out[r] = p->arena;
        meg_plan_destroy(p);
    }
}

/* All words are given but one that changes nothing here. */
#define STAGES                                                                                     \
    "batch=16 norm=8 stages=2 micro=2 schedule=gpipe replicas=1 mesh=1 zero=0 recompute=auto "     \
    "balance=compute chunks=1 replications=0 wide=1 channels=auto bucket=16MiB"

static void test_each_rank(void **state)
{
    (void)state;
    meg_graph *g = build();
    int64_t need[2];
    arenas(g, "goal=given " STAGES, need);
    if (need[0] == need[1]) fail_msg("both stages need %lld bytes", (long long)need[0]);
    found f = ask(g, STAGES, need);
    assert_true(f.s.fits); /* to the byte */
    drop(&f);
    const int64_t swapped[] = {need[1], need[0]}, more = llabs(need[0] - need[1]);
    int worst = need[0] > need[1] ? 0 : 1;
    f = ask(g, STAGES, swapped);
    assert_false(f.s.fits);
    assert_int_equal(f.s.list[0].missing, more);
    assert_int_equal(f.s.list[0].tightest, worst);
    char says[96];
    snprintf(says, sizeof says, "(%lld bytes) are missing to rank %d", (long long)more, worst);
    if (!strstr(f.told, says)) fail_msg("expected '%s' in:\n%s", says, f.told);
    drop(&f);
    meg_graph_destroy(g);
}

/* One rank alone has the memory for a whole network: what is found keeps to both. */
static void test_search(void **state)
{
    (void)state;
    meg_graph *g = build();
    int64_t need[2];
    arenas(g, "goal=given " STAGES, need);
    for (int turn = 0; turn < 2; turn++) {
        int small = need[0] < need[1] ? 0 : 1;
        int64_t limit[2] = {8 * need[0], 8 * need[1]}, got[2];
        limit[small] = need[small];
        found f = ask(g, turn ? "batch=16 norm=8 recompute=auto" : "batch=16 norm=8", limit);
        assert_true(f.s.fits);
        char words[512];
        snprintf(words, sizeof words, "batch=16 norm=8 goal=given %s", f.s.list[0].words);
        arenas(g, words, got);
        if (got[0] > limit[0] || got[1] > limit[1])
            fail_msg("%s: %lld and %lld bytes of %lld and %lld", words, (long long)got[0],
                     (long long)got[1], (long long)limit[0], (long long)limit[1]);
        drop(&f);
    }
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_each_rank),
        cmocka_unit_test(test_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
