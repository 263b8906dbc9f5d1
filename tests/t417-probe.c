/* Probing: kernels that ran in a step are all found again by the plan, what is disturbed does not count,
 * the machine's book has models of what the zoo computes, and is kept where it should be.
 */
#include "device_help.h"
#include "exec/meters/links.h"
#include "exec/probe/machine.h"
#include "exec/probe/run.h"
#include "exec/probe/tempo.h"
#include "exec/profile.h"
#include "scratch.h"
#include "zoo/zoo.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

static const meg_prices_head head = {1, 1, "avx2", {1e10, 1e9, 2e9, 1e-6, 5e-5, 0, 0, 0, 0, 0}};

static meg_plan *plan_of(const meg_graph *g, meg_device *d, const meg_prices *book)
{
    meg_error e = {0};
    meg_plan *p = NULL;
    meg_profile profile = meg_profile_priced(d, book);
    if (meg_plan_make(g, &e, &profile, "batch=2 momentum=0.9", 0, &p) != MEG_OK)
        fail_msg("%s", e.message);
    return p;
}

/* A step costs what its kernels took: their prices are means over kernels of one key. */
static void a_step_costs_what_it_took(void **unused)
{
    (void)unused;
    static const char *const net[][2] = {{"resnet-cifar", "depth=8"},
                                         {"gpt", "tokens=8 layers=1 width=16 heads=2 classes=20"},
                                         {"cosmoflow", "image=4x16x16x16 pools=2 width=8"}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        meg_error e = {0};
        meg_graph *g = NULL;
        meg_device *d = open_device("cpu", 1);
        if (meg_zoo_build(&e, net[i][0], net[i][1], &g) != MEG_OK) fail_msg("%s", e.message);
        meg_plan *p = plan_of(g, d, NULL);
        meg_timings *t = meg_timings_new();
        int kernels = 0;
        meg_probe_site site = {.device = d, .seconds = 0.05, .least = 3, .most = 5};
        if (meg_probe_plan(p, &e, &site, t, &kernels) != MEG_OK) fail_msg("%s", e.message);
        meg_prices *book = meg_prices_new(&head);
        meg_timings_prices(t, book);
        meg_timings_models(t, book, true);
        assert_true(kernels > 20 && meg_timings_count(t) > 20);
        assert_true(meg_timings_count(t) <= kernels);
        double sum = 0;
        for (int k = 0; meg_prices_at(book, k); k++)
            assert_true(meg_prices_at(book, k)->seconds > 0),
                sum += meg_prices_at(book, k)->seconds;
        meg_plan *priced = plan_of(g, d, book);
        for (int k = 0; k < priced->entry[MEG_ENTRY_TRAIN].station[0].instrs; k++) {
            const meg_instr *in = &priced->entry[MEG_ENTRY_TRAIN].station[0].instr[k];
            meg_request r;
            char key[MEG_KEY];
            if (!in->impl[0]) continue;
            meg_station_request(&priced->entry[MEG_ENTRY_TRAIN].station[0], in, &r);
            r.optimizer = priced->optimizer;
            r.settings = priced->settings;
            meg_request_key(&r, in->impl, key);
            if (!meg_prices_find(book, key)) fail_msg("%s: no price of %s", net[i][0], key);
        }
        assert_true(priced->seconds > sum);
        meg_plan_destroy(priced);
        meg_plan_destroy(p);
        meg_prices_free(book);
        meg_timings_free(t);
        meg_graph_destroy(g);
        meg_device_close(d);
    }
}

static void nap(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const double *seconds = k->own;
    struct timespec t = {0, (long)(1e9 * *seconds)};
    (void)at, (void)m;
    nanosleep(&t, NULL);
}

