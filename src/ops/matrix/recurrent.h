/* Recurrent cells, lstm and gru: what they share.
 *
 *     a(t) = x(t) + weight h(t-1) + bias          x: (n, gates * units on c, steps on w)
 *     h(t) = cell(a(t), h(t-1), ..)               y: (n, units on c, steps on w), all h
 *
 * x is what the input adds to the gates, for all steps at once: a dense layer before the cell, and so one large
 * product. The cell itself goes from step to step, so channels and steps cannot be cut; samples can. With
 * `reverse` it goes from the last step to the first. It begins with states of zeros or, with `states`, with those
 * that x has behind its gates, at the first step that is taken; what is there at other steps is not looked at.
 *
 * Inputs: x, weight (gates * units, units)[, bias (gates * units)]. Backward makes all gradients in one walk over
 * the steps.
 */
#ifndef MEG_OPS_MATRIX_RECURRENT_H
#define MEG_OPS_MATRIX_RECURRENT_H

#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <inttypes.h>
#include <math.h>

enum {
    MEG_CELL_UNITS = 2048, /* so that what a step needs fits on the stack */
    MEG_CELL_GATES = 4
};

typedef struct meg_cell_attr { /* lstm, gru */
    int64_t units;
    bool reverse, bias, states;
} meg_cell_attr;

typedef struct meg_cell { /* one sample of a call */
    const meg_call *c;
    int64_t n, units, steps;
    int gates;
    bool bias, reverse, states;
} meg_cell;

enum {
    MEG_CELL_WEIGHT = MEG_X + 1,
    MEG_CELL_BIAS
};

static inline meg_cell meg_cell_of(const meg_call *c, int gates, int64_t n)
{
    const meg_cell_attr *a = c->node->attr;
    int64_t steps = c->graph->value[c->node->in[0]].shape.hi[MEG_W];
    return (meg_cell){c, n, a->units, steps, gates, a->bias, a->reverse, a->states};
}

static inline int64_t meg_cell_time(const meg_cell *l, int64_t s)
{
    return l->reverse ? l->steps - 1 - s : s;
}

/* Channel c of an operand at a step; a state has one step. */
static inline real *meg_cell_at(const meg_cell *l, int operand, int64_t c, int64_t t)
{
    return meg_real_at(&l->c->t[operand], (const int64_t[MEG_AXES]){l->n, c, 0, 0, t});
}

static inline const real *meg_cell_row(const meg_cell *l, int64_t k)
{
    return meg_channel_at(&l->c->t[MEG_CELL_WEIGHT], k, 0);
}

/* State i before the first step. */
static inline void meg_cell_start(const meg_cell *l, int i, double *state)
{
    int64_t first = (l->gates + i) * l->units, t = meg_cell_time(l, 0);
    for (int64_t j = 0; j < l->units; j++)
        state[j] = l->states ? (double)*meg_cell_at(l, MEG_X, first + j, t) : 0;
}

/* out(k) = bias(k) + sum over j of weight(k, j) h(j) */
static inline void meg_cell_push(const meg_cell *l, const double *h, double *out)
{
    for (int64_t k = 0; k < l->gates * l->units; k++) {
        const real *row = meg_cell_row(l, k);
        double sum[2] = {l->bias ? (double)*meg_channel_at(&l->c->t[MEG_CELL_BIAS], 0, k) : 0, 0};
        for (int64_t j = 0; j < l->units; j++)
            sum[j & 1] += (double)row[j] * h[j];
        out[k] = sum[0] + sum[1];
    }
}

/* What a step sends back by its gradients d of the products: adds to those of weight and bias, and to that of
 * the state before it. h may be NULL: it was zero. */
static inline void meg_cell_pull(const meg_cell *l, const double *d, const double *h, double *dh)
{
    const meg_array *dw = &l->c->t[MEG_DX + MEG_CELL_WEIGHT], *db = dw + 1;
    for (int64_t k = 0; k < l->gates * l->units; k++) {
        const real *row = meg_cell_row(l, k);
        real *own = dw->data ? meg_channel_at(dw, k, 0) : NULL;
        for (int64_t j = 0; j < l->units; j++)
            dh[j] += d[k] * (double)row[j];
        for (int64_t j = 0; own && h && j < l->units; j++)
            own[j] = (real)((double)own[j] + d[k] * h[j]);
        if (l->bias && db->data) {
            real *at = meg_channel_at(db, 0, k);
            *at = (real)((double)*at + d[k]);
        }
    }
}

/* h before step s: the output of the step before, or what the walk began with. */
static inline void meg_cell_before(const meg_cell *l, int operand, int64_t s, double *h)
{
    if (s == 0) {
        meg_cell_start(l, operand == MEG_Y ? 0 : 1, h);
        return;
    }
    for (int64_t j = 0; j < l->units; j++)
        h[j] = (double)*meg_cell_at(l, operand, j, meg_cell_time(l, s - 1));
}

