/* Spectral normalisation: a layer's weight is divided by its largest singular value, as PyTorch's
 * parametrizations.spectral_norm has it.
 *
 *     sigma = u' W v       W: (rows, columns), the weight with axis `dim` in front and all others as one
 *
 * u and v are what power iteration has come to; they have no gradient. A step of training goes on with it first:
 *
 *     u = W v / max(|W v|, epsilon),  v = W' u / max(|W' u|, epsilon)        `iterations` times
 *
 * A layer is linear in its weight, so the layer itself takes W, without a bias, and this operator, behind it, divides
 * its output by sigma. W is shared with the layer: its gradients add up.
 *
 *     dW(k, j) = - t u(k) v(j) / sigma^2,  t = sum of dy x
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <math.h>

typedef struct spectralnorm_attr {
    meg_axes shape;
    int64_t dim, iterations;
    double epsilon;
} spectralnorm_attr;

enum {
    W = MEG_X + 1,
    U,
    V
};

/* ---- the matrix ---- */

static int64_t rows_of(const meg_call *c)
{
    return meg_box_size(&c->graph->value[c->node->in[U]].shape);
}

static meg_box row_of(const meg_call *c, int64_t k)
{
    const spectralnorm_attr *a = c->node->attr;
    meg_box row = c->graph->value[c->node->in[W]].shape;
    int axis = a->dim == 0 ? MEG_N : MEG_C;
    row.lo[axis] = k, row.hi[axis] = k + 1;
    return row;
}

static real *u_at(const meg_call *c, int64_t k)
{
    return meg_channel_at(&c->t[U], 0, k);
}

/* sum over j of W(k, j) v(j) */
static double row_times_v(const meg_call *c, int64_t k)
{
    const meg_array *w = &c->t[W];
    int64_t p[MEG_AXES];
    double sum = 0;
    const real *v = meg_channel_at(&c->t[V], 0, 0);
    meg_runs r = meg_runs_of(row_of(c, k), 1, &w);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p), v += r.length)
        sum += meg_dot_line(meg_real_at(w, p), v, 1, r.length);
    return sum;
}

static double sigma_of(const meg_call *c)
{
    double sum = 0;
    for (int64_t k = 0; k < rows_of(c); k++)
        sum += (double)*u_at(c, k) * row_times_v(c, k);
    return sum;
}

/* ---- power iteration ---- */

static void normalise(real *x, int64_t count, double epsilon)
{
    double length = 0;
    for (int64_t i = 0; i < count; i++)
        length += (double)x[i] * (double)x[i];
    length = fmax(sqrt(length), epsilon);
    for (int64_t i = 0; i < count; i++)
        x[i] = (real)((double)x[i] / length);
}

/* v(j) += u(k) W(k, j) */
static void add_row(const meg_call *c, int64_t k)
{
    const meg_array *w = &c->t[W];
    int64_t p[MEG_AXES];
    double u = (double)*u_at(c, k);
    real *v = meg_channel_at(&c->t[V], 0, 0);
    meg_runs r = meg_runs_of(row_of(c, k), 1, &w);
    for (bool on = meg_box_first(&r.starts, p); on;
         on = meg_box_next(&r.starts, p), v += r.length) {
        const real *from = meg_real_at(w, p);
        for (int64_t i = 0; i < r.length; i++)
            v[i] = (real)((double)v[i] + u * (double)from[i]);
    }
}

static void iterate(const meg_call *c)
{
    const spectralnorm_attr *a = c->node->attr;
    for (int64_t i = 0; i < a->iterations; i++) {
        for (int64_t k = 0; k < rows_of(c); k++)
            *u_at(c, k) = (real)row_times_v(c, k);
        normalise(u_at(c, 0), rows_of(c), a->epsilon);
        meg_zero(&c->t[V]);
        for (int64_t k = 0; k < rows_of(c); k++)
            add_row(c, k);
        normalise(meg_channel_at(&c->t[V], 0, 0), meg_box_size(&c->t[V].box), a->epsilon);
    }
}

/* ---- passes ---- */

/* to = scale * from */
static void scale_all(const meg_call *c, double scale, const int operand[2])
{
    const meg_array *t[] = {&c->t[operand[0]], &c->t[operand[1]]};
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(c->work.out, 2, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(t[0], p);
        const real *from = meg_real_at(t[1], p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)(scale * (double)from[i]);
    }
}

static void forward(const meg_call *c)
{
    if (meg_box_empty(&c->work.out)) return;
    scale_all(c, 1 / sigma_of(c), (const int[]){MEG_Y, MEG_X});
}

