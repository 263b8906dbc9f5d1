/* The allreduce algorithms as what they are, lists of steps: all ranks walk them in one thread, with
 * messages that wait in queues. Sums are exact on integers, the same bits everywhere in floating
 * point; messages match pairwise; volume and time are those of the formulas. */
#include "comm/allreduce/allreduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RANKS_MAX = 16,
    QUEUE = 64
};

typedef struct parcel {
    double *data;
    int64_t count;
    double arrives;
} parcel;

typedef struct walk { /* of all ranks */
    const meg_allreduce_kind *kind;
    const meg_topology *nodes;
    const meg_allreduce_rates *rates;
    int ranks;
    int64_t count, rows;
    double *data[RANKS_MAX];
    int k[RANKS_MAX];
    bool sent[RANKS_MAX], done[RANKS_MAX];
    int64_t volume[RANKS_MAX], messages;
    double clock[RANKS_MAX], began[RANKS_MAX];
    parcel queue[RANKS_MAX][RANKS_MAX][QUEUE]; /* from, to */
    int head[RANKS_MAX][RANKS_MAX], tail[RANKS_MAX][RANKS_MAX];
} walk;

static int reach(const walk *w, int a, int b)
{
    return w->nodes && w->nodes->group[a] != w->nodes->group[b];
}

static void send(walk *w, int r, const meg_allreduce_step *s)
{
    int64_t n = s->send.count;
    w->sent[r] = true;
    w->began[r] = w->clock[r];
    if (s->to < 0 || n == 0) return;
    assert_in_range(s->to, 0, w->ranks - 1);
    assert_int_not_equal(s->to, r);
    assert_true(s->send.at >= 0 && s->send.at + n <= w->count);
    parcel p = {malloc((size_t)n * sizeof(double)), n, 0};
    memcpy(p.data, w->data[r] + s->send.at, (size_t)n * sizeof(double));
    if (w->rates) {
        int far = reach(w, r, s->to);
        p.arrives = w->clock[r] + w->rates->alpha[far] + 8 * (double)n * w->rates->beta[far];
        w->clock[r] = p.arrives;
    }
    assert_true(w->tail[r][s->to] - w->head[r][s->to] < QUEUE);
    w->queue[r][s->to][w->tail[r][s->to]++ % QUEUE] = p;
    w->volume[r] += n;
    w->messages++;
}

/* False: what the step waits for is not there yet. */
static bool receive(walk *w, int r, const meg_allreduce_step *s)
{
    int64_t n = s->recv.count;
    if (s->from < 0 || n == 0) return true;
    assert_in_range(s->from, 0, w->ranks - 1);
    assert_true(s->recv.at >= 0 && s->recv.at + n <= w->count);
    if (s->to >= 0 && s->send.count > 0) /* ranges of a step do not overlap */
        assert_true(s->send.at >= s->recv.at + n || s->recv.at >= s->send.at + s->send.count);
    if (w->head[s->from][r] == w->tail[s->from][r]) return false;
    parcel p = w->queue[s->from][r][w->head[s->from][r]++ % QUEUE];
    assert_int_equal(p.count, n);
    for (int64_t i = 0; i < n; i++)
        w->data[r][s->recv.at + i] = p.data[i] + (s->add ? w->data[r][s->recv.at + i] : 0);
    free(p.data);
    if (p.arrives > w->clock[r]) w->clock[r] = p.arrives;
    if (w->rates && s->add) w->clock[r] += 8 * (double)n * w->rates->gamma;
    return true;
}

static bool advance(walk *w, int r)
{
    meg_allreduce a = {w->ranks, r, w->count, w->nodes, w->rows};
    meg_allreduce_step s;
    if (w->done[r]) return false;
    if (!w->kind->step(&a, w->k[r], &s)) {
        w->done[r] = true;
        return true;
    }
    bool was_sent = w->sent[r];
    if (!was_sent) send(w, r, &s);
    if (!receive(w, r, &s)) return !was_sent;
    w->k[r]++;
    w->sent[r] = false;
    return true;
}

/* `whole`: small integers, exact in double; else fractions. */
static double element(int rank, int64_t i, bool whole)
{
    return whole ? (double)((rank + 1) * 1000 + i % 991 * 7) : 1.0 / (double)(3 + rank * 7 + i);
}

static walk *walk_new(const meg_allreduce_kind *kind, int ranks, int64_t count,
                      const meg_topology *nodes, bool whole)
{
    walk *w = calloc(1, sizeof *w);
    w->kind = kind;
    w->ranks = ranks;
    w->count = count;
    w->nodes = nodes;
    for (int r = 0; r < ranks; r++) {
        w->data[r] = malloc((size_t)(count + 1) * sizeof(double));
        for (int64_t i = 0; i < count; i++)
            w->data[r][i] = element(r, i, whole);
    }
    return w;
}

