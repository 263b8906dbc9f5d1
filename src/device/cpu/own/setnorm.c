/* Group, instance and layer normalisation on the cpu device. Values and their gradients are
 * blocked; weights and statistics are as they are. A weight per element (layernorm axes=all), which
 * would have to be blocked too, is left to plain C. */
#include "ops/norm/setnorm.h"
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"

#include <stdlib.h>

typedef struct kernels { /* of one kind of sets: groups of channels, pixels */
    int64_t (*bytes)(const meg_simd_setnorm *j);
    void (*run[MEG_PASSES])(const meg_simd_setnorm *j);
} kernels;

typedef struct own {
    meg_simd_setnorm job;
    void (*kernel)(const meg_simd_setnorm *j);
} own;

/* Whether operand i, if it is there, covers just this box. */
static bool covers(const meg_request *r, int i, const meg_box *box)
{
    return meg_box_empty(&r->box[i]) || meg_box_equal(&r->box[i], box);
}

static bool fits(const meg_request *r)
{
    static const int values[] = {MEG_X, MEG_Y, MEG_DY, MEG_DX}, aux[] = {MEG_AUX, MEG_AUX + 1};
    static const int weights[] = {MEG_X + 1, MEG_X + 2, MEG_DX + 1, MEG_DX + 2};
    const meg_setnorm_attr *a = r->node->attr;
    meg_box channels = meg_setnorm_need(r->graph, r->node, MEG_X + 1, &r->work), sets;
    meg_dtype type;
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&r->work.out) || (a->elements && a->affine)) return false;
    meg_setnorm_aux(r->graph, r->node, &r->work, 0, &sets, &type);
    for (int i = 0; i < 4; i++)
        if (!covers(r, values[i], &r->work.out) || !covers(r, weights[i], &channels)) return false;
    return covers(r, aux[0], &sets) && covers(r, aux[1], &sets);
}

static int64_t pixels_of(const meg_box *b)
{
    return meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
}

static meg_simd_setnorm job_of(const meg_cpu *cpu, const meg_request *r)
{
    const meg_setnorm_attr *a = r->node->attr;
    const meg_box *out = &r->work.out;
    int64_t channels = meg_extent(out, MEG_C), pixels = pixels_of(out);
    return (meg_simd_setnorm){
        .samples = meg_extent(out, MEG_N),
        .channels = channels,
        .blocks = (channels + cpu->block - 1) / cpu->block,
        .pixels = pixels,
        .parts = (pixels + MEG_SIMD_PART - 1) / MEG_SIMD_PART,
        .width = a->width,
        .threads = cpu->threads,
        .relu = a->relu,
        .epsilon = a->epsilon,
    };
}

static kernels kernels_of(const meg_simd *simd, const meg_setnorm_attr *a)
{
    kernels groups = {simd->groupnorm_bytes,
                      {[MEG_FORWARD] = simd->groupnorm_train,
                       [MEG_EVAL] = simd->groupnorm_train,
                       [MEG_REPLAY] = simd->groupnorm_apply,
                       [MEG_BACKWARD] = simd->groupnorm_back}};
    kernels pixels = {simd->layernorm_bytes,
                      {[MEG_FORWARD] = simd->layernorm_train,
                       [MEG_EVAL] = simd->layernorm_train,
                       [MEG_REPLAY] = simd->layernorm_apply,
                       [MEG_BACKWARD] = simd->layernorm_back}};
    return a->pixels ? pixels : groups;
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_setnorm_attr *a = r->node->attr;
    if (!fits(r)) return false;
    meg_simd_setnorm job = job_of(cpu, r);
    meg_format blocked = meg_format_blocked(cpu->block);
    bool back = r->pass == MEG_BACKWARD;
    s->format[MEG_X] = s->format[MEG_Y] = blocked;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = s->format[MEG_DX] = blocked;
    if (back || !a->pixels) s->bytes[MEG_SCRATCH] = kernels_of(cpu->simd, a).bytes(&job);
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    bool twice = !a->pixels && r->pass != MEG_REPLAY; /* pixels stay in the cache */
    meg_cpu_work(d, r, s, (twice ? MEG_BIT(MEG_X) : 0) | (twice && back ? MEG_BIT(MEG_DY) : 0));
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_setnorm job = o->job;
    job.x = at[MEG_X];
    job.weight = at[MEG_X + 1];
    job.bias = at[MEG_X + 2];
    job.mean = at[MEG_AUX];
    job.variance = at[MEG_AUX + 1];
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
    o->kernel = kernels_of(cpu->simd, r->node->attr).run[r->pass];
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_groupnorm = {MEG_KERNEL, &meg_op_groupnorm, describe, prepare};
const meg_cpu_op meg_cpu_instancenorm = {MEG_KERNEL, &meg_op_instancenorm, describe, prepare};
const meg_cpu_op meg_cpu_layernorm = {MEG_KERNEL, &meg_op_layernorm, describe, prepare};
