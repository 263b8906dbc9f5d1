/* Einsum of ONNX: sums of products, with a letter for each axis (Einstein, 1916). Of two operands that are data
 *
 *     bhid,bhjd->bhij       b, h: in both and in the output; d: in both, and summed; i, j: in one of them
 *
 * it is a product of matrices: (n, h, i, d) times (n, h, d, j), seen through the axes that the output names
 * (build/view.h). The batch must be a letter of all three. Of data and a weight, which has the letters of the sum
 * side by side, it is a dense layer; of one operand, its axes in another order.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <string.h>

typedef struct letters {
    int count;
    char at[MEG_ONNX_RANK];
} letters;

typedef struct equation {
    int operands;
    letters in[2], out;
} equation;

static int place_of(const letters *l, char c)
{
    for (int i = 0; i < l->count; i++)
        if (l->at[i] == c) return i;
    return -1;
}

static bool add_letter(letters *l, char c)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter || l->count == MEG_ONNX_RANK || place_of(l, c) >= 0) return false;
    l->at[l->count++] = c;
    return true;
}

/* Without an arrow the output has the letters that occur once, in the order of the alphabet. */
static bool finish(equation *q)
{
    for (int c = 'A'; c <= 'z'; c++) {
        int times = 0;
        for (int i = 0; i < q->operands; i++)
            times += place_of(&q->in[i], (char)c) >= 0;
        if (times == 1 && !add_letter(&q->out, (char)c)) return false;
    }
    return true;
}

/* "ab,bc->ac"; false: it is none, or has "..", or a letter twice. */
static bool parse(meg_bytes text, equation *q)
{
    letters *to = &q->in[0];
    bool arrow = false;
    *q = (equation){.operands = 1};
    for (const uint8_t *at = text.at; at < text.end; at++) {
        if (*at == ' ') continue;
        if (*at == ',' && !arrow && q->operands < 2) to = &q->in[q->operands++];
        else if (*at == '-' && !arrow && at + 1 < text.end && at[1] == '>')
            arrow = true, to = &q->out, at++;
        else if (!add_letter(to, (char)*at)) return false;
    }
    return arrow || finish(q);
}

typedef struct operand { /* data */
    meg_onnx_view view;
    const letters *names;
} operand;

static int atoms_of(const operand *o, char c, int out[])
{
    int axis = place_of(o->names, c);
    return meg_onnx_view_atoms(&o->view, axis, axis + 1, out);
}

static int64_t extent_of(const operand *o, char c)
{
    return meg_onnx_view_extent(&o->view, place_of(o->names, c));
}

static char batch_of(const operand *o)
{
    int axis = meg_onnx_view_batch(&o->view);
    return axis < 0 ? '\0' : o->names->at[axis];
}

typedef struct sorted { /* letters by what becomes of them */
    letters shared, summed, left, right;
} sorted;

/* Data as (n, groups[0], groups[1], groups[2]) */
static meg_status arrange(meg_onnx_build *b, const meg_onnx_node *n, const operand *o,
                          const letters *const groups[3], int *out)
{
    int order[MEG_ONNX_ATOMS] = {0}, count = 1;
    meg_onnx_list dims = {4, {o->view.extent[0], 1, 1, 1}};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->count; i++) {
            int own = atoms_of(o, groups[g]->at[i], order + count);
            for (int k = count; k < count + own; k++)
                dims.at[g + 1] *= o->view.extent[order[k]];
            count += own;
        }
    return meg_onnx_view_arrange(b, n, &o->view, order, &dims, out);
}

/* The output over (n, shared, left, right), whose letters are those of two operands. */
static meg_onnx_view view_of(const equation *q, const operand o[2], const sorted *s, int value)
{
    const letters *const groups[] = {&s->shared, &s->left, &s->right};
    meg_onnx_view v = {.value = value, .atoms = 1, .axes = q->out.count};
    int first[128] = {0}, at = 0;
    v.extent[0] = o[0].view.extent[0];
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->count; i++) {
            int own[MEG_ONNX_ATOMS], c = groups[g]->at[i];
            const operand *from = &o[g == 2];
            int count = atoms_of(from, (char)c, own);
            first[c] = v.atoms;
            for (int k = 0; k < count; k++)
                v.extent[v.atoms++] = from->view.extent[own[k]];
        }
    for (int k = 0; k < q->out.count; k++) {
        int c = q->out.at[k], next = first[c];
        const operand *from = &o[place_of(o[0].names, (char)c) < 0];
        int axis = place_of(from->names, (char)c);
        for (int i = from->view.begin[axis]; i < from->view.begin[axis + 1]; i++)
            v.order[at++] = from->view.order[i] == 0 ? 0 : next++;
        v.begin[k + 1] = at;
    }
    return v;
}

