/* Normalisation inside a sample, for groupnorm, instancenorm and layernorm. The elements that share
 * mean and variance are a *set*:
 *
 *     x^ = (x - mean) / sqrt(var + epsilon), y = weight x^ + bias, rectified on request
 *
 *     groupnorm, instancenorm       some channels of a sample, all pixels
 *     layernorm axes=all            a sample
 *     layernorm axes=c              a pixel of a sample, all channels
 *
 * Kernels walk lines of elements along w. Neighbours on a line belong to the same set or, where
 * sets are pixels, to neighbouring ones: a step of 0 or 1 between them, and the same code serves
 * both. The variance is a second sum, and what is stored is what forward normalises with, as in
 * batchnorm. Sets stay whole where the fused operators are cut (grain); plans that cut pixels or
 * the channels of a set replace them by their phases: mean, var (cells.h), norm_sets, which share
 * the code here. Operands differ: the phase has mean and variance as inputs, in front of the weights.
 */
#ifndef MEG_OPS_NORM_SETNORM_H
#define MEG_OPS_NORM_SETNORM_H

#include "ops/attrs.h"
#include "ops/common/lines.h"

#include <math.h>

/* What the descriptors share. `infer` wants attr->width, pixels and elements set. */
int meg_setnorm_weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS]);
meg_status meg_setnorm_infer(const meg_graph *g, const meg_node *v, meg_error *e, meg_value *out);
meg_box meg_setnorm_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_setnorm_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);
int64_t meg_setnorm_grain(const meg_graph *g, const meg_node *v, int axis);
void meg_setnorm_aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                     meg_dtype *type);
int meg_setnorm_expand(meg_graph *g, const meg_node *v, const int in[]);
meg_box meg_setnorm_sets(const meg_node *v, meg_box part); /* that a part of x touches */
extern const meg_kernels meg_kernels_setnorm_f32, meg_kernels_setnorm_f64;

enum { /* masks of the fused operators' passes */
    MEG_SETNORM_AFFINE = 7 << MEG_X,
    MEG_SETNORM_MOMENTS = 3 << MEG_AUX,
    MEG_SETNORM_GRADIENTS = 7 << MEG_DX
};

#define MEG_SETNORM_FUSED                                                                          \
    .attr_bytes = sizeof(meg_setnorm_attr), .data_inputs = 1, .data_inputs_max = 1,                \
    .weights = meg_setnorm_weights, .need = meg_setnorm_need, .flops = meg_setnorm_flops,          \
    .reads = {[MEG_FORWARD] = MEG_SETNORM_AFFINE,                                                  \
              [MEG_REPLAY] = MEG_SETNORM_AFFINE | MEG_SETNORM_MOMENTS,                             \
              [MEG_BACKWARD] = MEG_SETNORM_AFFINE | MEG_SETNORM_MOMENTS | MEG_BIT(MEG_DY)},        \
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MEG_SETNORM_MOMENTS,                               \
               [MEG_REPLAY] = MEG_BIT(MEG_Y),                                                      \
               [MEG_BACKWARD] = MEG_SETNORM_GRADIENTS},                                            \
    .auxes = 2, .aux = meg_setnorm_aux, .cheap = true, .grain = meg_setnorm_grain,                 \
    .expand = meg_setnorm_expand, MEG_KERNELS_OF(setnorm)

/* Operands: the weight, behind the data inputs, then the bias; the mean, then the variance. */
static inline int meg_setnorm_weight(const meg_node *v)
{
    return MEG_X + v->op->data_inputs;
}

static inline int meg_setnorm_moments(const meg_node *v)
{
    return v->op->data_inputs == 1 ? MEG_AUX : MEG_X + 1;
}

/* ---- lines ---- */

/* What the kernels know of a line of elements. */
typedef struct meg_normed {
    const real *x;
    const real *weight, *bias; /* of the first element */
    int64_t count;             /* elements */
    int64_t set, affine;       /* steps from element to element: of sets; of weight and bias, */
    int64_t offset;            /* and of a bias that is there */
    bool relu;
    double mean[MEG_LINE], rate[MEG_LINE]; /* rate: 1 / sqrt(var + epsilon) */
} meg_normed;

static inline void meg_normed_open(const meg_call *c, const meg_box *line, meg_normed *k)
{
    static const real one = 1, zero = 0;
    const meg_setnorm_attr *a = c->node->attr;
    const meg_array *weight = &c->t[meg_setnorm_weight(c->node)], *bias = weight + 1;
    int64_t at[MEG_AXES] = {0, line->lo[MEG_C], 0, 0, 0};
    for (int i = MEG_D; i < MEG_AXES; i++)
        at[i] = a->elements ? line->lo[i] : 0;
    k->x = meg_real_at(&c->t[MEG_X], line->lo);
    k->weight = weight->data ? meg_real_at(weight, at) : &one;
    k->bias = bias->data ? meg_real_at(bias, at) : &zero;
    k->count = meg_extent(line, MEG_W);
    k->set = a->pixels;
    k->affine = a->elements && a->affine;
    k->offset = bias->data ? k->affine : 0;
    k->relu = a->relu;
}

/* Fetches the moments of the line's sets. */
static inline void meg_normed_load(const meg_call *c, const meg_box *line, meg_normed *k)
{
    const meg_setnorm_attr *a = c->node->attr;
    const meg_array *moments = &c->t[meg_setnorm_moments(c->node)];
    meg_box sets = meg_setnorm_sets(c->node, *line);
    const real *mean = meg_real_at(&moments[0], sets.lo), *var = meg_real_at(&moments[1], sets.lo);
    for (int64_t i = 0; i < (k->set ? k->count : 1); i++) {
        k->mean[i] = (double)mean[i];
        k->rate[i] = 1 / sqrt((double)var[i] + a->epsilon);
    }
}

