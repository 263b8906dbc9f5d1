/* What the losses, their phases and the count of right answers have in common. Most go pixel by
 * pixel (a classifier has one per sample) and look at the classes of each, which lie `stride`
 * elements apart.
 *
 *     for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
 *         const real *x = meg_class_at(logits, p, first_class);
 *         for (int64_t i = 0; i < r.length; i++) ... x[i + c * stride] ...
 */
#ifndef MEG_OPS_LOSS_LOSS_H
#define MEG_OPS_LOSS_LOSS_H

#include "ops/attrs.h"
#include "ops/common/runs.h"

#include <math.h>

/* Sum over the classes: of top and expsum. Their second input is per pixel. */
meg_box meg_class_sum(const meg_graph *g, const meg_node *v);
meg_box meg_class_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_class_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

/* The phases of softmax: adds top, expsum and expdiv, which takes the name. */
int meg_softmax_expand(meg_graph *g, const char *name, int x, bool log);

/* The ignored label, for all who read labels: offset 0 of their attributes. */
#define MEG_PARAM_IGNORE                                                                           \
    {                                                                                              \
        "ignore", MEG_PARAM_INT, 0, "-1", "label that does not count; those below 0 never do",     \
            NULL, -1, INT32_MAX                                                                    \
    }

/* Of softmax_xent and xent. */
extern const meg_param meg_xent_params[];
/* Input i, if it is there: class weights (1, c) for the logits of input 0. */
meg_status meg_want_class_weights(const meg_graph *g, const meg_node *v, meg_error *e, int i);

/* Sum over the pixels, each with all its classes: of softmax_xent and correct. */
meg_box meg_pixel_sum(const meg_graph *g, const meg_node *v);
meg_box meg_pixel_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);
double meg_pixel_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p);

/* Sum over all elements, with a real target for each: of mse and bce_logits. Inputs are x, targets
 * of its shape, their count[, weights (1, c)]; x alone gets a gradient. */
meg_status meg_target_infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS]);
meg_box meg_target_sum(const meg_graph *g, const meg_node *v);
meg_box meg_target_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w);

static inline int64_t meg_class_stride(const meg_array *t)
{
    int64_t stride[MEG_AXES];
    meg_box_strides(&t->box, stride);
    return stride[MEG_C];
}

static inline real *meg_class_at(const meg_array *t, const int64_t p[MEG_AXES], int64_t c)
{
    return meg_real_at(t, (const int64_t[MEG_AXES]){p[MEG_N], c, p[MEG_D], p[MEG_H], p[MEG_W]});
}

static inline const int32_t *meg_label_at(const meg_array *t, const int64_t p[MEG_AXES])
{
    return (const int32_t *)t->data + meg_box_at(&t->box, p);
}

/* Of a tensor with one element. */
static inline double meg_scalar(const meg_array *t)
{
    return (double)*(const real *)t->data;
}

/* 1 / count; a batch without any label has no loss. */
static inline double meg_share(const meg_array *count)
{
    double all = meg_scalar(count);
    return all != 0 ? 1 / all : 0;
}

/* What cross-entropy expects of the classes of a pixel with some label,
 *
 *     q[k] = weight[k] ((1 - smoothing) 1[k = label] + smoothing / classes)
 *
 * as PyTorch has it. It needs the weight of class k alone, so that classes may be cut. */
typedef struct meg_aim {
    int64_t ignore, classes;
    double sure, spread;
    const meg_array *weights; /* (1, c); its data may be NULL: all 1 */
} meg_aim;

static inline meg_aim meg_aim_of(const meg_call *c, const meg_array *weights)
{
    const meg_xent_attr *attr = c->node->attr;
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    return (meg_aim){attr->ignore, classes, 1 - attr->smoothing, attr->smoothing / (double)classes,
                     weights};
}

/* A label that is ignored, or no class, has neither loss nor gradient. */
static inline bool meg_aim_counts(const meg_aim *a, int64_t label)
{
    return label >= 0 && label < a->classes && label != a->ignore;
}

static inline double meg_class_weight(const meg_array *weights, int64_t k)
{
    return weights->data ? (double)*meg_channel_at(weights, 0, k) : 1;
}

static inline double meg_aim_at(const meg_aim *a, int64_t label, int64_t k)
{
    return meg_class_weight(a->weights, k) * ((k == label ? a->sure : 0) + a->spread);
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
