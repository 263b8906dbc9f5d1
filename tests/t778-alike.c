/* Unlike ranks on imaginary devices, which like weights in orders of their own: the check of the job
 * finds what does not lie alike, planning together makes it plain, and like ranks notice nothing.
 */
#include "exec/alike.h"
#include "plan/events/events.h"
#include "threads_help.h"
#include "train/content.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 4
};

static const char model[] = "image=1x16x16 classes=3 width=8";

/* ---- imaginary devices ---- */

typedef struct taste { /* of a device */
    meg_format format; /* of convolutions' weights */
    const char *only;  /* of this node alone; NULL: of all */
    int64_t padding;   /* bytes */
} taste;

static const taste like_8i8o = {MEG_FORMAT_OIx8i8o, NULL, 0};
static const taste like_8o8i = {MEG_FORMAT_OIx8o8i, NULL, 0};
static const taste like_plain = {MEG_FORMAT_PLAIN, NULL, 0};
static const taste one_8o8i = {MEG_FORMAT_OIx8o8i, "enc2.conv1", 0};
static const taste one_padded = {MEG_FORMAT_OIx8i8o, "enc2.conv1", 256};

static void describe(void *context, const meg_request *r, meg_spec *s)
{
    const taste *t = context;
    strcpy(s->impl, "imaginary");
    if (r->code != MEG_KERNEL || strcmp(r->node->op->name, "conv") != 0) return;
    if (t->only && strcmp(r->node->name, t->only) != 0) return;
    bool made = r->pass == MEG_WEIGHT; /* in the order in which the weight is stored */
    int o = made ? MEG_DX + 1 : MEG_X + 1;
    s->format[o] = made ? r->format[MEG_X + 1] : t->format;
    bool own = s->format[o] == t->format && t->format != MEG_FORMAT_PLAIN;
    s->bytes[o] = meg_box_size(&r->box[MEG_X + 1]) * meg_dtype_bytes(r->dtype[MEG_X + 1]);
    if (own) s->bytes[o] += t->padding;
}

/* ---- jobs ---- */

typedef struct job {
    meg_graph *g;
    const char *words;
    int ranks;
    const taste *taste[MOST];
    meg_dtype real[MOST];
    meg_alike alike[MOST];
    meg_error error[MOST];
} job;

static job job_of(const char *words, int ranks, const taste *even, const taste *odd)
{
    meg_error e;
    job j = {.words = words, .ranks = ranks};
    if (meg_zoo_build(&e, "unet", model, &j.g) != MEG_OK) fail_msg("%s", e.message);
    for (int r = 0; r < ranks; r++) {
        j.taste[r] = r % 2 ? odd : even;
        j.real[r] = MEG_F32;
    }
    return j;
}

static meg_profile profile_of(const job *j, int rank)
{
    return (meg_profile){(void *)(uintptr_t)j->taste[rank], describe, j->real[rank], false, NULL};
}

static meg_plan *plan_apart(const job *j, int rank, const bool *plain)
{
    meg_error e;
    meg_plan *p = NULL;
    meg_profile profile = profile_of(j, rank);
    meg_world world = {rank, j->ranks};
    meg_plan_input in = {&profile, &world, j->words, 0, plain};
    if (meg_plan_from(j->g, &e, &in, &p) != MEG_OK) fail_msg("%s: %s", j->words, e.message);
    return p;
}

static void plan_rank(meg_comm *comm, void *argument)
{
    job *j = argument;
    int rank = meg_comm_rank(comm);
    meg_profile profile = profile_of(j, rank);
    meg_world world = {rank, j->ranks};
    meg_plan_input in = {&profile, &world, j->words, 0, NULL};
    meg_plan_alike(comm, &j->error[rank], j->g, &in, &j->alike[rank]);
}

static void plan_together(job *j)
{
    run_ranks(&(meg_threads_options){.ranks = j->ranks}, plan_rank, j);
}

/* "": all fits together; else what is wrong. */
static const char *check(const job *j, meg_plan *const plan[], meg_error *e)
{
    meg_events list[MOST];
    *e = (meg_error){0};
    for (int r = 0; r < j->ranks; r++)
        meg_events_of(plan[r], MEG_ENTRY_TRAIN, &list[r]);
    meg_job_check(e, plan[0]->entry[MEG_ENTRY_TRAIN].graph, j->ranks, list);
    for (int r = 0; r < j->ranks; r++)
        meg_events_clear(&list[r]);
    return e->status == MEG_OK ? "" : e->message;
}

