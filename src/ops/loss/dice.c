/* Soft Dice loss of logits, fused: probabilities, sums and loss in one node; see dice.h. A sample
 * is looked at whole; a plan that cuts pixels or classes replaces this node by its phases:
 *
 *     softmax (or its own phases), or sigmoid -> overlap -> dice_mean
 *
 *     aux 0   the sums (n, c, 1, 1, 3): backward sums nothing but over classes
 */
#include "ops/loss/dice.h"

enum {
    LABELS = MEG_X + 1,
    COUNT,
    CLASSES = 64 /* whose sums are made in one sweep */
};

#ifndef MEG_F64
const meg_param meg_dice_params[] = {MEG_PARAM_IGNORE,
                                     {"mode", MEG_PARAM_CHOICE, offsetof(meg_dice_attr, mode),
                                      "softmax", "how logits become probabilities",
                                      "softmax|sigmoid", 0, 0},
                                     {"epsilon", MEG_PARAM_REAL, offsetof(meg_dice_attr, epsilon),
                                      "1e-5", "added above and below the line", NULL, 1e-12, 1e6},
                                     {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_dice_attr *attr = v->attr;
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    MEG_CHECK(e, attr->mode || g->value[v->in[0]].shape.hi[MEG_C] > 1, MEG_EARG,
              "%s: the softmax of one class is always 1: use mode=sigmoid, or two classes",
              v->name);
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    return meg_box_of(g->value[v->in[0]].shape.hi[MEG_N], 1, 1, 1, 1);
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = g->value[v->in[input]].shape;
    if (input == COUNT) return in;
    in.lo[MEG_N] = w->sum.lo[MEG_N];
    in.hi[MEG_N] = w->sum.hi[MEG_N];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    const meg_box *x = &g->value[v->in[0]].shape;
    double each = (double)meg_box_size(x) / (double)meg_extent(x, MEG_N);
    return (p == MEG_BACKWARD ? 50 : 25) * each * (double)meg_extent(&w->sum, MEG_N);
}

static void aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type)
{
    (void)i;
    *box = meg_box_of(w->sum.hi[MEG_N], g->value[v->in[0]].shape.hi[MEG_C], 1, 1, MEG_DICE_SUMS);
    box->lo[MEG_N] = w->sum.lo[MEG_N];
    *type = MEG_F32;
}

static int expand(meg_graph *g, const meg_node *v, const int in[])
{
    const meg_dice_attr *attr = v->attr;
    const char *name = v->name; /* of the pool, unlike v, which moves as nodes are added */
    const char *chance = meg_pool_text(g->pool, "%s.chance", name);
    char attrs[128];
    meg_options_print(meg_dice_params, attr, attrs, sizeof attrs);
    int p = attr->mode ? meg_graph_add(g, "sigmoid", chance, "", 1, in)
                       : meg_softmax_expand(g, chance, in[0], false);
    int sums = meg_graph_add(g, "overlap", meg_pool_text(g->pool, "%s.overlap", name), attrs, 2,
                             (int[]){p, in[LABELS]});
    return meg_graph_add(g, "dice_mean", name, attrs, 2, (int[]){sums, in[COUNT]});
}
#endif

typedef struct pixel { /* its classes, `stride` apart */
    const real *x;
    int64_t stride;
    bool sigmoid;
    double top, z;
} pixel;

static pixel pixel_of(const meg_call *c, const real *x, int64_t stride)
{
    const meg_dice_attr *attr = c->node->attr;
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    pixel p = {x, stride, attr->mode == 1, 0, 1};
    if (p.sigmoid) return p;
    real top = meg_class_top(x, stride, classes);
    p.top = (double)top;
    p.z = meg_class_expsum(x, stride, classes, top);
    return p;
}

static double chance(const pixel *p, int64_t k)
{
    double x = (double)p->x[k * p->stride];
    return p->sigmoid ? 1 / (1 + exp(-x)) : exp(x - p->top) / p->z;
}

/* The pixels of sample n: channel 0 stands for all. */
static meg_box pixels_of(const meg_call *c, int64_t n)
{
    meg_box pixels = c->graph->value[c->node->in[0]].shape;
    pixels.lo[MEG_N] = n;
    pixels.hi[MEG_N] = n + 1;
    pixels.hi[MEG_C] = 1;
    return pixels;
}

