/* Gated recurrent unit, one layer in one direction (recurrent.h), its gates in PyTorch's order r, z, n:
 *
 *     r, z = sigmoid(a_r, a_z),  n = tanh(x_n + r q),  q = weight_n h(t-1) + bias_n
 *     h(t) = (1 - z) n + z h(t-1)
 *
 * The reset gate r acts behind the product, as in PyTorch, in Keras' reset_after and ONNX' linear_before_reset.
 * State: h. Kept for backward: r, z, n (aux 0) and q (aux 1) of all steps.
 */
#include "ops/matrix/recurrent.h"

enum {
    R,
    Z,
    N,
    GATES
};

static void forward_sample(const meg_cell *l)
{
    double h[MEG_CELL_UNITS], a[GATES * MEG_CELL_UNITS];
    int64_t u = l->units;
    meg_cell_start(l, 0, h);
    for (int64_t s = 0; s < l->steps; s++) {
        int64_t t = meg_cell_time(l, s);
        meg_cell_push(l, h, a);
        for (int64_t j = 0; j < u; j++) {
            double gate[GATES], x[GATES], q = a[N * u + j];
            for (int k = 0; k < GATES; k++)
                x[k] = (double)*meg_cell_at(l, MEG_X, k * u + j, t);
            gate[R] = meg_cell_sigmoid(a[R * u + j] + x[R]);
            gate[Z] = meg_cell_sigmoid(a[Z * u + j] + x[Z]);
            gate[N] = tanh(x[N] + gate[R] * q);
            for (int k = 0; k < GATES; k++)
                *meg_cell_at(l, MEG_AUX, k * u + j, t) = (real)gate[k];
            *meg_cell_at(l, MEG_AUX + 1, j, t) = (real)q;
            h[j] = (1 - gate[Z]) * gate[N] + gate[Z] * h[j];
            *meg_cell_at(l, MEG_Y, j, t) = (real)h[j];
        }
    }
}

static void forward(const meg_call *c)
{
    meg_cell_samples(c, GATES, forward_sample);
}

/* Gradients of the gates' sums of one step, of unit j: of the products, d, and of x. The state's share that
 * goes past the gates is left in dh. */
static void pull_unit(const meg_cell *l, int64_t j, int64_t t, double before, double *dh, double *d)
{
    int64_t u = l->units;
    double gate[GATES], q = (double)*meg_cell_at(l, MEG_AUX + 1, j, t), dx[GATES];
    for (int k = 0; k < GATES; k++)
        gate[k] = (double)*meg_cell_at(l, MEG_AUX, k * u + j, t);
    double all = (double)*meg_cell_at(l, MEG_DY, j, t) + dh[j];
    dx[N] = all * (1 - gate[Z]) * (1 - gate[N] * gate[N]);
    dx[Z] = all * (before - gate[N]) * gate[Z] * (1 - gate[Z]);
    dx[R] = dx[N] * q * gate[R] * (1 - gate[R]);
    dh[j] = all * gate[Z];
    for (int k = 0; k < GATES; k++) {
        d[k * u + j] = dx[k] * (k == N ? gate[R] : 1);
        if (l->c->t[MEG_DX].data) *meg_cell_at(l, MEG_DX, k * u + j, t) = (real)dx[k];
    }
}

static void backward_sample(const meg_cell *l)
{
    double d[GATES * MEG_CELL_UNITS], before[MEG_CELL_UNITS], dh[MEG_CELL_UNITS] = {0};
    for (int64_t s = l->steps - 1; s >= 0; s--) {
        int64_t t = meg_cell_time(l, s);
        meg_cell_before(l, MEG_Y, s, before);
        for (int64_t j = 0; j < l->units; j++)
            pull_unit(l, j, t, before[j], dh, d);
        meg_cell_pull(l, d, before, dh);
    }
    meg_cell_finish(l, 0, dh);
}

static void backward(const meg_call *c)
{
    meg_cell_backward(c, GATES, backward_sample);
}

MEG_KERNELS(gru) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    (void)g;
    return meg_cell_weights(v, GATES, out);
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    return meg_cell_infer(g, v, e, (const int[]){GATES, 1}, out);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g;
    return meg_cell_flops(v, GATES, w, p);
}

static void aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type)
{
    (void)g;
    meg_cell_aux(v, w, i == 0 ? GATES : 1, box, type);
}

static const meg_sample samples[] = {{"2x9x5", "units=3"},
                                     {"3x6x4", "units=2 reverse=1"},
                                     {"2x20x6", "units=5 states=1"},
                                     {"1x3x1", "units=1 bias=0"},
                                     {"2x16x3", "units=4 reverse=1 bias=0 states=1"},
                                     {0}};

const meg_op meg_op_gru = {
    .name = "gru",
    .onnx = "GRU",
    .doc = "gated recurrent unit over steps: gates (n, 3 units, steps), one layer, one direction",
    .paper = "Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014",
    .params = meg_cell_params,
    .attr_bytes = sizeof(meg_cell_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = meg_cell_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_CELL_X,
              [MEG_BACKWARD] = MEG_CELL_X | MEG_CELL_KEPT | MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MEG_CELL_KEPT, [MEG_BACKWARD] = MEG_CELL_DX},
    .auxes = 2,
    .aux = aux,
    .grain = meg_cell_grain,
    MEG_KERNELS_OF(gru),
    .samples = samples,
};

#endif
