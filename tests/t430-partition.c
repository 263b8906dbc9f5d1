/* Partitions: against all cuts of small random networks, properties of larger ones, cuts by hand,
 * crossings, refusals, speed. Costs are small whole numbers, so sums are exact.
 */
#include "base/random.h"
#include "plan/partition/partition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    MOST = 10 /* pieces that are cut in all ways */
};

/* ---- random networks ---- */

typedef struct dice {
    meg_stream stream;
    uint64_t index;
} dice;

static int roll(dice *d, int sides) /* 0 .. sides - 1 */
{
    uint32_t bits[4];
    meg_random_bits(d->stream, d->index++, bits);
    return (int)(bits[0] % (uint32_t)sides);
}

static meg_cut random_cut(meg_pool *pool, dice *d, int pieces, int stages)
{
    meg_piece *p = meg_pool_alloc(pool, (size_t)pieces * sizeof *p);
    meg_flow *f = meg_pool_alloc(pool, (size_t)pieces * 4 * sizeof *f);
    int *frames = meg_pool_alloc(pool, (size_t)stages * sizeof *frames), flows = 0;
    for (int i = 0; i < pieces; i++) {
        p[i] = (meg_piece){.name = meg_pool_text(pool, "block%d", i),
                           .seconds = roll(d, 9),
                           .held = roll(d, 7),
                           .kept = roll(d, 5)};
        int64_t bytes = roll(d, 10);
        for (int to = i + 1; to < pieces && flows < 4 * (i + 1); to += 1 + roll(d, 2 * pieces))
            f[flows++] = (meg_flow){
                .from = i, .to = to, .value = 3 * i + roll(d, 2), .bytes = bytes};
    }
    for (int s = 0; s < stages; s++)
        frames[s] = 1 + roll(d, 4);
    return (meg_cut){.model = "net",
                     .noun = "blocks",
                     .pieces = pieces,
                     .flows = flows,
                     .stages = stages,
                     .piece = p,
                     .flow = f,
                     .frames = frames};
}

static meg_partition *best(meg_pool *pool, const meg_cut *c)
{
    meg_error e = {0};
    meg_partition *p = NULL;
    if (meg_partition_best(&e, pool, c, &p)) fail_msg("%s", e.message);
    return p;
}

/* ---- all cuts ---- */

typedef struct verdict { /* of one cut, computed as the definition says */
    double worst, squares;
    int64_t bytes;
} verdict;

static int stage_of(const int *first, int stages, int piece)
{
    int s = 0;
    while (s + 1 < stages && first[s + 1] <= piece)
        s++;
    return s;
}

/* Bytes that stage s receives: of each value once. */
static int64_t received(const meg_cut *c, const int *first, int s)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->flows; i++) {
        const meg_flow *f = &c->flow[i];
        bool again = false;
        if (stage_of(first, c->stages, f->to) != s || stage_of(first, c->stages, f->from) == s)
            continue;
        for (int j = 0; j < i; j++)
            again |= c->flow[j].value == f->value && stage_of(first, c->stages, c->flow[j].to) == s;
        if (!again) bytes += f->bytes;
    }
    return bytes;
}

static bool judge(const meg_cut *c, const int *first, verdict *v)
{
    *v = (verdict){0};
    for (int s = 0; s < c->stages; s++) {
        int end = s + 1 < c->stages ? first[s + 1] : c->pieces;
        int64_t in = received(c, first, s), memory = 0;
        double seconds = (double)in * c->seconds_per_byte, measure;
        for (int i = first[s]; i < end; i++) {
            seconds += c->piece[i].seconds;
            memory += c->piece[i].held + c->frames[s] * c->piece[i].kept;
        }
        if (c->limit && memory > c->limit) return false;
        measure = c->measure == MEG_MEASURE_COUNT     ? end - first[s]
                  : c->measure == MEG_MEASURE_COMPUTE ? seconds
                                                      : (double)memory;
        if (measure > v->worst) v->worst = measure;
        v->squares += measure * measure;
        v->bytes += in;
    }
    return true;
}

static bool less(const verdict *a, const verdict *b)
{
    if (a->worst != b->worst) return a->worst < b->worst;
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->squares < b->squares;
}

