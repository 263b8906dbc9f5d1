/* Before the first step of a job of many ranks (exec/prove.h), threads of this process: ranks compare digests, and only one
 * rank of each class sends its list; where one rank's program differs, or a whole class would hang, the lists of all
 * say what it is, as they do of few ranks.
 */
#include "comm/kind.h"
#include "exec/prove.h"
#include "plan/classes/classes.h"
#include "plan/events/events.h"
#include "zoo/zoo.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 64
};

typedef struct job job;

typedef struct rank {
    job *job;
    meg_comm *comm;
    meg_comm_kind counting;    /* its communicator's kind, with another way to send */
    const meg_comm_kind *kind; /* the one it had */
    meg_plan *plan;
    meg_error error;
    meg_status status;
    int64_t lists; /* bytes sent to rank 0 that are no part of a collective call */
} rank;

struct job {
    meg_graph *g;
    int ranks;
    rank r[MOST];
};

/* ---- what is sent ---- */

/* The kind is the first member that a rank's struct lends to its communicator. */
static rank *rank_of(const meg_comm *c)
{
    return (rank *)((char *)(uintptr_t)c->kind - offsetof(rank, counting));
}

static meg_status count_send(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                             int64_t bytes, meg_letter **out)
{
    rank *r = rank_of(c);
    if (tag < c->tags - MEG_COMM_OWN_TAGS) r->lists += bytes;
    return r->kind->send(c, e, peer, tag, data, bytes, out);
}

/* ---- jobs ---- */

static job *make(const char *model, const char *options, const char *words, int ranks)
{
    meg_error e;
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->ranks = ranks;
    if (meg_zoo_build(&e, model, options, &j->g) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < ranks; i++) {
        meg_world world = {i, ranks};
        j->r[i].job = j;
        if (meg_plan_make_for(j->g, &e, &meg_profile_plain, &world, words, 0, &j->r[i].plan))
            fail_msg("%s: %s", words, e.message);
    }
    return j;
}

static void drop(job *j)
{
    for (int i = 0; i < j->ranks; i++)
        meg_plan_destroy(j->r[i].plan);
    meg_graph_destroy(j->g);
    free(j);
}

static void *run_rank(void *context)
{
    rank *r = context;
    r->status = meg_prove(r->comm, &r->error, r->plan);
    return NULL;
}

static void prove(job *j)
{
    meg_error e;
    meg_comm *comm[MOST];
    pthread_t thread[MOST];
    meg_threads_options o = {.ranks = j->ranks, .rendezvous = true};
    if (meg_comm_threads(&e, &o, comm) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < j->ranks; i++) {
        rank *r = &j->r[i];
        r->comm = comm[i];
        r->kind = comm[i]->kind;
        r->counting = *r->kind;
        r->counting.send = count_send;
        r->comm->kind = &r->counting;
        r->lists = 0;
        r->error = (meg_error){0};
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, r), 0);
    }
    for (int i = 0; i < j->ranks; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < j->ranks; i++) {
        j->r[i].comm->kind = j->r[i].kind;
        meg_comm_free(j->r[i].comm);
    }
}

/* ---- sound jobs ---- */

static const struct {
    const char *model, *options, *words;
    int ranks, classes;
} SOUND[] = {
    {"cnn", "image=1x8x8 classes=3", "batch=128 replicas=64 zero=3", 64, 7},
    {"resnet-cifar", "depth=8 image=3x16x16", "batch=64 norm=4 stages=4 micro=4 replicas=8", 32, 8},
    {"resnet-cifar", "depth=8 image=3x16x16", "batch=48 norm=2 stages=2 micro=2 replicas=12", 24,
     4},
    {"unet", "image=1x64x64 width=2 depth=2", "batch=2 mesh=8x4", 32, 9},
    {"unet", "image=1x64x64 width=2 depth=2",
     "batch=8 stages=2 mesh=4x2 micro=2 schedule=chimera replicas=4", 64, 12},
    {"gpt", "tokens=16 classes=32 layers=4 heads=4 width=16",
     "batch=64 stages=2 micro=4 mesh=c4 replicas=8", 64, 8},
};

