/* Convolutions of 3 x 3 taps with stride 1 on the cpu by Winograd's algorithm (simd/winograd.c), in
 * place of oneDNN's direct kernels where that is faster: a quarter of the multiplications, but
 * transforms before and after, which many channels and filters must pay for.
 *
 * Formats are those of oneDNN's blocked kernels: activations c8 or c16, the weight OIx8i8o or
 * OIx16i16o in all passes, so whichever pass is left to oneDNN finds what it likes, and backward
 * needs no copy of the weight. Weights are transformed anew in each call: it costs little, and no
 * one has to know when they change.
 *
 * Here it is decided how the work is cut, so that what is used again stays in a cache, and scratch
 * memory is bounded whatever the batch.
 */
#include "device/cpu/simd/conv/winograd.h"
#include "device/cpu/common/layer.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIB = 1 << 20,
    WEIGHTS_MAX = 4 * MIB, /* bytes of transformed weights, by tiles: they should stay in a cache */
    SUMS_MAX = 10 * MIB,   /* bytes of sums of the weight gradient */
    SHARES_MAX = 20 * MIB, /* bytes of all threads' shares of the weight gradient */
    INPUTS_MAX = 10 * MIB, /* bytes of transformed inputs that threads share */
    OWN_MAX = MIB,         /* bytes of tiles that a thread works on, by tiles */
    SCRATCH_MAX = 64 * MIB,
    DEPTH = 64,     /* channels, by filters */
    WIDTH = 32,     /* filters, by filters */
    BATCH = 108,    /* tiles, by filters: a multiple of the group */
    LEAST = 24,     /* tiles, by tiles: each part reads all weights */
    GRADIENT = 128, /* tiles, weight gradient */
    POINT = MEG_WINOGRAD_POINTS * (int)sizeof(float) /* bytes of a number at all points */
};

int meg_cpu_winograd_use(const char *text)
{
    if (!text) return MEG_CPU_IF_FASTER;
    return strcmp(text, "0") == 0     ? MEG_CPU_NEVER
           : strcmp(text, "all") == 0 ? MEG_CPU_ALWAYS
                                      : MEG_CPU_IF_FASTER;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- how the work is cut ---- */

/* Parts of at most `size` tiles (a multiple of `group`) and of equal size, a multiple of the number
 * of threads of them if there are enough tiles. */
static int64_t even_part(int64_t tiles, int64_t size, int64_t group, int threads)
{
    int64_t parts = meg_round_up(quotient_up(tiles, size), threads);
    return least(meg_round_up(quotient_up(tiles, parts), group), size);
}

static void cut_by_tiles(meg_winograd *j, int block)
{
    int64_t group = meg_winograd_group(block), bytes = (j->from + j->to) * block * POINT;
    int64_t size = meg_round_up(most(OWN_MAX / bytes, LEAST), group);
    j->by_filters = false;
    j->part = j->batch = even_part(j->tiles, size, group, j->threads);
    j->depth = j->from;
    j->width = j->to;
}

static void cut_by_filters(meg_winograd *j, int block)
{
    int64_t group = meg_winograd_group(block), bytes = j->from * block * POINT;
    int64_t size = least(most(INPUTS_MAX / bytes / group * group, group), BATCH);
    j->by_filters = true;
    j->depth = least(DEPTH / block, j->from);
    j->width = least(WIDTH / block, j->to);
    j->batch = even_part(j->tiles, size, group, 1);
    int64_t widths = quotient_up(j->to, j->width);
    j->part = even_part(j->batch, j->batch, group, (int)quotient_up(j->threads, widths));
    j->batch = meg_round_up(j->batch, j->part);
}

/* A share for each thread if their sums and batches are small, and tiles many. */
static void cut_gradient(meg_winograd *j, int block)
{
    int64_t inputs = j->from * block * POINT, size;
    j->width = most(least(SUMS_MAX / (inputs * block), j->to), 1);
    j->width = quotient_up(j->to, quotient_up(j->to, j->width));
    j->depth = j->from;
    size = least(most(INPUTS_MAX / inputs, LEAST), GRADIENT);
    for (j->shares = j->width == j->to ? j->threads : 1;; j->shares = 1) {
        int64_t tiles = quotient_up(j->tiles, j->shares);
        j->batch = quotient_up(tiles, quotient_up(tiles, size));
        j->part = most(quotient_up(j->batch, 4), 8); /* some more work for many threads */
        int64_t bytes = meg_winograd_share(j, block) * (int64_t)sizeof(float);
        if (j->shares == 1 || (bytes * j->shares <= SHARES_MAX && tiles >= LEAST)) return;
    }
}

/* Sets the order of loops and all sizes; returns bytes of scratch. */
static int64_t cut_work(meg_winograd *j, int block, meg_pass pass)
{
    int64_t weights = j->from * j->to * block * block * POINT, floats;
    if (pass == MEG_WEIGHT) {
        cut_gradient(j, block);
        floats = meg_winograd_weight_floats(j, block);
    } else {
        if (weights > WEIGHTS_MAX) cut_by_filters(j, block);
        else cut_by_tiles(j, block);
        floats = meg_winograd_floats(j, block);
    }
    return floats * (int64_t)sizeof(float);
}

/* ---- what is asked ---- */

static bool applies(const meg_request *r)
{
    const meg_conv_attr *a = r->node->attr;
    meg_window win[MEG_SPACE];
    if (!meg_cpu_windows(r, win) || a->groups != 1) return false;
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *w = &win[i];
        if ((i > 0 && w->taps != 3) || w->taps > 3) return false;
        if (w->stride != 1 || w->dilation != 1) return false;
        if (w->before > w->taps - 1 || w->after > w->taps - 1) return false;
    }
    return true;
}

