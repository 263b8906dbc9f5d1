/* The rectifier with learned slopes on the cpu device: values blocked, slopes as they are. */
#include "device/cpu/simd/point/prelu.h"
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"

#include <stdlib.h>

enum {
    SLOPE = MEG_X + 1
};

typedef struct own {
    meg_simd_prelu job;
    void (*kernel)(const meg_simd_prelu *j);
} own;

/* Whether operand i, if it is there, covers just the work. */
static bool whole(const meg_request *r, int i)
{
    return meg_box_empty(&r->box[i]) || meg_box_equal(&r->box[i], &r->work.out);
}

/* Whether operand i has a slope for each of the work's channels. */
static bool per_channel(const meg_request *r, int i)
{
    const meg_box *b = &r->box[i];
    return b->lo[MEG_C] == r->work.out.lo[MEG_C] && b->hi[MEG_C] == r->work.out.hi[MEG_C];
}

/* Or, if it is there, the one for all. */
static bool has_slopes(const meg_request *r, int i)
{
    const meg_box *b = &r->box[i];
    return meg_box_empty(b) || per_channel(r, i) || (b->lo[MEG_C] == 0 && b->hi[MEG_C] == 1);
}

static bool fits(const meg_request *r)
{
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    return whole(r, MEG_X) && whole(r, MEG_Y) && whole(r, MEG_DY) && whole(r, MEG_DX) &&
           has_slopes(r, SLOPE) && has_slopes(r, MEG_DX + 1) && !meg_box_empty(&r->work.out);
}

static meg_simd_prelu job_of(const meg_cpu *cpu, const meg_request *r)
{
    const meg_box *out = &r->work.out;
    int64_t channels = meg_extent(out, MEG_C);
    return (meg_simd_prelu){
        .samples = meg_extent(out, MEG_N),
        .channels = channels,
        .blocks = (channels + cpu->block - 1) / cpu->block,
        .pixels = meg_extent(out, MEG_D) * meg_extent(out, MEG_H) * meg_extent(out, MEG_W),
        .single = !per_channel(r, SLOPE),
        .threads = cpu->threads,
    };
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    bool back = r->pass == MEG_BACKWARD;
    if (!fits(r)) return false;
    meg_simd_prelu job = job_of(cpu, r);
    meg_format blocked = meg_format_blocked(cpu->block);
    s->format[MEG_X] = s->format[MEG_Y] = blocked;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = s->format[MEG_DX] = blocked;
    if (back) s->bytes[MEG_SCRATCH] = cpu->simd->prelu_bytes(&job);
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_prelu job = o->job;
    job.x = at[MEG_X];
    job.slope = at[SLOPE];
    job.y = at[MEG_Y];
    job.dy = at[MEG_DY];
    job.dy2 = at[MEG_DY + 1];
    job.dx = at[MEG_DX];
    job.dslope = at[MEG_DX + 1];
    job.scratch = at[MEG_SCRATCH];
    o->kernel(&job);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    own *o = meg_cpu_own(sizeof *o);
    o->job = job_of(cpu, r);
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->prelu_back : cpu->simd->prelu;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_prelu = {MEG_KERNEL, &meg_op_prelu, describe, prepare};
