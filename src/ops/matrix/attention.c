/* Attention: each token of q takes the mean of v's tokens, weighted by the softmax of its products
 * with k's, head by head.
 *
 *     s(i,j) = scale * sum over f of q(f,i) k(f,j)        f: features of the head, on c
 *     p(i,j) = exp(s(i,j) - z(i)),  z(i) = log of the sum over j of exp s(i,j)
 *     y(f,i) = sum over j of p(i,j) v(f,j)                i, j: tokens, on w
 *
 * The matrices s and p are as large as tokens times tokens and never exist: keys come in tiles. Of
 * the softmax only z is kept (aux 0); backward computes p again from it. With t(i) = sum over f of
 * dy(f,i) y(f,i) and e(i,j) = p(i,j) (sum over f of dy(f,i) v(f,j) - t(i)) * scale,
 *
 *     dq(f,i) = sum over j of e(i,j) k(f,j)      dk(f,j) = sum over i of e(i,j) q(f,i)
 *                                                dv(f,j) = sum over i of p(i,j) dy(f,i)
 *
 * Sums are in double; to need no memory they are made for FEATURES features at a time.
 */
#include "ops/attrs.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"

#include <inttypes.h>
#include <math.h>

enum {
    KEYS = 64,
    FEATURES = 32
};

enum {
    Q = MEG_X,
    K,
    V
};

typedef struct head { /* of one sample; c0: its first channel */
    const meg_call *c;
    int64_t n, number, c0, features;
    double scale;
    bool causal;
} head;

typedef struct tile { /* what row i makes of some keys */
    int64_t lo, count;
    double s[KEYS], p[KEYS], e[KEYS];
} tile;

static int64_t features_of(const meg_graph *g, const meg_node *v)
{
    return g->value[v->in[0]].shape.hi[MEG_C] / ((const meg_attention_attr *)v->attr)->heads;
}

static head head_of(const meg_call *c, int64_t n, int64_t number)
{
    const meg_attention_attr *a = c->node->attr;
    int64_t features = features_of(c->graph, c->node);
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)features);
    return (head){c, n, number, number * features, features, scale, a->causal};
}

/* The first feature of a token. */
static real *token(const head *h, int operand, int64_t w)
{
    return meg_real_at(&h->c->t[operand], (const int64_t[MEG_AXES]){h->n, h->c0, 0, 0, w});
}

static int64_t step_of(const head *h, int operand)
{
    return meg_stride(&h->c->t[operand], MEG_C);
}

static real *z_at(const head *h, int64_t i)
{
    return meg_real_at(&h->c->t[MEG_AUX], (const int64_t[MEG_AXES]){h->n, h->number, 0, 0, i});
}

