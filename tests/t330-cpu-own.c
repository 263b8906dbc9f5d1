/* Our own kernels of the cpu device against the plain-C kernels in double: every sample of every
 * operator they serve, and larger shapes that reach their inner loops, with 1, 2 and 3 threads, in
 * place and with a second gradient. What they write must not depend on the number of threads, and
 * padding must be zero. Once for each instruction set that this machine has.
 */
#define _GNU_SOURCE
#include "cpu_isas.h"
#include "plain_op.h"

#include <math.h>

/* Both sides round the same inputs to float; only the order of summation differs. */
static const double tolerance = 2e-6;

typedef struct variant {
    const char *name;
    bool in_place, second, shared;
} variant;

static const variant variants[] = {
    {"", false, false, false},
    {"in place", true, false, false},
    {"two gradients", false, true, false},
    {"in place, two gradients", true, true, false},
    {"one slot", true, false, true},
};
enum {
    VARIANTS = sizeof variants / sizeof *variants
};

typedef struct slot { /* an operand on the device */
    void *data;
    int64_t bytes;
    bool borrowed; /* lies on another */
} slot;

static void assert_padding_zero(const char *what, const meg_box *b, int block, const void *data,
                                int64_t size)
{
    int64_t pixels = meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
    int64_t channels = meg_extent(b, MEG_C), padded = (channels + block - 1) / block * block;
    for (int64_t n = 0; n < meg_extent(b, MEG_N); n++)
        for (int64_t c = channels; c < padded; c++)
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t k = 0; k < size; k++)
                    if (((const char *)data)[place(b, block, n, c, p) * size + k])
                        fail_msg("%s: padding at n=%d c=%d pixel %d is not 0", what, (int)n, (int)c,
                                 (int)p);
}

/* Values arrive blocked, but in samples of an odd size plain. */
static meg_request request_of(const plain_op *p, meg_device *d, meg_pass pass)
{
    meg_request r = {.code = MEG_KERNEL, .graph = p->graph, .node = p->node, .pass = pass};
    bool odd = meg_box_size(&p->t[MEG_Y].box) % 2 != 0;
    r.work = meg_op_whole(p->graph, p->node);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (p->t[i].data) r.box[i] = p->t[i].box;
        r.dtype[i] = p->type[i] == MEG_F64 ? MEG_F32 : p->type[i];
        r.format[i] = odd ? MEG_FORMAT_PLAIN : meg_format_blocked(cpu_of(d)->block);
    }
    return r;
}

/* The operand's values, rounded to what the device computes in. */
static void *plain_data(const plain_op *p, int operand, double factor)
{
    int64_t count = meg_box_size(&p->t[operand].box);
    float *f = malloc((size_t)count * sizeof *f);
    uint8_t *u = (uint8_t *)f;
    for (int64_t i = 0; i < count; i++) {
        double x = plain_get(p, operand, i);
        if (p->type[operand] == MEG_U8) u[i] = (uint8_t)x;
        else if (p->type[operand] == MEG_I32) ((int32_t *)f)[i] = (int32_t)x;
        else f[i] = (float)(factor * x);
    }
    return f;
}

static slot load_slot(meg_device *d, const plain_op *p, int operand, meg_format f, double factor)
{
    const meg_box *b = &p->t[operand].box;
    meg_dtype type = p->type[operand] == MEG_U8 ? MEG_U8 : MEG_F32;
    slot s = {.bytes = meg_format_bytes(f, b, type)};
    int block = meg_format_block(f);
    void *plain = plain_data(p, operand, factor);
    s.data = malloc((size_t)s.bytes);
    memset(s.data, type == MEG_U8 ? 0 : 0xff, (size_t)s.bytes);
    if (block == 1) memcpy(s.data, plain, (size_t)s.bytes);
    else if (type == MEG_U8) move(b, block, s.data, plain, 1, true);
    else copy(d, b, MEG_FORMAT_PLAIN, f, (void *const[]){plain, s.data});
    free(plain);
    return s;
}

