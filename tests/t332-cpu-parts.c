/* Parts of operators on the cpu device, as meshes ask for them: a part of the outputs, or of the
 * sum; operands that cover just what it needs, and operands with halos. Judged by the plain-C kernels
 * in double on the same boxes: outputs over the work, gradients over all that the operand holds.
 * Once for each instruction set that this machine has.
 */
#define _GNU_SOURCE
#include "cpu_isas.h"
#include "plain_op.h"

#include <math.h>

static const double tolerance = 2e-6;

typedef struct sample {
    const char *op, *shapes, *attrs;
    bool halos; /* takes operands with halos as they are */
    int grain;  /* of cuts along pixels */
} sample;

static const sample list[] = {
    {"relu", "2x21x9x10", NULL, true, 1},
    {"add", "2x21x9x10 2x21x9x10", "relu=1", true, 1},
    {"add", "2x16x4x9x5 2x16x4x9x5 2x16x4x9x5", NULL, true, 1},
    {"concat", "2x20x9x10 2x7x9x10 2x16x9x10", NULL, true, 1},
    {"concat", "1x16x5x6x7 1x32x5x6x7", NULL, true, 1},
    {"maxpool", "2x21x12x14", "kernel=3 stride=2 pad=1", true, 1},
    {"avgpool", "2x21x12x14", "kernel=2", true, 1},
    {"conv", "2x40x9x10", "filters=33 kernel=3 pad=1", false, 1},
    {"conv", "2x96x9x10", "filters=64 kernel=3 pad=1", false, 1},
    {"conv", "2x3x9x10", "filters=20 kernel=3 stride=2 pad=1", false, 1},
    {"conv", "2x36x11", "filters=24 kernel=1", false, 1},
    {"conv", "1x16x4x5x6", "filters=40 kernel=3 pad=1", false, 1},
    {"dense", "3x40", "units=33", false, 1},
    {"dense", "2x20x4x6", "units=9", false, 1},
    {"dense", "2x20x4x6", "units=9 bias=0", false, 1},
    {"conv_transpose", "2x20x6x7", "filters=17 kernel=2 stride=2", false, 2},
    {"conv_transpose", "2x20x6x7", "filters=17 kernel=4 stride=2 pad=1", false, 1},
    {"conv_transpose", "1x8x4x5x6", "filters=24 kernel=3 stride=2 pad=1 output_pad=1", false, 1},
    {"norm", "4x21x9x10 2x21 2x21", "norm=2 relu=1 epsilon=8", true, 1},
    {"norm", "5x16x3x5x6 1x16 1x16", "epsilon=8", true, 1},
    {"norm", "7x9x5x6 4x9 4x9", "norm=2 relu=1 epsilon=8", true, 1}, /* groups are cut, too */
    {"mean", "4x21x9x10", "norm=2", true, 1},
    {"mean", "5x16x3x5x6", NULL, true, 1},
    {"mean", "1x33x70x75", NULL, true, 1},
    {"var", "4x21x9x10 2x21", "norm=2", true, 1},
    {"var", "1x33x70x75 1x33", NULL, true, 1},
    {"gap", "2x21x9x10", NULL, false, 1},
    {"softmax_xent", "2x5x9x10 2x9x10@5 1", NULL, false, 1},
};

/* ---- boxes ---- */

/* Part k of two along an axis that is long enough. */
static void cut(meg_box *b, int axis, int k, int grain)
{
    int64_t all = meg_extent(b, axis), middle = b->lo[axis] + all / 2 / grain * grain;
    if (all < 2 * grain) return;
    if (k) b->lo[axis] = middle;
    else b->hi[axis] = middle;
}

static meg_work work_of(const plain_op *p, const sample *s, int which)
{
    meg_work w = meg_op_whole(p->graph, p->node);
    bool outside = meg_extent(&w.out, MEG_W) > 1; /* else pixels are summed */
    static const int axes[] = {MEG_H, MEG_W, MEG_D};
    bool samples = meg_extent(&w.out, MEG_N) > 1;
    bool windows = meg_extent(&w.sum, MEG_W) > 1 && outside; /* taps are not cut */
    for (int i = 0; i < 3; i++)
        if (which >> i & 1) cut(outside || windows ? &w.out : &w.sum, axes[i], which & 1, s->grain);
    if (which & 8) cut(samples ? &w.out : &w.sum, MEG_N, which & 1, 1);
    if (which & 16) cut(&w.sum, MEG_C, which & 1, 1);
    if (which & 32) cut(&w.out, MEG_C, which & 1, 1);
    return w;
}

