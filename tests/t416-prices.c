/* Books of prices: what answers first, texts that come back as they were, mistakes that are named with
 * their line, fits that find what was put in, keys that are the same in a plan and in a kernel that runs,
 * and plans that cost what their book says, at any hour.
 */
#include "device_help.h"
#include "exec/engine.h"
#include "exec/profile.h"
#include "machine/fit.h"
#include "plan/program/walk.h"
#include "zoo/zoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const meg_prices_head head = {2, 1, "avx2", {1e10, 1e9, 2e9, 1e-6, 5e-5, 0, 0, 0, 0, 0}};

static void assert_near(double got, double expected, double off)
{
    if (!(fabs(got - expected) <= off * fabs(expected))) fail_msg("%g, expected %g", got, expected);
}

static void the_exact_one_answers_first(void **unused)
{
    (void)unused;
    meg_prices *p = meg_prices_new(&head);
    meg_price_query q = {"conv fwd jit big", "conv fwd jit", "jit", 8e9, 1e6};
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 8e9 / (.8 * 1e10), 1e-12); /* the roofline */
    q.traffic = 8e9;
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 4, 1e-12);
    q.impl = "plain";
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 8, 1e-12);
    meg_prices_add_model(p, &(meg_price_model){"conv fwd jit", {.5, 1e-9}, .1, 3});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + .5 + 8, 1e-12);
    meg_prices_add(p, &(meg_price){"conv fwd jit big", 3, 0, 0, 0});
    meg_prices_add(p, &(meg_price){"conv fwd jit bigger", 4, 0, 0, 0});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 3, 1e-12);
    meg_prices_add(p, &(meg_price){"conv fwd jit big", 2, 0, 0, 0});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 2, 1e-12);
    /* Measured again: by how long each was looked at; what never was, not at all. */
    meg_prices_again(p, &(meg_price){"conv fwd jit big", 4, 0, 0, 3});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 4, 1e-12);
    meg_prices_again(p, &(meg_price){"conv fwd jit big", 8, 0, 0, 1});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 5, 1e-12);
    meg_prices_again(p, &(meg_price){"conv fwd jit big", 5, 0, 0, 1e6}); /* long ago is forgotten */
    meg_prices_again(p, &(meg_price){"conv fwd jit big", 10, 0, 0, 20});
    assert_near(meg_prices_seconds(p, &q), 1e-6 + 7.5, 1e-9);
    assert_non_null(meg_prices_at(p, 1));
    assert_null(meg_prices_at(p, 2));
    assert_near(meg_prices_seconds(NULL, &q), meg_prices_seconds(meg_prices_builtin(), &q), 0);
    meg_prices_free(p);
    meg_prices_free(NULL);
}

static char *text_of(const meg_prices *p)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    meg_prices_write(p, out);
    fclose(out);
    return text;
}

static void a_text_comes_back(void **unused)
{
    (void)unused;
    meg_error e = {0};
    meg_prices *p = meg_prices_new(&head), *again = NULL;
    meg_prices_add_model(p, &(meg_price_model){"b fwd x", {1e-6, 2e-11, 0, 3e-10, 0}, .04, 12});
    meg_prices_add_model(p, &(meg_price_model){"a fwd x", {0, 0, 1e-10, 0, 0}, .5, 1});
    meg_prices_add(p, &(meg_price){"a fwd x (kernel=3) x0=1x2x1x4x4/c8", 0.00125, 3e6, 0.5, 2.5});
    meg_prices_add(p, &(meg_price){": # odd : one", 0, 0, 0, 0});
    meg_prices_add_link(p, "inside latency=4e-07 at=1024:2e9");
    char *first = text_of(p);
    if (meg_prices_read(&e, "f", first, strlen(first), &again) != MEG_OK) fail_msg("%s", e.message);
    char *second = text_of(again);
    assert_string_equal(first, second);
    assert_int_equal(strncmp(first, "megalith prices 1\n", 18), 0);
    assert_near(meg_prices_find(again, "a fwd x (kernel=3) x0=1x2x1x4x4/c8")->seconds, 0.00125, 0);
    assert_int_equal(meg_prices_model(again, "b fwd x")->samples, 12);
    free(first);
    free(second);
    meg_prices_free(p);
    meg_prices_free(again);
}