/* The sums of sample n and the classes from..to-1, at most CLASSES. */
static void sum_classes(const meg_call *c, int64_t n, int64_t from, int64_t to)
{
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS];
    int64_t p[MEG_AXES], stride = meg_class_stride(x), count = 0;
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    double both[CLASSES] = {0}, all[CLASSES] = {0};
    meg_runs r = meg_runs_of(pixels_of(c, n), 2, (const meg_array *[]){x, labels});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const int32_t *label = meg_label_at(labels, p);
        const real *at = meg_real_at(x, p);
        for (int64_t i = 0; i < r.length; i++) {
            if (!meg_dice_counts(c->node->attr, label[i], classes)) continue;
            pixel here = pixel_of(c, at + i, stride);
            count++;
            for (int64_t k = from; k < to; k++) {
                double share = chance(&here, k);
                bool hit = meg_dice_hit(label[i], k, classes);
                all[k - from] += share + hit;
                both[k - from] += hit ? share : 0;
            }
        }
    }
    for (int64_t k = from; k < to; k++) {
        real *sums = meg_dice_at(&c->t[MEG_AUX], n, k);
        sums[MEG_DICE_BOTH] = (real)both[k - from];
        sums[MEG_DICE_ALL] = (real)all[k - from];
        sums[MEG_DICE_COUNT] = (real)count;
    }
}

static void forward(const meg_call *c)
{
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    double total = 0;
    for (int64_t n = c->work.sum.lo[MEG_N]; n < c->work.sum.hi[MEG_N]; n++) {
        for (int64_t k = 0; k < classes; k += CLASSES)
            sum_classes(c, n, k, k + CLASSES < classes ? k + CLASSES : classes);
        for (int64_t k = 0; k < classes; k++)
            total += meg_dice_loss(c->node->attr, meg_dice_at(&c->t[MEG_AUX], n, k));
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]) / (double)classes);
}

/* How the loss of sample n changes with the probability of class k. */
static double slope(const meg_call *c, int64_t n, int64_t k, int64_t label)
{
    double slopes[MEG_DICE_SUMS];
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    meg_dice_slopes(c->node->attr, meg_dice_at(&c->t[MEG_AUX], n, k), slopes);
    return slopes[MEG_DICE_ALL] + (meg_dice_hit(label, k, classes) ? slopes[MEG_DICE_BOTH] : 0);
}

/* dx of one pixel of sample n, `stride` apart */
static void pull_pixel(const meg_call *c, const pixel *p, int64_t n, int64_t label, real *dx)
{
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    int64_t stride = meg_class_stride(&c->t[MEG_DX]);
    double pull = meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]) / (double)classes, dot = 0;
    for (int64_t k = 0; k < classes && !p->sigmoid; k++)
        dot += chance(p, k) * slope(c, n, k, label);
    for (int64_t k = 0; k < classes; k++) {
        double share = chance(p, k), up = slope(c, n, k, label);
        dx[k * stride] = (real)(pull * share * (p->sigmoid ? up * (1 - share) : up - dot));
    }
}

static void backward(const meg_call *c)
{
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS], *dx = &c->t[MEG_DX];
    int64_t p[MEG_AXES], stride = meg_class_stride(x);
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    meg_fill_part(dx, dx->box, 0); /* ignored pixels, and what lies beyond the work */
    for (int64_t n = c->work.sum.lo[MEG_N]; n < c->work.sum.hi[MEG_N]; n++) {
        meg_runs r = meg_runs_of(pixels_of(c, n), 3, (const meg_array *[]){x, labels, dx});
        for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
            const int32_t *label = meg_label_at(labels, p);
            const real *at = meg_real_at(x, p);
            real *to = meg_real_at(dx, p);
            for (int64_t i = 0; i < r.length; i++) {
                if (!meg_dice_counts(c->node->attr, label[i], classes)) continue;
                pixel here = pixel_of(c, at + i, stride);
                pull_pixel(c, &here, n, label[i], to + i);
            }
        }
    }
}

MEG_KERNELS(dice) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(LABELS) | MEG_BIT(COUNT)
};

static const meg_sample samples[] = {{"5x7 5@7 1", NULL},
                                     {"3x5x9 3x9@5 1", "mode=sigmoid"},
                                     {"2x3x5x4 2x5x4@3 1", "ignore=1"},
                                     {"2x16x5x4 2x5x4@16 1", "epsilon=1"},
                                     {"2x70x3x2 2x3x2@70 1", NULL},
                                     {"2x3x4x3x5 2x4x3x5@3 1", "mode=sigmoid ignore=0"},
                                     {"2x1x5x4 2x5x4@2 1", "mode=sigmoid"},
                                     {NULL, NULL}};

const meg_op meg_op_dice = {
    .name = "dice",
    .doc = "soft Dice loss of logits, labels and their count",
    .paper = "Milletari, Navab, Ahmadi, V-Net: fully convolutional neural networks for volumetric "
             "medical image segmentation, 3DV 2016",
    .params = meg_dice_params,
    .attr_bytes = sizeof(meg_dice_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_AUX) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MEG_BIT(MEG_AUX), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .auxes = 1,
    .aux = aux,
    .expand = expand,
    MEG_KERNELS_OF(dice),
    .samples = samples,
};
#endif
