/* Long short-term memory, one layer in one direction (recurrent.h), its gates in PyTorch's order i, f, g, o:
 *
 *     i, f, o = sigmoid(a_i, a_f, a_o),  g = tanh(a_g)
 *     c(t) = f c(t-1) + i g,  h(t) = o tanh(c(t))
 *
 * States: h, c. Kept for backward: i, f, g, o (aux 0) and c (aux 1) of all steps.
 */
#include "ops/matrix/recurrent.h"

enum {
    I,
    F,
    G,
    O,
    GATES
};

static void forward_sample(const meg_cell *l)
{
    double h[MEG_CELL_UNITS], c[MEG_CELL_UNITS], a[GATES * MEG_CELL_UNITS];
    int64_t u = l->units;
    meg_cell_start(l, 0, h);
    meg_cell_start(l, 1, c);
    for (int64_t s = 0; s < l->steps; s++) {
        int64_t t = meg_cell_time(l, s);
        meg_cell_push(l, h, a);
        for (int64_t j = 0; j < u; j++) {
            double gate[GATES];
            for (int k = 0; k < GATES; k++) {
                double sum = a[k * u + j] + (double)*meg_cell_at(l, MEG_X, k * u + j, t);
                gate[k] = k == G ? tanh(sum) : meg_cell_sigmoid(sum);
                *meg_cell_at(l, MEG_AUX, k * u + j, t) = (real)gate[k];
            }
            c[j] = gate[F] * c[j] + gate[I] * gate[G];
            h[j] = gate[O] * tanh(c[j]);
            *meg_cell_at(l, MEG_AUX + 1, j, t) = (real)c[j];
            *meg_cell_at(l, MEG_Y, j, t) = (real)h[j];
        }
    }
}

static void forward(const meg_call *c)
{
    meg_cell_samples(c, GATES, forward_sample);
}

typedef struct behind { /* what comes from later steps */
    double h[MEG_CELL_UNITS], c[MEG_CELL_UNITS];
} behind;

/* The gradients d of the gates' sums of one step, of unit j; the cell's goes on to the step before. */
static void pull_unit(const meg_cell *l, int64_t j, int64_t t, double before, behind *b, double *d)
{
    int64_t u = l->units;
    double gate[GATES], bent = tanh((double)*meg_cell_at(l, MEG_AUX + 1, j, t));
    for (int k = 0; k < GATES; k++)
        gate[k] = (double)*meg_cell_at(l, MEG_AUX, k * u + j, t);
    double dh = (double)*meg_cell_at(l, MEG_DY, j, t) + b->h[j];
    double dc = b->c[j] + dh * gate[O] * (1 - bent * bent);
    d[I * u + j] = dc * gate[G] * gate[I] * (1 - gate[I]);
    d[F * u + j] = dc * before * gate[F] * (1 - gate[F]);
    d[G * u + j] = dc * gate[I] * (1 - gate[G] * gate[G]);
    d[O * u + j] = dh * bent * gate[O] * (1 - gate[O]);
    b->c[j] = dc * gate[F];
}

static void backward_sample(const meg_cell *l)
{
    behind b = {{0}, {0}};
    double d[GATES * MEG_CELL_UNITS], before[MEG_CELL_UNITS];
    for (int64_t s = l->steps - 1; s >= 0; s--) {
        int64_t t = meg_cell_time(l, s);
        meg_cell_before(l, MEG_AUX + 1, s, before);
        for (int64_t j = 0; j < l->units; j++)
            pull_unit(l, j, t, before[j], &b, d);
        for (int64_t k = 0; l->c->t[MEG_DX].data && k < GATES * l->units; k++)
            *meg_cell_at(l, MEG_DX, k, t) = (real)d[k];
        memset(b.h, 0, sizeof b.h);
        meg_cell_before(l, MEG_Y, s, before);
        meg_cell_pull(l, d, before, b.h);
    }
    meg_cell_finish(l, 0, b.h);
    meg_cell_finish(l, 1, b.c);
}

static void backward(const meg_call *c)
{
    meg_cell_backward(c, GATES, backward_sample);
}

MEG_KERNELS(lstm) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

#define AT(field) offsetof(meg_cell_attr, field)

const meg_param meg_cell_params[] = {
    {"units", MEG_PARAM_INT, AT(units), NULL, "features of the output", NULL, 1, MEG_CELL_UNITS},
    {"reverse", MEG_PARAM_BOOL, AT(reverse), "0", "from the last step to the first", NULL, 0, 0},
    {"bias", MEG_PARAM_BOOL, AT(bias), "1", "of the products with the state", NULL, 0, 0},
    {"states", MEG_PARAM_BOOL, AT(states), "0",
     "the input has first states behind its gates, at the step that comes first", NULL, 0, 0},
    {0}};

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    (void)g;
    return meg_cell_weights(v, GATES, out);
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    return meg_cell_infer(g, v, e, (const int[]){GATES, 2}, out);
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

static const meg_sample samples[] = {{"2x12x5", "units=3"},
                                     {"3x8x4", "units=2 reverse=1"},
                                     {"2x30x6", "units=5 states=1"},
                                     {"1x4x1", "units=1 bias=0"},
                                     {"2x24x3", "units=4 reverse=1 bias=0 states=1"},
                                     {0}};

const meg_op meg_op_lstm = {
    .name = "lstm",
    .onnx = "LSTM",
    .doc = "long short-term memory over steps: gates (n, 4 units, steps), one layer, one "
           "direction",
    .paper = "Hochreiter, Schmidhuber, Long short-term memory, Neural Computation 9, 1997",
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
    MEG_KERNELS_OF(lstm),
    .samples = samples,
};

#endif
