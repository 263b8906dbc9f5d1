/* Pipeline schedules: the pictures in src/plan/schedule/schedules.def, golden text, what every timetable
 * must be, refusals, speed. What the papers publish: t421; messages and deadlocks: t422.
 */
#include "pipes.h"

#include <time.h>

/* ---- pictures ---- */

static char *printed(const meg_timetable *t)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    meg_timetable_print(t, f);
    fclose(f);
    return text;
}

/* The picture that follows its first line in the file, each line behind " *   ". */
static void compare_picture(FILE *f, char *line, size_t size, const meg_timetable *t)
{
    char *text = printed(t), *rest;
    for (char *got = strtok_r(text, "\n", &rest); got; got = strtok_r(NULL, "\n", &rest)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, " *   ", 5) != 0 || strcmp(line + 5, got) != 0)
            fail_msg("schedules.def says\n%s\nbut it is\n *   %s", line, got);
        assert_non_null(fgets(line, (int)size, f));
    }
    assert_string_equal(line, " */\n");
    free(text);
}

static void test_pictures(void **state)
{
    (void)state;
    char line[256], name[32];
    int pictures = 0, rows = 0;
    FILE *f = fopen(MEG_SOURCE_DIR "/src/plan/schedule/schedules.def", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        meg_pipe p = {0};
        if (sscanf(line, " *   %31[a-z0-9_]: %d stages on %d ranks, %d micro-batches:", name,
                   &p.stages, &p.ranks, &p.micro) != 4)
            continue;
        meg_pool *pool = meg_pool_new();
        compare_picture(f, line, sizeof line, draw(pool, name, p));
        meg_pool_free(pool);
        assert_string_equal(meg_row_at(pictures++)->name, name);
    }
    fclose(f);
    while (meg_row_at(rows))
        rows++;
    assert_int_equal(pictures, rows);
}

typedef struct drawing {
    const char *name;
    meg_pipe pipe;
} drawing;

static const double slow_f[] = {1, 2, 1}, slow_b[] = {1, 3, 1}, slow_w[] = {1, 2, 1};

/* 0 0 0 0 1 2 3 4 and back (plan/partition/placement.h) */
static const int wide_seat[] = {0, 4, 5, 6, 7, 4, 3, 2, 1, 0};
static const int wide_width[] = {4, 1, 1, 1, 1, 4, 1, 1, 1, 1};

static const drawing GOLDEN[] = {
    {"serial", {.stages = 1, .ranks = 1, .micro = 3}},
    {"gpipe", {.stages = 3, .ranks = 3, .micro = 5}},
    {"1f1b", {.stages = 4, .ranks = 4, .micro = 12}},
    {"1f1b", {.stages = 4, .ranks = 4, .micro = 2}},
    {"1f1b", {.stages = 3, .ranks = 3, .micro = 4, .f = slow_f, .b = slow_b, .w = slow_w}},
    {"interleaved", {.stages = 6, .ranks = 2, .micro = 4}},
    {"interleaved", {.stages = 8, .ranks = 4, .micro = 8}},
    {"zb_h1", {.stages = 4, .ranks = 4, .micro = 8}},
    {"zb_h1", {.stages = 3, .ranks = 3, .micro = 4, .f = slow_f, .b = slow_b, .w = slow_w}},
    {"mast", {.stages = 4, .ranks = 4, .micro = 4}},
    {"mast", {.stages = 3, .ranks = 3, .micro = 5}},
    {"master", {.stages = 4, .ranks = 4, .micro = 4}},
    {"master", {.stages = 2, .ranks = 2, .micro = 7, .replications = 3}},
    {"chimera", {.stages = 2, .ranks = 2, .micro = 2}},
    {"chimera", {.stages = 4, .ranks = 4, .micro = 8}},
    {"chimera", {.stages = 4, .ranks = 4, .micro = 7}},
    {"chimera", {.stages = 8, .ranks = 8, .micro = 8}},
    {"master", {.stages = 5, .ranks = 8, .micro = 4, .seat = wide_seat, .width = wide_width}},
    {"mast", {.stages = 5, .ranks = 8, .micro = 4, .seat = wide_seat, .width = wide_width}},
    {"gpipe", {.stages = 5, .ranks = 8, .micro = 3, .seat = wide_seat, .width = wide_width}},
};

