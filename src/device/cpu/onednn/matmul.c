/* Products of matrices that are both data, on the cpu: one sgemm each, in plain format.
 *
 *     forward   y (r, j)  = a (r, k) b (k, j)
 *     backward  da (r, k) = dy b'      db (k, j) = a' dy
 *
 * Where there are as many products as threads, each thread makes whole ones.
 */
#include "device/cpu/common/onednn.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct matmul {
    const meg_onednn *onednn;
    int64_t count, rows, inner, cols; /* count: products */
} matmul;

/* The node whole, but for samples; all operands as they are, none with a halo. */
static bool fits(const meg_request *r)
{
    meg_mask used = meg_request_reads(r) | meg_request_writes(r);
    meg_work whole = meg_op_whole(r->graph, r->node);
    whole.out.lo[MEG_N] = r->work.out.lo[MEG_N], whole.out.hi[MEG_N] = r->work.out.hi[MEG_N];
    if (!meg_box_equal(&r->work.out, &whole.out) || !meg_box_equal(&r->work.sum, &whole.sum) ||
        meg_box_empty(&r->work.out))
        return false;
    for (int i = 0; i < 2; i++) {
        meg_box in = meg_op_need(r->graph, r->node, i, &r->work);
        for (int o = MEG_X + i; o <= MEG_DX + i; o += MEG_DX - MEG_X)
            if (used & MEG_BIT(o) && !meg_box_equal(&r->box[o], &in)) return false;
    }
    int y = r->pass == MEG_BACKWARD ? MEG_DY : MEG_Y;
    return meg_box_equal(&r->box[y], &whole.out);
}

static matmul matmul_of(const meg_device *d, const meg_request *r)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_value *a = &r->graph->value[r->node->in[0]], *b = &r->graph->value[r->node->in[1]];
    int64_t rows = a->dims[a->rank - 2], cols = b->dims[b->rank - 1];
    return (matmul){cpu->onednn, meg_box_size(&r->work.out) / (rows * cols), rows,
                    a->dims[a->rank - 1], cols};
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    (void)d;
    if (!fits(r)) return false;
    *s = (meg_spec){.flops = meg_request_flops(r)};
    s->traffic = meg_request_traffic(r, s, 0);
    snprintf(s->impl, sizeof s->impl, "sgemm:jit");
    return true;
}

/* One of the products. */
static void forward(const matmul *j, void *const at[MEG_OPERANDS], int64_t i)
{
    const float *a = (float *)at[MEG_X] + i * j->rows * j->inner;
    const float *b = (float *)at[MEG_X + 1] + i * j->inner * j->cols;
    float *y = (float *)at[MEG_Y] + i * j->rows * j->cols;
    meg_onednn_must(dnnl_sgemm('N', 'N', j->rows, j->cols, j->inner, 1, a, j->inner, b, j->cols, 0,
                               y, j->cols));
}

static void backward(const matmul *j, void *const at[MEG_OPERANDS], int64_t i)
{
    int64_t a = i * j->rows * j->inner, b = i * j->inner * j->cols;
    const float *dy = (float *)at[MEG_DY] + i * j->rows * j->cols;
    meg_onednn_must(dnnl_sgemm('N', 'T', j->rows, j->inner, j->cols, 1, dy, j->cols,
                               (float *)at[MEG_X + 1] + b, j->cols, 0, (float *)at[MEG_DX] + a,
                               j->inner));
    meg_onednn_must(dnnl_sgemm('T', 'N', j->inner, j->cols, j->rows, 1, (float *)at[MEG_X] + a,
                               j->inner, dy, j->cols, 0, (float *)at[MEG_DX + 1] + b, j->cols));
}

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const matmul *j = k->own;
    void (*pass)(const matmul *, void *const[],
                 int64_t) = k->request.pass == MEG_BACKWARD ? backward : forward;
    int team = meg_onednn_enter(j->onednn);
    (void)m;
#pragma omp parallel for schedule(static) if (j->count >= j->onednn->threads)
    for (int64_t i = 0; i < j->count; i++)
        pass(j, at, i);
    meg_onednn_leave(team);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    matmul *j = meg_cpu_own(sizeof *j);
    *j = matmul_of(d, r);
    out->run = run;
    out->own = j;
    out->free_own = free;
    return true;
}

const meg_cpu_op meg_cpu_matmul = {MEG_KERNEL, &meg_op_matmul, describe, prepare};
