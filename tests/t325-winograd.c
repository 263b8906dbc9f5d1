/* Winograd's convolution on the cpu device against plain C in double, in all three passes.
 *
 * Each case goes through the device, with whatever cut of the work it chooses, and then through the
 * kernels themselves with cuts far too fine, so that small tensors have many batches, parts, depths
 * and widths. Each runs twice and must give the same bits; padding must be zero; what follows a
 * result in memory must not be touched. How near it must be is said for each layer, from the growth of
 * the transforms and the length of its sums. Networks with Winograd have the same rule as all others
 * (tests/compare.h; t700-engine, t740-ranks).
 */
#include "conv_layer.h"
#include "device/cpu/simd/conv/winograd.h"

static const meg_sample cases[] = {
    {"1x16x5x5", "filters=16 kernel=3 pad=1"},
    {"2x32x6x9", "filters=16 kernel=3 pad=1 bias=0"},
    {"3x16x13x7", "filters=48 kernel=3"},
    {"2x48x17x11", "filters=32 kernel=3 pad=2"},
    {"5x24x8x8", "filters=24 kernel=3 pad=1"},
    {"2x24x10x6", "filters=40 kernel=3 pad=0:2x2:1"},
    {"4x32x7x12", "filters=24 kernel=3 pad=1:0x0:1 bias=0"},
    {"1x16x3x3", "filters=16 kernel=3"}, /* one output */
    {"3x16x1x2", "filters=16 kernel=3 pad=1"},
    {"1x16x41x45", "filters=16 kernel=3 pad=1"},
    {"2x288x5x5", "filters=288 kernel=3 pad=1"}, /* by filters, two widths */
    {"2x16x1x1", "filters=32 kernel=3 pad=2"},
    {"2x16x3x9x9", "filters=16 kernel=3 pad=1"}, /* volumes */
    {"1x24x5x6x7", "filters=40 kernel=3 bias=0"},
    {"2x32x4x5x6", "filters=16 kernel=3 pad=0:2x1x2:1"},
    {"1x16x3x9x5", "filters=32 kernel=1x3x3 pad=0x1x1"},
    {"2x16x4x6x6", "filters=16 kernel=2x3x3 pad=1:0x1x1"},
    {"1x16x1x5x5", "filters=16 kernel=3 pad=2x1x1"},
    {"1x144x3x5x5", "filters=144 kernel=3 pad=1"},
};

enum {
    CASES = sizeof cases / sizeof *cases
};

/* ---- how near ---- */

static const double ROUNDING = 5.9604644775390625e-8; /* 2^-24 */

/* How much larger than a result, in the root of the mean square, the products at the points are that
 * it is made of: of A^T [(G g) . (B^T d)], the rows of A^T weighted by the norms of those of G and B^T, in
 * both directions; the same for 4 outputs of 3 taps and for 3 of 4 (winograd_tile.h has the matrices). An
 * error at a point comes out so many times larger than direct convolution's. */
static const double GROWTH = 5.02;

/* How many products are summed at each point: channels, or tiles for the weight's gradient. */
static int64_t terms(const layer *l, int i)
{
    const meg_conv_attr *a = l->op.node->attr;
    const meg_box *x = &l->op.t[MEG_X].box, *y = &l->op.t[MEG_Y].box;
    int64_t planes = meg_extent(y, MEG_N) * meg_extent(y, MEG_D);
    if (is_bias(i)) return planes * meg_extent(y, MEG_H) * meg_extent(y, MEG_W);
    if (is_weight(i))
        return planes * ((meg_extent(y, MEG_H) + 3) / 4) * ((meg_extent(y, MEG_W) + 3) / 4);
    return meg_extent(i == MEG_Y ? x : y, MEG_C) * a->win[0].taps;
}

/* The bound of a layer, relative by norm: three transforms and a product round once each, at worst all
 * in one direction; a sum of n terms, of which the first k are sqrt(k / n) of it, rounds n times:
 * sqrt(n / 2) / sqrt(3) roundings, which sqrt(n) / 2 exceeds. At most half of the bound was seen. */
