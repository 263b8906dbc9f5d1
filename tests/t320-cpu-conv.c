/* Convolution, its transpose and dense layers of the cpu device against their plain-C definition in
 * double.
 *
 * Every sample of the operators, and some that aim at kernels the samples miss, goes the way a plan
 * would send it: forward says which formats it likes and so gives the weight its home, copies bring
 * the operands there, the other passes follow. The program runs a second time limited to AVX2, so
 * that blocks of 8 channels are tested on machines with AVX-512, too.
 */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/conv/thin.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"
#include "plain_op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* Relative by norm; float sums of these sizes err by 1e-6. */
static const double tolerance = 1e-4;

enum {
    GUARD = 256,
    ALIGN = 64
};

typedef struct operand { /* in the device's memory */
    meg_format format;
    int64_t bytes;
    char *memory; /* followed by GUARD bytes of 0xAB; NULL: absent */
} operand;

typedef struct bench {
    meg_device *device;
    plain_op op; /* in double: the reference */
    meg_work work;
    meg_format stored; /* of x */
    operand at[MEG_OPERANDS];
    char impl[MEG_PASSES][48];
} bench;

/* ---- memory ---- */

static operand operand_new(meg_format format, int64_t bytes)
{
    operand o = {format, bytes, NULL};
    size_t room = (size_t)(bytes + GUARD + ALIGN) / ALIGN * ALIGN;
    o.memory = aligned_alloc(ALIGN, room);
    memset(o.memory, 0xFF, room); /* NaN */
    memset(o.memory + bytes, 0xAB, GUARD);
    return o;
}

static void operand_free(operand *o)
{
    for (int i = 0; o->memory && i < GUARD; i++)
        assert_int_equal((unsigned char)o->memory[o->bytes + i], 0xAB);
    free(o->memory);
    *o = (operand){0};
}

static meg_box box_of(const bench *b, int i)
{
    meg_box box = b->op.t[i].box;
    bool samples = i == MEG_X || i == MEG_Y || i == MEG_DY || i == MEG_DX;
    if (samples) {
        box.lo[MEG_N] = b->work.out.lo[MEG_N];
        box.hi[MEG_N] = b->work.out.hi[MEG_N];
    }
    return box;
}

/* ---- copies ---- */

static void launch(bench *b, const meg_request *r, operand *const at[MEG_OPERANDS])
{
    meg_error e = {0};
    meg_prepared *k = NULL;
    if (meg_device_prepare(b->device, &e, r, &k) != MEG_OK) fail_msg("%s", e.message);
    void *memory[MEG_OPERANDS] = {NULL};
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (at[i]) memory[i] = at[i]->memory;
    operand scratch = operand_new(MEG_FORMAT_PLAIN, k->spec.bytes[MEG_SCRATCH]);
    memory[MEG_SCRATCH] = scratch.memory;
    meg_device_launch(b->device, k, memory, &(meg_moment){0});
    meg_device_wait(b->device);
    operand_free(&scratch);
    meg_prepared_free(k);
}

/* Replaces an operand by its copy in another format. */
static void convert(bench *b, int i, meg_format to, operand *o)
{
    if (o->format == to) return;
    bool weight = i == MEG_X + 1 || i == MEG_DX + 1;
    meg_request r = {.code = MEG_COPY, .graph = b->op.graph, .node = weight ? b->op.node : NULL};
    r.box[MEG_X] = r.box[MEG_Y] = box_of(b, i);
    r.format[MEG_X] = o->format;
    r.format[MEG_Y] = to;
    meg_spec s;
    meg_device_describe(b->device, &r, &s);
    assert_true(strncmp(s.impl, "ref", 3) != 0 && !strstr(s.impl, ":ref"));
    if (weight) assert_string_not_equal(s.impl, "plain");
    int64_t bytes = s.bytes[MEG_Y] ? s.bytes[MEG_Y] : meg_format_bytes(to, &r.box[MEG_Y], MEG_F32);
    operand copy = operand_new(to, bytes);
    launch(b, &r, (operand *[MEG_OPERANDS]){[MEG_X] = o, [MEG_Y] = &copy});
    operand_free(o);
    *o = copy;
}

