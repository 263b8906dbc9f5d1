/* The check of a whole job, on plans without a device: it accepts what the planner makes, for every
 * schedule, and finds what is broken.
 */
#include "plan/events/events.h"
#include "plan/plan.h"
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

static whole make_of(meg_graph *g, const char *words, int ranks)
{
    meg_error e;
    whole w = {.g = g, .ranks = ranks};
    for (int r = 0; r < ranks; r++) {
        meg_world world = {r, ranks};
        if (meg_plan_make_for(w.g, &e, &meg_profile_plain, &world, words, 0, &w.plan[r]) != MEG_OK)
            fail_msg("%s: %s", words, e.message);
        meg_events_of(w.plan[r], MEG_ENTRY_TRAIN, &w.list[r]);
    }
    return w;
}

static whole make(const char *model, const char *options, const char *words, int ranks)
{
    meg_error e;
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, model, options, &g) != MEG_OK) fail_msg("%s", e.message);
    return make_of(g, words, ranks);
}

static void drop(whole *w)
{
    for (int r = 0; r < w->ranks; r++) {
        meg_events_clear(&w->list[r]);
        meg_plan_destroy(w->plan[r]);
    }
    meg_graph_destroy(w->g);
}

/* Tags tell all messages of a rank apart; of reductions, all but those of other micro-batches. */
static int by_tag(const void *a, const void *b)
{
    const meg_traffic_note *x = a, *y = b;
    int64_t kx[] = {x->code, x->peer, (int64_t)(x->team >> 1), x->tag, x->micro};
    int64_t ky[] = {y->code, y->peer, (int64_t)(y->team >> 1), y->tag, y->micro};
    for (int i = 0; i < 5; i++)
        if (kx[i] != ky[i]) return kx[i] < ky[i] ? -1 : 1;
    return 0;
}

static void tags_differ(const meg_events *v, const char *words)
{
    meg_traffic_note *all = calloc((size_t)v->notes + 1, sizeof *all);
    for (int i = 0; i < v->notes; i++)
        all[i] = v->note[i];
    qsort(all, (size_t)v->notes, sizeof *all, by_tag);
    for (int i = 1; i < v->notes; i++)
        if (by_tag(&all[i - 1], &all[i]) == 0)
            fail_msg("%s: rank %d has tag %d twice", words, v->rank, all[i].tag);
    free(all);
}

static void accept(whole w, const char *words)
{
    meg_error e;
    const meg_graph *g = w.plan[0]->entry[MEG_ENTRY_TRAIN].graph;
    int notes = 0;
    for (int r = 0; r < w.ranks; r++) {
        notes += w.list[r].notes;
        tags_differ(&w.list[r], words);
    }
    assert_true(notes > 0);
    if (meg_job_check(&e, g, w.ranks, w.list) != MEG_OK) fail_msg("%s: %s", words, e.message);
    drop(&w);
}

static void accepts(const char *model, const char *options, const char *words, int ranks)
{
    accept(make(model, options, words, ranks), words);
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
    accepts("resnet-cifar", "depth=8 image=3x16x16",
            "batch=8 norm=2 stages=4 chunks=2 micro=2 schedule=interleaved replicas=2 zero=3", 4);
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

/* The last that gathers parts sums them up instead. */
static void turn_half(meg_entry *e)
{
    meg_station *t = &e->station[0];
    int at = t->instrs - 1;
    while (at >= 0 && (t->instr[at].code != MEG_REDUCE || t->instr[at].half != MEG_HALF_GATHER))
        at--;
    assert_true(at >= 0);
    t->instr[at].half = MEG_HALF_SCATTER;
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
    w = make("cnn", "image=1x8x8 classes=3", "batch=4 replicas=2 zero=3", 2);
    turn_half(&w.plan[1]->entry[MEG_ENTRY_TRAIN]);
    meg_events_clear(&w.list[1]);
    meg_events_of(w.plan[1], MEG_ENTRY_TRAIN, &w.list[1]);
    finds(&w, "gathers");
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

/* ---- tags run out ---- */

/* `layers` layers behind one another, with two weights each. */
static meg_graph *chain(int layers)
{
    meg_graph *g = meg_graph_create("chain");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 3});
    for (int i = 0; i < layers; i++)
        x = meg_graph_add(g, "dense", "", "units=3", 1, &x);
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* More gradients than a stage has tags for: the last bucket takes what is left. */
static void test_buckets(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 2; stages++) {
        char words[96];
        snprintf(words, sizeof words, "batch=4 micro=2 bucket=1 replicas=2 stages=%d level=layer",
                 stages);
        accept(make_of(chain(600 * stages), words, 2 * stages), words);
    }
}

