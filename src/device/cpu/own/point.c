/* Functions, products, differences, comparisons and choices on the cpu device, point by point in any
 * format. Operands must cover the same box and lie in the same format. An input that is spread
 * (ops/pointwise/pair.h) is left to plain C.
 *
 *     forward    y = f(x0 [, x1])
 *     backward   dx = back(dy [+ dy2], what the operator's masks read: y or x)
 *
 * Of several gradients the first may lie on dy: the others are made before it.
 */
#include "device/cpu/common/cpu.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1,
    MASK = MEG_X + 1 /* of where */
};

typedef struct rule { /* of one operator */
    const meg_op *op;
    meg_simd_kind forward;
    meg_simd_kind back[3]; /* of dx0, dx1, dx2 */
    int at[3];             /* which operand each of them reads besides dy */
    int variant;           /* of the operator, by its attributes: see variant_of */
} rule;

/* Of several for an operator, the one of its variant. */
static const rule rules[] = {
    {&meg_op_abs, MEG_POINT_ABS, {MEG_POINT_ABS_BACK}, {MEG_X}, 0},
    {&meg_op_celu, MEG_POINT_BEND, {MEG_POINT_BEND_BACK}, {MEG_X}, 0},
    {&meg_op_clip, MEG_POINT_CLIP, {MEG_POINT_CLIP_BACK}, {MEG_Y}, 0},
    {&meg_op_compare, MEG_POINT_LESS, {MEG_POINT_PASS}, {NONE}, 0},
    {&meg_op_compare, MEG_POINT_LESS_EQUAL, {MEG_POINT_PASS}, {NONE}, 1},
    {&meg_op_compare, MEG_POINT_GREATER, {MEG_POINT_PASS}, {NONE}, 2},
    {&meg_op_compare, MEG_POINT_GREATER_EQUAL, {MEG_POINT_PASS}, {NONE}, 3},
    {&meg_op_compare, MEG_POINT_EQUAL, {MEG_POINT_PASS}, {NONE}, 4},
    {&meg_op_compare, MEG_POINT_NOT_EQUAL, {MEG_POINT_PASS}, {NONE}, 5},
    {&meg_op_elu, MEG_POINT_BEND, {MEG_POINT_BEND_BACK}, {MEG_X}, 0},
    {&meg_op_exp, MEG_POINT_EXP, {MEG_POINT_MUL}, {MEG_Y}, 0},
    {&meg_op_gelu, MEG_POINT_GELU, {MEG_POINT_GELU_BACK}, {MEG_X}, 0},
    {&meg_op_gelu, MEG_POINT_GELU_TANH, {MEG_POINT_GELU_TANH_BACK}, {MEG_X}, 1},
    {&meg_op_hard_sigmoid, MEG_POINT_HARD_SIGMOID, {MEG_POINT_HARD_SIGMOID_BACK}, {MEG_Y}, 0},
    {&meg_op_hard_swish, MEG_POINT_HARD_SWISH, {MEG_POINT_HARD_SWISH_BACK}, {MEG_X}, 0},
    {&meg_op_leaky_relu, MEG_POINT_LEAK, {MEG_POINT_LEAK_BACK}, {MEG_Y}, 0},
    {&meg_op_log, MEG_POINT_LOG, {MEG_POINT_LOG_BACK}, {MEG_X}, 0},
    {&meg_op_max, MEG_POINT_MAX, {MEG_POINT_MAX_BACK, MEG_POINT_MAX_BACK}, {MEG_X, MEG_X + 1}, 0},
    {&meg_op_min, MEG_POINT_MIN, {MEG_POINT_MIN_BACK, MEG_POINT_MIN_BACK}, {MEG_X, MEG_X + 1}, 0},
    {&meg_op_mish, MEG_POINT_MISH, {MEG_POINT_MISH_BACK}, {MEG_X}, 0},
    {&meg_op_mul, MEG_POINT_MUL, {MEG_POINT_MUL, MEG_POINT_MUL}, {MEG_X + 1, MEG_X}, 0},
    {&meg_op_neg, MEG_POINT_NEGATE, {MEG_POINT_NEGATE}, {NONE}, 0},
    {&meg_op_pow, MEG_POINT_POWER, {MEG_POINT_POWER_BACK}, {MEG_X}, 0},
    {&meg_op_pow, MEG_POINT_SQUARE, {MEG_POINT_SQUARE_BACK}, {MEG_X}, 2},
    {&meg_op_pow, MEG_POINT_CUBE, {MEG_POINT_CUBE_BACK}, {MEG_X}, 3},
    {&meg_op_reciprocal, MEG_POINT_INVERSE, {MEG_POINT_INVERSE_BACK}, {MEG_Y}, 0},
    {&meg_op_selu, MEG_POINT_BEND, {MEG_POINT_BEND_BACK}, {MEG_X}, 0},
    {&meg_op_sigmoid, MEG_POINT_SIGMOID, {MEG_POINT_SIGMOID_BACK}, {MEG_Y}, 0},
    {&meg_op_softplus, MEG_POINT_SOFTPLUS, {MEG_POINT_SOFTPLUS_BACK}, {MEG_X}, 0},
    {&meg_op_sqrt, MEG_POINT_ROOT, {MEG_POINT_ROOT_BACK}, {MEG_Y}, 0},
    {&meg_op_sub, MEG_POINT_SUB, {MEG_POINT_PASS, MEG_POINT_NEGATE}, {NONE, NONE}, 0},
    {&meg_op_tanh, MEG_POINT_TANH, {MEG_POINT_TANH_BACK}, {MEG_Y}, 0},
    {&meg_op_where,
     MEG_POINT_WHERE,
     {MEG_POINT_UNMASKED, MEG_POINT_PASS, MEG_POINT_MASKED},
     {MASK, MASK, MASK},
     0},
    {&meg_op_where,
     MEG_POINT_WHERE_NOT,
     {MEG_POINT_MASKED, MEG_POINT_PASS, MEG_POINT_UNMASKED},
     {MASK, MASK, MASK},
     1},
};

