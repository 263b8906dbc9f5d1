/* Convolution, pooling and their like: answers worked out by hand (and agreed with PyTorch's), where
 * the conformance test t110 can only compare an operator with itself; ties and NaN; and what users
 * are told when shapes do not fit.
 */
#include "graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 64
}; /* elements of any tensor here */

typedef struct answer {
    const char *op, *attrs;
    int rank, inputs;
    int64_t dims[MEG_AXES];
    double x[2][16], w[16]; /* data inputs (of the same dims) and weight */
    int64_t y_dims[MEG_AXES];
    double y[16];
    double dx[16]; /* for dy = 1 everywhere */
} answer;

static const answer answers[] = {
    /* padded 0 [1 2 3 4] 0; the third window overhangs: its last pixel is not even padding */
    {"avgpool",
     "kernel=3 stride=2 pad=1 ceil=1",
     3,
     1,
     {1, 1, 4},
     {{1, 2, 3, 4}},
     {0},
     {1, 1, 3},
     {1, 3, 2},
     {1. / 3, 2. / 3, 1. / 3, 1. / 3 + .5}},
    {"avgpool",
     "kernel=3 stride=2 pad=1 ceil=1 count_pad=0",
     3,
     1,
     {1, 1, 4},
     {{1, 2, 3, 4}},
     {0},
     {1, 1, 3},
     {1.5, 3, 4},
     {.5, .5 + 1. / 3, 1. / 3, 1. / 3 + 1}},
    {"maxpool",
     "kernel=3 stride=2 pad=1 ceil=1",
     3,
     1,
     {1, 1, 4},
     {{-1, -2, -3, -4}},
     {0},
     {1, 1, 3},
     {-1, -2, -4},
     {1, 1, 0, 1}},
    /* a window that would start in the padding behind is dropped */
    {"maxpool",
     "kernel=2 pad=0:1 ceil=1",
     3,
     1,
     {1, 1, 4},
     {{1, 2, 3, 4}},
     {0},
     {1, 1, 2},
     {2, 4},
     {0, 1, 0, 1}},
    /* ties: the first pixel, row by row */
    {"maxpool",
     "kernel=2 stride=1",
     4,
     1,
     {1, 1, 2, 3},
     {{5, 5, 5, 5, 5, 5}},
     {0},
     {1, 1, 1, 2},
     {5, 5},
     {1, 1, 0, 0, 0, 0}},
    /* taps 1, 10 two apart over 0 [1 2 3 4 5], every second output */
    {"conv",
     "filters=1 kernel=2 stride=2 dilation=2 pad=1:0 bias=0",
     3,
     1,
     {1, 1, 5},
     {{1, 2, 3, 4, 5}},
     {1, 10},
     {1, 1, 2},
     {20, 42},
     {0, 11, 0, 10, 0}},
    /* two groups: filters 0, 1 see channel 0; filters 2, 3 channel 1 */
    {"conv",
     "filters=4 kernel=1 groups=2 bias=0",
     3,
     1,
     {1, 2, 1},
     {{3, 5}},
     {1, 2, 10, 20},
     {1, 4, 1},
     {3, 6, 50, 100},
     {3, 30}},
    /* 1 * (1 10 100) and, two further, 2 * (1 10 100); the first output is cut off, one is added */
    {"conv_transpose",
     "filters=1 kernel=3 stride=2 pad=1:0 output_pad=1 bias=0",
     3,
     1,
     {1, 1, 2},
     {{1, 2}},
     {1, 10, 100},
     {1, 1, 5},
     {10, 102, 20, 200, 0},
     {110, 111}},
    /* positions -1/4, 1/4, 3/4, 5/4 between the middles of the pixels */
    {"resize",
     "mode=linear scale=2",
     3,
     1,
     {1, 1, 2},
     {{1, 3}},
     {0},
     {1, 1, 4},
     {1, 1.5, 2.5, 3},
     {2, 2}},
    {"resize",
     "mode=linear size=3 coords=align_corners",
     3,
     1,
     {1, 1, 2},
     {{1, 3}},
     {0},
     {1, 1, 3},
     {1, 2, 3},
     {1.5, 1.5}},
    /* positions 0, 2/3, 4/3, rounded down */
    {"resize", "size=3", 3, 1, {1, 1, 2}, {{1, 3}}, {0}, {1, 1, 3}, {1, 1, 3}, {2, 1}},
    /* bins 0..1 and 1..2: the middle pixel is in both */
    {"adaptive_avgpool",
     "size=2",
     3,
     1,
     {1, 1, 3},
     {{1, 2, 4}},
     {0},
     {1, 1, 2},
     {1.5, 3},
     {.5, 1, .5}},
    {"dense",
     "units=2 bias=0",
     4,
     1,
     {1, 2, 1, 2},
     {{1, 2, 3, 4}},
     {1, 10, 100, 1000, 0, 0, 0, 1},
     {1, 2},
     {4321, 4},
     {1, 10, 100, 1001}},
    {"flatten",
     "",
     4,
     1,
     {2, 2, 1, 2},
     {{1, 2, 3, 4, 5, 6, 7, 8}},
     {0},
     {2, 4},
     {1, 2, 3, 4, 5, 6, 7, 8},
     {1, 1, 1, 1, 1, 1, 1, 1}},
    {"concat",
     "",
     3,
     2,
     {2, 1, 2},
     {{1, 2, 3, 4}, {5, 6, 7, 8}},
     {0},
     {2, 2, 2},
     {1, 2, 5, 6, 3, 4, 7, 8},
     {1, 1, 1, 1}},
};

