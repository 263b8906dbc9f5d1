/* Layouts and transfers, on imaginary ranks and in double.
 *
 * Random graphs under random plans must give the loss and the gradients of one rank; every transfer
 * fills what it should once, and passes the dot test <A x, y> = <x, A' y>. A halo exchange with its
 * corners is drawn and asserted; illegal layouts get messages that say what would be legal; 4,096
 * ranks are planned in less than a second.
 *
 *     t400-layout [cases] [first seed]
 */
#include "imaginary_check.h"

#include <time.h>

static const double TOLERANCE = 1e-10;     /* summation order, in double */
static const double TOLERANCE_DOT = 1e-12; /* the same numbers, added in another order */
static const double DEGENERATE = 1e-6;     /* a loss or gradient that proves nothing */
static const double MOST_SECONDS = 1;      /* to plan one value for 4,096 ranks */

/* ---- what leaves hold ---- */

/* -1 to 1 of an element of a value; weights so small that outputs stay near 1 */
static double noise(const void *context, const meg_graph *g, int value, const int64_t p[])
{
    const meg_value *v = &g->value[value];
    uint64_t seed = *(const uint64_t *)context + (uint64_t)value;
    uint64_t i = (uint64_t)meg_box_at(&v->shape, p);
    double x = (double)(scramble(scramble(seed) + i) >> 11) / 0x1p52 - 1;
    if (v->kind != MEG_PARAMETER) return x;
    return x * sqrt(3 / ((double)meg_box_size(&v->shape) / (double)v->shape.hi[MEG_N]));
}

/* ---- random cases ---- */

typedef struct trial { /* one case */
    uint64_t seed, state;
    meg_pool *pool;
    meg_graph *graph;
    planner planner;
    imaginary *one, *run;
} trial;

typedef struct tally {
    int cases, refused, failed, transfers;
    int partial, empty, beyond, copied, disjoint, tied, in_place, family[FAMILY_COUNT];
    int64_t messages;
    double worst, worst_dot;
} tally;

static bool disjoint(const meg_mesh *a, const meg_mesh *b)
{
    for (int i = 0; i < a->size; i++)
        if (meg_mesh_find(b, a->rank[i]) >= 0) return false;
    return true;
}

static void count_site(const imaginary *run, const site *s, tally *has)
{
    const meg_layout *l = &run->layout[s->value];
    int senders[RANKS] = {0};
    for (int64_t i = 0; i < s->fill.messages; i++) {
        has->partial |= s->fill.message[i].add;
        senders[s->fill.message[i].to]++;
    }
    for (int i = 0; i < l->mesh->size; i++) {
        meg_part part = meg_layout_part(l, i);
        bool idle = meg_part_idle(&part);
        has->empty |= idle;
        has->copied |= part.copy > 0 && !idle;
        has->beyond |= s->home && !idle && senders[l->mesh->rank[i]] > 2;
        has->in_place |= s->home && s->fill.messages > 0;
    }
}

/* Which hard things did this case have in it? */
static void count(const trial *t, tally *sum)
{
    tally has = {0};
    for (int s = 0; s < t->run->sites; s++) {
        count_site(t->run, &t->run->site[s], &has);
        sum->messages += t->run->site[s].fill.messages;
    }
    for (int i = 0; i < t->graph->values; i++)
        has.tied |= t->graph->value[i].kind == MEG_PARAMETER &&
                    meg_graph_consumers(t->graph, i) > 1;
    sum->transfers += t->run->sites;
    sum->partial += has.partial, sum->empty += has.empty, sum->beyond += has.beyond;
    sum->copied += has.copied, sum->in_place += has.in_place, sum->tied += has.tied;
    const planner *p = &t->planner;
    sum->disjoint += p->segments > 1 && disjoint(p->mesh[0], p->mesh[1]);
    for (int f = 0; f < FAMILY_COUNT; f++)
        sum->family[f] += p->used[f];
}