static double allowed(const layer *l, int i)
{
    return ROUNDING * (is_bias(i) ? 1 : GROWTH) * (4 + sqrt((double)terms(l, i)) / 2);
}

/* ---- through the device ---- */

static void run_device(layer *l)
{
    static const meg_pass passes[] = {MEG_FORWARD, MEG_BACKWARD, MEG_WEIGHT};
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        meg_request r = request(l, passes[p]);
        meg_spec s;
        meg_device_describe(l->device, &r, &s);
        assert_true(strncmp(s.impl, "winograd:", 9) == 0);
        assert_true(s.flops > 0);
        int weight = passes[p] == MEG_WEIGHT ? MEG_DX + 1 : MEG_X + 1;
        assert_int_equal(s.format[weight], r.format[MEG_X + 1]);
        assert_int_equal(s.bytes[weight], l->floats[weight] * 4);

        void *at[MEG_OPERANDS] = {NULL};
        meg_mask used = meg_op_reads(l->op.node->op, passes[p]) |
                        meg_op_writes(l->op.node->op, passes[p]);
        for (int i = 0; i < MEG_SCRATCH; i++)
            if (used & MEG_BIT(i)) at[i] = l->at[i];
        char *scratch = malloc((size_t)s.bytes[MEG_SCRATCH] + GUARD);
        memset(scratch, 0xFF, (size_t)s.bytes[MEG_SCRATCH] + GUARD); /* NaN */
        at[MEG_SCRATCH] = scratch;
        launch(l->device, &r, at);
        for (int i = 0; i < GUARD; i++)
            assert_int_equal((unsigned char)scratch[s.bytes[MEG_SCRATCH] + i], 0xFF);
        free(scratch);
    }
}

static void test_device(void **state)
{
    for (int team = 0; team < TEAMS; team++)
        for (int i = 0; i < CASES; i++) {
            layer l = {.device = devices(state)[team], .allowed = allowed};
            l.block = cpu_of(l.device)->block;
            open_layer(&l, &cases[i]);
            check_twice(&l, run_device, cases[i].shapes);
            close_layer(&l);
        }
}

/* ---- the kernels, with fine cuts ---- */

static meg_winograd job(const layer *l, bool turned)
{
    const meg_conv_attr *a = l->op.node->attr;
    const meg_box *x = &l->op.t[turned ? MEG_Y : MEG_X].box;
    const meg_box *y = &l->op.t[turned ? MEG_X : MEG_Y].box;
    meg_winograd j = {.threads = l->threads, .turned = turned, .samples = meg_extent(x, MEG_N)};
    j.depths = a->win[0].taps;
    j.planes[0] = meg_extent(x, MEG_D), j.planes[1] = meg_extent(y, MEG_D);
    j.above = turned ? j.depths - 1 - a->win[0].before : a->win[0].before;
    j.from = blocks_of(meg_extent(x, MEG_C), l->block) * j.depths;
    j.to = blocks_of(meg_extent(y, MEG_C), l->block);
    j.filters = meg_extent(y, MEG_C);
    for (int i = 0; i < 2; i++) {
        j.in[i] = meg_extent(x, MEG_H + i), j.out[i] = meg_extent(y, MEG_H + i);
        j.before[i] = turned ? 2 - a->win[1 + i].before : a->win[1 + i].before;
    }
    j.rows = (j.out[0] + 3) / 4, j.columns = (j.out[1] + 3) / 4;
    j.tiles = j.samples * j.planes[1] * j.rows * j.columns;
    j.x = l->at[turned ? MEG_DY : MEG_X], j.y = l->at[turned ? MEG_DX : MEG_Y];
    j.weight = l->at[MEG_X + 1], j.bias = turned ? NULL : l->at[MEG_X + 2];
    j.dy = l->at[MEG_DY], j.dweight = l->at[MEG_DX + 1], j.dbias = l->at[MEG_DX + 2];
    return j;
}

