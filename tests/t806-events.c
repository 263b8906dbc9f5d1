/* Events of training, plans in files, contexts that are ended: what a program outside steers training with. */
#include "caller_help.h"
#include "scratch.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- events ---- */

typedef struct log_of_events {
    char text[256];
    double loss[2]; /* of the first epoch: mean of the steps, as told at its end */
    int64_t samples;
    int stop_at; /* step; 0: never */
    meg_report report;
    meg_status status;
    int64_t step; /* when training had ended */
} log_of_events;

static int note(void *user, const meg_event *e)
{
    log_of_events *l = user;
    static const char letter[] = "bse";
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%c%lld ", letter[e->kind],
             (long long)(e->kind == MEG_STEP_ENDS ? e->step : e->epoch));
    if (e->kind == MEG_STEP_ENDS && e->epoch == 0) {
        REQUIRE(isfinite(e->loss) && e->seconds > 0 && e->lr == 0.05, "step %lld: %g %g %g",
                (long long)e->step, e->loss, e->seconds, e->lr);
        l->loss[0] += e->loss * (double)e->samples;
        l->samples += e->samples;
    }
    if (e->kind == MEG_EPOCH_ENDS && e->epoch == 0) {
        l->loss[1] = e->loss;
        REQUIRE(e->samples == l->samples, "%lld samples", (long long)e->samples);
    }
    return l->stop_at && e->kind == MEG_STEP_ENDS && e->step == l->stop_at;
}

static void train_watched(caller *c, void *argument)
{
    log_of_events mine = *(log_of_events *)argument;
    meg_watch(c->trainer, note, &mine);
    mine.status = meg_train(c->trainer, 0, &mine.report);
    mine.step = c->trainer->step;
    meg_watch(c->trainer, NULL, NULL);
    if (meg_rank(c->ctx) == 0) *(log_of_events *)argument = mine;
}

static log_of_events watch(int ranks, int stop_at)
{
    log_of_events l = {.stop_at = stop_at};
    caller_case k = {.device = "ref",
                     .model = "cnn",
                     .net = "image=1x12x12 classes=4",
                     .data = "synthetic:image=1x12x12 classes=4 count=20",
                     .plan = ranks > 1 ? "batch=8 replicas=2" : "batch=8",
                     .trainer = "lr=0.05 epochs=2",
                     .ranks = ranks};
    caller_run(&k, train_watched, &l);
    return l;
}

static void test_events(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        log_of_events l = watch(ranks, 0);
        assert_int_equal(l.status, MEG_OK);
        assert_string_equal(l.text, "b0 s1 s2 s3 e0 b1 s4 s5 s6 e1 ");
        assert_int_equal(l.samples, 20);
        if (!(fabs(l.loss[0] / 20 - l.loss[1]) < 1e-12 * l.loss[1]))
            fail_msg("mean of the steps %.17g, of the epoch %.17g", l.loss[0] / 20, l.loss[1]);
    }
}

/* Alone at once; two ranks when a later step has told the wish. */
static void test_stopping(void **state)
{
    (void)state;
    log_of_events one = watch(1, 2), two = watch(2, 2);
    assert_int_equal(one.status, MEG_EINTERRUPTED);
    assert_int_equal(one.step, 2);
    assert_string_equal(one.text, "b0 s1 s2 ");
    assert_int_equal(two.status, MEG_EINTERRUPTED);
    assert_in_range(two.step, 3, 5);
}

/* ---- plans in files ---- */

static void save_and_load(caller *c, void *argument)
{
    const char *path = argument;
    meg_plan *again = NULL;
    caller_must(c, meg_plan_save(c->plan, path));
    caller_must(c, meg_plan_load(c->net, c->data, path, NULL, &again));
    REQUIRE(meg_plan_bytes(again) == meg_plan_bytes(c->plan), "%lld bytes, not %lld",
            (long long)meg_plan_bytes(again), (long long)meg_plan_bytes(c->plan));
    REQUIRE(again->options.stages == 2 && again->options.micro == 4, "words");
    meg_plan_free(again);
    meg_status status = meg_plan_load(c->net, c->data, path, "stages=1", &again);
    REQUIRE(status == MEG_EARG && strstr(meg_message(c->ctx), "stages"), "%d: %s", status,
            meg_message(c->ctx));
    status = meg_plan_load(c->net, c->data, "/nowhere/plan.txt", NULL, &again);
    REQUIRE(status == MEG_EIO, "%d: %s", status, meg_message(c->ctx));
}

static void test_plans(void **state)
{
    (void)state;
    scratch s = scratch_new();
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(&s, "plan.txt"));
    caller_case k = {.device = "ref",
                     .model = "cnn",
                     .net = "image=1x12x12 classes=4",
                     .data = "synthetic:image=1x12x12 classes=4 count=20",
                     .plan = "batch=8 stages=2 micro=4 norm=2",
                     .trainer = "",
                     .ranks = 2};
    caller_run(&k, save_and_load, path);
    scratch_free(&s);
}

/* ---- contexts ---- */

static void test_abort(void **state)
{
    (void)state;
    int ends[2], status = 0;
    char said[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        meg_context *ctx = NULL;
        dup2(ends[1], 2);
        meg_open("device=ref threads=1", &ctx);
        meg_abort(ctx, "ValueError: no such column");
    }
    close(ends[1]);
    ssize_t got = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    waitpid(child, &status, 0);
    assert_true(got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_string_equal(said, "megalith: ValueError: no such column\n");
}

/* No MPI is loaded in this process. */
static void test_no_communicator(void **state)
{
    (void)state;
    meg_context *ctx = NULL;
    assert_int_equal(meg_open_on("device=ref", 0, &ctx), MEG_EUNSUPPORTED);
    assert_non_null(strstr(meg_message(ctx), "begin MPI first"));
    meg_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_stopping),
                                       cmocka_unit_test(test_plans), cmocka_unit_test(test_abort),
                                       cmocka_unit_test(test_no_communicator)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
