/* Dropout draws by the global number of an element: a batch in micro-batches, or in pieces, gets
 * the mask of the whole; other steps, seeds and nodes get others. Backward applies forward's mask.
 */
#include "graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    N = 6,
    C = 5,
    H = 7,
    W = 9,
    EACH = C * H * W,
    ALL = N * EACH
};

static meg_graph *graph_of(int64_t batch, const char *name, const char *attrs)
{
    meg_graph *g = meg_graph_create("dropout");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){batch, C, H, W});
    if (meg_graph_add(g, "dropout", name, attrs, 1, &x) < 0) fail_msg("%s", g->error.message);
    return g;
}

/* Runs a pass over the whole of a graph of `batch` samples: from and to are (batch, C, H, W). */
static void run(float *to, const float *from, const meg_graph *g, meg_pass pass, meg_moment m)
{
    const meg_node *v = &g->node[0];
    meg_box shape = g->value[0].shape;
    bool back = pass == MEG_BACKWARD;
    meg_call c = {.graph = g, .node = v, .work = meg_op_whole(g, v), .moment = m};
    c.t[back ? MEG_DY : MEG_X] = (meg_array){shape, (void *)from};
    c.t[back ? MEG_DX : MEG_Y] = (meg_array){shape, to};
    meg_op_kernel(v->op, pass, MEG_F32)(&c);
}

/* The mask of a batch: 0 or 1 / (1 - rate). */
static void mask_of(float mask[ALL], const char *name, const char *attrs, meg_moment m)
{
    float ones[ALL];
    meg_graph *g = graph_of(N, name, attrs);
    for (int i = 0; i < ALL; i++)
        ones[i] = 1;
    run(mask, ones, g, MEG_FORWARD, m);
    meg_graph_destroy(g);
}

static void test_share(void **state)
{
    (void)state;
    float mask[ALL];
    int zeros = 0;
    mask_of(mask, "drop", "rate=0.25", (meg_moment){3, 1, 0, 0});
    for (int i = 0; i < ALL; i++) {
        zeros += mask[i] == 0;
        assert_true(mask[i] == 0 || mask[i] == (float)(1 / 0.75));
    }
    /* four standard deviations of a fair draw */
    double off = fabs(zeros - 0.25 * ALL), most = 4 * sqrt(ALL * 0.25 * 0.75);
    if (off > most)
        fail_msg("%d zeros of %d: off by %g, expected at most %g", zeros, ALL, off, most);
}

static void test_micro_batches(void **state)
{
    (void)state;
    float whole[ALL], parts[ALL], ones[ALL];
    meg_graph *g = graph_of(2, "drop", "rate=0.5");
    for (int i = 0; i < ALL; i++)
        ones[i] = 1;
    mask_of(whole, "drop", "rate=0.5", (meg_moment){3, 8, 0, 0});
    for (int n = 0; n < N; n += 2)
        run(parts + n * EACH, ones, g, MEG_FORWARD, (meg_moment){3, 8, n, 0});
    assert_memory_equal(whole, parts, sizeof whole);
    meg_graph_destroy(g);
}

/* What is drawn for together is dropped together; micro-batches draw as the whole batch does. */
static void check_together(const char *attrs, int group)
{
    float whole[ALL], parts[ALL], ones[ALL];
    meg_graph *g = graph_of(2, "drop", attrs);
    int zeros = 0, apart[ALL] = {0};
    for (int i = 0; i < ALL; i++)
        ones[i] = 1;
    for (uint64_t step = 0; step < 20; step++) {
        mask_of(whole, "drop", attrs, (meg_moment){3, step, 0, 0});
        for (int n = 0; n < N; n += 2)
            run(parts + n * EACH, ones, g, MEG_FORWARD, (meg_moment){3, step, n, 0});
        assert_memory_equal(whole, parts, sizeof whole);
        for (int i = 0; i < ALL; i++)
            assert_true(whole[i] == whole[i / group * group]);
        for (int i = 0; i < ALL; i += group)
            zeros += whole[i] == 0;
        for (int lag = group; lag < ALL; lag += group)
            for (int i = lag; i < ALL; i += group)
                apart[lag] += whole[i] != whole[i - lag];
    }
    for (int lag = group; lag < ALL; lag += group)
        if (!apart[lag]) fail_msg("%s: elements %d apart are always dropped together", attrs, lag);
    int draws = 20 * ALL / group;
    if (!(zeros > draws / 4 && zeros < 3 * draws / 4))
        fail_msg("%s: %d of %d draws are zeros, expected about half", attrs, zeros, draws);
    meg_graph_destroy(g);
}

static void test_together(void **state)
{
    (void)state;
    check_together("per=channel", H * W);
    check_together("per=sample", EACH);
    check_together("per=batch", ALL);
}

static void test_keys(void **state)
{
    (void)state;
    float first[ALL], other[ALL];
    mask_of(first, "drop", "rate=0.5", (meg_moment){3, 8, 0, 0});
    mask_of(other, "drop", "rate=0.5", (meg_moment){3, 8, 0, 0});
    assert_memory_equal(first, other, sizeof first);
    mask_of(other, "drop", "rate=0.5", (meg_moment){3, 9, 0, 0});
    assert_memory_not_equal(first, other, sizeof first);
    mask_of(other, "drop", "rate=0.5", (meg_moment){4, 8, 0, 0});
    assert_memory_not_equal(first, other, sizeof first);
    mask_of(other, "drop2", "rate=0.5", (meg_moment){3, 8, 0, 0});
    assert_memory_not_equal(first, other, sizeof first);
}

static void test_backward_and_eval(void **state)
{
    (void)state;
    float mask[ALL], from[ALL], to[ALL];
    meg_moment m = {3, 8, 12, 0};
    meg_graph *g = graph_of(N, "drop", "rate=0.25");
    mask_of(mask, "drop", "rate=0.25", m);
    for (int i = 0; i < ALL; i++)
        from[i] = (float)(i % 11 - 5);
    run(to, from, g, MEG_BACKWARD, m);
    for (int i = 0; i < ALL; i++)
        assert_true(to[i] == from[i] * mask[i]);
    run(to, from, g, MEG_EVAL, m);
    assert_memory_equal(to, from, sizeof to);
    meg_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share), cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_keys), cmocka_unit_test(test_backward_and_eval),
        cmocka_unit_test(test_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
