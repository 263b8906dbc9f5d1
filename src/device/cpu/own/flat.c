/* What the cpu device does element by element, in any format: add and relu with their gradients,
 * and the instructions ADD, ZERO and UPDATE. Operands lie in the same format. Where they cover the
 * same box one loop over memory, padding included, is the whole kernel; add and relu also take them
 * with halos, and then go row by row.
 */
#include "device/cpu/common/onednn.h"
#include "device/cpu/common/rows.h"
#include "ops/attrs.h"

#include <stdlib.h>
#include <string.h>

typedef struct own {
    meg_simd_flat job;
    void (*kernel)(const meg_simd_flat *j);
    /* of operands with halos; NULL: there are none */
    void (*by_rows)(const meg_simd_flat_part *j);
    meg_simd_part part;
    meg_simd_side side[MEG_OPERANDS];
    bool even; /* rows begin and end at whole vectors */
} own;

/* ---- sizes ---- */

/* Bytes of a box in a weight format; 0: not known. The box does not tell the groups, but blocks
 * with groups are used only where these are whole blocks (any number of groups has the same bytes)
 * or single channels. */
static int64_t weight_bytes(const meg_box *b, meg_format f)
{
    char first = meg_format_name(f)[0];
    int64_t groups = first == 'G' ? meg_extent(b, MEG_N) : first == 'g' ? 1 : 0;
    meg_onednn_shape shape = meg_onednn_shape_of(b, groups, meg_extent(b, MEG_D) > 1);
    int64_t bytes = meg_onednn_bytes(&shape, f);
    return bytes > 0 ? bytes : 0;
}

static own *own_of(const meg_cpu *cpu, const meg_request *r, const meg_spec *s, int operand)
{
    own *o = meg_cpu_own(sizeof *o);
    o->job.count = meg_operand_bytes(r, s, operand) / (int64_t)sizeof(float);
    o->job.threads = cpu->threads;
    return o;
}