/* An operand's reference values, as floats in plain format. */
static operand upload(const bench *b, int i)
{
    meg_box box = box_of(b, i);
    int64_t count = meg_box_size(&box), first = meg_box_at(&b->op.t[i].box, box.lo);
    operand o = operand_new(MEG_FORMAT_PLAIN, count * 4);
    for (int64_t j = 0; j < count; j++)
        ((float *)o.memory)[j] = (float)plain_get(&b->op, i, first + j);
    return o;
}

/* ---- comparison ---- */

static void check_padding(const bench *b, int i, const operand *o)
{
    int block = meg_format_block(o->format);
    meg_box box = box_of(b, i);
    int64_t channels = meg_extent(&box, MEG_C);
    if (block <= 1 || channels % block == 0) return;
    int64_t pixels = meg_extent(&box, MEG_D) * meg_extent(&box, MEG_H) * meg_extent(&box, MEG_W);
    int64_t blocks = (channels + block - 1) / block;
    const float *at = (const float *)o->memory;
    for (int64_t n = 0; n < meg_extent(&box, MEG_N); n++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t l = channels % block; l < block; l++)
                assert_true(at[((n * blocks + blocks - 1) * pixels + p) * block + l] == 0);
}

static void check(bench *b, int i, const char *what, operand *o)
{
    check_padding(b, i, o);
    convert(b, i, MEG_FORMAT_PLAIN, o);
    meg_box box = box_of(b, i);
    int64_t count = meg_box_size(&box), first = meg_box_at(&b->op.t[i].box, box.lo);
    double norm = 0, error = 0;
    for (int64_t j = 0; j < count; j++) {
        double want = plain_get(&b->op, i, first + j), got = (double)((float *)o->memory)[j];
        norm += want * want;
        error += (got - want) * (got - want);
    }
    assert_true(norm > 0); /* a reference that shows nothing is refused */
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        fail_msg("%s: relative error %.3g, allowed %.3g", what, sqrt(error / norm), tolerance);
}

/* ---- one case ---- */

static void fill(plain_op *p, int i, uint64_t name)
{
    meg_stream s = {.seed = 7, .name = name};
    for (int64_t j = 0; p->t[i].data && j < meg_box_size(&p->t[i].box); j++)
        plain_set(p, i, j, (double)(float)meg_random_normal(s, (uint64_t)j));
}

static meg_request request(const bench *b, meg_pass pass)
{
    meg_request r = {.code = MEG_KERNEL, .graph = b->op.graph, .node = b->op.node, .pass = pass};
    r.work = b->work;
    for (int i = 0; i < MEG_SCRATCH; i++) {
        if (b->op.t[i].data) r.box[i] = box_of(b, i);
        r.format[i] = b->at[i].format;
    }
    r.format[MEG_X] = b->stored;
    return r;
}

/* One number per sample; output padding of a stride or more. */
static bool left_to_plain(const bench *b)
{
    const meg_node *v = b->op.node;
    meg_box x = box_of(b, MEG_X);
    const meg_conv_attr *a = v->attr;
    if (strcmp(v->op->name, "conv_transpose") != 0)
        return meg_box_size(&x) == meg_extent(&x, MEG_N);
    bool beyond = false;
    for (int i = 0; i < MEG_SPACE; i++)
        beyond = beyond || a->win[i].after <= -a->win[i].stride;
    return beyond;
}

/* Brings the operands that a pass reads into the formats it wishes, by way of those they are stored
 * in, and runs it; what it writes is in b->at. */
