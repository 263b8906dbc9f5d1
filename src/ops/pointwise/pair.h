/* Operators of two inputs (add: of up to 8) that work point by point: what their files have in
 * common.
 *
 *     y = f(a, b)       a: the shape of y;  b: along each axis the extent of y, or 1
 *
 * Where b has extent 1 it is spread: every index reads its only one, and its gradient is a sum over
 * the axis, so it is partial wherever that axis is cut. Per channel, per sample and scalar are
 * such. Numbers are computed in double and rounded once. Output may lie on a, and da on dy: db,
 * which reads dy too, is made first.
 */
#ifndef MEG_OPS_POINTWISE_PAIR_H
#define MEG_OPS_POINTWISE_PAIR_H

#include "ops/common/lines.h"
#include "ops/common/shape.h"

/* Whether input `i` may be spread over the first. */
meg_status meg_pair_fits(const meg_graph *g, const meg_node *v, meg_error *e, int i);
meg_status meg_pair_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS]);
meg_box meg_pair_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_pair_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

typedef double meg_pair(double a, double b);
typedef double meg_pair_pull(double dy, double x, double b); /* x: a, or y, or nothing */

/* Input `i` along an axis: its extent is 1, that of y is not. */
static inline bool meg_pair_spread(const meg_call *c, int i, int axis)
{
    const meg_box *y = &c->graph->value[c->node->out[0]].shape;
    return c->graph->value[c->node->in[i]].shape.hi[axis] == 1 && y->hi[axis] > 1;
}

/* Runs as in runs.h; within one, input b moves along (step 1) or stays (step 0). */
typedef struct meg_pair_runs {
    meg_box starts;
    int64_t length, step;
} meg_pair_runs;

static inline bool meg_same_axis(const meg_box *a, const meg_box *b, int axis)
{
    return a->lo[axis] == b->lo[axis] && a->hi[axis] == b->hi[axis];
}

/* `t`: tensors over the outputs, some of them absent; ends with NULL */
static inline meg_pair_runs meg_pair_runs_of(const meg_call *c, int input,
                                             const meg_array *const t[])
{
    const meg_box *part = &c->work.out;
    const meg_array *b = &c->t[MEG_X + input];
    meg_pair_runs r = {*part, 1, 0};
    if (meg_box_empty(part)) return r;
    for (int a = MEG_W; a >= 0; a--) {
        bool spread = meg_pair_spread(c, input, a), last = false;
        if (meg_extent(part, a) > 1) {
            if (r.length > 1 && r.step == spread) return r;
            r.step = !spread;
        }
        r.length *= meg_extent(part, a);
        r.starts.hi[a] = part->lo[a] + 1;
        for (int i = 0; t[i]; i++)
            last = last || (t[i]->data && !meg_same_axis(&t[i]->box, part, a));
        if (last || (b->data && !spread && !meg_same_axis(&b->box, part, a))) return r;
    }
    return r;
}

/* Where input `i` is read for output p; NULL if this pass does not have it. */
static inline const real *meg_pair_input(const meg_call *c, int i, const int64_t p[MEG_AXES])
{
    int64_t q[MEG_AXES];
    if (!c->t[MEG_X + i].data) return NULL;
    for (int a = 0; a < MEG_AXES; a++)
        q[a] = meg_pair_spread(c, i, a) ? 0 : p[a];
    return meg_real_at(&c->t[MEG_X + i], q);
}

static inline const real *meg_pair_at(const meg_array *t, const int64_t p[MEG_AXES])
{
    return t->data ? meg_real_at(t, p) : NULL;
}

static inline double meg_or_zero(const real *x, int64_t i)
{
    return x ? (double)x[i] : 0;
}

static inline void meg_pair_forward(const meg_call *c, meg_pair *f)
{
    int64_t p[MEG_AXES];
    const meg_array *a = &c->t[MEG_X], *y = &c->t[MEG_Y];
    meg_clear_beyond(y, &c->work.out);
    meg_pair_runs r = meg_pair_runs_of(c, 1, (const meg_array *[]){a, y, NULL});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(a, p), *b = meg_pair_input(c, 1, p);
        real *to = meg_real_at(y, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)f((double)from[i], (double)b[i * r.step]);
    }
}

/* da = pull(dy, x, b) */
static inline void meg_pair_first(const meg_call *c, const meg_array *x, meg_pair_pull *pull)
{
    int64_t p[MEG_AXES];
    const meg_array *dy = &c->t[MEG_DY], *da = &c->t[MEG_DX];
    if (!da->data) return;
    meg_clear_beyond(da, &c->work.out);
    meg_pair_runs r = meg_pair_runs_of(c, 1, (const meg_array *[]){dy, da, x, NULL});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(dy, p), *at = meg_pair_at(x, p),
                   *b = meg_pair_input(c, 1, p);
        real *to = meg_real_at(da, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = (real)pull((double)from[i], meg_or_zero(at, i), meg_or_zero(b, i * r.step));
    }
}

/* The outputs that read a line of an input, as one start per row along w. */
static inline meg_box meg_pair_rows(const meg_call *c, int i, const meg_box *line)
{
    meg_box rows = *line;
    for (int a = 0; a < MEG_W; a++)
        if (meg_pair_spread(c, i, a))
            rows.lo[a] = c->work.out.lo[a], rows.hi[a] = c->work.out.hi[a];
    if (meg_pair_spread(c, i, MEG_W)) rows.lo[MEG_W] = c->work.out.lo[MEG_W];
    rows.hi[MEG_W] = rows.lo[MEG_W] + 1;
    return rows;
}

/* db = sum over what is spread of pull(dy, x, b), b being input `i` */
static inline void meg_pair_other(const meg_call *c, int i, const meg_array *x, meg_pair_pull *pull)
{
    int64_t p[MEG_AXES], q[MEG_AXES];
    const meg_array *dy = &c->t[MEG_DY], *db = &c->t[MEG_DX + i];
    if (!db->data) return;
    meg_box part = meg_pair_need(c->graph, c->node, i, &c->work), lines = meg_lines(&part);
    bool spread = meg_pair_spread(c, i, MEG_W);
    meg_clear_beyond(db, &part);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&part, p), rows = meg_pair_rows(c, i, &line);
        double sum[MEG_LINE] = {0};
        int64_t length = spread ? meg_extent(&c->work.out, MEG_W) : meg_extent(&line, MEG_W);
        for (bool go = meg_box_first(&rows, q); go; go = meg_box_next(&rows, q)) {
            const real *from = meg_real_at(dy, q), *at = meg_pair_at(x, q);
            const real *b = meg_pair_input(c, i, q);
            for (int64_t k = 0; k < length; k++)
                sum[spread ? 0 : k] += pull((double)from[k], meg_or_zero(at, k),
                                            meg_or_zero(b, spread ? 0 : k));
        }
        meg_store_line(db, &line, sum);
    }
}

#endif
