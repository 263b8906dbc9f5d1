/* Resize and adaptive average pooling on the cpu device: values blocked, spans of all outputs and
 * readers of all pixels, per axis, laid down when a kernel is prepared. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/common/spans.h"

#include <stdlib.h>

typedef struct own {
    meg_simd_spans job;
    void (*kernel)(const meg_simd_spans *j);
    meg_simd_reach *reach; /* of d, then h, then w */
    int64_t *readers;
} own;

typedef struct sides { /* the operands that hold what spans read and make, in either pass */
    int in, out;
} sides;

static sides sides_of(const meg_request *r)
{
    return r->pass == MEG_BACKWARD ? (sides){MEG_DX, MEG_DY} : (sides){MEG_X, MEG_Y};
}

static bool fits(const meg_request *r)
{
    sides side = sides_of(r);
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&r->work.out)) return false;
    const meg_box *in = &r->box[side.in], *out = &r->work.out;
    meg_box need = meg_op_need(r->graph, r->node, 0, &r->work);
    for (int a = MEG_N; a <= MEG_C; a++)
        if (in->lo[a] != out->lo[a] || in->hi[a] != out->hi[a]) return false;
    return meg_box_equal(&r->box[side.out], out) && meg_box_holds(in, &need);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    meg_format blocked = meg_format_blocked(cpu->block);
    s->format[MEG_X] = s->format[MEG_Y] = blocked;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = s->format[MEG_DX] = blocked;
    s->second_dy = r->pass == MEG_BACKWARD;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void set_axis(const meg_spans *s, const int64_t in[2], const int64_t out[2],
                     meg_simd_reach *reach, int64_t *readers)
{
    for (int64_t p = out[0]; p < out[1]; p++) {
        meg_span span = meg_span_of(s, p);
        *reach = (meg_simd_reach){span.lo - in[0],  span.hi - in[0], (float)span.first,
                                  (float)span.rest, span.cubic,      {0}};
        for (int k = 0; k < 4; k++)
            reach->each[k] = (float)span.each[k];
        reach++;
    }
    for (int64_t q = in[0]; q < in[1]; q++) {
        *readers++ = meg_span_reaching(s, q, out[0], out[1]) - out[0];
        *readers++ = meg_span_beyond(s, q, out[0], out[1]) - out[0];
    }
}

static void set_axes(own *o, const meg_request *r)
{
    const meg_resize_attr *a = r->node->attr;
    const meg_box *in = &r->box[sides_of(r).in], *out = &r->work.out;
    int64_t reaches = 0, pixels = 0;
    for (int i = MEG_D; i < MEG_AXES; i++)
        reaches += meg_extent(out, i), pixels += meg_extent(in, i);
    meg_simd_reach *reach = o->reach = meg_cpu_own((size_t)reaches * sizeof *reach);
    int64_t *readers = o->readers = meg_cpu_own((size_t)(2 * pixels) * sizeof *readers);
    for (int i = 0; i < MEG_SPACE; i++) {
        int x = MEG_D + i;
        o->job.in[i] = meg_extent(in, x);
        o->job.out[i] = meg_extent(out, x);
        o->job.reach[i] = reach;
        o->job.readers[i] = readers;
        set_axis(&a->spans[i], (const int64_t[]){in->lo[x], in->hi[x]},
                 (const int64_t[]){out->lo[x], out->hi[x]}, reach, readers);
        reach += o->job.out[i];
        readers += 2 * o->job.in[i];
    }
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_spans job = o->job;
    job.x = at[MEG_X];
    job.y = at[MEG_Y];
    job.dy = at[MEG_DY];
    job.dy2 = at[MEG_DY + 1];
    job.dx = at[MEG_DX];
    o->kernel(&job);
}

static void free_own(void *memory)
{
    own *o = memory;
    if (!o) return;
    free(o->reach);
    free(o->readers);
    free(o);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    own *o = meg_cpu_own(sizeof *o);
    o->job.samples = meg_extent(&r->work.out, MEG_N);
    o->job.blocks = (meg_extent(&r->work.out, MEG_C) + cpu->block - 1) / cpu->block;
    o->job.threads = cpu->threads;
    set_axes(o, r);
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->spans_back : cpu->simd->spans;
    out->own = o;
    out->free_own = free_own;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_resize = {MEG_KERNEL, &meg_op_resize, describe, prepare};
const meg_cpu_op meg_cpu_adaptive_avgpool = {MEG_KERNEL, &meg_op_adaptive_avgpool, describe,
                                             prepare};
