/* The replay against closed forms: a chain of equal layers whose forward takes one second and whose backward
 * two, under schedules of which the literature says how long they take; messages, sums, shared links.
 */
#include "base/pool.h"
#include "chain.h"
#include "plan/whole.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of one micro-batch of a step of `micro`. The first layer needs no gradient of its input: what it saves there
 * its weight's takes. */
static void set_seconds(meg_plan *p)
{
    meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    for (int s = 0; s < e->stations; s++)
        for (int i = 0; i < e->station[s].instrs; i++) {
            meg_instr *in = &e->station[s].instr[i];
            const meg_node *v = in->node < 0 ? NULL : &e->graph->node[in->node];
            bool dense = in->code == MEG_KERNEL && v && strcmp(v->op->name, "dense") == 0;
            bool first = dense && e->graph->value[v->in[0]].kind == MEG_INPUT;
            in->seconds = !dense ? 0 : first && in->pass == MEG_WEIGHT ? 2 : 1;
        }
}

typedef struct outcome {
    double seconds;
    meg_replay_times first, last;
} outcome;

typedef struct job {
    meg_graph *graph;
    meg_machine machine;
    int ranks;
    meg_actor actor[16];
} job;

static job make(int layers, const char *words, int ranks, const char *machine)
{
    job j = {.graph = chain(layers), .ranks = ranks};
    meg_error e = {0};
    if (meg_machine_read(&e, "test", machine, &j.machine) != MEG_OK) fail_msg("%s", e.message);
    for (int r = 0; r < ranks; r++) {
        meg_world world = {r, ranks};
        meg_plan *p = NULL;
        if (meg_plan_make_for(j.graph, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        set_seconds(p);
        meg_actor_make(p, MEG_ENTRY_TRAIN, &j.actor[r]);
        meg_plan_destroy(p);
    }
    return j;
}

static void drop(job *j)
{
    for (int r = 0; r < j->ranks; r++)
        meg_actor_clear(&j->actor[r]);
    meg_graph_destroy(j->graph);
}

static meg_replay run(const job *j, meg_replay_observer *observer, void *context)
{
    meg_error e = {0};
    meg_replay r;
    meg_replay_job all = {&j->machine, j->ranks, j->ranks, j->actor, NULL};
    if (meg_replay_run(&all, &e, observer, context, &r) != MEG_OK) fail_msg("%s", e.message);
    return r;
}

static outcome replay(int layers, const char *words, int ranks, const char *machine)
{
    job j = make(layers, words, ranks, machine);
    meg_replay r = run(&j, NULL, NULL);
    outcome out = {r.seconds, r.times[0], r.times[ranks - 1]};
    free(r.times);
    drop(&j);
    return out;
}

/* Up to looks at messages, of which there is one in 2 ms while a device works. */
static void expect(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 2e-3 * fabs(want)))
        fail_msg("%s: expected %g s, got %g s", what, want, got);
}

static void test_one_rank(void **state)
{
    (void)state;
    outcome o = replay(4, "batch=8", 1, QUICK);
    expect(o.seconds, 12, "serial");
    expect(o.first.compute, 12, "kernels");
    assert_true(o.first.exposed == 0 && o.first.bubble == 0);
}

/* S stages, M micro-batches: (M + S - 1) (f + b), the bubble being S - 1 of these. */
static void test_pipelines(void **state)
{
    static const char *const schedule[] = {"gpipe", "1f1b"};
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int micro = 1; micro <= 8; micro *= 2) {
            char words[96];
            snprintf(words, sizeof words, "batch=8 level=layer stages=4 micro=%d schedule=%s",
                     micro, schedule[k]);
            outcome o = replay(4, words, 4, QUICK);
            expect(o.seconds, 3.0 * (micro + 3), words);
            expect(o.first.compute, 3.0 * micro, words);
            expect(o.first.bubble, 9, words);
        }
}

/* GEMS: with N stages and two replicas in opposite directions, forward of the second hides behind backward of
 * the first: N f + 2 N b + f; one after the other it is 2 N (f + b). */
static void test_gems(void **state)
{
    (void)state;
    expect(replay(4, "batch=8 level=layer stages=4 micro=2 schedule=serial", 4, QUICK).seconds, 24,
           "basic");
    expect(replay(4, "batch=8 level=layer stages=4 micro=2 schedule=mast", 4, QUICK).seconds, 21,
           "mast");
}

