/* Tags of messages: numbered densely, so that they fit into what any MPI has (32,767 at least), and compared
 * with what the communicator has before the first step: not at the message that does not fit.
 */
#include "exec/engine.h"
#include "plan/plan.h"
#include "plan/program/tags.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    LEAST = 32767 /* that MPI promises */
};

static meg_graph *build(const char *model, const char *options)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, model, options, &g) != MEG_OK) fail_msg("%s", e.message);
    return g;
}

static meg_plan *plan(const meg_graph *g, const char *words, int rank, int ranks)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_world world = {rank, ranks};
    if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p) != MEG_OK)
        fail_msg("%s: %s", words, e.message);
    return p;
}

/* Marks the tags that the rank's messages of training use. */
static void mark(const meg_plan *p, bool used[], int most)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    for (int i = 0; i < e->stations; i++)
        for (int k = 0; k < e->station[i].instrs; k++) {
            const meg_instr *in = &e->station[i].instr[k];
            bool message = in->code == MEG_SEND || in->code == MEG_RECV;
            if (!message && in->code != MEG_REDUCE) continue;
            for (int m = 0; m < (message ? e->micro : 1); m++) {
                if (in->tag + m <= MEG_TAG_OUTCOME || in->tag + m >= most)
                    fail_msg("tag %d of 1..%d", in->tag + m, most - 1);
                used[in->tag + m] = true;
            }
        }
}

/* A rank's plan says how many tags there are; those of all ranks together use a good part of them. */
static void check_dense(const char *model, const char *options, const char *words, int ranks)
{
    meg_graph *g = build(model, options);
    bool used[LEAST] = {false};
    int most = 0, count = 0;
    for (int r = 0; r < ranks; r++) {
        meg_plan *p = plan(g, words, r, ranks);
        if (p->tags > LEAST) fail_msg("%s: %d tags", words, p->tags);
        if (p->tags > most) most = p->tags;
        mark(p, used, p->tags);
        meg_plan_destroy(p);
    }
    for (int i = 0; i < most; i++)
        count += used[i];
    if (count * 20 < most) fail_msg("%s: %d tags, of which %d are used", words, most, count);
    meg_graph_destroy(g);
}

static void tags_are_dense(void **state)
{
    (void)state;
    check_dense("resnet-cifar", "depth=110 image=3x16x16", "batch=16 norm=2 stages=4 micro=8", 4);
    check_dense("resnet-cifar", "depth=20 image=3x16x16", "batch=4 mesh=2x2", 4);
    check_dense("resnet-cifar", "depth=20 image=3x16x16", "batch=8 zero=3 replicas=4", 4);
    check_dense("gpt", "tokens=8 classes=32 layers=12 heads=2 width=8", "batch=8 stages=2 micro=4",
                2);
    check_dense("unet", "image=1x32x32 width=4", "batch=8 stages=4 micro=4 schedule=chimera", 4);
}

/* No message is sent: the engine is not made. */
static void few_are_refused(void **state)
{
    (void)state;
    meg_error e = {0};
    meg_graph *g = build("cnn", "width=2");
    meg_comm *comm[2];
    meg_device *d = NULL;
    meg_engine *x = NULL;
    char want[64];
    assert_int_equal(meg_comm_threads(&e, &(meg_threads_options){.ranks = 2, .tags = 12}, comm),
                     MEG_OK);
    assert_int_equal(meg_device_open(&e, "ref64", 1, &d), MEG_OK);
    for (int r = 0; r < 2; r++) {
        meg_plan *p = plan(g, "batch=8 norm=2 stages=2 micro=4", r, 2);
        assert_int_equal(meg_engine_new(p, d, comm[r], &e, 0, &x), MEG_EUNSUPPORTED);
        snprintf(want, sizeof want, "tells %d kinds of messages apart", p->tags);
        if (!strstr(e.message, want) || !strstr(e.message, "tags for 10"))
            fail_msg("expected '%s' and 10 in: %s", want, e.message);
        meg_plan_destroy(p);
    }
    for (int r = 0; r < 2; r++)
        meg_comm_free(comm[r]);
    meg_device_close(d);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_dense),
        cmocka_unit_test(few_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