static meg_graph *graph_of(const answer *a)
{
    meg_graph *g = meg_graph_create("answer");
    int in[2] = {0};
    for (int i = 0; i < a->inputs; i++)
        in[i] = meg_graph_input(g, i ? "b" : "a", a->rank, a->dims);
    if (meg_graph_add(g, a->op, "node", a->attrs, a->inputs, in) < 0)
        fail_msg("%s %s: %s", a->op, a->attrs, g->error.message);
    return g;
}

/* Runs forward, then backward of the data inputs, over the whole. */
static void run(meg_graph *g, const answer *a, double y[MOST], double dx[2][MOST])
{
    const meg_node *v = &g->node[0];
    static const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    double dy[16], weight[16];
    uint8_t aux[MOST];
    memcpy(dy, ones, sizeof dy);
    memcpy(weight, a->w, sizeof weight);
    meg_call c = {.graph = g, .node = v, .work = meg_op_whole(g, v)};
    for (int i = 0; i < v->inputs; i++) {
        void *data = i < a->inputs ? (void *)(uintptr_t)a->x[i] : weight;
        c.t[MEG_X + i] = (meg_array){g->value[v->in[i]].shape, data};
        if (i < a->inputs) c.t[MEG_DX + i] = (meg_array){c.t[MEG_X + i].box, dx[i]};
    }
    c.t[MEG_Y] = (meg_array){c.work.out, y};
    c.t[MEG_DY] = (meg_array){c.work.out, dy};
    c.t[MEG_AUX] = (meg_array){c.work.out, aux};
    meg_op_kernel(v->op, MEG_FORWARD, MEG_F64)(&c);
    meg_op_kernel(v->op, MEG_BACKWARD, MEG_F64)(&c);
}

static void expect(const answer *a, const char *what, const double *got, const double *expected,
                   int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= 1e-12 * fabs(expected[i])))
            fail_msg("%s %s: %s[%d] is %g, expected %g", a->op, a->attrs, what, (int)i, got[i],
                     expected[i]);
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const answer *a = &answers[i];
        double y[MOST], dx[2][MOST];
        meg_graph *g = graph_of(a);
        const meg_value *made = &g->value[g->node[0].out[0]], *in = &g->value[g->node[0].in[0]];
        for (int k = 0; k < made->rank; k++)
            assert_int_equal(made->dims[k], a->y_dims[k]);
        run(g, a, y, dx);
        expect(a, "y", y, a->y, meg_box_size(&made->shape));
        for (int k = 0; k < a->inputs; k++)
            expect(a, "dx", dx[k], a->dx, meg_box_size(&in->shape));
        meg_graph_destroy(g);
    }
}