/* Keys that queries below `hi` see. */
static int64_t keys_of(const meg_call *c, int64_t hi)
{
    const meg_attention_attr *a = c->node->attr;
    return a->causal ? hi : c->graph->value[c->node->in[1]].shape.hi[MEG_W];
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* out(j) = factor * sum over f of a(f,i) * b(f,j) for the keys of the tile */
static void products(const head *h, const tile *t, int64_t i, const int operand[2], double *out)
{
    const real *a = token(h, operand[0], i), *b = token(h, operand[1], t->lo);
    int64_t a_step = step_of(h, operand[0]), b_step = step_of(h, operand[1]);
    memset(out, 0, KEYS * sizeof *out);
    for (int64_t f = 0; f < h->features; f++)
        meg_add_line(out, (double)a[f * a_step], b + f * b_step, (meg_steps){1, 1}, t->count);
}

/* s of row i for the keys from lo on; the last tile of a row is shorter. */
static void score(const head *h, int64_t i, int64_t lo, int64_t hi, tile *t)
{
    t->lo = lo;
    t->count = least(hi - lo, KEYS);
    products(h, t, i, (const int[]){Q, K}, t->s);
    for (int64_t j = 0; j < t->count; j++)
        t->s[j] *= h->scale;
}

/* z of row i, in one sweep: the sum is scaled down whenever a larger exponent comes. */
static double normaliser(const head *h, int64_t i)
{
    double top = -INFINITY, sum = 0;
    int64_t hi = keys_of(h->c, i + 1);
    tile t;
    for (int64_t lo = 0; lo < hi; lo += KEYS) {
        double higher = top;
        score(h, i, lo, hi, &t);
        for (int64_t j = 0; j < t.count; j++)
            higher = fmax(higher, t.s[j]);
        sum *= exp(top - higher);
        top = higher;
        for (int64_t j = 0; j < t.count; j++)
            sum += exp(t.s[j] - top);
    }
    return top + log(sum);
}

static double weighted(const double *p, const real *x, int64_t count)
{
    double sum = 0;
    for (int64_t j = 0; j < count; j++)
        sum += p[j] * (double)x[j];
    return sum;
}

/* y of row i and at most FEATURES features from f0 on */
static void forward_row(const head *h, int64_t i, double z, int64_t f0)
{
    int64_t hi = keys_of(h->c, i + 1), count = least(h->features - f0, FEATURES);
    int64_t v_step = step_of(h, V), y_step = step_of(h, MEG_Y);
    double sum[FEATURES] = {0};
    tile t;
    for (int64_t lo = 0; lo < hi; lo += KEYS) {
        score(h, i, lo, hi, &t);
        for (int64_t j = 0; j < t.count; j++)
            t.p[j] = exp(t.s[j] - z);
        const real *v = token(h, V, lo) + f0 * v_step;
        for (int64_t f = 0; f < count; f++)
            sum[f] += weighted(t.p, v + f * v_step, t.count);
    }
    real *y = token(h, MEG_Y, i) + f0 * y_step;
    for (int64_t f = 0; f < count; f++)
        y[f * y_step] = (real)sum[f];
}

typedef void head_fn(const head *h);

/* Each head of each sample of the work. */
static void heads(const meg_call *c, head_fn *run)
{
    const meg_box *out = &c->work.out;
    int64_t features = features_of(c->graph, c->node);
    if (meg_box_empty(out)) return;
    for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++)
        for (int64_t k = out->lo[MEG_C] / features; k < out->hi[MEG_C] / features; k++) {
            head h = head_of(c, n, k);
            run(&h);
        }
}

static void forward_head(const head *h)
{
    const meg_box *out = &h->c->work.out;
    for (int64_t i = out->lo[MEG_W]; i < out->hi[MEG_W]; i++) {
        double z = normaliser(h, i);
        *z_at(h, i) = (real)z;
        for (int64_t f = 0; f < h->features; f += FEATURES)
            forward_row(h, i, z, f);
    }
}

static void forward(const meg_call *c)
{
    heads(c, forward_head);
}

/* p and e of row i for the keys from lo on */
static void pull(const head *h, int64_t i, int64_t lo, int64_t hi, tile *t)
{
    const real *y = token(h, MEG_Y, i), *dy = token(h, MEG_DY, i);
    int64_t y_step = step_of(h, MEG_Y), dy_step = step_of(h, MEG_DY);
    double mean = 0, z = (double)*z_at(h, i);
    for (int64_t f = 0; f < h->features; f++)
        mean += (double)dy[f * dy_step] * (double)y[f * y_step];
    score(h, i, lo, hi, t);
    products(h, t, i, (const int[]){MEG_DY, V}, t->e);
    for (int64_t j = 0; j < t->count; j++) {
        t->p[j] = exp(t->s[j] - z);
        t->e[j] = t->p[j] * (t->e[j] - mean) * h->scale;
    }
}

/* dq of row i and at most FEATURES features */
static void backward_row(const head *h, int64_t i, int64_t f0)
{
    int64_t hi = keys_of(h->c, i + 1), count = least(h->features - f0, FEATURES);
    int64_t k_step = step_of(h, K), dq_step = step_of(h, MEG_DX + Q);
    double sum[FEATURES] = {0};
    tile t;
    for (int64_t lo = 0; lo < hi; lo += KEYS) {
        pull(h, i, lo, hi, &t);
        const real *k = token(h, K, lo) + f0 * k_step;
        for (int64_t f = 0; f < count; f++)
            sum[f] += weighted(t.e, k + f * k_step, t.count);
    }
    real *dq = token(h, MEG_DX + Q, i) + f0 * dq_step;
    for (int64_t f = 0; f < count; f++)
        dq[f * dq_step] = (real)sum[f];
}

