/* The loader: each pass covers each sample once, in an order that depends on (seed, pass) alone;
 * the next batch is read while this one is used, beyond the end of a pass too; errors of the thread
 * reach the caller. The data set is made here: value = label = index, so that all can be seen.
 */
#include "data/data.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    COUNT = 23,
    BATCH = 5,
    BATCHES = 5,
    HIGH = 4,
    WIDE = 6,
    SIZE = 2 * HIGH * WIDE
};

typedef struct fake {
    atomic_int reads;
    atomic_int broken; /* the sample that cannot be read, or -1 */
} fake;

static meg_status fake_read(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                            float *out)
{
    fake *f = d->state;
    int64_t p[MEG_AXES];
    if (!meg_box_holds(&d->sample, box)) return meg_fail(e, MEG_EARG, "not of the sample");
    atomic_fetch_add(&f->reads, 1);
    if (index == atomic_load(&f->broken))
        return meg_fail(e, MEG_EIO, "sample %d burns", (int)index);
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p))
        *out++ = (float)(index * 1000 + meg_box_at(&d->sample, p));
    return MEG_OK;
}

static meg_status fake_label(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                             void *out)
{
    int64_t p[MEG_AXES];
    int32_t *to = out;
    if (!meg_box_holds(&d->label, box)) return meg_fail(e, MEG_EARG, "not of the labels");
    for (bool on = meg_box_first(box, p); on; on = meg_box_next(box, p))
        *to++ = (int32_t)(index + 100 * meg_box_at(&d->label, p));
    return MEG_OK;
}

static const meg_reader FAKE = {.name = "fake", .read = fake_read, .label = fake_label};

static meg_dataset fake_set(fake *f)
{
    atomic_store(&f->reads, 0);
    atomic_store(&f->broken, -1);
    return (meg_dataset){.reader = &FAKE,
                         .count = COUNT,
                         .rank = 4,
                         .dims = {COUNT, 2, HIGH, WIDE},
                         .sample = meg_box_of(1, 2, 1, HIGH, WIDE),
                         .label = meg_box_of(1, 1, 1, 1, 1),
                         .classes = COUNT,
                         .state = f};
}

static meg_loader *loader_of(const meg_dataset *d, meg_loader_options o)
{
    meg_error e;
    meg_loader *l = NULL;
    if (meg_loader_new(&e, d, &o, &l) != MEG_OK) fail_msg("%s", e.message);
    return l;
}

typedef struct batch { /* of a data set with a sample and its labels */
    int64_t count;
    const float *samples;
    const int32_t *labels;
    meg_box sample, label;
} batch;

static batch next(meg_loader *l, int64_t epoch, int64_t index)
{
    meg_error e;
    meg_batch b = {0};
    if (meg_loader_next(l, &e, epoch, index, &b) != MEG_OK) fail_msg("%s", e.message);
    assert_int_equal(b.wants, 2);
    return (batch){b.count, b.data[0], b.data[1], b.want[0].box, b.want[1].box};
}

/* Waits until `reads` samples have been read, and a little longer: no more may follow. */
static void wait_reads(fake *f, int reads)
{
    for (int i = 0; i < 5000 && atomic_load(&f->reads) < reads; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(atomic_load(&f->reads), reads);
}

static void test_plain_order(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = BATCH});
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int k = 0; k < BATCHES; k++) {
            batch b = next(l, epoch, k);
            assert_int_equal(b.count, k < BATCHES - 1 ? BATCH : COUNT % BATCH);
            for (int i = 0; i < b.count; i++) {
                assert_int_equal(b.labels[i], k * BATCH + i);
                for (int j = 0; j < SIZE; j++)
                    assert_true(b.samples[i * SIZE + j] == (float)(b.labels[i] * 1000 + j));
            }
        }
    }
    meg_loader_free(l);
    meg_loader_free(NULL);
}

/* The order of a pass; checks that each sample comes once. */
static void order_of(meg_loader *l, int64_t epoch, int order[COUNT])
{
    int seen[COUNT] = {0}, n = 0;
    for (int k = 0; k < BATCHES; k++) {
        batch b = next(l, epoch, k);
        for (int i = 0; i < b.count; i++) {
            order[n++] = b.labels[i];
            assert_int_equal(seen[b.labels[i]]++, 0);
            assert_true(b.samples[i * SIZE] == (float)(b.labels[i] * 1000));
        }
    }
    assert_int_equal(n, COUNT);
}