/* One message each way between two stages, of batch x WIDTH numbers. */
static void test_messages(void **state)
{
    char machine[96];
    (void)state;
    snprintf(machine, sizeof machine, "inside=500ms,%dB/s ranks=2 cores=2", 8 * WIDTH * REAL);
    outcome o = replay(2, "batch=8 level=layer stages=2 schedule=serial", 2, machine);
    expect(o.seconds, 6 + 2 * 1.5, "messages");
    expect(o.first.exposed, 1.5, "waiting for a message");
    /* On two nodes the other link counts. */
    snprintf(machine, sizeof machine, "between=1s,%dB/s ranks=1 nodes=2", 8 * WIDTH * REAL);
    o = replay(2, "batch=8 level=layer stages=2 schedule=serial", 2, machine);
    expect(o.seconds, 6 + 2 * 2, "messages between nodes");
}

/* Two replicas of one layer sum its gradient behind backward: half of it each way, twice, and an addition. */
static void test_sum(void **state)
{
    char machine[160];
    double bytes = WIDTH * WIDTH * REAL;
    (void)state;
    snprintf(machine, sizeof machine,
             "inside=250ms,%.0fB/s ranks=2 cores=4 flops=1T bandwidth=%.0fB/s", bytes, 3 * bytes);
    outcome o = replay(1, "batch=8 replicas=2 allreduce=ring", 2, machine);
    expect(o.seconds, 3 + 2 * (0.25 + 0.5) + 0.5, "ring of two");
    snprintf(machine, sizeof machine,
             "inside=250ms,%.0fB/s,hop:400ms ranks=2 cores=4 flops=1T bandwidth=%.0fB/s", bytes,
             3 * bytes);
    o = replay(1, "batch=8 replicas=2 allreduce=ring", 2, machine);
    expect(o.seconds, 3 + 2 * (0.4 + 0.5) + 0.5,
           "ring of two whose steps take longer than messages");
    /* Steps of sums were measured: so many bytes a second, adding included. */
    snprintf(machine, sizeof machine,
             "inside=250ms,%.0fB/s,sum:1KiB:%.0fB/s ranks=2 cores=4 flops=1T bandwidth=%.0fB/s",
             bytes, bytes / 2, 3 * bytes);
    o = replay(1, "batch=8 replicas=2 allreduce=ring", 2, machine);
    expect(o.seconds, 3 + 2 * (0.25 + 1), "ring of two whose steps were measured");
}

/* A device that stood still for a message takes a while to go on: each of two stages once, forward and backward. */
static void test_resume(void **state)
{
    (void)state;
    const char *words = "batch=8 level=layer stages=2 schedule=serial";
    job j = make(2, words, 2, "inside=0s,1000000TB/s ranks=2 cores=4");
    for (int r = 0; r < j.ranks; r++)
        j.actor[r].wake = 0, j.actor[r].resume = 0.5;
    meg_replay one = run(&j, NULL, NULL);
    expect(one.seconds, 6 + 2 * 0.5, "going on behind messages");
    free(one.times);
    drop(&j);
}

