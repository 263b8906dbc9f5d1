/* What the cpu device does element by element or lane by lane, once for each instruction set:
 * copies between formats, ADD, ZERO, UPDATE, weights in blocked formats, and results so large that
 * they are written past the caches.
 */
#define _GNU_SOURCE
#include "cpu_isas.h"

#include <math.h>

static void *aligned_memory(int64_t bytes)
{
    return aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
}

static float *random_memory(int64_t count, uint64_t seed)
{
    float *x = aligned_memory(count * (int64_t)sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)noise(&seed);
    return x;
}

/* Large results go past the caches, unless they are made in place: both must be the same. */
static void large_tensors(void **state)
{
    enum {
        CHANNELS = 16,
        PIXELS = 512 * 520
    };
    const meg_cpu *cpu = cpu_of(devices(state)[1]);
    int64_t count = CHANNELS * PIXELS;
    float *x = random_memory(count, 1), *a = random_memory(count, 2),
          *far = random_memory(count, 3);
    float *near = random_memory(count, 4), *k = random_memory(4 * CHANNELS, 5);
    meg_simd_flat flat = {
        .count = count, .threads = 2, .relu = true, .inputs = 2, .outputs = 1, .sign = x};
    meg_simd_norm norm = {.samples = 1,
                          .norm = 1,
                          .groups = 1,
                          .channels = CHANNELS,
                          .blocks = CHANNELS / cpu->block,
                          .pixels = PIXELS,
                          .parts = (PIXELS + MEG_SIMD_PART - 1) / MEG_SIMD_PART,
                          .threads = 2,
                          .relu = true,
                          .epsilon = 2,
                          .weight = k,
                          .bias = k + CHANNELS,
                          .mean = k + 2 * CHANNELS,
                          .variance = k + 3 * CHANNELS};
    norm.scratch = malloc((size_t)cpu->simd->norm_bytes(&norm));
    for (int kernel = 0; kernel < 4; kernel++)
        for (int in_place = 0; in_place < 2; in_place++) {
            float *to = in_place ? near : far, *from = in_place ? near : a;
            memcpy(near, a, (size_t)count * sizeof *a);
            flat.x[0] = from, flat.x[1] = x, flat.y[0] = to;
            norm.x = kernel == 2 ? from : x, norm.y = to, norm.dy = from, norm.dx = to;
            if (kernel == 0) cpu->simd->add(&flat);
            if (kernel == 1) cpu->simd->mask(&flat);
            if (kernel == 2) cpu->simd->norm_apply(&norm);
            if (kernel == 3) cpu->simd->norm_back(&norm);
            if (in_place && memcmp(near, far, (size_t)count * sizeof *a) != 0)
                fail_msg("kernel %d: in place is not what it is elsewhere", kernel);
        }
    free(x), free(a), free(far), free(near), free(k), free(norm.scratch);
}

static void copies(void **state)
{
    static const int64_t shapes[][4] = {{2, 3, 5, 7},     {1, 16, 4, 4},  {3, 40, 7, 7},
                                        {2, 1, 50, 50},   {5, 100, 1, 1}, {1, 17, 33, 41},
                                        {1, 16, 512, 520}}; /* past the caches */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int team = 0; team < TEAMS; team++) {
            meg_device *d = devices(state)[team];
            int block = cpu_of(d)->block;
            meg_format f = meg_format_blocked(block);
            meg_box b = meg_box_of(shapes[i][0], shapes[i][1], 1, shapes[i][2], shapes[i][3]);
            size_t count = (size_t)meg_box_size(&b), bytes = count * sizeof(float);
            int64_t blocked = meg_format_bytes(f, &b, MEG_F32);
            float *plain = malloc(bytes), *back = malloc(bytes);
            char *got = aligned_memory(blocked), *want = calloc(1, (size_t)blocked);
            for (size_t k = 0; k < count; k++)
                plain[k] = (float)k + 1;
            memset(got, 0xff, (size_t)blocked);
            copy(d, &b, MEG_FORMAT_PLAIN, f, (void *const[]){plain, got});
            move(&b, block, want, plain, sizeof(float), true);
            assert_memory_equal(got, want, (size_t)blocked);
            copy(d, &b, f, MEG_FORMAT_PLAIN, (void *const[]){got, back});
            assert_memory_equal(back, plain, bytes);
            free(plain);
            free(back);
            free(got);
            free(want);
        }
}

