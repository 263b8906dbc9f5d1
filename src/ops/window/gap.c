/* Global average pool: the mean over all pixels, per sample and channel. It may be cut along them
 * as it is, into partial means; its only phase is `mean` with norm=1. */
#include "ops/common/runs.h"
#include "ops/common/shape.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_box *x = &g->value[v->in[0]].shape;
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_rows(&out[0], x->hi[MEG_N], x->hi[MEG_C]);
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
    return (double)meg_box_size(&w->out) * (double)meg_box_size(&w->sum);
}

static int expand(meg_graph *g, const meg_node *v, const int in[])
{
    return meg_graph_add(g, "mean", v->name, "norm=1", 1, in);
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v, (void)input;
    meg_box in = w->sum;
    for (int a = MEG_N; a <= MEG_C; a++) {
        in.lo[a] = w->out.lo[a];
        in.hi[a] = w->out.hi[a];
    }
    return in;
}

static double pixels(const meg_call *c)
{
    const meg_box *x = &c->graph->value[c->node->in[0]].shape;
    return (double)(meg_extent(x, MEG_D) * meg_extent(x, MEG_H) * meg_extent(x, MEG_W));
}

/* All pixels of output p. */
static meg_box part_of(const meg_call *c, const int64_t p[MEG_AXES])
{
    meg_box part = c->work.sum;
    for (int a = MEG_N; a <= MEG_C; a++) {
        part.lo[a] = p[a];
        part.hi[a] = p[a] + 1;
    }
    return part;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    double count = pixels(c);
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p))
        *meg_real_at(&c->t[MEG_Y],
                     p) = (real)(meg_sum_power(&c->t[MEG_X], part_of(c, p), 0, 1) / count);
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    double count = pixels(c);
    meg_box all = need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_DX], &all);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p))
        meg_fill_part(&c->t[MEG_DX], part_of(c, p),
                      (real)((double)*meg_real_at(&c->t[MEG_DY], p) / count));
}

MEG_KERNELS(gap) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"3x5x9", NULL},    {"2x3x5x7", NULL},   {"2x16x4x4", NULL},
                                     {"1x32x3x5", NULL}, {"2x5x3x4x5", NULL}, {NULL, NULL}};

const meg_op meg_op_gap = {
    .name = "gap",
    .by_pixels = true,
    .onnx = "GlobalAveragePool",
    .doc = "global average pool: mean over all pixels",
    .paper = "Lin, Chen, Yan, Network in network, ICLR 2014",
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .sum = sum,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .expand = expand,
    MEG_KERNELS_OF(gap),
    .samples = samples,
};
#endif
