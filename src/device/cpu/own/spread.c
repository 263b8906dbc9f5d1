/* Addition on the cpu of a value that is the same in all samples (the positions of a transformer),
 * in any format: in each of them a sample's floats lie side by side, and those of one sample fit to
 * those of all. Other ways of spreading (ops/pointwise/pair.h) are left to plain C.
 */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>

typedef struct own {
    meg_simd_spread job;
    void (*kernel)(const meg_simd_spread *j);
} own;

static bool rectifies(const meg_request *r)
{
    return ((const meg_add_attr *)r->node->attr)->relu;
}

static meg_box one_sample(meg_box b)
{
    b.lo[MEG_N] = 0, b.hi[MEG_N] = 1;
    return b;
}

/* An operand that is there covers just `want`. */
static bool covers(const meg_request *r, int operand, const meg_box *want)
{
    return meg_box_empty(&r->box[operand]) || meg_box_equal(&r->box[operand], want);
}

/* Two inputs, the second of one sample; every operand covers just what the work needs. */
static bool fits(const meg_request *r)
{
    bool back = r->pass == MEG_BACKWARD;
    const meg_box *out = &r->work.out;
    if ((!back && !meg_cpu_makes(r)) || r->node->inputs != 2 || meg_box_empty(out)) return false;
    const meg_box *a = &r->graph->value[r->node->in[0]].shape;
    const meg_box *b = &r->graph->value[r->node->in[1]].shape;
    meg_box sample = one_sample(*a), part = one_sample(*out);
    if (meg_box_equal(a, b) || !meg_box_equal(b, &sample)) return false;
    if (!back) return covers(r, MEG_X, out) && covers(r, MEG_Y, out) && covers(r, MEG_X + 1, &part);
    if (rectifies(r) && !covers(r, MEG_Y, out)) return false;
    return covers(r, MEG_DY, out) && covers(r, MEG_DX, out) && covers(r, MEG_DX + 1, &part);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    bool back = r->pass == MEG_BACKWARD, relu = rectifies(r);
    if (!fits(r)) return false;
    int decides = !back ? MEG_X : relu ? MEG_Y : MEG_DY;
    meg_format f = meg_cpu_common_format(meg_device_state(d), r, decides, decides);
    s->format[MEG_X] = s->format[MEG_X + 1] = s->format[MEG_Y] = f;
    s->format[MEG_DY] = s->format[MEG_DY + 1] = f;
    s->format[MEG_DX] = s->format[MEG_DX + 1] = f;
    if (back && !relu) s->format[MEG_Y] = r->format[MEG_Y];
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run_forward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const own *o = k->own;
    meg_simd_spread job = o->job;
    (void)m;
    job.a = at[MEG_X];
    job.b = at[MEG_X + 1];
    job.y = at[MEG_Y];
    o->kernel(&job);
}

static void run_backward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const own *o = k->own;
    meg_simd_spread job = o->job;
    (void)m;
    job.a = at[MEG_DY];
    job.a2 = at[MEG_DY + 1];
    job.sign = job.relu ? at[MEG_Y] : NULL;
    job.y = at[MEG_DX];
    job.sum = at[MEG_DX + 1];
    if (job.y == job.a && !job.a2 && !job.relu) job.y = NULL; /* it is there already */
    if (job.y || job.sum) o->kernel(&job);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    bool back = r->pass == MEG_BACKWARD;
    int64_t samples = meg_extent(&r->work.out, MEG_N);
    int64_t bytes = meg_operand_bytes(r, s, back ? MEG_DY : MEG_Y);
    own *o = meg_cpu_own(sizeof *o);
    o->job = (meg_simd_spread){.samples = samples,
                               .count = bytes / (int64_t)sizeof(float) / samples,
                               .threads = cpu->threads,
                               .relu = rectifies(r)};
    o->kernel = back ? cpu->simd->spread_back : cpu->simd->spread;
    out->own = o;
    out->free_own = free;
    out->run = back ? run_backward : run_forward;
    return true;
}

const meg_cpu_op meg_cpu_spread = {MEG_KERNEL, &meg_op_add, describe, prepare};
