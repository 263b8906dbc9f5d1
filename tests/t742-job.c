/* The check of a whole job, on plans without a device: it accepts what the planner makes, for every
 * schedule, and finds what is broken.
 */
#include "plan/events.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    MOST = 16
};

typedef struct whole { /* all ranks of a job */
    meg_graph *g;
    int ranks;
    meg_plan *plan[MOST];
    meg_events list[MOST];
} whole;

static whole make(const char *model, const char *options, const char *words, int ranks)
{
    meg_error e;
    whole w = {.ranks = ranks};
    if (meg_zoo_build(&e, model, options, &w.g) != MEG_OK) fail_msg("%s", e.message);
    for (int r = 0; r < ranks; r++) {
        meg_world world = {r, ranks};
        if (meg_plan_make_for(w.g, &e, &meg_profile_plain, &world, words, 0, &w.plan[r]) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        meg_events_of(w.plan[r], MEG_ENTRY_TRAIN, &w.list[r]);
    }
    return w;
}

static void drop(whole *w)
{
    for (int r = 0; r < w->ranks; r++) {
        meg_events_clear(&w->list[r]);
        meg_plan_destroy(w->plan[r]);
    }
    meg_graph_destroy(w->g);
}

static void accepts(const char *model, const char *options, const char *words, int ranks)
{
    meg_error e;
    whole w = make(model, options, words, ranks);
    const meg_graph *g = w.plan[0]->entry[MEG_ENTRY_TRAIN].graph;
    int notes = 0;
    for (int r = 0; r < ranks; r++)
        notes += w.list[r].notes;
    assert_true(notes > 0);
    if (meg_job_check(&e, g, ranks, w.list) != MEG_OK) fail_msg("%s: %s", words, e.message);
    drop(&w);
}

static void test_accepts(void **state)
{
    (void)state;
    static const char *const schedules[] = {"serial", "gpipe",  "1f1b",   "zb_h1",
                                            "mast",   "master", "chimera"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (int stages = 2; stages <= 4; stages += 2)
            for (int micro = 2; micro <= 8; micro *= 2)
                for (int replicas = 1; replicas <= 2; replicas++) {
                    char words[256];
                    snprintf(words, sizeof words,
                             "batch=%d norm=2 stages=%d micro=%d schedule=%s replicas=%d",
                             4 * micro, stages, micro, schedules[i], replicas);
                    accepts("resnet-cifar", "depth=20 image=3x16x16", words, stages * replicas);
                }
    accepts("resnet-cifar", "depth=20 image=3x16x16",
            "batch=16 norm=2 stages=4 chunks=2 micro=4 schedule=interleaved replicas=2", 4);
    accepts("unet", "image=1x32x32 width=4", "batch=8 stages=4 micro=4", 4);
    accepts("unet", "image=1x32x32 width=4",
            "batch=8 stages=4 chunks=2 micro=4 schedule=interleaved", 2);
    accepts("gpt", "tokens=8 classes=32 layers=2 heads=2 width=8", "batch=8 stages=2 micro=4", 2);
    accepts("resnet-cifar", "depth=8 image=3x16x16", "batch=12 replicas=3", 3);
}

static void finds(whole *w, const char *says)
{
    meg_error e = {0};
    const meg_graph *g = w->plan[0]->entry[MEG_ENTRY_TRAIN].graph;
    assert_int_equal(meg_job_check(&e, g, w->ranks, w->list), MEG_EARG);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
    drop(w);
}

static int find(const meg_events *v, int code)
{
    for (int i = 0; i < v->notes; i++)
        if (v->note[i].code == code) return i;
    fail_msg("no such traffic");
    return -1;
}

static whole pipeline(void)
{
    return make("resnet-cifar", "depth=8 image=3x16x16",
                "batch=16 norm=4 stages=2 micro=4 replicas=2", 4);
}

static void test_finds(void **state)
{
    (void)state;
    whole w = pipeline();
    w.list[0].note[find(&w.list[0], MEG_SEND)].tag += 100000;
    finds(&w, "does not");
    w = pipeline();
    w.list[1].note[find(&w.list[1], MEG_RECV)].bytes -= 8;
    finds(&w, "bytes");
    w = pipeline();
    w.list[3].note[find(&w.list[3], MEG_REDUCE)].tag += 1;
    finds(&w, "sum up");
    w = pipeline();
    w.list[3].note[find(&w.list[3], MEG_REDUCE)].bytes += 8;
    finds(&w, "bytes");
    w = pipeline(); /* rank 0 waits for the gradient before it sends what it is the gradient of */
    int wait = -1 - find(&w.list[0], MEG_RECV), last = 0;
    for (int i = 0; i < w.list[0].steps; i++)
        if (w.list[0].step[i] == wait) last = i;
    int first = 0;
    while (w.list[0].note[w.list[0].step[first] < 0 ? 0 : w.list[0].step[first]].code != MEG_SEND)
        first++;
    memmove(&w.list[0].step[first + 1], &w.list[0].step[first],
            (size_t)(last - first) * sizeof(int));
    w.list[0].step[first] = wait;
    finds(&w, "would hang");
}

/* ResNet-1001 on 8 stages with 64 micro-batches: issue of every rank's list and the check of all. */
static void test_large(void **state)
{
    (void)state;
    meg_error e;
    whole w = make("resnet-cifar", "depth=1001 version=2", "batch=64 norm=1 stages=8 micro=64", 8);
    const meg_graph *g = w.plan[0]->entry[MEG_ENTRY_TRAIN].graph;
    clock_t begin = clock();
    if (meg_job_check(&e, g, 8, w.list) != MEG_OK) fail_msg("%s", e.message);
    print_message("check of 8 ranks: %.3f s\n", (double)(clock() - begin) / CLOCKS_PER_SEC);
    drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_accepts), cmocka_unit_test(test_finds),
                                       cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
