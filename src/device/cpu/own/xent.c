/* Softmax cross-entropy on the cpu device, where samples have many pixels: logits plain, so that a
 * vector holds neighbouring pixels. A classifier's few logits are left to plain C. */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>

enum {
    LABELS = MEG_X + 1,
    COUNT,
    WEIGHTS
};
enum {
    FEW = 4
}; /* pixels, for which a vector does not pay */

typedef struct own {
    meg_simd_xent job;
    void (*kernel)(const meg_simd_xent *j);
} own;

static int64_t pixels_of(const meg_box *b)
{
    return meg_extent(b, MEG_D) * meg_extent(b, MEG_H) * meg_extent(b, MEG_W);
}

static bool fits(const meg_request *r)
{
    meg_box all = r->work.sum;
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&all) || pixels_of(&all) < FEW) return false;
    if (!meg_box_equal(&r->box[LABELS], &all)) return false;
    all.hi[MEG_C] = r->graph->value[r->node->in[0]].shape.hi[MEG_C];
    if (r->pass == MEG_BACKWARD && !meg_box_equal(&r->box[MEG_DX], &all)) return false;
    return meg_box_equal(&r->box[MEG_X], &all);
}

static meg_simd_xent job_of(const meg_cpu *cpu, const meg_request *r)
{
    const meg_xent_attr *attr = r->node->attr;
    int64_t classes = r->graph->value[r->node->in[0]].shape.hi[MEG_C];
    return (meg_simd_xent){
        .samples = meg_extent(&r->work.sum, MEG_N),
        .classes = classes,
        .pixels = pixels_of(&r->work.sum),
        .threads = cpu->threads,
        .sure = (float)(1 - attr->smoothing),
        .spread = (float)(attr->smoothing / (double)classes),
        .ignore = (int32_t)attr->ignore,
    };
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    if (!fits(r)) return false;
    meg_simd_xent job = job_of(cpu, r);
    if (r->pass != MEG_BACKWARD) s->bytes[MEG_SCRATCH] = cpu->simd->xent_bytes(&job);
    meg_cpu_work(d, r, s, MEG_BIT(MEG_X));
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_xent job = o->job;
    double count = (double)*(const float *)at[COUNT];
    bool back = k->request.pass == MEG_BACKWARD;
    job.scale = count != 0 ? 1 / count : 0; /* a batch without any label has no loss */
    if (back) job.scale *= (double)*(const float *)at[MEG_DY];
    job.x = at[MEG_X];
    job.label = at[LABELS];
    job.weights = at[WEIGHTS];
    job.y = at[MEG_Y];
    job.dx = at[MEG_DX];
    job.scratch = at[MEG_SCRATCH];
    o->kernel(&job);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    own *o = meg_cpu_own(sizeof *o);
    o->job = job_of(cpu, r);
    o->kernel = r->pass == MEG_BACKWARD ? cpu->simd->xent_back : cpu->simd->xent;
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_softmax_xent = {MEG_KERNEL, &meg_op_softmax_xent, describe, prepare};
