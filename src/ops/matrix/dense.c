/* Dense layer: y(n,k) = bias(k) + sum over c,d,h,w of weight(k,c,d,h,w) * x(n,c,d,h,w).
 *
 * It is the convolution whose window is the whole input, and so may stand behind space without a
 * flatten: then the input can be cut in space, and y is a partial sum. The sum box is the input's
 * (c,d,h,w). Files have the weight as a matrix (units, c*d*h*w), in the same order of elements.
 */
#include "ops/attrs.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <math.h>

/* x and weight have their own meaning of axis n, but share the others: runs along those. */
static meg_runs runs_of(const meg_box *part, const meg_array *a, const meg_array *b)
{
    return meg_runs_of(*part, 2, (const meg_array *[]){a, b});
}

/* The element of sample (or filter) n at the start of a run. */
static real *row_at(const meg_array *t, int64_t n, const int64_t start[MEG_AXES])
{
    int64_t p[] = {n, start[MEG_C], start[MEG_D], start[MEG_H], start[MEG_W]};
    return meg_real_at(t, p);
}

static double product(const meg_call *c, const meg_runs *r, int64_t n, int64_t k)
{
    double sum = 0;
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&r->starts, p); on; on = meg_box_next(&r->starts, p))
        sum += meg_dot_line(row_at(&c->t[MEG_X], n, p), row_at(&c->t[MEG_X + 1], k, p), 1,
                            r->length);
    return sum;
}

static void forward(const meg_call *c)
{
    const meg_array *bias = &c->t[MEG_X + 2], *y = &c->t[MEG_Y];
    const meg_box *out = &c->work.out;
    bool first = bias->data && meg_first_part(&c->work);
    meg_runs r = runs_of(&c->work.sum, &c->t[MEG_X], &c->t[MEG_X + 1]);
    for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++)
        for (int64_t k = out->lo[MEG_C]; k < out->hi[MEG_C]; k++) {
            double b = first ? (double)*meg_channel_at(bias, 0, k) : 0;
            *meg_channel_at(y, n, k) = (real)(b + product(c, &r, n, k));
        }
}

/* A product of dy with a matrix whose rows are runs:
 *
 *     backward   dx(n,:) = sum over k of dy(n,k) * weight(k,:)
 *     weight     dw(k,:) = sum over n of dy(n,k) * x(n,:)
 */
typedef struct product_rule {
    const meg_array *to, *with, *dy;
    int64_t lo, hi, step; /* of the summed axis of dy, n or c */
} product_rule;

static void set_row(const product_rule *f, const meg_runs *r, int64_t row, const real *dy)
{
    int64_t p[MEG_AXES], stride = meg_stride(f->with, MEG_N);
    for (bool on = meg_box_first(&r->starts, p); on; on = meg_box_next(&r->starts, p)) {
        real *to = row_at(f->to, row, p);
        const real *with = row_at(f->with, f->lo, p);
        for (int64_t at = 0; at < r->length; at += MEG_LINE) {
            double sum[MEG_LINE] = {0};
            int64_t count = r->length - at < MEG_LINE ? r->length - at : MEG_LINE;
            for (int64_t i = 0; i < f->hi - f->lo; i++)
                meg_add_line(sum, (double)dy[i * f->step], with + i * stride + at,
                             (meg_steps){1, 1}, count);
            for (int64_t i = 0; i < count; i++)
                to[at + i] = (real)sum[i];
        }
    }
}

static void backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX], *dy = &c->t[MEG_DY];
    const meg_box *out = &c->work.out;
    if (!dx->data) return;
    meg_zero(dx);
    if (meg_box_empty(out) || meg_box_empty(&c->work.sum)) return;
    product_rule f = {
        dx, &c->t[MEG_X + 1], dy, out->lo[MEG_C], out->hi[MEG_C], meg_stride(dy, MEG_C)};
    meg_runs r = runs_of(&c->work.sum, f.to, f.with);
    for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++)
        set_row(&f, &r, n, meg_channel_at(dy, n, f.lo));
}

static void bias_gradient(const meg_call *c)
{
    const meg_array *db = &c->t[MEG_DX + 2], *dy = &c->t[MEG_DY];
    const meg_box *out = &c->work.out;
    meg_zero(db);
    if (!meg_first_part(&c->work)) return;
    for (int64_t k = out->lo[MEG_C]; k < out->hi[MEG_C]; k++) {
        double sum = 0;
        for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++)
            sum += (double)*meg_channel_at(dy, n, k);
        *meg_channel_at(db, 0, k) = (real)sum;
    }
}

