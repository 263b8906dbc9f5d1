/* Pooling on the cpu device: maxpool, avgpool over windows, gap over all pixels. Values are
 * blocked, but what gap makes, which is small and goes to a dense layer, is plain. */
#include "device/cpu/common/rows.h"
#include "ops/attrs.h"

#include <stdlib.h>

/* ---- windows ---- */

typedef struct own {
    meg_simd_pool job;
    void (*kernel)(const meg_simd_pool *j);
    meg_simd_span span[]; /* of d, then h, then w */
} own;

typedef struct sides { /* the operands that hold what windows read and make, in either pass */
    int in, out;
} sides;

static sides sides_of(const meg_request *r)
{
    return r->pass == MEG_BACKWARD ? (sides){MEG_DX, MEG_DY} : (sides){MEG_X, MEG_Y};
}

static bool same_axes(const meg_box *a, const meg_box *b, int from, int to)
{
    for (int i = from; i <= to; i++)
        if (a->lo[i] != b->lo[i] || a->hi[i] != b->hi[i]) return false;
    return true;
}

static bool fits(const meg_request *r)
{
    sides side = sides_of(r);
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&r->work.out)) return false;
    meg_box need = meg_op_need(r->graph, r->node, 0, &r->work);
    const meg_box *in = &r->box[side.in], *out = &r->box[side.out], *aux = &r->box[MEG_AUX];
    const meg_box *shape = &r->graph->value[r->node->in[0]].shape;
    bool indices = r->node->outputs > 1; /* count in whole planes */
    bool plain_taps = r->dtype[MEG_AUX] == MEG_U8 || meg_box_empty(aux);
    return meg_cpu_holds(r, side.out, &r->work.out) && !meg_box_empty(out) &&
           meg_box_holds(in, &need) && same_axes(in, &r->work.out, MEG_N, MEG_C) && plain_taps &&
           (!indices || (same_axes(in, shape, MEG_D, MEG_W) && meg_box_equal(out, &r->work.out))) &&
           (meg_box_empty(aux) || meg_box_equal(aux, &r->work.out));
}

static bool describe_window(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    meg_format blocked = meg_format_blocked(cpu->block);
    s->format[MEG_X] = s->format[MEG_Y] = s->format[MEG_AUX] = blocked;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = s->format[MEG_DX] = blocked;
    s->second_dy = r->pass == MEG_BACKWARD;
    meg_cpu_work(d, r, s, r->pass == MEG_BACKWARD ? MEG_BIT(MEG_DX) : 0);
    return true;
}

typedef struct axis { /* d, h or w */
    meg_window win;
    int64_t lo, hi; /* the part of the input that there is */
    int64_t size;   /* of the whole input */
    bool count_pad;
} axis;

/* What output p reads. */
static meg_simd_span span_of(const axis *a, int64_t p)
{
    meg_simd_span s = {.lo = -1};
    for (int64_t t = 0; t < a->win.taps; t++) {
        int64_t q = p * a->win.stride - a->win.before + t * a->win.dilation;
        s.count += a->count_pad ? q < a->size + a->win.after : q >= 0 && q < a->size;
        if (q < a->lo || q >= a->hi) continue;
        if (s.lo < 0) {
            s.lo = (int32_t)t;
            s.first = q - a->lo;
        }
        s.hi = (int32_t)t + 1;
    }
    return s;
}

static void set_axis(own *o, const meg_request *r, int i, meg_simd_span *span)
{
    const meg_pool_attr *attr = r->node->attr;
    const meg_box *in = &r->box[sides_of(r).in], *out = &r->work.out;
    int k = MEG_D + i;
    int64_t size = meg_extent(&r->graph->value[r->node->in[0]].shape, k);
    axis a = {attr->win[i], in->lo[k], in->hi[k], size, attr->count_pad};
    o->job.in[i] = meg_extent(in, k);
    o->job.out[i] = meg_extent(out, k);
    o->job.taps[i] = a.win.taps;
    o->job.dilation[i] = a.win.dilation;
    o->job.span[i] = span;
    for (int64_t p = 0; p < o->job.out[i]; p++)
        span[p] = span_of(&a, out->lo[k] + p);
}