static void judge(trial *t, tally *sum)
{
    double want = imaginary_forward(t->one, noise, &t->seed);
    double got = imaginary_forward(t->run, noise, &t->seed);
    imaginary_backward(t->one);
    imaginary_backward(t->run);
    if (want < DEGENERATE || largest_gradient(t->one) < DEGENERATE) {
        sum->refused++;
        return;
    }
    double error = larger(fabs(got - want) / want, gradient_error(t->one, t->run)), dots = 0;
    int64_t wrong = 0;
    for (int s = 0; s < t->run->sites; s++) {
        dots = larger(dots, dot_error(t->run, &t->run->site[s], &t->state));
        wrong += miscounted(t->run, &t->run->site[s]);
    }
    sum->cases++;
    sum->worst = larger(sum->worst, error);
    sum->worst_dot = larger(sum->worst_dot, dots);
    count(t, sum);
    if (error <= TOLERANCE && dots <= TOLERANCE_DOT && wrong == 0) return;
    sum->failed++;
    print_error("seed %" PRIu64 ": loss %.15g, expected %.15g; gradients off by %.1e, dot test by "
                "%.1e; %" PRId64 " elements not filled once\n",
                t->seed, got, want, error, dots, wrong);
}

static void run_case(uint64_t seed, tally *sum)
{
    trial t = {.seed = seed, .state = scramble(seed), .pool = meg_pool_new()};
    t.graph = random_graph(&t.state);
    t.planner = (planner){.pool = t.pool, .state = &t.state};
    imaginary_plan single = single_plan(t.pool, t.graph);
    imaginary_plan plan = random_plan(&t.planner, t.graph);
    t.one = imaginary_new(t.graph, &single);
    t.run = imaginary_new(t.graph, &plan);
    judge(&t, sum);
    imaginary_free(t.run);
    imaginary_free(t.one);
    meg_graph_destroy(t.graph);
    meg_pool_free(t.pool);
}

static void print_tally(const tally *sum)
{
    print_message("%d cases (%d degenerate refused), %d failed; %d transfers, %" PRId64
                  " messages\n",
                  sum->cases, sum->refused, sum->failed, sum->transfers, sum->messages);
    print_message("worst error of loss and gradients %.1e, of the dot test %.1e\n", sum->worst,
                  sum->worst_dot);
    print_message("cases with halos in place %d, from over 2 ranks %d, partial %d, copied %d, "
                  "empty parts %d, tied weights %d, disjoint meshes %d\n",
                  sum->in_place, sum->beyond, sum->partial, sum->copied, sum->empty, sum->tied,
                  sum->disjoint);
#define X(name) print_message(#name " %d ", sum->family[FAMILY_##name]);
    FAMILIES(X)
#undef X
    print_message("\n");
}

typedef struct request {
    int cases;
    uint64_t first;
} request;

static void test_random(void **state)
{
    const request *r = *state;
    tally sum = {0};
    for (int i = 0; i < r->cases; i++)
        run_case(r->first + (uint64_t)i, &sum);
    print_tally(&sum);
    assert_int_equal(sum.failed, 0);
    assert_true(sum.refused * 50 <= r->cases);
    if (r->cases < 100) return;
    /* A test that never meets the hard cases would pass, too. */
    int least = r->cases / 25;
    assert_true(sum.in_place > least && sum.beyond > least && sum.partial > least);
    assert_true(sum.copied > least && sum.empty > least && sum.tied > least);
    assert_true(sum.disjoint > least);
    for (int f = 0; f < FAMILY_COUNT; f++)
        assert_true(sum.family[f] > least);
}

/* ---- pictures ---- */

static const int QUARTERS[MEG_MESH_AXES] = {1, 1, 1, 2, 2, 1};

static meg_layout spatial(meg_pool *pool, const meg_mesh *mesh, const meg_graph *g, int value)
{
    meg_layout l = meg_layout_new(mesh, g, value);
    for (int a = MEG_H; a <= MEG_W; a++)
        l.on[a] = (meg_along){MEG_SPLIT_CUT, a,
                              meg_cuts_even(pool, l.whole.out.hi[a], mesh->dim[a], 1)};
    return l;
}