static void weight(const meg_call *c)
{
    const meg_array *dw = &c->t[MEG_DX + 1], *dy = &c->t[MEG_DY];
    const meg_box *out = &c->work.out;
    if (c->t[MEG_DX + 2].data) bias_gradient(c);
    if (!dw->data) return;
    meg_zero(dw);
    if (meg_box_empty(out) || meg_box_empty(&c->work.sum)) return;
    product_rule f = {dw, &c->t[MEG_X], dy, out->lo[MEG_N], out->hi[MEG_N], meg_stride(dy, MEG_N)};
    meg_runs r = runs_of(&c->work.sum, f.to, f.with);
    for (int64_t k = out->lo[MEG_C]; k < out->hi[MEG_C]; k++)
        set_row(&f, &r, k, meg_channel_at(dy, f.lo, k));
}

MEG_KERNELS(dense) = {
    .run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward, [MEG_WEIGHT] = weight}};

#ifndef MEG_F64

static const meg_param params[] = {{"units", MEG_PARAM_INT, offsetof(meg_dense_attr, units), NULL,
                                    "channels of the output", NULL, 1, 1 << 24},
                                   {"bias", MEG_PARAM_BOOL, offsetof(meg_dense_attr, bias), "1",
                                    "adds a number per unit", NULL, 0, 0},
                                   {0}};

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    meg_box all = g->value[v->in[0]].shape;
    all.hi[MEG_N] = 1; /* the samples are the output's */
    return all;
}

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const meg_dense_attr *a = v->attr;
    meg_box shape = sum(g, v);
    int64_t fan_in = meg_box_size(&shape);
    double bound = 1 / sqrt((double)fan_in);
    shape.hi[MEG_N] = a->units;
    out[0] = (meg_weight_spec){"weight",           MEG_PARAMETER, shape, 2,
                               {a->units, fan_in}, MEG_UNIFORM,   bound};
    shape = meg_box_of(1, a->units, 1, 1, 1);
    out[1] = (meg_weight_spec){"bias", MEG_PARAMETER, shape, 1, {a->units}, MEG_UNIFORM, bound};
    return a->bias ? 2 : 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_dense_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(
        e, x->rank >= 2, MEG_EARG,
        "%s: dense wants an input of samples and channels (rank 2 to 5), but '%s' has rank %d",
        v->name, x->name, x->rank);
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_rows(&out[0], x->shape.hi[MEG_N], a->units);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = w->sum;
    int axis = input == 2 ? MEG_C : MEG_N, from = input == 0 ? MEG_N : MEG_C;
    (void)g, (void)v;
    if (input == 2) in = meg_first_part(w) ? meg_box_of(1, 1, 1, 1, 1) : meg_box_of(0, 0, 0, 0, 0);
    if (meg_box_empty(&in)) return in;
    in.lo[axis] = w->out.lo[from], in.hi[axis] = w->out.hi[from];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p; /* each pass multiplies and adds the same pairs */
    return 2.0 * (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}

static const meg_sample samples[] = {{"4x10", "units=7"},        {"1x1", "units=1"},
                                     {"3x5", "units=16 bias=0"}, {"2x3x4x5", "units=6"},
                                     {"2x4x7", "units=3"},       {"2x2x3x2x3", "units=5 bias=0"},
                                     {"5x16", "units=32"},       {"2x32x3x3", "units=16"},
                                     {"3x300", "units=17"},      {0}};

const meg_op meg_op_dense = {
    .name = "dense",
    .takes_all = true,
    .linear = true,
    .onnx = "Gemm",
    .doc = "dense layer over channels and, if there is, space",
    .params = params,
    .attr_bytes = sizeof(meg_dense_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_X + 2),
              [MEG_BACKWARD] = MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY),
              [MEG_WEIGHT] = MEG_BIT(MEG_X) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX),
               [MEG_WEIGHT] = MEG_BIT(MEG_DX + 1) | MEG_BIT(MEG_DX + 2)},
    MEG_KERNELS_OF(dense),
    .samples = samples,
};

#endif