/* Tries every choice of first[s ...]; true: some cut keeps the limit. */
static bool try_all(const meg_cut *c, int *first, int s, verdict *least)
{
    verdict v;
    bool any = false;
    if (s == c->stages) {
        if (!judge(c, first, &v)) return false;
        if (least->worst < 0 || less(&v, least)) *least = v;
        return true;
    }
    for (int i = first[s - 1] + 1; i <= c->pieces - (c->stages - s); i++) {
        first[s] = i;
        any |= try_all(c, first, s + 1, least);
    }
    return any;
}

static void firsts_of(const meg_partition *p, int *first)
{
    for (int i = p->pieces - 1; i >= 0; i--)
        first[p->stage[i]] = i;
}

static void compare(const meg_cut *c, int *refused)
{
    meg_pool *pool = meg_pool_new();
    meg_error e = {0};
    meg_partition *p = NULL;
    int first[MOST] = {0};
    verdict want = {.worst = -1}, got;
    if (!try_all(c, first, 1, &want)) {
        assert_int_equal(meg_partition_best(&e, pool, c, &p), MEG_EBUDGET);
        ++*refused;
    } else {
        p = best(pool, c);
        firsts_of(p, first);
        assert_true(judge(c, first, &got));
        if (less(&got, &want) || less(&want, &got) || p->worst != got.worst)
            fail_msg("%d pieces, %d stages, measure %d: found %g (%lld bytes, squares %g; it says "
                     "%g), best is %g (%lld, %g)",
                     c->pieces, c->stages, c->measure, got.worst, (long long)got.bytes, got.squares,
                     p->worst, want.worst, (long long)want.bytes, want.squares);
    }
    meg_pool_free(pool);
}

static void test_all_cuts(void **state)
{
    (void)state;
    dice d = {{7, 0, meg_hash("partition")}, 0};
    int refused = 0, cases = 0;
    for (int pieces = 1; pieces <= MOST; pieces++)
        for (int stages = 1; stages <= pieces && stages <= 6; stages++)
            for (int k = 0; k < 36; k++, cases++) {
                meg_pool *pool = meg_pool_new();
                meg_cut c = random_cut(pool, &d, pieces, stages);
                c.measure = (meg_balance)(k % 3);
                c.seconds_per_byte = k % 2 * 0.5;
                if (k % 4 == 3) c.limit = 5 + roll(&d, 40 * pieces / stages);
                compare(&c, &refused);
                meg_pool_free(pool);
            }
    print_message("%d cuts as good as the best of all, %d of them refused\n", cases, refused);
    assert_true(refused > 50 && refused < 300); /* of the 405 with a limit */
}

/* ---- by memory, with all that a rank may have ---- */

/* What comes and goes, swells and is temporary; meshes; ranks with chunks, or with both directions. */
static void load_cut(meg_pool *pool, dice *d, meg_cut *c, int kind)
{
    meg_piece *p = (meg_piece *)c->piece;
    meg_flow *f = (meg_flow *)c->flow;
    size_t stations = 2 * (size_t)c->stages;
    int *frames = meg_pool_alloc(pool, stations * sizeof *frames);
    int *seat = meg_pool_alloc(pool, stations * sizeof *seat);
    int *width = meg_pool_alloc(pool, stations * sizeof *width);
    int *share = meg_pool_alloc(pool, stations * sizeof *share);
    for (int i = 0; i < c->pieces; i++) {
        p[i].summed = roll(d, 5);
        p[i].late = kind % 2 ? roll(d, 6) : 0;
        for (int k = 0; k < MEG_SIDES; k++) {
            p[i].swell[k] = roll(d, 4);
            p[i].temporary[k] = roll(d, 9);
        }
    }
    for (int i = 0; i < c->flows; i++) {
        f[i].stash = roll(d, 4);
        f[i].sent = roll(d, 4);
        f[i].arrived = roll(d, 4);
        f[i].returned = kind % 2 ? roll(d, 4) : 0;
    }
    c->directions = kind == 2 ? 2 : 1;
    c->ranks = kind == 3 ? (c->stages + 1) / 2 : c->stages;
    for (int i = 0; i < 2 * c->stages; i++) {
        int s = i % c->stages;
        frames[i] = 1 + roll(d, 3);
        seat[i] = i < c->stages ? s % c->ranks : c->stages - 1 - s;
        width[i] = 1;
        share[s] = 1 + (kind == 1 ? roll(d, 2) : 0);
    }
    c->frames = frames;
    c->share = share;
    c->seat = seat;
    c->width = width;
    c->replicas = 1 + roll(d, 2);
    c->scratch = 4;
    c->measure = MEG_MEASURE_MEMORY;
}