static void run_pass(bench *b, meg_pass pass, meg_spec *s)
{
    meg_request r = request(b, pass);
    meg_mask reads = meg_op_reads(b->op.node->op, pass);
    meg_mask writes = meg_op_writes(b->op.node->op, pass);
    operand *at[MEG_OPERANDS] = {NULL}, copy[MEG_OPERANDS] = {{0}};
    meg_device_describe(b->device, &r, s);
    memcpy(b->impl[pass], s->impl, sizeof s->impl);
    if (!left_to_plain(b)) assert_string_not_equal(s->impl, "plain");
    assert_true(strncmp(s->impl, "ref", 3) != 0 && !strstr(s->impl, ":ref"));
    assert_true(s->flops > 0 && s->traffic > 0);
    for (int i = 0; i < MEG_SCRATCH; i++) {
        if (!b->op.t[i].data) continue;
        if (reads & MEG_BIT(i)) {
            copy[i] = upload(b, i);
            if (i == MEG_X) convert(b, i, b->stored, &copy[i]);
            if (i == MEG_X + 1) convert(b, i, r.format[i], &copy[i]);
            convert(b, i, s->format[i], &copy[i]);
            at[i] = &copy[i];
        } else if (writes & MEG_BIT(i)) {
            int64_t bytes = s->bytes[i];
            if (!bytes) bytes = meg_format_bytes(s->format[i], &r.box[i], MEG_F32);
            b->at[i] = operand_new(s->format[i], bytes);
            at[i] = &b->at[i];
        }
    }
    launch(b, &r, at);
    for (int i = 0; i < MEG_SCRATCH; i++)
        operand_free(&copy[i]);
}

static void check_pass(bench *b, meg_pass pass)
{
    meg_mask writes = meg_op_writes(b->op.node->op, pass);
    for (int i = 0; i < MEG_SCRATCH; i++)
        if ((writes & MEG_BIT(i)) && b->at[i].memory) {
            char what[96];
            snprintf(what, sizeof what, "%s of %s, operand %d", meg_pass_name(pass),
                     b->op.node->name, i);
            check(b, i, what, &b->at[i]);
            operand_free(&b->at[i]);
        }
}

/* The same launch twice gives the same bits. */
static void check_again(bench *b, meg_pass pass)
{
    operand first[MEG_OPERANDS];
    meg_spec s;
    memcpy(first, b->at, sizeof first);
    for (int i = 0; i < MEG_SCRATCH; i++)
        b->at[i].memory = NULL;
    run_pass(b, pass, &s);
    for (int i = 0; i < MEG_SCRATCH; i++) {
        if (!first[i].memory) continue;
        assert_memory_equal(first[i].memory, b->at[i].memory, (size_t)first[i].bytes);
        operand_free(&first[i]);
    }
}

static void run_case(bench *b, const char *op, const meg_sample *sample, int64_t samples)
{
    meg_error e = {0};
    meg_spec s;
    if (plain_open(&e, op, sample, MEG_F64, &b->op) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < MEG_INPUTS; i++)
        fill(&b->op, MEG_X + i, (uint64_t)i);
    fill(&b->op, MEG_DY, 99);

    b->work = meg_op_whole(b->op.graph, b->op.node);
    int64_t batch = b->work.out.hi[MEG_N];
    if (samples > 0 && samples < batch) { /* the last ones: a part of the batch */
        b->work.out.lo[MEG_N] = batch - samples;
        meg_call c = {.graph = b->op.graph, .node = b->op.node, .work = b->work};
        memcpy(c.t, b->op.t, sizeof c.t);
        for (meg_pass p = 0; p < MEG_PASSES; p++)
            if (p == MEG_FORWARD || p == MEG_BACKWARD || p == MEG_WEIGHT)
                meg_op_kernel(b->op.node->op, p, MEG_F64)(&c);
    } else {
        plain_run(&b->op, MEG_FORWARD);
        plain_run(&b->op, MEG_BACKWARD);
        plain_run(&b->op, MEG_WEIGHT);
    }

    run_pass(b, MEG_FORWARD, &s);
    b->at[MEG_X + 1].format = s.format[MEG_X + 1]; /* from now on the weight's home */
    check_again(b, MEG_FORWARD);
    check_pass(b, MEG_FORWARD);
    run_pass(b, MEG_EVAL, &s);
    assert_int_equal(s.format[MEG_X + 1], b->at[MEG_X + 1].format);
    check_pass(b, MEG_EVAL);
    run_pass(b, MEG_BACKWARD, &s);
    check_again(b, MEG_BACKWARD);
    check_pass(b, MEG_BACKWARD);
    run_pass(b, MEG_WEIGHT, &s);
    assert_int_equal(s.format[MEG_DX + 1], b->at[MEG_X + 1].format);
    check_again(b, MEG_WEIGHT);
    check_pass(b, MEG_WEIGHT);
    print_message("%-5s %-14s %-52s home %-10s fwd %-18s bwd %-18s wgt %s\n", op, sample->shapes,
                  sample->attrs, meg_format_name(b->at[MEG_X + 1].format), b->impl[MEG_FORWARD],
                  b->impl[MEG_BACKWARD], b->impl[MEG_WEIGHT]);
    plain_close(&b->op);
}