static void mistakes_are_named(void **unused)
{
    (void)unused;
#define HEAD  "megalith prices 1\nmachine threads=1 ranks=1 isa=x\n"
#define RATES HEAD "rates flops=1 plain=1 bandwidth=1 launch=0 step=0\n"
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "f:1: no book of prices"},
        {"megalith plan 1\n", "f:1: no book of prices: its first line"},
        {HEAD, "'rates' is missing"},
        {HEAD "model : a\n", "f:3: the lines 'machine' and 'rates' come before"},
        {HEAD "rates flops=1 plain=1 bandwidth=1 launch=0\n", "step"},
        {HEAD "rates flops=0 plain=1 bandwidth=1 launch=0 step=0\n", "f:3"},
        {HEAD "machine threads=1 ranks=1 isa=x\n", "f:3: the machine is told twice"},
        {"megalith prices 1\nmachine threads=1 ranks=1 isa='a b'\n", "f:2: isa is one word"},
        {RATES "price 1\n", "f:4: a price needs ' : '"},
        {RATES "price one : a\n", "f:4: a price is a number"},
        {RATES "price -1 : a\n", "f:4: a price is a number"},
        {RATES "price nan : a\n", "f:4: a price is a number"},
        {RATES "price : a\n", "f:4: a price is a number"},
        {RATES "model base=-1 : a\n", "f:4"},
        {RATES "model base=1\n", "f:4: a model needs"},
        {RATES "model foot=1 : a\n", "unknown word 'foot'"},
        {RATES "prices 1 : a\n", "f:4: a line begins with"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        meg_error e = {0};
        meg_prices *p = NULL;
        assert_int_equal(meg_prices_read(&e, "f", wrong[i].text, strlen(wrong[i].text), &p),
                         MEG_EDATA);
        if (!strstr(e.message, wrong[i].message))
            fail_msg("'%s', expected '%s' in it", e.message, wrong[i].message);
        assert_null(p);
    }
    meg_error e = {0};
    meg_prices *p = NULL;
    assert_int_equal(meg_prices_read(&e, "f", RATES "price 1 : \0", sizeof RATES + 11, &p),
                     MEG_EDATA);
    char *longest = malloc(8192);
    assert_non_null(longest);
    memset(longest, 'x', 8192);
    memcpy(longest, RATES "price 1 : ", sizeof RATES + 9);
    assert_int_equal(meg_prices_read(&e, "f", longest, 8192, &p), MEG_EDATA);
    assert_non_null(strstr(e.message, "f:4: a line of more than 4096 bytes"));
    free(longest);
}

/* Samples of a known law, some of them disturbed: the law is found. */
static void a_fit_finds_the_law(void **unused)
{
    (void)unused;
    enum {
        COUNT = 24
    };
    meg_fit_sample s[COUNT];
    for (int i = 0; i < COUNT; i++) {
        meg_price_query q = {"", "", "", 1e6 * pow(1.9, i % 12), 3e3 * pow(2.3, (i * 7) % 12)};
        meg_price_figures(&q, s[i].figure);
        s[i].seconds = 3e-6 + 2.5e-11 * q.flops + 1e-10 * q.traffic;
        s[i].seconds *= 1 + .01 * ((i * 5) % 3 - 1);
        s[i].weight = 1;
    }
    s[5].seconds *= 3; /* others had the core */
    meg_price_model m = {.family = "a"};
    meg_fit(s, COUNT, &m);
    assert_near(m.term[MEG_TERM_FLOP], 2.5e-11, .05);
    assert_near(m.term[MEG_TERM_BYTE], 1e-10, .05);
    assert_true(m.error < .02 && m.samples == COUNT);
    for (int i = 0; i < MEG_TERMS; i++)
        assert_true(m.term[i] >= 0);
    meg_fit(s, 1, &m);
    assert_true(m.error < 1e-6);
}

/* One sample a little beyond a cache, and disturbed: what is far beyond must not cost a hundred times as
 * much. Samples of one size are no fixed cost. */
