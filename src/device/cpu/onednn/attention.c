/* Attention on the cpu: tiles of queries and keys that stay in the cache, products by oneDNN's
 * sgemm, the softmax by our own kernels. Plain format: a head is a matrix (features, tokens).
 *
 *     forward    for each 64 queries, over 256 keys at a time
 *                    s = scale q' k    p = exp(s - top)    y = y * exp(top before - top) + v p'
 *     backward   for each head, over both
 *                    p = exp(scale q' k - z)    e = scale * p * (dy' v - mean)
 *                    dq += k e'    dk += q e    dv += dy p
 *
 * (Dao, FlashAttention-2, ICLR 2024.) Threads share query tiles forward and heads backward; each
 * result is made by one of them in a fixed order, so their number does not matter.
 */
#include "device/cpu/common/onednn.h"
#include "device/cpu/simd/simd.h"
#include "device/cpu/simd/tile.h"
#include "ops/attrs.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ROWS = MEG_TILE_ROWS,
    COLS = MEG_TILE_COLS
};

typedef struct attention {
    const meg_onednn *onednn;
    const meg_simd *simd;
    int64_t heads; /* of all samples */
    int64_t features, queries, keys;
    float scale;
    bool causal;
} attention;

typedef struct head { /* where the operands of one head begin; (features, tokens) but for z */
    const float *q, *k, *v, *dy;
    float *y, *z, *dq, *dk, *dv;
} head;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- describe ---- */

/* The node whole, but for samples; all operands as they are, none with a halo. */
static bool fits(const meg_request *r)
{
    meg_mask used = meg_request_reads(r) | meg_request_writes(r);
    meg_box whole = r->graph->value[r->node->out[0]].shape;
    whole.lo[MEG_N] = r->work.out.lo[MEG_N], whole.hi[MEG_N] = r->work.out.hi[MEG_N];
    if (!meg_box_equal(&r->work.out, &whole) || meg_box_empty(&whole)) return false;
    for (int i = 0; i < 3; i++) {
        meg_box in = meg_op_need(r->graph, r->node, i, &r->work);
        for (int o = MEG_X + i; o <= MEG_DX + i; o += MEG_DX - MEG_X)
            if (used & MEG_BIT(o) && !meg_box_equal(&r->box[o], &in)) return false;
    }
    for (int o = MEG_Y; o <= MEG_DY; o += MEG_DY - MEG_Y)
        if (used & MEG_BIT(o) && !meg_box_equal(&r->box[o], &whole)) return false;
    return true;
}

static attention attention_of(const meg_device *d, const meg_request *r)
{
    const meg_cpu *cpu = meg_device_state(d);
    const meg_attention_attr *a = r->node->attr;
    const meg_box *q = &r->graph->value[r->node->in[0]].shape;
    int64_t features = q->hi[MEG_C] / a->heads;
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)features);
    return (attention){.onednn = cpu->onednn,
                       .simd = cpu->simd,
                       .heads = meg_extent(&r->work.out, MEG_N) * a->heads,
                       .features = features,
                       .queries = q->hi[MEG_W],
                       .keys = r->graph->value[r->node->in[1]].shape.hi[MEG_W],
                       .scale = (float)scale,
                       .causal = a->causal};
}

/* Floats of one thread: two tiles and three numbers per row; backward, the mean of every query. */
static int64_t scratch_of(const attention *j)
{
    int64_t floats = 2 * MEG_TILE_SIZE + 3 * ROWS + j->queries;
    return (floats + 15) / 16 * 16; /* whole cache lines */
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    if (!fits(r)) return false;
    attention j = attention_of(d, r);
    *s = (meg_spec){.flops = meg_request_flops(r)};
    s->traffic = meg_request_traffic(r, s, 0);
    s->bytes[MEG_SCRATCH] = j.onednn->threads * scratch_of(&j) * (int64_t)sizeof(float);
    snprintf(s->impl, sizeof s->impl, "sgemm:%s", j.simd->name);
    return true;
}

/* ---- run ---- */

static head head_at(const attention *j, void *const at[MEG_OPERANDS], int64_t i)
{
    int64_t q = i * j->features * j->queries, k = i * j->features * j->keys;
    float *dx[3];
    for (int o = 0; o < 3; o++)
        dx[o] = at[MEG_DX + o] ? (float *)at[MEG_DX + o] + (o ? k : q) : NULL;
    return (head){.q = (float *)at[MEG_X] + q,
                  .k = (float *)at[MEG_X + 1] + k,
                  .v = (float *)at[MEG_X + 2] + k,
                  .dy = at[MEG_DY] ? (float *)at[MEG_DY] + q : NULL,
                  .y = (float *)at[MEG_Y] + q,
                  .z = (float *)at[MEG_AUX] + i * j->queries,
                  .dq = dx[0],
                  .dk = dx[1],
                  .dv = dx[2]};
}

typedef struct block { /* queries i .. i + rows and keys k .. k + cols */
    const attention *j;
    int64_t i, k, rows, cols;
} block;

static block block_at(const attention *j, int64_t i, int64_t k)
{
    block b = {j, i, k, least(j->queries - i, ROWS), 0};
    int64_t seen = j->causal ? i + b.rows : j->keys;
    b.cols = least(seen - k, COLS);
    return b;
}