typedef struct sums { /* over rows, for some features and a tile of keys */
    int64_t features;
    double k[FEATURES][KEYS], v[FEATURES][KEYS];
} sums;

/* Adds what row i has to say. */
static void add_row(const head *h, int64_t i, int64_t f0, const tile *t, sums *s)
{
    int64_t q_step = step_of(h, Q), dy_step = step_of(h, MEG_DY);
    const real *q = token(h, Q, i) + f0 * q_step, *dy = token(h, MEG_DY, i) + f0 * dy_step;
    for (int64_t f = 0; f < s->features; f++)
        for (int64_t j = 0; j < t->count; j++) {
            s->k[f][j] += t->e[j] * (double)q[f * q_step];
            s->v[f][j] += t->p[j] * (double)dy[f * dy_step];
        }
}

static void store(const head *h, int operand, int64_t f0, int64_t lo, double sum[][KEYS])
{
    int64_t step = step_of(h, operand), keys = keys_of(h->c, h->c->work.out.hi[MEG_W]);
    real *to = token(h, operand, lo) + f0 * step;
    for (int64_t f = 0; f < least(h->features - f0, FEATURES); f++)
        for (int64_t j = 0; j < least(keys - lo, KEYS); j++)
            to[f * step + j] = (real)sum[f][j];
}

/* dk and dv of a tile of keys and at most FEATURES features: all rows of the work that see them */
static void backward_keys(const head *h, int64_t lo, int64_t f0)
{
    const meg_box *out = &h->c->work.out;
    sums s = {.features = least(h->features - f0, FEATURES)};
    tile t;
    for (int64_t i = out->lo[MEG_W]; i < out->hi[MEG_W]; i++) {
        int64_t hi = keys_of(h->c, i + 1);
        if (lo >= hi) continue;
        pull(h, i, lo, hi, &t);
        add_row(h, i, f0, &t, &s);
    }
    if (h->c->t[MEG_DX + K].data) store(h, MEG_DX + K, f0, lo, s.k);
    if (h->c->t[MEG_DX + V].data) store(h, MEG_DX + V, f0, lo, s.v);
}

static void backward_head(const head *h)
{
    const meg_call *c = h->c;
    const meg_box *out = &c->work.out;
    bool keys = c->t[MEG_DX + K].data || c->t[MEG_DX + V].data;
    for (int64_t f = 0; f < h->features; f += FEATURES) {
        for (int64_t i = out->lo[MEG_W]; c->t[MEG_DX + Q].data && i < out->hi[MEG_W]; i++)
            backward_row(h, i, f);
        for (int64_t lo = 0; keys && lo < keys_of(c, out->hi[MEG_W]); lo += KEYS)
            backward_keys(h, lo, f);
    }
}

static void backward(const meg_call *c)
{
    for (int i = 0; i < 3; i++)
        if (c->t[MEG_DX + i].data) meg_zero(&c->t[MEG_DX + i]);
    heads(c, backward_head);
}

MEG_KERNELS(attention) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(meg_attention_attr, field)

