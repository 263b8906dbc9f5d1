/* Operators that ONNX, set 20, writes as several nodes. The last of them notes what they are together,
 * so that this framework reads them as one again (import/onnx/operators/own.c); others compute the parts.
 *
 *     attention          MatMul, Mul, (Trilu, Add,) Softmax, MatMul, head by head
 *     adaptive_avgpool   along each axis a product with a matrix of means
 *     gather             GatherND, each sample its own; ids below 0 give zeros
 *     max_unpool         MaxUnpool, which wants the batch in its output_shape
 *     roll               along each axis two slices, joined the other way round
 *     take               Gather, by whole numbers
 *     weightnorm         ReduceL2, Div, Mul
 *     spectralnorm       MatMul, MatMul, Div
 *     lstm, gru          LSTM, GRU, whose gates come in another order, of an input that already is what theirs
 *                        adds to them: it is multiplied with ones
 */
#include "import/onnx/write/writers.h"
#include "ops/attrs.h"

#include <math.h>
#include <string.h>

/* ---- nodes in between ---- */

static const char *fresh(meg_onnx_out *o, const meg_node *v, const char *what)
{
    return meg_pool_text(o->pool, "%s/%s%d", v->name, what, o->extras++);
}

static const char *put(meg_onnx_out *o, const meg_node *v, meg_onnx_made m)
{
    m.out = fresh(o, v, m.op);
    meg_onnx_put(o, &m, m.out);
    meg_wire_free(&m.attributes);
    return m.out;
}

static const char *put_pair(meg_onnx_out *o, const meg_node *v, const char *op, const char *a,
                            const char *b)
{
    return put(o, v, (meg_onnx_made){.op = op, .inputs = 2, .in = {a, b}});
}

static const char *put_reshape(meg_onnx_out *o, const meg_node *v, const char *x, int rank,
                               const int64_t dims[])
{
    return put_pair(o, v, "Reshape", x, meg_onnx_put_wholes(o, v, rank, dims));
}

static const char *put_transpose(meg_onnx_out *o, const meg_node *v, const char *x, int rank,
                                 const int64_t perm[])
{
    meg_onnx_made m = {.op = "Transpose", .inputs = 1, .in = {x}};
    meg_made_ints(&m, "perm", rank, perm);
    return put(o, v, m);
}

static const char *put_cast(meg_onnx_out *o, const meg_node *v, const char *x, int64_t type)
{
    meg_onnx_made m = {.op = "Cast", .inputs = 1, .in = {x}};
    meg_made_int(&m, "to", type);
    return put(o, v, m);
}

/* ---- attention ---- */

/* Minus infinity where the key comes after the query: made when the file runs, it is large. */
static const char *put_mask(meg_onnx_out *o, const meg_node *v, int64_t tokens)
{
    meg_onnx_made fill = {.op = "Expand", .inputs = 2};
    fill.in[0] = meg_onnx_put_real(o, v, -INFINITY);
    fill.in[1] = meg_onnx_put_wholes(o, v, 2, (int64_t[]){tokens, tokens});
    meg_onnx_made half = {.op = "Trilu", .inputs = 2, .in = {put(o, v, fill)}};
    half.in[1] = meg_onnx_put_wholes(o, v, 0, (int64_t[]){1});
    meg_made_int(&half, "upper", 1);
    return put(o, v, half);
}