static meg_format weight_format(int block)
{
    return block == 16 ? MEG_FORMAT_OIx16i16o : MEG_FORMAT_OIx8i8o;
}

/* Backward is a convolution of dy with as much more padding as makes its result as large as x. */
static meg_winograd job_of(const meg_cpu *cpu, const meg_request *r)
{
    const meg_conv_attr *a = r->node->attr;
    bool turned = r->pass == MEG_BACKWARD;
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    const meg_box *x = &r->box[turned ? role->y : role->x];
    const meg_box *y = &r->box[turned ? role->x : role->y];
    meg_winograd j = {.threads = cpu->threads,
                      .turned = turned,
                      .samples = meg_extent(x, MEG_N),
                      .depths = a->win[0].taps,
                      .planes = {meg_extent(x, MEG_D), meg_extent(y, MEG_D)},
                      .from = quotient_up(meg_extent(x, MEG_C), cpu->block) * a->win[0].taps,
                      .to = quotient_up(meg_extent(y, MEG_C), cpu->block),
                      .filters = meg_extent(y, MEG_C)};
    meg_window win[MEG_SPACE] = {{0}};
    meg_cpu_windows(r, win);
    j.above = turned ? j.depths - 1 - win[0].before : win[0].before;
    for (int i = 0; i < 2; i++) {
        const meg_window *w = &win[1 + i];
        j.in[i] = meg_extent(x, MEG_H + i), j.out[i] = meg_extent(y, MEG_H + i);
        j.before[i] = turned ? w->taps - 1 - w->before : w->before;
    }
    j.rows = quotient_up(j.out[0], MEG_WINOGRAD_TILE);
    j.columns = quotient_up(j.out[1], MEG_WINOGRAD_TILE);
    j.tiles = j.samples * j.planes[1] * j.rows * j.columns;
    return j;
}

/* ---- describe ---- */

/* Time of the parts of the algorithm, in multiply-adds that the machine could have done instead.
 * Measured with AVX-512 on ResNet-50, VGG and 16 to 64 channels; AVX2 is a little better. */
typedef struct price {
    double product; /* of two numbers, at all points */
    double tile;    /* to transform one channel of a tile, there or back */
    double weight;  /* to transform the 3 x 3 weights of a channel and a filter, or their sums */
} price;

static const price forward_price = {36 / 0.65, 560, 200}, weight_price = {36 / 0.65, 700, 1250};

static const double margin = 1.25; /* that others must be slower by: prices are not exact */

/* How much longer it takes because threads run out of work before others do. */
static double idle(const meg_winograd *j)
{
    int64_t parts = quotient_up(j->tiles, j->part);
    int64_t items = j->by_filters ? parts * quotient_up(j->to, j->width) : parts;
    return (double)meg_round_up(items, j->threads) / (double)items;
}

static double flops(const meg_winograd *j, int block, meg_pass pass)
{
    const price *p = pass == MEG_WEIGHT ? &weight_price : &forward_price;
    double tiles = (double)j->tiles, x = (double)(j->from * block), y = (double)(j->to * block);
    double all = tiles * x * y * p->product + tiles * (x + y) * p->tile + x * y * p->weight;
    return 2 * all * (pass == MEG_WEIGHT ? 1 : idle(j));
}

