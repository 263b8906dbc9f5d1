/* Advice where a plan does not fit: every way that is named is planned here again, for all its ranks,
 * and fits; a batch of one is told of stages and meshes, not of micro-batches.
 */
#include "plan/advice.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct sample {
    const char *model, *model_words, *words;
    int ranks;
    double share;       /* of what the plan needs that there is */
    const char *kinds;  /* words that must be among those advised, and */
    const char *others; /* words that must not */
} sample;

static const sample SAMPLES[] = {
    {"cnn", "image=1x28x28", "batch=32", 1, 0.6, "micro= norm=", ""},
    {"resnet-cifar", "depth=20", "batch=8", 1, 0.6, "micro= recompute=segments", ""},
    {"resnet-cifar", "depth=20", "batch=8 recompute=segments", 1, 0.8, "micro=", "recompute="},
    {"cnn", "image=1x64x64", "batch=1", 1, 0.6, "mesh=h2", "micro= norm="},
    {"unet", "width=4 image=3x128x128", "batch=1", 1, 0.6, "stages= mesh=h2", "micro= norm="},
    {"unet", "width=4 image=3x128x128", "batch=4", 1, 0.6, "micro=2 stages= mesh=h2", "norm="},
    {"unet3d", "width=4 image=1x16x32x32", "batch=1", 1, 0.5, "mesh=", "micro="},
    {"vgg11", "width=8 image=3x32x32", "batch=2 momentum=0.9", 1, 0.7, "mesh=c", ""},
    {"resnet-cifar", "depth=8", "batch=8 norm=4", 2, 0.7, "", "norm="},
    {"unet", "width=4 image=3x128x128", "batch=1 mesh=h2", 2, 0.7, "mesh=h2w2", "micro="},
};

static meg_graph *build(const sample *s)
{
    meg_error e = {0};
    meg_graph *g = NULL;
    if (meg_zoo_build(&e, s->model, s->model_words, &g) != MEG_OK) fail_msg("%s", e.message);
    return g;
}

/* The words of the plan but for those that are in `more`, and these. */
static void join(const char *words, const char *more, char out[512])
{
    char word[MEG_TEXT];
    meg_excerpt value;
    snprintf(out, 512, "%s", words);
    for (const char *at = more; meg_options_next(&at, word, &value) > 0;)
        meg_options_drop(out, word);
    strcat(strcat(out, " "), more);
}

/* What each rank needs. */
static void needs(const meg_graph *g, const char *words, int ranks, int64_t need[])
{
    for (int r = 0; r < ranks; r++) {
        meg_error e = {0};
        meg_plan *p = NULL;
        meg_world world = {r, ranks};
        meg_plan_make_for(g, &e, &meg_profile_plain, &world, words, 0, &p);
        if (!p) fail_msg("%s on %d ranks: %s", words, ranks, e.message);
        need[r] = p->arena;
        meg_plan_destroy(p);
    }
}

static int64_t largest(const int64_t need[], int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        if (need[i] > most) most = need[i];
    return most;
}

/* As a user would believe it: the words, the ranks, and how many machines. */
static void follow(const char *asked, const meg_graph *g, const meg_advice *a, int64_t limit)
{
    char words[512];
    int64_t need[64], sum[64] = {0};
    join(asked, a->words, words);
    needs(g, words, a->ranks, need);
    for (int r = 0; r < a->ranks && a->machines; r++)
        sum[r / (a->ranks / a->machines)] += need[r];
    int64_t most = a->machines ? largest(sum, a->machines) : largest(need, a->ranks);
    if (most > limit || most != a->bytes)
        fail_msg("%s: %s on %d ranks needs %lld of %lld bytes, and %lld were promised", g->name,
                 words, a->ranks, (long long)most, (long long)limit, (long long)a->bytes);
}

static void check_kinds(const sample *s, const char *all)
{
    char word[MEG_TEXT];
    const char *lists[] = {s->kinds, s->others};
    for (int i = 0; i < 2; i++)
        for (const char *at = lists[i]; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
            bool there = strstr(all, word);
            if (there != (i == 0))
                fail_msg("%s %s: %s %s: %s", s->model, s->words, there ? "does not want" : "wants",
                         word, all);
        }
}

static void advise(const sample *s, bool machine)
{
    meg_graph *g = build(s);
    int64_t need[8];
    char words[512], budget[64], all[2048];
    meg_advice list[MEG_ADVICES];
    needs(g, s->words, s->ranks, need);
    int64_t limit = (int64_t)(s->share * (double)largest(need, s->ranks));
    snprintf(budget, sizeof budget, "budget=%lld", (long long)limit);
    join(s->words, machine ? "" : budget, words);
    meg_advice_ask ask = {.graph = g,
                          .profile = &meg_profile_plain,
                          .options = words,
                          .ranks = s->ranks,
                          .machines = 1,
                          .machine = machine ? limit : 0};
    int count = meg_advise(&ask, list);
    meg_advice_text(list, count, all, sizeof all);
    for (int i = 0; i < count; i++)
        follow(words, g, &list[i], limit);
    if (count == 0) fail_msg("%s %s: no advice", s->model, s->words);
    check_kinds(s, all);
    meg_graph_destroy(g);
}

static void test_budgets(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++)
        advise(&SAMPLES[i], false);
}

static void test_machines(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++)
        advise(&SAMPLES[i], true);
}

/* Two ranks that fit one by one, but not together: the same words on two machines. */
static void test_spread(void **unused)
{
    (void)unused;
    const sample s = {"cnn", "", "batch=8", 2, 0, "", ""};
    meg_graph *g = build(&s);
    int64_t need[2];
    char text[512];
    needs(g, s.words, 2, need);
    meg_advice list[MEG_ADVICES];
    meg_advice_ask ask = {.graph = g,
                          .profile = &meg_profile_plain,
                          .options = s.words,
                          .ranks = 2,
                          .machines = 1,
                          .machine = need[0] + need[1] - 1};
    int count = meg_advise(&ask, list);
    meg_advice_text(list, count, text, sizeof text);
    if (!strstr(text, "the same words on 2 ranks on 2 such machines")) fail_msg("%s", text);
    meg_graph_destroy(g);
}

static void test_hopeless(void **unused)
{
    (void)unused;
    const sample s = {"cnn", "", "batch=8", 1, 0, "", ""};
    meg_graph *g = build(&s);
    char text[512];
    meg_advice list[MEG_ADVICES];
    meg_advice_ask ask = {.graph = g,
                          .profile = &meg_profile_plain,
                          .options = "batch=8 budget=1KiB",
                          .ranks = 1,
                          .machines = 1,
                          .machine = 0};
    assert_int_equal(meg_advise(&ask, list), 0);
    meg_advice_text(list, 0, text, sizeof text);
    assert_non_null(strstr(text, "nothing that was tried fits"));
    meg_graph_destroy(g);
}

static void test_machines_for(void **unused)
{
    (void)unused;
    const int64_t need[6] = {3, 1, 1, 1, 1, 1};
    int64_t most = 0;
    assert_int_equal(meg_machines_for(need, 6, 8, &most), 1);
    assert_int_equal(most, 8);
    assert_int_equal(meg_machines_for(need, 6, 7, &most), 2);
    assert_int_equal(most, 5);
    assert_int_equal(meg_machines_for(need, 6, 4, &most), 3); /* 3 + 1 */
    assert_int_equal(meg_machines_for(need, 6, 3, &most), 6);
    assert_int_equal(meg_machines_for(need, 6, 2, &most), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets),      cmocka_unit_test(test_machines),
        cmocka_unit_test(test_spread),       cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_machines_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
