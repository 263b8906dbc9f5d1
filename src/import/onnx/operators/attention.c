/* Attention as frameworks write it, in many nodes:
 *
 *     [q * a] [k' * a]  MatMul  [* scale]  [+ mask | Where mask]  Softmax  MatMul v
 *
 * with q and v (.., tokens, features) and k' (.., features, tokens). Where the scale is a number and the
 * mask is none or hides what comes later, it is the operator attention, which never has the matrix of
 * tokens times tokens; else, and with a dropout behind the softmax whose rate is not 0, the nodes are
 * read one by one. Which of both is known when the last node's turn comes: the others wait for it, nobody
 * else reads them.
 */
#include "import/onnx/operators/operators.h"

#include <math.h>
#include <string.h>

enum {
    CHAIN = 8, /* nodes before the last */
    LINKS = 4  /* from the first product to the softmax */
};

struct meg_onnx_attention {
    int count, node[CHAIN]; /* in the file's order */
    const meg_onnx_node *scores, *softmax, *last;
    const meg_onnx_node *drop;      /* behind the softmax; NULL: none */
    const meg_onnx_node *before[2]; /* Mul in front of q and k'; NULL: none */
};

/* Numbers that a mask hides with: their exponentials are 0 beside any other. */
static const double HIDDEN = -1e9;

/* ---- finding ---- */

/* The Mul that alone makes this input, and is read by nobody else. */
static const meg_onnx_node *scaled_by(const meg_onnx_build *b, meg_bytes name)
{
    const meg_onnx_symbol *s = meg_onnx_symbol_of(b, name);
    if (!s || s->maker < 0 || s->uses != 1 || b->skip[s->maker]) return NULL;
    const meg_onnx_node *n = &b->file->node[s->maker];
    return meg_bytes_is(n->op, "Mul") && n->inputs == 2 && n->outputs == 1 ? n : NULL;
}

