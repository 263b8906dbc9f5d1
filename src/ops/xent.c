/* Cross-entropy from the logits, their top and z: the last phase of the softmax loss. One element:
 *
 *     sum over pixels of (log z - (x[label] - top)) / count
 *
 * It sums over the classes too, so that even they may be cut: as a bias does, log z belongs to the
 * first part of the classes. A label outside of the classes is ignored. The gradient of top, which
 * cancels with that through z, is left out of both (see top.c).
 */
#include "ops/loss.h"
#include "ops/shape.h"

enum {
    TOP = MEG_X + 1,
    Z,
    LABELS,
    COUNT
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
    in.lo[MEG_C] = 0;
    in.hi[MEG_C] = 1;
    return in;
}

static bool is_class(const meg_call *c, int64_t label)
{
    return label >= 0 && label < c->graph->value[c->node->in[0]].shape.hi[MEG_C];
}

static bool is_mine(const meg_call *c, int64_t label)
{
    return label >= c->work.sum.lo[MEG_C] && label < c->work.sum.hi[MEG_C];
}

/* -x[label] + top + log z of pixel p, as far as it is this part's. */
static double pixel_loss(const meg_call *c, const int64_t p[MEG_AXES], int64_t label)
{
    double loss = 0;
    if (c->work.sum.lo[MEG_C] == 0) loss += log((double)*meg_real_at(&c->t[Z], p));
    if (!is_mine(c, label)) return loss;
    return loss - (double)*meg_class_at(&c->t[MEG_X], p, label) +
           (double)*meg_real_at(&c->t[TOP], p);
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    double total = 0;
    meg_box pixels = need(c->graph, c->node, LABELS, &c->work);
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        int64_t label = *meg_label_at(&c->t[LABELS], p);
        if (is_class(c, label)) total += pixel_loss(c, p, label);
    }
    *(real *)c->t[MEG_Y].data = (real)(total * meg_share(&c->t[COUNT]));
}

static void zero(const meg_tensor *t)
{
    if (t->data) meg_fill_part(t, t->box, 0);
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_tensor *dx = &c->t[MEG_DX], *dz = &c->t[MEG_DX + Z];
    double pull = meg_scalar(&c->t[MEG_DY]) * meg_share(&c->t[COUNT]);
    bool first = c->work.sum.lo[MEG_C] == 0;
    meg_box pixels = need(c->graph, c->node, LABELS, &c->work);
    zero(dx);
    zero(dz);
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        int64_t label = *meg_label_at(&c->t[LABELS], p);
        if (!is_class(c, label)) continue;
        if (dz->data && first)
            *meg_real_at(dz, p) = (real)(pull / (double)*meg_real_at(&c->t[Z], p));
        if (dx->data && is_mine(c, label)) *meg_class_at(dx, p, label) = (real)-pull;
    }
}

MEG_KERNELS(xent) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    INPUTS = MEG_BIT(MEG_X) | MEG_BIT(TOP) | MEG_BIT(Z) | MEG_BIT(LABELS) | MEG_BIT(COUNT)
};

static const meg_sample samples[] = {{"5x7 5x1 5x1 5@7 1", NULL},
                                     {"3x10x9 3x1x9 3x1x9 3x9@10 1", NULL},
                                     {"2x16x5x3 2x1x5x3 2x1x5x3 2x5x3@16 1", NULL},
                                     {"2x3x2x3x5 2x1x2x3x5 2x1x2x3x5 2x2x3x5@3 1", NULL},
                                     {NULL, NULL}};

const meg_op meg_op_xent = {
    .name = "xent",
    .doc = "cross-entropy from logits, top and expsum (a phase of softmax_xent)",
    .data_inputs = 5,
    .data_inputs_max = 5,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS,
              [MEG_BACKWARD] = MEG_BIT(Z) | MEG_BIT(LABELS) | MEG_BIT(COUNT) | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + Z)},
    MEG_KERNELS_OF(xent),
    .samples = samples,
};
#endif
