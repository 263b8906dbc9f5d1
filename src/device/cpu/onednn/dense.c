/* Dense layers on the cpu: matrix products.
 *
 *     forward   y (n, units)  = x (n, row) weight (units, row)' + bias
 *     backward  dx (n, row)   = dy (n, units) weight
 *     weight    dw            = dy' x,   dbias = sum of dy over n
 *
 * A part of it is a product of fewer units, or of shorter rows (a share of the sum).
 * A row is a sample's elements as they lie in memory. So x may be blocked, if the weight is blocked
 * alike: then its elements are in the same order, and padding is zero in both.
 *
 * Forward makes y' = weight x' and turns it round with the bias: with few samples oneDNN's product
 * is two to three times faster with the long side first.
 */
#include "device/cpu/common/layer.h"
#include "device/cpu/common/onednn.h"
#include "ops/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dense {
    const meg_onednn *onednn;
    int64_t samples, units, row;
    bool bias;
    int64_t quiet; /* bytes of the bias' gradient, if the bias is another share's; else 0 */
} dense;

/* The format of rows. Forward takes x as it lies and so chooses the weight's home; the other passes
 * follow the weight. */
static meg_format rows_of(const meg_request *r)
{
    meg_format weight = r->format[MEG_X + 1];
    bool chooses = meg_cpu_roles[r->pass].y == MEG_Y && weight == MEG_FORMAT_PLAIN;
    return chooses ? r->format[MEG_X] : weight;
}

/* Operands that are just what the work needs: rows of x and of the weight are the same elements. */
static bool covers(const meg_request *r)
{
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    const meg_value *in = &r->graph->value[r->node->in[0]];
    if (!role->known || in->dtype != MEG_F32 || meg_box_empty(&r->work.out)) return false;
    meg_box x = meg_op_need(r->graph, r->node, 0, &r->work);
    meg_box weight = meg_op_need(r->graph, r->node, 1, &r->work);
    const meg_dense_attr *a = r->node->attr;
    return meg_box_equal(&r->box[role->x], &x) && meg_box_equal(&r->box[role->y], &r->work.out) &&
           meg_box_equal(&r->box[role->weight], &weight) && meg_cpu_biased(r, a->bias);
}

static int64_t quiet_bytes(const meg_request *r)
{
    return meg_cpu_quiet(r) ? meg_box_size(&r->box[MEG_DX + 2]) * (int64_t)sizeof(float) : 0;
}

static dense dense_of(const meg_device *d, const meg_request *r)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_dense_attr *a = r->node->attr;
    const meg_box *x = &r->box[meg_cpu_roles[r->pass].x];
    int64_t samples = meg_extent(x, MEG_N);
    int64_t floats = meg_format_bytes(rows_of(r), x, MEG_F32) / (int64_t)sizeof(float);
    int64_t units = meg_extent(&r->box[meg_cpu_roles[r->pass].y], MEG_C);
    return (dense){cpu->onednn, samples, units, floats / samples, a->bias, quiet_bytes(r)};
}

/* ---- describe ---- */

static void set_work(const dense *j, meg_spec *s)
{
    double n = (double)j->samples, units = (double)j->units, row = (double)j->row;
    s->flops = 2 * n * units * row;
    s->traffic = (n * units + n * row + units * row) * (double)sizeof(float);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    if (!covers(r) || meg_format_block(rows_of(r)) == 0) return false;
    dense j = dense_of(d, r);
    *s = (meg_spec){0};
    s->format[role->x] = s->format[role->weight] = rows_of(r);
    s->bytes[role->weight] = j.units * j.row * (int64_t)sizeof(float);
    if (role->y == MEG_Y) s->bytes[MEG_SCRATCH] = j.samples * j.units * (int64_t)sizeof(float);
    snprintf(s->impl, sizeof s->impl, "sgemm:jit");
    set_work(&j, s);
    return true;
}

/* ---- run ---- */

/* y(n,k) = turned(k,n) + bias(k) */
static void turn(float *restrict y, const float *restrict turned, const float *restrict bias,
                 const dense *j)
{
    for (int64_t n = 0; n < j->samples; n++)
        for (int64_t k = 0; k < j->units; k++)
            y[n * j->units + k] = turned[k * j->samples + n] + (bias ? bias[k] : 0);
}

static void forward(const dense *j, void *const at[MEG_OPERANDS])
{
    const float *x = at[MEG_X], *weight = at[MEG_X + 1]; /* (n, row), (units, row) */
    float *turned = at[MEG_SCRATCH];                     /* (units, n) */
    meg_onednn_must(dnnl_sgemm('N', 'T', j->units, j->samples, j->row, 1, weight, j->row, x, j->row,
                               0, turned, j->samples));
    turn(at[MEG_Y], turned, j->bias && !j->quiet ? at[MEG_X + 2] : NULL, j);
}

static void backward(const dense *j, void *const at[MEG_OPERANDS])
{
    const float *dy = at[MEG_DY], *weight = at[MEG_X + 1]; /* (n, units), (units, row) */
    float *dx = at[MEG_DX];                                /* (n, row) */
    meg_onednn_must(dnnl_sgemm('N', 'N', j->samples, j->row, j->units, 1, dy, j->units, weight,
                               j->row, 0, dx, j->row));
}

static void weight_gradient(const dense *j, void *const at[MEG_OPERANDS])
{
    const float *x = at[MEG_X], *dy = at[MEG_DY];             /* (n, row), (n, units) */
    float *dweight = at[MEG_DX + 1], *dbias = at[MEG_DX + 2]; /* (units, row), (units) */
    meg_onednn_must(dnnl_sgemm('T', 'N', j->units, j->row, j->samples, 1, dy, j->units, x, j->row,
                               0, dweight, j->row));
    if (!j->bias || !dbias) return;
    memset(dbias, 0, j->quiet ? (size_t)j->quiet : sizeof *dbias * (size_t)j->units);
    for (int64_t n = 0; n < j->samples && !j->quiet; n++)
        for (int64_t k = 0; k < j->units; k++)
            dbias[k] += dy[n * j->units + k];
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    static void (*const pass[MEG_PASSES])(const dense *, void *const[]) = {
        [MEG_FORWARD] = forward,   [MEG_EVAL] = forward,           [MEG_REPLAY] = forward,
        [MEG_BACKWARD] = backward, [MEG_WEIGHT] = weight_gradient,
    };
    (void)m;
    const dense *j = k->own;
    int team = meg_onednn_enter(j->onednn);
    pass[k->request.pass](j, at);
    meg_onednn_leave(team);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    dense *j = meg_cpu_own(sizeof *j);
    *j = dense_of(d, r);
    out->run = run;
    out->own = j;
    out->free_own = free;
    return true;
}

const meg_cpu_op meg_cpu_dense = {MEG_KERNEL, &meg_op_dense, describe, prepare};