static void climb(const meg_update *u) /* weight += lr * gradient; state counts */
{
    for (int64_t i = 0; i < u->count; i++) {
        ((float *)u->weight)[i] += (float)u->scalars->lr * ((const float *)u->gradient)[i];
        ((float *)u->state[0])[i] += 1;
    }
}

static void instructions(void **state)
{
    static const meg_optimizer climber = {.name = "climb", .states = 1, .f32 = climb};
    enum {
        COUNT = 100003
    };
    meg_request r = {.code = MEG_ADD, .optimizer = &climber};
    meg_scalars scalars = {.lr = 0.5};
    float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    float *z = calloc(COUNT, sizeof *z);
    for (int i = 0; i < MEG_OPERANDS; i++)
        r.box[i] = meg_box_of(1, COUNT, 1, 1, 1);
    for (int team = 0; team < TEAMS; team++) {
        meg_device *d = devices(state)[team];
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)i, y[i] = 2;
        memset(z, 0, COUNT * sizeof *z);
        r.code = MEG_ADD;
        launch(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = x, [MEG_X + 1] = y, [MEG_Y] = x});
        r.code = MEG_UPDATE;
        launch(d, &r,
               (void *[MEG_OPERANDS]){
                   [MEG_X] = x, [MEG_X + 1] = y, [MEG_X + 2] = &scalars, [MEG_AUX] = z});
        for (int i = 0; i < COUNT; i++)
            if (x[i] != (float)i + 3 || z[i] != 1)
                fail_msg("element %d is %g, should be %d; state %g", i, (double)x[i], i + 3,
                         (double)z[i]);
        r.code = MEG_ZERO;
        launch(d, &r, (void *[MEG_OPERANDS]){[MEG_Y] = x});
        for (int i = 0; i < COUNT; i++)
            assert_true(x[i] == 0);
    }
    free(x);
    free(y);
    free(z);
}

/* Sums of a weight in the formats of oneDNN: padding counts. */
static void weight_formats(void **state)
{
    static const struct {
        meg_format format;
        int64_t filters, channels; /* of 3 x 3 taps; per group */
        int64_t floats;            /* expected */
    } table[] = {
        {MEG_FORMAT_PLAIN, 20, 3, 20 * 3 * 9},        {MEG_FORMAT_Oxi16o, 20, 3, 32 * 3 * 9},
        {MEG_FORMAT_OIx16i16o, 20, 3, 32 * 16 * 9},   {MEG_FORMAT_OIx8i8o, 20, 3, 24 * 8 * 9},
        {MEG_FORMAT_gOIx16i16o, 64, 16, 64 * 16 * 9}, {MEG_FORMAT_Goix16g, 20, 1, 32 * 9},
        {MEG_FORMAT_Goix8g, 20, 1, 24 * 9},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        meg_request r = {.code = MEG_ADD};
        meg_spec s;
        for (int k = 0; k < MEG_OPERANDS; k++) {
            r.box[k] = meg_box_of(table[i].filters, table[i].channels, 1, 3, 3);
            r.format[k] = table[i].format;
        }
        meg_device_describe(devices(state)[0], &r, &s);
        assert_int_equal(meg_operand_bytes(&r, &s, MEG_Y), table[i].floats * 4);
        assert_memory_equal(s.impl, "own:", 4);
    }
}

typedef struct accuracy { /* of a function, in double; relative error from lo to hi */
    meg_simd_kind kind;
    double (*exact)(double x);
    double lo, hi, allowed;
    float number; /* of the kind */
} accuracy;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double mish(double x)
{
    return x * tanh(softplus(x));
}

static double mish_slope(double x)
{
    double t = tanh(softplus(x));
    return t + x * (1 - t * t) / (1 + exp(-x));
}

static double elu(double x)
{
    return x > 0 ? x : expm1(x);
}

