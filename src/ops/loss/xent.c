/* Cross-entropy from the logits, their top and z: the last phase of the softmax loss. One element:
 *
 *     sum over pixels and classes of q[c] (log z - (x[c] - top)) / count
 *
 * with q, 1 at the label, of meg_aim (loss.h). Even the classes may be cut: each has its own term.
 * A label that is ignored or outside of the classes has no loss. The gradient of top, which cancels
 * with that through z, is left out of both (see top.c).
 */
#include "ops/common/shape.h"
#include "ops/loss/loss.h"

enum {
    TOP = MEG_X + 1,
    Z,
    LABELS,
    COUNT,
    WEIGHTS /* of the classes; may be absent */
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_box pixels = g->value[v->in[0]].shape;
    pixels.hi[MEG_C] = 1;
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    MEG_TRY(e, meg_want_shape(g, v, e, TOP, pixels));
    MEG_TRY(e, meg_want_shape(g, v, e, Z, pixels));
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    MEG_TRY(e, meg_want_class_weights(g, v, e, WEIGHTS));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    return g->value[v->in[0]].shape;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    double pixels = (double)meg_box_size(&w->sum) / (double)meg_extent(&w->sum, MEG_C);
    return (p == MEG_BACKWARD ? 2 : 20) * pixels;
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)v;
    meg_box in = w->sum;
    if (input == 0) return in;
    if (input == COUNT) return g->value[v->in[input]].shape;
    if (input == WEIGHTS) {
        in = meg_box_of(1, w->sum.hi[MEG_C], 1, 1, 1);
        in.lo[MEG_C] = w->sum.lo[MEG_C];
        return in;
    }
    in.lo[MEG_C] = 0;
    in.hi[MEG_C] = 1;
    return in;
}

typedef struct span { /* classes of this work that a label asks something of */
    int64_t from, to;
} span;

static span classes_of(const meg_call *c, const meg_aim *aim, int64_t label)
{
    int64_t lo = c->work.sum.lo[MEG_C], hi = c->work.sum.hi[MEG_C];
    if (aim->spread > 0) return (span){lo, hi};
    bool mine = lo <= label && label < hi;
    return mine ? (span){label, label + 1} : (span){lo, lo};
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    double total = 0;
    meg_aim aim = meg_aim_of(c, &c->t[WEIGHTS]);
    meg_box pixels = need(c->graph, c->node, LABELS, &c->work);
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        int64_t label = *meg_label_at(&c->t[LABELS], p);
        if (!meg_aim_counts(&aim, label)) continue;
        double z = log((double)*meg_real_at(&c->t[Z], p)) + (double)*meg_real_at(&c->t[TOP], p);
        span s = classes_of(c, &aim, label);
        for (int64_t k = s.from; k < s.to; k++)
            total += meg_aim_at(&aim, label, k) * (z - (double)*meg_class_at(&c->t[MEG_X], p, k));
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

static void zero(const meg_array *t)
{
    if (t->data) meg_fill_part(t, t->box, 0);
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *dx = &c->t[MEG_DX], *dz = &c->t[MEG_DX + Z];
    double pull = meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]);
    meg_aim aim = meg_aim_of(c, &c->t[WEIGHTS]);
    meg_box pixels = need(c->graph, c->node, LABELS, &c->work);
    zero(dx);
    zero(dz);
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        int64_t label = *meg_label_at(&c->t[LABELS], p);
        if (!meg_aim_counts(&aim, label)) continue;
        span s = classes_of(c, &aim, label);
        double sum = 0;
        for (int64_t k = s.from; k < s.to; k++) {
            double want = pull * meg_aim_at(&aim, label, k);
            if (dx->data) *meg_class_at(dx, p, k) = (real)-want;
            sum += want;
        }
        if (dz->data) *meg_real_at(dz, p) = (real)(sum / (double)*meg_real_at(&c->t[Z], p));
    }
}

MEG_KERNELS(xent) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    GIVEN = MEG_BIT(LABELS) | MEG_BIT(COUNT) | MEG_BIT(WEIGHTS),
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(TOP) | MEG_BIT(Z) | GIVEN
};

static const meg_sample samples[] = {{"5x7 5x1 5x1 5@7 1", NULL},
                                     {"3x10x9 3x1x9 3x1x9 3x9@10 1", NULL},
                                     {"2x16x5x3 2x1x5x3 2x1x5x3 2x5x3@16 1", NULL},
                                     {"2x3x2x3x5 2x1x2x3x5 2x1x2x3x5 2x2x3x5@3 1", NULL},
                                     {"5x7 5x1 5x1 5@7 1 1x7", NULL},
                                     {"3x10x9 3x1x9 3x1x9 3x9@10 1 1x10", "smoothing=0.2 ignore=4"},
                                     {NULL, NULL}};

const meg_op meg_op_xent = {
    .name = "xent",
    .doc = "cross-entropy from logits, top and expsum (a phase of softmax_xent)",
    .params = meg_xent_params,
    .attr_bytes = sizeof(meg_xent_attr),
    .data_inputs = 5,
    .data_inputs_max = 6,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = MEG_BIT(Z) | GIVEN | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + Z)},
    MEG_KERNELS_OF(xent),
    .samples = samples,
};
#endif