/* Compares what the device wrote with the plain kernel, by norm. */
static void compare(meg_device *d, const plain_op *p, int operand, meg_format f, const slot *s,
                    const char *what)
{
    const meg_box *b = &p->t[operand].box;
    int64_t count = meg_box_size(b);
    bool bytes = p->type[operand] == MEG_U8;
    float *got = malloc((size_t)count * sizeof *got);
    int block = meg_format_block(f);
    if (block > 1) assert_padding_zero(what, b, block, s->data, bytes ? 1 : 4);
    if (block == 1) memcpy(got, s->data, (size_t)s->bytes);
    else if (bytes) move(b, block, s->data, got, 1, false);
    else copy(d, b, f, MEG_FORMAT_PLAIN, (void *const[]){s->data, got});
    double error = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double want = plain_get(p, operand, i);
        double have = bytes                         ? ((const uint8_t *)got)[i]
                      : p->type[operand] == MEG_I32 ? ((const int32_t *)got)[i]
                                                    : (double)got[i];
        error += (have - want) * (have - want);
        norm += want * want;
    }
    error = sqrt(error), norm = sqrt(norm);
    if (!(error <= tolerance * fmax(norm, 1e-3)))
        fail_msg("%s: operand %d differs by %g of %g", what, operand, error, norm);
    free(got);
}

/* ---- one pass of one sample ---- */

typedef struct trial {
    plain_op *p; /* with the results of the plain kernel */
    meg_pass pass;
    variant v;
    const char *what;
} trial;

static bool applies(const trial *t, const meg_spec *s)
{
    bool back = t->pass == MEG_BACKWARD;
    if (t->v.in_place && !(s->in_place & MEG_BIT(back ? MEG_DX : MEG_Y))) return false;
    if (t->v.second && !(back && s->second_dy)) return false;
    return !t->v.shared || (back && s->shared);
}

static void place_slots(const trial *t, meg_device *d, const meg_spec *s, slot at[MEG_OPERANDS])
{
    const plain_op *p = t->p;
    const meg_op *op = p->node->op;
    meg_mask reads = meg_op_reads(op, t->pass), writes = meg_op_writes(op, t->pass);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!p->t[i].data || !((reads | writes) & MEG_BIT(i))) continue;
        double factor = i == MEG_DY && t->v.second ? 0.25 : 1;
        at[i] = load_slot(d, p, i, s->format[i], factor);
        if (writes & MEG_BIT(i)) memset(at[i].data, 0xff, (size_t)at[i].bytes);
    }
    if (t->v.second) at[MEG_DY + 1] = load_slot(d, p, MEG_DY, s->format[MEG_DY + 1], 0.75);
    at[MEG_SCRATCH].bytes = s->bytes[MEG_SCRATCH];
    at[MEG_SCRATCH].data = malloc((size_t)at[MEG_SCRATCH].bytes + 1);
    memset(at[MEG_SCRATCH].data, 0xff, (size_t)at[MEG_SCRATCH].bytes);
}

static void borrow(slot *on, slot *to)
{
    assert_int_equal(on->bytes, to->bytes);
    free(to->data);
    *to = (slot){on->data, on->bytes, true};
}

static void overlay(const trial *t, slot at[MEG_OPERANDS])
{
    bool back = t->pass == MEG_BACKWARD;
    if (t->v.in_place) borrow(&at[back ? MEG_DY : MEG_X], &at[back ? MEG_DX : MEG_Y]);
    for (int i = 1; t->v.shared && i < t->p->node->inputs; i++)
        borrow(&at[MEG_DX], &at[MEG_DX + i]);
}