/* Kernels that the operators' samples miss: thin inputs of all widths, in 1 to 3 dimensions; many
 * chunks of pixels; tiles that oneDNN's kernels refuse. */
static const meg_sample more[] = {{"3x1x28x28", "filters=32 kernel=3 pad=1"},
                                  {"2x2x20x18", "filters=20 kernel=3 pad=1 bias=0"},
                                  {"2x4x20x18", "filters=24 kernel=3 pad=1"},
                                  {"1x4x9x8x10", "filters=32 kernel=3 pad=1"},
                                  {"2x1x9x8x10", "filters=16 kernel=3 stride=2 pad=1 bias=0"},
                                  {"2x3x40", "filters=12 kernel=5 stride=2 dilation=2 pad=3"},
                                  {"1x3x51x47", "filters=12 kernel=11 stride=4 pad=2"},
                                  {"2x3x32x32", "filters=16 kernel=16 stride=16"},
                                  {"2x8x14x14", "filters=8 kernel=3 pad=1"},
                                  {"2x12x10x10", "filters=20 kernel=5 stride=2 pad=2"},
                                  {"2x32x12x12", "filters=32 kernel=5 pad=2 groups=32"},
                                  {"2x32x12x12", "filters=64 kernel=3 pad=1 groups=32"},
                                  {"1x16x10x10x10", "filters=32 kernel=3 pad=1"},
                                  {"1x20x10x10x10", "filters=20 kernel=3 stride=2 pad=1"},
                                  {"1x16x8x8x8", "filters=16 kernel=1x3x3 pad=0x1x1"},
                                  {"2x20x14x14", "filters=20 kernel=3 dilation=2 stride=2 pad=2"},
                                  {0}};

/* Of transposed ones: the up-convolution of a U-Net; thin and odd outputs; whole and odd groups. */
static const meg_sample up[] = {{"2x64x7x6", "filters=32 kernel=2 stride=2"},
                                {"1x40x9x9", "filters=3 kernel=4 stride=2 pad=1"},
                                {"2x3x9x8", "filters=20 kernel=3 stride=2 pad=1 output_pad=1"},
                                {"1x32x5x4x6", "filters=16 kernel=2 stride=2"},
                                {"1x32x8x8", "filters=64 kernel=3 stride=2 pad=1 groups=2"},
                                {"1x12x8x8", "filters=6 kernel=3 pad=1 groups=3"},
                                {"2x16x20", "filters=16 kernel=5 stride=2 dilation=2 pad=1:2"},
                                {0}};

static void run_all(int threads, meg_format stored, int64_t samples)
{
    meg_error e = {0};
    bench b = {0};
    const struct {
        const char *op;
        const meg_sample *samples;
    } lists[] = {{"conv", meg_op_find("conv")->samples},
                 {"conv", more},
                 {"conv_transpose", meg_op_find("conv_transpose")->samples},
                 {"conv_transpose", up},
                 {"dense", meg_op_find("dense")->samples}};
    if (meg_device_open(&e, "cpu", threads, &b.device) != MEG_OK) fail_msg("%s", e.message);
    const meg_cpu *cpu = meg_device_state(b.device);
    if (stored != MEG_FORMAT_PLAIN) stored = meg_format_blocked(cpu->block);
    print_message("%d threads, blocks of %d, x stored as %s, %lld samples\n", threads, cpu->block,
                  meg_format_name(stored), (long long)samples);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const meg_sample *s = lists[i].samples; s->shapes; s++) {
            b = (bench){.device = b.device, .stored = stored};
            run_case(&b, lists[i].op, s, samples);
        }
    meg_device_close(b.device);
}

