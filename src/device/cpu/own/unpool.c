/* Max-unpooling on the cpu device, of whole planes: values blocked, indices plain. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"

#include <stdlib.h>

typedef struct own {
    meg_simd_unpool job;
    void (*kernel)(const meg_simd_unpool *j);
} own;

static bool fits(const meg_request *r)
{
    bool back = r->pass == MEG_BACKWARD;
    meg_box in = r->graph->value[r->node->in[0]].shape;
    meg_box all = r->graph->value[r->node->out[0]].shape;
    if (!back && !meg_cpu_makes(r)) return false;
    for (int a = MEG_N; a <= MEG_C; a++) {
        in.lo[a] = all.lo[a] = r->work.out.lo[a];
        in.hi[a] = all.hi[a] = r->work.out.hi[a];
    }
    return !meg_box_empty(&all) && meg_box_equal(&r->work.out, &all) &&
           meg_box_equal(&r->box[back ? MEG_DX : MEG_X], &in) &&
           meg_box_equal(&r->box[MEG_X + 1], &in) &&
           meg_box_equal(&r->box[back ? MEG_DY : MEG_Y], &all);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    meg_format blocked = meg_format_blocked(cpu->block);
    s->format[MEG_X] = s->format[MEG_Y] = blocked;
    s->format[MEG_DY] = s->format[MEG_DX] = blocked;
    meg_cpu_work(d, r, s, r->pass == MEG_BACKWARD ? 0 : MEG_BIT(MEG_Y));
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_unpool job = o->job;
    job.x = at[MEG_X];
    job.index = at[MEG_X + 1];
    job.y = at[MEG_Y];
    job.dy = at[MEG_DY];
    job.dx = at[MEG_DX];
    o->kernel(&job);
}

static int64_t pixels_of(const meg_box *b)
{
    return meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    int64_t channels = meg_extent(&r->work.out, MEG_C);
    own *o = meg_cpu_own(sizeof *o);
    o->job = (meg_simd_unpool){
        .samples = meg_extent(&r->work.out, MEG_N),
        .channels = channels,
        .blocks = (channels + cpu->block - 1) / cpu->block,
        .in = pixels_of(&r->box[MEG_X + 1]),
        .out = pixels_of(&r->work.out),
        .threads = cpu->threads,
    };
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->unpool_back : cpu->simd->unpool;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_max_unpool = {MEG_KERNEL, &meg_op_max_unpool, describe, prepare};
