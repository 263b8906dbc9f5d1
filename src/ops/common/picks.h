/* Picks: outputs that are each one input, chosen axis by axis. Slice, pad and roll are such.
 *
 *     q = begin + p * step          the input index that output p reads along an axis
 *     beyond the input              a constant; or the mirror image, the edge, the other end
 *
 * `infer` resolves what the user wrote into one pick per axis of the index space; need, forward and
 * backward follow from these.
 */
#ifndef MEG_OPS_COMMON_PICKS_H
#define MEG_OPS_COMMON_PICKS_H

#include "ops/attrs.h"
#include "ops/common/lines.h"

static inline int64_t meg_pick_at(const meg_pick *k, int64_t p) /* -1: the constant */
{
    int64_t q = k->begin + p * k->step, last = k->length - 1;
    if (q >= 0 && q <= last) return q;
    if (k->beyond == MEG_BEYOND_CONSTANT) return -1;
    if (k->beyond == MEG_BEYOND_EDGE) return q < 0 ? 0 : last;
    if (k->beyond == MEG_BEYOND_WRAP) return (q % k->length + k->length) % k->length;
    return q < 0 ? -q : 2 * last - q;
}

/* All of x, picked as it is. */
static inline void meg_picks_same(meg_picks *k, const meg_box *x)
{
    *k = (meg_picks){0};
    for (int a = 0; a < MEG_AXES; a++)
        k->at[a] = (meg_pick){.step = 1, .length = x->hi[a]};
}

/* The inputs around all that outputs lo to hi pick; none if that is nothing but the constant. Between two
 * outputs that are both inside, before or behind the input picks go one way, so that only the ends of
 * these stretches count. */
static inline void meg_pick_need(const meg_pick *k, int64_t lo, int64_t hi, meg_box *in, int axis)
{
    int64_t last = k->length - 1;
    int64_t inside = k->begin < 0 ? (-k->begin + k->step - 1) / k->step : 0; /* the first one */
    int64_t behind = last < k->begin ? 0 : (last - k->begin) / k->step + 1;
    int64_t end[] = {lo, inside - 1, inside, behind - 1, behind, hi - 1};
    for (int i = 0; i < 6; i++) {
        int64_t q = end[i] < lo || end[i] >= hi ? -1 : meg_pick_at(k, end[i]);
        if (q < 0) continue;
        bool first = in->lo[axis] == in->hi[axis];
        if (first || q < in->lo[axis]) in->lo[axis] = q;
        if (first || q >= in->hi[axis]) in->hi[axis] = q + 1;
    }
}

/* The smallest box around all that the work picks; empty if that is nothing but the constant. */
static inline meg_box meg_picks_need(const meg_picks *k, const meg_box *out)
{
    meg_box in = meg_box_of(0, 0, 0, 0, 0);
    for (int a = 0; a < MEG_AXES; a++)
        meg_pick_need(&k->at[a], out->lo[a], out->hi[a], &in, a);
    return in;
}

/* The part of a row of outputs, lo to hi, that picks inputs; around it is only the constant. */
static inline void meg_pick_inside(const meg_pick *k, int64_t *lo, int64_t *hi)
{
    while (*lo < *hi && meg_pick_at(k, *lo) < 0)
        (*lo)++;
    while (*lo < *hi && meg_pick_at(k, *hi - 1) < 0)
        (*hi)--;
}

/* What output p picks; false: the constant. */
static inline bool meg_picks_at(const meg_picks *k, const int64_t p[MEG_AXES], int64_t q[MEG_AXES])
{
    for (int a = 0; a < MEG_AXES; a++) {
        q[a] = meg_pick_at(&k->at[a], p[a]);
        if (q[a] < 0) return false;
    }
    return true;
}

/* Outputs y from index lo to hi along w; x is what the first of them picks. */
static inline void meg_pick_row(const meg_pick *w, real *x, real *y, int64_t lo, int64_t hi)
{
    int64_t first = meg_pick_at(w, lo);
    for (int64_t p = lo; p < hi; p++)
        y[p - lo] = x[meg_pick_at(w, p) - first];
}

static inline void meg_pick_row_back(const meg_pick *w, real *x, real *y, int64_t lo, int64_t hi)
{
    int64_t first = meg_pick_at(w, lo);
    for (int64_t p = lo; p < hi; p++)
        x[meg_pick_at(w, p) - first] += y[p - lo];
}

/* Copies inputs to the outputs that pick them; `back`, adds the outputs' gradients to theirs. */
static inline void meg_picks_walk(const meg_call *c, const meg_picks *k, bool back)
{
    const meg_array *x = &c->t[back ? MEG_DX : MEG_X], *y = &c->t[back ? MEG_DY : MEG_Y];
    const meg_pick *w = &k->at[MEG_W];
    meg_box rows = c->work.out;
    int64_t p[MEG_AXES], q[MEG_AXES], lo = rows.lo[MEG_W], hi = rows.hi[MEG_W];
    meg_pick_inside(w, &lo, &hi);
    if (lo >= hi) return;
    rows.lo[MEG_W] = lo, rows.hi[MEG_W] = lo + 1;
    for (bool on = meg_box_first(&rows, p); on; on = meg_box_next(&rows, p))
        if (meg_picks_at(k, p, q))
            (back ? meg_pick_row_back : meg_pick_row)(w, meg_real_at(x, q), meg_real_at(y, p), lo,
                                                      hi);
}

#endif