static void walk_run(walk *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < w->ranks; r++)
            moved |= advance(w, r);
    }
    for (int r = 0; r < w->ranks; r++) {
        if (!w->done[r])
            fail_msg("%s, %d ranks, %ld elements: rank %d is stuck at step %d", w->kind->name,
                     w->ranks, (long)w->count, r, w->k[r]);
        for (int q = 0; q < w->ranks; q++)
            assert_int_equal(w->head[r][q], w->tail[r][q]); /* nothing left over */
    }
}

static void walk_free(walk *w)
{
    for (int r = 0; r < w->ranks; r++)
        free(w->data[r]);
    free(w);
}

/* The nodes of `ranks` ranks, in several manners: 0: one node; then blocks, round robin, uneven. */
static meg_topology *manner(int ranks, int which)
{
    int node[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        const int labels[] = {0, r, r / 2, r / 3, r % 2, r % 3, r > 0, r * r % 5, 9 - (r > 2)};
        node[r] = labels[which];
    }
    return meg_topology_new(ranks, node);
}
enum {
    MANNERS = 9
};

static void check_case(const meg_allreduce_kind *kind, int ranks, int64_t count,
                       const meg_topology *nodes)
{
    for (int whole = 0; whole < 2; whole++) {
        walk *w = walk_new(kind, ranks, count, nodes, whole);
        walk_run(w);
        for (int r = 0; r < ranks; r++)
            assert_memory_equal(w->data[r], w->data[0], (size_t)count * sizeof(double));
        for (int64_t i = 0; i < count; i++) {
            double sum = 0, allowed = whole ? 0 : 1e-15 * ranks;
            for (int r = 0; r < ranks; r++)
                sum += element(r, i, whole);
            if (fabs(w->data[0][i] - sum) > allowed * sum)
                fail_msg("%s, %d ranks, %ld elements: [%ld] is %.17g, expected %.17g", kind->name,
                         ranks, (long)count, (long)i, w->data[0][i], sum);
        }
        walk_free(w);
    }
}

static const int RANKS[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16};
enum {
    RANKS_COUNT = sizeof RANKS / sizeof *RANKS
};

/* Rank p has rows [rows * p / n, rows * (p + 1) / n). */
static void check_half(const meg_allreduce_kind *kind, int ranks, int64_t rows, int64_t row)
{
    walk *w = walk_new(kind, ranks, rows * row, NULL, true);
    w->rows = rows;
    walk_run(w);
    bool gather = kind == &meg_ring_gather;
    for (int p = 0; p < ranks; p++) {
        int64_t first = rows * p / ranks * row, last = rows * (p + 1) / ranks * row;
        assert_true(w->volume[p] <= rows * row);
        for (int64_t i = first; i < last; i++) {
            double sum = 0;
            for (int r = 0; r < ranks; r++)
                sum += element(r, i, true);
            if (!gather) assert_true(w->data[p][i] == sum);
            for (int r = 0; r < ranks && gather; r++)
                assert_true(w->data[r][i] == element(p, i, true));
        }
    }
    walk_free(w);
}

static void halves_have_owners(void **unused)
{
    (void)unused;
    for (int n = 0; n < RANKS_COUNT; n++)
        for (int64_t rows = 1; rows < 40; rows += 3)
            for (int64_t row = 1; row < 30; row += 9) {
                check_half(&meg_ring_scatter, RANKS[n], rows, row);
                check_half(&meg_ring_gather, RANKS[n], rows, row);
            }
}

static void sums_are_exact(void **unused)
{
    (void)unused;
    const int64_t counts[] = {0, 1, 2, 7, 16, 31, 240, 20011};
    for (int i = 0; meg_allreduce_at(i); i++) {
        const meg_allreduce_kind *kind = meg_allreduce_at(i);
        if (!kind->step) continue;
        int manners = kind == &meg_allreduce_hierarchical ? MANNERS : 1;
        for (int n = 0; n < RANKS_COUNT; n++)
            for (int m = 0; m < manners; m++) {
                meg_topology *nodes = manner(RANKS[n], m);
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    check_case(kind, RANKS[n], counts[c], nodes);
                meg_topology_free(nodes);
            }
    }
}

/* Elements that the busiest rank sends, with no remainders. */
static int64_t most_sent(const meg_allreduce_kind *kind, int ranks, int64_t count,
                         const meg_topology *nodes, int64_t *messages)
{
    walk *w = walk_new(kind, ranks, count, nodes, true);
    int64_t most = 0;
    walk_run(w);
    for (int r = 0; r < ranks; r++)
        if (w->volume[r] > most) most = w->volume[r];
    *messages = w->messages;
    walk_free(w);
    return most;
}