static void test_golden(void **state)
{
    (void)state;
    static const char path[] = MEG_SOURCE_DIR "/tests/golden/schedules.txt";
    char *text = NULL, want[1024], *rest;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; i < sizeof GOLDEN / sizeof *GOLDEN; i++) {
        meg_pool *pool = meg_pool_new();
        meg_timetable_print(draw(pool, GOLDEN[i].name, GOLDEN[i].pipe), f);
        meg_pool_free(pool);
    }
    fclose(f);
    if (getenv("MEGALITH_WRITE_GOLDEN")) { /* to look at, and to commit if it is right */
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(text, out);
        fclose(out);
    }
    f = fopen(path, "r");
    if (!f) fail_msg("no %s", path);
    for (char *got = strtok_r(text, "\n", &rest); got; got = strtok_r(NULL, "\n", &rest)) {
        if (!fgets(want, sizeof want, f)) fail_msg("%s ends before: %s", path, got);
        want[strcspn(want, "\n")] = '\0';
        if (strcmp(want, got) != 0) fail_msg("%s: expected\n%s\ngot\n%s", path, want, got);
    }
    if (fgets(want, sizeof want, f)) fail_msg("%s: expected more: %s", path, want);
    fclose(f);
    free(text);
}

/* ---- every row: what a timetable must be ---- */

/* All sizes that rows are tried with; false: not for this row. */
static bool suits(const meg_row *r, meg_pipe *p)
{
    meg_error e = {0};
    if (strcmp(r->name, "interleaved") == 0) p->stages *= 2;
    return meg_row_check(&e, r, p) == MEG_OK;
}

/* Frames: each micro-batch has one of its own from its forward to the last of its backward. */
static void frames_hold(const meg_timetable *t)
{
    for (int r = 0; r < t->ranks; r++)
        for (int i = t->first[r]; i < t->first[r + 1]; i++) {
            const meg_task *k = &t->task[i];
            assert_int_equal(k->frame, t->frame[k->stage * t->micro + k->micro]);
            assert_in_range(k->frame, 0, meg_timetable_frames(t, k->direction, k->stage) - 1);
            assert_int_equal(k->direction, t->direction[k->micro]);
            for (int j = i + 1; k->kind == MEG_TASK_F && j < t->first[r + 1]; j++) {
                const meg_task *n = &t->task[j];
                bool mine = n->stage == k->stage && n->direction == k->direction;
                if (mine && n->micro == k->micro && meg_task_step(n->kind) == (t->split ? 2 : 1))
                    break;
                if (mine && n->micro != k->micro && n->frame == k->frame && n->kind == MEG_TASK_F)
                    fail_msg("%s: stage %d: micro-batches %d and %d share frame %d", t->schedule,
                             k->stage, k->micro, n->micro, n->frame);
            }
        }
}

/* The drawn clock: tasks of a rank do not overlap, and replay at the drawn costs is not slower. */
static void clock_holds(meg_pool *pool, const meg_timetable *t, unit c)
{
    for (int r = 0; r < t->ranks; r++)
        for (int i = t->first[r] + 1; i < t->first[r + 1]; i++)
            assert_true(t->task[i].start >= t->task[i - 1].end);
    double again = replay(pool, t, c).makespan; /* a pace may have made the drawing wait */
    assert_true(again <= t->makespan);
}

