/* Nearest words, and rules for words without effect. */
#include "base/nearest.h"
#include "base/rule.h"
#include "ops/optimizer/optimizer.h"
#include "train/context.h"
#include "train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(meg_word_distance("", ""), 0);
    assert_int_equal(meg_word_distance("batch", "batch"), 0);
    assert_int_equal(meg_word_distance("bath", "batch"), 1);
    assert_int_equal(meg_word_distance("bacth", "batch"), 1); /* swapped */
    assert_int_equal(meg_word_distance("Batch-Norm", "batch_norm"), 0);
    assert_int_equal(meg_word_distance("", "lr"), 2);
    assert_int_equal(meg_word_distance("kitten", "sitting"), 3);
}

static const char *const NAMES[] = {"batch", "lr", "lr_schedule", "micro", "weight_decay", NULL};

static const char *name_at(int i)
{
    return NAMES[i];
}

static void test_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *part;
    } cases[] = {
        {"bacth", "no word 'bacth' (did you mean batch?); known: batch lr lr_schedule"},
        {"learning-rate", "(did you mean lr?)"},
        {"Learning_Rate", "(did you mean lr?)"},
        {"weight-decay", "(did you mean weight_decay?)"},
        {"weigth_decay", "(did you mean weight_decay?)"},
        {"micro_batch_size", "(did you mean micro? it is their number)"},
        {"lr_sched", "(did you mean lr_schedule?)"},
        {"nonesuch", "no word 'nonesuch'; known:"},
        {"x", "no word 'x'; known:"},
        {"", "no word ''; known:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        assert_int_equal(meg_unknown(&e, "no word", cases[i].asked, name_at), MEG_EARG);
        if (!strstr(e.message, cases[i].part))
            fail_msg("expected: %s\ngot: %s", cases[i].part, e.message);
    }
}

typedef struct thing {
    int64_t count;
    bool fast;
} thing;

static const meg_param PARAMS[] = {
    {"count", MEG_PARAM_INT, offsetof(thing, count), "1", "how many", NULL, 1, 9},
    {"fast", MEG_PARAM_BOOL, offsetof(thing, fast), "no", "hurries", NULL, 0, 0},
    {0},
};

static bool several(const void *state)
{
    return ((const thing *)state)->count > 1;
}

static bool slow(const void *state)
{
    return !((const thing *)state)->fast;
}

static const meg_rule RULES[] = {
    {"fast", "no", several, MEG_REFUSES, "has no effect on one: use count=2"},
    {"count", NULL, slow, MEG_WARNS, "has no effect where it is fast"},
    {0},
};

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message; /* NULL: none */
    } cases[] = {
        {"", NULL},
        {"fast=no", NULL},
        {"fast=0", NULL}, /* the same in other words */
        {"fast", "thing: fast=yes has no effect on one: use count=2"},
        {"fast=on count=1", "thing: fast=on has no effect on one: use count=2"},
        {"fast count=2", NULL}, /* only a warning */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        meg_error e = {0};
        thing t;
        assert_int_equal(meg_options_parse(&e, PARAMS, "thing", cases[i].text, &t), MEG_OK);
        const meg_ruled ruled = {"thing", PARAMS, RULES, cases[i].text, &t};
        meg_status status = meg_rules_check(&e, NULL, &ruled);
        assert_int_equal(status, cases[i].message ? MEG_EARG : MEG_OK);
        if (cases[i].message) assert_string_equal(e.message, cases[i].message);
    }
}

/* The same tables in the C interface. */
static void test_interface(void **state)
{
    (void)state;
    meg_context *ctx = NULL;
    meg_graph *g = NULL;
    meg_data *d = NULL;
    meg_plan *p = NULL;
    meg_trainer *t = NULL;
    assert_int_equal(meg_open("device=cpu threads=1 log=quiet", &ctx), MEG_OK);
    assert_int_equal(meg_graph_model(ctx, "cnn", "width=4", &g), MEG_OK);
    assert_int_equal(meg_data_open(ctx, "synthetic:count=16", &d), MEG_OK);
    assert_int_equal(meg_plan_new(g, d, "batch=8 nesterov=1", &p), MEG_EARG);
    assert_non_null(strstr(meg_message(ctx), "nesterov=1 has no effect without momentum"));
    assert_null(p);
    assert_int_equal(meg_plan_new(g, d, "batch=8 optimizer=adam momentum=0.9", &p), MEG_EARG);
    assert_non_null(
        strstr(meg_message(ctx), "is a word of optimizer=sgd, but the optimizer is adam"));
    assert_int_equal(meg_plan_new(g, d, "batch=8 optimizer=adam schedule=gpipe zero=1", &p),
                     MEG_OK);
    assert_int_equal(meg_trainer_new(p, d, "drop=0.5", &t), MEG_EARG);
    assert_non_null(strstr(meg_message(ctx), "it is for lr_schedule=step"));
    assert_int_equal(meg_trainer_new(p, d, "checkpoint_every=5", &t), MEG_EARG);
    assert_non_null(strstr(meg_message(ctx), "checkpoint=FOLDER"));
    assert_null(t);
    assert_int_equal(meg_trainer_new(p, d, "", &t), MEG_OK);
    assert_true(t->options.schedule.lr == 0.001);
    meg_trainer_free(t), t = NULL;
    assert_int_equal(meg_trainer_new(p, d, "lr=0.1", &t), MEG_OK);
    assert_true(t->options.schedule.lr == 0.1);
    meg_trainer_free(t), meg_plan_free(p), t = NULL, p = NULL;
    assert_int_equal(meg_plan_new(g, d, "batch=8", &p), MEG_OK);
    assert_int_equal(meg_trainer_new(p, d, "", &t), MEG_OK);
    assert_true(t->options.schedule.lr == 0.1);
    meg_trainer_free(t), meg_plan_free(p);
    meg_data_free(d), meg_graph_free(g), meg_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_interface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