meg_status meg_onnx_write_attention(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    static const int64_t turn[] = {0, 1, 3, 2};
    const meg_attention_attr *a = v->attr;
    const meg_value *q = &o->graph->value[v->in[0]], *k = &o->graph->value[v->in[1]];
    int64_t each = q->dims[1] / a->heads, here[] = {0, a->heads, each, q->dims[2]};
    int64_t there[] = {0, a->heads, each, k->dims[2]}, back[] = {0, q->dims[1], q->dims[2]};
    double scale = fabs(a->scale) > 0 ? a->scale : 1 / sqrt((double)each);
    meg_onnx_note_own(o, v, m);
    const char *rows = put_transpose(o, v, put_reshape(o, v, m->in[0], 4, here), 4, turn);
    const char *s = put_pair(o, v, "MatMul", rows, put_reshape(o, v, m->in[1], 4, there));
    s = put_pair(o, v, "Mul", s, meg_onnx_put_real(o, v, scale));
    if (a->causal) s = put_pair(o, v, "Add", s, put_mask(o, v, q->dims[2]));
    meg_onnx_made softmax = {.op = "Softmax", .inputs = 1, .in = {s}};
    meg_made_int(&softmax, "axis", -1);
    const char *means = put_transpose(o, v, put_reshape(o, v, m->in[2], 4, there), 4, turn);
    s = put_pair(o, v, "MatMul", put(o, v, softmax), means);
    m->in[0] = put_transpose(o, v, s, 4, turn);
    m->in[1] = meg_onnx_put_wholes(o, v, 3, back);
    m->inputs = 2;
    return MEG_OK;
}

/* ---- adaptive pool ---- */

/* (bins, length): row p has the mean over bin p. */
static const char *put_means(meg_onnx_out *o, const meg_node *v, int64_t bins, int64_t length)
{
    float *mean = meg_pool_alloc(o->pool, (size_t)(bins * length) * sizeof *mean);
    for (int64_t p = 0; p < bins; p++) {
        int64_t lo = p * length / bins, hi = ((p + 1) * length + bins - 1) / bins;
        for (int64_t i = lo; i < hi; i++)
            mean[p * length + i] = (float)(1 / (double)(hi - lo));
    }
    const char *flat = meg_onnx_put_reals(o, v, (int)(bins * length), mean);
    return put_reshape(o, v, flat, 2, (int64_t[]){bins, length});
}

meg_status meg_onnx_write_adaptive(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *x = &o->graph->value[v->in[0]], *y = &o->graph->value[v->out[0]];
    int64_t dims[MEG_AXES] = {0};
    const char *name = m->in[0];
    for (int i = 1; i < x->rank; i++)
        dims[i] = x->dims[i];
    meg_onnx_note_own(o, v, m);
    for (int i = 2; i < x->rank; i++) { /* (n, .., length, inner) -> (n, .., bins, inner) */
        int64_t outer = 1, inner = 1;
        MEG_CHECK(o->error, x->dims[i] * y->dims[i] < 1 << 24, MEG_EUNSUPPORTED,
                  "%s: adaptive_avgpool '%s' has too many pixels to be written as ONNX", o->path,
                  v->name);
        for (int k = 1; k < x->rank; k++)
            *(k < i ? &outer : &inner) *= k == i ? 1 : dims[k];
        name = put_reshape(o, v, name, 4, (int64_t[]){0, outer, x->dims[i], inner});
        name = put_pair(o, v, "MatMul", put_means(o, v, y->dims[i], x->dims[i]), name);
        dims[i] = y->dims[i];
    }
    m->in[0] = name;
    m->in[1] = meg_onnx_put_wholes(o, v, y->rank, dims);
    m->inputs = 2;
    return MEG_OK;
}

/* ---- lift, roll, take ---- */

/* Indices begin to end along an axis. */
static const char *put_slice(meg_onnx_out *o, const meg_node *v, const char *x, int64_t axis,
                             const int64_t ends[2])
{
    meg_onnx_made m = {.op = "Slice", .inputs = 4, .in = {x}};
    m.in[1] = meg_onnx_put_wholes(o, v, 1, &ends[0]);
    m.in[2] = meg_onnx_put_wholes(o, v, 1, &ends[1]);
    m.in[3] = meg_onnx_put_wholes(o, v, 1, &axis);
    return put(o, v, m);
}

meg_status meg_onnx_write_lift(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *y = &o->graph->value[v->out[0]];
    meg_onnx_note_own(o, v, m);
    m->in[1] = meg_onnx_put_wholes(o, v, y->rank, y->dims);
    m->inputs = 2;
    return MEG_OK;
}

