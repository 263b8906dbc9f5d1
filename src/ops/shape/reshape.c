/* Reshape: the same numbers in row-major order, other axes. The batch stays as it is.
 *
 *     reshape dims=0x8x-1        0: that of the input; -1: what is left
 *
 * Cutting: axes at the end that input and output share pass through. What lies before them is one
 * run of numbers, which may be cut along c where a whole channel of the input ends, too:
 *
 *     (n, 24, w) -> (n, 4, 6, w)    c by 1: the input's by 6           w by 1
 *     (n, 4, 6, w) -> (n, 24, w)    c by 6: the input's by 1           w by 1
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"

#include <inttypes.h>

typedef struct reshape_attr {
    meg_axes dims;
} reshape_attr;

static const meg_box *shape_of(const meg_call *c, bool output)
{
    return &c->graph->value[output ? c->node->out[0] : c->node->in[0]].shape;
}

/* Where an element lies among those of its sample. */
static int64_t flat(const meg_box *shape, const int64_t p[MEG_AXES])
{
    int64_t i = 0;
    for (int a = MEG_C; a < MEG_AXES; a++)
        i = i * shape->hi[a] + p[a];
    return i;
}

static void unflat(const meg_box *shape, int64_t i, int64_t p[MEG_AXES])
{
    for (int a = MEG_W; a >= MEG_C; a--) {
        p[a] = i % shape->hi[a];
        i /= shape->hi[a];
    }
}

/* Copies x to y or, `back`, dy to dx: rows of y, in pieces that lie in one row of x. */
static void walk(const meg_call *c, bool back)
{
    const meg_array *x = &c->t[back ? MEG_DX : MEG_X], *y = &c->t[back ? MEG_DY : MEG_Y];
    const meg_box *in = shape_of(c, false), *out = shape_of(c, true);
    meg_box rows = c->work.out;
    int64_t p[MEG_AXES], q[MEG_AXES], count = meg_extent(&rows, MEG_W);
    if (meg_box_empty(&rows)) return;
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p)) {
        int64_t first = flat(out, p);
        real *row = meg_real_at(y, p);
        q[MEG_N] = p[MEG_N];
        for (int64_t at = 0, run; at < count; at += run) {
            unflat(in, first + at, q);
            run = in->hi[MEG_W] - q[MEG_W];
            if (run > count - at) run = count - at;
            real *pixel = meg_real_at(x, q);
            memcpy(back ? pixel : row + at, back ? row + at : pixel, (size_t)run * sizeof(real));
        }
    }
}

static void forward(const meg_call *c)
{
    walk(c, false);
}

static void backward(const meg_call *c)
{
    if (!c->t[MEG_DX].data) return;
    meg_zero(&c->t[MEG_DX]);
    walk(c, true);
}

MEG_KERNELS(reshape) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {{"dims", MEG_PARAM_AXES, offsetof(reshape_attr, dims), NULL,
                                    "extents; 0: the input's; -1, once: what is left", NULL, -1,
                                    0x1p40},
                                   {0}};

