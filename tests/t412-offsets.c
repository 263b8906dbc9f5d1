/* Offsets of slots, and open spans, against the plain rules: all others are looked at, one by one. */
#include "base/random.h"
#include "plan/events/spans.h"
#include "plan/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    SLOTS = 400,
    SPANS = 300
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = meg_hash_word(*state, 1);
    return (*state >> 20) % below;
}

/* ---- offsets ---- */

static bool goes_first(const meg_slot *a, const meg_slot *b)
{
    bool x = a->role == MEG_ROLE_SCRATCH, y = b->role == MEG_ROLE_SCRATCH;
    if (x != y) return x;
    return a->bytes != b->bytes ? a->bytes > b->bytes : a < b;
}

/* The lowest offset at which it meets none of those that were placed. */
static int64_t lowest(const meg_slot slot[], const bool placed[], const int64_t at[], int s)
{
    int64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < SLOTS; i++) {
            bool together = slot[i].born <= slot[s].dies && slot[s].born <= slot[i].dies;
            int64_t end = meg_aligned(at[i] + slot[i].bytes);
            if (!placed[i] || !together || end <= offset || at[i] >= offset + slot[s].bytes)
                continue;
            offset = end;
            moved = true;
        }
    }
    return offset;
}

static void compare(meg_station *t)
{
    bool placed[SLOTS] = {false};
    int64_t at[SLOTS], most = 0;
    for (int k = 0; k < SLOTS; k++) {
        int next = -1;
        for (int i = 0; i < SLOTS; i++)
            if (!placed[i] && (next < 0 || goes_first(&t->slot[i], &t->slot[next]))) next = i;
        at[next] = lowest(t->slot, placed, at, next);
        placed[next] = true;
        if (at[next] + t->slot[next].bytes > most) most = at[next] + t->slot[next].bytes;
    }
    for (int i = 0; i < SLOTS; i++)
        if (t->slot[i].offset != at[i])
            fail_msg("slot %d lies at %lld, not at %lld", i, (long long)t->slot[i].offset,
                     (long long)at[i]);
    assert_int_equal(t->frame, most);
}

static void test_offsets(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed;
        meg_station t = {.slots = SLOTS, .instrs = 1 + (int)draw(&random, 300)};
        t.slot = calloc(SLOTS, sizeof *t.slot);
        assert_non_null(t.slot);
        for (int i = 0; i < SLOTS; i++) {
            meg_slot *s = &t.slot[i];
            bool brief = draw(&random, 3) > 0;
            s->region = MEG_FRAME;
            s->role = draw(&random, 6) ? MEG_ROLE_VALUE : MEG_ROLE_SCRATCH;
            s->born = (int)draw(&random, (uint64_t)t.instrs);
            s->dies = s->born + (int)draw(&random, (uint64_t)(t.instrs - s->born));
            if (brief && s->dies > s->born + 3) s->dies = s->born + 3;
            s->bytes = (int64_t)draw(&random, seed % 2 ? 5 : 4096) * (seed % 2 ? 64 : 1);
        }
        meg_station_place(&t);
        compare(&t);
        free(t.slot);
    }
}

/* As many slots as a network of ten thousand layers has: most of them live from forward to backward. */
static void test_many(void **state)
{
    enum {
        LAYERS = 10000
    };
    (void)state;
    meg_station t = {.slots = 3 * LAYERS, .instrs = 4 * LAYERS};
    t.slot = calloc(3 * LAYERS, sizeof *t.slot);
    assert_non_null(t.slot);
    for (int i = 0; i < LAYERS; i++) {
        int back = t.instrs - 1 - 2 * i;
        int64_t bytes = 64LL << i * 7919LL % 12;
        t.slot[3 * i] = (meg_slot){
            .region = MEG_FRAME, .born = 2 * i, .dies = back, .bytes = bytes};
        t.slot[3 * i + 1] = (meg_slot){
            .region = MEG_FRAME, .born = 2 * i, .dies = 2 * i + 1, .bytes = 2 * bytes};
        t.slot[3 * i + 2] = (meg_slot){
            .region = MEG_FRAME, .born = back - 1, .dies = back, .bytes = bytes};
    }
    clock_t begin = clock();
    meg_station_place(&t);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    print_message("%d slots placed in %.3f s\n", t.slots, seconds);
    free(t.slot);
    if (seconds > 5) fail_msg("%d slots took %.1f s: 5 s were expected", t.slots, seconds);
}

/* ---- spans ---- */

static void test_spans(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed;
        meg_open_span all[SPANS];
        bool open[SPANS] = {false};
        meg_open_spans s = {0};
        int64_t scale = seed % 3 == 0 ? 1000 : 1; /* cells of the map stand for several places */
        if (seed % 4) meg_open_over(&s, (int64_t)100 << seed % 20);
        int *met = NULL;
        size_t room = 0;
        for (int i = 0; i < SPANS; i++) {
            int64_t lo = (int64_t)draw(&random, 5000), hi = lo + (int64_t)draw(&random, 200);
            if (draw(&random, 9) == 0) hi += 3000;
            lo *= scale, hi *= scale;
            int found = meg_open_sort(met, meg_open_find(&s, lo, hi, 0, &met, &room)), k = 0;
            for (int j = 0; j < i; j++) {
                if (!open[j] || all[j].lo >= hi || lo >= all[j].hi) continue;
                if (k >= found || met[k] != j) fail_msg("span %d meets %d, which is missing", i, j);
                k++;
            }
            assert_int_equal(k, found);
            for (int j = 0; j < found; j++)
                if (draw(&random, 2)) {
                    meg_open_drop(&s, all[met[j]].lo, all[met[j]].hi, met[j]);
                    open[met[j]] = false;
                }
            all[i] = (meg_open_span){lo, hi, i};
            open[i] = true;
            meg_open_add(&s, lo, hi, i);
        }
        meg_open_free(&s);
        free(met);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_offsets), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_spans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
