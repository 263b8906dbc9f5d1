/* Checkpoints that are damaged, of another training, or could not be written: nothing that is sound is
 * lost, nothing that is not is loaded, and all ranks say the same.
 */
#include "checkpoint_help.h"

#include <signal.h>
#include <sys/resource.h>

static const char PLAN[] = "batch=4 stages=2 micro=2 norm=2 optimizer=sgd momentum=0.9";

typedef struct fixture {
    scratch s;
    char dir[300], log[300];
    meg_graph *graph;
    run_case c;
} fixture;

/* A training of 6 steps on two ranks with checkpoints of steps 2, 4, 6. */
static fixture *begin(void)
{
    fixture *f = calloc(1, sizeof *f);
    f->s = scratch_new();
    snprintf(f->dir, sizeof f->dir, "%s/checkpoints", f->s.dir);
    snprintf(f->log, sizeof f->log, "%s/log", f->s.dir);
    f->graph = network_zoo("cnn", "image=1x9x9 classes=3 width=2");
    f->c = (run_case){f->graph, PLAN, "ref64", 2, f->dir, 6, 2, 5, 3, MEG_RESUME_AUTO, false, NULL};
    run_result *r = run_training(&f->c);
    assert_int_equal(r->status, MEG_OK);
    run_free(r);
    f->c.dry = true;
    return f;
}

static void end(fixture *f)
{
    meg_graph_destroy(f->graph);
    scratch_clear(f->dir);
    scratch_free(&f->s);
    free(f);
}

/* Runs with stderr in a file; returns its text, to be freed. */
static char *listen(fixture *f, run_result **out)
{
    char *text = calloc(1, 1 << 16);
    fflush(stderr);
    int before = dup(2);
    assert_true(freopen(f->log, "w", stderr) != NULL);
    *out = run_training(&f->c);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    FILE *in = fopen(f->log, "r");
    size_t got = fread(text, 1, (1 << 16) - 1, in);
    fclose(in);
    text[got] = '\0';
    return text;
}

/* It begins at this step, and the log says so: NULL is silence. */
static void expect_begin(fixture *f, int64_t step, const char *warning)
{
    run_result *r;
    char *text = listen(f, &r);
    if (r->status != MEG_OK) fail_msg("failed: %s", r->message);
    if (r->begin != step) fail_msg("began at %lld, not %lld", (long long)r->begin, (long long)step);
    if (warning ? !strstr(text, warning) : *text) fail_msg("'%s' in the log: %s", warning, text);
    free(text);
    run_free(r);
}

static void expect_error(fixture *f, meg_status status, const char *message)
{
    run_result *r;
    char *text = listen(f, &r);
    if (r->status != status || !strstr(r->message, message))
        fail_msg("status %d, not %d: '%s', not '%s'", r->status, status, r->message, message);
    free(text);
    run_free(r);
}

static void shell(const fixture *f, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && { %s; }", f->dir, command);
    if (system(line) != 0) fail_msg("%s", line);
}

/* Is there a file or folder of this name? */
static bool there(const fixture *f, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return access(path, F_OK) == 0;
}

static void flip(const fixture *f, const char *name, double where)
{
    char path[512];
    snprintf(path, sizeof path, "%s/step-00000006/%s", f->dir, name);
    FILE *file = fopen(path, "r+b");
    assert_true(file && fseek(file, 0, SEEK_END) == 0);
    long at = (long)(where * (double)ftell(file));
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        const char *what, *command, *message;
    } harm[] = {
        {"truncated", "truncate -s -1 step-00000006/optimizer.safetensors",
         "but its manifest says"},
        {"longer", "echo >> step-00000006/model.safetensors", "but its manifest says"},
        {"missing", "rm step-00000006/optimizer.safetensors", "optimizer.safetensors is missing"},
        {"no manifest", "rm step-00000006/manifest", "cannot read"},
        {"empty manifest", ": > step-00000006/manifest", "no manifest"},
        {"cut manifest", "truncate -s -20 step-00000006/manifest", "is cut off"},
        {"another version", "sed -i '1s/1$/2/' step-00000006/manifest", "of version 2"},
        {"renamed", "rm -r step-00000006; cp -r step-00000004 step-00000006",
         "says that it is of step 4"},
    };
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        fixture *f = begin();
        expect_begin(f, 6, NULL);
        shell(f, harm[i].command);
        expect_begin(f, 4, harm[i].message);
        end(f);
    }
}

