/* The critical path of replays, where it is known: chains of layers of one second forward and two backward,
 * pipelines with a slow stage, messages and sums of known seconds, a rank that is slower than others.
 */
#include "chain.h"
#include "base/pool.h"
#include "plan/replay/critical.h"
#include "plan/whole.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS = 16
};

typedef struct job {
    meg_graph *graph;
    meg_machine machine;
    int ranks;
    meg_actor actor[RANKS];
    meg_replay replay;
    meg_replay_log log;
    meg_critical path;
} job;

/* A layer's forward takes `seconds`, its backward twice as long; the first has no gradient of its input. */
static void set_seconds(meg_plan *p, double seconds)
{
    meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    for (int s = 0; s < e->stations; s++)
        for (int i = 0; i < e->station[s].instrs; i++) {
            meg_instr *in = &e->station[s].instr[i];
            const meg_node *v = in->node < 0 ? NULL : &e->graph->node[in->node];
            bool dense = in->code == MEG_KERNEL && v && strcmp(v->op->name, "dense") == 0;
            bool first = dense && e->graph->value[v->in[0]].kind == MEG_INPUT;
            in->seconds = !dense ? 0 : first && in->pass == MEG_WEIGHT ? 2 * seconds : seconds;
        }
}

/* The layers of each rank take speed[r] seconds. */
static void make(job *j, int layers, const char *words, const double speed[], const char *machine)
{
    meg_error e = {0};
    if (meg_machine_read(&e, "test", machine, &j->machine) != MEG_OK) fail_msg("%s", e.message);
    j->graph = chain(layers);
    for (int r = 0; r < j->ranks; r++) {
        meg_world world = {r, j->ranks};
        meg_plan *p = NULL;
        if (meg_plan_make_for(j->graph, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        set_seconds(p, speed[r]);
        meg_actor_make(p, MEG_ENTRY_TRAIN, &j->actor[r]);
        meg_plan_destroy(p);
    }
    meg_replay_job all = {&j->machine, j->ranks, j->ranks, j->actor, NULL};
    meg_replay_log_begin(&j->log, j->ranks);
    if (meg_replay_run(&all, &e, meg_replay_log_add, &j->log, &j->replay) != MEG_OK)
        fail_msg("%s", e.message);
    meg_critical_find(&all, &j->replay, &j->log, &j->path);
}

static void drop(job *j)
{
    for (int r = 0; r < j->ranks; r++)
        meg_actor_clear(&j->actor[r]);
    free(j->replay.times);
    meg_replay_log_free(&j->log);
    meg_critical_free(&j->path);
    meg_graph_destroy(j->graph);
}

static double part(const job *j, meg_critical_what what, int actor, int other)
{
    for (int i = 0; i < j->path.parts; i++) {
        const meg_critical_part *p = &j->path.part[i];
        if (p->what == what && p->actor == actor && p->other == other) return p->seconds;
    }
    return 0;
}

static void expect(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 2e-3 * fmax(1, fabs(want))))
        fail_msg("%s: expected %g s, got %g s", what, want, got);
}

/* It has no gaps, nothing is left unexplained, and its parts are the step. */
static void check(const job *j)
{
    const meg_critical *c = &j->path;
    double at = c->begin, sum = 0;
    assert_true(c->pieces > 0);
    for (int i = 0; i < c->pieces; i++) {
        assert_true(c->piece[i].what != MEG_CRITICAL_WAIT);
        if (!(fabs(c->piece[i].begin - at) < 1e-9))
            fail_msg("piece %d begins at %g, the one before ends at %g", i, c->piece[i].begin, at);
        assert_true(c->piece[i].end > c->piece[i].begin);
        at = c->piece[i].end;
    }
    for (int i = 0; i < c->parts; i++) {
        assert_true(i == 0 || c->part[i].seconds <= c->part[i - 1].seconds);
        sum += c->part[i].seconds;
    }
    expect(at, c->end, "the end");
    expect(sum, j->replay.seconds, "all parts");
}

static void test_one_rank(void **state)
{
    job j = {.ranks = 1};
    (void)state;
    make(&j, 4, "batch=8", (double[]){1}, QUICK);
    check(&j);
    assert_int_equal(j.path.parts, 1);
    expect(part(&j, MEG_CRITICAL_WORK, 0, -1), 12, "kernels");
    drop(&j);
}

/* There and back, one message each way of 1.5 s:  rank 0 F | -> | rank 1 F B | -> | rank 0 B */
static void test_messages(void **state)
{
    job j = {.ranks = 2};
    char machine[96];
    (void)state;
    snprintf(machine, sizeof machine, "inside=500ms,%dB/s ranks=2 cores=2", 8 * WIDTH * REAL);
    make(&j, 2, "batch=8 level=layer stages=2 schedule=serial", (double[]){1, 1}, machine);
    check(&j);
    expect(part(&j, MEG_CRITICAL_WORK, 0, -1), 3, "kernels of rank 0");
    expect(part(&j, MEG_CRITICAL_WORK, 1, -1), 3, "kernels of rank 1");
    expect(part(&j, MEG_CRITICAL_MESSAGE, 0, 1), 1.5, "rank 0 -> 1");
    expect(part(&j, MEG_CRITICAL_MESSAGE, 1, 0), 1.5, "rank 1 -> 0");
    assert_int_equal(j.path.pieces, 5);
    assert_int_equal(j.path.piece[1].what, MEG_CRITICAL_MESSAGE);
    drop(&j);
}

