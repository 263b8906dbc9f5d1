/* The Dice loss from the sums of each sample and class, the last phase of dice (dice.h). One
 * element: the share of these samples and classes in the mean. */
#include "ops/loss/dice.h"

enum {
    COUNT = MEG_X + 1
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_box want = g->value[v->in[0]].shape;
    want.hi[MEG_D] = want.hi[MEG_H] = 1;
    want.hi[MEG_W] = MEG_DICE_SUMS;
    MEG_TRY(e, meg_want_shape(g, v, e, 0, want));
    MEG_TRY(e, meg_want_shape(g, v, e, COUNT, meg_box_of(1, 1, 1, 1, 1)));
    meg_shape_one(&out[0]);
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    const meg_box *sums = &g->value[v->in[0]].shape;
    return meg_box_of(sums->hi[MEG_N], sums->hi[MEG_C], 1, 1, 1);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 6 * (double)meg_box_size(&w->sum);
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input == COUNT) return g->value[v->in[input]].shape;
    meg_box in = w->sum;
    in.hi[MEG_W] = MEG_DICE_SUMS;
    return in;
}

/* 1 / (classes * count) */
static double share(const meg_call *c)
{
    int64_t classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    return meg_share(&c->t[COUNT]) / (double)classes;
}

static void forward(const meg_call *c)
{
    const meg_box *sum_box = &c->work.sum;
    int64_t p[MEG_AXES];
    double total = 0;
    for (bool on = meg_box_first(sum_box, p); on; on = meg_box_next(sum_box, p))
        total += meg_dice_loss(c->node->attr, meg_dice_at(&c->t[MEG_X], p[MEG_N], p[MEG_C]));
    *(real *)c->t[MEG_Y].data = (real)(total * share(c));
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    double pull = meg_scalar(&c->t[MEG_DY]) * share(c), slopes[MEG_DICE_SUMS];
    meg_box part = need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_DX], &part);
    for (bool on = meg_box_first(&c->work.sum, p); on; on = meg_box_next(&c->work.sum, p)) {
        real *to = meg_dice_at(&c->t[MEG_DX], p[MEG_N], p[MEG_C]);
        meg_dice_slopes(c->node->attr, meg_dice_at(&c->t[MEG_X], p[MEG_N], p[MEG_C]), slopes);
        for (int i = 0; i < MEG_DICE_SUMS; i++)
            to[i] = (real)(pull * slopes[i]);
    }
}

MEG_KERNELS(dice_mean) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"5x7x1x1x3 1", NULL}, {"2x16x1x1x3 1", "epsilon=0.5"}, {"1x1x1x1x3 1", NULL}, {NULL, NULL}};

const meg_op meg_op_dice_mean = {
    .name = "dice_mean",
    .doc = "Dice loss from the sums of overlap and their count (a phase of dice)",
    .params = meg_dice_params,
    .attr_bytes = sizeof(meg_dice_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(COUNT),
              [MEG_BACKWARD] = MEG_BIT(MEG_X) | MEG_BIT(COUNT) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(dice_mean),
    .samples = samples,
};
#endif