/* The gradient of state i before the first step. */
static inline void meg_cell_finish(const meg_cell *l, int i, const double *d)
{
    int64_t first = (l->gates + i) * l->units, t = meg_cell_time(l, 0);
    if (!l->states || !l->c->t[MEG_DX].data) return;
    for (int64_t j = 0; j < l->units; j++)
        *meg_cell_at(l, MEG_DX, first + j, t) = (real)d[j];
}

typedef void meg_cell_fn(const meg_cell *l);

static inline void meg_cell_samples(const meg_call *c, int gates, meg_cell_fn *run)
{
    for (int64_t n = c->work.out.lo[MEG_N]; n < c->work.out.hi[MEG_N]; n++) {
        meg_cell l = meg_cell_of(c, gates, n);
        run(&l);
    }
}

static inline void meg_cell_backward(const meg_call *c, int gates, meg_cell_fn *run)
{
    for (int i = 0; i < c->node->inputs; i++)
        if (c->t[MEG_DX + i].data) meg_zero(&c->t[MEG_DX + i]);
    meg_cell_samples(c, gates, run);
}

static inline double meg_cell_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#ifndef MEG_F64

extern const meg_param meg_cell_params[]; /* of both: lstm.c */

static inline int meg_cell_weights(const meg_node *v, int gates, meg_weight_spec out[MEG_INPUTS])
{
    const meg_cell_attr *a = v->attr;
    int64_t rows = gates * a->units;
    double bound = 1 / sqrt((double)a->units); /* as PyTorch begins */
    out[0] = (meg_weight_spec){.suffix = "weight_hh",
                               .kind = MEG_PARAMETER,
                               .shape = meg_box_of(rows, a->units, 1, 1, 1),
                               .rank = 2,
                               .dims = {rows, a->units},
                               .start = MEG_UNIFORM,
                               .bound = bound};
    out[1] = (meg_weight_spec){.suffix = "bias_hh",
                               .kind = MEG_PARAMETER,
                               .shape = meg_box_of(1, rows, 1, 1, 1),
                               .rank = 1,
                               .dims = {rows},
                               .start = MEG_UNIFORM,
                               .bound = bound};
    return 1 + a->bias;
}

/* form: gates, states */
static inline meg_status meg_cell_infer(meg_graph *g, meg_node *v, meg_error *e, const int form[2],
                                        meg_value *out)
{
    const meg_cell_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    int64_t parts = form[0] + (a->states ? form[1] : 0);
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, x->rank == 3 && x->dims[1] == parts * a->units, MEG_EARG,
              "%s: '%s' of rank %d has %" PRId64 " features: %s with units=%" PRId64
              " states=%d wants (n, %" PRId64 ", steps): its %d gates%s",
              v->name, x->name, x->rank, x->rank > 1 ? x->dims[1] : 1, v->op->name, a->units,
              a->states, parts * a->units, form[0], a->states ? ", then its states" : "");
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_dims(out, 3, (const int64_t[]){x->dims[0], a->units, x->dims[2]});
    return MEG_OK;
}

/* Samples of the work, and of data all else. */
static inline meg_box meg_cell_need(const meg_graph *g, const meg_node *v, int input,
                                    const meg_work *w)
{
    meg_box in = g->value[v->in[input]].shape;
    if (input > 0) return in;
    in.lo[MEG_N] = w->out.lo[MEG_N], in.hi[MEG_N] = w->out.hi[MEG_N];
    return in;
}

static inline double meg_cell_flops(const meg_node *v, int gates, const meg_work *w, meg_pass p)
{
    double units = (double)((const meg_cell_attr *)v->attr)->units;
    return (p == MEG_BACKWARD ? 2 : 1) * (2 * gates * units + 10 * gates) *
           (double)meg_box_size(&w->out);
}

/* Samples only. */
static inline int64_t meg_cell_grain(const meg_graph *g, const meg_node *v, int axis)
{
    (void)g, (void)v;
    return axis == MEG_N;
}

/* What backward wants of each step: `count` numbers for each unit. */
static inline void meg_cell_aux(const meg_node *v, const meg_work *w, int count, meg_box *box,
                                meg_dtype *type)
{
    *box = w->out;
    box->hi[MEG_C] = count * ((const meg_cell_attr *)v->attr)->units;
    *type = MEG_F32;
}

enum {
    MEG_CELL_X = MEG_BIT(MEG_X) | MEG_BIT(MEG_CELL_WEIGHT) | MEG_BIT(MEG_CELL_BIAS),
    MEG_CELL_DX = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + MEG_CELL_WEIGHT) |
                  MEG_BIT(MEG_DX + MEG_CELL_BIAS),
    MEG_CELL_KEPT = MEG_BIT(MEG_AUX) | MEG_BIT(MEG_AUX + 1)
};

#endif
#endif
