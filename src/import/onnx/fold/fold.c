/* Nodes whose inputs are all known are computed when the file is read: sizes of shapes, scales, masks.
 * Exporters write them as chains of small operators,
 *
 *     Shape, Gather, Concat, Reshape        x.view(x.size(0), -1)
 *     Expand, Trilu, Equal, Where           the mask of causal attention
 *
 * Real numbers are computed in double, all others in 64 bits; results are float, where that is exact,
 * double or int64. Those that only move numbers are strided copies. Weights stay what they are: see meg_onnx_is_weight.
 */
#include "import/onnx/fold/fold.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SIZE_MAX_FOLDED = 1 << 22, /* elements: a mask of 2048 tokens, and no more than 32 MB */
    WEIGHT_MAX = 1 << 28,
    OPERANDS = 3
};

typedef struct folding {
    meg_onnx_build *b;
    const meg_onnx_node *n;
    const meg_onnx_tensor *in[OPERANDS];
    bool real; /* the result */
    int rank;
    int64_t dims[MEG_ONNX_RANK], size, most;
    double *r;
    int64_t *i; /* one of both */
} folding;

/* ---- numbers ---- */

static bool is_real(const meg_onnx_tensor *t)
{
    return t->type == MEG_ONNX_FLOAT || t->type == MEG_ONNX_DOUBLE || t->type == MEG_ONNX_FLOAT16 ||
           t->type == MEG_ONNX_BFLOAT16;
}

static int64_t whole_at(const meg_onnx_tensor *t, int64_t i)
{
    int64_t whole = 0;
    if (!is_real(t)) {
        meg_onnx_whole(t, i, &whole);
        return whole;
    }
    double number = meg_onnx_number(t, i);
    return number > -9e18 && number < 9e18 ? (int64_t)number : 0;
}

static double real_at(const meg_onnx_tensor *t, int64_t i)
{
    if (!is_real(t)) return (double)whole_at(t, i);
    return t->size == 1 ? meg_onnx_meant(t, i) : meg_onnx_number(t, i);
}

/* Room for the result, whose extents are set; false: it is too large, or all of them together. */
static bool make_room(folding *f)
{
    bool empty = false;
    f->size = 1;
    for (int i = 0; i < f->rank; i++) {
        if (f->dims[i] < 0 || f->dims[i] > f->most) return false;
        if (f->dims[i]) f->size *= f->dims[i];
        else empty = true;
        if (f->size > f->most) return false;
    }
    if (empty) f->size = 0;
    if (!meg_onnx_affords(f->b, f->size)) return false;
    meg_pool *pool = f->b->file->pool;
    if (f->real) f->r = meg_pool_alloc(pool, ((size_t)f->size + 1) * sizeof *f->r);
    else f->i = meg_pool_alloc(pool, ((size_t)f->size + 1) * sizeof *f->i);
    return true;
}

static void copy_element(folding *f, int64_t to, const meg_onnx_tensor *t, int64_t from)
{
    if (f->real) f->r[to] = real_at(t, from);
    else f->i[to] = whole_at(t, from);
}

/* Are all numbers floats, so that nothing is lost? */
static bool narrows(const folding *f)
{
    for (int64_t i = 0; i < f->size; i++)
        if (fabs(f->r[i] - (double)(float)f->r[i]) > 0) return false;
    return true;
}

/* Binds the result: floats, or doubles where they are more. */
static meg_status finish(folding *f)
{
    meg_onnx_tensor *t = meg_pool_alloc(f->b->file->pool, sizeof *t);
    meg_onnx_symbol *y = meg_onnx_symbol_of(f->b, f->n->out[0]);
    *t = (meg_onnx_tensor){.type = f->real ? MEG_ONNX_DOUBLE : MEG_ONNX_INT64,
                           .rank = f->rank,
                           .size = f->size,
                           .data = f->real ? (const void *)f->r : f->i};
    memcpy(t->dims, f->dims, sizeof t->dims);
    if (f->real && narrows(f)) {
        float *data = (float *)(void *)
                          f->r; /* narrows in place: each is read before it is written */
        for (int64_t i = 0; i < f->size; i++) {
            float number = (float)f->r[i];
            memcpy(data + i, &number, sizeof number);
        }
        t->data = data;
        t->type = MEG_ONNX_FLOAT;
    }
    if (y) y->constant = t;
    return MEG_OK;
}