static bool finish(meg_prepared *out, own *o,
                   void (*run)(const meg_prepared *, void *const *, const meg_moment *))
{
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

/* ---- add and relu ---- */

static bool rectifies(const meg_node *v)
{
    if (v->op->rectifier) return true;
    return ((const meg_add_attr *)v->attr)->relu;
}

/* Whether input i is as large as the sum; others are spread over it (device/cpu/own/spread.c). */
static bool like_output(const meg_request *r, int i)
{
    return meg_box_equal(&r->graph->value[r->node->in[i]].shape,
                         &r->graph->value[r->node->out[0]].shape);
}

static bool describe_forward(meg_device *d, const meg_request *r, meg_spec *s)
{
    int inputs = r->node->inputs;
    meg_format f = meg_cpu_common_format(meg_device_state(d), r, MEG_X, MEG_X + inputs - 1);
    for (int i = 0; i < inputs; i++) {
        if (!like_output(r, i) || !meg_cpu_holds(r, MEG_X + i, &r->work.out)) return false;
        s->format[MEG_X + i] = f;
    }
    s->format[MEG_Y] = f;
    s->in_place = MEG_BIT(MEG_Y);
    meg_cpu_work(d, r, s, 0);
    return true;
}

/* Gradients lie on the one that comes in, or in one slot, where all have its box. */
static bool alike(const meg_request *r)
{
    for (int i = 0; i < r->node->inputs; i++)
        if (!meg_box_empty(&r->box[MEG_DX + i]) &&
            !meg_box_equal(&r->box[MEG_DX + i], &r->box[MEG_DY]))
            return false;
    return true;
}

/* The rectifier's mask is the output's, so its format decides. */
static bool describe_backward(meg_device *d, const meg_request *r, meg_spec *s)
{
    int decides = rectifies(r->node) ? MEG_Y : MEG_DY;
    meg_format f = meg_cpu_common_format(meg_device_state(d), r, decides, decides);
    for (int i = 0; i < r->node->inputs; i++)
        if (!like_output(r, i) || !meg_cpu_holds(r, MEG_DX + i, &r->work.out)) return false;
    s->format[MEG_Y] = decides == MEG_Y ? f : r->format[MEG_Y];
    s->format[MEG_DY] = s->format[MEG_DY + 1] = f;
    for (int i = 0; i < r->node->inputs; i++) {
        s->format[MEG_DX + i] = f;
        if (!alike(r)) continue;
        s->in_place |= MEG_BIT(MEG_DX + i);
        if (r->node->inputs > 1) s->shared |= MEG_BIT(MEG_DX + i);
    }
    s->second_dy = true;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static bool describe_node(meg_device *d, const meg_request *r, meg_spec *s)
{
    bool back = r->pass == MEG_BACKWARD;
    if (!back && !meg_cpu_makes(r)) return false;
    if (meg_box_empty(&r->work.out) || !meg_cpu_holds(r, MEG_Y, &r->work.out)) return false;
    if (back && !meg_cpu_holds(r, MEG_DY, &r->work.out)) return false;
    return back ? describe_backward(d, r, s) : describe_forward(d, r, s);
}

/* Row by row, if the kernel does. */
static void run_job(const own *o, const meg_simd_flat *job, const meg_simd_side *const x[],
                    const meg_simd_side *const y[])
{
    if (!o->by_rows) {
        o->kernel(job);
        return;
    }
    meg_simd_flat_part p = {.job = *job, .part = o->part, .sign = o->side[MEG_Y]};
    for (int i = 0; i < job->inputs; i++)
        p.x[i] = *x[i];
    for (int i = 0; i < job->outputs; i++)
        p.y[i] = *y[i];
    p.even = o->even;
    o->by_rows(&p);
}

static void run_forward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_flat job = o->job;
    const meg_simd_side *x[MEG_INPUTS], *y[1] = {&o->side[MEG_Y]};
    for (int i = 0; i < job.inputs; i++) {
        job.x[i] = at[MEG_X + i];
        x[i] = &o->side[MEG_X + i];
    }
    job.y[0] = at[MEG_Y];
    run_job(o, &job, x, y);
}

static void run_backward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_flat job = o->job;
    const meg_simd_side *x[] = {&o->side[MEG_DY], &o->side[MEG_DY]}, *y[MEG_INPUTS] = {NULL};
    int inputs = k->request.node->inputs, block = meg_format_block(k->spec.format[MEG_DY]);
    job.x[0] = at[MEG_DY];
    job.x[1] = at[MEG_DY + 1];
    job.inputs = job.x[1] ? 2 : 1;
    job.sign = at[MEG_Y];
    for (int i = 0; i < inputs; i++) {
        bool have = !at[MEG_DX + i]; /* each once, though several may lie in one slot */
        for (int n = 0; n < job.outputs; n++)
            have = have || job.y[n] == at[MEG_DX + i];
        if (have) continue;
        y[job.outputs] = &o->side[MEG_DX + i];
        job.y[job.outputs++] = at[MEG_DX + i];
    }
    if (job.outputs > 0) run_job(o, &job, x, y);
    for (int i = 0; i < inputs; i++)
        meg_cpu_clear_halo(at[MEG_DX + i], &k->request.box[MEG_DX + i], &k->request.work.out,
                           block);
}

/* Sets how rows lie; false: all operands cover just the work. */
static bool set_rows(own *o, const meg_cpu *cpu, const meg_request *r, const meg_spec *s)
{
    bool halos = false;
    int sides = 0, block = meg_format_block(s->format[r->pass == MEG_BACKWARD ? MEG_DY : MEG_Y]);
    meg_simd_side *side[MEG_OPERANDS];
    for (int i = 0; i < MEG_SCRATCH; i++) {
        if (!meg_cpu_uses(r, i)) continue;
        halos = halos || !meg_box_equal(&r->box[i], &r->work.out);
        o->side[i] = meg_cpu_side(&r->box[i], &r->work.out, block);
        side[sides++] = &o->side[i];
    }
    o->part = meg_cpu_part(&r->work.out, block, side, sides);
    o->even = block == cpu->block;
    return halos;
}

static bool prepare_node(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    bool back = r->pass == MEG_BACKWARD, relu = rectifies(r->node);
    own *o = own_of(cpu, r, s, back ? MEG_DY : MEG_Y);
    o->job.relu = relu && !back;
    o->job.inputs = r->node->inputs;
    o->job.outputs = back ? 0 : 1;
    o->kernel = back && relu ? cpu->simd->mask : cpu->simd->add;
    if (set_rows(o, cpu, r, s))
        o->by_rows = back && relu ? cpu->simd->mask_part : cpu->simd->add_part;
    return finish(out, o, back ? run_backward : run_forward);
}