/* What a link has for all is shared by messages at one moment; cores by kernels and copies. */
static void test_sharing(void **state)
{
    char alone[96], shared[96];
    (void)state;
    int rate = 4 * WIDTH * REAL; /* of one message in a second */
    const char *words = "batch=8 level=layer stages=2 replicas=2 schedule=serial bucket=1KiB";
    snprintf(alone, sizeof alone, "inside=0s,%dB/s ranks=4 cores=4", rate);
    snprintf(shared, sizeof shared, "inside=0s,%dB/s,all:%dB/s ranks=4 cores=4", rate, rate);
    double one = replay(2, words, 4, alone).seconds, all = replay(2, words, 4, shared).seconds;
    if (!(all > one + 2))
        fail_msg("expected two messages to take 2 s more, got %g and %g", one, all);
    /* Where both ways share a cable, what comes slows down what goes: a ring of two takes twice as long. */
    char ring[128];
    double bytes = WIDTH * WIDTH * REAL;
    snprintf(ring, sizeof ring, "nodes=2 ranks=1 between=0s,%.0fB/s", bytes);
    double there = replay(1, "batch=8 replicas=2 allreduce=ring", 2, ring).seconds;
    snprintf(ring, sizeof ring, "nodes=2 ranks=1 between=0s,%.0fB/s,both:%.0fB/s", bytes, bytes);
    double both = replay(1, "batch=8 replicas=2 allreduce=ring", 2, ring).seconds;
    expect(both - there, 1, "both ways of a ring");
    /* Four ranks of one core have it by turns. */
    expect(replay(2, "batch=8 replicas=4", 4, "inside=0s,1000000TB/s ranks=4 cores=1").seconds, 24,
           "ranks that share a core");
    /* So have four nodes that are containers of one machine with two; else each has its own. */
    const char *links = "nodes=4 ranks=1 cores=2 inside=0s,1000000TB/s between=0s,1000000TB/s";
    char pooled[128];
    snprintf(pooled, sizeof pooled, "%s all_cores=2", links);
    expect(replay(2, "batch=8 replicas=4", 4, links).seconds, 6, "nodes with their own cores");
    expect(replay(2, "batch=8 replicas=4", 4, pooled).seconds, 12, "nodes that share cores");
    /* Messages between them want those cores, too: both ends of a ring of two have one core together. */
    snprintf(ring, sizeof ring, "nodes=2 ranks=1 cores=1 all_cores=1 between=0s,%.0fB/s,cpu:1",
             bytes);
    expect(replay(1, "batch=8 replicas=2 allreduce=ring", 2, ring).seconds, 6 + 2,
           "messages between nodes that share a core");
    /* In a pipeline one works while the others wait: it has a core all the same. */
    expect(replay(4, "batch=8 level=layer stages=4 schedule=serial", 4, pooled).seconds, 12,
           "nodes that share cores, by turns");
}

static void look(void *context, const meg_replay_span *s)
{
    double *work = context;
    assert_true(s->posted <= s->begin && s->begin <= s->end);
    if (s->what == MEG_REPLAY_WORK) *work += s->end - s->begin;
}

/* Spans of work are the kernels' seconds. */
static void test_spans(void **state)
{
    double work = 0;
    (void)state;
    job j = make(4, "batch=8 level=layer stages=4 micro=4 schedule=1f1b", 4, QUICK);
    meg_replay r = run(&j, look, &work);
    expect(work, 2 * 4 * 12, "two steps of four ranks");
    free(r.times);
    drop(&j);
}