static void run_window(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_pool job = o->job;
    job.x = at[MEG_X];
    job.y = at[MEG_Y];
    job.winner = at[MEG_AUX];
    job.index = at[MEG_Y + 1];
    job.dy = at[MEG_DY];
    job.dy2 = at[MEG_DY + 1];
    job.dx = at[MEG_DX];
    o->kernel(&job);
}

static void prepare_window(meg_device *d, const meg_request *r, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_box *made = &r->work.out;
    int64_t spans = meg_extent(made, MEG_D) + meg_extent(made, MEG_H) + meg_extent(made, MEG_W);
    own *o = meg_cpu_own(sizeof *o + (size_t)spans * sizeof *o->span);
    meg_simd_span *span = o->span;
    o->job.samples = meg_extent(made, MEG_N);
    o->job.channels = meg_extent(made, MEG_C);
    o->job.blocks = (o->job.channels + cpu->block - 1) / cpu->block;
    o->job.threads = cpu->threads;
    o->job.at = meg_cpu_side(&r->box[sides_of(r).out], made, cpu->block);
    for (int i = 0; i < MEG_SPACE; i++) {
        set_axis(o, r, i, span);
        span += o->job.out[i];
    }
    out->own = o;
    out->free_own = free;
    out->run = run_window;
}

static bool prepare_max(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_simd *simd = ((const meg_cpu *)meg_device_state(d))->simd;
    prepare_window(d, r, out);
    ((own *)out->own)->kernel = r->pass == MEG_BACKWARD ? simd->maxpool_back : simd->maxpool;
    return true;
}

static bool prepare_avg(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_simd *simd = ((const meg_cpu *)meg_device_state(d))->simd;
    prepare_window(d, r, out);
    ((own *)out->own)->kernel = r->pass == MEG_BACKWARD ? simd->avgpool_back : simd->avgpool;
    return true;
}

const meg_cpu_op meg_cpu_maxpool = {MEG_KERNEL, &meg_op_maxpool, describe_window, prepare_max};
const meg_cpu_op meg_cpu_avgpool = {MEG_KERNEL, &meg_op_avgpool, describe_window, prepare_avg};

/* ---- all pixels ---- */

typedef struct own_gap {
    meg_simd_mean job;
    void (*kernel)(const meg_simd_mean *j);
} own_gap;

static bool describe_gap(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    sides side = sides_of(r);
    const meg_box *in = &r->box[side.in];
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(in) || !meg_box_equal(&r->box[side.out], &r->work.out)) return false;
    if (!same_axes(in, &r->work.out, MEG_N, MEG_C) || !same_axes(in, &r->work.sum, MEG_D, MEG_W))
        return false;
    s->format[MEG_X] = s->format[MEG_DX] = meg_format_blocked(cpu->block);
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run_gap(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own_gap *o = k->own;
    meg_simd_mean job = o->job;
    job.x = at[MEG_X];
    job.y = at[MEG_Y];
    job.dy = at[MEG_DY];
    job.dx = at[MEG_DX];
    o->kernel(&job);
}

static bool prepare_gap(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    const meg_box *in = &r->box[sides_of(r).in];
    own_gap *o = meg_cpu_own(sizeof *o);
    int64_t channels = meg_extent(in, MEG_C);
    const meg_box *x = &r->graph->value[r->node->in[0]].shape;
    o->job = (meg_simd_mean){
        .count = (double)(meg_extent(x, MEG_D) * meg_extent(x, MEG_H) * meg_extent(x, MEG_W)),
        .samples = meg_extent(in, MEG_N),
        .channels = channels,
        .blocks = (channels + cpu->block - 1) / cpu->block,
        .pixels = meg_extent(in, MEG_D) * meg_extent(in, MEG_H) * meg_extent(in, MEG_W),
        .threads = cpu->threads,
    };
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->mean_back : cpu->simd->mean;
    out->own = o;
    out->free_own = free;
    out->run = run_gap;
    return true;
}

const meg_cpu_op meg_cpu_gap = {MEG_KERNEL, &meg_op_gap, describe_gap, prepare_gap};