static double hard_swish(double x)
{
    return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
}

static double hard_swish_slope(double x)
{
    return x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
}

static double power_2_5(double x)
{
    return pow(x, 2.5);
}

static double power_5(double x)
{
    return pow(x, 5);
}

static double power_less(double x)
{
    return pow(x, -0.75);
}

static double gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2));
}

static double gelu_slope(double x)
{
    return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static double gelu_tanh(double x)
{
    return x / (1 + exp(-sqrt(8 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* The derivative of gelu is 0 near -0.75, so its error is relative to 1; in the tails of the bell
 * that of exp() grows with its argument. */
static void functions(void **state)
{
    static const accuracy table[] = {
        {MEG_POINT_SIGMOID, sigmoid, -80, 100, 4e-7, 0},
        {MEG_POINT_TANH, tanh, -20, 20, 3e-7, 0},
        {MEG_POINT_TANH, tanh, -1e-6, 1e-6, 2e-7, 0},
        {MEG_POINT_GELU, gelu, -4, 20, 1e-6, 0},
        {MEG_POINT_GELU, gelu, -13, -4, 6e-6, 0},
        {MEG_POINT_GELU_TANH, gelu_tanh, -4, 20, 2e-6, 0},
        {MEG_POINT_GELU_BACK, gelu_slope, -20, 20, 3e-7, 0},
        {MEG_POINT_EXP, exp, -80, 80, 2e-7, 0},
        {MEG_POINT_LOG, log, 1e-3, 3, 2e-7, 0},
        {MEG_POINT_LOG, log, 0.999, 1.001, 2e-7, 0},
        {MEG_POINT_LOG, log, 1, 1e30, 2e-7, 0},
        {MEG_POINT_LOG, log, 1e-44, 1e-38, 2e-7, 0}, /* too small to be normal */
        {MEG_POINT_ROOT, sqrt, 0, 1e9, 1e-7, 0},
        {MEG_POINT_SOFTPLUS, softplus, -80, 100, 4e-7, 0},
        {MEG_POINT_SOFTPLUS_BACK, sigmoid, -80, 100, 4e-7, 0},
        {MEG_POINT_MISH, mish, -40, 20, 1e-6, 0},
        {MEG_POINT_MISH_BACK, mish_slope, -40, 20, 5e-7, 0},
        {MEG_POINT_BEND, elu, -30, 4, 5e-7, 1},
        {MEG_POINT_BEND, elu, -1e-6, 1e-6, 3e-7, 1},
        {MEG_POINT_HARD_SWISH, hard_swish, -5, 5, 3e-7, 0},
        {MEG_POINT_HARD_SWISH_BACK, hard_swish_slope, -5, 5, 3e-7, 0},
        {MEG_POINT_POWER, power_2_5, 0, 1e4, 4e-7, 2.5f},
        {MEG_POINT_POWER, power_5, -100, 100, 6e-7, 5},
        {MEG_POINT_POWER, power_less, 1e-9, 1e9, 4e-7, -0.75f},
    };
    enum {
        COUNT = 200003
    };
    float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    float *ones = malloc(COUNT * sizeof *ones);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const accuracy *f = &table[i];
        bool back = f->kind == MEG_POINT_GELU_BACK || f->kind == MEG_POINT_SOFTPLUS_BACK ||
                    f->kind == MEG_POINT_MISH_BACK || f->kind == MEG_POINT_HARD_SWISH_BACK;
        for (int k = 0; k < COUNT; k++)
            x[k] = (float)(f->lo + (f->hi - f->lo) * k / (COUNT - 1)), ones[k] = 1;
        meg_simd_point job = {.kind = f->kind,
                              .count = COUNT,
                              .row = COUNT,
                              .blocks = 1,
                              .lanes = 16,
                              .threads = 2,
                              .lo = f->number,
                              .hi = 1,
                              .rate = 1,
                              .a = back ? ones : x,
                              .b = x,
                              .y = y};
        cpu_of(devices(state)[1])->simd->point(&job);
        double worst = 0;
        for (int k = 0; k < COUNT; k++) {
            double want = f->exact((double)x[k]), off = fabs((double)y[k] - want);
            double size = back ? 1 : fabs(want);
            if (want != 0 && !(off <= f->allowed * size))
                fail_msg("kind %d at %.9g: %.9g, should be %.9g", f->kind, (double)x[k],
                         (double)y[k], want);
            if (want != 0 && off / size > worst) worst = off / size;
        }
        print_message("kind %d from %g to %g: error at most %.2g\n", f->kind, f->lo, f->hi, worst);
    }
    free(x), free(y), free(ones);
}

/* NaN of any bits shows, infinities have their limits, and rests of a vector are what they are
 * inside of one. */
static void extremes(void **state)
{
    static const meg_simd_kind kinds[] = {
        MEG_POINT_LEAK, MEG_POINT_CLIP,      MEG_POINT_SIGMOID,   MEG_POINT_TANH,
        MEG_POINT_GELU, MEG_POINT_GELU_TANH, MEG_POINT_SOFTPLUS,  MEG_POINT_MISH,
        MEG_POINT_EXP,  MEG_POINT_LOG,       MEG_POINT_HARD_SWISH};
    static const float lowest[] = {-INFINITY, 0, 0, -1, 0, 0, 0, 0, 0, NAN, 0};
    static const float highest[] = {INFINITY, 2,        1,        1,        INFINITY, INFINITY,
                                    INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        float x[37], y[37];
        memset(x, 0xff, sizeof x);
        x[3] = INFINITY, x[36] = -200;
        meg_simd_point job = {.kind = kinds[i],
                              .count = 37,
                              .row = 37,
                              .blocks = 1,
                              .lanes = 16,
                              .threads = 1,
                              .hi = 2,
                              .a = x,
                              .y = y};
        if (kinds[i] == MEG_POINT_LEAK) job.lo = 1, x[36] = -INFINITY;
        cpu_of(devices(state)[0])->simd->point(&job);
        for (int k = 0; k < 37; k++) {
            float want = k == 3 ? highest[i] : k == 36 ? lowest[i] : NAN;
            if (isnan(want) ? !isnan(y[k]) : y[k] != want)
                fail_msg("kind %d, element %d is %g, should be %g", kinds[i], k, (double)y[k],
                         (double)want);
        }
    }
}

/* ---- parts: two boxes of one value, each in a format of its own ---- */

typedef struct part_case {
    int64_t from[2], to[2]; /* channels */
    int shifted;            /* pixels: the boxes overlap in a part */
    int blocked;            /* bits: the source, the target */
} part_case;

static meg_box part_box(const int64_t channels[2], int64_t row)
{
    meg_box b = meg_box_of(2, 1, 2, 5, 6);
    b.lo[MEG_C] = channels[0], b.hi[MEG_C] = channels[1];
    b.lo[MEG_H] += row, b.hi[MEG_H] += row;
    b.lo[MEG_W] += 2 * row, b.hi[MEG_W] += 2 * row;
    return b;
}

/* Where an element of the value lies in a tensor of box b; -1: it has none. */
static int64_t element(const meg_box *b, int block, const int64_t p[MEG_AXES])
{
    for (int a = 0; a < MEG_AXES; a++)
        if (p[a] < b->lo[a] || p[a] >= b->hi[a]) return -1;
    int64_t pixel = ((p[MEG_D] - b->lo[MEG_D]) * meg_extent(b, MEG_H) + p[MEG_H] - b->lo[MEG_H]) *
                        meg_extent(b, MEG_W) +
                    p[MEG_W] - b->lo[MEG_W];
    return place(b, block, p[MEG_N] - b->lo[MEG_N], p[MEG_C] - b->lo[MEG_C], pixel);
}

static void set_elements(const meg_box *b, int block, float *x, float first)
{
    int64_t p[MEG_AXES];
    for (int64_t i = 0; i < meg_box_size(b); i++) {
        int64_t rest = i;
        for (int a = MEG_AXES - 1; a >= 0; rest /= meg_extent(b, a--))
            p[a] = b->lo[a] + rest % meg_extent(b, a);
        x[element(b, block, p)] = first + (float)i;
    }
}

/* Each element that both have is the source's, or the sum; all others are as they were. */
static void judge_part(const meg_request *r, const int block[2], const float *x, const float *got)
{
    const meg_box *from = &r->box[r->code == MEG_ADD ? MEG_X + 1 : MEG_X], *to = &r->box[MEG_Y];
    size_t floats = (size_t)meg_format_bytes(r->format[MEG_Y], to, MEG_F32) / sizeof(float);
    float *old = calloc(floats, sizeof *old);
    int64_t p[MEG_AXES];
    set_elements(to, block[1], old, 1000);
    for (int64_t i = 0; i < meg_box_size(to); i++) {
        int64_t rest = i;
        for (int a = MEG_AXES - 1; a >= 0; rest /= meg_extent(to, a--))
            p[a] = to->lo[a] + rest % meg_extent(to, a);
        int64_t here = element(to, block[1], p), there = element(from, block[0], p);
        float add = r->code == MEG_ADD ? old[here] : 0;
        float want = there < 0 ? old[here] : x[there] + add;
        if (got[here] != want)
            fail_msg("channel %d of block %d from block %d: %g, should be %g", (int)p[MEG_C],
                     block[1], block[0], (double)got[here], (double)want);
        old[here] = 0;
    }
    for (size_t i = 0; i < floats; i++) /* lanes behind the last channel */
        if (old[i] != 0) fail_msg("float %zu of the old tensor was not looked at", i);
    free(old);
}

static void one_part(meg_device *d, const part_case *c, bool add)
{
    int block[] = {c->blocked & 1 ? cpu_of(d)->block : 1, c->blocked & 2 ? cpu_of(d)->block : 1};
    meg_request r = {.code = add ? MEG_ADD : MEG_COPY};
    int source = add ? MEG_X + 1 : MEG_X;
    r.box[MEG_X] = r.box[MEG_Y] = part_box(c->to, 0);
    r.box[source] = part_box(c->from, c->shifted);
    r.format[MEG_X] = r.format[MEG_Y] = meg_format_blocked(block[1]);
    r.format[source] = meg_format_blocked(block[0]);
    char *x = aligned_memory(meg_format_bytes(r.format[source], &r.box[source], MEG_F32));
    int64_t bytes = meg_format_bytes(r.format[MEG_Y], &r.box[MEG_Y], MEG_F32);
    char *y = aligned_memory(bytes);
    memset(y, 0, (size_t)bytes);
    set_elements(&r.box[source], block[0], (float *)x, 1);
    set_elements(&r.box[MEG_Y], block[1], (float *)y, 1000);
    void *at[MEG_OPERANDS] = {[MEG_X] = y, [MEG_Y] = y};
    at[source] = x;
    launch(d, &r, at);
    judge_part(&r, block, (float *)x, (float *)y);
    free(x);
    free(y);
}

static void parts(void **state)
{
    static const int64_t channels[][2] = {{0, 4},  {0, 16}, {0, 40},  {12, 24}, {3, 5},
                                          {5, 37}, {8, 24}, {16, 40}, {39, 40}};
    enum {
        COUNT = sizeof channels / sizeof *channels
    };
    for (int i = 0; i < COUNT * COUNT * 8; i++) {
        part_case c = {.shifted = i / 4 % 2, .blocked = i % 4};
        memcpy(c.from, channels[i / 8 % COUNT], sizeof c.from);
        memcpy(c.to, channels[i / 8 / COUNT], sizeof c.to);
        /* Of whole tensors only like formats are summed: the kernel asks for a copy first. */
        bool same = !c.shifted && memcmp(c.from, c.to, sizeof c.to) == 0;
        for (int team = 0; team < TEAMS; team++) {
            one_part(devices(state)[team], &c, false);
            if (!same || c.blocked % 3 == 0) one_part(devices(state)[team], &c, true);
        }
    }
}

static int all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),         cmocka_unit_test(instructions),
        cmocka_unit_test(weight_formats), cmocka_unit_test(large_tensors),
        cmocka_unit_test(functions),      cmocka_unit_test(extremes),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(all);
}
