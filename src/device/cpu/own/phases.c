/* The phases of batch norm on the cpu device: mean, var, norm, where ranks share pixels or groups of
 * samples. Values and their gradients are blocked and may have halos; moments and weights are plain.
 * The running statistics (STATE), a few numbers per channel, are left to plain C.
 */
#include "device/cpu/common/rows.h"
#include "ops/norm/cells.h"

#include <stdlib.h>
#include <string.h>

enum { /* inputs; of var the first two */
    MEAN = MEG_X + 1,
    VAR,
    WEIGHT,
    BIAS,
    RUNNING_MEAN,
    RUNNING_VAR
};

typedef struct shape { /* of the work */
    meg_box part;      /* of the value */
    meg_box moments;
    int64_t norm; /* samples of a group */
} shape;

typedef struct own {
    meg_simd_phase job;
    meg_box part;
    void (*kernel)(const meg_simd_phase *j);
    double count[]; /* of each group */
} own;

static bool is_norm(const meg_request *r)
{
    return r->node->op == &meg_op_norm;
}

/* False: not of whole pixels and single channels. */
static bool shape_of(const meg_request *r, shape *s)
{
    const meg_box *x = &r->graph->value[r->node->in[0]].shape;
    if (is_norm(r)) {
        const meg_norm_attr *attr = r->node->attr;
        bool all = attr->norm <= 0 || attr->norm > x->hi[MEG_N] || r->pass == MEG_EVAL;
        s->part = r->work.out;
        s->norm = all ? x->hi[MEG_N] : attr->norm;
        s->moments = meg_op_need(r->graph, r->node, r->pass == MEG_EVAL ? RUNNING_MEAN : MEAN,
                                 &r->work);
        return true;
    }
    meg_cells cells = meg_mean_cells(r->graph, r->node);
    s->part = meg_mean_need(r->graph, r->node, 0, &r->work);
    s->norm = cells.size[MEG_N];
    s->moments = r->work.out;
    for (int a = MEG_D; a < MEG_AXES; a++)
        if (cells.size[a] != x->hi[a]) return false;
    return cells.size[MEG_C] == 1;
}

/* Whether operand i, if it is used, is just what is wanted of it. */
static bool covers(const meg_request *r, int i, const meg_box *want)
{
    return !meg_cpu_uses(r, i) || meg_box_equal(&r->box[i], want);
}

static bool fits_norm(const meg_request *r, const shape *s)
{
    meg_box channels = s->moments;
    channels.lo[MEG_N] = 0, channels.hi[MEG_N] = 1;
    for (int i = WEIGHT; i <= RUNNING_VAR; i++)
        if (!covers(r, i, &channels)) return false;
    for (int i = MEAN; i <= VAR; i++)
        if (!covers(r, i, &s->moments) || !covers(r, MEG_DX + i, &s->moments)) return false;
    return covers(r, MEG_DX + WEIGHT, &channels) && covers(r, MEG_DX + BIAS, &channels) &&
           meg_cpu_holds(r, MEG_Y, &s->part) && meg_cpu_holds(r, MEG_DY, &s->part);
}

static bool fits(const meg_request *r, shape *s)
{
    if (!meg_cpu_makes(r) && r->pass != MEG_BACKWARD) return false;
    if (meg_box_empty(&r->work.out) || !shape_of(r, s) || meg_box_empty(&s->part)) return false;
    if (!meg_cpu_holds(r, MEG_X, &s->part) || !meg_cpu_holds(r, MEG_DX, &s->part)) return false;
    if (is_norm(r)) return fits_norm(r, s);
    return covers(r, MEAN, &s->moments) && covers(r, MEG_Y, &s->moments) &&
           covers(r, MEG_DY, &s->moments) && covers(r, MEG_DX + MEAN, &s->moments);
}

/* Sides of the operands that are there, in their common rows. */
static void set_rows(meg_simd_phase *j, const meg_cpu *cpu, const meg_request *r, const shape *s)
{
    const struct {
        int operand;
        meg_simd_side *side;
    } list[] = {{MEG_X, &j->at_x}, {MEG_Y, &j->at_y}, {MEG_DY, &j->at_dy}, {MEG_DX, &j->at_dx}};
    meg_simd_side *side[4];
    int sides = 0;
    for (int i = 0; i < 4; i++) {
        int o = list[i].operand;
        bool moment = !is_norm(r) && (o == MEG_Y || o == MEG_DY);
        if (moment || !meg_cpu_uses(r, o)) continue;
        *list[i].side = meg_cpu_side(&r->box[o], &s->part, cpu->block);
        side[sides++] = list[i].side;
    }
    j->part = meg_cpu_part(&s->part, cpu->block, side, sides);
}