/* Plain images of few channels need no padding to a block there: cpu_conv.c's thin way. */
static bool thin(const meg_request *r)
{
    return r->pass != MEG_BACKWARD && r->format[MEG_X] == MEG_FORMAT_PLAIN &&
           meg_extent(&r->box[MEG_X], MEG_C) <= MEG_CPU_THIN;
}

/* The direct kernels reach 0.85 of the machine's peak, 0.75 in the weight gradient, which is 0.45
 * of thin images. */
static double direct_flops(const meg_winograd *j, int block, const meg_request *r)
{
    double pixels = (double)(j->samples * j->planes[1] * j->out[0] * j->out[1]);
    double from = (double)(j->from * block), share = r->pass == MEG_WEIGHT ? 0.75 : 0.85;
    if (thin(r)) {
        from = (double)(j->depths * meg_extent(&r->box[MEG_X], MEG_C));
        if (r->pass == MEG_WEIGHT) share = 0.45;
    }
    return 2 * 9 * from * (double)(j->to * block) * pixels / share;
}

/* Its rounding is a few times that of the direct kernels, and makes small numbers of exact zeros (of
 * units that are never active, of taps that see padding alone). Optimizers that divide by the size of
 * the gradient would take full steps along them. */
static bool harmful(const meg_request *r)
{
    bool gradient = r->pass == MEG_BACKWARD || r->pass == MEG_WEIGHT;
    return gradient && r->optimizer && r->optimizer->relative;
}

static bool worth(const meg_winograd *j, int block, const meg_request *r)
{
    if (harmful(r)) return false;
    return flops(j, block, r->pass) * margin < direct_flops(j, block, r);
}

static void set_work(const meg_winograd *j, int block, meg_pass pass, meg_spec *s)
{
    double x = (double)(j->from / j->depths * j->planes[0] * j->in[0] * j->in[1]);
    double y = (double)(j->to * j->planes[1] * j->out[0] * j->out[1]);
    double weights = (double)(j->from * j->to * block * block);
    double floats = (x + y) * (double)j->samples * block +
                    (9.0 + 2 * 36) * weights; /* transformed */
    s->flops = flops(j, block, pass);
    s->traffic = floats * (double)sizeof(float);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (cpu->winograd == MEG_CPU_NEVER || !applies(r)) return false;
    meg_format home = weight_format(cpu->block);
    if (r->pass == MEG_WEIGHT && r->format[MEG_X + 1] != home) return false;
    meg_winograd j = job_of(cpu, r);
    int64_t scratch = cut_work(&j, cpu->block, r->pass);
    if (scratch > SCRATCH_MAX) return false;
    if (cpu->winograd == MEG_CPU_IF_FASTER && !worth(&j, cpu->block, r)) return false;

    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    *s = (meg_spec){0};
    s->format[role->x] = s->format[role->y] = meg_format_blocked(cpu->block);
    s->format[role->weight] = home;
    s->bytes[role->weight] = j.from * j.to * 9 * cpu->block * cpu->block * (int64_t)sizeof(float);
    s->bytes[MEG_SCRATCH] = scratch;
    set_work(&j, cpu->block, r->pass, s);
    snprintf(s->impl, sizeof s->impl, "winograd:%s", cpu->simd->name);
    return true;
}

/* ---- run ---- */

typedef struct own {
    meg_winograd job;
    void (*kernel)(const meg_winograd *j);
    int64_t quiet; /* numbers of a bias that is another share's; else 0 */
} own;

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_winograd j = o->job;
    j.x = at[j.turned ? MEG_DY : MEG_X];
    j.y = at[j.turned ? MEG_DX : MEG_Y];
    j.weight = at[MEG_X + 1];
    j.bias = j.turned || o->quiet ? NULL : at[MEG_X + 2];
    j.dy = at[MEG_DY];
    j.dweight = at[MEG_DX + 1];
    j.dbias = o->quiet ? NULL : at[MEG_DX + 2];
    j.scratch = at[MEG_SCRATCH];
    o->kernel(&j);
    if (o->quiet && at[MEG_DX + 2]) memset(at[MEG_DX + 2], 0, sizeof(float) * (size_t)o->quiet);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (strncmp(s->impl, "winograd", strlen("winograd")) != 0) return false;
    own *o = meg_cpu_own(sizeof *o);
    o->job = job_of(cpu, r);
    cut_work(&o->job, cpu->block, r->pass);
    if (meg_cpu_quiet(r)) o->quiet = meg_box_size(&r->box[MEG_DX + 2]);
    o->kernel = r->pass == MEG_WEIGHT ? cpu->simd->winograd_weight : cpu->simd->winograd;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_winograd = {MEG_KERNEL, &meg_op_conv, describe, prepare};
