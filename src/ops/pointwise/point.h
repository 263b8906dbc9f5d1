/* Operators of one input that work point by point: what their files have in common.
 *
 *     y = f(x)                 dx = pull(x or y, dy)
 *
 * Numbers are computed in double and rounded once. Output may lie on the input, and dx on dy: an
 * element is read before it is written. NaN must pass: an element that nobody wrote must show.
 */
#ifndef MEG_OPS_POINTWISE_POINT_H
#define MEG_OPS_POINTWISE_POINT_H

#include "ops/attrs.h"
#include "ops/common/runs.h"
#include "ops/common/shape.h"

#include <math.h>

/* The output has the shape of the real input. */
meg_status meg_point_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS]);

/* Of those whose backward needs the output alone, and whose forward takes an exponential. */
double meg_squash_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);
extern const meg_sample meg_squash_samples[];

#define MEG_SQUASH_FIELDS                                                                          \
    .data_inputs = 1, .data_inputs_max = 1, .infer = meg_point_infer, .need = meg_need_same,       \
    .flops = meg_squash_flops, .cheap = true, .overwrites = true, .samples = meg_squash_samples,   \
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_DY)},  \
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)}

typedef double meg_point(const void *attr, double x);
typedef double meg_point_pull(const void *attr, double at, double dy);

static inline void meg_point_forward(const meg_call *c, meg_point *f)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    meg_clear_beyond(y, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 2, (const meg_array *[]){x, y});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)f(c->node->attr, (double)from[i]);
    }
}

/* `at`: MEG_X or MEG_Y, where the derivative is taken from */
static inline void meg_point_backward(const meg_call *c, int at, meg_point_pull *pull)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[at], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 3, (const meg_array *[]){x, dy, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *here = meg_real_at(x, p), *from = meg_real_at(dy, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)pull(c->node->attr, (double)here[i], (double)from[i]);
    }
}

#endif