static meg_simd_phase job_of(const meg_cpu *cpu, const meg_request *r, const shape *s)
{
    meg_simd_phase j = {
        .channels = meg_extent(&s->part, MEG_C),
        .norm = s->norm,
        .groups = meg_extent(&s->moments, MEG_N),
        .skipped = s->part.lo[MEG_N] - s->moments.lo[MEG_N] * s->norm,
        .threads = cpu->threads,
    };
    if (is_norm(r)) {
        const meg_norm_attr *attr = r->node->attr;
        j.relu = attr->relu;
        j.epsilon = attr->epsilon;
    }
    set_rows(&j, cpu, r, s);
    return j;
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu *cpu = meg_device_state(d);
    shape of;
    if (!fits(r, &of)) return false;
    meg_simd_phase job = job_of(cpu, r, &of);
    meg_format blocked = meg_format_blocked(cpu->block);
    bool back = r->pass == MEG_BACKWARD;
    s->format[MEG_X] = s->format[MEG_DX] = blocked;
    if (is_norm(r)) {
        s->format[MEG_Y] = s->format[MEG_DY] = s->format[MEG_DY + 1] = blocked;
        s->in_place = MEG_BIT(back ? MEG_DX : MEG_Y);
        s->second_dy = back;
    }
    s->bytes[MEG_SCRATCH] = cpu->simd->phase_bytes(&job);
    meg_cpu_work(d, r, s, 0);
    return true;
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    const own *o = k->own;
    const meg_request *r = &k->request;
    meg_simd_phase j = o->job;
    bool given = r->pass == MEG_EVAL;
    j.count = o->count;
    j.x = at[MEG_X];
    j.dx = at[MEG_DX];
    j.scratch = at[MEG_SCRATCH];
    j.mean = at[MEAN];
    j.dmean = at[MEG_DX + MEAN];
    if (is_norm(r)) {
        if (given) j.mean = at[RUNNING_MEAN];
        j.variance = at[given ? RUNNING_VAR : VAR];
        j.dvariance = at[MEG_DX + VAR];
        j.weight = at[WEIGHT], j.bias = at[BIAS];
        j.dweight = at[MEG_DX + WEIGHT], j.dbias = at[MEG_DX + BIAS];
        j.y = at[MEG_Y];
        j.dy = at[MEG_DY], j.dy2 = at[MEG_DY + 1];
    } else {
        j.moment = at[MEG_Y];
        j.dmoment = at[MEG_DY];
    }
    o->kernel(&j);
    meg_cpu_clear_halo(j.dx, &r->box[MEG_DX], &o->part, meg_format_block(k->spec.format[MEG_DX]));
}

static void (*kernel_of(const meg_simd *simd, const meg_request *r))(const meg_simd_phase *j)
{
    bool back = r->pass == MEG_BACKWARD;
    if (is_norm(r)) return back ? simd->phase_back : simd->phase_apply;
    if (r->node->op == &meg_op_var) return back ? simd->phase_var_back : simd->phase_var;
    return back ? simd->phase_mean_back : simd->phase_mean;
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    const meg_cpu *cpu = meg_device_state(d);
    shape of;
    if (!shape_of(r, &of)) return false;
    meg_simd_phase job = job_of(cpu, r, &of);
    own *o = meg_cpu_own(sizeof *o + (size_t)job.groups * sizeof *o->count);
    meg_box x = r->graph->value[r->node->in[0]].shape;
    double pixels = (double)(meg_extent(&x, MEG_D) * meg_extent(&x, MEG_H) * meg_extent(&x, MEG_W));
    o->job = job;
    o->part = of.part;
    o->kernel = kernel_of(cpu->simd, r);
    for (int64_t g = 0; g < job.groups; g++) {
        int64_t lo = (of.moments.lo[MEG_N] + g) * of.norm, rest = x.hi[MEG_N] - lo;
        o->count[g] = (double)(rest < of.norm ? rest : of.norm) * pixels;
    }
    out->own = o;
    out->free_own = free;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_mean = {MEG_KERNEL, &meg_op_mean, describe, prepare};
const meg_cpu_op meg_cpu_var = {MEG_KERNEL, &meg_op_var, describe, prepare};
const meg_cpu_op meg_cpu_phase_norm = {MEG_KERNEL, &meg_op_norm, describe, prepare};