/* What nobody wrote must not hide behind a larger neighbour. */
static void test_nan_wins(void **state)
{
    (void)state;
    answer a = {"maxpool", "kernel=3", 3, 1, {1, 1, 3}, {{1, (double)NAN, 2}}, {0}, {0}, {0}, {0}};
    double y[MOST], dx[2][MOST];
    meg_graph *g = graph_of(&a);
    run(g, &a, y, dx);
    assert_true(isnan(y[0]));
    assert_true(dx[0][1] == 1);
    meg_graph_destroy(g);
}

/* The maxima go back to where they were; the 9, which won two windows, once. */
static void test_unpool(void **state)
{
    (void)state;
    double x[] = {1, 9, 2, 4, 3, 8, 7, 5, 6}, y[4], back[9];
    const double expected[] = {0, 9, 0, 0, 0, 8, 7, 0, 0};
    const int32_t places[] = {1, 1, 6, 5};
    int32_t index[4];
    uint8_t aux[4];
    meg_graph *g = meg_graph_create("unpool");
    int a = meg_graph_input(g, "a", 4, (int64_t[]){1, 1, 3, 3});
    int b = meg_graph_add(g, "maxpool", "pool", "kernel=2 stride=1 indices=1", 1, &a);
    int i = meg_graph_find_value(g, "pool:1");
    int c = meg_graph_add(g, "max_unpool", "back", "kernel=2 stride=1", 2, (int[]){b, i});
    if (c < 0) fail_msg("%s", g->error.message);
    meg_box whole = g->value[a].shape, made = g->value[b].shape;
    meg_call pool = {.graph = g, .node = &g->node[0], .work = meg_op_whole(g, &g->node[0])};
    pool.t[MEG_X] = (meg_array){whole, x};
    pool.t[MEG_Y] = (meg_array){made, y};
    pool.t[MEG_Y + 1] = (meg_array){made, index};
    pool.t[MEG_AUX] = (meg_array){made, aux};
    meg_op_kernel(g->node[0].op, MEG_FORWARD, MEG_F64)(&pool);
    assert_memory_equal(index, places, sizeof places);
    meg_call unpool = {.graph = g, .node = &g->node[1], .work = meg_op_whole(g, &g->node[1])};
    unpool.t[MEG_X] = pool.t[MEG_Y];
    unpool.t[MEG_X + 1] = pool.t[MEG_Y + 1];
    unpool.t[MEG_Y] = (meg_array){g->value[c].shape, back};
    meg_op_kernel(g->node[1].op, MEG_FORWARD, MEG_F64)(&unpool);
    for (int k = 0; k < 9; k++)
        assert_true(back[k] == expected[k]);
    meg_graph_destroy(g);
}

/* ---- messages ---- */

typedef struct refusal {
    const char *op, *attrs;
    int rank, inputs;
    int64_t dims[2][MEG_AXES];
    const char *message;
} refusal;