static void test_shuffle(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader_options o = {.batch = BATCH, .shuffle = true, .seed = 1};
    meg_loader *a = loader_of(&d, o), *b = loader_of(&d, o);
    o.seed = 2;
    meg_loader *other = loader_of(&d, o);
    int first[COUNT], second[COUNT], again[COUNT];
    order_of(a, 0, first);
    order_of(a, 1, second);
    assert_memory_not_equal(first, second, sizeof first); /* each pass has its own */
    order_of(b, 1, again);                                /* whatever was read before */
    assert_memory_equal(second, again, sizeof first);
    order_of(other, 0, again);
    assert_memory_not_equal(first, again, sizeof first);
    meg_loader_free(a);
    meg_loader_free(b);
    meg_loader_free(other);
}

/* Any order of asking gives the same batches. */
static void test_any_order(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader_options o = {.batch = BATCH, .shuffle = true, .seed = 9};
    meg_loader *l = loader_of(&d, o);
    int order[2][COUNT];
    order_of(l, 0, order[0]);
    order_of(l, 1, order[1]);
    static const int asked[][2] = {{1, 3}, {0, 0}, {0, 0}, {0, 1}, {1, 4}, {1, 0},
                                   {0, 4}, {1, 0}, {0, 2}, {0, 1}, {0, 2}, {0, 2}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        batch b = next(l, asked[i][0], asked[i][1]);
        for (int j = 0; j < b.count; j++)
            assert_int_equal(b.labels[j], order[asked[i][0]][asked[i][1] * BATCH + j]);
    }
    meg_loader_free(l);
}

/* After batch k is handed out, k+1 is read unasked, once, and no further. */
static void test_prefetch(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = BATCH});
    assert_int_equal(atomic_load(&f.reads), 0);
    next(l, 0, 0);
    wait_reads(&f, 2 * BATCH);
    next(l, 0, 1);
    wait_reads(&f, 3 * BATCH);
    next(l, 0, 1); /* asked again: nothing is read */
    wait_reads(&f, 3 * BATCH);
    next(l, 0, 2);
    next(l, 0, 3);
    wait_reads(&f, COUNT);
    next(l, 0, 4);
    wait_reads(&f, COUNT + BATCH); /* the first of the next pass */
    assert_int_equal(next(l, 1, 0).labels[0], 0);
    wait_reads(&f, COUNT + 2 * BATCH);
    meg_loader_free(l);
}

/* A batch stays as it is while the next one is read. */
static void test_borrowed(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = BATCH});
    batch b = next(l, 0, 0);
    wait_reads(&f, 2 * BATCH);
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(b.labels[i], i);
        assert_true(b.samples[(i + 1) * SIZE - 1] == (float)(i * 1000 + SIZE - 1));
    }
    meg_loader_free(l);
}

static void test_errors(void **state)
{
    (void)state;
    fake f;
    meg_error e;
    meg_batch b;
    meg_dataset d = fake_set(&f);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = BATCH});
    atomic_store(&f.broken, 7);
    next(l, 0, 0);
    wait_reads(&f, 8); /* reading ahead failed, but nobody has asked yet */
    assert_int_equal(meg_loader_next(l, &e, 0, 1, &b), MEG_EIO);
    assert_string_equal(e.message, "sample 7 burns");
    assert_int_equal(meg_loader_next(l, &e, 0, 1, &b), MEG_EIO);
    atomic_store(&f.broken, -1);
    assert_int_equal(next(l, 0, 1).labels[2], 7); /* each time it is tried again */
    assert_int_equal(next(l, 0, 2).labels[0], 10);

    assert_int_equal(meg_loader_next(l, &e, 0, BATCHES, &b), MEG_EARG);
    assert_string_equal(e.message, "loader: batch 5 of pass 0, but a pass has batches 0..4");
    assert_int_equal(meg_loader_next(l, &e, 0, -1, &b), MEG_EARG);
    assert_int_equal(meg_loader_next(l, &e, -1, 0, &b), MEG_EARG);
    meg_loader_free(l);
    assert_int_equal(meg_loader_new(&e, &d, &(meg_loader_options){.batch = 0}, &l), MEG_EARG);
    assert_string_equal(e.message, "loader: batch=0: use 1 or more");
    assert_int_equal(meg_loader_new(&e, &d, &(meg_loader_options){.batch = 1, .shift = -1}, &l),
                     MEG_EARG);
}