static void test_one_thread(void **state)
{
    (void)state;
    run_all(1, MEG_FORMAT_PLAIN, 0);
    run_all(1, MEG_FORMAT_C8, 0);
}

static void test_two_threads(void **state)
{
    (void)state;
    run_all(2, MEG_FORMAT_PLAIN, 0);
    run_all(2, MEG_FORMAT_C8, 0);
}

static void test_three_threads(void **state)
{
    (void)state;
    run_all(3, MEG_FORMAT_PLAIN, 0);
}

static void test_part_of_the_batch(void **state)
{
    (void)state;
    run_all(2, MEG_FORMAT_PLAIN, 1);
}

/* ---- our own kernels, also where oneDNN's are preferred ---- */

static const meg_sample thin[] = {
    {"2x1x28x28", "filters=32 kernel=3 pad=1"},
    {"1x3x15x13", "filters=20 kernel=7 stride=2 pad=3"}, /* 7 x 8 outputs: a last tile of none */
    {"2x2x9x11", "filters=7 kernel=3x2 stride=1x3 dilation=2x1 pad=2:1x0:3"},
    {"1x4x5x6x7", "filters=16 kernel=3 stride=2x1x1 pad=1"},
    {"2x3x101", "filters=9 kernel=5 pad=2"}, /* 64 + 37 pixels: a chunk, 4 tiles, 5 pixels */
    {"1x2x2x3", "filters=3 kernel=3 pad=4"},
    {0}};

static meg_thin thin_job(const plain_op *p, int threads)
{
    const meg_conv_attr *a = p->node->attr;
    const meg_box *x = &p->t[MEG_X].box, *y = &p->t[MEG_Y].box;
    meg_thin j = {.samples = meg_extent(x, MEG_N), .channels = meg_extent(x, MEG_C)};
    j.filters = a->filters;
    j.threads = threads;
    for (int i = 0; i < MEG_SPACE; i++) {
        j.in[i] = meg_extent(x, MEG_D + i), j.out[i] = meg_extent(y, MEG_D + i);
        j.taps[i] = a->win[i].taps, j.stride[i] = a->win[i].stride;
        j.dilation[i] = a->win[i].dilation, j.before[i] = a->win[i].before;
    }
    return j;
}

/* Place of element (n, k, pixel) of a blocked tensor, of (k, c, tap) of a weight. */
static int64_t blocked_at(int64_t n, int64_t k, int64_t pixel, const int64_t sizes[2], int block)
{
    int64_t blocks = (sizes[0] + block - 1) / block;
    return ((n * blocks + k / block) * sizes[1] + pixel) * block + k % block;
}

typedef struct thin_memory {
    float *x, *weight, *y, *dy, *dweight, *bias, *dbias, *scratch;
} thin_memory;

enum {
    ROOM = 1 << 16
}; /* floats; enough for all of `thin` */

static void thin_fill(const plain_op *p, const meg_thin *j, int block, const thin_memory *m)
{
    int64_t taps = j->taps[0] * j->taps[1] * j->taps[2], pixels = j->out[0] * j->out[1] * j->out[2];
    for (int64_t i = 0; i < meg_box_size(&p->t[MEG_X].box); i++)
        m->x[i] = (float)plain_get(p, MEG_X, i);
    for (int64_t k = 0; k < j->filters; k++) {
        m->bias[k] = (float)plain_get(p, MEG_X + 2, k);
        for (int64_t c = 0; c < j->channels; c++)
            for (int64_t t = 0; t < taps; t++)
                m->weight[blocked_at(0, k, t * j->channels + c,
                                     (int64_t[]){j->filters, taps * j->channels}, block)] = (float)
                    plain_get(p, MEG_X + 1, (k * j->channels + c) * taps + t);
        for (int64_t n = 0; n < j->samples; n++)
            for (int64_t q = 0; q < pixels; q++)
                m->dy[blocked_at(n, k, q, (int64_t[]){j->filters, pixels}, block)] = (float)
                    plain_get(p, MEG_DY, (n * j->filters + k) * pixels + q);
    }
}