/* Runs the pass twice on one device; the result's hash, 0 if the variant does not apply. */
static uint64_t run_once(const trial *t, meg_device *d)
{
    meg_request r = request_of(t->p, d, t->pass);
    meg_spec s;
    slot at[MEG_OPERANDS] = {{0}};
    void *memory[MEG_OPERANDS];
    uint64_t hash = 14695981039346656037ull;
    meg_device_describe(d, &r, &s);
    if (strncmp(s.impl, "own:", 4) != 0) fail_msg("%s is left to %s", t->what, s.impl);
    assert_true(s.traffic > 0);
    if (!applies(t, &s)) return 0;
    place_slots(t, d, &s, at);
    overlay(t, at);
    for (int i = 0; i < MEG_OPERANDS; i++)
        memory[i] = at[i].data;
    launch(d, &r, memory);
    meg_mask writes = meg_op_writes(t->p->node->op, t->pass);
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!at[i].data || !(writes & MEG_BIT(i))) continue;
        compare(d, t->p, i, s.format[i], &at[i], t->what);
        for (int64_t k = 0; k < at[i].bytes; k++)
            hash = (hash ^ ((const uint8_t *)at[i].data)[k]) * 1099511628211ull;
    }
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (!at[i].borrowed) free(at[i].data);
    return hash;
}

/* All variants and teams; those without a second gradient must agree to the last bit. */
static void check_pass(meg_device **d, plain_op *p, const char *name, meg_pass pass)
{
    uint64_t first[2] = {0, 0};
    for (int i = 0; i < VARIANTS; i++)
        for (int team = 0; team < TEAMS; team++)
            for (int again = 0; again < 2; again++) {
                char what[256];
                snprintf(what, sizeof what, "%s %s %s, %d threads", name, meg_pass_name(pass),
                         variants[i].name, team + 1);
                trial t = {p, pass, variants[i], what};
                uint64_t hash = run_once(&t, d[team]), *want = &first[t.v.second];
                if (hash == 0) continue;
                if (*want == 0) *want = hash;
                if (hash != *want) fail_msg("%s: not the same bits as before", what);
            }
}

/* Inputs that are spread are left to plain C; only a sum with the same for all samples is not. */
static bool spread_by_plain(const plain_op *p, const char *op)
{
    static const char *const pairs[] = {"add", "compare", "max", "min", "mul", "sub", "where"};
    const meg_box *a = &p->t[MEG_X].box, *b = &p->t[MEG_X + 1].box;
    bool found = false, differs = false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        found = found || strcmp(op, pairs[i]) == 0;
    for (int i = 1; i < p->node->inputs; i++)
        differs = differs || !meg_box_equal(a, &p->t[MEG_X + i].box);
    meg_box sample = *a;
    sample.hi[MEG_N] = 1;
    return found && differs && !(strcmp(op, "add") == 0 && meg_box_equal(b, &sample));
}

/* Functions that are defined, or do not grow without bounds, above 0 only. */
static bool wants_positive(const char *op)
{
    static const char *const ops[] = {"log", "pow", "reciprocal", "sqrt"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i]) == 0) return true;
    return false;
}

/* "4@10": 10 */
static double labels_of(const meg_sample *s)
{
    const char *at = strchr(s->shapes, '@');
    return at ? atof(at + 1) : 0;
}

static void check_sample(meg_device **d, const char *op, const meg_sample *s)
{
    static const meg_pass passes[] = {MEG_FORWARD, MEG_EVAL, MEG_REPLAY, MEG_BACKWARD};
    plain_op p;
    meg_error e = {0};
    uint64_t seed = 7;
    char name[128];
    snprintf(name, sizeof name, "%s %s [%s]", op, s->shapes, s->attrs ? s->attrs : "");
    if (plain_open(&e, op, s, MEG_F64, &p) != MEG_OK) fail_msg("%s", e.message);
    for (int i = 0; i < MEG_OPERANDS; i++)
        for (int64_t k = 0; p.t[i].data && k < meg_box_size(&p.t[i].box); k++) {
            double x = noise(&seed);
            bool variance = strcmp(op, "batchnorm") == 0 && i == MEG_X + 4;
            bool label = p.type[i] == MEG_I32 && i < MEG_Y; /* or index, and some outside */
            if (i == MEG_X && wants_positive(op)) x = fabs(x) + 0.125;
            if (variance) x = (x + 1) / 2 + 0.125;
            if (label) x = floor((x + 1) / 2 * labels_of(s) * 1.1) - 1;
            plain_set(&p, i, k, x);
        }
    bool spread = spread_by_plain(&p, op);
    for (size_t i = 0; i < sizeof passes / sizeof *passes && !spread; i++) {
        bool aux_bytes = p.type[MEG_AUX] == MEG_I32 && p.t[MEG_AUX].data;
        if (aux_bytes || !plain_run(&p, passes[i])) continue; /* above 256 taps: plain C */
        check_pass(d, &p, name, passes[i]);
    }
    plain_close(&p);
}