meg_status meg_onnx_write_roll(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *x = &o->graph->value[v->in[0]];
    const meg_axes *axes = meg_onnx_word(v, "axes"), *shift = meg_onnx_word(v, "shift");
    meg_onnx_note_own(o, v, m);
    for (int i = 0; i < axes->count; i++) {
        int64_t axis = axes->at[i] < 0 ? axes->at[i] + x->rank : axes->at[i];
        int64_t length = x->dims[axis], first = (-shift->at[i] % length + length) % length;
        meg_onnx_made join = {.op = "Concat", .inputs = 2};
        if (first == 0) continue;
        join.in[0] = put_slice(o, v, m->in[0], axis, (int64_t[]){first, length});
        join.in[1] = put_slice(o, v, m->in[0], axis, (int64_t[]){0, first});
        meg_made_int(&join, "axis", axis);
        m->in[0] = put(o, v, join);
    }
    return MEG_OK;
}

meg_status meg_onnx_write_take(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    meg_onnx_note_own(o, v, m);
    m->in[1] = put_cast(o, v, m->in[1], 7);
    meg_made_int(m, "axis", *(const int64_t *)meg_onnx_word(v, "axis"));
    return MEG_OK;
}

/* ---- recurrent cells ---- */

typedef struct cell {
    int gates, states, order[4]; /* order: ours of each gate of ONNX */
    int64_t units;
} cell;

/* Rows of a weight, or numbers of a bias, gate by gate in the order of ONNX. */
static const char *put_gates(meg_onnx_out *o, const meg_node *v, const cell *c, const char *x)
{
    meg_onnx_made all = {.op = "Concat", .inputs = c->gates};
    for (int k = 0; k < c->gates; k++) {
        int64_t first = c->order[k] * c->units;
        all.in[k] = put_slice(o, v, x, 0, (int64_t[]){first, first + c->units});
    }
    meg_made_int(&all, "axis", 0);
    return put(o, v, all);
}

/* An axis of extent 1 in front. */
static const char *put_front(meg_onnx_out *o, const meg_node *v, const char *x)
{
    return put_pair(o, v, "Unsqueeze", x, meg_onnx_put_wholes(o, v, 1, (int64_t[]){0}));
}

/* (1, rows, rows): takes each gate from where we have it. */
static const char *put_ones(meg_onnx_out *o, const meg_node *v, const cell *c)
{
    int64_t rows = c->gates * c->units;
    float *one = meg_pool_alloc(o->pool, (size_t)(rows * rows) * sizeof *one);
    for (int64_t k = 0; k < rows; k++)
        one[k * rows + c->order[k / c->units] * c->units + k % c->units] = 1;
    const char *flat = meg_onnx_put_reals(o, v, (int)(rows * rows), one);
    return put_reshape(o, v, flat, 3, (int64_t[]){1, rows, rows});
}

/* The biases of the input, zeros, and ours. */
static const char *put_biases(meg_onnx_out *o, const meg_node *v, const cell *c, const char *bias)
{
    int64_t rows = c->gates * c->units;
    float *zero = meg_pool_alloc(o->pool, (size_t)rows * sizeof *zero);
    meg_onnx_made all = {.op = "Concat", .inputs = 2};
    all.in[0] = meg_onnx_put_reals(o, v, (int)rows, zero);
    all.in[1] = put_gates(o, v, c, bias);
    meg_made_int(&all, "axis", 0);
    return put_front(o, v, put(o, v, all));
}

/* State i, (n, units, steps) of which one counts, as (1, n, units). */
static const char *put_state(meg_onnx_out *o, const meg_node *v, const cell *c, const char *x,
                             int i)
{
    bool reverse = *(const bool *)meg_onnx_word(v, "reverse");
    int64_t steps = o->graph->value[v->in[0]].dims[2], at = reverse ? steps - 1 : 0;
    int64_t first = (c->gates + i) * c->units;
    x = put_slice(o, v, x, 1, (int64_t[]){first, first + c->units});
    x = put_slice(o, v, x, 2, (int64_t[]){at, at + 1});
    return put_transpose(o, v, x, 3, (const int64_t[]){2, 0, 1});
}