/* The least that any cut has, each weighed by itself (footprint.h), not as the search goes. */
static double least_of_all(const meg_cut *c, int *first, int s)
{
    double least = 1e300;
    meg_pool *pool = meg_pool_new();
    meg_partition *p = NULL;
    meg_error e = {0};
    if (s == c->stages) {
        assert_int_equal(meg_partition_firsts(&e, pool, c, first, &p), MEG_OK);
        least = p->worst;
    }
    for (int i = first[s - 1] + 1; s < c->stages && i <= c->pieces - (c->stages - s); i++) {
        first[s] = i;
        double worst = least_of_all(c, first, s + 1);
        if (worst < least) least = worst;
    }
    meg_pool_free(pool);
    return least;
}

static void test_memory(void **state)
{
    (void)state;
    dice d = {{11, 0, meg_hash("memory")}, 0};
    int cases = 0;
    for (int pieces = 2; pieces <= MOST; pieces++)
        for (int stages = 2; stages <= pieces && stages <= 6; stages++)
            for (int k = 0; k < 12; k++, cases++) {
                meg_pool *pool = meg_pool_new();
                int first[MOST + 1] = {0};
                meg_cut c = random_cut(pool, &d, pieces, stages);
                load_cut(pool, &d, &c, k % 4);
                double want = least_of_all(&c, first, 1), got = best(pool, &c)->worst;
                if (got != want)
                    fail_msg("%d pieces, %d stages, kind %d: found %g, but a cut has %g", pieces,
                             stages, k % 4, got, want);
                meg_pool_free(pool);
            }
    print_message("%d cuts have the least memory of all\n", cases);
}

/* ---- properties ---- */

/* More stages are never worse; one piece each is the end. */
static void test_monotone(void **state)
{
    (void)state;
    dice d = {{8, 0, meg_hash("monotone")}, 0};
    for (int k = 0; k < 6; k++) {
        meg_pool *pool = meg_pool_new();
        meg_cut c = random_cut(pool, &d, 60, 60);
        double before = 1e300, largest = 0, total = 0;
        c.measure = (meg_balance)(k % 3);
        c.frames = NULL;
        for (int i = 0; i < c.pieces; i++) {
            const meg_piece *p = &c.piece[i];
            double of[] = {1, p->seconds, (double)(p->held + p->kept)};
            if (of[k % 3] > largest) largest = of[k % 3];
            total += of[k % 3];
        }
        for (c.stages = 1; c.stages <= c.pieces; c.stages++) {
            double worst = best(pool, &c)->worst;
            assert_true(worst <= before && worst >= largest && worst * c.stages >= total);
            if (c.stages == 1) assert_true(worst == total);
            before = worst;
        }
        assert_true(before == largest);
        meg_pool_free(pool);
    }
}

/* ---- a U-Net: three down, three up, each with a skip ---- */

static const meg_piece UNET[] = {
    {"down1", 4, 10, 0, 40, 0, {0}, {0}}, {"down2", 4, 20, 0, 20, 0, {0}, {0}},
    {"mid", 4, 40, 0, 10, 0, {0}, {0}},   {"up2", 4, 20, 0, 20, 0, {0}, {0}},
    {"up1", 4, 10, 0, 40, 0, {0}, {0}},
};
static const meg_flow SKIPS[] = {
    {0, 1, 0, 8, 0, 0, 0, 0}, {1, 2, 1, 4, 0, 0, 0, 0}, {2, 3, 2, 4, 0, 0, 0, 0},
    {3, 4, 3, 8, 0, 0, 0, 0}, {1, 3, 1, 4, 0, 0, 0, 0}, {0, 4, 0, 8, 0, 0, 0, 0},
    {0, 4, 9, 1, 0, 0, 0, 0},
};

static meg_cut unet(int stages)
{
    return (meg_cut){.model = "unet",
                     .noun = "blocks",
                     .pieces = 5,
                     .flows = 7,
                     .stages = stages,
                     .piece = UNET,
                     .flow = SKIPS,
                     .measure = MEG_MEASURE_COMPUTE};
}