/* The slow stage of a pipeline is busy from its first forward to its last backward; on the way there
 * and back the others' kernels of one micro-batch count. */
static void test_slow_stage(void **state)
{
    static const char *const schedule[] = {"gpipe", "1f1b"};
    (void)state;
    for (int slow = 0; slow < 4; slow++)
        for (int k = 0; k < 2; k++) {
            job j = {.ranks = 4};
            double speed[] = {1, 1, 1, 1};
            char words[96];
            snprintf(words, sizeof words, "batch=8 level=layer stages=4 micro=8 schedule=%s",
                     schedule[k]);
            speed[slow] = 10;
            make(&j, 4, words, speed, QUICK);
            check(&j);
            for (int r = 0; r < 4; r++) {
                double got = part(&j, MEG_CRITICAL_WORK, r, -1);
                if (r == slow) expect(got, 8 * 30, words);
                else assert_true(got <= 3.01);
            }
            assert_int_equal(j.path.part[0].actor, slow);
            drop(&j);
        }
}

/* Four equal stages: kernels all the way, those of the bubble on the others' ranks. */
static void test_pipeline(void **state)
{
    job j = {.ranks = 4};
    double work = 0;
    (void)state;
    make(&j, 4, "batch=8 level=layer stages=4 micro=8 schedule=gpipe", (double[]){1, 1, 1, 1},
         QUICK);
    check(&j);
    for (int r = 0; r < 4; r++)
        work += part(&j, MEG_CRITICAL_WORK, r, -1);
    expect(work, 3 * (8 + 3), "kernels");
    drop(&j);
}

/* Two replicas sum their gradients behind backward; it waits for the slower one. */
static void test_sum(void **state)
{
    double bytes = WIDTH * WIDTH * REAL;
    char machine[160];
    (void)state;
    snprintf(machine, sizeof machine,
             "inside=250ms,%.0fB/s ranks=2 cores=4 flops=1T bandwidth=%.0fB/s", bytes, 3 * bytes);
    for (int slow = 0; slow < 2; slow++) {
        job j = {.ranks = 2};
        double speed[] = {1, 1};
        speed[slow] = 2;
        make(&j, 1, "batch=8 replicas=2 allreduce=ring", speed, machine);
        check(&j);
        expect(part(&j, MEG_CRITICAL_WORK, slow, -1), 6, "kernels of the slow rank");
        expect(part(&j, MEG_CRITICAL_WORK, 1 - slow, -1), 0, "kernels of the quick rank");
        expect(part(&j, MEG_CRITICAL_SUM, 0, 2), 2 * (0.25 + 0.5) + 0.5, "the sum");
        drop(&j);
    }
}

/* Of networks with halos, both directions, sums and parts of weights nothing is left unexplained, also where
 * one actor stands for many ranks. */
static void test_networks(void **state)
{
    static const struct {
        const char *model, *options, *words;
        int ranks;
    } cases[] = {
        {"unet", "image=3x64x64 width=4", "batch=2 mesh=2x2 stages=2 micro=2 norm=1", 8},
        {"gpt", "layers=4 width=16 heads=2 tokens=8 classes=64",
         "batch=64 stages=4 micro=4 schedule=chimera", 8},
        {"gpt", "layers=4 width=16 heads=2 tokens=8 classes=64", "batch=64 stages=4 micro=4", 32},
        {"vgg11", "image=3x32x32 width=4 hidden=64 classes=10", "batch=64 zero=3", 32},
        {"unet", "image=3x64x64 width=4", "batch=2 mesh=4x4", 32},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        meg_whole whole;
        job j = {0};
        assert_int_equal(meg_machine_read(&e, "test",
                                          "ranks=8 nodes=4 cores=8 inside=2us,4GB/s,all:8GB/s "
                                          "between=30us,1GB/s",
                                          &j.machine),
                         MEG_OK);
        if (meg_zoo_build(&e, cases[i].model, cases[i].options, &g) != MEG_OK)
            fail_msg("%s", e.message);
        meg_plan_input in = {&meg_profile_plain, &(meg_world){0, cases[i].ranks}, cases[i].words, 0,
                             NULL};
        if (meg_whole_make(g, &e, &in, &whole) != MEG_OK) fail_msg("%s", e.message);
        meg_replay_job all = {&j.machine, whole.ranks, whole.actors, whole.actor, whole.actor_of};
        meg_replay_log_begin(&j.log, whole.actors);
        if (meg_replay_run(&all, &e, meg_replay_log_add, &j.log, &j.replay) != MEG_OK)
            fail_msg("%s", e.message);
        meg_critical_find(&all, &j.replay, &j.log, &j.path);
        print_message("%s %s: %d actors, %d pieces\n", cases[i].model, cases[i].words, whole.actors,
                      j.path.pieces);
        check(&j);
        j.graph = g;
        drop(&j);
        meg_whole_free(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),   cmocka_unit_test(test_messages),
        cmocka_unit_test(test_slow_stage), cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_sum),        cmocka_unit_test(test_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