static meg_status write_cell(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m, const cell *c)
{
    bool bias = *(const bool *)meg_onnx_word(v, "bias");
    bool states = *(const bool *)meg_onnx_word(v, "states");
    int64_t rows = c->gates * c->units;
    meg_onnx_made y = {.op = c->gates == 4 ? "LSTM" : "GRU", .inputs = states ? 5 + c->states : 4};
    MEG_CHECK(o->error, rows <= 2048, MEG_EUNSUPPORTED,
              "%s: node '%s', %s of more than %d units, is too large to be written as ONNX",
              o->path, v->name, v->op->name, 2048 / c->gates);
    meg_onnx_note_own(o, v, m);
    const char *x = states ? put_slice(o, v, m->in[0], 1, (int64_t[]){0, rows}) : m->in[0];
    y.in[0] = put_transpose(o, v, x, 3, (const int64_t[]){2, 0, 1});
    y.in[1] = put_ones(o, v, c);
    y.in[2] = put_front(o, v, put_gates(o, v, c, m->in[1]));
    y.in[3] = bias ? put_biases(o, v, c, m->in[2]) : "";
    y.in[4] = "";
    for (int i = 0; states && i < c->states; i++)
        y.in[5 + i] = put_state(o, v, c, m->in[0], i);
    meg_made_int(&y, "hidden_size", c->units);
    meg_made_text(&y, "direction",
                  *(const bool *)meg_onnx_word(v, "reverse") ? "reverse" : "forward");
    if (c->gates == 3) meg_made_int(&y, "linear_before_reset", 1);
    m->in[0] = put_pair(o, v, "Squeeze", put(o, v, y),
                        meg_onnx_put_wholes(o, v, 1, (int64_t[]){1}));
    m->inputs = 1;
    meg_made_ints(m, "perm", 3, (const int64_t[]){1, 2, 0});
    return MEG_OK;
}

meg_status meg_onnx_write_lstm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const cell c = {4, 2, {0, 3, 1, 2}, *(const int64_t *)meg_onnx_word(v, "units")};
    return write_cell(o, v, m, &c);
}

meg_status meg_onnx_write_gru(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const cell c = {3, 1, {1, 0, 2}, *(const int64_t *)meg_onnx_word(v, "units")};
    return write_cell(o, v, m, &c);
}

/* ---- normalised weights ---- */

/* y = x g / |v|; channels are axis 1 of x. */
meg_status meg_onnx_write_weightnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *x = &o->graph->value[v->in[0]];
    const meg_axes *shape = meg_onnx_word(v, "shape");
    int64_t axes[MEG_AXES] = {1, 2, 3, 4}, dims[MEG_AXES] = {1, shape->at[0], 1, 1, 1};
    meg_onnx_made length = {.op = "ReduceL2", .inputs = 2, .in = {m->in[1]}};
    meg_onnx_note_own(o, v, m);
    length.in[1] = meg_onnx_put_wholes(o, v, shape->count - 1, axes);
    meg_made_int(&length, "keepdims", 0);
    const char *scale = put_pair(o, v, "Div", m->in[2], put(o, v, length));
    m->in[1] = put_reshape(o, v, scale, x->rank, dims);
    m->inputs = 2;
    return MEG_OK;
}

/* y = x / (u' W v) */
meg_status meg_onnx_write_spectralnorm(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_axes *shape = meg_onnx_word(v, "shape");
    const int64_t *dim = meg_onnx_word(v, "dim"), front[] = {1, 0, 2, 3, 4};
    int64_t matrix[] = {shape->at[*dim], -1};
    meg_onnx_note_own(o, v, m);
    const char *w = *dim ? put_transpose(o, v, m->in[1], shape->count, front) : m->in[1];
    const char *column = put_pair(o, v, "MatMul", put_reshape(o, v, w, 2, matrix), m->in[3]);
    m->in[1] = put_pair(o, v, "MatMul", m->in[2], column);
    m->inputs = 2;
    return MEG_OK;
}