static meg_status too_large(const folding *f)
{
    MEG_TRY(f->b->error, meg_onnx_work(f->b, f->n, 0));
    return meg_onnx_refuse(f->b, f->n, "a constant of too many numbers, or of no such shape");
}

/* ---- moving ---- */

typedef struct strides { /* of the input, along the axes of the result */
    int64_t offset, by[MEG_ONNX_RANK];
    bool one, same; /* a single number; the result's own strides: known without divisions */
} strides;

/* Where the result's number `to` comes from. */
static int64_t place(const folding *f, const strides *s, int64_t to)
{
    int64_t from = s->offset;
    if (s->one || s->same) return s->one ? 0 : to;
    for (int i = f->rank - 1; i >= 0; i--) {
        from += to % f->dims[i] * s->by[i];
        to /= f->dims[i];
    }
    return from;
}

static void row_major(const meg_onnx_tensor *t, int64_t by[])
{
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        by[i] = step;
        step *= t->dims[i];
    }
}

static meg_status copy_strided(folding *f, const strides *s)
{
    if (!make_room(f)) return too_large(f);
    for (int64_t to = 0; to < f->size; to++)
        copy_element(f, to, f->in[0], place(f, s, to));
    return finish(f);
}

/* The strides of t spread over the result, numpy's way. */
static bool spread(const folding *f, const meg_onnx_tensor *t, strides *s)
{
    int64_t own[MEG_ONNX_RANK];
    row_major(t, own);
    *s = (strides){.one = t->size == 1, .same = t->rank == f->rank};
    if (t->rank > f->rank) return false;
    for (int i = 0; i < t->rank; i++) {
        int to = f->rank - t->rank + i;
        if (t->dims[i] != 1 && t->dims[i] != f->dims[to]) return false;
        s->by[to] = t->dims[i] == 1 ? 0 : own[i];
        s->same = s->same && t->dims[i] == f->dims[to];
    }
    return true;
}

/* The extents of inputs that are spread over one another. */
static void join_dims(folding *f, const int64_t dims[], int rank)
{
    int64_t old[MEG_ONNX_RANK];
    int was = f->rank;
    memcpy(old, f->dims, sizeof old);
    if (rank > f->rank) f->rank = rank;
    for (int i = 0; i < f->rank; i++) {
        int64_t a = i < f->rank - was ? 1 : old[i - (f->rank - was)];
        int64_t c = i < f->rank - rank ? 1 : dims[i - (f->rank - rank)];
        f->dims[i] = a == 1 ? c : a;
    }
}

static meg_status fold_expand(folding *f)
{
    meg_onnx_list to;
    strides s;
    MEG_TRY(f->b->error, meg_onnx_list_of(f->b, f->n, NULL, 1, &to));
    if (to.count > 0) join_dims(f, to.at, to.count);
    join_dims(f, f->in[0]->dims, f->in[0]->rank);
    if (!spread(f, f->in[0], &s)) return too_large(f);
    return copy_strided(f, &s);
}

static meg_status fold_transpose(folding *f)
{
    const meg_onnx_tensor *t = f->in[0];
    int64_t perm[MEG_ONNX_RANK], own[MEG_ONNX_RANK];
    strides s = {0};
    int count = meg_onnx_ints(f->n, "perm", perm, MEG_ONNX_RANK);
    row_major(t, own);
    f->rank = t->rank;
    unsigned seen = 0;
    if (count >= 0 && count != t->rank) return too_large(f);
    for (int i = 0; i < t->rank; i++) {
        int64_t from = count < 0 ? t->rank - 1 - i : perm[i];
        if (from < 0 || from >= t->rank || (seen & 1u << from))
            return meg_onnx_refuse(f->b, f->n, "perm does not name every axis once");
        seen |= 1u << from;
        f->dims[i] = t->dims[from];
        s.by[i] = own[from];
    }
    return copy_strided(f, &s);
}

/* A begin or end, counted from the end if negative, between `lowest` and `highest`. */
static int64_t clamp(int64_t at, int64_t length, int64_t lowest, int64_t highest)
{
    if (at < 0 && at >= INT64_MIN / 2) at += length;
    return at < lowest ? lowest : at > highest ? highest : at;
}