static char *text_of(const meg_plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    meg_plan_summary(p, out);
    for (int i = 0; i < MEG_ENTRIES; i++)
        if (p->entry[i].batch) meg_entry_print(&p->entry[i], true, out);
    fclose(out);
    return text;
}

static int plain_weights(const meg_plan *p)
{
    int count = 0;
    for (int i = 0; i < p->source->values; i++)
        count += p->plain[i];
    return count;
}

/* ---- tests ---- */

static const char *const plans[] = {
    "batch=4 replicas=2",
    "batch=4 replicas=2 bucket=1KiB zero=1",
    "batch=4 stages=2 micro=2 schedule=chimera",
    "batch=4 mesh=h2",
    "batch=4 mesh=2x2",
    "batch=4 micro=2 replicas=2 stages=2 schedule=chimera",
    "batch=4 micro=2 stages=2 mesh=h2",
};

enum {
    PLANS = sizeof plans / sizeof *plans
};

static int ranks_of(int plan)
{
    return plan < 4 ? 2 : 4;
}

/* Today's bytes are the same: only the order tells. */
static void test_found(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        job j = job_of(plans[i], ranks_of(i), &like_8i8o, &like_8o8i);
        meg_plan *plan[MOST] = {NULL};
        meg_error e;
        for (int r = 0; r < j.ranks; r++)
            plan[r] = plan_apart(&j, r, NULL);
        check(&j, plan, &e);
        bool named = strstr(e.message, ".weight of "); /* not "gradients", which a bucket has */
        bool formats = strstr(e.message, ": as OIx8i8o and as OIx8o8i");
        if (!strstr(e.message, "elements in another order") || !named || !formats)
            fail_msg("%s: said '%s'", plans[i], e.message);
        for (int r = 0; r < j.ranks; r++)
            meg_plan_destroy(plan[r]);
        meg_graph_destroy(j.g);
    }
}

/* How many weights became plain; ranks agree on it, and all fits together. */
static int made_plain(const char *words, int ranks, const taste *even, const taste *odd)
{
    job j = job_of(words, ranks, even, odd);
    meg_plan *plan[MOST] = {NULL};
    meg_error e;
    plan_together(&j);
    for (int r = 0; r < ranks; r++) {
        if (j.error[r].status != MEG_OK) fail_msg("%s: %s", words, j.error[r].message);
        plan[r] = j.alike[r].plan;
        assert_int_equal(j.alike[r].plain, j.alike[0].plain);
        assert_int_equal(j.alike[r].plain, plain_weights(plan[r]));
        assert_memory_equal(plan[r]->plain, plan[0]->plain, (size_t)j.g->values);
    }
    if (*check(&j, plan, &e)) fail_msg("%s: %s", words, e.message);
    for (int r = 0; r < ranks; r++) { /* the same input, the same plan */
        meg_plan *again = plan_apart(&j, r, plan[r]->plain);
        char *a = text_of(plan[r]), *b = text_of(again);
        assert_string_equal(a, b);
        bool said = strstr(a, "ranks are unlike") != NULL;
        assert_int_equal(said, j.alike[r].plain > 0);
        free(a);
        free(b);
        meg_plan_destroy(again);
    }
    for (int r = 0; r < ranks; r++)
        meg_plan_destroy(plan[r]);
    meg_graph_destroy(j.g);
    return j.alike[0].plain;
}

static void test_made_plain(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        int ranks = ranks_of(i), all = made_plain(plans[i], ranks, &like_8i8o, &like_8o8i);
        if (all < 5) fail_msg("%s: only %d weights are plain", plans[i], all);
        assert_int_equal(made_plain(plans[i], ranks, &like_plain, &like_8o8i), all);
        assert_int_equal(made_plain(plans[i], ranks, &like_plain, &one_8o8i), 1);
        assert_int_equal(made_plain(plans[i], ranks, &like_plain, &one_padded), 1);
        assert_int_equal(made_plain(plans[i], ranks, &like_8o8i, &like_8o8i), 0);
    }
}

/* Who shares no weight need not be like others; nor need who holds parts, which are plain. */
static void test_apart(void **state)
{
    (void)state;
    assert_int_equal(made_plain("batch=4 micro=2 stages=2", 2, &like_8i8o, &like_8o8i), 0);
    assert_int_equal(made_plain("batch=4 replicas=2 zero=3", 2, &like_8i8o, &like_8o8i), 0);
    /* ranks 0 and 2 have the first stage, 1 and 3 the second */
    assert_int_equal(made_plain("batch=4 micro=2 stages=2 replicas=2", 4, &like_8i8o, &like_8o8i),
                     0);
}

