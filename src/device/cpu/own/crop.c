/* Slices in space on the cpu device: all channels of consecutive pixels, blocked. Slices of channels
 * are cpu_copy.c's; with steps, or of a value that is plain, they are left to plain C. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>

typedef struct own {
    meg_simd_crop job;
    void (*kernel)(const meg_simd_crop *j);
} own;

static bool fits(const meg_cpu *cpu, const meg_request *r)
{
    bool back = r->pass == MEG_BACKWARD, cut = false;
    const meg_slice_attr *attr = r->node->attr;
    meg_box in = r->graph->value[r->node->in[0]].shape;
    meg_box all = r->graph->value[r->node->out[0]].shape;
    if (!back && !meg_cpu_makes(r)) return false;
    if (r->format[back ? MEG_DY : MEG_X] != meg_format_blocked(cpu->block)) return false;
    for (int a = MEG_C; a < MEG_AXES; a++) {
        bool same = all.hi[a] == in.hi[a];
        if (attr->picks.at[a].step != 1 || (a == MEG_C && !same)) return false;
        cut |= !same;
    }
    in.lo[MEG_N] = all.lo[MEG_N] = r->work.out.lo[MEG_N];
    in.hi[MEG_N] = all.hi[MEG_N] = r->work.out.hi[MEG_N];
    return cut && !meg_box_empty(&all) && meg_box_equal(&r->work.out, &all) &&
           meg_box_equal(&r->box[back ? MEG_DX : MEG_X], &in) &&
           meg_box_equal(&r->box[back ? MEG_DY : MEG_Y], &all);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(cpu, r)) return false;
    s->format[MEG_X] = s->format[MEG_Y] = meg_format_blocked(cpu->block);
    s->format[MEG_DY] = s->format[MEG_DX] = meg_format_blocked(cpu->block);
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_crop job = o->job;
    bool back = k->request.pass == MEG_BACKWARD;
    job.from = at[back ? MEG_DY : MEG_X];
    job.to = at[back ? MEG_DX : MEG_Y];
    o->kernel(&job);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    const meg_slice_attr *attr = r->node->attr;
    const meg_box *in = &r->graph->value[r->node->in[0]].shape, *made = &r->work.out;
    if (!fits(cpu, r)) return false;
    own *o = meg_cpu_own(sizeof *o);
    int64_t blocks = (meg_extent(made, MEG_C) + cpu->block - 1) / cpu->block;
    o->job.planes = meg_extent(made, MEG_N) * blocks;
    o->job.threads = cpu->threads;
    for (int a = 0; a < MEG_AXES - MEG_D; a++) {
        o->job.in[a] = in->hi[MEG_D + a];
        o->job.out[a] = meg_extent(made, MEG_D + a);
        o->job.begin[a] = attr->picks.at[MEG_D + a].begin;
    }
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->crop_back : cpu->simd->crop;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_crop = {MEG_KERNEL, &meg_op_slice, describe, prepare};