/* The halos of a node that reads its input where that is made. */
static meg_transfer halo(meg_pool *pool, const meg_mesh *mesh, const meg_graph *g)
{
    const meg_node *v = &g->node[0];
    meg_layout x = spatial(pool, mesh, g, v->in[0]), y = spatial(pool, mesh, g, v->out[0]);
    meg_held held = {mesh, meg_layout_needs(pool, &y, g, v, 0), true};
    return meg_transfer_new(pool, &x, &held);
}

static void expect_text(const meg_transfer *t, const char *want)
{
    char *got = NULL;
    size_t size;
    FILE *out = open_memstream(&got, &size);
    meg_transfer_print(t, out);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

/* A 3 x 3 convolution of 4 x 4 pixels on 2 x 2 ranks. Each holds the row, the column and the corner
 * that its windows reach into:
 *
 *     0 0 | 1 1        0 0 1 .      . 0 1 1      . . . .      . . . .
 *     0 0 | 1 1        0 0 1 .      . 0 1 1      0 0 1 .      . 0 1 1
 *     ----+----        2 2 3 .      . 2 3 3      2 2 3 .      . 2 3 3
 *     2 2 | 3 3        . . . .      . . . .      2 2 3 .      . 2 3 3
 *     2 2 | 3 3        rank 0       rank 1       rank 2       rank 3
 */
static void test_picture(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_graph_create("picture");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){1, 1, 4, 4});
    meg_graph_add(g, "conv", "conv", "filters=1 kernel=3 pad=1 bias=0", 1, &x);
    meg_transfer t = halo(pool, meg_mesh_new(pool, QUARTERS, NULL), g);
    expect_text(&t, "12 messages of 20 elements, 0 copied within a rank\n"
                    "1 -> 0  set [0:1 0:1 0:1 0:2 2:3]\n"
                    "2 -> 0  set [0:1 0:1 0:1 2:3 0:2]\n"
                    "3 -> 0  set [0:1 0:1 0:1 2:3 2:3]\n"
                    "0 -> 1  set [0:1 0:1 0:1 0:2 1:2]\n"
                    "2 -> 1  set [0:1 0:1 0:1 2:3 1:2]\n"
                    "3 -> 1  set [0:1 0:1 0:1 2:3 2:4]\n"
                    "0 -> 2  set [0:1 0:1 0:1 1:2 0:2]\n"
                    "1 -> 2  set [0:1 0:1 0:1 1:2 2:3]\n"
                    "3 -> 2  set [0:1 0:1 0:1 2:4 2:3]\n"
                    "0 -> 3  set [0:1 0:1 0:1 1:2 1:2]\n"
                    "1 -> 3  set [0:1 0:1 0:1 1:2 2:4]\n"
                    "2 -> 3  set [0:1 0:1 0:1 2:4 1:2]\n");
    meg_rank_traffic by[4];
    meg_transfer_by_rank(&t, 4, by);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(by[r].sent.messages, 3);
        assert_int_equal(by[r].received.elements, 5);
    }
    meg_graph_destroy(g);
    meg_pool_free(pool);
}

/* Three pixels on ranks 0 | 1 1 (a copy on 2 | 3 3), wanted whole by 3 and by 5, which makes none:
 * 3 is served by its own copy, 5 by the copy of its position. The gradient goes the same way back.
 */
static void test_copies(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_graph_create("copies");
    int x = meg_graph_input(g, "x", 3, (int64_t[]){1, 1, 3});
    meg_layout l = meg_layout_new(
        meg_mesh_new(pool, (int[]){2, 1, 1, 1, 2, 1}, (int[]){0, 1, 2, 3}), g, x);
    l.on[MEG_W] = (meg_along){MEG_SPLIT_CUT, MEG_W, (int64_t[]){0, 1, 3}};
    meg_box whole[] = {g->value[x].shape, g->value[x].shape};
    meg_held held = {meg_mesh_new(pool, (int[]){2, 1, 1, 1, 1, 1}, (int[]){5, 3}), whole, false};
    meg_transfer t = meg_transfer_new(pool, &l, &held), back = meg_transfer_adjoint(pool, &t);
    expect_text(&t, "3 messages of 4 elements, 2 copied within a rank\n"
                    "0 -> 5  set [0:1 0:1 0:1 0:1 0:1]\n"
                    "1 -> 5  set [0:1 0:1 0:1 0:1 1:3]\n"
                    "2 -> 3  set [0:1 0:1 0:1 0:1 0:1]\n"
                    "3 -> 3  set [0:1 0:1 0:1 0:1 1:3]\n");
    expect_text(&back, "3 messages of 4 elements, 2 copied within a rank\n"
                       "5 -> 0  add [0:1 0:1 0:1 0:1 0:1]\n"
                       "5 -> 1  add [0:1 0:1 0:1 0:1 1:3]\n"
                       "3 -> 2  add [0:1 0:1 0:1 0:1 0:1]\n"
                       "3 -> 3  add [0:1 0:1 0:1 0:1 1:3]\n");
    meg_graph_destroy(g);
    meg_pool_free(pool);
}