/* ---- the tests ---- */

typedef struct more {
    const char *op;
    meg_sample sample;
} more;

/* Several parts, runs and tiles; tails; blocks that are full and not; fewer blocks than threads. */
static const more extra[] = {
    {"batchnorm", {"3x20x70x70", "norm=2 relu=1"}},
    {"batchnorm", {"2x9x71x59", NULL}},
    {"batchnorm", {"5x48x6x7", "norm=2 relu=1"}},
    {"batchnorm", {"2x400x3x3", "relu=1"}},
    {"batchnorm", {"1x17x4x4", "epsilon=0 relu=1"}},
    {"add", {"2x33x31x17 2x33x31x17", "relu=1"}},
    {"add", {"2x33x31x17 2x33x31x17 2x33x31x17", NULL}},
    {"add", {"5x33x31x17 1x33x31x17", "relu=1"}},
    {"add", {"3x48x70 1x48x70", NULL}},
    {"relu", {"3x40x21x20", NULL}},
    {"relu", {"1x1x1x9001", NULL}},
    {"sigmoid", {"3x40x21x20", NULL}},
    {"sigmoid", {"2x9x71x59", NULL}},
    {"sigmoid", {"1x1x1x9001", NULL}},
    {"tanh", {"2x33x31x17", NULL}},
    {"gelu", {"2x33x31x17", NULL}},
    {"gelu", {"2x33x31x17", "approximate=tanh"}},
    {"leaky_relu", {"2x33x31x17", "slope=0.2"}},
    {"abs", {"2x33x31x17", NULL}},
    {"celu", {"2x33x31x17", "alpha=0.7"}},
    {"compare", {"2x33x31x18 2x33x31x18", "relation=less"}},
    {"compare", {"2x33x31x17", "relation=less_equal value=0.1"}},
    {"elu", {"2x33x31x17", NULL}},
    {"exp", {"2x33x31x17", NULL}},
    {"hard_sigmoid", {"2x33x31x18", "alpha=2"}},
    {"hard_swish", {"2x33x31x17", NULL}},
    {"max", {"2x33x31x17 2x33x31x17", NULL}},
    {"min", {"2x33x31x18 2x33x31x18", NULL}},
    {"mish", {"2x33x31x17", NULL}},
    {"neg", {"2x33x31x17", NULL}},
    {"pow", {"2x33x31x17", NULL}},
    {"pow", {"2x33x31x18", "exponent=3"}},
    {"selu", {"2x33x31x17", NULL}},
    {"softplus", {"2x33x31x18", NULL}},
    {"where", {"2x33x31x17 2x33x31x17", "value=-2"}},
    {"where", {"2x33x31x18 2x33x31x18 2x33x31x18", "invert=1"}},
    {"clip", {"2x33x31x18", "lo=0.1 hi=0.7"}},
    {"mul", {"2x33x31x17 2x33x31x17", NULL}},
    {"sub", {"2x33x31x18 2x33x31x18", NULL}},
    {"maxpool", {"2x37x23x22", "kernel=3 stride=2 pad=1"}},
    {"maxpool", {"2x37x23x22", "kernel=3 stride=2 pad=1 indices=1"}},
    {"avgpool", {"2x37x23x22", "kernel=3 stride=2 pad=1 count_pad=0 ceil=1"}},
    {"avgpool", {"1x16x9x7x12", "kernel=2"}}, /* tiles, and pixels that none covers */
    {"avgpool", {"2x21x11x10", "kernel=3x2"}},
    {"gap", {"2x37x23x29", NULL}},
    {"groupnorm", {"3x20x70x70", "groups=4 relu=1"}},
    {"groupnorm", {"2x9x71x59", "groups=3"}},
    {"groupnorm", {"1x96x6x7", "groups=2"}},
    {"groupnorm", {"17x24x5x5", "groups=8 affine=0"}},
    {"instancenorm", {"2x37x71x59", "affine=1 relu=1"}},
    {"layernorm", {"2x70x40x21", NULL}},
    {"layernorm", {"3x768x33", NULL}},
    {"layernorm", {"2x37x301", "affine=0"}},
    {"resize", {"2x37x23x22", "mode=linear scale=2"}},
    {"resize", {"2x37x23x22", "scale=2"}},
    {"adaptive_avgpool", {"2x37x46x45", "size=1x7"}},
    {"concat", {"2x20x33x40 2x7x33x40 2x16x33x40 2x1x33x40", NULL}},
    {"concat", {"2x32x9x9 2x16x9x9", NULL}},
    {"concat", {"1x10x5x5 1x10x5x5 1x10x5x5 1x10x5x5", NULL}},
    {"slice", {"2x48x33x40", "axes=1 begin=16 end=32"}},
    {"slice", {"2x41x33x40", "axes=1 begin=3 end=29"}},
    {"slice", {"3x21x11x10", "axes=1 end=5"}},
    {"slice", {"2x21x11x10", "axes=2x3 begin=2x1 end=-3x-2"}},
    {"slice", {"1x16x6x9x10", "begin=1x0x3 end=5x9x10"}},
    {"prelu", {"2x33x31x17", NULL}},
    {"prelu", {"2x20x71x60", "single=1"}},
    {"prelu", {"1x3x130x130", NULL}},
    {"max_unpool", {"2x37x9x10 2x37x1x9x10@400", "size=20x20"}},
    {"max_unpool", {"2x16x4x9x10 2x16x4x9x10@2880", "kernel=2"}},
    {"softmax_xent", {"2x3x70x71 2x70x71@3 1", NULL}},
    {"softmax_xent", {"2x21x33x18 2x33x18@21 1 1x21", "ignore=3 smoothing=0.1"}},
    {"softmax_xent", {"1x2x5x6x7 1x5x6x7@2 1", NULL}},
    {"softmax_xent", {"3x300x9 3x9@300 1", "smoothing=0.2"}},
};

