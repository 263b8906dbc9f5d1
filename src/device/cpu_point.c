/* Activations, products and differences on the cpu device, in any format. Operands must cover the
 * same box and lie in the same format. An input that is spread (ops/pair.h) is left to plain C.
 *
 *     forward    y = f(x0 [, x1])
 *     backward   dx = back(dy [+ dy2], what the operator's masks read: y or x)
 *
 * Product and difference have two gradients: the second, which does not lie on dy, is made first.
 */
#include "device/cpu.h"
#include "device/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1
};

typedef struct rule { /* of one operator */
    const char *op;
    meg_simd_kind forward;
    meg_simd_kind back[2]; /* of dx0 and dx1 */
    int at[2];             /* which operand each of them reads besides dy */
} rule;

static const rule rules[] = {
    {"clip", MEG_POINT_CLIP, {MEG_POINT_CLIP_BACK}, {MEG_Y}},
    {"gelu", MEG_POINT_GELU, {MEG_POINT_GELU_BACK}, {MEG_X}},
    {"leaky_relu", MEG_POINT_LEAK, {MEG_POINT_LEAK_BACK}, {MEG_Y}},
    {"mul", MEG_POINT_MUL, {MEG_POINT_MUL, MEG_POINT_MUL}, {MEG_X + 1, MEG_X}},
    {"sigmoid", MEG_POINT_SIGMOID, {MEG_POINT_SIGMOID_BACK}, {MEG_Y}},
    {"sub", MEG_POINT_SUB, {MEG_POINT_PASS, MEG_POINT_NEGATE}, {NONE, NONE}},
    {"tanh", MEG_POINT_TANH, {MEG_POINT_TANH_BACK}, {MEG_Y}},
};

typedef struct own {
    meg_simd_point job;
    rule rule;
    void (*kernel)(const meg_simd_point *j);
} own;

static rule rule_of(const meg_node *v)
{
    int i = 0;
    while (strcmp(rules[i].op, v->op->name) != 0)
        i++;
    rule r = rules[i];
    if (r.forward != MEG_POINT_GELU || !((const meg_gelu_attr *)v->attr)->approximate) return r;
    r.forward = MEG_POINT_GELU_TANH;
    r.back[0] = MEG_POINT_GELU_TANH_BACK;
    return r;
}

/* All operands that the pass touches cover just the work. */
static bool fits(const meg_request *r)
{
    meg_mask touched = meg_request_reads(r) | meg_request_writes(r);
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&r->work.out)) return false;
    for (int i = 0; i < r->node->inputs; i++)
        if (!meg_box_equal(&r->graph->value[r->node->in[i]].shape,
                           &r->graph->value[r->node->out[0]].shape))
            return false;
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (touched & MEG_BIT(i) && !meg_box_empty(&r->box[i]) &&
            !meg_box_equal(&r->box[i], &r->work.out))
            return false;
    return true;
}

/* What decides the format: where the derivative is taken, which forward has written, or dy. */
static meg_format format_of(const meg_cpu *cpu, const meg_request *r)
{
    rule k = rule_of(r->node);
    if (r->pass != MEG_BACKWARD || k.forward == MEG_POINT_MUL)
        return meg_cpu_common_format(cpu, r, MEG_X, MEG_X + r->node->inputs - 1);
    int decides = k.at[0] == NONE ? MEG_DY : k.at[0];
    return meg_cpu_common_format(cpu, r, decides, decides);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    bool back = r->pass == MEG_BACKWARD;
    meg_mask touched = meg_request_reads(r) | meg_request_writes(r);
    if (!fits(r)) return false;
    meg_format f = format_of(meg_device_state(d), r);
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (touched & MEG_BIT(i)) s->format[i] = f;
    if (back) s->format[MEG_DY + 1] = f;
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    meg_cpu_price(d, r, s, 0);
    return true;
}

static void run_forward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_point job = o->job;
    job.kind = o->rule.forward;
    job.a = at[MEG_X];
    job.b = k->request.node->inputs > 1 ? at[MEG_X + 1] : NULL;
    job.y = at[MEG_Y];
    o->kernel(&job);
}

static void run_backward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_point job = o->job;
    job.a = at[MEG_DY];
    job.a2 = at[MEG_DY + 1];
    for (int i = k->request.node->inputs - 1; i >= 0; i--) {
        job.kind = o->rule.back[i];
        job.b = o->rule.at[i] == NONE ? NULL : at[o->rule.at[i]];
        job.y = at[MEG_DX + i];
        bool nothing = job.kind == MEG_POINT_PASS && job.y == job.a && !job.a2;
        if (job.y && !nothing) o->kernel(&job);
    }
}

static void set_limits(meg_simd_point *job, const meg_node *v)
{
    const meg_clip_attr *clip = v->attr;
    const meg_leaky_attr *leaky = v->attr;
    if (strcmp(v->op->name, "clip") == 0) job->lo = (float)clip->lo, job->hi = (float)clip->hi;
    if (strcmp(v->op->name, "leaky_relu") == 0) job->lo = (float)leaky->slope;
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    bool back = r->pass == MEG_BACKWARD;
    int operand = back ? MEG_DY : MEG_Y;
    const meg_box *w = &r->work.out;
    int block = meg_format_block(s->format[operand]);
    int64_t channels = meg_extent(w, MEG_C);
    own *o = meg_cpu_own(sizeof *o);
    o->rule = rule_of(r->node);
    o->kernel = cpu->simd->point;
    o->job = (meg_simd_point){
        .count = meg_operand_bytes(r, s, operand) / (int64_t)sizeof(float),
        .blocks = 1,
        .lanes = cpu->block,
        .threads = cpu->threads,
    };
    o->job.row = o->job.count;
    if (block > 1) {
        o->job.blocks = (channels + block - 1) / block;
        o->job.row = meg_extent(w, MEG_D) * meg_extent(w, MEG_H) * meg_extent(w, MEG_W) * block;
        o->job.lanes = (int)(channels - (o->job.blocks - 1) * block);
    }
    set_limits(&o->job, r->node);
    out->own = o;
    out->free_own = free;
    out->run = back ? run_backward : run_forward;
    return true;
}

const meg_cpu_op meg_cpu_clip = {MEG_KERNEL, "clip", describe, prepare};
const meg_cpu_op meg_cpu_gelu = {MEG_KERNEL, "gelu", describe, prepare};
const meg_cpu_op meg_cpu_leaky_relu = {MEG_KERNEL, "leaky_relu", describe, prepare};
const meg_cpu_op meg_cpu_mul = {MEG_KERNEL, "mul", describe, prepare};
const meg_cpu_op meg_cpu_sigmoid = {MEG_KERNEL, "sigmoid", describe, prepare};
const meg_cpu_op meg_cpu_sub = {MEG_KERNEL, "sub", describe, prepare};
const meg_cpu_op meg_cpu_tanh = {MEG_KERNEL, "tanh", describe, prepare};