/* More than there is, and one at a time. */
static void test_batch_sizes(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = INT64_C(1) << 40});
    assert_int_equal(next(l, 0, 0).count, COUNT);
    assert_int_equal(next(l, 1, 0).count, COUNT);
    meg_loader_free(l);
    l = loader_of(&d, (meg_loader_options){.batch = 1});
    for (int k = 0; k < COUNT; k++)
        assert_int_equal(next(l, 0, k).labels[0], k);
    meg_loader_free(l);
}

typedef struct change {
    int down, right;
    bool flip;
} change;

/* The value that the sample has at (c, h, w) after the change. */
static float changed(const change *g, int32_t label, int c, int h, int w)
{
    int from_h = h - g->down, from_w = w - g->right;
    if (from_h < 0 || from_h >= HIGH || from_w < 0 || from_w >= WIDE) return 0;
    if (g->flip) from_w = WIDE - 1 - from_w;
    return (float)(label * 1000 + (c * HIGH + from_h) * WIDE + from_w);
}

static bool matches(const float *x, int32_t label, const change *g)
{
    for (int i = 0; i < SIZE; i++)
        if (x[i] != changed(g, label, i / HIGH / WIDE, i / WIDE % HIGH, i % WIDE)) return false;
    return true;
}

/* Finds the change that was made; there must be one within the bounds. */
static change find_change(const float *x, int32_t label, int shift, bool flip)
{
    change g = {0};
    for (int k = 0; k < (2 * shift + 1) * (2 * shift + 1) * (1 + flip); k++) {
        int rest = k / (1 + flip), side = 2 * shift + 1;
        g = (change){rest / side - shift, rest % side - shift, k % (1 + flip)};
        if (matches(x, label, &g)) return g;
    }
    fail_msg("sample %d is no shifted or mirrored one", label);
    return g;
}

static void test_augmentation(void **state)
{
    (void)state;
    enum {
        PASSES = 40,
        SHIFT = 2
    };
    fake f;
    meg_dataset d = fake_set(&f);
    meg_loader_options o = {.batch = BATCH, .shift = SHIFT, .flip = true, .seed = 3};
    meg_loader *l = loader_of(&d, o);
    o.shuffle = true;
    meg_loader *shuffled = loader_of(&d, o);
    int down[2 * SHIFT + 1] = {0}, right[2 * SHIFT + 1] = {0}, flips = 0;
    float kept[COUNT][SIZE];
    for (int epoch = 0; epoch < PASSES; epoch++) {
        for (int k = 0; k < BATCHES; k++) {
            batch b = next(l, epoch, k);
            for (int i = 0; i < b.count; i++) {
                memcpy(kept[b.labels[i]], b.samples + i * SIZE, sizeof *kept);
                change g = find_change(b.samples + i * SIZE, b.labels[i], SHIFT, true);
                down[g.down + SHIFT]++;
                right[g.right + SHIFT]++;
                flips += g.flip;
            }
        }
        for (int k = 0; k < BATCHES; k++) { /* the change does not depend on the order */
            batch b = next(shuffled, epoch, k);
            for (int i = 0; i < b.count; i++)
                assert_memory_equal(kept[b.labels[i]], b.samples + i * SIZE, sizeof *kept);
        }
    }
    int total = PASSES * COUNT; /* 920: a fifth is 184, deviation 12; a half 460, deviation 15 */
    for (int i = 0; i < 2 * SHIFT + 1; i++) {
        assert_in_range(down[i], total / 5 - 60, total / 5 + 60);
        assert_in_range(right[i], total / 5 - 60, total / 5 + 60);
    }
    assert_in_range(flips, total / 2 - 75, total / 2 + 75);
    meg_loader_free(l);
    meg_loader_free(shuffled);
}