/* Equal ranks that are replayed as one take as long as each on its own. */
static void test_classes(void **state)
{
    static const struct {
        const char *model, *options, *words;
        int ranks;
        double
            near; /* where peers of equal ranks differ (likes.h), who waits for whom is not known */
        const char *machine; /* NULL: one node */
    } cases[] = {
        {"cnn", "width=4", "batch=64", 32, 0.01, NULL},
        {"gpt", "layers=4 width=16 heads=2 tokens=8 classes=64",
         "batch=64 stages=4 micro=4 schedule=1f1b", 32, 0.01, NULL},
        {"unet", "image=3x512x512 width=4", "batch=2 mesh=4x4", 32, 0.03, NULL},
        {"unet", "image=3x1024x512 width=4", "batch=2 mesh=16x1", 32, 0.03, NULL},
        {"resnet-cifar", "depth=8 image=3x256x256", "batch=64 norm=1 stages=2 micro=4 mesh=2x2", 32,
         0.01, NULL},
        {"vgg11", "image=3x32x32 width=4 hidden=64 classes=10", "batch=64 zero=3", 32, 0.01, NULL},
        /* The middle of 24 has both neighbours on its node, the ends of nodes have not. */
        {"unet", "image=3x1536x256 width=4", "batch=2 mesh=24x1", 24, 0.05,
         "nodes=3 ranks=8 inside=2us,40GB/s between=5ms,50MB/s"},
        {"unet", "image=3x1536x256 width=4", "batch=8 mesh=8x1", 24, 0.05,
         "nodes=3 ranks=8 inside=2us,40GB/s between=5ms,50MB/s"},
        {"gpt", "layers=4 width=64 heads=2 tokens=64 classes=64",
         "batch=24 stages=4 micro=4 schedule=1f1b", 24, 0.05,
         "nodes=4 ranks=6 inside=2us,40GB/s between=5ms,50MB/s"},
        /* The end of a row sends to the next stage, which is as far away as a neighbour of its is; and of two stages' meshes
         * each has rows of its own. */
        {"resnet-cifar", "depth=8 image=3x128x128 width=4",
         "batch=12 norm=1 stages=2 schedule=1f1b micro=2 mesh=2x1,1", 18, 0.001,
         "nodes=18 ranks=1 between=1us,50MB/s"},
        {"resnet-cifar", "depth=8 image=3x128x128 width=4",
         "batch=6 norm=1 stages=2 schedule=1f1b micro=2 mesh=4x1,2x2", 24, 0.001,
         "nodes=12 ranks=2 inside=1us,40GB/s between=1us,50MB/s"},
        {"resnet-cifar", "depth=8 image=3x256x256 width=4", "batch=4 norm=1 mesh=4x2", 32, 0.02,
         "nodes=32 ranks=1 between=1us,500MB/s"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        meg_machine m;
        meg_whole whole, sketch;
        meg_replay few, many, fewest;
        meg_actor actor[32];
        const char *machine = cases[i].machine ? cases[i].machine
                                               : "ranks=32 cores=32 inside=2us,4GB/s";
        assert_int_equal(meg_machine_read(&e, "test", machine, &m), MEG_OK);
        if (meg_zoo_build(&e, cases[i].model, cases[i].options, &g) != MEG_OK)
            fail_msg("%s", e.message);
        meg_plan_input in = {&meg_profile_plain, &(meg_world){0, cases[i].ranks}, cases[i].words, 0,
                             NULL};
        if (meg_whole_make(g, &e, &in, &whole) != MEG_OK) fail_msg("%s", e.message);
        assert_true(whole.actors < whole.ranks);
        if (meg_whole_replay(&whole, &e, &m, &few) != MEG_OK)
            fail_msg("%s: %s", cases[i].words, e.message);
        if (meg_whole_sketch(g, &e, &in, 0, &sketch) != MEG_OK ||
            meg_whole_replay(&sketch, &e, &m, &fewest) != MEG_OK)
            fail_msg("%s: %s", cases[i].words, e.message);
        for (int r = 0; r < cases[i].ranks; r++) {
            meg_plan *p = NULL;
            meg_world world = {r, cases[i].ranks};
            assert_int_equal(
                meg_plan_make_for(g, &e, &meg_profile_plain, &world, cases[i].words, 0, &p),
                MEG_OK);
            meg_actor_make(p, MEG_ENTRY_TRAIN, &actor[r]);
            assert_int_equal(p->arena, whole.arena[whole.actor_of[r]]);
            meg_plan_destroy(p);
        }
        meg_replay_job all = {&m, cases[i].ranks, cases[i].ranks, actor, NULL};
        assert_int_equal(meg_replay_run(&all, &e, NULL, NULL, &many), MEG_OK);
        print_message("%s %s: %d ranks as %d, %.6f s, as %d, %.6f s, each on its own %.6f s\n",
                      cases[i].model, cases[i].words, whole.ranks, whole.actors, few.seconds,
                      sketch.actors, fewest.seconds, many.seconds);
        if (!(fabs(few.seconds - many.seconds) <= cases[i].near * many.seconds))
            fail_msg("%s: %g s as classes, %g s as ranks", cases[i].words, few.seconds,
                     many.seconds);
        /* One rank for all of a mesh: ends of the image have smaller halos than its middle, shards of few rows differ,
         * and where kernels are short, ranks that look late at messages make one another wait. */
        if (!(fabs(fewest.seconds - many.seconds) <= 0.15 * many.seconds))
            fail_msg("%s: %g s as a sketch, %g s as ranks", cases[i].words, fewest.seconds,
                     many.seconds);
        for (int r = 0; r < cases[i].ranks; r++)
            meg_actor_clear(&actor[r]);
        meg_whole_free(&sketch);
        free(fewest.times);
        free(few.times);
        free(many.times);
        meg_whole_free(&whole);
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank), cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_gems),     cmocka_unit_test(test_messages),
        cmocka_unit_test(test_sum),      cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_resume),   cmocka_unit_test(test_spans),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