/* Two threads: the clock on the wall. One step of five is disturbed, and does not count. */
static void disturbed_steps_do_not_count(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 2);
    meg_request r = instruction(MEG_ZERO, meg_box_of(1, 1, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    meg_timings *t = meg_timings_new();
    double seconds;
    int kernels = 0;
    k->run = nap;
    k->own = &seconds;
    meg_timings_begin(t, d);
    for (int i = 0; i < 5; i++) {
        meg_timings_next(t);
        seconds = i == 2 ? 0.2 : 0.002;
        for (int n = 0; n < 3; n++)
            meg_device_launch(d, k, (void *[MEG_OPERANDS]){[MEG_Y] = &seconds}, &moment);
        meg_device_wait(d);
    }
    meg_timings_end(t, NULL, 1, &kernels);
    meg_prices *book = meg_prices_new(&head);
    meg_timings_prices(t, book);
    assert_int_equal(kernels, 3);
    assert_int_equal(meg_timings_count(t), 1);
    double price = meg_prices_at(book, 0)->seconds;
    assert_true(price >= 0.0019 && price < 0.15);
    k->own = NULL;
    meg_prices_free(book);
    meg_timings_free(t);
    meg_prepared_free(k);
    meg_device_close(d);
}

/* Others come at the third look and leave behind the fourth: steps 2 to 7 of 10 are at another pace. Their looks do not count,
 * either; the pace is a little quicker than the book's. */
static void steps_at_another_pace_do_not_count(void **unused)
{
    (void)unused;
    double look[] = {0.96, 0.96, 1.8, 1.7, 0.96, 0.96};
    bool keep[10], other[10];
    meg_tempo p = {look, 6, 2, 1};
    assert_int_equal(meg_tempo_keep(&p, 10, keep), 4);
    for (int i = 0; i < 10; i++)
        assert_int_equal(keep[i], i < 2 || i >= 8);
    assert_true(fabs(meg_tempo_quicker(&p, 10, keep) - 1 / 0.96) < 1e-9);
    p.looks = 5; /* the last look has not been taken yet */
    assert_int_equal(meg_tempo_keep(&p, 10, NULL), 2);
    p.turn = 0;
    assert_int_equal(meg_tempo_keep(&p, 10, other), 10);
    assert_true(meg_tempo_quicker(&p, 10, other) == 1);
}

/* Kernels of steps that are not kept have no price, however quick. */
static void steps_that_are_not_kept_have_no_price(void **unused)
{
    (void)unused;
    meg_device *d = open_device("ref", 2);
    meg_request r = instruction(MEG_ZERO, meg_box_of(1, 1, 1, 1, 1), MEG_F32);
    meg_prepared *k = prepare(d, &r);
    meg_timings *t = meg_timings_new();
    bool keep[5];
    double seconds;
    k->run = nap;
    k->own = &seconds;
    meg_timings_begin(t, d);
    for (int i = 0; i < 5; i++) {
        meg_timings_next(t);
        keep[i] = i == 1 || i == 3;
        seconds = keep[i] ? 0.02 : 0.001;
        meg_device_launch(d, k, (void *[MEG_OPERANDS]){[MEG_Y] = &seconds}, &moment);
        meg_device_wait(d);
    }
    meg_timings_end(t, keep, 2, NULL);
    meg_prices *book = meg_prices_new(&head);
    meg_timings_prices(t, book);
    assert_true(meg_prices_at(book, 0)->seconds >= 0.04);
    k->own = NULL;
    meg_prices_free(book);
    meg_timings_free(t);
    meg_prepared_free(k);
    meg_device_close(d);
}

static void a_machine_has_a_book(void **unused)
{
    (void)unused;
    meg_error e = {0};
    meg_device *d = open_device("cpu", 1);
    meg_prices *p = NULL, *again = NULL;
    const meg_probe_time time = {0.05, 4};
    if (meg_machine_probe(d, NULL, &e, &time, &p) != MEG_OK) fail_msg("%s", e.message);
    assert_true(meg_prices_head_of(p)->rates.flops > 1e6);
    assert_true(meg_prices_head_of(p)->rates.step < 1);
    int models = 0;
    for (; meg_prices_model_at(p, models); models++) {
        const meg_price_model *m = meg_prices_model_at(p, models);
        assert_true(m->samples > 0 && m->error >= 0 && isfinite(m->error));
    }
    assert_true(models > 10);
    scratch s = scratch_new();
    char path[1024];
    snprintf(path, sizeof path, "%s/a/book.txt", s.dir);
    assert_int_equal(meg_prices_load(&e, path, &again), MEG_OK);
    assert_null(again);
    if (meg_prices_save(&e, path, p) != MEG_OK) fail_msg("%s", e.message);
    if (meg_prices_load(&e, path, &again) != MEG_OK) fail_msg("%s", e.message);
    assert_non_null(meg_prices_model_at(again, models - 1));
    assert_int_equal(meg_prices_head_of(again)->threads, 1);
    unlink(path);
    rmdir(scratch_path(&s, "a"));
    scratch_free(&s);
    meg_prices_free(p);
    meg_prices_free(again);
    meg_device_close(d);
}

static void it_is_kept_in_the_cache_folder(void **unused)
{
    (void)unused;
    char path[MEG_PRICES_PATH];
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("MEGALITH_CACHE");
    assert_true(meg_prices_path(&head, path));
    assert_int_equal(strncmp(path, "/home/me/.cache/megalith/prices-", 32), 0);
    assert_non_null(strstr(path, "-avx2-t1-r1.txt"));
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_true(meg_prices_path(&head, path));
    assert_int_equal(strncmp(path, "/cache/megalith/prices-", 23), 0);
    setenv("MEGALITH_CACHE", "/own", 1);
    assert_true(meg_prices_path(&head, path));
    assert_int_equal(strncmp(path, "/own/prices-", 12), 0);
    unsetenv("MEGALITH_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(meg_prices_path(&head, path));
}

/* ---- links ---- */

typedef struct rank {
    meg_comm *comm;
    meg_prices *book;
    meg_error error;
    pthread_t thread;
} rank;

static void *probe_links(void *argument)
{
    rank *r = argument;
    r->book = meg_prices_new(&head);
    meg_links_probe(r->comm, &r->error, r->book);
    return NULL;
}

/* Five ranks, two on a node: 0-1 2-3 inside, then 0-2 and 1-3 between; the last one looks on. */
static void links_are_measured(void **unused)
{
    (void)unused;
    enum {
        RANKS = 5
    };
    enum {
        LINES = 5
    };
    static const char *const lines[LINES] = {
        "inside latency=", "inside latency=", "between latency=", "between latency=",
        "between latency="};
    static const char *const pairs[LINES] = {
        " pairs=1 at=1024:", " pairs=1 both=yes at=1024:", " pairs=1 at=1024:", " pairs=2 at=1024:",
        " pairs=2 both=yes at=1024:"};
    meg_error e = {0};
    meg_comm *comm[RANKS];
    rank r[RANKS] = {{0}};
    meg_threads_options o = {.ranks = RANKS, .per_node = 2};
    if (meg_comm_threads(&e, &o, comm) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < RANKS; i++) {
        r[i].comm = comm[i];
        assert_int_equal(pthread_create(&r[i].thread, NULL, probe_links, &r[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        if (r[i].error.status != MEG_OK) fail_msg("rank %d: %s", i, r[i].error.message);
        for (int k = 0; k < LINES; k++) {
            const char *line = meg_prices_link_at(r[i].book, k);
            assert_non_null(line);
            assert_string_equal(line, meg_prices_link_at(r[0].book, k));
            assert_int_equal(strncmp(line, lines[k], strlen(lines[k])), 0);
            assert_non_null(strstr(line, pairs[k]));
            assert_non_null(strstr(line, ",4194304:"));
        }
        assert_null(meg_prices_link_at(r[i].book, LINES));
    }
    for (int i = 0; i < RANKS; i++) {
        meg_comm_free(r[i].comm);
        meg_prices_free(r[i].book);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_costs_what_it_took),
        cmocka_unit_test(disturbed_steps_do_not_count),
        cmocka_unit_test(steps_at_another_pace_do_not_count),
        cmocka_unit_test(steps_that_are_not_kept_have_no_price),
        cmocka_unit_test(a_machine_has_a_book),
        cmocka_unit_test(links_are_measured),
        cmocka_unit_test(it_is_kept_in_the_cache_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
