/* Batch norm on the cpu device. Values and their gradients are blocked; weights and statistics are
 * as they are. STATE, a few numbers per channel, is left to plain C. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>

enum { /* inputs */
    WEIGHT = MEG_X + 1,
    BIAS,
    RUNNING_MEAN,
    RUNNING_VAR
};

typedef struct own {
    meg_simd_norm job;
    void (*kernel)(const meg_simd_norm *j);
} own;

/* Whether operand i, if it is there, has one entry for each channel of the work. */
static bool per_channel(const meg_request *r, int i)
{
    const meg_box *b = &r->box[i];
    return meg_box_empty(b) ||
           (b->lo[MEG_C] == r->work.out.lo[MEG_C] && b->hi[MEG_C] == r->work.out.hi[MEG_C]);
}

/* Whether operand i, if it is there, covers just the work. */
static bool whole(const meg_request *r, int i)
{
    return meg_box_empty(&r->box[i]) || meg_box_equal(&r->box[i], &r->work.out);
}

static bool fits(const meg_request *r)
{
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    for (int i = WEIGHT; i <= RUNNING_VAR; i++)
        if (!per_channel(r, i)) return false;
    return per_channel(r, MEG_AUX) && per_channel(r, MEG_AUX + 1) && per_channel(r, MEG_DX + 1) &&
           per_channel(r, MEG_DX + 2) && whole(r, MEG_X) && whole(r, MEG_Y) && whole(r, MEG_DY) &&
           whole(r, MEG_DX) && !meg_box_empty(&r->work.out);
}

static meg_simd_norm job_of(const meg_cpu *cpu, const meg_request *r)
{
    const meg_norm_attr *attr = r->node->attr;
    const meg_box *out = &r->work.out;
    int64_t samples = meg_extent(out, MEG_N), norm = samples;
    if (r->pass != MEG_EVAL && attr->norm > 0 && attr->norm < samples) norm = attr->norm;
    int64_t pixels = meg_extent(out, MEG_D) * meg_extent(out, MEG_H) * meg_extent(out, MEG_W);
    int64_t channels = meg_extent(out, MEG_C);
    return (meg_simd_norm){
        .samples = samples,
        .norm = norm,
        .groups = (samples + norm - 1) / norm,
        .channels = channels,
        .blocks = (channels + cpu->block - 1) / cpu->block,
        .pixels = pixels,
        .parts = (pixels + MEG_SIMD_PART - 1) / MEG_SIMD_PART,
        .threads = cpu->threads,
        .relu = attr->relu,
        .epsilon = attr->epsilon,
    };
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    meg_simd_norm job = job_of(cpu, r);
    meg_format blocked = meg_format_blocked(cpu->block);
    bool back = r->pass == MEG_BACKWARD;
    s->format[MEG_X] = s->format[MEG_Y] = blocked;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = s->format[MEG_DX] = blocked;
    s->bytes[MEG_SCRATCH] = cpu->simd->norm_bytes(&job);
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    bool sums = back || r->pass == MEG_FORWARD; /* these sweep twice over what they read */
    meg_cpu_work(d, r, s, (sums ? MEG_BIT(MEG_X) : 0) | (back ? MEG_BIT(MEG_DY) : 0));
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_norm job = o->job;
    bool given = k->request.pass == MEG_EVAL;
    job.x = at[MEG_X];
    job.weight = at[WEIGHT];
    job.bias = at[BIAS];
    job.mean = at[given ? RUNNING_MEAN : MEG_AUX];
    job.variance = at[given ? RUNNING_VAR : MEG_AUX + 1];
    job.dy = at[MEG_DY];
    job.dy2 = at[MEG_DY + 1];
    job.y = at[MEG_Y];
    job.dx = at[MEG_DX];
    job.dweight = at[MEG_DX + 1];
    job.dbias = at[MEG_DX + 2];
    job.scratch = at[MEG_SCRATCH];
    o->kernel(&job);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    own *o = meg_cpu_own(sizeof *o);
    o->job = job_of(cpu, r);
    o->kernel = r->pass == MEG_FORWARD    ? cpu->simd->norm_train
                : r->pass == MEG_BACKWARD ? cpu->simd->norm_back
                                          : cpu->simd->norm_apply;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_batchnorm = {MEG_KERNEL, &meg_op_batchnorm, describe, prepare};