static void test_tables(void **state)
{
    (void)state;
    for (int i = 0; meg_row_at(i); i++)
        for (int S = 1; S <= 9; S++)
            for (int M = 1; M <= 20; M++) {
                const meg_row *w = meg_row_at(i);
                meg_pipe p = {.stages = S, .ranks = S, .micro = M};
                if (!suits(w, &p)) continue;
                meg_pool *pool = meg_pool_new();
                meg_timetable *t = draw(pool, w->name, p);
                meg_skip skip[] = {{0, p.stages - 1, 0}, {1, p.stages - 2, 0}};
                int skips = p.stages > 4 ? 2 : p.stages > 2;
                frames_hold(t);
                clock_holds(pool, t, (unit){w->unit[0], w->unit[1], w->unit[2]});
                passes(t, NULL);
                passes(t, &(meg_rendezvous){1, -1, skip, skips});
                passes(t, &(meg_rendezvous){1, 1, NULL, 0}); /* one send under way is enough */
                meg_pool_free(pool);
            }
}

/* Stages of several ranks, which others share in the other direction: every row, as far as it can. */
static void test_wide(void **state)
{
    (void)state;
    static const int seat[] = {0, 4, 5, 6, 7, 8, 5, 4, 3, 2, 1, 0}; /* 4,4,1,1,1,1: nine tracks */
    static const int width[] = {4, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1};
    for (int i = 0; meg_row_at(i); i++)
        for (int M = 1; M <= 12; M++) {
            const meg_row *w = meg_row_at(i);
            meg_error e = {0};
            meg_pipe p = {.stages = 6, .ranks = 9, .micro = M, .seat = seat, .width = width};
            if (meg_row_check(&e, w, &p) != MEG_OK) continue;
            meg_pool *pool = meg_pool_new();
            meg_timetable *t = draw(pool, w->name, p);
            int tasks = 0;
            for (int m = 0; m < M; m++)
                tasks += 9 * (w->split ? 3 : 2); /* every track has every micro-batch once */
            assert_int_equal(t->first[9], tasks);
            frames_hold(t);
            clock_holds(pool, t, (unit){w->unit[0], w->unit[1], w->unit[2]});
            assert_int_equal(meg_timetable_check(&e, t, NULL), MEG_EUNSUPPORTED);
            meg_pool_free(pool);
        }
}

/* Drawn with true costs, uneven and some of them zero: still whole, and what replay says. */
static void test_true_costs(void **state)
{
    (void)state;
    enum {
        STAGES = 8
    };
    for (int i = 0; meg_row_at(i); i++)
        for (int k = 1; k <= 40; k++) {
            double cost[3][STAGES];
            for (int s = 0; s < STAGES; s++)
                for (int c = 0; c < 3; c++)
                    cost[c][s] = (7 * s + 5 * c * k + k * k) % 6 * 0.25;
            meg_pipe p = {.stages = 4,
                          .ranks = 4,
                          .micro = 4 * (1 + k % 3),
                          .f = cost[0],
                          .b = cost[1],
                          .w = cost[2]};
            meg_pool *pool = meg_pool_new();
            meg_error e = {0};
            meg_replay r;
            if (!suits(meg_row_at(i), &p)) fail_msg("%s: not drawn", meg_row_at(i)->name);
            meg_timetable *t = draw(pool, meg_row_at(i)->name, p);
            meg_costs c = {.f = cost[0], .b = cost[1], .w = cost[2]};
            frames_hold(t);
            passes(t, NULL);
            if (meg_timetable_replay(&e, pool, t, &c, &r)) fail_msg("%s", e.message);
            if (meg_row_at(i)->pace) /* which may have made the drawing wait */
                assert_true(r.makespan <= t->makespan);
            else equal(t, "time replayed", r.makespan, t->makespan);
            meg_pool_free(pool);
        }
}

/* ---- refusals ---- */

static void refused(const char *name, meg_pipe p, const char *says)
{
    meg_error e = {0};
    meg_timetable *t = NULL;
    meg_pool *pool = meg_pool_new();
    assert_int_equal(meg_timetable_draw(&e, pool, row(name), &p, &t), MEG_EARG);
    assert_null(t);
    if (!strstr(e.message, says)) fail_msg("expected '%s' in: %s", says, e.message);
    meg_pool_free(pool);
}

