/* Softmax cross-entropy, fused: one element, the share of these pixels in the mean loss,
 *
 *     sum over pixels and classes of q[c] (log sum_k exp(x[k] - top) - (x[c] - top)) / count
 *
 * q is 1 at the label and 0 elsewhere, unless classes have weights or labels are smoothed (meg_aim
 * of loss.h). `count` is the sum of the labels' weights over the whole step (label_count), so
 * shares simply add up. A label that is ignored or outside of the classes has no loss and no
 * gradient. All classes of a pixel are looked at together; a plan that cuts them replaces this node
 * by its phases: top, expsum, xent.
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    LABELS = MEG_X + 1,
    COUNT,
    WEIGHTS /* of the classes; may be absent */
};

#ifndef MEG_F64
const meg_param meg_xent_params[] = {
    MEG_PARAM_IGNORE,
    {"smoothing", MEG_PARAM_REAL, offsetof(meg_xent_attr, smoothing), "0",
     "share of a label that is spread over all classes", NULL, 0, 1},
    {0}};

meg_status meg_want_class_weights(const meg_graph *g, const meg_node *v, meg_error *e, int i)
{
    int64_t classes = g->value[v->in[0]].shape.hi[MEG_C];
    return i < v->inputs ? meg_want_shape(g, v, e, i, meg_box_of(1, classes, 1, 1, 1)) : MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    MEG_TRY(e, meg_want_class_weights(g, v, e, WEIGHTS));
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
    if (input >= COUNT) return *shape;
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
    char attrs[128];
    const char *name = v->name; /* of the pool, unlike v, which moves as nodes are added */
    int inputs = v->inputs, x[6] = {in[0], -1, -1, in[LABELS], in[COUNT]};
    if (inputs > WEIGHTS) x[5] = in[WEIGHTS];
    meg_options_print(meg_xent_params, v->attr, attrs, sizeof attrs);
    x[1] = meg_graph_add(g, "top", meg_pool_text(g->pool, "%s.top", name), "", 1, in);
    x[2] = meg_graph_add(g, "expsum", meg_pool_text(g->pool, "%s.expsum", name), "", 2, x);
    return meg_graph_add(g, "xent", name, attrs, inputs + 2, x);
}
#endif

/* Of one pixel, its classes `stride` apart. */
static double pixel_loss(const meg_aim *aim, const real *x, int64_t stride, int64_t label)
{
    real top = meg_class_top(x, stride, aim->classes);
    double z = log(meg_class_expsum(x, stride, aim->classes, top)) + (double)top, loss = 0;
    if (aim->spread == 0) return meg_aim_at(aim, label, label) * (z - (double)x[label * stride]);
    for (int64_t k = 0; k < aim->classes; k++)
        loss += meg_aim_at(aim, label, k) * (z - (double)x[k * stride]);
    return loss;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS];
    int64_t stride = meg_class_stride(x);
    meg_aim aim = meg_aim_of(c, &c->t[WEIGHTS]);
    double total = 0;
    meg_runs r = meg_runs_of(c->work.sum, 2, (const meg_array *[]){x, labels});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        const int32_t *label = meg_label_at(labels, p);
        for (int64_t i = 0; i < r.length; i++)
            if (meg_aim_counts(&aim, label[i]))
                total += pixel_loss(&aim, from + i, stride, label[i]);
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

typedef struct pull {
    const meg_aim *aim;
    double scale;  /* dy / count */
    int64_t dx, x; /* elements between classes */
    double all;    /* the sum of the weights of all classes */
} pull;

/* dx = scale (sum of q * softmax(x) - q) of one pixel */
static void pull_pixel(const pull *u, real *dx, const real *x, int64_t label)
{
    const meg_aim *aim = u->aim;
    real top = meg_class_top(x, u->x, aim->classes);
    double z = meg_class_expsum(x, u->x, aim->classes, top);
    double sum = aim->sure * meg_class_weight(aim->weights, label) + aim->spread * u->all;
    for (int64_t k = 0; k < aim->classes; k++) {
        double share = sum * exp((double)x[k * u->x] - (double)top) / z;
        double want = aim->spread == 0 && k != label ? 0 : meg_aim_at(aim, label, k);
        dx[k * u->dx] = (real)(u->scale * (share - want));
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS], *dx = &c->t[MEG_DX];
    meg_aim aim = meg_aim_of(c, &c->t[WEIGHTS]);
    pull u = {&aim, meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]), meg_class_stride(dx),
              meg_class_stride(x), 0};
    for (int64_t k = 0; k < aim.classes; k++)
        u.all += meg_class_weight(aim.weights, k);
    meg_fill_part(dx, dx->box, 0); /* ignored pixels, and what lies beyond the work */
    meg_runs r = meg_runs_of(c->work.sum, 3, (const meg_array *[]){x, labels, dx});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *from = meg_real_at(x, p);
        const int32_t *label = meg_label_at(labels, p);
        real *to = meg_real_at(dx, p);
        for (int64_t i = 0; i < r.length; i++)
            if (meg_aim_counts(&aim, label[i])) pull_pixel(&u, to + i, from + i, label[i]);
    }
}

MEG_KERNELS(softmax_xent) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(LABELS) | MEG_BIT(COUNT) | MEG_BIT(WEIGHTS)
};

static const meg_sample samples[] = {{"5x7 5@7 1", NULL},
                                     {"4x16 4@16 1", NULL},
                                     {"3x10x9 3x9@10 1", NULL},
                                     {"2x3x5x4 2x5x4@3 1", NULL},
                                     {"2x5x4x3x5 2x4x3x5@5 1", NULL},
                                     {"3x1 3@1 1", NULL},
                                     {"5x7 5@7 1 1x7", NULL},
                                     {"6x5 6@5 1", "ignore=2"},
                                     {"3x10x9 3x9@10 1", "smoothing=0.1"},
                                     {"2x16x5x4 2x5x4@16 1 1x16", "smoothing=0.3 ignore=3"},
                                     {NULL, NULL}};

const meg_op meg_op_softmax_xent = {
    .name = "softmax_xent",
    .by_pixels = true,
    .onnx = "SoftmaxCrossEntropyLoss",
    .doc = "softmax cross-entropy of logits, labels, their count[, class weights]",
    .params = meg_xent_params,
    .attr_bytes = sizeof(meg_xent_attr),
    .data_inputs = 3,
    .data_inputs_max = 4,
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
