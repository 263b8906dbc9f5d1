/* The direct weight gradient of the cpu device, above all of volumes, against plain C in double.
 *
 * Each case goes through the kernel itself with 1, 2 and 3 threads, which must give the same bits,
 * and through the device. First layers of 1, 2 and 4 channels, in 2 and 3 dimensions, must have a
 * kernel that someone tuned in every pass that training uses.
 */
#include "conv_layer.h"
#include "device/cpu/simd/conv/direct.h"

static const meg_sample cases[] = {
    {"1x16x6x5x7", "filters=16 kernel=3 pad=1"},
    {"2x32x4x9x5", "filters=48 kernel=3 pad=1 bias=0"},
    {"1x20x7x5x6", "filters=20 kernel=3"},         /* padded blocks */
    {"2x8x6x6x6", "filters=64 kernel=2 stride=2"}, /* four blocks: panels of two */
    {"1x40x5x7x3", "filters=24 kernel=1"},         /* no window */
    {"1x1x9x8x7", "filters=16 kernel=3 pad=1"},    /* first layers */
    {"2x2x7x9x8", "filters=24 kernel=3 stride=2 pad=1"},
    {"1x4x9x5x11", "filters=32 kernel=3 pad=1"},
    {"1x16x9x7x8", "filters=16 kernel=3 stride=2 pad=1"},
    {"1x24x9x9x9", "filters=8 kernel=3x2x3 stride=2x1x3 dilation=2x3x1 pad=1x2x0"},
    {"1x16x3x4x2", "filters=16 kernel=3 pad=0:2x2:1x1:0"},
    {"1x16x2x2x2", "filters=16 kernel=3 pad=4 dilation=2"}, /* taps that read padding alone */
    {"1x16x17x19x21", "filters=16 kernel=3 pad=1"},         /* many shares, lines in strips */
    {"2x5x3x9x140", "filters=40 kernel=3 pad=1"},           /* lines longer than a strip */
    {"3x24x17x11", "filters=56 kernel=5 stride=2 pad=2"},   /* planes */
    {"2x16x33", "filters=16 kernel=7 pad=3"},               /* lines */
};

enum {
    CASES = sizeof cases / sizeof *cases
};

/* ---- the kernel ---- */

static meg_direct job(const layer *l)
{
    const meg_conv_attr *a = l->op.node->attr;
    const meg_box *x = &l->op.t[MEG_X].box, *y = &l->op.t[MEG_Y].box;
    meg_direct j = {.samples = meg_extent(x, MEG_N),
                    .channels = meg_extent(x, MEG_C),
                    .filters = meg_extent(y, MEG_C),
                    .threads = l->threads};
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *w = &a->win[i];
        j.in[i] = meg_extent(x, MEG_D + i), j.out[i] = meg_extent(y, MEG_D + i);
        j.taps[i] = w->taps, j.stride[i] = w->stride;
        j.dilation[i] = w->dilation, j.before[i] = w->before;
    }
    j.x = l->at[MEG_X], j.dy = l->at[MEG_DY];
    j.dweight = l->at[MEG_DX + 1], j.dbias = l->at[MEG_DX + 2];
    return j;
}

static void run_kernel(layer *l)
{
    meg_direct j = job(l);
    int64_t floats = meg_direct_floats(&j, l->block);
    float *scratch = malloc(sizeof(float) * (size_t)(floats + GUARD));
    memset(scratch, 0xFF, sizeof(float) * (size_t)(floats + GUARD)); /* NaN */
    j.scratch = scratch;
    cpu_of(l->device)->simd->direct_weight(&j);
    for (int64_t i = floats; i < floats + GUARD; i++)
        assert_true(isnan(scratch[i]));
    free(scratch);
}

static void test_kernel(void **state)
{
    int64_t most = 0;
    for (int i = 0; i < CASES; i++) {
        layer l = {.device = devices(state)[0], .threads = 1};
        l.block = cpu_of(l.device)->block;
        l.unchecked = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DX);
        open_layer(&l, &cases[i]);
        check_twice(&l, run_kernel, cases[i].shapes);
        size_t bytes = sizeof(float) * (size_t)l.floats[MEG_DX + 1];
        float *alone = malloc(bytes);
        memcpy(alone, l.at[MEG_DX + 1], bytes);
        for (l.threads = 2; l.threads <= TEAMS; l.threads++) {
            clear_results(&l);
            run_kernel(&l);
            assert_memory_equal(alone, l.at[MEG_DX + 1], bytes);
        }
        meg_direct j = job(&l);
        int64_t shares = meg_direct_shares(&j, l.block);
        most = shares > most ? shares : most;
        free(alone);
        close_layer(&l);
    }
    assert_true(most > 2); /* else the cases miss the sum over shares */
}

