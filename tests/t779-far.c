/* Whole programs on `far`, whose memory the host cannot touch: plans of every kind give the answer of one
 * rank on ref64. An engine that forgets to wait for messages, which is planted here, does not.
 * ./do fuzz --far runs the matrix, the list of meshes and the fuzzers so. */
#define meg_traffic_holds careful_holds
#include "exec/traffic.c" /* in place of the library's: all of its functions are here */
#undef meg_traffic_holds

#include "compare.h"
#include "plan/program/staging.h"
#include "plan/program/walk.h"
#include "ranks.h"

#include <sys/wait.h>

static bool forgetful; /* of the whole program; set in a child before it starts its ranks */

bool meg_traffic_holds(const meg_traffic_list *t, int64_t at, int64_t bytes, bool writes)
{
    return !forgetful && careful_holds(t, at, bytes, writes);
}

typedef struct far_case {
    const char *model, *options, *one, *many;
    int ranks;
} far_case;

static const far_case cases[] = {
    {"resnet-cifar", "depth=8 image=3x8x8", "batch=8", "batch=8 replicas=4", 4},
    {"resnet-cifar", "depth=8 image=3x8x8", "batch=8 norm=2",
     "batch=8 norm=2 stages=3 micro=4 schedule=1f1b", 3},
    {"resnet-cifar", "depth=8 image=3x8x8", "batch=8 norm=2",
     "batch=8 norm=2 stages=2 replicas=2 micro=4 schedule=chimera", 4},
    {"resnet-cifar", "depth=8 image=3x8x8", "batch=4", "batch=4 mesh=2x2", 4},
    {"resnet-cifar", "depth=8 image=3x8x8", "batch=4", "batch=4 mesh=2x1 wide=2 zero=3", 2},
    {"unet", "image=1x16x16 width=4", "batch=2", "batch=2 stages=2 mesh=2x1,1 zero=1", 3},
    {"gpt", "layers=2 width=16 heads=2 tokens=8 classes=23", "batch=4", "batch=4 mesh=c2", 2},
    {"gpt", "layers=2 width=16 heads=2 tokens=8 classes=23", "batch=4",
     "batch=4 stages=2 micro=2 schedule=mast", 2},
};

static network_result *answer(const far_case *f, const meg_graph *g, bool many)
{
    char plan[256];
    snprintf(plan, sizeof plan, "momentum=0.9 %s", many ? f->many : f->one);
    ranks_case c = {.graph = g,
                    .plan = plan,
                    .device = many ? "far" : "ref64",
                    .ranks = many ? f->ranks : 1,
                    .steps = 2};
    return ranks_run(&c);
}

static bool is_right(const far_case *f)
{
    meg_graph *g = network_zoo(f->model, f->options);
    network_result *one = answer(f, g, false), *many = answer(f, g, true);
    bool right = compare_same(one, many, f->many);
    network_free(one);
    network_free(many);
    meg_graph_destroy(g);
    return right;
}

static void plans_give_the_answer_of_one(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(is_right(&cases[i]));
}

/* ---- staging ---- */

/* Marks the places of an operand, 64 bytes at a time. */
static void mark(const meg_plan *p, const meg_walk *w, int operand, bool *used)
{
    if (w->instr->slot[operand] < 0) return;
    const meg_slot *s = &w->station->slot[w->instr->slot[operand]];
    int64_t at = meg_slot_place(p, w->station, s, w->line), bytes = s->bytes;
    if (w->instr->code == MEG_LOAD && s->per_micro) bytes = s->per_micro * w->station->micros;
    for (int64_t i = at / 64; i * 64 < at + bytes; i++)
        used[i] = true;
}

/* The stretches are just what loads and messages touch: every unit of the arena is asked. */
static void check_staging(const meg_plan *p)
{
    int64_t units = p->arena / 64 + 1, bytes = 0;
    bool *used = calloc((size_t)units + 1, sizeof *used);
    for (int i = 0; i < MEG_ENTRIES; i++) {
        if (p->entry[i].batch == 0) continue;
        for (meg_walk w = meg_walk_new(&p->entry[i]); meg_walk_next(&w);) {
            if (w.what == MEG_WALK_END) continue;
            meg_code c = w.instr->code;
            if (c == MEG_LOAD || c == MEG_RECV) mark(p, &w, MEG_Y, used);
            if (c == MEG_SEND || c == MEG_REDUCE) mark(p, &w, MEG_X, used);
            if (c == MEG_REDUCE) mark(p, &w, MEG_SCRATCH, used);
        }
    }
    meg_staging s = meg_plan_staging(p);
    for (int64_t i = 0, k = 0; i < units; i++) {
        while (k < s.stretches && s.stretch[k].to <= i * 64)
            k++;
        bool staged = k < s.stretches && s.stretch[k].from <= i * 64;
        if (staged != used[i])
            fail_msg("place %lld is %s", (long long)i * 64, staged ? "staged" : "not staged");
        bytes += 64 * staged;
    }
    assert_int_equal(bytes, s.bytes);
    assert_true(s.bytes > 0 && s.bytes <= p->arena + 64);
    free(s.stretch);
    free(used);
}

static void staging_is_what_messages_touch(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_graph *g = network_zoo(cases[i].model, cases[i].options);
        for (int r = 0; r < cases[i].ranks; r++) {
            meg_error e;
            meg_plan *p = NULL;
            meg_world world = {r, cases[i].ranks};
            if (meg_plan_make_for(g, &e, &meg_profile_plain, &world, cases[i].many, 0, &p) !=
                MEG_OK)
                fail_msg("%s", e.message);
            check_staging(p);
            meg_plan_destroy(p);
        }
        meg_graph_destroy(g);
    }
}

/* ---- forgotten waits ---- */

/* In a child: its loss may be no number, which ends it. */
static bool is_wrong_where_forgetful(const far_case *f)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        forgetful = true;
        _exit(is_right(f) ? 0 : 3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void forgotten_waits_show(void **unused)
{
    (void)unused;
    for (int i = 1; i < 4; i++)
        assert_true(is_wrong_where_forgetful(&cases[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgotten_waits_show), /* first: it forks, and there are no threads yet */
        cmocka_unit_test(staging_is_what_messages_touch),
        cmocka_unit_test(plans_give_the_answer_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