/* The largest of five logits, three ranks having [0:2], [] and [2:5] of them: the shares combine by
 * maximum, and that of nothing sends nothing. */
static void test_maximum(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_graph_create("maximum");
    int x = meg_graph_input(g, "x", 2, (int64_t[]){2, 5});
    int top = meg_graph_add(g, "top", "top", "", 1, &x);
    const meg_mesh *mesh = meg_mesh_new(pool, (int[]){1, 3, 1, 1, 1, 1}, NULL);
    meg_layout layout[2] = {meg_layout_new(mesh, g, x), meg_layout_new(mesh, g, top)};
    layout[1].on[MEG_C] = (meg_along){MEG_SPLIT_PARTIAL, MEG_C, (int64_t[]){0, 2, 2, 5}};
    imaginary_plan plan = {layout, meg_mesh_new(pool, (int[]){1, 1, 1, 1, 1, 1}, (int[]){2})};
    imaginary_plan single = single_plan(pool, g);
    imaginary *run = imaginary_new(g, &plan), *one = imaginary_new(g, &single);
    uint64_t seed = 7;
    assert_true(imaginary_forward(run, noise, &seed) == imaginary_forward(one, noise, &seed));
    expect_text(&run->site[run->sites - 1].fill,
                "1 messages of 2 elements, 2 copied within a rank\n"
                "0 -> 2  set [0:2 0:1 0:1 0:1 0:1]\n"
                "2 -> 2  max [0:2 0:1 0:1 0:1 0:1]\n");
    imaginary_free(run);
    imaginary_free(one);
    meg_graph_destroy(g);
    meg_pool_free(pool);
}

/* ---- cuts and their legality ---- */