/* So many values that the second stage reads. */
static meg_graph *wide(int values)
{
    meg_graph *g = meg_graph_create("wide");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 3}), *of = calloc((size_t)values, sizeof *of);
    x = meg_graph_add(g, "dense", "first", "units=3", 1, &x);
    for (int i = 0; i < values; i++)
        of[i] = meg_graph_add(g, "tanh", "", "", 1, &x);
    x = meg_graph_add(g, "tanh", "second", "", 1, &of[0]);
    for (int i = 1; i < values; i++)
        x = meg_graph_add(g, "add", "", "", 2, (int[]){x, of[i]});
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    free(of);
    return g;
}

/* More than a million messages, told apart; how many tags there are, the engine asks (t739-tags). */
static void test_messages(void **state)
{
    (void)state;
    static const char words[] = "batch=1024 micro=1024 stages=2 level=layer assign=second";
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_graph *g = wide(513);
    meg_world world = {0, 2};
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
        fail_msg("%s", e.message);
    assert_int_equal(p->tags, 1 + 4 * p->entry[MEG_ENTRY_TRAIN].tagged + 2 + 2 * 1024 * 513);
    meg_plan_destroy(p);
    meg_graph_destroy(g);
    accept(make_of(wide(64), words, 2), words);
}

/* ---- tied weights ---- */

/* Two weights, read in the order a b b a. */
static meg_graph *tied(void)
{
    static const char *const name[] = {"n0", "n1", "n2", "n3"};
    meg_graph *g = meg_graph_create("tied");
    meg_weight_spec spec = {
        .kind = MEG_PARAMETER, .shape = meg_box_of(1, 3, 1, 1, 1), .rank = 2, .dims = {1, 3}};
    int x = meg_graph_input(g, "x", 2, (int64_t[]){1, 3}), w[2];
    w[0] = meg_graph_parameter(g, "a", &spec);
    w[1] = meg_graph_parameter(g, "b", &spec);
    for (int i = 0; i < 4; i++)
        x = meg_graph_add(g, "mul", name[i], "", 2, (int[]){x, w[i == 1 || i == 2]});
    meg_graph_add_loss(g, "softmax_xent", "", x, 1);
    if (g->error.status != MEG_OK) fail_msg("%s", g->error.message);
    return g;
}

/* Ranks complete them in different order, in one station or in several. */
static void test_tied(void **state)
{
    (void)state;
    static const char *const words[] = {
        "batch=4 micro=2 stages=2 level=layer assign=n2",
        "batch=4 micro=2 stages=4 chunks=2 schedule=interleaved level=layer assign=n1,n2,n3"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int zero = 0; zero <= 3; zero += zero ? 2 : 1) {
            char all[160];
            snprintf(all, sizeof all, "%s momentum=0.9 zero=%d", words[i], zero);
            accept(make_of(tied(), all, 2), all);
        }
}

/* ---- programs made by hand ---- */

typedef struct tiny { /* one station, whose frame has slots of 8 bytes */
    meg_plan plan;
    meg_station station;
    meg_slot slot[4];
    meg_instr instr[8];
    meg_line line[4];
    meg_team team;
    int member[2];
} tiny;

static void tiny_slot(tiny *t, int slot, int64_t offset, int64_t bytes)
{
    t->slot[slot] = (meg_slot){.value = -1, .region = MEG_FRAME, .offset = offset, .bytes = bytes};
    if (t->station.frame < offset + bytes) t->station.frame = offset + bytes;
}

static void tiny_instr(tiny *t, int block, meg_code code, int slot, int tag)
{
    meg_instr i = {.code = code, .node = -1, .peer = 1 - t->plan.world.rank, .tag = tag};
    for (int o = 0; o < MEG_OPERANDS; o++)
        i.slot[o] = -1;
    bool written = code == MEG_RECV || code == MEG_ZERO;
    i.slot[written ? MEG_Y : MEG_X] = slot;
    i.written = written ? MEG_BIT(MEG_Y) : 0;
    if (code == MEG_REDUCE) i.peer = 0;
    if (t->station.block[block].count++ == 0) t->station.block[block].first = t->station.instrs;
    t->instr[t->station.instrs++] = i;
}