typedef struct difference {
    double norm, error;
} difference;

static void differ(difference *d, float got, double want)
{
    d->norm += want * want;
    d->error += ((double)got - want) * ((double)got - want);
}

static void thin_check(const plain_op *p, const meg_thin *j, int block, const thin_memory *m)
{
    int64_t taps = j->taps[0] * j->taps[1] * j->taps[2], pixels = j->out[0] * j->out[1] * j->out[2];
    difference d[3] = {{0}};
    for (int64_t k = 0; k < j->filters; k++) {
        differ(&d[2], m->dbias[k], plain_get(p, MEG_DX + 2, k));
        for (int64_t c = 0; c < j->channels; c++)
            for (int64_t t = 0; t < taps; t++)
                differ(&d[1],
                       m->dweight[blocked_at(0, k, t * j->channels + c,
                                             (int64_t[]){j->filters, taps * j->channels}, block)],
                       plain_get(p, MEG_DX + 1, (k * j->channels + c) * taps + t));
        for (int64_t n = 0; n < j->samples; n++)
            for (int64_t q = 0; q < pixels; q++)
                differ(&d[0], m->y[blocked_at(n, k, q, (int64_t[]){j->filters, pixels}, block)],
                       plain_get(p, MEG_Y, (n * j->filters + k) * pixels + q));
    }
    for (int i = 0; i < 3; i++) {
        assert_true(d[i].norm > 0);
        if (!(sqrt(d[i].error) <= tolerance * sqrt(d[i].norm)))
            fail_msg("%s: relative error %.3g, allowed %.3g", (char *[]){"y", "dw", "dbias"}[i],
                     sqrt(d[i].error / d[i].norm), tolerance);
    }
}

static void thin_case(const meg_simd *simd, const meg_sample *sample, int threads)
{
    meg_error e = {0};
    plain_op p;
    thin_memory m;
    float **field = (float **)&m;
    if (plain_open(&e, "conv", sample, MEG_F64, &p) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < MEG_INPUTS; i++)
        fill(&p, MEG_X + i, (uint64_t)i);
    fill(&p, MEG_DY, 99);
    plain_run(&p, MEG_FORWARD);
    plain_run(&p, MEG_WEIGHT);
    for (size_t i = 0; i < sizeof m / sizeof *field; i++)
        field[i] = calloc(ROOM, sizeof(float));
    meg_thin j = thin_job(&p, threads);
    thin_fill(&p, &j, simd->block, &m);
    j.x = m.x, j.weight = m.weight, j.bias = m.bias, j.y = m.y;
    j.dy = m.dy, j.dweight = m.dweight, j.dbias = m.dbias, j.scratch = m.scratch;
    assert_true(meg_thin_floats(&j, simd->block, true) <= ROOM);
    simd->thin_forward(&j);
    memset(m.scratch, 0xFF, ROOM * sizeof(float)); /* NaN: it must not matter */
    simd->thin_weight(&j);
    thin_check(&p, &j, simd->block, &m);
    for (size_t i = 0; i < sizeof m / sizeof *field; i++)
        free(field[i]);
    plain_close(&p);
}

static void test_thin(void **state)
{
    (void)state;
    const meg_simd *all[3] = {&meg_simd_portable};
    int count = 1;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        all[count++] = &meg_simd_avx2;
    if (meg_onednn_block() == 16) all[count++] = &meg_simd_avx512;
#endif
    for (int i = 0; i < count; i++)
        for (const meg_sample *s = thin; s->shapes; s++)
            for (int threads = 1; threads <= 3; threads++)
                thin_case(all[i], s, threads);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),    cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_three_threads), cmocka_unit_test(test_part_of_the_batch),
        cmocka_unit_test(test_thin),
    };
    (void)argc;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed || getenv("DNNL_MAX_CPU_ISA")) return failed;
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* oneDNN reads it once: hence a new process */
    execv("/proc/self/exe", argv);
    return 1;
}