static bool is_link(const meg_onnx_node *n)
{
    static const char *const ops[] = {"Mul", "Div", "Add", "Where"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (meg_bytes_is(n->op, ops[i])) return true;
    return false;
}

static bool is_plain_matmul(const meg_onnx_node *n)
{
    return meg_bytes_is(n->op, "MatMul") && n->inputs == 2 && n->outputs == 1 &&
           !meg_onnx_is_own(n);
}

static void add_node(const meg_onnx_build *b, meg_onnx_attention *a, const meg_onnx_node *n)
{
    a->node[a->count++] = (int)(n - b->file->node);
}

/* The chain that begins with this product; false: there is none. */
static bool follow(const meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_attention *a)
{
    *a = (meg_onnx_attention){.scores = n};
    for (int i = 0; i < 2; i++) {
        a->before[i] = scaled_by(b, n->in[i]);
        if (a->before[i]) add_node(b, a, a->before[i]);
    }
    if (a->before[0] && a->before[0] == a->before[1]) return false;
    add_node(b, a, n);
    const meg_onnx_node *next = meg_onnx_after(b, n);
    for (int i = 0; next && i < LINKS && is_link(next); i++) {
        if (a->count == CHAIN - 2 || b->skip[next - b->file->node]) return false;
        add_node(b, a, next);
        next = meg_onnx_after(b, next);
    }
    if (!next || !meg_bytes_is(next->op, "Softmax") || next->outputs != 1) return false;
    a->softmax = next;
    add_node(b, a, next);
    a->last = meg_onnx_after(b, next);
    if (a->last && meg_bytes_is(a->last->op, "Dropout")) {
        a->drop = next = a->last;
        add_node(b, a, next);
        a->last = meg_onnx_after(b, next);
    }
    return a->last && is_plain_matmul(a->last) && meg_bytes_equal(a->last->in[0], next->out[0]) &&
           !b->skip[a->last - b->file->node];
}

void meg_onnx_find_attention(meg_onnx_build *b)
{
    b->attention = meg_pool_alloc(b->file->pool, (b->file->nodes + 1) * sizeof *b->attention);
    for (size_t i = 0; i < b->file->nodes; i++) {
        meg_onnx_attention a;
        if (b->skip[i] || !is_plain_matmul(&b->file->node[i])) continue;
        if (!follow(b, &b->file->node[i], &a)) continue;
        meg_onnx_attention *own = meg_pool_alloc(b->file->pool, sizeof *own);
        *own = a;
        b->attention[a.last - b->file->node] = own;
        for (int k = 0; k < a.count; k++)
            b->skip[a.node[k]] = true;
    }
}

int meg_onnx_waiting(const meg_onnx_attention *a, int i)
{
    return i < a->count ? a->node[i] : -1;
}

/* ---- judging ---- */

typedef struct judgement {
    meg_onnx_symbol *q, *k, *v;
    double scale;
    bool causal;
    int64_t work; /* numbers of masks that were looked at */
} judgement;

/* A number of the file that is not trained. */
static bool number_of(const meg_onnx_symbol *s, double *out)
{
    const meg_onnx_tensor *t = s ? s->constant : NULL;
    int64_t whole;
    if (!t || t->size != 1 || meg_onnx_is_weight(s)) return false;
    *out = meg_onnx_whole(t, 0, &whole) ? (double)whole : meg_onnx_meant(t, 0);
    return !isnan(*out);
}

/* Is one input this symbol, the other a number? */
static bool beside(const meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s,
                   double *out)
{
    for (int i = 0; i < 2; i++)
        if (meg_onnx_in(b, n, i) == s && number_of(meg_onnx_in(b, n, 1 - i), out)) return true;
    return false;
}

typedef struct matrix { /* of a mask: (.., queries, keys) */
    const meg_onnx_tensor *t;
    bool numbers;      /* that are added; else truths, */
    bool visible_true; /* and this one shows */
} matrix;

/* 1 visible, 0 hidden, -1 something between. */
static int sees(const matrix *m, int64_t i)
{
    int64_t truth = 0;
    if (!m->numbers) {
        if (!meg_onnx_whole(m->t, i, &truth)) return -1;
        return (truth != 0) == m->visible_true;
    }
    double number = meg_onnx_number(m->t, i);
    return number <= HIDDEN ? 0 : fabs(number) > 0 || isnan(number) ? -1 : 1;
}

/* One for all samples and heads? */
static bool is_for_all(const meg_onnx_tensor *t, const int64_t tokens[2])
{
    return t->rank >= 2 && t->size == tokens[0] * tokens[1] && t->dims[t->rank - 2] == tokens[0] &&
           t->dims[t->rank - 1] == tokens[1];
}

/* Hides nothing, or what comes later; false: something else. */
static bool judge_mask(const matrix *m, const int64_t tokens[2], bool *causal)
{
    const meg_onnx_tensor *t = m->t;
    bool all = true, earlier = tokens[0] == tokens[1];
    if (!is_for_all(t, tokens)) return false;
    for (int64_t i = 0; i < t->size && (all || earlier); i++) {
        int seen = sees(m, i);
        all = all && seen == 1;
        earlier = earlier && seen == (i % tokens[1] <= i / tokens[1]);
    }
    *causal = *causal || (earlier && !all);
    return all || earlier;
}

/* Numbers of the file; a bias that is trained is no mask, even where it starts with zeros. */
static const meg_onnx_tensor *fixed_of(const meg_onnx_symbol *s)
{
    return s && !meg_onnx_is_weight(s) ? s->constant : NULL;
}

/* Add, or Where, of the scores s and a mask. */
static bool read_mask(const meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s,
                      const int64_t tokens[2], bool *causal)
{
    matrix m = {.numbers = true};
    double number;
    for (int i = 0; i < 2 && n->inputs == 2; i++)
        if (meg_onnx_in(b, n, i) == s) m.t = fixed_of(meg_onnx_in(b, n, 1 - i));
    if (n->inputs == 3) {
        int which = meg_onnx_in(b, n, 1) == s ? 1 : 2;
        const meg_onnx_symbol *truth = meg_onnx_in(b, n, 0), *other = meg_onnx_in(b, n, 3 - which);
        if (meg_onnx_in(b, n, which) != s || !number_of(other, &number) || number > HIDDEN)
            return false;
        m = (matrix){fixed_of(truth), false, which == 1};
    }
    return m.t && judge_mask(&m, tokens, causal);
}

/* What the links between scores and softmax do. */
static bool judge_links(const meg_onnx_build *b, const meg_onnx_attention *a,
                        const int64_t tokens[2], judgement *j)
{
    const meg_onnx_symbol *s = meg_onnx_symbol_of(b, a->scores->out[0]);
    double number;
    bool masked = false;
    for (int i = 0; i < a->count; i++) {
        const meg_onnx_node *n = &b->file->node[a->node[i]];
        if (n <= a->scores || n >= a->softmax || n == a->before[0] || n == a->before[1]) continue;
        bool mul = meg_bytes_is(n->op, "Mul"), div = meg_bytes_is(n->op, "Div");
        if (mul || div) {
            if (masked || !beside(b, n, s, &number) || (div && meg_onnx_in(b, n, 0) != s))
                return false;
            j->scale *= mul ? number : 1 / number;
        } else {
            j->work += tokens[0] * tokens[1];
            if (masked || !read_mask(b, n, s, tokens, &j->causal)) return false;
            masked = true;
        }
        s = meg_onnx_symbol_of(b, n->out[0]);
    }
    return true;
}

/* q or k', past a number that it is multiplied with. */
static meg_onnx_symbol *before_scale(const meg_onnx_build *b, const meg_onnx_attention *a, int i,
                                     double *scale)
{
    const meg_onnx_node *n = a->before[i];
    double number;
    for (int k = 0; n && k < 2; k++)
        if (number_of(meg_onnx_in(b, n, k), &number)) {
            *scale *= number;
            return meg_onnx_in(b, n, 1 - k);
        }
    return n ? NULL : meg_onnx_in(b, a->scores, i);
}

static bool is_data(const meg_onnx_symbol *s)
{
    return s && !s->constant && !s->draw && !s->parts &&
           (s->value >= 0 || s->front >= 0 || s->view);
}

static bool drops_nothing(const meg_onnx_build *b, const meg_onnx_node *n)
{
    double rate = 0.5;
    return n->inputs > 1 && number_of(meg_onnx_in(b, n, 1), &rate) && !(fabs(rate) > 0);
}

static bool judge(const meg_onnx_build *b, const meg_onnx_attention *a, judgement *j)
{
    int64_t q[MEG_ONNX_RANK], k[MEG_ONNX_RANK], v[MEG_ONNX_RANK];
    *j = (judgement){.scale = 1};
    j->q = before_scale(b, a, 0, &j->scale);
    j->k = before_scale(b, a, 1, &j->scale);
    j->v = meg_onnx_in(b, a->last, 1);
    if (!is_data(j->q) || !is_data(j->k) || !is_data(j->v)) return false;
    int rank = meg_onnx_dims(b, j->q, q);
    if (rank < 3 || meg_onnx_dims(b, j->k, k) != rank || meg_onnx_dims(b, j->v, v) != rank)
        return false;
    for (int i = 0; i < rank - 2; i++)
        if (q[i] != k[i] || q[i] != v[i]) return false;
    int64_t tokens[2] = {q[rank - 2], k[rank - 1]};
    if (k[rank - 2] != q[rank - 1] || v[rank - 1] != q[rank - 1] || v[rank - 2] != tokens[1])
        return false;
    if (a->drop && !drops_nothing(b, a->drop)) return false;
    int axis = meg_onnx_axis(meg_onnx_int(a->softmax, "axis", -1), rank);
    if (axis != rank - 1 || !judge_links(b, a, tokens, j)) return false;
    double usual = 1 / sqrt((double)q[rank - 1]); /* files have a float of it */
    if (fabs(j->scale - usual) < 1e-6 * usual) j->scale = 0;
    return true;
}

/* ---- building ---- */

/* An operand as (n, heads x features, tokens) */
meg_status meg_onnx_arrange_tokens(meg_onnx_build *b, const meg_onnx_node *n,
                                   const meg_onnx_symbol *s, bool turned, int *out)
{
    meg_onnx_view v = meg_onnx_view_of(b, s);
    int order[MEG_ONNX_ATOMS] = {0}, lead = v.axes - 2;
    int features = lead + !turned, tokens = lead + turned, count = 1;
    meg_onnx_list dims = {3, {v.extent[0], 1, 1}};
    int axes[MEG_ONNX_RANK];
    for (int k = 0; k < lead; k++)
        axes[k] = k;
    axes[lead] = features, axes[lead + 1] = tokens;
    for (int k = 0; k < v.axes; k++)
        for (int i = v.begin[axes[k]]; i < v.begin[axes[k] + 1]; i++) {
            if (v.order[i] == 0) continue;
            order[count++] = v.order[i];
            dims.at[k == lead + 1 ? 2 : 1] *= v.extent[v.order[i]];
        }
    return meg_onnx_view_arrange(b, n, &v, order, &dims, out);
}

/* The output's axes: those of q, whose last two are tokens and features. */
meg_onnx_view meg_onnx_view_like(const meg_onnx_build *b, const meg_onnx_view *q, int value)
{
    const meg_value *y = &b->graph->value[value];
    meg_onnx_view v = {.value = value, .atoms = 1, .axes = q->axes, .lazy = true};
    int at = 0, lead = q->axes - 2;
    int64_t heads = 1;
    v.extent[0] = q->extent[0];
    for (int k = 0; k < lead; k++) {
        for (int i = q->begin[k]; i < q->begin[k + 1]; i++) {
            v.order[at++] = q->order[i] == 0 ? 0 : v.atoms;
            if (q->order[i] == 0) continue;
            v.extent[v.atoms++] = q->extent[q->order[i]];
            heads *= q->extent[q->order[i]];
        }
        v.begin[k + 1] = at;
    }
    int features = -1, tokens = -1; /* extents of 1 have no atoms */
    if (y->dims[1] / heads > 1) features = v.atoms, v.extent[v.atoms++] = y->dims[1] / heads;
    if (y->dims[2] > 1) tokens = v.atoms, v.extent[v.atoms++] = y->dims[2];
    if (tokens >= 0) v.order[at++] = tokens;
    v.begin[lead + 1] = at;
    if (features >= 0) v.order[at++] = features;
    v.begin[lead + 2] = at;
    return v;
}

static bool batch_leads(const meg_onnx_view *v)
{
    int batch = meg_onnx_view_batch(v);
    return batch >= 0 && batch < v->axes - 2;
}

meg_status meg_onnx_read_attention(meg_onnx_build *b, const meg_onnx_attention *a, bool *done)
{
    meg_onnx_layer l = {.op = "attention", .inputs = 3};
    judgement j;
    *done = false;
    bool one = judge(b, a, &j);
    MEG_TRY(b->error, meg_onnx_work(b, a->last, j.work));
    if (!one) return MEG_OK;
    meg_onnx_view q = meg_onnx_view_of(b, j.q), k = meg_onnx_view_of(b, j.k),
                  v = meg_onnx_view_of(b, j.v);
    if (!batch_leads(&q) || !batch_leads(&k) || !batch_leads(&v)) return MEG_OK;
    int64_t dims[MEG_ONNX_RANK], heads = 1;
    int rank = meg_onnx_view_dims(&q, dims);
    for (int i = 0; i < rank - 2; i++)
        heads *= dims[i];
    heads /= q.extent[0];
    MEG_TRY(b->error, meg_onnx_arrange_tokens(b, a->last, j.q, false, &l.in[0]));
    MEG_TRY(b->error, meg_onnx_arrange_tokens(b, a->last, j.k, true, &l.in[1]));
    MEG_TRY(b->error, meg_onnx_arrange_tokens(b, a->last, j.v, false, &l.in[2]));
    meg_onnx_attr(&l, "heads=%lld causal=%d scale=%.17g", (long long)heads, j.causal, j.scale);
    MEG_TRY(b->error, meg_onnx_add(b, a->last, &l));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, a->last->out[0]);
    meg_onnx_view made = meg_onnx_view_like(b, &q, y->value);
    *done = true;
    return meg_onnx_view_bind(b, a->last, &made);
}