static meg_status fold_slice(folding *f)
{
    const meg_onnx_tensor *t = f->in[0];
    meg_onnx_list list[4];
    strides s = {0};
    unsigned seen = 0; /* an axis is cut once */
    for (int i = 0; i < 4; i++)
        MEG_TRY(f->b->error, meg_onnx_list_of(f->b, f->n, NULL, 1 + i, &list[i]));
    row_major(t, s.by);
    f->rank = t->rank;
    memcpy(f->dims, t->dims, sizeof f->dims);
    for (int i = 0; i < list[0].count; i++) {
        int axis = meg_onnx_axis(list[2].count > i ? list[2].at[i] : i, t->rank);
        int64_t step = list[3].count > i ? list[3].at[i] : 1;
        if (axis < 0 || step == 0 || step > SIZE_MAX_FOLDED || step < -SIZE_MAX_FOLDED ||
            list[1].count <= i || seen >> axis & 1)
            return too_large(f);
        seen |= 1u << axis;
        int64_t n = t->dims[axis], down = step < 0;
        int64_t begin = clamp(list[0].at[i], n, 0, n - down),
                end = clamp(list[1].at[i], n, -down, n);
        int64_t span = down ? begin - end : end - begin, by = down ? -step : step;
        f->dims[axis] = span > 0 ? (span + by - 1) / by : 0;
        s.offset += begin * s.by[axis];
        s.by[axis] *= step;
    }
    return copy_strided(f, &s);
}

/* The numbers as they are, with other extents. */
static meg_status fold_same(folding *f)
{
    if (!make_room(f) || f->size != f->in[0]->size) return too_large(f);
    for (int64_t i = 0; i < f->size; i++)
        copy_element(f, i, f->in[0], i);
    return finish(f);
}

static meg_status fold_shaped(folding *f)
{
    MEG_TRY(f->b->error, meg_onnx_new_dims(f->b, f->n, f->in[0], f->dims, &f->rank));
    return fold_same(f);
}

static meg_status fold_gather(folding *f)
{
    const meg_onnx_tensor *t = f->in[0], *index = f->in[1];
    int axis = meg_onnx_axis(meg_onnx_int(f->n, "axis", 0), t->rank);
    int64_t outer = 1, inner = 1;
    if (axis < 0 || t->rank - 1 + index->rank > MEG_ONNX_RANK || is_real(index))
        return too_large(f);
    for (int i = 0; i < t->rank; i++) {
        if (i == axis)
            for (int k = 0; k < index->rank; k++)
                f->dims[f->rank++] = index->dims[k];
        else f->dims[f->rank++] = t->dims[i];
        outer *= i < axis ? t->dims[i] : 1;
        inner *= i > axis ? t->dims[i] : 1;
    }
    if (!make_room(f)) return too_large(f);
    for (int64_t o = 0; f->size && o < outer; o++) /* no turns that move nothing */
        for (int64_t k = 0; k < index->size; k++) {
            int64_t at = whole_at(index, k);
            if (at < 0) at += t->dims[axis];
            if (at < 0 || at >= t->dims[axis])
                return meg_onnx_refuse(f->b, f->n, "an index that does not exist");
            for (int64_t i = 0; i < inner; i++)
                copy_element(f, (o * index->size + k) * inner + i, t,
                             (o * t->dims[axis] + at) * inner + i);
        }
    return finish(f);
}

static meg_status fold_concat(folding *f)
{
    const meg_onnx_tensor *t = f->in[0];
    int axis = meg_onnx_axis(meg_onnx_int(f->n, "axis", 0), t->rank);
    int64_t outer = 1, inner = 1, done = 0, all = 0;
    if (axis < 0) return too_large(f);
    f->rank = t->rank;
    memcpy(f->dims, t->dims, sizeof f->dims);
    for (int k = 0; k < f->n->inputs; k++) {
        const meg_onnx_symbol *s = meg_onnx_in(f->b, f->n, k);
        bool fits = s && s->constant->rank == t->rank &&
                    !__builtin_add_overflow(all, s->constant->dims[axis], &all);
        for (int i = 0; fits && i < t->rank; i++)
            fits = i == axis || s->constant->dims[i] == t->dims[i];
        if (!fits) return too_large(f);
    }
    f->dims[axis] = all;
    for (int i = 0; i < t->rank; i++)
        outer *= i < axis ? t->dims[i] : 1, inner *= i > axis ? t->dims[i] : 1;
    if (!make_room(f)) return too_large(f);
    for (int k = 0; k < f->n->inputs; k++) {
        const meg_onnx_tensor *part = meg_onnx_in(f->b, f->n, k)->constant;
        int64_t run = part->dims[axis] * inner;
        for (int64_t i = 0; i < outer * run; i++)
            copy_element(f, i / run * all * inner + done + i % run, part, i);
        done += run;
    }
    return finish(f);
}