/* Weights that would have to be blocked. */
static bool left_to_plain(const meg_sample *s)
{
    return s->attrs && strstr(s->attrs, "axes=all") && !strstr(s->attrs, "affine=0");
}

static void operators(void **state)
{
    static const char *const ops[] = {"batchnorm",  "add",        "relu",
                                      "maxpool",    "avgpool",    "gap",
                                      "concat",     "resize",     "adaptive_avgpool",
                                      "clip",       "gelu",       "leaky_relu",
                                      "mul",        "sigmoid",    "sub",
                                      "tanh",       "groupnorm",  "instancenorm",
                                      "layernorm",  "prelu",      "max_unpool",
                                      "abs",        "celu",       "compare",
                                      "elu",        "exp",        "hard_sigmoid",
                                      "hard_swish", "max",        "min",
                                      "mish",       "neg",        "selu",
                                      "softplus",   "where",      "log",
                                      "pow",        "reciprocal", "sqrt"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const meg_op *op = meg_op_find(ops[i]);
        assert_non_null(op);
        assert_non_null(op->samples[0].shapes);
        for (const meg_sample *s = op->samples; s->shapes; s++)
            if (!left_to_plain(s)) check_sample(devices(state), ops[i], s);
    }
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        check_sample(devices(state), extra[i].op, &extra[i].sample);
}