/* ---- through the device ---- */

static void run_device(layer *l)
{
    meg_request r = request(l, MEG_WEIGHT);
    meg_spec s;
    meg_device_describe(l->device, &r, &s);
    int weight = MEG_DX + 1;
    assert_int_equal(s.format[weight], r.format[MEG_X + 1]);
    assert_int_equal(s.bytes[weight], l->floats[weight] * 4);
    void *at[MEG_OPERANDS] = {NULL};
    meg_mask used = meg_op_reads(l->op.node->op, MEG_WEIGHT) |
                    meg_op_writes(l->op.node->op, MEG_WEIGHT);
    for (int i = 0; i < MEG_SCRATCH; i++)
        if (used & MEG_BIT(i)) at[i] = l->at[i];
    char *scratch = aligned_alloc(64, ((size_t)s.bytes[MEG_SCRATCH] + 127) / 64 * 64);
    at[MEG_SCRATCH] = scratch;
    launch(l->device, &r, at);
    free(scratch);
}

static void test_device(void **state)
{
    for (int team = 0; team < TEAMS; team++)
        for (int i = 0; i < CASES; i++) {
            layer l = {.device = devices(state)[team]};
            l.block = cpu_of(l.device)->block;
            l.unchecked = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DX);
            open_layer(&l, &cases[i]);
            check_twice(&l, run_device, cases[i].shapes);
            close_layer(&l);
        }
}

/* ---- which kernel answers ---- */

static meg_spec describe(meg_device *d, const meg_sample *sample, meg_pass pass, meg_format x,
                         meg_format home)
{
    meg_error e = {0};
    layer l = {.device = d, .block = cpu_of(d)->block};
    meg_spec s;
    if (plain_open(&e, "conv", sample, MEG_F64, &l.op) != MEG_OK) fail_msg("%s", e.message);
    meg_request r = request(&l, pass);
    r.format[MEG_X] = x;
    r.format[MEG_X + 1] = home;
    meg_device_describe(d, &r, &s);
    plain_close(&l.op);
    return s;
}

static bool tuned(const meg_spec *s)
{
    return strncmp(s->impl, "ref", 3) != 0 && !strstr(s->impl, ":ref") &&
           !strstr(s->impl, "gemm") && strcmp(s->impl, "plain") != 0;
}

/* Of volumes no weight gradient goes by way of gathered columns. */
static void test_volumes(void **state)
{
    meg_device *d = devices(state)[1];
    meg_format blocked = meg_format_blocked(cpu_of(d)->block);
    if (cpu_of(d)->simd == &meg_simd_portable) skip(); /* oneDNN's forward is made for AVX2 */
    static const meg_sample some[] = {{"1x32x16x16x16", "filters=64 kernel=3 pad=1"},
                                      {"1x16x16x16x16", "filters=16 kernel=3 pad=1"},
                                      {"1x20x9x9x9", "filters=20 kernel=3 stride=2 pad=1"},
                                      {"1x64x8x8x8", "filters=32 kernel=2 stride=2"},
                                      {"1x64x8x8x8", "filters=3 kernel=1"}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        meg_spec f = describe(d, &some[i], MEG_FORWARD, blocked, MEG_FORMAT_PLAIN);
        meg_spec s = describe(d, &some[i], MEG_WEIGHT, blocked, f.format[MEG_X + 1]);
        if (!tuned(&f) || !tuned(&s)) fail_msg("%s: %s, %s", some[i].shapes, f.impl, s.impl);
        assert_int_equal(s.format[MEG_X], blocked);
        assert_int_equal(s.format[MEG_DY], blocked);
    }
}

static void test_first_layers(void **state)
{
    static const char *const shapes[] = {"1x%dx20x24", "2x%dx9x8x10"};
    meg_device *d = devices(state)[1];
    for (int channels = 1; channels <= 4; channels++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            char text[32];
            snprintf(text, sizeof text, shapes[i], channels);
            meg_sample sample = {text, "filters=32 kernel=3 pad=1"};
            meg_spec f = describe(d, &sample, MEG_FORWARD, MEG_FORMAT_PLAIN, MEG_FORMAT_PLAIN);
            meg_spec s = describe(d, &sample, MEG_WEIGHT, MEG_FORMAT_PLAIN, f.format[MEG_X + 1]);
            if (!tuned(&f) || !tuned(&s)) fail_msg("%s: %s, %s", text, f.impl, s.impl);
        }
}

static int tests(void)
{
    const struct CMUnitTest list[] = {
        cmocka_unit_test(test_kernel),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_volumes),
        cmocka_unit_test(test_first_layers),
    };
    return cmocka_run_group_tests(list, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(tests);
}