/* What becomes of each letter; false: one would have to be summed of one operand alone. */
static bool sort(const equation *q, sorted *s)
{
    *s = (sorted){{0}, {0}, {0}, {0}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < q->in[k].count; i++) {
            char c = q->in[k].at[i];
            bool both = place_of(&q->in[1 - k], c) >= 0, out = place_of(&q->out, c) >= 0;
            if (!both && !out) return false;
            if (both && k == 1) continue;
            add_letter(both ? (out ? &s->shared : &s->summed) : k ? &s->right : &s->left, c);
        }
    return s->shared.count + s->left.count + s->right.count == q->out.count;
}

static meg_status of_data(meg_onnx_build *b, const meg_onnx_node *n, const equation *q,
                          const sorted *s)
{
    operand o[2];
    int in[2];
    for (int i = 0; i < 2; i++)
        o[i] = (operand){meg_onnx_view_of(b, meg_onnx_in(b, n, i)), &q->in[i]};
    for (int i = 0; i < s->shared.count + s->summed.count; i++) {
        char c = i < s->shared.count ? s->shared.at[i] : s->summed.at[i - s->shared.count];
        if (extent_of(&o[0], c) != extent_of(&o[1], c))
            return meg_onnx_refuse(b, n, "the letter %c has extents %" PRId64 " and %" PRId64, c,
                                   extent_of(&o[0], c), extent_of(&o[1], c));
    }
    if (batch_of(&o[0]) != batch_of(&o[1]) || place_of(&s->shared, batch_of(&o[0])) < 0)
        return meg_onnx_refuse(b, n,
                               "the batch must be the same letter in both operands and the output");
    const letters *const left[] = {&s->shared, &s->left, &s->summed};
    const letters *const right[] = {&s->shared, &s->summed, &s->right};
    MEG_TRY(b->error, arrange(b, n, &o[0], left, &in[0]));
    MEG_TRY(b->error, arrange(b, n, &o[1], right, &in[1]));
    int y = meg_graph_add(b->graph, "matmul", meg_onnx_fresh(b, "matmul"), "", 2, in);
    if (y < 0) return b->graph->error.status;
    meg_onnx_view v = view_of(q, o, s, y);
    return meg_onnx_view_bind(b, n, &v);
}

/* Are the letters of the sum the last of a weight's, or the first of a matrix's two? */
static bool lies_flat(const equation *q, int k, const sorted *s, bool *turned)
{
    const letters *w = &q->in[k];
    bool last = true;
    for (int i = 0; i < s->summed.count; i++)
        last = last && place_of(&s->summed, w->at[w->count - s->summed.count + i]) >= 0;
    *turned = !last;
    return s->summed.count > 0 && (last || (w->count == 2 && s->summed.count == 1)) &&
           s->shared.count == 0;
}

/* The output of a convolution, (n, made, kept): letters of the weight, then of the data. */
static meg_onnx_view view_of_dense(const equation *q, int k, const operand *data,
                                   const meg_onnx_tensor *t, const sorted *s)
{
    operand from[2] = {
        {.view = {.axes = t->rank, .extent = {data->view.extent[0]}}, .names = &q->in[k]}, *data};
    meg_onnx_view *v = &from[0].view;
    for (int i = 0, at = 0; i < t->rank; i++) {
        if (t->dims[i] > 1) v->order[at++] = ++v->atoms, v->extent[v->atoms] = t->dims[i];
        v->begin[i + 1] = at;
    }
    sorted order = {.left = k ? s->right : s->left, .right = k ? s->left : s->right};
    return view_of(q, from, &order, -1);
}