/* tile (rows, cols) = alpha * query' key */
static void meet(const block *b, float alpha, const float *query, const float *key, float *tile)
{
    const attention *j = b->j;
    meg_onednn_must(dnnl_sgemm('T', 'N', b->rows, b->cols, j->features, alpha, query + b->i,
                               j->queries, key + b->k, j->keys, 0, tile, COLS));
}

/* query (features, rows) = key tile', or that added */
static void to_queries(const block *b, const float *tile, const float *key, float *query, bool add)
{
    const attention *j = b->j;
    if (!query) return;
    meg_onednn_must(dnnl_sgemm('N', 'T', j->features, b->rows, b->cols, 1, key + b->k, j->keys,
                               tile, COLS, add ? 1 : 0, query + b->i, j->queries));
}

/* key (features, cols) = query tile, or that added */
static void to_keys(const block *b, const float *tile, const float *query, float *key, bool add)
{
    const attention *j = b->j;
    if (!key) return;
    meg_onednn_must(dnnl_sgemm('N', 'N', j->features, b->cols, b->rows, 1, query + b->i, j->queries,
                               tile, COLS, add ? 1 : 0, key + b->k, j->keys));
}

static meg_tile tile_of(const block *b, float *scratch)
{
    float *rows = scratch + 2 * MEG_TILE_SIZE;
    return (meg_tile){.rows = b->rows,
                      .cols = b->cols,
                      .seen = b->j->causal ? b->i - b->k + 1 : b->cols,
                      .s = scratch,
                      .ds = scratch + MEG_TILE_SIZE,
                      .top = rows,
                      .sum = rows + ROWS,
                      .scale = rows + 2 * ROWS,
                      .factor = b->j->scale};
}

/* y(f, i) *= scale(i) for the queries of the block */
static void rescale(const block *b, float *y, const float *scale)
{
    for (int64_t f = 0; f < b->j->features; f++)
        for (int64_t r = 0; r < b->rows; r++)
            y[f * b->j->queries + b->i + r] *= scale[r];
}

static void forward(const attention *j, const head *h, int64_t i, float *scratch)
{
    block b = block_at(j, i, 0);
    meg_tile t = tile_of(&b, scratch);
    for (int64_t r = 0; r < b.rows; r++)
        t.top[r] = -INFINITY, t.sum[r] = 0;
    for (int64_t k = 0; b = block_at(j, i, k), b.cols > 0; k += COLS) {
        t = tile_of(&b, scratch);
        meet(&b, j->scale, h->q, h->k, t.s);
        j->simd->tile(&t);
        if (k > 0) rescale(&b, h->y, t.scale);
        to_queries(&b, t.s, h->v, h->y, k > 0);
    }
    for (int64_t r = 0; r < b.rows; r++) {
        h->z[i + r] = t.top[r] + logf(t.sum[r]);
        t.scale[r] = 1 / t.sum[r];
    }
    rescale(&b, h->y, t.scale);
}

/* mean(i) = sum over f of dy(f,i) y(f,i) */
static void means(const attention *j, const head *h, float *mean)
{
    for (int64_t i = 0; i < j->queries; i++)
        mean[i] = 0;
    for (int64_t f = 0; f < j->features; f++)
        for (int64_t i = 0; i < j->queries; i++)
            mean[i] += h->dy[f * j->queries + i] * h->y[f * j->queries + i];
}

static void backward(const attention *j, const head *h, float *scratch)
{
    float *mean = scratch + 2 * MEG_TILE_SIZE + 3 * ROWS;
    means(j, h, mean);
    for (int64_t k = 0; k < j->keys; k += COLS) {
        int64_t first = j->causal ? k : 0; /* the queries before it see none of these keys */
        for (int64_t i = first; i < j->queries; i += ROWS) {
            block b = block_at(j, i, k);
            b.cols = least(j->keys - k, COLS); /* all, so that the first sets the sums of all */
            meg_tile t = tile_of(&b, scratch);
            t.z = h->z + i;
            t.mean = mean + i;
            meet(&b, j->scale, h->q, h->k, t.s);
            meet(&b, 1, h->dy, h->v, t.ds);
            j->simd->tile_back(&t);
            to_queries(&b, t.ds, h->k, h->dq, k > 0);
            to_keys(&b, t.ds, h->q, h->dk, i > first);
            to_keys(&b, t.s, h->dy, h->dv, i > first);
        }
    }
}

static void run(const meg_prepared *p, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const attention *j = p->own;
    bool back = p->request.pass == MEG_BACKWARD;
    int64_t each = back ? 1 : (j->queries + ROWS - 1) / ROWS;
    int team = meg_onednn_enter(j->onednn);
    (void)m;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < j->heads * each; i++) {
        float *scratch = (float *)at[MEG_SCRATCH] + omp_get_thread_num() * scratch_of(j);
        head h = head_at(j, at, i / each);
        if (back) backward(j, &h, scratch);
        else forward(j, &h, i % each * ROWS, scratch);
    }
    meg_onednn_leave(team);
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    attention *j = meg_cpu_own(sizeof *j);
    *j = attention_of(d, r);
    out->run = run;
    out->own = j;
    out->free_own = free;
    return true;
}

const meg_cpu_op meg_cpu_attention = {MEG_KERNEL, &meg_op_attention, describe, prepare};