static void a_fit_does_not_run_away(void **unused)
{
    (void)unused;
    meg_fit_sample s[9];
    for (int i = 0; i < 9; i++) {
        meg_price_query q = {"", "", "", 0, i == 8 ? (1 << 20) + 4096 : 3e3 * pow(2, i)};
        meg_price_figures(&q, s[i].figure);
        s[i].seconds = (2e-6 + 2e-11 * q.traffic) * (i == 8 ? 2 : 1);
        s[i].weight = 1;
    }
    meg_price_model m = {.family = "a"};
    meg_fit(s, 9, &m);
    double large[MEG_TERMS], seconds = 0;
    meg_price_figures(&(meg_price_query){"", "", "", 0, 1 << 24}, large);
    for (int i = 0; i < MEG_TERMS; i++)
        seconds += m.term[i] * large[i];
    assert_near(seconds, 2e-6 + 2e-11 * (1 << 24), .5);
    for (int i = 0; i < 4; i++) {
        meg_price_figures(&(meg_price_query){"", "", "", 1e8, 1e5 * (i + 1)}, s[i].figure);
        s[i].seconds = 2e-3;
    }
    meg_fit(s, 4, &m);
    assert_true(m.term[MEG_TERM_BASE] < 1e-4);
}

/* ---- plans ---- */

typedef struct collected {
    meg_prices *book;
    int kernels;
} collected;

static void keep(void *context, const meg_prepared *k, double start, double seconds)
{
    (void)start, (void)seconds;
    collected *c = context;
    char key[MEG_KEY];
    meg_request_key(&k->request, k->spec.impl, key);
    meg_prices_add(c->book, &(meg_price){key, 0.25, 0, 0, 0});
    c->kernels++;
}

static meg_plan *plan_of(const meg_graph *g, meg_device *d, const meg_prices *book)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_profile profile = meg_profile_of(d);
    profile.prices = book;
    const char *words = "batch=4 micro=2 norm=2 momentum=0.9";
    if (meg_plan_make(g, &e, &profile, words, 0, &p) != MEG_OK) fail_msg("%s", e.message);
    return p;
}

/* Observes the step alone: to start, weights are brought into their formats by kernels, too. */
static void run_once(meg_plan *p, meg_device *d, collected *c)
{
    meg_error e = {0};
    meg_engine *x = NULL;
    meg_outcome outcome;
    float *samples = calloc(4 * 3 * 32 * 32, sizeof *samples);
    assert_non_null(samples);
    for (int i = 0; i < 4 * 3 * 32 * 32; i++)
        samples[i] = (float)(i % 7) - 3;
    const meg_fed fed[] = {{.name = "image", .data = samples},
                           {.name = "label", .data = (int32_t[]){0, 1, 2, 3}, .dtype = MEG_I32}};
    meg_feed feed = {.count = 2, .fed = fed, .seed = 1, .step = 1};
    feed.scalars.lr = 0.01;
    if (meg_engine_new(p, d, NULL, &e, 0, &x) != MEG_OK) fail_msg("%s", e.message);
    meg_engine_start(x, 1);
    meg_device_observe(d, keep, c);
    if (meg_engine_step(x, &e, MEG_ENTRY_TRAIN, &feed, &outcome) != MEG_OK)
        fail_msg("%s", e.message);
    meg_device_observe(d, NULL, NULL);
    meg_engine_free(x);
    free(samples);
}

/* Every kernel that runs is found again by the plan: a step costs as many quarters of a second as it
 * has kernels. Without a book the same plan costs the same at any hour. */
static void what_runs_is_what_is_priced(void **unused)
{
    (void)unused;
    static const char *const kind[] = {"cpu", "ref64"};
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        meg_device *d = open_device(kind[i], 1);
        if (meg_zoo_build(&e, "resnet-cifar", "depth=8", &g) != MEG_OK) fail_msg("%s", e.message);
        meg_plan *p = plan_of(g, d, NULL), *same = plan_of(g, d, NULL);
        assert_true(p->seconds > 0 && p->seconds == same->seconds);
        collected c = {.book = meg_prices_new(&head)};
        run_once(p, d, &c);
        meg_plan *priced = plan_of(g, d, c.book);
        double loads = priced->seconds - c.kernels * (0.25 + head.rates.launch) - head.rates.step;
        if (!(loads > 0 && loads < 0.01))
            fail_msg("%g s of loads, expected next to nothing", loads);
        meg_plan_destroy(p);
        meg_plan_destroy(same);
        meg_plan_destroy(priced);
        meg_prices_free(c.book);
        meg_graph_destroy(g);
        meg_device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exact_one_answers_first),
        cmocka_unit_test(a_text_comes_back),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_fit_finds_the_law),
        cmocka_unit_test(a_fit_does_not_run_away),
        cmocka_unit_test(what_runs_is_what_is_priced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