/* Labels per pixel move with their image; what is shifted in does not count. */
static void test_augmented_labels(void **state)
{
    (void)state;
    fake f;
    meg_dataset d = fake_set(&f);
    d.label = meg_box_of(1, 1, 1, HIGH, WIDE);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = BATCH, .shift = 2, .flip = true});
    int moved = 0;
    for (int k = 0; k < BATCHES; k++) {
        batch b = next(l, 0, k);
        for (int64_t i = 0; i < b.count; i++) /* pixel j of sample s: 1000 s + j, label s + 100 j */
            for (int j = 0; j < HIGH * WIDE; j++) {
                int pixel = (int)b.samples[i * SIZE + j], label = b.labels[i * HIGH * WIDE + j];
                if (label < 0) assert_int_equal(pixel, 0);
                else assert_int_equal(label, pixel / 1000 + 100 * (pixel % 1000));
                moved += label < 0;
            }
    }
    assert_true(moved > 0);
    meg_loader_free(l);
    meg_error e;
    d.label.hi[MEG_H]--;
    assert_int_equal(meg_loader_new(&e, &d, &(meg_loader_options){.batch = 1, .flip = true}, &l),
                     MEG_EARG);
    assert_non_null(strstr(e.message, "another extent"));
}

/* An axis of extent 1 is not shifted away. */
static void test_augmented_row(void **state)
{
    (void)state;
    meg_error e;
    meg_dataset d;
    assert_int_equal(meg_dataset_open(&e, "synthetic:image=3x9 count=8", &d), MEG_OK);
    meg_loader *l = loader_of(&d, (meg_loader_options){.batch = 8, .shift = 3});
    batch b = next(l, 0, 0);
    for (int i = 0; i < 8; i++) {
        int zeros = 0;
        for (int j = 0; j < 27; j++)
            zeros += b.samples[i * 27 + j] == 0;
        assert_in_range(zeros, 0, 9); /* three of nine in each of three channels */
    }
    meg_loader_free(l);
    meg_dataset_close(&d);
}

/* A part of each sample, and of some samples nothing, is what the whole batch has there; what is not
 * wanted is not read. */
static void test_parts(void **state)
{
    (void)state;
    fake f, g;
    meg_dataset all = fake_set(&f), part = fake_set(&g);
    all.label = part.label = meg_box_of(1, 1, 1, HIGH, WIDE);
    bool of[BATCH] = {true, false, true, true, false};
    meg_wanted w[2];
    meg_dataset_wants(&part, w);
    w[0].box = (meg_box){{0, 0, 0, 1, 2}, {1, 2, 1, 3, WIDE}};
    w[0].of = of;
    w[1].box = (meg_box){{0, 0, 0, 0, 1}, {1, 1, 1, 2, 4}};
    for (int moved = 0; moved < 2; moved++) {
        meg_loader_options o = {
            .batch = BATCH, .shuffle = true, .shift = 3 * moved, .flip = moved, .seed = 7};
        meg_loader *a = loader_of(&all, o);
        o.wants = 2;
        o.want = w;
        meg_loader *b = loader_of(&part, o);
        batch x = next(a, 1, 0), y = next(b, 1, 0);
        int64_t p[MEG_AXES], at = 0, size = meg_box_size(&w[0].box),
                             labels = meg_box_size(&w[1].box);
        for (int i = 0; i < BATCH; i++) {
            at = 0;
            for (bool on = meg_box_first(&w[0].box, p); on; on = meg_box_next(&w[0].box, p), at++)
                if (of[i])
                    assert_true(y.samples[i * size + at] ==
                                x.samples[i * SIZE + meg_box_at(&all.sample, p)]);
            at = 0;
            for (bool on = meg_box_first(&w[1].box, p); on; on = meg_box_next(&w[1].box, p), at++)
                assert_int_equal(y.labels[i * labels + at],
                                 x.labels[i * HIGH * WIDE + meg_box_at(&all.label, p)]);
        }
        assert_true(meg_box_equal(&y.sample, &w[0].box) && meg_box_equal(&y.label, &w[1].box));
        wait_reads(&f, (moved + 1) * 2 * BATCH); /* this batch and the next */
        meg_loader_free(a);
        meg_loader_free(b);
    }
    assert_true(atomic_load(&g.reads) < atomic_load(&f.reads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_order),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_borrowed),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_batch_sizes),
        cmocka_unit_test(test_augmentation),
        cmocka_unit_test(test_augmented_labels),
        cmocka_unit_test(test_augmented_row),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