static void launch_job(const layer *l, meg_winograd *j, bool gradient)
{
    const meg_simd *simd = cpu_of(l->device)->simd;
    int64_t floats = gradient ? meg_winograd_weight_floats(j, l->block)
                              : meg_winograd_floats(j, l->block);
    j->scratch = malloc(sizeof(float) * (size_t)floats);
    memset(j->scratch, 0xFF, sizeof(float) * (size_t)floats);
    (gradient ? simd->winograd_weight : simd->winograd)(j);
    free(j->scratch);
}

static void run_gradient(const layer *l, int shares)
{
    meg_winograd j = job(l, false);
    j.batch = 7, j.part = 3, j.shares = (int)(shares < j.tiles ? shares : j.tiles);
    j.width = j.shares > 1 ? j.to : j.to > 2 ? 2 : 1;
    launch_job(l, &j, true);
}

static void run_fine_tiles(layer *l)
{
    for (int turned = 0; turned < 2; turned++) {
        meg_winograd j = job(l, turned);
        j.batch = j.part = meg_winograd_group(l->block);
        j.depth = j.from, j.width = j.to;
        launch_job(l, &j, false);
    }
    run_gradient(l, 1);
}

static void run_fine_filters(layer *l)
{
    for (int turned = 0; turned < 2; turned++) {
        meg_winograd j = job(l, turned);
        j.by_filters = true;
        j.part = meg_winograd_group(l->block), j.batch = 2 * j.part;
        j.depth = j.from > 2 ? 2 : 1, j.width = j.to > 3 ? 3 : 1;
        launch_job(l, &j, false);
    }
    run_gradient(l, 3);
}

static void test_fine_cuts(void **state)
{
    for (int team = 0; team < TEAMS; team++)
        for (int i = 0; i < CASES; i++) {
            layer l = {.device = devices(state)[team], .allowed = allowed, .threads = team + 1};
            l.block = cpu_of(l.device)->block;
            open_layer(&l, &cases[i]);
            check_twice(&l, run_fine_tiles, cases[i].shapes);
            check_twice(&l, run_fine_filters, cases[i].shapes);
            close_layer(&l);
        }
}

/* ---- what it is asked, and what it answers ---- */

static meg_spec describe(meg_device *d, const meg_sample *sample, meg_pass pass)
{
    meg_error e = {0};
    layer l = {.device = d, .block = cpu_of(d)->block};
    meg_spec s;
    if (plain_open(&e, "conv", sample, MEG_F64, &l.op) != MEG_OK) fail_msg("%s", e.message);
    meg_request r = request(&l, pass);
    meg_device_describe(d, &r, &s);
    plain_close(&l.op);
    return s;
}

static bool answers(meg_device *d, const meg_sample *sample, meg_pass pass)
{
    return strncmp(describe(d, sample, pass).impl, "winograd", 8) == 0;
}

/* The same, x being an image as it is loaded. */
static bool stored_plain(meg_device *d, const meg_sample *sample)
{
    meg_error e = {0};
    layer l = {.device = d, .block = cpu_of(d)->block};
    meg_spec s;
    if (plain_open(&e, "conv", sample, MEG_F64, &l.op) != MEG_OK) fail_msg("%s", e.message);
    meg_request r = request(&l, MEG_FORWARD);
    r.format[MEG_X] = MEG_FORMAT_PLAIN;
    meg_device_describe(d, &r, &s);
    plain_close(&l.op);
    return strncmp(s.impl, "winograd", 8) == 0;
}