/* Data times a weight: (n, summed, others), features and tokens, and one tap of a convolution. */
static meg_status of_weight(meg_onnx_build *b, const meg_onnx_node *n, const equation *q, int k,
                            const sorted *s)
{
    meg_onnx_layer l = {.op = "conv", .inputs = 1, .weights = 1};
    const letters none = {0}, *kept = k ? &s->left : &s->right, *w = &q->in[k];
    operand o = {meg_onnx_view_of(b, meg_onnx_in(b, n, 1 - k)), &q->in[1 - k]};
    letters summed = {.count = s->summed.count};
    const meg_onnx_tensor *t = meg_onnx_in(b, n, k)->constant;
    bool turned;
    int64_t units = t->size, x[4];
    if (!lies_flat(q, k, s, &turned) || place_of(kept, batch_of(&o)) < 0)
        return meg_onnx_refuse(b, n,
                               "of data and a weight, the weight must have the letters that are "
                               "summed last, or be a matrix, and share no other with the data");
    for (int i = 0; i < summed.count; i++) { /* as the weight has them */
        summed.at[i] = w->at[turned ? i : w->count - summed.count + i];
        units /= t->dims[place_of(w, summed.at[i])];
    }
    const letters *const groups[] = {&summed, kept, &none};
    MEG_TRY(b->error, arrange(b, n, &o, groups, &l.in[0])); /* (n, summed, kept, 1) */
    memcpy(x, b->graph->value[l.in[0]].dims, sizeof x);
    l.in[0] = meg_onnx_shaped(b, l.in[0], 3, x);
    MEG_TRY(b->error, b->graph->error.status);
    MEG_TRY(b->error, meg_onnx_want_weight(b, n, k, &l.weight[0].symbol));
    l.weight[0].transposed = turned;
    l.weight[0].flat = w->count > 2;
    meg_onnx_attr(&l, "filters=%" PRId64 " kernel=1 bias=0", units);
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_view v = view_of_dense(q, k, &o, t, s);
    v.value = meg_onnx_symbol_of(b, n->out[0])->value;
    return meg_onnx_view_bind(b, n, &v);
}

static meg_status of_one(meg_onnx_build *b, const meg_onnx_node *n, const equation *q)
{
    int64_t perm[MEG_ONNX_RANK];
    for (int i = 0; i < q->out.count; i++)
        perm[i] = place_of(&q->in[0], q->out.at[i]);
    if (q->out.count != q->in[0].count)
        return meg_onnx_refuse(b, n,
                               "of one operand only the order of axes can be changed: sum "
                               "with ReduceSum");
    return meg_onnx_view_transpose(b, n, perm);
}

static meg_status read_einsum(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_bytes text = meg_onnx_text(n, "equation");
    equation q;
    sorted s;
    int unused;
    if (!parse(text, &q) || q.operands != n->inputs)
        return meg_onnx_refuse(b, n,
                               "equation=%.*s: a letter for each axis, no letter twice in an "
                               "operand, and one or two operands are supported",
                               MEG_SPAN_TEXT(text));
    for (int i = 0; i < q.operands; i++) {
        const meg_onnx_symbol *x = meg_onnx_in(b, n, i);
        if (!x || (!x->constant && !x->view))
            MEG_TRY(b->error, meg_onnx_data_any(b, n, i, &unused));
        int rank = x->constant ? x->constant->rank : meg_onnx_rank(b, x);
        if (rank != q.in[i].count)
            return meg_onnx_refuse(b, n, "operand %d has %d axes, but equation=%.*s names %d", i,
                                   rank, MEG_SPAN_TEXT(text), q.in[i].count);
    }
    if (q.operands == 1) return of_one(b, n, &q);
    if (!sort(&q, &s))
        return meg_onnx_refuse(b, n, "equation=%.*s sums over an axis of one operand alone",
                               MEG_SPAN_TEXT(text));
    for (int i = 0; i < 2; i++)
        if (meg_onnx_in(b, n, i)->constant) return of_weight(b, n, &q, i, &s);
    return of_data(b, n, &q, &s);
}

const meg_onnx_row meg_onnx_einsums[] = {{"Einsum", "equation", 1, 2, read_einsum}, {0}};