/* t */
static double product(const meg_call *c)
{
    const meg_array *t[] = {&c->t[MEG_X], &c->t[MEG_DY]};
    int64_t p[MEG_AXES];
    double sum = 0;
    meg_runs r = meg_runs_of(c->work.out, 2, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        sum += meg_dot_line(meg_real_at(t[0], p), meg_real_at(t[1], p), 1, r.length);
    return sum;
}

/* dW of row k: v times this */
static void pull_row(const meg_call *c, int64_t k, double scale)
{
    const meg_array *dw = &c->t[MEG_DX + W];
    int64_t p[MEG_AXES];
    const real *v = meg_channel_at(&c->t[V], 0, 0);
    meg_runs r = meg_runs_of(row_of(c, k), 1, &dw);
    for (bool on = meg_box_first(&r.starts, p); on;
         on = meg_box_next(&r.starts, p), v += r.length) {
        real *to = meg_real_at(dw, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)(scale * (double)v[i]);
    }
}

static void backward(const meg_call *c)
{
    for (int i = 0; i <= W; i++)
        if (c->t[MEG_DX + i].data) meg_zero(&c->t[MEG_DX + i]);
    if (meg_box_empty(&c->work.out)) return;
    double sigma = sigma_of(c), t = product(c);
    if (c->t[MEG_DX].data) scale_all(c, 1 / sigma, (const int[]){MEG_DX, MEG_DY});
    for (int64_t k = 0; c->t[MEG_DX + W].data && k < rows_of(c); k++)
        pull_row(c, k, -t * (double)*u_at(c, k) / (sigma * sigma));
}

MEG_KERNELS(spectralnorm) = {
    .run = {[MEG_FORWARD] = forward, [MEG_STATE_PASS] = iterate, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(spectralnorm_attr, field)

static const meg_param params[] = {
    {"shape", MEG_PARAM_AXES, AT(shape), NULL, "of the layer's weight: 16x3x3x3", NULL, 1, 0x1p40},
    {"dim", MEG_PARAM_INT, AT(dim), "0", "axis of its rows: 1 of a transposed convolution", NULL, 0,
     1},
    {"iterations", MEG_PARAM_INT, AT(iterations), "1", "of the power method, in each step", NULL, 1,
     1000},
    {"epsilon", MEG_PARAM_REAL, AT(epsilon), "1e-12", "lengths are at least this", NULL, 0, 1},
    {0}};

/* Drawn so that their lengths are about 1: the first step of training makes them just that. */
static meg_weight_spec vector(const char *suffix, int64_t count)
{
    return (meg_weight_spec){.suffix = suffix,
                             .kind = MEG_STATE,
                             .shape = meg_box_of(1, count, 1, 1, 1),
                             .rank = 1,
                             .dims = {count},
                             .start = MEG_UNIFORM,
                             .bound = sqrt(3.0 / (double)count)};
}

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const spectralnorm_attr *a = v->attr;
    meg_value layer = {0};
    (void)g;
    meg_shape_dims(&layer, a->shape.count, a->shape.at);
    out[0] = (meg_weight_spec){.suffix = "weight",
                               .kind = MEG_PARAMETER,
                               .shape = layer.shape,
                               .rank = a->shape.count,
                               .start = MEG_UNIFORM,
                               .bound = 1};
    memcpy(out[0].dims, layer.dims, sizeof out[0].dims);
    int64_t rows = a->shape.at[a->dim < a->shape.count ? a->dim : 0];
    out[1] = vector("weight_u", rows);
    out[2] = vector("weight_v", meg_box_size(&layer.shape) / rows);
    return 3;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const spectralnorm_attr *a = v->attr;
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(
        e, a->shape.count >= 2, MEG_EARG,
        "%s: shape has one extent, but spectralnorm wants that of a layer's weight, which has "
        "two or more: divide a vector by its length instead",
        v->name);
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_like(out, &g->value[v->in[0]]);
    return MEG_OK;
}

/* All of the weight, whatever part of the layer's output. */
static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    return input == 0 ? w->out : g->value[v->in[input]].shape;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const spectralnorm_attr *a = v->attr;
    double matrix = 2 * (double)meg_box_size(&g->value[v->in[W]].shape);
    if (p == MEG_STATE_PASS) return 2 * (double)a->iterations * matrix;
    return (p == MEG_BACKWARD ? 3 : 1) * (double)meg_box_size(&w->out) + matrix;
}

static const meg_sample samples[] = {{"3x5", "shape=5x4"},
                                     {"2x3x4", "shape=3x2x3"},
                                     {"2x6x3x5", "shape=6x2x3x3 iterations=2"},
                                     {"1x4x4x3", "shape=8x4x3x2 dim=1"},
                                     {"1x4x2x3x2", "shape=4x3x1x2x3 epsilon=1e-6"},
                                     {0}};

enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(W) | MEG_BIT(U) | MEG_BIT(V),
    VECTORS = MEG_BIT(U) | MEG_BIT(V)
};

const meg_op meg_op_spectralnorm = {
    .name = "spectralnorm",
    .doc =
        "behind a layer without bias: as if its weight were divided by its largest singular value",
    .paper = "Miyato et al., Spectral normalization for generative adversarial networks, ICLR 2018",
    .params = params,
    .attr_bytes = sizeof(spectralnorm_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS,
              [MEG_STATE_PASS] = MEG_BIT(W) | VECTORS,
              [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_STATE_PASS] = VECTORS,
               [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + W)},
    .state_first = true,
    MEG_KERNELS_OF(spectralnorm),
    .samples = samples,
};

#endif