static void test_crossings(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_cut c = unet(5);
    static const meg_crossing want[] = {
        {0, 1, 1, 8}, {0, 4, 2, 9}, {1, 2, 1, 4}, {1, 3, 1, 4}, {2, 3, 1, 4}, {3, 4, 1, 8},
    };
    meg_partition *p = best(pool, &c);
    assert_int_equal(p->crossings, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(p->crossing[i].from, want[i].from);
        assert_int_equal(p->crossing[i].to, want[i].to);
        assert_int_equal(p->crossing[i].values, want[i].values);
        assert_int_equal(p->crossing[i].bytes, want[i].bytes);
    }
    assert_int_equal(p->received[4], 8 + 9);
    c = unet(2); /* down1's value goes once to the stage of both up1 and down2 */
    int first[] = {0, 1};
    meg_error e = {0};
    assert_int_equal(meg_partition_firsts(&e, pool, &c, first, &p), MEG_OK);
    assert_int_equal(p->crossings, 1);
    assert_int_equal(p->crossing[0].values, 2);
    assert_int_equal(p->crossing[0].bytes, 8 + 1);
    assert_true(p->worst == 16 && p->seconds[0] == 4);
    assert_int_equal(p->bytes[1], 90 + 90);
    meg_pool_free(pool);
}

/* The picture of partition.h; not 7 7 5, which is less even. */
static void test_picture(void **state)
{
    (void)state;
    static const double seconds[] = {3, 1, 1, 2, 4, 2, 1, 5};
    static const int want[] = {0, 0, 0, 0, 1, 1, 2, 2};
    meg_piece piece[8];
    for (int i = 0; i < 8; i++)
        piece[i] = (meg_piece){"layer", seconds[i], 0, 0, 0, 0, {0}, {0}};
    meg_cut c = {.model = "net",
                 .noun = "layers",
                 .pieces = 8,
                 .stages = 3,
                 .piece = piece,
                 .measure = MEG_MEASURE_COMPUTE};
    meg_pool *pool = meg_pool_new();
    meg_partition *p = best(pool, &c);
    assert_memory_equal(p->stage, want, sizeof want);
    assert_true(p->seconds[0] == 7 && p->seconds[1] == 6 && p->seconds[2] == 6 && p->worst == 7);
    meg_pool_free(pool);
}

/* Expensive messages move the cut: to where few bytes pass, although the stages are less even. */
static void test_messages(void **state)
{
    (void)state;
    static const meg_piece p[] = {{"a", 1, 0, 0, 0, 0, {0}, {0}},
                                  {"b", 1, 0, 0, 0, 0, {0}, {0}},
                                  {"c", 1, 0, 0, 0, 0, {0}, {0}},
                                  {"d", 1, 0, 0, 0, 0, {0}, {0}}};
    static const meg_flow f[] = {
        {0, 1, 0, 2, 0, 0, 0, 0}, {1, 2, 1, 50, 0, 0, 0, 0}, {2, 3, 2, 40, 0, 0, 0, 0}};
    meg_cut c = {.model = "net",
                 .noun = "layers",
                 .pieces = 4,
                 .flows = 3,
                 .stages = 2,
                 .piece = p,
                 .flow = f,
                 .measure = MEG_MEASURE_COMPUTE};
    meg_pool *pool = meg_pool_new();
    meg_partition *even = best(pool, &c);
    assert_true(even->worst == 2 && even->stage[1] == 0 && even->stage[2] == 1);
    c.seconds_per_byte = 1;
    meg_partition *cheap = best(pool, &c);
    assert_true(cheap->worst == 5 && cheap->stage[0] == 0 && cheap->stage[1] == 1);
    meg_pool_free(pool);
}

/* ---- by hand, refusals ---- */

static void fails(meg_status status, meg_status want, const meg_error *e, const char *says)
{
    assert_int_equal(status, want);
    if (!strstr(e->message, says)) fail_msg("expected '%s' in: %s", says, e->message);
}