const meg_cpu_op meg_cpu_add = {MEG_KERNEL, &meg_op_add, describe_node, prepare_node};
const meg_cpu_op meg_cpu_relu = {MEG_KERNEL, &meg_op_relu, describe_node, prepare_node};

/* ---- instructions ---- */

/* All operands lie as the one that is changed does. */
static bool describe_elements(meg_device *d, const meg_request *r, meg_spec *s)
{
    int changed = r->code == MEG_ZERO ? MEG_Y : MEG_X;
    meg_mask all = meg_request_reads(r) | meg_request_writes(r);
    if (r->code == MEG_UPDATE) all &= ~MEG_BIT(MEG_X + 2); /* the scalars */
    for (int i = 0; i < MEG_OPERANDS; i++) {
        if (!(all & MEG_BIT(i)) || meg_box_empty(&r->box[i])) continue;
        bool weight = meg_format_block(r->format[changed]) == 0;
        s->format[i] = r->format[changed];
        s->bytes[i] = weight ? weight_bytes(&r->box[i], s->format[i]) : 0;
        if (weight && s->bytes[i] == 0) return false;
        if (r->code != MEG_ZERO && r->dtype[i] != MEG_F32) return false;
    }
    if (r->code == MEG_ADD) s->in_place = MEG_BIT(MEG_Y);
    meg_cpu_work(d, r, s, 0);
    return true;
}

static bool prepare_sum(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    own *o = own_of(cpu, r, s, MEG_Y);
    o->job.inputs = 2;
    o->job.outputs = 1;
    o->kernel = cpu->simd->add;
    return finish(out, o, run_forward);
}

enum {
    CHUNK = 1 << 15
}; /* bytes of a zeroing task, elements of an update */

static void run_zero(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    int64_t bytes = meg_operand_bytes(&k->request, &k->spec, MEG_Y);
    int64_t chunks = (bytes + CHUNK - 1) / CHUNK;
    char *y = at[MEG_Y];
#pragma omp parallel for schedule(static) num_threads(o->job.threads) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++) {
        int64_t lo = i * CHUNK, rest = bytes - lo;
        memset(y + lo, 0, (size_t)(rest < CHUNK ? rest : CHUNK));
    }
}

static bool prepare_zero(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    return finish(out, own_of(meg_device_state(d), r, s, MEG_Y), run_zero);
}

/* One chunk of an update: elements lo.. of everything. */
static void update_chunk(const meg_prepared *k, void *const at[MEG_OPERANDS], int64_t lo,
                         int64_t count)
{
    const meg_request *r = &k->request;
    meg_update u = {
        .count = count,
        .weight = (float *)at[MEG_X] + lo,
        .gradient = (const float *)at[MEG_X + 1] + lo,
        .scalars = at[MEG_X + 2],
        .settings = r->settings,
        .decay = true,
    };
    for (int i = 0; i < MEG_OPTIMIZER_STATES; i++)
        u.state[i] = at[MEG_AUX + i] ? (float *)at[MEG_AUX + i] + lo : NULL;
    r->optimizer->f32(&u);
}

static void run_update(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    int64_t count = o->job.count, chunks = (count + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(static) num_threads(o->job.threads) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++) {
        int64_t lo = i * CHUNK, rest = count - lo;
        update_chunk(k, at, lo, rest < CHUNK ? rest : CHUNK);
    }
}

static bool prepare_update(meg_device *d, const meg_request *r, const meg_spec *s,
                           meg_prepared *out)
{
    return finish(out, own_of(meg_device_state(d), r, s, MEG_X), run_update);
}

const meg_cpu_op meg_cpu_sum = {MEG_ADD, NULL, describe_elements, prepare_sum};
const meg_cpu_op meg_cpu_zero = {MEG_ZERO, NULL, describe_elements, prepare_zero};
const meg_cpu_op meg_cpu_update = {MEG_UPDATE, NULL, describe_elements, prepare_update};