typedef struct own {
    meg_simd_point job;
    rule rule;
    void (*kernel)(const meg_simd_point *j);
} own;

static int variant_of(const meg_node *v)
{
    if (v->op == &meg_op_compare) return ((const meg_compare_attr *)v->attr)->relation;
    if (v->op == &meg_op_gelu) return ((const meg_gelu_attr *)v->attr)->approximate;
    if (v->op == &meg_op_where) return ((const meg_where_attr *)v->attr)->invert;
    double exponent = v->op == &meg_op_pow ? ((const meg_point_attr *)v->attr)->alpha : 0;
    return exponent == 2 ? 2 : exponent == 3 ? 3 : 0;
}

static const rule *rule_of(const meg_node *v)
{
    int variant = variant_of(v);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (v->op == rules[i].op && rules[i].variant == variant) return &rules[i];
    return NULL;
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
    const rule *k = rule_of(r->node);
    int inputs = r->node->inputs;
    bool both = inputs > 1 && k->at[0] != k->at[1]; /* backward reads two inputs */
    if (r->pass != MEG_BACKWARD || both)
        return meg_cpu_common_format(cpu, r, MEG_X, MEG_X + inputs - 1);
    int decides = k->at[0] == NONE ? MEG_DY : k->at[0];
    return meg_cpu_common_format(cpu, r, decides, decides);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    bool back = r->pass == MEG_BACKWARD;
    meg_mask touched = meg_request_reads(r) | meg_request_writes(r);
    if (!rule_of(r->node) || !fits(r)) return false;
    meg_format f = format_of(meg_device_state(d), r);
    for (int i = 0; i < MEG_OPERANDS; i++)
        if (touched & MEG_BIT(i)) s->format[i] = f;
    if (back) s->format[MEG_DY + 1] = f;
    s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
    s->second_dy = back;
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run_forward(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    meg_simd_point job = o->job;
    job.kind = o->rule.forward;
    job.a = at[MEG_X];
    bool where = k->request.node->op == &meg_op_where;
    int inputs = k->request.node->inputs, second = where ? MEG_X + 2 : MEG_X + 1;
    job.b = second < inputs ? at[second] : NULL;
    job.c = where ? at[MASK] : NULL;
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
        bool compares = job.kind == MEG_POINT_MAX_BACK || job.kind == MEG_POINT_MIN_BACK;
        job.c = compares ? at[MEG_X + 1 - i] : NULL; /* the other of two */
        job.y = at[MEG_DX + i];
        bool nothing = job.kind == MEG_POINT_PASS && job.y == job.a && !job.a2;
        if (job.y && !nothing) o->kernel(&job);
    }
}

/* The numbers of a kind: see its function. */
static void set_numbers(meg_simd_point *job, const meg_node *v)
{
    const meg_clip_attr *clip = v->attr;
    const meg_point_attr *point = v->attr;
    float alpha = v->op == &meg_op_celu || v->op == &meg_op_elu || v->op == &meg_op_selu
                      ? (float)point->alpha
                      : 0;
    if (v->op == &meg_op_clip) job->lo = (float)clip->lo, job->hi = (float)clip->hi;
    if (v->op == &meg_op_compare) job->lo = (float)((const meg_compare_attr *)v->attr)->value;
    if (v->op == &meg_op_leaky_relu) job->lo = (float)((const meg_leaky_attr *)v->attr)->slope;
    if (v->op == &meg_op_where) job->lo = (float)((const meg_where_attr *)v->attr)->value;
    if (v->op == &meg_op_pow) job->lo = (float)point->alpha, job->hi = (float)(point->alpha - 1);
    if (v->op == &meg_op_hard_sigmoid) job->lo = (float)point->alpha, job->hi = (float)point->beta;
    if (alpha == 0) return;
    job->hi = v->op == &meg_op_selu ? (float)point->beta : 1;
    job->lo = alpha * job->hi;
    job->rate = v->op == &meg_op_celu ? 1 / alpha : 1;
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    bool back = r->pass == MEG_BACKWARD;
    int operand = back ? MEG_DY : MEG_Y;
    const meg_box *w = &r->work.out;
    int block = meg_format_block(s->format[operand]);
    int64_t channels = meg_extent(w, MEG_C);
    if (!rule_of(r->node)) return false;
    own *o = meg_cpu_own(sizeof *o);
    o->rule = *rule_of(r->node);
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
    set_numbers(&o->job, r->node);
    out->own = o;
    out->free_own = free;
    out->run = back ? run_backward : run_forward;
    return true;
}

const meg_cpu_op meg_cpu_point = {MEG_KERNEL, NULL, describe, prepare};