/* The extents of one sample, axes 1 to rank - 1; `left` is the axis of -1, or 0. */
static meg_status resolve(const meg_node *v, meg_error *e, const meg_value *x, int64_t dims[],
                          int *left)
{
    const meg_axes *list = &((const reshape_attr *)v->attr)->dims;
    *left = 0;
    for (int i = 1; i < list->count; i++) {
        dims[i] = list->at[i];
        MEG_CHECK(e, dims[i] != -1 || (*left == 0 && list->at[0] != -1), MEG_EARG,
                  "%s: reshape can find only one axis (-1)", v->name);
        MEG_CHECK(e, dims[i] != 0 || i < x->rank, MEG_EARG,
                  "%s: '%s' has no axis %d whose extent 0 could mean", v->name, x->name, i);
        if (dims[i] == -1) *left = i;
        if (dims[i] == 0) dims[i] = x->dims[i];
    }
    return MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_axes *list = &((const reshape_attr *)v->attr)->dims;
    const meg_value *x = &g->value[v->in[0]];
    int64_t dims[MEG_AXES] = {x->dims[0]}, each = 1;
    int left = 0;
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_CHECK(e, list->count >= 2 && (list->at[0] == 0 || list->at[0] == -1), MEG_EARG,
              "%s: reshape keeps the batch, axis 0, which plans cut as they like: write "
              "dims=0x..., with an axis or more behind it",
              v->name);
    MEG_TRY(e, resolve(v, e, x, dims, &left));
    for (int i = 1; i < list->count; i++)
        each *= i == left ? 1 : dims[i];
    int64_t size = meg_box_size(&x->shape) / x->shape.hi[MEG_N];
    if (left > 0) dims[left] = size / each;
    MEG_CHECK(e, size == each * (left > 0 ? dims[left] : 1), MEG_EARG,
              "%s: a sample of '%s' has %" PRId64
              " numbers, but the axes that are given have %" PRId64 "%s",
              v->name, x->name, size, each, left > 0 ? ", which does not divide them" : "");
    meg_shape_dims(out, list->count, dims);
    return MEG_OK;
}

/* The last axis (c or behind) that is not the same in input and output; c if all are: it may be cut
 * as if it were not. */
static int last_changed(const meg_box *in, const meg_box *out)
{
    int a = MEG_W;
    while (a > MEG_C && in->hi[a] == out->hi[a])
        a--;
    return a;
}

/* Two numbers of the run differ in a first axis of the input; around all between them lies a box
 * that is whole in the axes of the run behind it. */
static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_box *x = &g->value[v->in[input]].shape, *y = &g->value[v->out[0]].shape;
    meg_box in = w->out;
    int64_t first = 0, last = 0;
    int end = last_changed(x, y);
    for (int a = MEG_C; a <= end; a++) {
        first = first * y->hi[a] + w->out.lo[a];
        last = last * y->hi[a] + w->out.hi[a] - 1;
    }
    for (int a = end; a >= MEG_C; a--) {
        in.lo[a] = first % x->hi[a], in.hi[a] = last % x->hi[a] + 1;
        first /= x->hi[a], last /= x->hi[a];
        if (first != last) in.lo[a] = 0, in.hi[a] = x->hi[a];
    }
    return in;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    const meg_box *x = &g->value[v->in[0]].shape, *y = &g->value[v->out[0]].shape;
    int end = last_changed(x, y);
    if (axis == MEG_N || axis > end) return 1;
    if (axis > MEG_C) return 0; /* inside the run: no box of the input */
    int64_t in = 1, out = 1;    /* numbers of one channel, in the run */
    for (int a = MEG_D; a <= end; a++)
        in *= x->hi[a], out *= y->hi[a];
    return in / greatest_divisor(in, out);
}

static const meg_sample samples[] = {{"3x12", "dims=0x3x4"},
                                     {"2x3x5x7", "dims=0x-1"},
                                     {"2x24x5", "dims=0x4x6x5"},
                                     {"2x4x6x5", "dims=0x24x5"},
                                     {"2x6x5x4", "dims=-1x4x30"},
                                     {"2x12x3x5", "dims=0x0x15"},
                                     {"1x4x9x5", "dims=0x6x-1x5"},
                                     {"1x2x3x4x5", "dims=0x8x5x3"},
                                     {"2x30", "dims=0x5x1x3x2"},
                                     {"2x5x7", "dims=0x0x0"},
                                     {0}};

const meg_op meg_op_reshape = {
    .name = "reshape",
    .onnx = "Reshape",
    .doc = "the same numbers in row-major order, other axes; the batch stays",
    .params = params,
    .attr_bytes = sizeof(reshape_attr),
    .infer = infer,
    .need = need,
    MEG_MOVE_FIELDS,
    .grain = grain,
    MEG_KERNELS_OF(reshape),
    .samples = samples,
};

#endif