static void test_by_hand(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_error e = {0};
    meg_partition *p = NULL;
    meg_cut c = unet(3);
    int branch[] = {0, 1, 1, 2, 2}, empty[] = {0, 0, 2, 2, 2}, back[] = {0, 2, 1, 2, 2};
    int beyond[] = {0, 1, 2, 3, 2}, late[] = {1, 2, 3}, down[] = {0, 3, 2}, far[] = {0, 2, 5};
    fails(meg_partition_given(&e, pool, &c, empty, &p), MEG_EARG, &e,
          "stage 1 of 3 has none of the 5 blocks of unet: give it one, or use stages=2");
    fails(meg_partition_given(&e, pool, &c, back, &p), MEG_EARG, &e,
          "'mid' in stage 1 reads 'down2' in stage 2: a stage may read only from itself");
    fails(meg_partition_given(&e, pool, &c, beyond, &p), MEG_EARG, &e,
          "'up2' is given to stage 3, but there are 3 stages: use 0..2");
    fails(meg_partition_firsts(&e, pool, &c, late, &p), MEG_EARG, &e,
          "'down1' would have no stage");
    fails(
        meg_partition_firsts(&e, pool, &c, down, &p), MEG_EARG, &e,
        "stage 2 begins at 'mid' (2), which leaves nothing for stage 1, that begins at 'up2' (3)");
    fails(meg_partition_firsts(&e, pool, &c, far, &p), MEG_EARG, &e,
          "stage 2 begins at 5, but the blocks of unet are 0..4");
    assert_null(p);
    assert_int_equal(meg_partition_given(&e, pool, &c, branch, &p), MEG_OK);
    assert_int_equal(p->bytes[1], 60 + 30);
    c.limit = 80;
    fails(meg_partition_given(&e, pool, &c, branch, &p), MEG_EBUDGET, &e,
          "stage 1 needs 90 bytes, 10 more than there are");
    meg_pool_free(pool);
}

static void test_refused(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_error e = {0};
    meg_partition *p = NULL;
    meg_balance m;
    meg_cut c = unet(9);
    fails(meg_partition_best(&e, pool, &c, &p), MEG_EARG, &e,
          "stages=9, but unet has only 5 blocks: use 1..5");
    c = unet(0);
    fails(meg_partition_best(&e, pool, &c, &p), MEG_EARG, &e, "use 1..5");
    c = unet(2);
    c.limit = 80; /* the blocks have 50 40 50 40 50: at best 90 and 140 */
    fails(meg_partition_best(&e, pool, &c, &p), MEG_EBUDGET, &e,
          "no cut of unet into 2 stages fits: at best the largest stage needs 140 bytes, 60 more");
    c.limit = 140;
    assert_int_equal(meg_partition_best(&e, pool, &c, &p), MEG_OK);
    meg_flow back = {3, 1, 0, 1, 0, 0, 0, 0},
             two[] = {{0, 1, 5, 1, 0, 0, 0, 0}, {1, 2, 5, 1, 0, 0, 0, 0}};
    c.flow = &back;
    c.flows = 1;
    fails(meg_partition_best(&e, pool, &c, &p), MEG_EARG, &e,
          "'down2' reads 'up2', which does not come before it");
    c.flow = two;
    c.flows = 2;
    fails(meg_partition_best(&e, pool, &c, &p), MEG_EARG, &e,
          "value 5 is made by 'down1' and by 'down2'");
    assert_int_equal(meg_balance_find(&e, "memory", &m), MEG_OK);
    assert_int_equal(m, MEG_MEASURE_MEMORY);
    fails(meg_balance_find(&e, "time", &m), MEG_EARG, &e, "known: count compute memory");
    meg_pool_free(pool);
}

/* ---- speed: 4000 pieces into 64 stages, in any measure ---- */

static void test_speed(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    const double limit = 30;
#else
    const double limit = 3;
#endif
    dice d = {{9, 0, meg_hash("speed")}, 0};
    for (int k = 0; k < 3; k++)
        for (int stages = 4; stages <= 64; stages *= 16) {
            meg_pool *pool = meg_pool_new();
            meg_cut c = random_cut(pool, &d, 4000, stages);
            c.measure = (meg_balance)k;
            c.seconds_per_byte = 0.01;
            clock_t start = clock();
            meg_partition *p = best(pool, &c);
            double spent = (double)(clock() - start) / CLOCKS_PER_SEC;
            print_message("4000 pieces, %2d stages, measure %d: %.2f s, worst %g\n", stages, k,
                          spent, p->worst);
            assert_true(spent < limit);
            meg_pool_free(pool);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_cuts), cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_picture),  cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