static void test_flips(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "manifest"};
    fixture *f = begin();
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 8; k++) {
            flip(f, names[i], (k + 0.37) / 8);
            expect_begin(f, 4, "the next older checkpoint is tried");
            flip(f, names[i], (k + 0.37) / 8); /* back */
        }
    expect_begin(f, 6, NULL);
    end(f);
}

static void test_refused(void **state)
{
    (void)state;
    fixture *f = begin();
    run_case good = f->c;
    f->c.resume = MEG_RESUME_NO;
    expect_error(f, MEG_EARG, "has a checkpoint of step 6");
    f->c = good;
    f->c.seed = 4;
    expect_error(f, MEG_EARG, "was trained with seed=3, but this is 4");
    f->c = good;
    f->c.plan = "batch=8 norm=2 stages=2 micro=2 optimizer=sgd momentum=0.9";
    expect_error(f, MEG_EARG, "was trained with batch=4, but this is 8");
    f->c.plan = "batch=4 norm=2 stages=2 micro=2 optimizer=adam";
    expect_error(f, MEG_EARG, "was trained with optimizer=sgd");
    f->c.plan = "batch=4 norm=2 stages=2 micro=2 optimizer=sgd momentum=0.8";
    expect_begin(f, 6, "momentum=0.9 norm=2, goes on with momentum=0.8 norm=2");
    f->c = good;
    meg_graph *other = network_zoo("cnn", "image=1x9x9 classes=3 width=2 dropout=0.1");
    f->c.graph = other;
    expect_error(f, MEG_EDATA, "is of another model");
    f->c = good;
    shell(f, "rm step-*/model.safetensors");
    expect_error(f, MEG_EDATA, "no checkpoint in");
    shell(f, "rm -r step-*");
    f->c.resume = MEG_RESUME_YES;
    expect_error(f, MEG_EARG, "there is no checkpoint in");
    f->c.resume = MEG_RESUME_AUTO;
    expect_begin(f, 0, NULL);
    f->c.folder = "/dev/null/x"; /* rank 0's trouble is everybody's */
    expect_error(f, MEG_EIO, "cannot make the folder /dev/null/x");
    meg_graph_destroy(other);
    end(f);
}

static void test_kept(void **state)
{
    (void)state;
    fixture *f = begin();
    shell(f, "mkdir step-00000008.tmp step-00000004.old.tmp step-00000099.tmp; touch mine"
             " step-00000008.tmp/model.safetensors.1.0.tmp; mkdir step-7 step-00000007.mine");
    f->c.dry = false;
    f->c.until = 10;
    f->c.keep = 2;
    expect_begin(f, 6, NULL);
    assert_true(there(f, "step-00000008") && there(f, "step-00000010"));
    assert_false(there(f, "step-00000002") || there(f, "step-00000004") ||
                 there(f, "step-00000006"));
    assert_false(there(f, "step-00000008.tmp") || there(f, "step-00000004.old.tmp") ||
                 there(f, "step-00000099.tmp")); /* of dead jobs */
    assert_true(there(f, "mine") && there(f, "step-7") && there(f, "step-00000007.mine"));

    shell(f, "truncate -s 100 step-00000010/model.safetensors");
    expect_begin(f, 8, "model.safetensors has 100 bytes"); /* writes step 10 anew */
    f->c.dry = true;
    expect_begin(f, 10, NULL);
    shell(f, "rm -r step-00000007.mine step-7 mine");
    end(f);
}

/* A checkpoint that cannot be completed leaves no trace, and the older ones as they were. */
static void test_unwritten(void **state)
{
    (void)state;
    fixture *f = begin();
    f->c.dry = false;
    f->c.until = 8;
    f->c.spoil = "fc2.weight"; /* is the last stage's, so not rank 0's */
    expect_error(f, MEG_ENAN, "fc2.weight is not finite");
    assert_false(there(f, "step-00000008") || there(f, "step-00000008.tmp"));

    struct rlimit before, small = {4096, RLIM_INFINITY};
    f->c.spoil = NULL;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small); /* a full disk */
    run_result *r = run_training(&f->c);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(r->status, MEG_EIO);
    run_free(r);
    assert_false(there(f, "step-00000008") || there(f, "step-00000008.tmp"));
    f->c.dry = true;
    expect_begin(f, 6, NULL);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage), cmocka_unit_test(test_flips),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_unwritten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
