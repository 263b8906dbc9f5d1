/* Pipeline schedules against the papers: the lists that they publish, and by replay their formulas
 * of time and memory, for 2 to 16 ranks and up to 64 micro-batches.
 *
 * Times are sums of small whole numbers, so they are compared exactly.
 */
#include "pipes.h"

enum {
    RANKS = 16,
    MICRO = 64
};

/* ---- lists as published ---- */

typedef struct list { /* of one rank, built by the published loop */
    const meg_timetable *t;
    int rank, count;
    meg_task task[3 * MICRO * 4];
} list;

static void put(list *l, meg_task_kind kind, int stage, int micro)
{
    l->task[l->count++] = (meg_task){.kind = kind, .stage = stage, .micro = micro};
}

static void publish_serial(list *l)
{
    for (int m = 0; m < l->t->micro; m++) {
        put(l, MEG_TASK_F, l->rank, m);
        put(l, MEG_TASK_B, l->rank, m);
    }
}

static void publish_gpipe(list *l)
{
    for (int m = 0; m < l->t->micro; m++)
        put(l, MEG_TASK_F, l->rank, m);
    for (int m = 0; m < l->t->micro; m++)
        put(l, MEG_TASK_B, l->rank, m);
}

static void publish_1f1b(list *l)
{
    int f = 0, warm = l->t->stages - l->rank - 1, micro = l->t->micro;
    while (f < warm && f < micro)
        put(l, MEG_TASK_F, l->rank, f++);
    for (int b = 0; b < micro; b++) {
        if (f < micro) put(l, MEG_TASK_F, l->rank, f++);
        put(l, MEG_TASK_B, l->rank, b);
    }
}

/* Weight gradients of rank r trail by r micro-batches. */
static void publish_zb_h1(list *l)
{
    int f = 0, w = 0, warm = l->t->stages - l->rank - 1, micro = l->t->micro;
    while (f < warm && f < micro)
        put(l, MEG_TASK_F, l->rank, f++);
    for (int b = 0; b < micro; b++) {
        if (f < micro) put(l, MEG_TASK_F, l->rank, f++);
        put(l, MEG_TASK_BI, l->rank, b);
        if (b >= l->rank) put(l, MEG_TASK_BW, l->rank, w++);
    }
    while (w < micro)
        put(l, MEG_TASK_BW, l->rank, w++);
}

/* Megatron: virtual micro-batch k of a rank, in groups of R. */
static void put_virtual(list *l, meg_task_kind kind, int k)
{
    int ranks = l->t->ranks, chunks = l->t->stages / ranks;
    int group = k / (ranks * chunks), in = k % (ranks * chunks), chunk = in / ranks;
    if (kind != MEG_TASK_F) chunk = chunks - 1 - chunk;
    put(l, kind, chunk * ranks + l->rank, group * ranks + in % ranks);
}

static void publish_interleaved(list *l)
{
    int ranks = l->t->ranks, chunks = l->t->stages / ranks, all = l->t->micro * chunks, f = 0;
    int warm = 2 * (ranks - l->rank - 1) + (chunks - 1) * ranks;
    while (f < warm && f < all)
        put_virtual(l, MEG_TASK_F, f++);
    for (int b = 0; b < all; b++) {
        if (f < all) put_virtual(l, MEG_TASK_F, f++);
        put_virtual(l, MEG_TASK_B, b);
    }
}

static void publish_master(list *l)
{
    for (int m = 0; m < l->t->micro; m++) {
        int s = m % 2 ? l->t->stages - 1 - l->rank : l->rank;
        put(l, MEG_TASK_F, s, m);
        put(l, MEG_TASK_B, s, m);
    }
}

/* Halves of the batch, each filled and drained. */
static void publish_mast(list *l)
{
    int half = (l->t->micro + 1) / 2;
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 2; k++)
            for (int m = d ? half : 0; m < (d ? l->t->micro : half); m++)
                put(l, k ? MEG_TASK_B : MEG_TASK_F, d ? l->t->stages - 1 - l->rank : l->rank, m);
}

/* The slot of a task; units of D micro-batches follow one another every 2 D slots, of each of which
 * the second half goes up. */