static const meg_param params[] = {
    {"heads", MEG_PARAM_INT, AT(heads), NULL, "parts of the channels that attend on their own",
     NULL, 1, 1 << 20},
    {"causal", MEG_PARAM_BOOL, AT(causal), "0", "a token sees none behind it", NULL, 0, 0},
    {"scale", MEG_PARAM_REAL, AT(scale), "0",
     "of the products; 0: 1 / square root of the features of a head", NULL, -1e30, 1e30},
    {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_attention_attr *a = v->attr;
    const meg_value *in[] = {&g->value[v->in[0]], &g->value[v->in[1]], &g->value[v->in[2]]};
    char text[3][96];
    for (int i = 0; i < 3; i++) {
        MEG_TRY(e, meg_want_real(g, v, e, i));
        meg_shape_text(in[i], text[i]);
    }
    bool fits = in[0]->rank == 3 && in[1]->rank == 3 && in[2]->rank == 3 &&
                meg_box_equal(&in[1]->shape, &in[2]->shape) && in[0]->dims[0] == in[1]->dims[0] &&
                in[0]->dims[1] == in[1]->dims[1];
    MEG_CHECK(e, fits, MEG_EARG,
              "%s: q, k, v are %s, %s, %s: attention wants (n, features, tokens) each, k and v "
              "equal, and q equal to them but for the tokens",
              v->name, text[0], text[1], text[2]);
    MEG_CHECK(e, in[0]->dims[1] % a->heads == 0, MEG_EARG,
              "%s: heads=%" PRId64 " does not divide the %" PRId64
              " features: use a divisor of them",
              v->name, a->heads, in[0]->dims[1]);
    MEG_CHECK(e, !a->causal || in[0]->dims[2] == in[1]->dims[2], MEG_EARG,
              "%s: causal attention wants as many queries as keys, but has %" PRId64
              " and %" PRId64,
              v->name, in[0]->dims[2], in[1]->dims[2]);
    meg_shape_like(out, in[0]);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_attention_attr *a = v->attr;
    meg_box in = w->out;
    if (input == 0) return in;
    in.lo[MEG_W] = 0;
    in.hi[MEG_W] = a->causal ? w->out.hi[MEG_W] : g->value[v->in[1]].shape.hi[MEG_W];
    return in;
}

/* Two products forward, five backward, an exponential and a few more for each pair of tokens. */
static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const meg_attention_attr *a = v->attr;
    double keys = (double)g->value[v->in[1]].shape.hi[MEG_W];
    if (a->causal) keys = (double)(w->out.lo[MEG_W] + w->out.hi[MEG_W] + 1) / 2;
    double pairs = (double)meg_box_size(&w->out) * keys;
    return (p == MEG_BACKWARD ? 10 : 4) * pairs + 20 * pairs / (double)features_of(g, v);
}

static void aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type)
{
    int64_t features = features_of(g, v);
    (void)i;
    *box = w->out;
    box->lo[MEG_C] /= features, box->hi[MEG_C] /= features;
    *type = MEG_F32;
}

static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    return axis == MEG_C ? features_of(g, v) : 1;
}

static const meg_sample samples[] = {{"2x6x5 2x6x5 2x6x5", "heads=2"},
                                     {"2x6x5 2x6x5 2x6x5", "heads=2 causal=1"},
                                     {"1x4x7 1x4x3 1x4x3", "heads=1 scale=0.7"},
                                     {"1x3x1 1x3x9 1x3x9", "heads=3"},
                                     {"1x40x6 1x40x6 1x40x6", "heads=1 causal=1"},
                                     {"2x16x11 2x16x11 2x16x11", "heads=4 causal=1 scale=1"},
                                     {"1x4x70 1x4x150 1x4x150", "heads=2"},
                                     {"1x2x133 1x2x133 1x2x133", "heads=1 causal=1"},
                                     {0}};

enum {
    INPUTS = MEG_BIT(Q) | MEG_BIT(K) | MEG_BIT(V),
    GRADIENTS = MEG_BIT(MEG_DX + Q) | MEG_BIT(MEG_DX + K) | MEG_BIT(MEG_DX + V)
};

const meg_op meg_op_attention = {
    .name = "attention",
    .onnx = "Attention",
    .doc = "softmax attention of q to k and v (n, features, tokens), by heads",
    .paper = "Vaswani et al., Attention is all you need, NeurIPS 2017; in tiles: Dao et al., "
             "FlashAttention, NeurIPS 2022",
    .params = params,
    .attr_bytes = sizeof(meg_attention_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS,
              [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_Y) | MEG_BIT(MEG_AUX) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_AUX), [MEG_BACKWARD] = GRADIENTS},
    .auxes = 1,
    .aux = aux,
    .grain = grain,
    MEG_KERNELS_OF(attention),
    .samples = samples,
};

#endif