static void test_even(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    static const struct {
        int64_t extent, grain, at[5]; /* of four parts */
    } rows[] = {{8, 1, {0, 2, 4, 6, 8}},
                {10, 1, {0, 2, 5, 7, 10}},
                {3, 1, {0, 0, 1, 2, 3}},
                {16, 4, {0, 4, 8, 12, 16}},
                {18, 4, {0, 4, 8, 12, 18}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_memory_equal(meg_cuts_even(pool, rows[i].extent, 4, rows[i].grain), rows[i].at,
                            sizeof rows[i].at);
    meg_pool_free(pool);
}

static void test_shared(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    static const struct {
        int64_t extent, grain, share[3], at[4];
    } rows[] = {{8, 1, {1, 1, 2}, {0, 2, 4, 8}},     {9, 1, {1, 1, 2}, {0, 2, 5, 9}},
                {5, 1, {1, 1, 98}, {0, 1, 2, 5}},    {5, 1, {98, 1, 1}, {0, 3, 4, 5}},
                {18, 4, {3, 1, 1}, {0, 12, 16, 18}}, {3, 1, {9, 1, 9}, {0, 1, 2, 3}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_memory_equal(meg_cuts_shared(pool, rows[i].extent, 3, rows[i].grain, rows[i].share),
                            rows[i].at, sizeof rows[i].at);
    meg_pool_free(pool);
}

typedef struct legality { /* one mesh axis of `dim` ranks, and another if dim2 > 0 */
    const char *value;
    int dim, dim2;
    meg_along on, on2;
    const char *message; /* NULL: legal */
} legality;

static const int64_t TWO_OF_7[] = {0, 3, 7}, SHORT_OF_7[] = {0, 3, 6}, DOWN[] = {0, 5, 3, 7};
static const int64_t EIGHT_OF_7[] = {0, 1, 2, 3, 4, 5, 6, 7, 7}, EMPTY_OF_7[] = {0, 0, 7};
static const int64_t FILTERS[] = {0, 5, 12}, FILTERS_4[] = {0, 3, 6, 9, 12}, GROUPS[] = {0, 4, 12};
static const int64_t TAPS[] = {0, 1, 3}, CHANNELS[] = {0, 1, 2};

static const legality LEGALITY[] = {
    {"conv", 2, 0, {MEG_SPLIT_CUT, MEG_H, TWO_OF_7}, {0}, NULL},
    {"conv", 2, 0, {MEG_SPLIT_CUT, MEG_H, EMPTY_OF_7}, {0}, NULL},
    {"conv", 2, 0, {MEG_SPLIT_CUT, MEG_C, GROUPS}, {0}, NULL},
    {"conv", 2, 0, {MEG_SPLIT_PARTIAL, MEG_H, TAPS}, {0}, NULL},
    {"conv",
     8,
     0,
     {MEG_SPLIT_CUT, MEG_H, EIGHT_OF_7},
     {0},
     "conv: 8 parts along h, but its extent of 7 has room for 7: use 1..7"},
    {"conv",
     2,
     0,
     {MEG_SPLIT_CUT, MEG_H, SHORT_OF_7},
     {0},
     "conv: cuts of h run from 0 to 6: use 0 to 7"},
    {"conv",
     3,
     0,
     {MEG_SPLIT_CUT, MEG_H, DOWN},
     {0},
     "conv: cuts of h must ascend, but 5 lies between 0 and 3"},
    {"conv",
     2,
     0,
     {MEG_SPLIT_CUT, MEG_C, FILTERS},
     {0},
     "conv: c is cut at 5, but its grain is 4: use 4"},
    {"conv",
     4,
     0,
     {MEG_SPLIT_CUT, MEG_C, FILTERS_4},
     {0},
     "conv: 4 parts along c, but its extent of 12 in multiples of 4 has room for 3: use 1..3"},
    {"conv",
     2,
     0,
     {MEG_SPLIT_PARTIAL, MEG_C, CHANNELS},
     {0},
     "conv: the sum along c runs inside groups, so a part of it is no box: cut the output along c "
     "by multiples of 4 instead"},
    {"conv",
     2,
     0,
     {MEG_SPLIT_PARTIAL, MEG_D, CHANNELS},
     {0},
     "conv: conv sums nothing along d: make it partial along h w"},
    {"relu",
     2,
     0,
     {MEG_SPLIT_PARTIAL, MEG_C, CHANNELS},
     {0},
     "relu: relu sums nothing along c: cut or copy it"},
    {"norm",
     2,
     0,
     {MEG_SPLIT_CUT, MEG_H, TWO_OF_7},
     {0},
     "norm: batchnorm cannot be cut along h: cut c, or copy it"},
    {"x",
     2,
     0,
     {MEG_SPLIT_PARTIAL, MEG_C, CHANNELS},
     {0},
     "x: an input or a weight is nobody's sum, but is to be partial along c: cut or copy it"},
    {"conv",
     2,
     2,
     {MEG_SPLIT_CUT, MEG_H, TWO_OF_7},
     {MEG_SPLIT_CUT, MEG_H, TWO_OF_7},
     "conv: mesh axes 0 and 1 both cut axis h: cut another one, or copy along one of them"}};

static void test_legality(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_graph_create("legality");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){2, 6, 7, 9});
    int y = meg_graph_add(g, "conv", "conv", "filters=12 kernel=3 pad=1 groups=3", 1, &x);
    y = meg_graph_add(g, "relu", "relu", "", 1, &y);
    meg_graph_add(g, "batchnorm", "norm", "", 1, &y);
    for (size_t i = 0; i < sizeof LEGALITY / sizeof *LEGALITY; i++) {
        const legality *c = &LEGALITY[i];
        int value = meg_graph_find_value(g, c->value);
        const int dim[MEG_MESH_AXES] = {c->dim, c->dim2 ? c->dim2 : 1, 1, 1, 1, 1};
        meg_layout l = meg_layout_new(meg_mesh_new(pool, dim, NULL), g, value);
        l.on[0] = c->on, l.on[1] = c->on2;
        meg_error e = {0};
        meg_status status = meg_layout_check(&l, &e, g, value);
        assert_string_equal(e.message, c->message ? c->message : "");
        assert_int_equal(status, c->message ? MEG_EARG : MEG_OK);
    }
    meg_graph_destroy(g);
    meg_pool_free(pool);
}

/* ---- many ranks ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct watch { /* times one transfer */
    meg_transfer t;
    double seconds;
} watch;

static watch timed(meg_pool *pool, const meg_layout *made, const meg_held *held)
{
    double start = seconds();
    watch w = {.t = meg_transfer_new(pool, made, held)};
    w.seconds = seconds() - start;
    print_message("%" PRId64 " messages to %d ranks in %.4f s\n", w.t.messages, held->mesh->size,
                  w.seconds);
    return w;
}

static meg_box *parts_of(meg_pool *pool, const meg_layout *l)
{
    meg_box *box = meg_pool_alloc(pool, (size_t)l->mesh->size * sizeof *box);
    for (int i = 0; i < l->mesh->size; i++)
        box[i] = meg_layout_part(l, i).work.out;
    return box;
}

/* 64 x 64 ranks: the halos of a convolution, where each rank has 8 neighbours, but for the border
 * (190 pairs along each axis, a rank with itself among them); 64 x 64 parts to 32 x 128; and a
 * weight that all have a copy of. */
static void test_many_ranks(void **state)
{
    (void)state;
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_graph_create("many");
    int x = meg_graph_input(g, "x", 4, (int64_t[]){2, 3, 1100, 1000});
    int y = meg_graph_add(g, "conv", "conv", "filters=4 kernel=7 pad=3", 1, &x);
    int weight = g->node[0].in[1];
    const meg_mesh *mesh = meg_mesh_new(pool, (int[]){1, 1, 1, 64, 64, 1}, NULL);
    const meg_mesh *flat = meg_mesh_new(pool, (int[]){1, 1, 1, 32, 128, 1}, NULL);
    meg_layout made = spatial(pool, mesh, g, x), reads = spatial(pool, mesh, g, y);
    meg_layout wanted = spatial(pool, flat, g, x), home = meg_layout_new(mesh, g, weight);

    meg_held halos = {mesh, meg_layout_needs(pool, &reads, g, &g->node[0], 0), true};
    watch w = timed(pool, &made, &halos);
    assert_int_equal(w.t.messages, 190 * 190 - 4096);
    assert_true(w.seconds < MOST_SECONDS);

    w = timed(pool, &made, &(meg_held){flat, parts_of(pool, &wanted), false});
    meg_traffic sum = meg_transfer_traffic(&w.t);
    assert_int_equal(sum.elements + sum.local, meg_box_size(&g->value[x].shape));
    assert_true(w.seconds < MOST_SECONDS);

    w = timed(pool, &home, &(meg_held){flat, parts_of(pool, &home), false});
    sum = meg_transfer_traffic(&w.t);
    assert_int_equal(w.t.messages, 4096);
    assert_int_equal(sum.messages, 0);
    assert_true(w.seconds < MOST_SECONDS);
    meg_graph_destroy(g);
    meg_pool_free(pool);
}

int main(int argc, char **argv)
{
    request random = {argc > 1 ? atoi(argv[1]) : 800, argc > 2 ? (uint64_t)atoll(argv[2]) : 0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picture),    cmocka_unit_test(test_copies),
        cmocka_unit_test(test_maximum),    cmocka_unit_test(test_even),
        cmocka_unit_test(test_shared),     cmocka_unit_test(test_legality),
        cmocka_unit_test(test_many_ranks), cmocka_unit_test_prestate(test_random, &random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