/* A halo of one or two pixels, where the value has them. */
static meg_box with_halo(meg_box b, const meg_box *shape)
{
    for (int axis = MEG_D; axis < MEG_AXES; axis++) {
        b.lo[axis] = b.lo[axis] > 0 ? b.lo[axis] - 1 : 0;
        b.hi[axis] = b.hi[axis] + 2 < shape->hi[axis] ? b.hi[axis] + 2 : shape->hi[axis];
    }
    return b;
}

static bool is_large(const plain_op *p, int operand)
{
    int id = plain_value(p, operand);
    const meg_box *shape = id >= 0 ? &p->graph->value[id].shape : NULL;
    return shape && meg_extent(shape, MEG_W) * meg_extent(shape, MEG_H) > 1;
}

/* ---- one pass ---- */

typedef struct trial {
    meg_device *device;
    plain_op *p;
    meg_request r;
    meg_spec spec;
    const char *what;
} trial;

/* An operand's storage on the device: the plain one's values, or NaN. */
static void *load_operand(const trial *t, int i, bool read)
{
    const meg_box *b = &t->r.box[i];
    meg_dtype type = t->r.dtype[i];
    int64_t count = meg_box_size(b), bytes = t->spec.bytes[i];
    if (bytes == 0) bytes = meg_format_bytes(t->spec.format[i], b, type);
    void *plain = malloc((size_t)count * 4),
         *data = aligned_alloc(64, (size_t)bytes / 64 * 64 + 64);
    memset(data, 0xff, (size_t)bytes);
    for (int64_t k = 0; k < count; k++) {
        double x = plain_get(t->p, i, k);
        if (type == MEG_I32) ((int32_t *)plain)[k] = (int32_t)x;
        else if (type == MEG_U8) ((uint8_t *)plain)[k] = (uint8_t)x;
        else ((float *)plain)[k] = (float)x;
    }
    int block = meg_format_block(t->spec.format[i]);
    meg_request c = {.code = MEG_COPY, .graph = t->r.graph, .node = t->r.node};
    c.box[MEG_X] = c.box[MEG_Y] = *b;
    c.format[MEG_Y] = t->spec.format[i];
    if (read && block == 0)
        launch(t->device, &c, (void *[MEG_OPERANDS]){[MEG_X] = plain, [MEG_Y] = data});
    else if (read && block > 1) {
        memset(data, 0, (size_t)bytes);
        move(b, block, data, plain, type == MEG_U8 ? 1 : 4, true);
    } else if (read) memcpy(data, plain, (size_t)bytes);
    free(plain);
    return data;
}

static void compare(const trial *t, int i, void *data)
{
    const meg_box *b = &t->r.box[i];
    meg_box part = meg_box_meet(*b, i < MEG_AUX ? t->r.work.out : *b);
    int64_t count = meg_box_size(b), p[MEG_AXES];
    bool bytes = t->r.dtype[i] == MEG_U8;
    float *got = calloc((size_t)count, 4);
    int block = meg_format_block(t->spec.format[i]);
    meg_request c = {.code = MEG_COPY, .graph = t->r.graph, .node = t->r.node};
    c.box[MEG_X] = c.box[MEG_Y] = *b;
    c.format[MEG_X] = t->spec.format[i];
    if (block == 0) launch(t->device, &c, (void *[MEG_OPERANDS]){[MEG_X] = data, [MEG_Y] = got});
    else if (block > 1) move(b, block, data, got, bytes ? 1 : 4, false);
    else memcpy(got, data, (size_t)count * (bytes ? 1 : 4));
    double error = 0, norm = 0;
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p)) {
        int64_t k = meg_box_at(b, p);
        double want = plain_get(t->p, i, k), have = bytes ? ((uint8_t *)got)[k] : (double)got[k];
        error += (have - want) * (have - want);
        norm += want * want;
    }
    if (!(sqrt(error) <= tolerance * fmax(sqrt(norm), 1e-3)))
        fail_msg("%s: operand %d is off by %g of %g", t->what, i, sqrt(error), sqrt(norm));
    free(got);
}