/* ---- making ---- */

static meg_status fold_fill(folding *f)
{
    meg_onnx_tensor value = {.size = 0};
    meg_onnx_list to;
    MEG_TRY(f->b->error, meg_onnx_list_of(f->b, f->n, NULL, 0, &to));
    if (meg_onnx_has(f->n, "value"))
        MEG_TRY(f->b->error, meg_onnx_value(f->b->file, f->b->error, f->n, &value));
    f->real = value.size == 0 || is_real(&value);
    f->rank = to.count < 0 ? 0 : to.count;
    memcpy(f->dims, to.at, sizeof f->dims);
    if (!make_room(f)) return too_large(f);
    for (int64_t i = 0; value.size && i < f->size; i++)
        copy_element(f, i, &value, 0);
    return finish(f);
}

static meg_status fold_range(folding *f)
{
    double begin = real_at(f->in[0], 0), end = real_at(f->in[1], 0), step = real_at(f->in[2], 0);
    double count = ceil((end - begin) / step);
    if (!(count <= SIZE_MAX_FOLDED) || f->in[0]->size != 1 || f->in[1]->size != 1 ||
        f->in[2]->size != 1)
        return too_large(f);
    f->rank = 1;
    f->dims[0] = count > 0 ? (int64_t)count : 0;
    if (!make_room(f)) return too_large(f);
    for (int64_t i = 0; i < f->size; i++)
        if (f->real) f->r[i] = begin + (double)i * step;
        else if (__builtin_mul_overflow(i, whole_at(f->in[2], 0), &f->i[i]) ||
                 __builtin_add_overflow(f->i[i], whole_at(f->in[0], 0), &f->i[i]))
            return meg_onnx_refuse(f->b, f->n, "its result is no number");
    return finish(f);
}

/* Keeps a triangle of each matrix. */
static meg_status fold_trilu(folding *f)
{
    const meg_onnx_tensor *t = f->in[0];
    int64_t shift = f->in[1] ? whole_at(f->in[1], 0) : 0;
    bool upper = meg_onnx_int(f->n, "upper", 1) != 0;
    f->rank = t->rank;
    memcpy(f->dims, t->dims, sizeof f->dims);
    if (t->rank < 2 || shift < -SIZE_MAX_FOLDED || shift > SIZE_MAX_FOLDED || !make_room(f))
        return too_large(f);
    int64_t columns = t->dims[t->rank - 1], rows = t->dims[t->rank - 2];
    for (int64_t i = 0; i < f->size; i++) {
        int64_t column = i % columns, row = i / columns % rows;
        if (upper ? column - row >= shift : column - row <= shift) copy_element(f, i, t, i);
    }
    return finish(f);
}

/* ---- computing ---- */

static meg_status fold_numbers(folding *f)
{
    const meg_onnx_computing *c = meg_onnx_computings;
    strides s[2] = {0};
    while (c->op && !meg_bytes_is(f->n->op, c->op))
        c++;
    bool real = c->reals || is_real(f->in[0]) || (c->operands > 1 && is_real(f->in[1]));
    if (f->n->inputs != c->operands || (real ? !c->r : !c->i)) return too_large(f);
    for (int k = 0; k < c->operands; k++)
        join_dims(f, f->in[k]->dims, f->in[k]->rank);
    f->real = real && !c->compares;
    for (int k = 0; k < c->operands; k++)
        if (!spread(f, f->in[k], &s[k])) return too_large(f);
    if (!make_room(f)) return too_large(f);
    for (int64_t i = 0; i < f->size; i++) {
        int64_t a = place(f, &s[0], i), d = place(f, &s[1], i);
        const meg_onnx_tensor *second = f->in[c->operands - 1];
        double number = real ? c->r(real_at(f->in[0], a), real_at(second, d)) : 0;
        if (f->real) f->r[i] = number;
        else if (real) f->i[i] = number > 0;
        else if (!c->i(whole_at(f->in[0], a), whole_at(second, d), &f->i[i]))
            return meg_onnx_refuse(f->b, f->n, "its result is no number");
    }
    return finish(f);
}