static void test_refusals(void **state)
{
    static const meg_sample others[] = {
        {"2x16x9x9", "filters=16 kernel=3 stride=2 pad=1"},
        {"2x16x9x9", "filters=16 kernel=3 dilation=2 pad=2"},
        {"2x16x9x9", "filters=16 kernel=3 pad=1 groups=2"},
        {"2x16x9x9", "filters=16 kernel=3x1 pad=1x0"},
        {"2x16x9x9", "filters=16 kernel=5 pad=2"},
        {"2x16x9x9", "filters=16 kernel=3 pad=3"},
        {"2x16x3x9x9", "filters=16 kernel=3 stride=2x1x1 pad=1"},
        {"2x16x5x9x9", "filters=16 kernel=5x3x3 pad=2x1x1"},
        {"2x16x5x9x9", "filters=16 kernel=2"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(answers(devices(state)[0], &others[i], MEG_FORWARD));
    assert_true(answers(devices(state)[0], &cases[0], MEG_FORWARD));
}

/* MEGALITH_WINOGRAD: tests run with "all"; this one looks at the others, too. */
static void test_switch(void **state)
{
    static const meg_sample few = {"1x3x8x8", "filters=8 kernel=3 pad=1"};
    static const meg_sample many = {"4x64x28x28", "filters=64 kernel=3 pad=1"};
    static const meg_sample volume = {"1x64x16x16x16", "filters=64 kernel=3 pad=1"};
    static const meg_sample first = {"1x3x128x128", "filters=64 kernel=3 pad=1"};
    meg_cpu *cpu = meg_device_state(devices(state)[1]);
    assert_int_equal(cpu->winograd, MEG_CPU_ALWAYS);
    assert_int_equal(meg_cpu_winograd_use("0"), MEG_CPU_NEVER);
    assert_int_equal(meg_cpu_winograd_use(NULL), MEG_CPU_IF_FASTER);
    assert_int_equal(meg_cpu_winograd_use("1"), MEG_CPU_IF_FASTER);
    cpu->winograd = MEG_CPU_NEVER;
    assert_false(answers(devices(state)[1], &many, MEG_FORWARD));
    cpu->winograd = MEG_CPU_IF_FASTER;
    assert_true(answers(devices(state)[1], &many, MEG_FORWARD));
    assert_true(answers(devices(state)[1], &many, MEG_BACKWARD));
    assert_true(answers(devices(state)[1], &many, MEG_WEIGHT));
    assert_false(answers(devices(state)[1], &few, MEG_FORWARD));
    assert_true(answers(devices(state)[1], &volume, MEG_FORWARD));
    assert_true(answers(devices(state)[1], &volume, MEG_WEIGHT));
    assert_false(stored_plain(devices(state)[1], &first));
    cpu->winograd = MEG_CPU_ALWAYS;
}

/* Scratch is modest for ResNet-50 and bounded for any layer and number of threads. */
static void test_scratch(void **state)
{
    static const meg_sample resnet[] = {
        {"16x64x56x56", "filters=64 kernel=3 pad=1"},
        {"16x128x28x28", "filters=128 kernel=3 pad=1"},
        {"16x256x14x14", "filters=256 kernel=3 pad=1"},
        {"16x512x7x7", "filters=512 kernel=3 pad=1"},
    };
    static const meg_sample large[] = {
        {"32x512x14x14", "filters=512 kernel=3 pad=1"},
        {"1x1024x32x32", "filters=1024 kernel=3 pad=1"},
        {"1x2048x7x7", "filters=2048 kernel=3 pad=1"},
        {"1x32x512x512", "filters=64 kernel=3 pad=1"},
    };
    static const meg_pass passes[] = {MEG_FORWARD, MEG_BACKWARD, MEG_WEIGHT};
    meg_cpu *cpu = meg_device_state(devices(state)[1]);
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        for (size_t i = 0; i < sizeof resnet / sizeof *resnet; i++) {
            meg_spec s = describe(devices(state)[1], &resnet[i], passes[p]);
            assert_true(s.bytes[MEG_SCRATCH] > 0 && s.bytes[MEG_SCRATCH] <= 24 << 20);
        }
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            for (cpu->threads = 1; cpu->threads <= 64; cpu->threads *= 4) {
                meg_spec s = describe(devices(state)[1], &large[i], passes[p]);
                bool answered = strncmp(s.impl, "winograd", 8) == 0;
                assert_true(answered || cpu->threads > 16);
                assert_true(!answered || s.bytes[MEG_SCRATCH] <= 64 << 20);
            }
        cpu->threads = 2;
    }
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test(test_device),   cmocka_unit_test(test_fine_cuts),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_switch),
        cmocka_unit_test(test_scratch),
    };
    setenv("MEGALITH_WINOGRAD", "all", 1);
    return cmocka_run_group_tests(list, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(tests);
}