static const refusal refusals[] = {
    {"conv",
     "filters=2 kernel=7",
     4,
     1,
     {{1, 3, 5, 9}},
     "node: kernel 7 does not fit the padded input of 5 (axis h): use kernel <= 5 or more padding"},
    {"conv",
     "filters=2 kernel=3 dilation=3 pad=1",
     3,
     1,
     {{1, 3, 4}},
     "node: kernel 3 with dilation 3 does not fit the padded input of 6 (axis w): use kernel <= 2 "
     "or"
     " more padding"},
    {"conv",
     "filters=4 kernel=1 groups=4",
     4,
     1,
     {{1, 6, 5, 5}},
     "node: groups=4 does not divide the 6 channels of the input: use a divisor of 6"},
    {"conv",
     "filters=4 kernel=1 groups=3",
     4,
     1,
     {{1, 6, 5, 5}},
     "node: groups=3 does not divide filters=4: use a multiple of 3 filters"},
    {"conv",
     "filters=4 kernel=1",
     2,
     1,
     {{2, 6}},
     "node: conv slides over 1 to 3 spatial axes (an input of rank 3 to 5), but its input has rank "
     "2"},
    {"conv",
     "filters=4 kernel=1x3x3",
     4,
     1,
     {{2, 6, 5, 5}},
     "node: kernel lists 3 numbers, but the input has 2 spatial axes: give one for all or one for "
     "each"},
    {"maxpool",
     "kernel=2 pad=1x1",
     3,
     1,
     {{2, 6, 5}},
     "node: pad lists 2 numbers, but the input has 1 spatial axis: give one for all or one for "
     "each"},
    {"maxpool",
     "kernel=2 pad=3",
     4,
     1,
     {{1, 1, 5, 5}},
     "node: the window of output 0 (axis h) lies wholly in the padding: kernel 2, stride 2, "
     "dilation"
     " 1, pad 3:3 over an input of 5; use less padding"},
    {"avgpool",
     "kernel=2 stride=1 pad=0:2",
     3,
     1,
     {{1, 1, 3}},
     "node: the window of output 3 (axis w) lies wholly in the padding: kernel 2, stride 1, "
     "dilation"
     " 1, pad 0:2 over an input of 3; use less padding"},
    {"conv_transpose",
     "filters=1 kernel=2 pad=3",
     3,
     1,
     {{1, 1, 2}},
     "node: pad takes 6 of the 3 outputs that kernel 2 makes of 2 pixels (axis w): use less "
     "padding"},
    {"conv_transpose",
     "filters=1 kernel=2 stride=2 output_pad=2",
     3,
     1,
     {{1, 1, 2}},
     "node: output_pad 2 (axis w), but stride is 2 and dilation 1: use less than the larger of "
     "them"},
    {"max_unpool",
     "kernel=2",
     3,
     2,
     {{1, 1, 2}, {1, 1, 2}},
     "node: indices 'b' are f32, but must be i32: the second output of maxpool indices=1"},
    {"resize",
     "mode=linear",
     4,
     1,
     {{1, 1, 5, 5}},
     "node: resize got neither size nor scale: give one of size= and scale="},
    {"resize",
     "scale=2x-1",
     4,
     1,
     {{1, 1, 5, 5}},
     "node: scale=2x-1, but must be positive numbers, one for all axes or one for each: 2, 1.5, "
     "1x2.5"},
    {"resize",
     "scale=0.1",
     3,
     1,
     {{1, 1, 5}},
     "node: scale 0.1 makes 0 of 5 pixels: use one that leaves 1 or more"},
    {"adaptive_avgpool",
     "size=2x2",
     3,
     1,
     {{1, 1, 5}},
     "node: size lists 2 numbers, but the input has 1 spatial axis: give one for all or one for "
     "each"},
    {"groupnorm",
     "groups=4",
     4,
     1,
     {{1, 6, 5, 5}},
     "node: groups=4 does not divide the 6 channels of the input: use a divisor of 6"},
    {"instancenorm",
     "",
     2,
     1,
     {{2, 6}},
     "node: instancenorm averages over pixels, but its input has rank 2: use 3 to 5 axes"},
    {"concat",
     "",
     3,
     2,
     {{1, 2, 3}, {1, 2, 4}},
     "node: 'a' is 1x2x3, but 'b' is 1x2x4: concat wants two axes or more, all equal but the "
     "second,"
     " the channels"},
    {"dense",
     "units=3",
     1,
     1,
     {{4}},
     "node: dense wants an input of samples and channels (rank 2 to 5), but 'a' has rank 1"},
    {"dense",
     "units=3",
     2,
     2,
     {{4, 5}, {4, 5}},
     "node: input 'b' of dense is [0:4 0:5 0:1 0:1 0:1] (n c d h w), but must be [0:3 0:5 0:1 0:1 "
     "0:1]"},
    {"relu",
     "",
     3,
     1,
     {{1, 1 << 30, 1 << 19}},
     "a: more than 281474976710656 numbers; use smaller extents"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        meg_graph *g = meg_graph_create("refusal");
        int in[2] = {0};
        for (int k = 0; k < r->inputs; k++)
            in[k] = meg_graph_input(g, k ? "b" : "a", r->rank, r->dims[k]);
        assert_int_equal(meg_graph_add(g, r->op, "node", r->attrs, r->inputs, in), -1);
        assert_string_equal(g->error.message, r->message);
        meg_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_nan_wins),
        cmocka_unit_test(test_unpool), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