/* Like ranks have the programs that they have always had. */
static void test_like(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        job j = job_of(plans[i], ranks_of(i), &like_8i8o, &like_8i8o);
        plan_together(&j);
        for (int r = 0; r < j.ranks; r++) {
            meg_plan *apart = plan_apart(&j, r, NULL);
            char *a = text_of(j.alike[r].plan), *b = text_of(apart);
            assert_string_equal(a, b);
            assert_non_null(strstr(a, "OIx8i8o"));
            free(a);
            free(b);
            meg_plan_destroy(apart);
            meg_plan_destroy(j.alike[r].plan);
        }
        meg_graph_destroy(j.g);
    }
}

/* What plain format does not mend: all ranks say the same, with value, ranks and formats. */
static void test_refused(void **state)
{
    (void)state;
    job j = job_of("batch=4 replicas=2", 2, &like_plain, &like_8o8i);
    j.real[1] = MEG_F64;
    plan_together(&j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j.error[r].status, MEG_EUNSUPPORTED);
        assert_null(j.alike[r].plan);
        if (!strstr(j.error[r].message,
                    "ranks 0 and 1 hold enc1.conv1.weight as plain of 288 bytes "
                    "and as plain of 576"))
            fail_msg("said: %s", j.error[r].message);
    }
    meg_graph_destroy(j.g);
}

/* Messages are compared, too. */
static void test_messages(void **state)
{
    (void)state;
    job j = job_of("batch=4 stages=2 micro=2", 2, &like_plain, &like_plain);
    meg_events list[2];
    meg_plan *plan[2];
    meg_error e = {0};
    int sends = 0;
    for (int r = 0; r < 2; r++) {
        plan[r] = plan_apart(&j, r, NULL);
        meg_events_of(plan[r], MEG_ENTRY_TRAIN, &list[r]);
    }
    for (int i = 0; i < list[0].notes; i++)
        if (list[0].note[i].code == MEG_SEND && sends++ == 1) list[0].note[i].what ^= 1;
    assert_true(sends > 1);
    meg_job_check(&e, plan[0]->entry[MEG_ENTRY_TRAIN].graph, 2, list);
    if (!strstr(e.message, "rank 0 sends ") ||
        !strstr(e.message, " in another order, or another ") ||
        !strstr(e.message, ": as plain, not as plain"))
        fail_msg("said: %s", e.message);
    for (int r = 0; r < 2; r++) {
        meg_events_clear(&list[r]);
        meg_plan_destroy(plan[r]);
    }
    meg_graph_destroy(j.g);
}

/* ---- data ---- */

typedef struct numbers { /* the only one of each sample, by rank */
    float of[2];
    meg_status status[2];
} numbers;

static meg_status read_number(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                              float *out)
{
    (void)e, (void)index, (void)box;
    *out = *(const float *)d->state;
    return MEG_OK;
}

static meg_status read_class(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *out)
{
    (void)d, (void)e, (void)index, (void)box;
    *(int32_t *)out = 0;
    return MEG_OK;
}

static const meg_reader READER = {.name = "numbers", .read = read_number, .label = read_class};

static void compare_data(meg_comm *comm, void *argument)
{
    numbers *n = argument;
    int rank = meg_comm_rank(comm);
    meg_context ctx = {.comm = comm};
    meg_data d = {.ctx = &ctx,
                  .set = {.reader = &READER,
                          .count = 3,
                          .sample = meg_box_of(1, 1, 1, 1, 1),
                          .label = meg_box_of(1, 1, 1, 1, 1),
                          .state = &n->of[rank]}};
    n->status[rank] = meg_data_same(&d, true);
}

/* What is not finite is the same only if it is the very same. */
static void test_data(void **state)
{
    (void)state;
    static const float all[] = {0, 1, -1, INFINITY, -INFINITY, NAN};
    enum {
        ALL = sizeof all / sizeof *all
    };
    for (int i = 0; i < ALL * ALL; i++) {
        numbers n = {.of = {all[i / ALL], all[i % ALL]}};
        run_ranks(&(meg_threads_options){.ranks = 2}, compare_data, &n);
        meg_status wanted = i / ALL == i % ALL ? MEG_OK : MEG_EDATA;
        if (n.status[0] != wanted || n.status[1] != wanted)
            fail_msg("%g and %g: %d and %d, not %d", (double)n.of[0], (double)n.of[1],
                     (int)n.status[0], (int)n.status[1], (int)wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),   cmocka_unit_test(test_made_plain),
        cmocka_unit_test(test_apart),   cmocka_unit_test(test_like),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
