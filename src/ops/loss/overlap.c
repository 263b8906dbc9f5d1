/* Sums over the pixels of each sample and class, of probabilities and labels: a phase of the Dice
 * loss (dice.h). The number of pixels depends on labels alone and has no gradient. */
#include "ops/loss/dice.h"

enum {
    LABELS = MEG_X + 1
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_box *x = &g->value[v->in[0]].shape;
    MEG_TRY(e, meg_want_labels(g, v, e, 0, LABELS));
    out[0].shape = meg_box_of(x->hi[MEG_N], x->hi[MEG_C], 1, 1, MEG_DICE_SUMS);
    out[0].rank = MEG_AXES;
    for (int a = 0; a < MEG_AXES; a++)
        out[0].dims[a] = out[0].shape.hi[a];
    return MEG_OK;
}

static meg_box sum(const meg_graph *g, const meg_node *v)
{
    meg_box pixels = g->value[v->in[0]].shape;
    pixels.hi[MEG_N] = pixels.hi[MEG_C] = 1;
    return pixels;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p;
    return 3 * (double)meg_box_size(&w->out) / MEG_DICE_SUMS * (double)meg_box_size(&w->sum);
}

static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    (void)g, (void)v;
    return axis == MEG_W ? 0 : 1; /* the sums of a class stay together */
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v;
    meg_box in = w->sum;
    for (int a = MEG_N; a <= MEG_C; a++)
        in.lo[a] = w->out.lo[a], in.hi[a] = w->out.hi[a];
    if (input == LABELS) in.lo[MEG_C] = 0, in.hi[MEG_C] = 1;
    return in;
}

/* Of one sample and class over the work's pixels. */
static void sum_class(const meg_call *c, int64_t n, int64_t k)
{
    const meg_array *x = &c->t[MEG_X], *labels = &c->t[LABELS];
    int64_t p[MEG_AXES], count = 0, classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    double both = 0, all = 0;
    meg_box pixels = need(c->graph, c->node, LABELS, &c->work);
    pixels.lo[MEG_N] = n;
    pixels.hi[MEG_N] = n + 1;
    for (bool on = meg_box_first(&pixels, p); on; on = meg_box_next(&pixels, p)) {
        int64_t label = *meg_label_at(labels, p);
        if (!meg_dice_counts(c->node->attr, label, classes)) continue;
        double share = (double)*meg_class_at(x, p, k);
        count++;
        bool hit = meg_dice_hit(label, k, classes);
        all += share + hit;
        both += hit ? share : 0;
    }
    real *sums = meg_dice_at(&c->t[MEG_Y], n, k);
    sums[MEG_DICE_BOTH] = (real)both;
    sums[MEG_DICE_ALL] = (real)all;
    sums[MEG_DICE_COUNT] = (real)count;
}

static void forward(const meg_call *c)
{
    const meg_box *out = &c->work.out;
    meg_clear_beyond(&c->t[MEG_Y], out);
    for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++)
        for (int64_t k = out->lo[MEG_C]; k < out->hi[MEG_C]; k++)
            sum_class(c, n, k);
}

static void backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX];
    int64_t p[MEG_AXES], classes = c->graph->value[c->node->in[0]].shape.hi[MEG_C];
    meg_box all = need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(dx, &all);
    for (bool on = meg_box_first(&all, p); on; on = meg_box_next(&all, p)) {
        const real *pull = meg_dice_at(&c->t[MEG_DY], p[MEG_N], p[MEG_C]);
        int64_t q[MEG_AXES] = {p[MEG_N], 0, p[MEG_D], p[MEG_H], p[MEG_W]};
        int64_t label = *meg_label_at(&c->t[LABELS], q);
        real *to = meg_real_at(dx, p);
        *to = 0;
        if (!meg_dice_counts(c->node->attr, label, classes)) continue;
        *to = pull[MEG_DICE_ALL] +
              (meg_dice_hit(label, p[MEG_C], classes) ? pull[MEG_DICE_BOTH] : 0);
    }
}

MEG_KERNELS(overlap) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"5x7 5@7", NULL},           {"3x5x9 3x9@5", "ignore=2"},
                                     {"2x16x5x4 2x5x4@16", NULL}, {"2x3x4x3x5 2x4x3x5@3", NULL},
                                     {"3x1x9 3x9@2", NULL},       {NULL, NULL}};

const meg_op meg_op_overlap = {
    .name = "overlap",
    .doc = "sums of probabilities and labels over pixels (a phase of dice)",
    .params = meg_dice_params,
    .attr_bytes = sizeof(meg_dice_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(LABELS),
              [MEG_BACKWARD] = MEG_BIT(LABELS) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .grain = grain,
    MEG_KERNELS_OF(overlap),
    .samples = samples,
};
#endif