/* As many send lists as there are classes, one of which may be rank 0's. */
static void test_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SOUND / sizeof *SOUND; i++) {
        job *j = make(SOUND[i].model, SOUND[i].options, SOUND[i].words, SOUND[i].ranks);
        meg_classes *c = meg_classes_new(j->r[0].plan);
        prove(j);
        if (c->count != SOUND[i].classes)
            fail_msg("%s: %d classes, expected %d", SOUND[i].words, c->count, SOUND[i].classes);
        for (int r = 0; r < j->ranks; r++) {
            bool witness = r > 0 && c->last[c->of[r]] == r;
            if (j->r[r].status != MEG_OK) fail_msg("%s: %s", SOUND[i].words, j->r[r].error.message);
            if ((j->r[r].lists > 0) != witness)
                fail_msg("%s: rank %d, which is %s witness, sends %lld bytes of lists",
                         SOUND[i].words, r, witness ? "a" : "no", (long long)j->r[r].lists);
        }
        meg_classes_free(c);
        drop(j);
    }
}

/* ---- broken ones ---- */

static meg_instr *find(meg_plan *p, meg_code code)
{
    meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    for (int s = 0; s < e->stations; s++)
        for (int i = 0; i < e->station[s].instrs; i++)
            if (e->station[s].instr[i].code == code) return &e->station[s].instr[i];
    fail_msg("no such instruction");
    return NULL;
}

/* What the full proof says of the same programs. */
static meg_status judge(job *j, meg_error *e)
{
    meg_events list[MOST] = {0};
    for (int r = 0; r < j->ranks; r++)
        meg_events_of(j->r[r].plan, MEG_ENTRY_TRAIN, &list[r]);
    meg_status status = meg_job_check(e, j->r[0].plan->entry[MEG_ENTRY_TRAIN].graph, j->ranks,
                                      list);
    for (int r = 0; r < j->ranks; r++)
        meg_events_clear(&list[r]);
    return status;
}

/* All ranks hear it, in the words of the full proof. */
static void finds(job *j, const char *says)
{
    meg_error e = {0};
    assert_int_equal(judge(j, &e), MEG_EARG);
    prove(j);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
    for (int r = 0; r < j->ranks; r++) {
        assert_int_equal(j->r[r].status, MEG_EARG);
        if (!strstr(j->r[r].error.message, e.message))
            fail_msg("rank %d: expected '%s', but it says: %s", r, e.message,
                     j->r[r].error.message);
    }
    drop(j);
}

static job *pipeline(void)
{
    return make("resnet-cifar", "depth=8 image=3x16x16",
                "batch=64 norm=4 stages=4 micro=4 replicas=8", 32);
}

static void test_one_rank(void **state)
{
    (void)state;
    job *j = pipeline(); /* to a rank of another replica, which has the same order of everything */
    find(j->r[9].plan, MEG_SEND)->peer += 4;
    finds(j, "from rank 9, which does not send it");
    j = pipeline();
    find(j->r[13].plan, MEG_RECV)->tag += 1;
    finds(j, "does not");
    j = pipeline();
    find(j->r[30].plan, MEG_REDUCE)->half = MEG_HALF_SCATTER;
    finds(j, "gathers");
    j = make("unet", "image=1x64x64 width=2 depth=2", "batch=2 mesh=8x4", 32);
    meg_entry *t = &j->r[17].plan->entry[MEG_ENTRY_TRAIN]; /* other rows of the same number */
    const meg_instr *in = find(j->r[17].plan, MEG_SEND);
    meg_slot *s = &t->station[0].slot[in->slot[MEG_X]];
    s->box.lo[MEG_H]++, s->box.hi[MEG_H]++;
    finds(j, "another part");
}

/* All ranks of two neighbouring stages wait before they send: every digest agrees, and nobody goes on. */
static void test_hangs(void **state)
{
    (void)state;
    job *j = make("cnn", "image=1x8x8 classes=3", "batch=64 stages=2 micro=1 replicas=16", 32);
    for (int r = 0; r < j->ranks; r += 2) {
        meg_entry *t = &j->r[r].plan->entry[MEG_ENTRY_TRAIN];
        int forward = -1, backward = -1;
        for (int i = 0; i < t->lines; i++) {
            if (t->line[i].block == MEG_BLOCK_FORWARD) forward = i;
            if (t->line[i].block == MEG_BLOCK_BACKWARD) backward = i;
        }
        assert_true(0 <= forward && forward < backward);
        meg_block_kind was = t->line[forward].block;
        t->line[forward].block = t->line[backward].block;
        t->line[backward].block = was;
    }
    finds(j, "would hang");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
