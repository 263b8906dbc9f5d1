/* Softmax cross-entropy, fused: one element, the share of these pixels in the mean loss,
 *
 *     sum over pixels of (log sum_c exp(x[c] - top) - (x[label] - top)) / count
 *
 * `count` is the number of labels of the whole step (label_count), so shares simply add up. A label
 * outside of the classes is ignored: no loss, no gradient. All classes of a pixel are looked at
 * together; a plan that cuts them replaces this node by its phases: top, expsum, xent.
 */
#include "ops/loss.h"
#include "ops/shape.h"

enum {
    LABELS = MEG_X + 1,
    COUNT
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

meg_box meg_pixel_sum(const meg_graph *g, const meg_node *v)
{
    meg_box pixels = g->value[v->in[0]].shape;
    pixels.hi[MEG_C] = 1;
    return pixels;
}

meg_box meg_pixel_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    const meg_box *shape = &g->value[v->in[input]].shape;
    if (input == COUNT) return *shape;
    meg_box in = w->sum; /* with all channels: labels have one */
    in.lo[MEG_C] = 0;
    in.hi[MEG_C] = shape->hi[MEG_C];
    return in;
}

double meg_pixel_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    double each = v->op->no_gradient ? 1 : p == MEG_BACKWARD ? 40 : 20; /* comparisons or exp() */
    meg_box in = meg_pixel_need(g, v, 0, w);
    return each * (double)meg_box_size(&in);
}

static int expand(meg_graph *g, const meg_node *v, const int in[])
{
    const char *name = v->name; /* of the pool, unlike v, which moves as nodes are added */
    int top = meg_graph_add(g, "top", meg_pool_text(g->pool, "%s.top", name), "", 1, in);
    int z = meg_graph_add(g, "expsum", meg_pool_text(g->pool, "%s.expsum", name), "", 2,
                          (int[]){in[0], top});
    return meg_graph_add(g, "xent", name, "", 5, (int[]){in[0], top, z, in[LABELS], in[COUNT]});
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    const meg_tensor *x = &c->t[MEG_X], *labels = &c->t[LABELS];
    int64_t stride = meg_class_stride(x);
    double total = 0;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_tensor *[]){x, labels});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        const int32_t *label = meg_label_at(labels, p);
        for (int64_t i = 0; i < r.length; i++) {
            if (label[i] < 0 || label[i] >= classes) continue;
            real top = meg_class_top(from + i, stride, classes);
            total += log(meg_class_expsum(from + i, stride, classes, top)) -
                     ((double)from[i + label[i] * stride] - (double)top);
        }
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

/* dx = pull (softmax(x) - 1[label]) of one pixel, its classes `stride` apart from x and dx */
static void pull_pixel(real *dx, const real *x, const int64_t stride[2], int64_t classes,
                       double pull)
{
    real top = meg_class_top(x, stride[1], classes);
    double scale = pull / meg_class_expsum(x, stride[1], classes, top);
    for (int64_t k = 0; k < classes; k++)
        dx[k * stride[0]] = (real)(scale * exp((double)x[k * stride[1]] - (double)top));
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES], classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    const meg_tensor *x = &c->t[MEG_X], *labels = &c->t[LABELS], *dx = &c->t[MEG_DX];
    int64_t stride[2] = {meg_class_stride(dx), meg_class_stride(x)};
    double pull = meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]);
    meg_fill_part(dx, dx->box, 0); /* ignored pixels, and what lies beyond the work */
    meg_runs r = meg_runs_of(c->work.sum, 3, (const meg_tensor *[]){x, labels, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        const int32_t *label = meg_label_at(labels, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++) {
            if (label[i] < 0 || label[i] >= classes) continue;
            pull_pixel(to + i, from + i, stride, classes, pull);
            to[i + label[i] * stride[0]] -= (real)pull;
        }
    }
}

MEG_KERNELS(softmax_xent) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(LABELS) | MEG_BIT(COUNT)
};

static const meg_sample samples[] = {{"5x7 5@7 1", NULL},
                                     {"4x16 4@16 1", NULL},
                                     {"3x10x9 3x9@10 1", NULL},
                                     {"2x3x5x4 2x5x4@3 1", NULL},
                                     {"2x5x4x3x5 2x4x3x5@5 1", NULL},
                                     {"3x1 3@1 1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_softmax_xent = {
    .name = "softmax_xent",
    .onnx = "SoftmaxCrossEntropyLoss",
    .doc = "softmax cross-entropy of logits, labels and their count",
    .data_inputs = 3,
    .data_inputs_max = 3,
    .infer = infer,
    .sum = meg_pixel_sum,
    .need = meg_pixel_need,
    .flops = meg_pixel_flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .expand = expand,
    MEG_KERNELS_OF(softmax_xent),
    .samples = samples,
};
#endif