static void test_refused(void **state)
{
    (void)state;
    meg_error e = {0};
    const meg_row *none = NULL;
    double bad[] = {1, -1};
    assert_int_equal(meg_row_find(&e, "1b1f", &none), MEG_EARG);
    assert_string_equal(e.message, "there is no schedule '1b1f'; known: serial gpipe 1f1b "
                                   "interleaved zb_h1 mast master chimera");
    assert_null(none);
    refused("1f1b", (meg_pipe){.stages = 0, .ranks = 1, .micro = 1}, "each must be 1 or more");
    refused("1f1b", (meg_pipe){.stages = 8, .ranks = 4, .micro = 4},
            "stages=8 and ranks=4: use stages=4, or schedule=interleaved");
    refused("gpipe", (meg_pipe){.stages = 3, .ranks = 4, .micro = 4},
            "stages=3 and ranks=4 leaves 1 without: use stages=4 or ranks=3");
    refused("interleaved", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4}, "use stages=8, or");
    refused("interleaved", (meg_pipe){.stages = 9, .ranks = 4, .micro = 4}, "use stages=8, or");
    refused("interleaved", (meg_pipe){.stages = 8, .ranks = 4, .micro = 6}, "use micro=8");
    refused("chimera", (meg_pipe){.stages = 5, .ranks = 5, .micro = 4}, "use 4 or 6");
    refused("chimera", (meg_pipe){.stages = 4, .ranks = 4, .micro = 1}, "use micro=2 or more");
    refused("mast", (meg_pipe){.stages = 4, .ranks = 4, .micro = 1}, "use micro=2 or more");
    refused("mast", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .replications = 3},
            "use 2, or schedule=master");
    refused("master", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .replications = 5},
            "use replications=2..4");
    refused("master", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .replications = 1},
            "use 2..4, or schedule=gpipe");
    refused("1f1b", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .replications = 2},
            "is for schedule=master");
    refused("1f1b", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .directions = 2},
            "use directions=1, or schedule=mast, master or chimera");
    refused("chimera", (meg_pipe){.stages = 4, .ranks = 4, .micro = 4, .directions = 1},
            "use directions=2, or schedule=serial, gpipe or 1f1b");
    refused("1f1b", (meg_pipe){.stages = 2, .ranks = 2, .micro = 1, .f = bad}, "give all of f, b");
    refused("1f1b", (meg_pipe){.stages = 2, .ranks = 2, .micro = 1, .f = bad, .b = bad, .w = bad},
            "cost f of stage 1 is -1");
    refused("1f1b", (meg_pipe){.stages = 64, .ranks = 64, .micro = 1 << 30}, "more tasks than");
}

/* ---- speed ---- */

/* Draws, checks and replays 64 stages x 512 micro-batches; each within a second of this thread. */
static void test_speed(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    const double limit = 10;
#else
    const double limit = 1;
#endif
    for (int i = 0; meg_row_at(i); i++) {
        const meg_row *w = meg_row_at(i);
        meg_pool *pool = meg_pool_new();
        int loop = strcmp(w->name, "interleaved") == 0;
        clock_t at[4] = {clock()};
        meg_timetable *t = draw(pool, w->name,
                                (meg_pipe){.stages = 64, .ranks = loop ? 32 : 64, .micro = 512});
        at[1] = clock();
        passes(t, NULL);
        at[2] = clock();
        replay(pool, t, (unit){1, 1, 1});
        at[3] = clock();
        double spent[3];
        for (int k = 0; k < 3; k++)
            spent[k] = (double)(at[k + 1] - at[k]) / CLOCKS_PER_SEC;
        print_message("%-12s draw %.3f s, check %.3f s, replay of 3 steps %.3f s\n", w->name,
                      spent[0], spent[1], spent[2]);
        for (int k = 0; k < 3; k++)
            assert_true(spent[k] < limit);
        meg_pool_free(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures),   cmocka_unit_test(test_golden),
        cmocka_unit_test(test_tables),     cmocka_unit_test(test_wide),
        cmocka_unit_test(test_true_costs), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