/* A large mean must not drown the variance: 1000 +- 1 in float, against double. */
static void variance_is_stable(void **state)
{
    const meg_sample s = {"4x8x40x40", "epsilon=1e-5"};
    plain_op p;
    meg_error e = {0};
    uint64_t seed = 3;
    assert_int_equal(plain_open(&e, "batchnorm", &s, MEG_F64, &p), MEG_OK);
    for (int64_t k = 0; k < meg_box_size(&p.t[MEG_X].box); k++)
        plain_set(&p, MEG_X, k, (double)(float)(1000 + noise(&seed)));
    for (int64_t k = 0; k < 8; k++)
        plain_set(&p, MEG_X + 1, k, 1);
    assert_true(plain_run(&p, MEG_FORWARD));
    meg_device *d = devices(state)[1];
    meg_request r = request_of(&p, d, MEG_FORWARD);
    meg_spec spec;
    slot at[MEG_OPERANDS] = {{0}};
    void *memory[MEG_OPERANDS];
    meg_device_describe(d, &r, &spec);
    place_slots(&(trial){&p, MEG_FORWARD, variants[0], "large mean"}, d, &spec, at);
    for (int i = 0; i < MEG_OPERANDS; i++)
        memory[i] = at[i].data;
    launch(d, &r, memory);
    compare(d, &p, MEG_AUX, spec.format[MEG_AUX], &at[MEG_AUX], "large mean");
    compare(d, &p, MEG_AUX + 1, spec.format[MEG_AUX + 1], &at[MEG_AUX + 1], "large mean: variance");
    for (int i = 0; i < MEG_OPERANDS; i++)
        free(at[i].data);
    plain_close(&p);
}

/* A part of a pool's outputs, from just the pixels it needs, equals that part of the whole. */
static void parts_of_pools(void **state)
{
    static const more pools[] = {
        {"maxpool", {"2x5x11x9", "kernel=3 stride=2 pad=1"}},
        {"avgpool", {"2x5x11x9", "kernel=3 stride=2 pad=1 count_pad=0"}},
    };
    for (int i = 0; i < 2; i++) {
        plain_op p;
        meg_error e = {0};
        uint64_t seed = 5;
        assert_int_equal(plain_open(&e, pools[i].op, &pools[i].sample, MEG_F32, &p), MEG_OK);
        meg_device *d = devices(state)[2];
        meg_request r = request_of(&p, d, MEG_FORWARD);
        for (int k = MEG_H; k <= MEG_W; k++)
            r.work.out.lo[k] = 2, r.work.out.hi[k]--;
        meg_box need = meg_op_need(p.graph, p.node, 0, &r.work);
        r.box[MEG_X] = need;
        r.box[MEG_Y] = r.work.out;
        if (r.node->op->auxes) r.box[MEG_AUX] = r.work.out;
        for (int64_t k = 0; k < meg_box_size(&need); k++)
            plain_set(&p, MEG_X, k, noise(&seed));
        p.t[MEG_X].box = need;
        p.t[MEG_Y].box = p.t[MEG_AUX].box = r.work.out;
        meg_call c = {.graph = p.graph, .node = p.node, .work = r.work};
        for (int k = 0; k < MEG_OPERANDS; k++)
            c.t[k] = p.t[k];
        meg_op_kernel(p.node->op, MEG_FORWARD, MEG_F32)(&c);
        meg_spec s;
        meg_device_describe(d, &r, &s);
        assert_memory_equal(s.impl, "own:", 4);
        slot x = load_slot(d, &p, MEG_X, s.format[MEG_X], 1);
        slot y = load_slot(d, &p, MEG_Y, s.format[MEG_Y], 1);
        memset(y.data, 0xff, (size_t)y.bytes);
        launch(d, &r, (void *[MEG_OPERANDS]){[MEG_X] = x.data, [MEG_Y] = y.data});
        compare(d, &p, MEG_Y, s.format[MEG_Y], &y, pools[i].op);
        free(x.data);
        free(y.data);
        plain_close(&p);
    }
}

static int all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators),
        cmocka_unit_test(parts_of_pools),
        cmocka_unit_test(variance_is_stable),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(all);
}
