/* Spans: what resize and adaptive average pooling share. Both are weighted sums over a few pixels
 * in a row along each axis, and the axes do not mix:
 *
 *     y(p) = sum of weight_d(q_d) weight_h(q_h) weight_w(q_w) x(q),  q in the spans of p
 *
 * Spans move on as p does, never back. So what a box of outputs reads is told by its first and last
 * output, and the outputs that read a pixel lie side by side: backward gathers.
 */
#ifndef MEG_OPS_COMMON_SPANS_H
#define MEG_OPS_COMMON_SPANS_H

#include "ops/attrs.h"
#include "ops/common/lines.h"

typedef struct meg_span { /* pixels lo .. hi-1 */
    int64_t lo, hi;
    double first, rest; /* weight of pixel lo; of each of the others */
    bool cubic;         /* or, instead, of each of them: */
    double each[4];
} meg_span;

meg_span meg_span_of(const meg_spans *s, int64_t p);

/* Where the outputs that read pixel q begin and end: the first of lo .. hi-1 whose span has not
 * ended before q; the first whose span begins behind q; hi if there is none. */
int64_t meg_span_reaching(const meg_spans *s, int64_t q, int64_t lo, int64_t hi);
int64_t meg_span_beyond(const meg_spans *s, int64_t q, int64_t lo, int64_t hi);

/* need and flops of the operators with meg_resize_attr; the shape of their output. */
meg_box meg_spans_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_spans_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);
void meg_spans_output(const meg_value *x, const meg_spans s[MEG_SPACE], meg_value *y);

/* Neutral spans for axes that x has not; x must have spatial ones, and `size`, if given, fit them:
 * then sets extents. */
meg_status meg_spans_open(meg_error *e, const meg_node *v, const meg_value *x);

static inline double meg_span_weight(const meg_span *s, int64_t q)
{
    if (s->cubic) return s->each[q - s->lo];
    return q == s->lo ? s->first : s->rest;
}

/* ---- kernels ---- */

/* One line of outputs, whose spans along w are given. */
static inline void meg_spans_forward_line(const meg_call *c, const meg_box *line,
                                          const meg_span w[], double *sum)
{
    const meg_resize_attr *a = c->node->attr;
    const meg_array *x = &c->t[MEG_X];
    meg_span d = meg_span_of(&a->spans[0], line->lo[MEG_D]);
    meg_span h = meg_span_of(&a->spans[1], line->lo[MEG_H]);
    for (int64_t i = d.lo; i < d.hi; i++)
        for (int64_t j = h.lo; j < h.hi; j++) {
            int64_t at[] = {line->lo[MEG_N], line->lo[MEG_C], i, j, w[0].lo};
            double share = meg_span_weight(&d, i) * meg_span_weight(&h, j);
            const real *row = meg_real_at(x, at);
            for (int64_t k = 0; k < meg_extent(line, MEG_W); k++)
                for (int64_t q = w[k].lo; q < w[k].hi; q++)
                    sum[k] += share * meg_span_weight(&w[k], q) * (double)row[q - w[0].lo];
        }
}

static inline void meg_spans_forward(const meg_call *c)
{
    const meg_resize_attr *a = c->node->attr;
    meg_box lines = meg_lines(&c->work.out);
    int64_t p[MEG_AXES];
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        double sum[MEG_LINE] = {0};
        meg_span w[MEG_LINE];
        meg_box line = meg_line(&c->work.out, p);
        for (int64_t i = 0; i < meg_extent(&line, MEG_W); i++)
            w[i] = meg_span_of(&a->spans[2], line.lo[MEG_W] + i);
        meg_spans_forward_line(c, &line, w, sum);
        meg_store_line(&c->t[MEG_Y], &line, sum);
    }
}

/* A row of outputs `at`, of which the first `count` read pixels of the line. */
static inline void meg_spans_pull_row(const meg_call *c, const meg_box *line,
                                      const int64_t at[MEG_AXES], int64_t count, double *sum)
{
    const meg_resize_attr *a = c->node->attr;
    const real *dy = meg_real_at(&c->t[MEG_DY], at);
    meg_span d = meg_span_of(&a->spans[0], at[MEG_D]), h = meg_span_of(&a->spans[1], at[MEG_H]);
    double share = meg_span_weight(&d, line->lo[MEG_D]) * meg_span_weight(&h, line->lo[MEG_H]);
    for (int64_t i = 0; i < count; i++) {
        meg_span w = meg_span_of(&a->spans[2], at[MEG_W] + i);
        int64_t lo = w.lo > line->lo[MEG_W] ? w.lo : line->lo[MEG_W];
        int64_t hi = w.hi < line->hi[MEG_W] ? w.hi : line->hi[MEG_W];
        for (int64_t q = lo; q < hi; q++)
            sum[q - line->lo[MEG_W]] += share * meg_span_weight(&w, q) * (double)dy[i];
    }
}

/* One line of pixels: the outputs of the work that read them. */
static inline void meg_spans_backward_line(const meg_call *c, const meg_box *line, double *sum)
{
    const meg_resize_attr *a = c->node->attr;
    const meg_box *out = &c->work.out;
    int64_t n = line->lo[MEG_N], ch = line->lo[MEG_C], p[MEG_AXES];
    if (n < out->lo[MEG_N] || n >= out->hi[MEG_N]) return;
    if (ch < out->lo[MEG_C] || ch >= out->hi[MEG_C]) return;
    meg_box hit = *line;
    for (int i = 0; i < MEG_SPACE; i++) {
        int x = MEG_D + i;
        const meg_spans *s = &a->spans[i];
        hit.lo[x] = meg_span_reaching(s, line->lo[x], out->lo[x], out->hi[x]);
        hit.hi[x] = meg_span_beyond(s, line->hi[x] - 1, out->lo[x], out->hi[x]);
    }
    if (meg_box_empty(&hit)) return;
    int64_t count = meg_extent(&hit, MEG_W);
    hit.hi[MEG_W] = hit.lo[MEG_W] + 1;
    for (bool on = meg_box_first(&hit, p); on; on = meg_box_next(&hit, p))
        meg_spans_pull_row(c, line, p, count, sum);
}

static inline void meg_spans_backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX];
    meg_box lines = meg_lines(&dx->box);
    int64_t p[MEG_AXES];
    for (bool on = dx->data && meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        double sum[MEG_LINE] = {0};
        meg_box line = meg_line(&dx->box, p);
        if (!meg_box_empty(&c->work.out)) meg_spans_backward_line(c, &line, sum);
        meg_store_line(dx, &line, sum);
    }
}

#endif