static meg_status fold_where(folding *f)
{
    strides s[OPERANDS];
    for (int k = 0; k < OPERANDS; k++)
        join_dims(f, f->in[k]->dims, f->in[k]->rank);
    for (int k = 0; k < OPERANDS; k++)
        if (!spread(f, f->in[k], &s[k])) return too_large(f);
    f->real = is_real(f->in[1]) || is_real(f->in[2]);
    if (!make_room(f)) return too_large(f);
    for (int64_t i = 0; i < f->size; i++) {
        int which = whole_at(f->in[0], place(f, &s[0], i)) ? 1 : 2;
        copy_element(f, i, f->in[which], place(f, &s[which], i));
    }
    return finish(f);
}

/* Truths: whatever is not 0. */
static meg_status fold_truth(folding *f)
{
    if (!make_room(f) || f->size != f->in[0]->size) return too_large(f);
    for (int64_t i = 0; i < f->size; i++) {
        double number = real_at(f->in[0], i);
        f->i[i] = number < 0 || number > 0 || isnan(number);
    }
    return finish(f);
}

static meg_status fold_cast(folding *f)
{
    int64_t to = meg_onnx_int(f->n, "to", 0);
    f->real = to == MEG_ONNX_FLOAT || to == MEG_ONNX_DOUBLE || to == MEG_ONNX_FLOAT16 ||
              to == MEG_ONNX_BFLOAT16;
    if (meg_bytes_is(f->n->op, "CastLike")) f->real = f->in[1] ? is_real(f->in[1]) : true;
    f->rank = f->in[0]->rank;
    memcpy(f->dims, f->in[0]->dims, sizeof f->dims);
    return to == MEG_ONNX_BOOL ? fold_truth(f) : fold_same(f);
}

/* ---- reducing ---- */

static double reduced(const meg_onnx_node *n, double sum, double next)
{
    if (meg_bytes_is(n->op, "ReduceMax")) return next > sum ? next : sum;
    if (meg_bytes_is(n->op, "ReduceMin")) return next < sum ? next : sum;
    return meg_bytes_is(n->op, "ReduceProd") ? sum * next : sum + next;
}

/* Over some axes, or all; of real numbers. */
static meg_status fold_reduce(folding *f)
{
    const meg_onnx_tensor *t = f->in[0];
    meg_onnx_list axes;
    strides to = {0}; /* of the result, along the input's axes */
    unsigned over = 0;
    bool keep = meg_onnx_int(f->n, "keepdims", 1) != 0;
    MEG_TRY(f->b->error, meg_onnx_list_of(f->b, f->n, "axes", 1, &axes));
    for (int i = 0; i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], t->rank);
        if (axis < 0) return too_large(f);
        over |= 1u << axis;
    }
    if (axes.count <= 0 && !meg_onnx_int(f->n, "noop_with_empty_axes", 0)) over = ~0u;
    if (!is_real(t) || t->size < 1) return too_large(f);
    for (int i = 0; i < t->rank; i++)
        if (keep || !(over >> i & 1)) f->dims[f->rank++] = over >> i & 1 ? 1 : t->dims[i];
    if (!make_room(f)) return too_large(f);
    MEG_TRY(f->b->error, meg_onnx_work(f->b, f->n, t->size));
    int64_t step = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        to.by[i] = over >> i & 1 ? 0 : step;
        step *= over >> i & 1 ? 1 : t->dims[i];
    }
    double share = (double)f->size / (double)t->size;
    for (int64_t i = 0; i < t->size; i++) {
        int64_t at = 0, rest = i, first = 0; /* first: is it the first number of its sum? */
        for (int k = t->rank - 1; k >= 0; k--) {
            int64_t p = rest % t->dims[k];
            at += p * to.by[k], rest /= t->dims[k];
            first += over >> k & 1 ? p : 0;
        }
        f->r[at] = first == 0 ? real_at(t, i) : reduced(f->n, f->r[at], real_at(t, i));
    }
    for (int64_t i = 0; i < f->size && meg_bytes_is(f->n->op, "ReduceMean"); i++)
        f->r[i] *= share;
    return finish(f);
}

/* ---- the table ---- */