/* ---- gather, unpool ---- */

meg_status meg_onnx_write_gather(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *x = &o->graph->value[v->in[0]];
    int64_t perm[MEG_AXES], back[MEG_AXES], wide[MEG_AXES] = {0}, axis = -1;
    for (const meg_param *p = v->op->params; p->name; p++)
        if (strcmp(p->name, "axis") == 0)
            axis = *(const int64_t *)(const void *)((const char *)v->attr + p->offset);
    if (axis < 0) axis += x->rank;
    for (int i = 0; i < x->rank; i++) { /* the axis goes behind the batch, and returns */
        perm[i] = i == 0 ? 0 : i == 1 ? axis : i <= axis ? i - 1 : i;
        wide[i] = i == 1 ? o->graph->value[v->in[1]].dims[1] : i == 0 ? 0 : 1;
    }
    for (int i = 0; i < x->rank; i++)
        back[perm[i]] = i;
    meg_onnx_note_own(o, v, m);
    const char *ids = put_cast(o, v, m->in[1], 7);
    meg_onnx_made floor = {.op = "Clip", .inputs = 2, .in = {ids}};
    floor.in[1] = meg_onnx_put_wholes(o, v, 0, (int64_t[]){0});
    const char *least = put(o, v, floor);
    const char *known = put_cast(o, v, put_pair(o, v, "Equal", ids, least), 1);
    const char *index = put_pair(o, v, "Unsqueeze", least,
                                 meg_onnx_put_wholes(o, v, 1, (int64_t[]){2}));
    meg_onnx_made take = {.op = "GatherND", .inputs = 2};
    take.in[0] = put_transpose(o, v, m->in[0], x->rank, perm);
    take.in[1] = index;
    meg_made_int(&take, "batch_dims", 1);
    const char *taken = put(o, v, take);
    m->in[0] = put_pair(o, v, "Mul", taken, put_reshape(o, v, known, x->rank, wide));
    m->inputs = 1;
    meg_made_ints(m, "perm", x->rank, back);
    return MEG_OK;
}

/* ONNX counts over the whole tensor, here it is the plane: the same where the planes are those of the
 * pool that made the indices. */
meg_status meg_onnx_write_unpool(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    const meg_value *y = &o->graph->value[v->out[0]], *index = &o->graph->value[v->in[1]];
    const meg_node *pool = index->maker >= 0 ? &o->graph->node[index->maker] : NULL;
    const meg_value *from = pool ? &o->graph->value[pool->in[0]] : NULL;
    bool same = from && strcmp(pool->op->name, "maxpool") == 0 && from->rank == y->rank;
    for (int i = 1; same && i < y->rank; i++)
        same = from->dims[i] == y->dims[i];
    MEG_CHECK(o->error, same, MEG_EUNSUPPORTED,
              "%s: max_unpool '%s' can be written as ONNX only where it makes the shape that its "
              "maxpool was given",
              o->path, v->name);
    const meg_pool_attr *a = pool->attr;
    int space = y->rank - 2;
    int64_t kernel[MEG_SPACE], stride[MEG_SPACE];
    for (int i = 0; i < space; i++) {
        const meg_window *w = &a->win[MEG_SPACE - space + i];
        kernel[i] = w->taps, stride[i] = w->stride;
    }
    meg_onnx_note_own(o, v, m);
    meg_onnx_made shape = {.op = "Shape", .inputs = 1, .in = {m->in[0]}};
    meg_made_int(&shape, "end", 1);
    meg_onnx_made all = {.op = "Concat", .inputs = 2, .in = {put(o, v, shape)}};
    all.in[1] = meg_onnx_put_wholes(o, v, y->rank - 1, y->dims + 1);
    meg_made_int(&all, "axis", 0);
    m->in[2] = put(o, v, all);
    m->inputs = 3;
    meg_made_ints(m, "kernel_shape", space, kernel);
    meg_made_ints(m, "strides", space, stride);
    return MEG_OK;
}