static int chimera_slot(int D, int r, int backward, int m, int *stage)
{
    int round = m / D, up = m % D >= D / 2, i = m % (D / 2);
    *stage = up ? D - 1 - r : r;
    int t = backward ? (up ? D + r : 2 * D - 1 - r) : (up ? D - 1 - r : r);
    return 2 * D * round + 2 * i + t;
}

static void publish_chimera(list *l)
{
    int D = l->t->stages, s;
    for (int slot = 0; slot < 2 * l->t->micro + D - 2; slot++)
        for (int m = 0; m < l->t->micro; m++)
            for (int b = 0; b < 2; b++)
                if (chimera_slot(D, l->rank, b, m, &s) == slot)
                    put(l, b ? MEG_TASK_B : MEG_TASK_F, s, m);
}

/* Is the rank's list the published one? */
static bool as_published(const meg_timetable *t, int r, void (*publish)(list *l))
{
    static list l; /* large */
    l = (list){.t = t, .rank = r};
    publish(&l);
    bool same = l.count == t->first[r + 1] - t->first[r];
    for (int i = 0; same && i < l.count; i++) {
        const meg_task *a = &l.task[i], *b = &t->task[t->first[r] + i];
        same = a->kind == b->kind && a->stage == b->stage && a->micro == b->micro;
    }
    return same;
}

/* ---- closed forms; c.b + c.w is the whole backward ---- */

static double time_serial(const meg_timetable *t, unit c)
{
    return t->stages * t->micro * (c.f + c.b + c.w);
}

static double time_fill(const meg_timetable *t, unit c)
{
    return (t->micro + t->stages - 1) * (c.f + c.b + c.w);
}

static double time_loop(const meg_timetable *t, unit c)
{
    return (t->stages / t->ranks * t->micro + t->ranks - 1) * (c.f + c.b + c.w);
}

static double time_zb_h1(const meg_timetable *t, unit c)
{
    return t->micro * (c.f + c.b + c.w) + (t->stages - 1) * (c.f + c.b - c.w);
}

/* N tf + eta N tb + (eta - 1) tf */
static double time_master(const meg_timetable *t, unit c)
{
    int N = t->stages, eta = t->micro;
    double tb = c.b + c.w;
    if (tb >= c.f) return N * c.f + eta * N * tb + (eta - 1) * c.f;
    return eta * N * c.f + eta * tb + (N - 1) * tb;
}

