/* Product of matrices, both of them data: the last two axes, for each index of the others.
 *
 *     y(.., r, j) = sum over k of a(.., r, k) * b(.., k, j)
 *
 * Rows lie on c (rank 3) or on h (rank 4, 5), columns on w; the sum box is (1, 1, 1, 1, k): cutting
 * it makes y partial. b has k as rows, so its box follows the sum.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"

#include <inttypes.h>

static int row_axis(const meg_graph *g, const meg_node *v)
{
    return meg_axis_slot(g->value[v->in[0]].rank, g->value[v->in[0]].rank - 2);
}

/* The element at row r and column j of the matrix that p lies in. */
static real *at(const meg_array *t, const int64_t p[MEG_AXES], int axis, int64_t r, int64_t j)
{
    int64_t q[MEG_AXES];
    memcpy(q, p, sizeof q);
    q[axis] = r, q[MEG_W] = j;
    return meg_real_at(t, q);
}

static void forward(const meg_call *c)
{
    const meg_array *a = &c->t[MEG_X], *b = &c->t[MEG_X + 1];
    int axis = row_axis(c->graph, c->node);
    int64_t p[MEG_AXES], lo = c->work.sum.lo[MEG_W], hi = c->work.sum.hi[MEG_W];
    meg_box lines = meg_lines(&c->work.out);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&c->work.out, p);
        double sum[MEG_LINE] = {0};
        for (int64_t k = lo; k < hi; k++)
            meg_add_line(sum, (double)*at(a, p, axis, p[axis], k),
                         at(b, p, axis, k, line.lo[MEG_W]), (meg_steps){1, 1},
                         meg_extent(&line, MEG_W));
        meg_store_line(&c->t[MEG_Y], &line, sum);
    }
}

/* da(r, k) = sum over j of dy(r, j) * b(k, j) */
static void backward_left(const meg_call *c)
{
    const meg_array *da = &c->t[MEG_DX], *b = &c->t[MEG_X + 1], *dy = &c->t[MEG_DY];
    int axis = row_axis(c->graph, c->node);
    int64_t p[MEG_AXES], lo = c->work.out.lo[MEG_W], count = meg_extent(&c->work.out, MEG_W);
    meg_box part = c->work.out;
    meg_zero(da);
    part.lo[MEG_W] = c->work.sum.lo[MEG_W], part.hi[MEG_W] = c->work.sum.hi[MEG_W];
    for (bool on = meg_box_first(&part, p); on; on = meg_box_next(&part, p))
        *meg_real_at(da, p) = (real)meg_dot_line(at(dy, p, axis, p[axis], lo),
                                                 at(b, p, axis, p[MEG_W], lo), 1, count);
}

/* db(k, j) = sum over r of a(r, k) * dy(r, j) */
static void backward_right(const meg_call *c)
{
    const meg_array *db = &c->t[MEG_DX + 1], *a = &c->t[MEG_X], *dy = &c->t[MEG_DY];
    int axis = row_axis(c->graph, c->node);
    int64_t p[MEG_AXES], lo = c->work.out.lo[axis], hi = c->work.out.hi[axis];
    meg_box part = c->work.out;
    meg_zero(db);
    part.lo[axis] = c->work.sum.lo[MEG_W], part.hi[axis] = c->work.sum.hi[MEG_W];
    meg_box lines = meg_lines(&part);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&part, p);
        double sum[MEG_LINE] = {0};
        for (int64_t r = lo; r < hi; r++)
            meg_add_line(sum, (double)*at(a, p, axis, r, p[axis]),
                         at(dy, p, axis, r, line.lo[MEG_W]), (meg_steps){1, 1},
                         meg_extent(&line, MEG_W));
        meg_store_line(db, &line, sum);
    }
}

static void backward(const meg_call *c)
{
    if (c->t[MEG_DX].data) backward_left(c);
    if (c->t[MEG_DX + 1].data) backward_right(c);
}

MEG_KERNELS(matmul) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *a = &g->value[v->in[0]], *b = &g->value[v->in[1]];
    int64_t dims[MEG_AXES];
    char left[96], right[96];
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 3));
    MEG_TRY(e, meg_want_axes(g, v, e, 1, 3));
    meg_shape_text(a, left);
    meg_shape_text(b, right);
    bool fits = a->rank == b->rank && a->dims[a->rank - 1] == b->dims[b->rank - 2];
    for (int i = 0; fits && i < a->rank - 2; i++)
        fits = a->dims[i] == b->dims[i];
    MEG_CHECK(e, fits, MEG_EARG,
              "%s: '%s' is %s, but '%s' is %s: matmul wants (.., r, k) and (.., k, j), equal in "
              "all other axes",
              v->name, a->name, left, b->name, right);
    memcpy(dims, a->dims, sizeof dims);
    dims[a->rank - 1] = b->dims[b->rank - 1];
    meg_shape_dims(out, a->rank, dims);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    return meg_box_of(1, 1, 1, 1, g->value[v->in[0]].shape.hi[MEG_W]);
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    int axis = input == 0 ? MEG_W : row_axis(g, v);
    meg_box in = w->out;
    in.lo[axis] = w->sum.lo[MEG_W], in.hi[axis] = w->sum.hi[MEG_W];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    double pairs = (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
    return (p == MEG_BACKWARD ? 4 : 2) * pairs;
}

static const meg_sample samples[] = {{"2x5x7 2x7x3", ""},         {"1x1x1 1x1x1", ""},
                                     {"2x3x5x7 2x3x7x4", ""},     {"2x16x9x5 2x16x5x9", ""},
                                     {"1x2x3x5x4 1x2x3x4x6", ""}, {"1x3x2 1x2x150", ""},
                                     {"1x33x40 1x40x17", ""},     {0}};

const meg_op meg_op_matmul = {
    .name = "matmul",
    .onnx = "MatMul",
    .doc = "products of matrices, the last two axes, both of them data",
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)},
    MEG_KERNELS_OF(matmul),
    .samples = samples,
};

#endif