static inline double meg_normed_hat(const meg_normed *k, int64_t i)
{
    return ((double)k->x[i] - k->mean[i * k->set]) * k->rate[i * k->set];
}

/* Before the rectifier: forward and backward must agree on its sign. */
static inline double meg_normed_value(const meg_normed *k, int64_t i)
{
    return meg_normed_hat(k, i) * (double)k->weight[i * k->affine] + (double)k->bias[i * k->offset];
}

static inline double meg_normed_gradient(const meg_normed *k, const real *dy, int64_t i)
{
    return k->relu && meg_normed_value(k, i) <= 0 ? 0 : (double)dy[i];
}

/* ---- both passes ---- */

/* The elements of a line of sets inside the work's box. */
static inline meg_box meg_sets_part(const meg_call *c, const meg_box *sets)
{
    const meg_setnorm_attr *a = c->node->attr;
    meg_box part = a->pixels ? *sets : c->work.out;
    part.lo[MEG_N] = sets->lo[MEG_N], part.hi[MEG_N] = sets->hi[MEG_N];
    part.lo[MEG_C] = sets->lo[MEG_C] * a->width;
    part.hi[MEG_C] = part.lo[MEG_C] + a->width;
    return meg_box_meet(part, c->work.out);
}

static inline void meg_setnorm_apply(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_box lines = meg_lines(&c->work.out);
    meg_normed k;
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&c->work.out, p);
        real *y = meg_real_at(&c->t[MEG_Y], line.lo);
        meg_normed_open(c, &line, &k);
        meg_normed_load(c, &line, &k);
        for (int64_t i = 0; i < k.count; i++) {
            double value = meg_normed_value(&k, i);
            y[i] = (real)(k.relu && value < 0 ? 0 : value);
        }
    }
}

/* ---- backward ---- */

typedef struct meg_set_sums { /* of g = weight dy and of g x^, of each set */
    double g[MEG_LINE], dot[MEG_LINE];
} meg_set_sums;

static inline void meg_sets_reduce(const meg_call *c, const meg_box *part, meg_set_sums *sums)
{
    int64_t p[MEG_AXES];
    meg_box lines = meg_lines(part);
    meg_normed k;
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(part, p);
        const real *dy = meg_real_at(&c->t[MEG_DY], line.lo);
        meg_normed_open(c, &line, &k);
        meg_normed_load(c, &line, &k);
        for (int64_t i = 0; i < k.count; i++) {
            double g = (double)k.weight[i * k.affine] * meg_normed_gradient(&k, dy, i);
            sums->g[i * k.set] += g;
            sums->dot[i * k.set] += g * meg_normed_hat(&k, i);
        }
    }
}

/* dx = rate (g - mean of g - x^ mean of g x^), the means being given */
static inline void meg_sets_pull(const meg_call *c, const meg_box *part, const meg_set_sums *means)
{
    int64_t p[MEG_AXES];
    meg_box lines = meg_lines(part);
    meg_normed k;
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(part, p);
        const real *dy = meg_real_at(&c->t[MEG_DY], line.lo);
        real *dx = meg_real_at(&c->t[MEG_DX], line.lo);
        meg_normed_open(c, &line, &k);
        meg_normed_load(c, &line, &k);
        for (int64_t i = 0; i < k.count; i++) {
            int64_t s = i * k.set;
            double g = (double)k.weight[i * k.affine] * meg_normed_gradient(&k, dy, i);
            dx[i] = (real)(k.rate[s] * (g - means->g[s] - meg_normed_hat(&k, i) * means->dot[s]));
        }
    }
}

/* The gradients of a line of weights and biases: sums over the elements that they serve. */
static inline void meg_affine_sum(const meg_call *c, const meg_box *part, double weight[],
                                  double bias[])
{
    int64_t p[MEG_AXES];
    meg_box lines = meg_lines(part);
    meg_normed k;
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(part, p);
        const real *dy = meg_real_at(&c->t[MEG_DY], line.lo);
        meg_normed_open(c, &line, &k);
        meg_normed_load(c, &line, &k);
        for (int64_t i = 0; i < k.count; i++) {
            double g = meg_normed_gradient(&k, dy, i);
            weight[i * k.affine] += g * meg_normed_hat(&k, i);
            bias[i * k.affine] += g;
        }
    }
}

static inline void meg_setnorm_affine(const meg_call *c)
{
    int input = meg_setnorm_weight(c->node);
    const meg_array *dw = &c->t[MEG_DX + input], *db = dw + 1;
    const meg_setnorm_attr *a = c->node->attr;
    int64_t p[MEG_AXES];
    meg_box all = meg_setnorm_need(c->graph, c->node, input, &c->work);
    meg_box lines = meg_lines(&all);
    if (!dw->data && !db->data) return;
    meg_clear_beyond(dw, &all);
    meg_clear_beyond(db, &all);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        double weight[MEG_LINE] = {0}, bias[MEG_LINE] = {0};
        meg_box line = meg_line(&all, p), part = a->elements ? line : c->work.out;
        part.lo[MEG_N] = c->work.out.lo[MEG_N], part.hi[MEG_N] = c->work.out.hi[MEG_N];
        part.lo[MEG_C] = line.lo[MEG_C], part.hi[MEG_C] = line.hi[MEG_C];
        meg_affine_sum(c, &part, weight, bias);
        if (dw->data) meg_store_line(dw, &line, weight);
        if (db->data) meg_store_line(db, &line, bias);
    }
}

#endif
