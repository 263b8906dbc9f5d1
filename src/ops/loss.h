/* What the softmax loss, its phases and the count of right answers have in common: they go pixel by
 * pixel (a classifier has one per sample) and look at the classes of each, which lie `stride`
 * elements apart.
 *
 *     for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
 *         const real *x = meg_class_at(logits, p, first_class);
 *         for (int64_t i = 0; i < r.length; i++) ... x[i + c * stride] ...
 */
#ifndef MEG_OPS_LOSS_H
#define MEG_OPS_LOSS_H

#include "ops/runs.h"

#include <math.h>

/* Sum over the classes: of top and expsum. Their second input is per pixel. */
meg_box meg_class_sum(const meg_graph *g, const meg_node *v);
meg_box meg_class_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_class_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

/* Sum over the pixels, each with all its classes: of softmax_xent and correct. */
meg_box meg_pixel_sum(const meg_graph *g, const meg_node *v);
meg_box meg_pixel_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_pixel_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

static inline int64_t meg_class_stride(const meg_tensor *t)
{
    int64_t stride[MEG_AXES];
    meg_box_strides(&t->box, stride);
    return stride[MEG_C];
}

static inline real *meg_class_at(const meg_tensor *t, const int64_t p[MEG_AXES], int64_t c)
{
    return meg_real_at(t, (const int64_t[MEG_AXES]){p[MEG_N], c, p[MEG_D], p[MEG_H], p[MEG_W]});
}

static inline const int32_t *meg_label_at(const meg_tensor *t, const int64_t p[MEG_AXES])
{
    return (const int32_t *)t->data + meg_box_at(&t->box, p);
}

/* Of a tensor with one element. */
static inline double meg_scalar(const meg_tensor *t)
{
    return (double)*(const real *)t->data;
}

/* 1 / count; a batch without any label has no loss. */
static inline double meg_share(const meg_tensor *count)
{
    double all = meg_scalar(count);
    return all != 0 ? 1 / all : 0;
}

/* The largest of some classes of one pixel. */
static inline real meg_class_top(const real *x, int64_t stride, int64_t classes)
{
    real top = (real)-INFINITY;
    for (int64_t c = 0; c < classes; c++)
        top = x[c * stride] > top ? x[c * stride] : top;
    return top;
}

static inline double meg_class_expsum(const real *x, int64_t stride, int64_t classes, real top)
{
    double sum = 0;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)x[c * stride] - (double)top);
    return sum;
}

#endif