static void tiny_line(tiny *t, int block, int micro, int frame)
{
    meg_entry *e = &t->plan.entry[0];
    for (int i = e->lines - 1; i >= 0; i--)
        if (t->line[i].frame == frame && t->line[i].next < 0) t->line[i].next = e->lines;
    t->line[e->lines] = (meg_line){.block = (meg_block_kind)block,
                                   .micro = micro,
                                   .frame = frame,
                                   .next = -1,
                                   .first = e->lines == 0};
    e->lines++;
}

/* The check of two ranks; says: NULL, or what it finds. */
static void judge(tiny t[2], const char *says)
{
    meg_error e = {0};
    meg_graph *g = meg_graph_create("none");
    meg_events list[2];
    for (int r = 0; r < 2; r++) {
        meg_entry *entry = &t[r].plan.entry[0];
        t[r].station.slot = t[r].slot;
        t[r].station.instr = t[r].instr;
        t[r].station.slots = 4;
        t[r].member[1] = 1;
        t[r].team = (meg_team){.count = 2, .rank = t[r].member};
        t[r].plan.bytes[MEG_FRAME] = 2 * t[r].station.frame;
        entry->station = &t[r].station;
        entry->stations = entry->teams = 1;
        entry->line = t[r].line;
        entry->team = &t[r].team;
        meg_events_of(&t[r].plan, 0, &list[r]);
    }
    meg_status status = meg_job_check(&e, g, 2, list);
    if (status != (says ? MEG_EARG : MEG_OK) || (says && !strstr(e.message, says)))
        fail_msg("expected '%s' in: %s", says ? says : "(nothing)", e.message);
    for (int r = 0; r < 2; r++)
        meg_events_clear(&list[r]);
    meg_graph_destroy(g);
}

/* Rank 0 receives where two messages lie that it sends. Rank 1 takes the second of these, and
 * the first only when it has got rid of its own: rank 0 must wait for both.
 *
 *     rank 0   send a   send b   receive c over a and b
 *     rank 1   receive b   send c, and wait   receive a
 */
static void test_waits_for_all(void **state)
{
    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        tiny t[2] = {{.plan.world = {0, 2}}, {.plan.world = {1, 2}}};
        tiny_slot(&t[0], 0, 0, 8);
        tiny_slot(&t[0], 1, 8, 8);
        tiny_slot(&t[0], 2, 0, 16);
        tiny_instr(&t[0], MEG_BLOCK_FORWARD, MEG_SEND, 0, 100);
        tiny_instr(&t[0], MEG_BLOCK_FORWARD, MEG_SEND, 1, 200);
        tiny_instr(&t[0], MEG_BLOCK_BACKWARD, MEG_RECV, 2, 300);
        tiny_slot(&t[1], 0, 0, 8);
        tiny_slot(&t[1], 1, 8, 8);
        tiny_slot(&t[1], 2, 16, 16);
        tiny_instr(&t[1], MEG_BLOCK_FORWARD, MEG_RECV, 1, 200);
        tiny_instr(&t[1], MEG_BLOCK_FORWARD, MEG_SEND, 2, 300);
        if (wait) tiny_instr(&t[1], MEG_BLOCK_FORWARD, MEG_ZERO, 2, 0);
        tiny_instr(&t[1], MEG_BLOCK_BACKWARD, MEG_RECV, 0, 100);
        for (int r = 0; r < 2; r++) {
            tiny_line(&t[r], MEG_BLOCK_FORWARD, 0, 0);
            tiny_line(&t[r], MEG_BLOCK_BACKWARD, 0, 0);
        }
        judge(t, wait ? "would hang" : NULL);
    }
}

/* Ranks that sum up micro-batches in different orders would add one to the other. */
static void test_order_of_sums(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        tiny t[2] = {{.plan.world = {0, 2}}, {.plan.world = {1, 2}}};
        for (int r = 0; r < 2; r++) {
            tiny_slot(&t[r], 0, 0, 8);
            tiny_instr(&t[r], MEG_BLOCK_FORWARD, MEG_REDUCE, 0, 100);
            for (int m = 0; m < 2; m++)
                tiny_line(&t[r], MEG_BLOCK_FORWARD, r && other ? 1 - m : m, m);
        }
        judge(t, other ? "micro-batches" : NULL);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),       cmocka_unit_test(test_finds),
        cmocka_unit_test(test_buckets),       cmocka_unit_test(test_messages),
        cmocka_unit_test(test_tied),          cmocka_unit_test(test_waits_for_all),
        cmocka_unit_test(test_order_of_sums), cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