static double time_chimera(const meg_timetable *t, unit c)
{
    return (2 * t->micro + t->stages - 2) * c.f; /* f = b + w */
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int frames_one(const meg_timetable *t, int s)
{
    (void)t, (void)s;
    return 1;
}

static int frames_all(const meg_timetable *t, int s)
{
    (void)s;
    return t->micro;
}

static int frames_depth(const meg_timetable *t, int s)
{
    return least(t->micro, t->stages - s);
}

/* ---- the table of what is published ---- */

typedef struct published {
    const char *name;
    void (*list)(list *l);
    double (*time)(const meg_timetable *t, unit c);
    int (*frames)(const meg_timetable *t, int s); /* exactly; NULL: not published */
    int (*peak)(int ranks, int micro); /* the most on any rank; NULL: the frames say it */
    int chunks;
    bool even, multiple; /* stages even; micro-batches a multiple of the ranks */
    bool deep;           /* the form holds where micro-batches >= stages */
    unit units[3];
} published;

static int peak_ranks(int ranks, int micro)
{
    return least(ranks, micro);
}

static int peak_loop(int ranks, int micro)
{
    return least(3 * ranks - 1, 2 * micro);
}

static int peak_loop3(int ranks, int micro)
{
    return least(4 * ranks - 1, 3 * micro);
}

static int peak_one(int ranks, int micro)
{
    (void)ranks, (void)micro;
    return 1;
}

#define USUAL                                                                                      \
    {                                                                                              \
        {1, 1, 1}, {2, 3, 1},                                                                      \
        {                                                                                          \
            5, 2, 4                                                                                \
        }                                                                                          \
    }

static const published PUBLISHED[] = {
    {.name = "serial", publish_serial, time_serial, frames_one, peak_one, 1, .units = USUAL},
    {.name = "gpipe", publish_gpipe, time_fill, frames_all, NULL, 1, .units = USUAL},
    {.name = "1f1b", publish_1f1b, time_fill, frames_depth, peak_ranks, 1, .units = USUAL},
    {.name = "interleaved",
     publish_interleaved,
     time_loop,
     NULL,
     peak_loop,
     2,
     .multiple = true,
     .units = USUAL},
    {.name = "interleaved",
     publish_interleaved,
     time_loop,
     NULL,
     peak_loop3,
     3,
     .multiple = true,
     .units = USUAL},
    {.name = "zb_h1",
     publish_zb_h1,
     time_zb_h1,
     NULL,
     peak_ranks,
     1,
     .deep = true,
     .units = {{1, 1, 1}, {2, 3, 1}, {3, 4, 2}}},
    {.name = "mast", publish_mast, NULL, NULL, NULL, 1, .units = USUAL},
    {.name = "master", publish_master, time_master, frames_one, peak_one, 1, .units = USUAL},
    {.name = "chimera",
     publish_chimera,
     time_chimera,
     NULL,
     peak_ranks,
     1,
     .even = true,
     .multiple = true,
     .units = {{1, 1, 0}, {1, 0.5, 0.5}, {3, 2, 1}}},
};

static void judge(const published *p, const meg_timetable *t, meg_pool *pool)
{
    bool form = !p->deep || t->micro >= t->stages;
    for (int i = 0; form && p->time && i < 3; i++) {
        meg_replay r = replay(pool, t, p->units[i]);
        equal(t, "time", r.makespan, p->time(t, p->units[i]));
        for (int k = 0; k < t->ranks; k++) /* each rank has the work of S / R stages */
            equal(t, "idle + work",
                  r.idle[k] + t->stages / t->ranks * t->micro *
                                  (p->units[i].f + p->units[i].b + p->units[i].w),
                  r.makespan);
        assert_true(r.period <= r.makespan);
    }
    int peak = 0;
    for (int r = 0; r < t->ranks; r++) {
        if (form && !as_published(t, r, p->list))
            fail_msg("%s, %d ranks, %d micro-batches: rank %d is not as published", p->name,
                     t->ranks, t->micro, r);
        if (t->peak[r] > peak) peak = t->peak[r];
    }
    if (p->peak) equal(t, "peak", peak, p->peak(t->ranks, t->micro));
    for (int s = 0; p->frames && s < t->stages; s++)
        for (int d = 0; d < t->directions; d++)
            equal(t, "frames", meg_timetable_frames(t, d, s), p->frames(t, s));
}

static void test_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof *PUBLISHED; i++) {
        const published *p = &PUBLISHED[i];
        int cases = 0;
        for (int R = 2; R <= RANKS; R++)
            for (int M = row(p->name)->directions; M <= MICRO; M++) {
                if ((p->even && R % 2) || (p->multiple && M % R)) continue;
                meg_pool *pool = meg_pool_new();
                judge(p,
                      draw(pool, p->name,
                           (meg_pipe){.stages = R * p->chunks, .ranks = R, .micro = M}),
                      pool);
                meg_pool_free(pool);
                cases += !p->deep || M >= R;
            }
        print_message("%-12s as published in %d cases\n", p->name, cases);
        assert_true(cases >= 60);
    }
}

/* What has no closed form of its own. */
static void test_bounds(void **state)
{
    (void)state;
    for (int S = 2; S <= RANKS; S += 2)
        for (int M = 2; M <= MICRO; M++) {
            meg_pool *pool = meg_pool_new();
            meg_pipe p = {.stages = S, .ranks = S, .micro = M};
            double fill = (M + S - 1) * 3;
            assert_true(replay(pool, draw(pool, "zb_h1", p), (unit){1, 1, 1}).makespan <= fill);
            meg_timetable *t = draw(pool, "chimera", p); /* between its own form and twice it */
            double time = replay(pool, t, (unit){1, 1, 0}).makespan;
            assert_true(time >= 2 * M && time < 2 * (2 * M + 2 * S - 2));
            for (int r = 0; r < S; r++)
                assert_true(t->peak[r] <= S);
            /* two replications of M/2 micro-batches: as gpipe twice, the second fill is hidden */
            t = draw(pool, "mast", p);
            double mast = replay(pool, t, (unit){1, 1, 1}).makespan;
            assert_true(mast <= 2 * ((M + 1) / 2 + S - 1) * 3);
            for (int r = 0; r < S; r++) /* never two replications at once on a rank */
                assert_int_equal(t->peak[r], (M + 1) / 2);
            meg_pool_free(pool);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
