/* Batch norm's arithmetic, for the fused operator (batchnorm) and the last of its phases (norm; mean
 * and var, which set norms share, go by cells.h).
 *
 *     x^ = (x - mean) / sqrt(var + epsilon), y = weight x^ + bias, rectified on request
 *
 * The mask of the rectifier is found again from x, by the very expression of forward. Samples form
 * groups of `norm`, the last one perhaps smaller; each has its own mean and variance:
 *
 *     norm=2:  n  0 1 | 2 3 | 4
 */
#ifndef MEG_OPS_NORM_NORM_H
#define MEG_OPS_NORM_NORM_H

#include "ops/attrs.h"
#include "ops/common/runs.h"

#include <math.h>

enum {
    MEG_NORM_WEIGHTS = 4
}; /* weight, bias, running_mean, running_var */

extern const meg_param meg_norm_params[]; /* of batchnorm and norm */

/* The weights of batchnorm and norm, and their check in `infer`. */
int meg_norm_weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS]);
meg_status meg_norm_check(const meg_graph *g, const meg_node *v, meg_error *e);

typedef struct meg_norm_groups {
    int64_t lo, hi; /* the samples */
    int64_t size, count;
} meg_norm_groups;

static inline meg_norm_groups meg_norm_groups_of(int64_t norm, int64_t lo, int64_t hi)
{
    int64_t size = norm > 0 && norm < hi - lo ? norm : hi - lo;
    return (meg_norm_groups){lo, hi, size, size > 0 ? (hi - lo + size - 1) / size : 0};
}

/* The groups of the whole value, for the phases. */
static inline meg_norm_groups meg_norm_groups_whole(const meg_graph *g, const meg_node *v)
{
    const meg_norm_attr *attr = v->attr;
    return meg_norm_groups_of(attr->norm, 0, g->value[v->in[0]].shape.hi[MEG_N]);
}

/* The elements of one group and one channel inside `all`. */
static inline meg_box meg_group_part(const meg_norm_groups *s, meg_box all, int64_t group,
                                     int64_t c)
{
    meg_box part = all;
    part.lo[MEG_N] = s->lo + group * s->size;
    part.hi[MEG_N] = part.lo[MEG_N] + s->size;
    part.lo[MEG_C] = c;
    part.hi[MEG_C] = c + 1;
    return meg_box_meet(part, all);
}

/* How many elements each channel of the group has in a box. */
static inline double meg_group_count(const meg_norm_groups *s, const meg_box *box, int64_t group)
{
    meg_box part = meg_group_part(s, *box, group, box->lo[MEG_C]);
    return (double)meg_box_size(&part);
}

typedef struct meg_normal { /* of one group and channel */
    double mean, rate;      /* rate: 1 / sqrt(var + epsilon) */
    real center, scale, bias;
    bool relu;
} meg_normal;

static inline meg_normal meg_normal_of(const meg_norm_attr *attr, const real moment[2], real weight,
                                       real bias)
{
    double rate = 1 / sqrt((double)moment[1] + attr->epsilon);
    return (meg_normal){.mean = (double)moment[0],
                        .rate = rate,
                        .center = moment[0],
                        .scale = (real)((double)weight * rate),
                        .bias = bias,
                        .relu = attr->relu};
}

static inline bool meg_normal_blocks(const meg_normal *k, real x)
{
    return k->relu && (x - k->center) * k->scale + k->bias <= 0;
}

/* y = f(x) over the part */
static inline void meg_normal_apply(const meg_normal *k, const meg_array *y, const meg_array *x,
                                    meg_box part)
{
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(part, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++) {
            real value = (from[i] - k->center) * k->scale + k->bias;
            to[i] = k->relu && value < 0 ? 0 : value;
        }
    }
}

typedef struct meg_normal_sums {
    double dy, dot; /* sum of dy, sum of dy x^, both behind the rectifier */
} meg_normal_sums;

static inline meg_normal_sums meg_normal_reduce(const meg_normal *k, const meg_array *dy,
                                                const meg_array *x, meg_box part)
{
    int64_t p[MEG_AXES];
    meg_normal_sums sums = {0, 0};
    meg_runs r = meg_runs_of(part, 2, (const meg_array *[]){x, dy});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *at = meg_real_at(x, p), *from = meg_real_at(dy, p);
        for (int64_t i = 0; i < r.length; i++) {
            double d = meg_normal_blocks(k, at[i]) ? 0 : (double)from[i];
            sums.dy += d;
            sums.dot += d * ((double)at[i] - k->mean);
        }
    }
    sums.dot *= k->rate;
    return sums;
}

/* dx = weight rate (dy - less.dy - less.dot x^) over the part of t = {dx, dy, x}. The phases, which
 * leave the detour over mean and variance to these nodes, pass less = {0, 0}. */
static inline void meg_normal_pull(const meg_normal *k, meg_normal_sums less,
                                   const meg_array *const t[3], meg_box part)
{
    int64_t p[MEG_AXES];
    real mean = (real)less.dy, slope = (real)(less.dot * k->rate);
    meg_runs r = meg_runs_of(part, 3, t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(t[0], p);
        const real *from = meg_real_at(t[1], p), *at = meg_real_at(t[2], p);
        for (int64_t i = 0; i < r.length; i++) {
            real d = meg_normal_blocks(k, at[i]) ? 0 : from[i];
            to[i] = k->scale * (d - mean - (at[i] - k->center) * slope);
        }
    }
}

/* The running statistics follow the groups of a step one by one, r <- (1 - m) r + m x. Over the
 * whole step, of G groups, that is a sum, to which every rank may add its own groups in any order:
 *
 *     r <- (1 - m)^G r + sum over g of m (1 - m)^(G - 1 - g) x[g]
 *
 * Who has group 0 also has the first term; the others begin with 0. */
typedef struct meg_running {
    double decay, share; /* of what was there, of the group */
} meg_running;

/* `group` counts from sample 0 of the graph. */
static inline meg_running meg_running_of(const meg_call *c, int64_t group)
{
    const meg_norm_attr *attr = c->node->attr;
    int64_t size = c->graph->value[c->node->in[0]].shape.hi[MEG_N];
    int64_t each = meg_norm_groups_whole(c->graph, c->node).count;
    bool many = c->moment.samples;
    int64_t all = many ? c->moment.samples / size * each : each;
    int64_t g = many ? c->moment.sample / size * each + group : group;
    double keep = 1 - attr->momentum;
    return (meg_running){g == 0 ? pow(keep, (double)all) : 1,
                         attr->momentum * pow(keep, (double)(all - 1 - g))};
}

/* Adds a group of `count` elements to the running statistics of a channel. */
static inline void meg_running_update(const meg_norm_attr *attr, meg_running s,
                                      const real moment[2], double count, real *const running[2])
{
    bool unbiased = attr->variance == 0 && count > 1;
    double batch[2] = {(double)moment[0], (double)moment[1] * (unbiased ? count / (count - 1) : 1)};
    for (int i = 0; i < 2; i++)
        *running[i] = (real)(s.decay * (double)*running[i] + s.share * batch[i]);
}

#endif