static void run_pass(trial *t, bool own)
{
    meg_mask reads = meg_node_reads(t->p->node, t->r.pass);
    meg_mask writes = meg_node_writes(t->p->node, t->r.pass);
    void *at[MEG_OPERANDS] = {NULL};
    meg_call c = {.graph = t->r.graph, .node = t->r.node, .work = t->r.work};
    for (int i = 0; i < MEG_SCRATCH; i++)
        if (((reads | writes) & MEG_BIT(i)) && t->p->t[i].data) c.t[i] = t->p->t[i];
    meg_op_kernel(t->p->node->op, t->r.pass, MEG_F64)(&c);
    meg_device_describe(t->device, &t->r, &t->spec);
    if (own && (strcmp(t->spec.impl, "plain") == 0 || t->spec.exact))
        fail_msg("%s is left to %s, exact %x", t->what, t->spec.impl, t->spec.exact);
    for (int i = 0; i < MEG_SCRATCH; i++)
        if (c.t[i].data) at[i] = load_operand(t, i, reads & MEG_BIT(i));
    at[MEG_SCRATCH] = malloc((size_t)t->spec.bytes[MEG_SCRATCH] + 1);
    memset(at[MEG_SCRATCH], 0xff, (size_t)t->spec.bytes[MEG_SCRATCH]);
    launch(t->device, &t->r, at);
    for (int i = 0; i < MEG_SCRATCH; i++)
        if (at[i] && (writes & MEG_BIT(i))) compare(t, i, at[i]);
    for (int i = 0; i < MEG_OPERANDS; i++)
        free(at[i]);
}

/* ---- one sample ---- */

static void fill(plain_op *p, const sample *s)
{
    uint64_t seed = 11;
    const char *at = strchr(s->shapes, '@');
    for (int i = 0; i < MEG_DX; i++)
        for (int64_t k = 0; p->t[i].data && k < meg_box_size(&p->t[i].box); k++) {
            double x = noise(&seed);
            if (p->type[i] == MEG_I32) x = floor((x + 1) / 2 * (at ? atof(at + 1) : 1));
            if (p->type[i] == MEG_U8) x = 0;
            plain_set(p, i, k, x);
        }
}

/* Operands in the boxes that this trial gives them. */
static void set_boxes(trial *t, bool halos)
{
    plain_op *p = t->p;
    meg_box aux;
    meg_dtype type;
    for (int i = 0; i < MEG_SCRATCH; i++) {
        int id = plain_value(p, i);
        bool is_aux = i >= MEG_AUX && i < MEG_AUX + p->node->op->auxes;
        if (!p->t[i].data || (id < 0 && !is_aux)) continue;
        if (is_aux) p->node->op->aux(p->graph, p->node, &t->r.work, i - MEG_AUX, &aux, &type);
        t->r.box[i] = p->t[i].box; /* so that `exact` knows it is there */
        meg_box b = is_aux ? aux : meg_request_exact(&t->r, i);
        if (halos && id >= 0 && is_large(p, i)) b = with_halo(b, &p->graph->value[id].shape);
        t->r.box[i] = p->t[i].box = b; /* its storage is larger, which does not matter */
        t->r.dtype[i] = p->type[i] == MEG_F64 ? MEG_F32 : p->type[i];
        t->r.format[i] = meg_format_blocked(cpu_of(t->device)->block);
        if (id >= 0 && p->graph->value[id].kind == MEG_PARAMETER) t->r.format[i] = MEG_FORMAT_PLAIN;
    }
}

static void check(meg_device *d, const sample *s, int which, bool halos)
{
    static const meg_pass passes[] = {MEG_FORWARD, MEG_REPLAY, MEG_EVAL, MEG_BACKWARD, MEG_WEIGHT};
    char what[200];
    plain_op p;
    meg_error e = {0};
    const meg_sample words = {s->shapes, s->attrs};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        if (!meg_op_has(meg_op_find(s->op), passes[i])) continue;
        if (plain_open(&e, s->op, &words, MEG_F64, &p) != MEG_OK) fail_msg("%s", e.message);
        trial t = {.device = d, .p = &p, .what = what};
        t.r = (meg_request){
            .code = MEG_KERNEL, .graph = p.graph, .node = p.node, .pass = passes[i]};
        t.r.work = work_of(&p, s, which);
        snprintf(what, sizeof what, "%s %s [%s] %s, cut %d%s", s->op, s->shapes,
                 s->attrs ? s->attrs : "", meg_pass_name(passes[i]), which, halos ? ", halos" : "");
        set_boxes(&t, halos);
        fill(&p, s);
        run_pass(&t, !halos || s->halos);
        plain_close(&p);
    }
}

/* Those are cut along channels of the sum and of the outputs as well. */
static bool is_linear(const sample *s)
{
    return strcmp(s->op, "conv") == 0 || strcmp(s->op, "dense") == 0;
}

static void parts(void **state)
{
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int which = 0; which < (is_linear(&list[i]) ? 64 : 16); which++)
            for (int halos = 0; halos < (list[i].halos ? 2 : 1); halos++)
                check(devices(state)[which % TEAMS], &list[i], which, halos);
}

static int all(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}

int main(void)
{
    return for_each_isa(all);
}