static void volume_is_that_of_the_formula(void **unused)
{
    (void)unused;
    const int64_t count = 55440; /* divisible by all that follows */
    int64_t messages;
    for (int n = 2; n <= 16; n++) {
        if (count % n) continue;
        assert_int_equal(most_sent(&meg_allreduce_ring, n, count, NULL, &messages),
                         2 * (n - 1) * (count / n));
        assert_int_equal(messages, 2 * n * (n - 1));
    }
    for (int n = 2, log = 1; n <= 16; n *= 2, log++) {
        int64_t sent = most_sent(&meg_allreduce_halving_doubling, n, count, NULL, &messages);
        assert_int_equal(sent, 2 * (n - 1) * (count / n));
        assert_int_equal(messages, 2 * log * n);
    }
    /* 6 ranks: 2 pairs of neighbours become one each; an even rank of a pair sends a half, then
     * takes part among 4, then sends the result back. */
    assert_int_equal(most_sent(&meg_allreduce_halving_doubling, 6, count, NULL, &messages),
                     count / 2 + 2 * 3 * (count / 4) + count);
    assert_int_equal(messages, 2 * 2 + 2 + 2 * 2 * 4 + 2);
    /* 4 nodes of 3: rings of 3, and of 4 over a third. */
    meg_topology *nodes = manner(12, 3);
    assert_int_equal(nodes->count, 4);
    assert_int_equal(most_sent(&meg_allreduce_hierarchical, 12, count, nodes, &messages),
                     2 * 2 * (count / 3) + 2 * 3 * (count / 3 / 4));
    meg_topology_free(nodes);
}

static double simulated(const meg_allreduce_kind *kind, int ranks, int64_t count,
                        const meg_topology *nodes, const meg_allreduce_rates *rates)
{
    walk *w = walk_new(kind, ranks, count, nodes, true);
    double last = 0;
    w->rates = rates;
    walk_run(w);
    for (int r = 0; r < ranks; r++)
        if (w->clock[r] > last) last = w->clock[r];
    walk_free(w);
    return last;
}

/* The formulas against a clock that runs along: equal where no remainder and no odd size disturbs,
 * near for nodes of different size. */
static void cost_is_the_time_of_the_steps(void **unused)
{
    (void)unused;
    const meg_allreduce_rates rates = {{1e-6, 5e-6}, {1e-10, 1e-9}, 5e-11};
    const int64_t count = 55440;
    for (int i = 0; meg_allreduce_at(i); i++) {
        const meg_allreduce_kind *kind = meg_allreduce_at(i);
        if (!kind->step) continue;
        for (int n = 2; n <= 16; n++)
            for (int m = 0; m < MANNERS; m++) {
                meg_topology *nodes = manner(n, m);
                bool flat = kind != &meg_allreduce_hierarchical;
                bool even = n % nodes->count == 0 && nodes->smallest == n / nodes->count;
                meg_allreduce a = {n, 0, count, flat ? NULL : nodes, 0};
                double expected = kind->cost(&a, 8, &rates);
                double got = simulated(kind, n, count, a.groups, &rates);
                double allowed = flat || even ? 1e-3 : 0.5;
                if (fabs(got - expected) > allowed * expected)
                    fail_msg("%s, %d ranks, manner %d: the formula says %g s, the steps take %g s",
                             kind->name, n, m, expected, got);
                meg_topology_free(nodes);
            }
    }
}

/* The picture of allreduce_ring.c: place 0 sends part 0 first, and ends the adding with part 1. */
static void ring_is_as_drawn(void **unused)
{
    (void)unused;
    static const struct {
        int send, recv;
        bool add;
    } place0[] = {{0, 2, true}, {2, 1, true}, {1, 0, false}, {0, 2, false}};
    meg_allreduce a = {3, 0, 30, NULL, 0};
    meg_allreduce_step s;
    for (int k = 0; k < 4; k++) {
        assert_true(meg_allreduce_ring.step(&a, k, &s));
        assert_int_equal(s.to, 1);
        assert_int_equal(s.from, 2);
        assert_int_equal(s.send.at, 10 * place0[k].send);
        assert_int_equal(s.recv.at, 10 * place0[k].recv);
        assert_int_equal(s.add, place0[k].add);
    }
    assert_false(meg_allreduce_ring.step(&a, 4, &s));
}

static void registry_is_complete(void **unused)
{
    (void)unused;
    int count = 0;
    for (; meg_allreduce_at(count); count++) {
        const meg_allreduce_kind *kind = meg_allreduce_at(count);
        assert_ptr_equal(meg_allreduce_find(kind->name), kind);
        assert_true(kind->doc && kind->paper && kind->cost);
    }
    assert_int_equal(count, 4);
    assert_null(meg_allreduce_find("star"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry_is_complete),
        cmocka_unit_test(ring_is_as_drawn),
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(halves_have_owners),
        cmocka_unit_test(volume_is_that_of_the_formula),
        cmocka_unit_test(cost_is_the_time_of_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
