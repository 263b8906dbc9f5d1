/* Plan files: what is written is read back, every mistake is named with its line, words given
 * besides must agree.
 */
#include "plan/text.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static meg_plan_text *read_text(const char *text)
{
    meg_error e = {0};
    meg_plan_text *t = NULL;
    if (meg_plan_text_read(&e, "f.plan", text, strlen(text), &t) != MEG_OK)
        fail_msg("%s", e.message);
    return t;
}

static void test_reading(void **state)
{
    (void)state;
    meg_plan_text *t = read_text("megalith plan 1\r\n"
                                 "# a comment\n"
                                 "graph=net fingerprint=00000000000000ff # both\n"
                                 "\n"
                                 "  batch=64\tmicro=4\n"
                                 "budget=\"4KiB\"\n"
                                 "optimizer=adam beta1=0.8 keep_grads\n");
    assert_string_equal(t->graph, "net");
    assert_true(t->has_fingerprint && t->fingerprint == 255);
    assert_string_equal(t->options,
                        "batch=64 micro=4 budget=4KiB optimizer=adam beta1=0.8 keep_grads=yes");
    meg_plan_text_free(t);
    meg_plan_text_free(NULL);
}

#define PLAN "megalith plan 1\n"

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "f.plan:1: not a plan: it is empty"},
        {"batch=3\n", "f.plan:1: not a plan: its first line must be 'megalith plan 1'"},
        {"megalith plan 2\n", "its first line must be"},
        {PLAN "\nbath=3",
         "f.plan:3: unknown word 'bath' (did you mean batch?); known: graph fingerprint"},
        {PLAN "batch=3\nmicro=1 batch=3", "f.plan:3: 'batch' is given again; line 2 has it"},
        {PLAN "batch=x", "f.plan:2: batch=x"},
        {PLAN "batch=0", "f.plan:2: batch=0"},
        {PLAN "batch", "f.plan:2: batch=yes"},
        {PLAN "batch=\"3", "f.plan:2: a quote without its end"},
        {PLAN "beta1=0.5", "f.plan:2: 'beta1' is not a word of optimizer=sgd"},
        {PLAN "optimizer=lion", "the optimizer is not known"},
        {PLAN "fingerprint=12", "f.plan:2: a fingerprint is 16 hexadecimal digits"},
        {PLAN "stage=1", "f.plan:2: unknown word 'stage'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        meg_error e = {0};
        meg_plan_text *t = NULL;
        meg_status got = meg_plan_text_read(&e, "f.plan", bad[i].text, strlen(bad[i].text), &t);
        if (got == MEG_OK) fail_msg("'%s' was accepted", bad[i].text);
        if (!strstr(e.message, bad[i].message))
            fail_msg("expected: %s\ngot: %s", bad[i].message, e.message);
        assert_null(t);
    }
    meg_error e = {0};
    meg_plan_text *t = NULL;
    assert_int_equal(meg_plan_text_read(&e, "f", PLAN "batch=3\0", sizeof PLAN + 8, &t), MEG_EDATA);
    assert_non_null(strstr(e.message, "f:2: this is no text"));
}

static void check_join(const char *given, const char *want, const char *message)
{
    meg_error e = {0};
    const char *got = NULL;
    meg_plan_text *t = read_text(PLAN "batch=64 budget=4096 keep_grads=yes");
    meg_status status = meg_plan_text_join(t, &e, given, &got);
    if (want && (status != MEG_OK || strcmp(got, want) != 0))
        fail_msg("expected: %s\ngot: %s%s", want, got ? got : "", e.message);
    if (message && (status != MEG_EARG || !strstr(e.message, message)))
        fail_msg("expected: %s\ngot: %s", message, e.message);
    meg_plan_text_free(t);
}

static void test_joining(void **state)
{
    (void)state;
    check_join("", "batch=64 budget=4096 keep_grads=yes", NULL);
    check_join("batch=64 budget=4KiB keep_grads", "batch=64 budget=4096 keep_grads=yes", NULL);
    check_join("micro=2  batch=64 momentum='0.5'",
               "batch=64 budget=4096 keep_grads=yes micro=2 momentum='0.5'", NULL);
    check_join("batch=65", NULL, "batch=65 was given, but f.plan has batch=64");
    check_join("micro=2 keep_grads=no", NULL, "f.plan has keep_grads=yes");
}

/* A plan, its text, and the plan of that text are the same. */
static void test_round_trip(void **state)
{
    (void)state;
    meg_error e = {0};
    meg_graph *g = NULL, *other = NULL;
    meg_plan *p = NULL, *again = NULL;
    char *text, *second;
    size_t size, second_size;
    assert_int_equal(meg_zoo_build(&e, "cnn", "", &g), MEG_OK);
    assert_int_equal(meg_zoo_build(&e, "cnn", "classes=5", &other), MEG_OK);
    assert_int_equal(meg_plan_make(g, &e, &meg_profile_plain,
                                   "batch=8 micro=2 norm=4 optimizer=sgd momentum=0.9 nesterov", 0,
                                   &p),
                     MEG_OK);
    FILE *out = open_memstream(&text, &size);
    meg_plan_text_write(p, out);
    fclose(out);
    assert_non_null(strstr(text, "\nmomentum=0.9\n"));
    meg_plan_text *t = read_text(text);
    assert_string_equal(t->graph, g->name);
    assert_int_equal(meg_plan_text_fits(t, &e, g), MEG_OK);
    assert_int_equal(meg_plan_text_fits(t, &e, other), MEG_EARG);
    assert_non_null(strstr(e.message, "f.plan was made for another graph"));
    assert_int_equal(meg_plan_make(g, &e, &meg_profile_plain, t->options, 0, &again), MEG_OK);
    assert_int_equal(again->arena, p->arena);
    out = open_memstream(&second, &second_size);
    meg_plan_text_write(again, out);
    fclose(out);
    assert_string_equal(text, second);
    free(text);
    free(second);
    meg_plan_text_free(t);
    meg_plan_destroy(p);
    meg_plan_destroy(again);
    meg_graph_destroy(g);
    meg_graph_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_joining),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