static const struct {
    const char *op;
    int inputs, inputs_max;
    meg_status (*fold)(folding *f);
} FOLDS[] = {{"Reshape", 2, 2, fold_shaped},      {"Squeeze", 1, 2, fold_shaped},
             {"Unsqueeze", 1, 2, fold_shaped},    {"Flatten", 1, 1, fold_shaped},
             {"Expand", 2, 2, fold_expand},       {"Transpose", 1, 1, fold_transpose},
             {"Slice", 3, 5, fold_slice},         {"Gather", 2, 2, fold_gather},
             {"Concat", 1, 1 << 16, fold_concat}, {"ConstantOfShape", 1, 1, fold_fill},
             {"Range", 3, 3, fold_range},         {"Trilu", 1, 2, fold_trilu},
             {"Where", 3, 3, fold_where},         {"Cast", 1, 1, fold_cast},
             {"CastLike", 2, 2, fold_cast},       {"Add", 2, 2, fold_numbers},
             {"Sub", 2, 2, fold_numbers},         {"Mul", 2, 2, fold_numbers},
             {"Div", 2, 2, fold_numbers},         {"Mod", 2, 2, fold_numbers},
             {"Pow", 2, 2, fold_numbers},         {"Equal", 2, 2, fold_numbers},
             {"Less", 2, 2, fold_numbers},        {"Greater", 2, 2, fold_numbers},
             {"And", 2, 2, fold_numbers},         {"Or", 2, 2, fold_numbers},
             {"Not", 1, 1, fold_numbers},         {"Neg", 1, 1, fold_numbers},
             {"Sqrt", 1, 1, fold_numbers},        {"Reciprocal", 1, 1, fold_numbers},
             {"Floor", 1, 1, fold_numbers},       {"Ceil", 1, 1, fold_numbers},
             {"Round", 1, 1, fold_numbers},       {"Exp", 1, 1, fold_numbers},
             {"Log", 1, 1, fold_numbers},         {"Sin", 1, 1, fold_numbers},
             {"Cos", 1, 1, fold_numbers},         {"Tanh", 1, 1, fold_numbers},
             {"Sigmoid", 1, 1, fold_numbers},     {"Abs", 1, 1, fold_numbers},
             {"Max", 2, 2, fold_numbers},         {"Min", 2, 2, fold_numbers},
             {"LessOrEqual", 2, 2, fold_numbers}, {"GreaterOrEqual", 2, 2, fold_numbers},
             {"ReduceSum", 1, 2, fold_reduce},    {"ReduceMean", 1, 2, fold_reduce},
             {"ReduceMax", 1, 2, fold_reduce},    {"ReduceMin", 1, 2, fold_reduce},
             {"ReduceProd", 1, 2, fold_reduce}};

enum {
    COUNT = sizeof FOLDS / sizeof *FOLDS
};

/* A buffer that only gets other extents stays one, under its name. */
static bool stays(const meg_onnx_symbol *s, int row)
{
    return meg_onnx_is_weight(s) || (FOLDS[row].fold == fold_shaped && meg_onnx_is_buffer(s));
}

/* The node's row, if all of its inputs are known numbers; -1: it is none. */
static int row_of(const meg_onnx_build *b, const meg_onnx_node *n, bool weights)
{
    int row = 0;
    bool like = meg_bytes_is(n->op, "CastLike"); /* of the second only the type counts */
    while (row < COUNT && !meg_bytes_is(n->op, FOLDS[row].op))
        row++;
    if (row == COUNT || n->inputs < FOLDS[row].inputs || n->inputs > FOLDS[row].inputs_max)
        return -1;
    for (int i = 0; i < (like ? 1 : n->inputs); i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        bool absent = n->in[i].at == n->in[i].end && i >= FOLDS[row].inputs;
        if (!absent && (!s || !s->constant || s->turned || (!weights && i == 0 && stays(s, row)) ||
                        (!weights && meg_onnx_is_weight(s))))
            return -1;
    }
    return row;
}

bool meg_onnx_folds(const meg_onnx_build *b, const meg_onnx_node *n)
{
    return row_of(b, n, false) >= 0;
}

static meg_status fold(meg_onnx_build *b, const meg_onnx_node *n, bool weights)
{
    folding f = {.b = b, .n = n, .most = weights ? WEIGHT_MAX : SIZE_MAX_FOLDED};
    int row = row_of(b, n, weights);
    if (row < 0) return meg_onnx_refuse(b, n, "it is not supported of these constants");
    for (int i = 0; i < n->inputs && i < OPERANDS; i++) {
        const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
        f.in[i] = s ? s->constant : NULL;
    }
    f.real = is_real(f.in[0]);
    return FOLDS[row].fold(&f);
}

meg_status meg_onnx_fold(meg_onnx_build *b, const meg_onnx_node *n)
{
    return fold(b, n, false);
}

meg_status meg_onnx_fold_weight(meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, 0);
    if (!is_real(s->constant))
        return meg_onnx_refuse(b, n, "a weight of %s", meg_onnx_type_name(s->constant->type));
    return fold(b, n, true);
}
