/* Mean of every channel over the pixels of a group of samples: the first phase of batch norm and,
 * with norm=1, the global average pool. A part of the sum is divided by the whole count, so that
 * partial means simply add up. */
#include "ops/norm.h"
#include "ops/shape.h"

#ifndef MEG_F64
const meg_param meg_mean_params[] = {{"norm", MEG_PARAM_INT, offsetof(meg_norm_attr, norm), "0",
                                      "samples that are averaged together; 0: all", NULL, 0,
                                      0x1p62},
                                     {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_shape_rows(&out[0], meg_groups_whole(g, v).count, g->value[v->in[0]].shape.hi[MEG_C]);
    return MEG_OK;
}

meg_box meg_mean_sum(const meg_graph *g, const meg_node *v)
{
    meg_box all = g->value[v->in[0]].shape;
    all.hi[MEG_C] = 1;
    return all;
}

meg_box meg_mean_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input == 1) return w->out; /* the mean that var centers with */
    meg_groups s = meg_groups_whole(g, v);
    meg_box in = w->sum, groups = g->value[v->in[0]].shape;
    groups.lo[MEG_N] = w->out.lo[MEG_N] * s.size;
    groups.hi[MEG_N] = w->out.hi[MEG_N] * s.size;
    in.lo[MEG_C] = w->out.lo[MEG_C];
    in.hi[MEG_C] = w->out.hi[MEG_C];
    return meg_box_meet(in, groups);
}

double meg_mean_flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)p;
    meg_box in = meg_mean_need(g, v, 0, w);
    return 3 * (double)meg_box_size(&in);
}
#endif

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_box *shape = &c->graph->value[c->node->in[0]].shape;
    meg_groups s = meg_groups_whole(c->graph, c->node);
    meg_box all = meg_mean_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        meg_box part = meg_group_part(&s, all, p[MEG_N], p[MEG_C]);
        double sum = meg_sum_power(&c->t[MEG_X], part, 0, 1);
        *meg_real_at(&c->t[MEG_Y], p) = (real)(sum / meg_group_count(&s, shape, p[MEG_N]));
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_box *shape = &c->graph->value[c->node->in[0]].shape;
    meg_groups s = meg_groups_whole(c->graph, c->node);
    meg_box all = meg_mean_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_DX], &all);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        double dy = (double)*meg_real_at(&c->t[MEG_DY], p);
        meg_fill_part(&c->t[MEG_DX], meg_group_part(&s, all, p[MEG_N], p[MEG_C]),
                      (real)(dy / meg_group_count(&s, shape, p[MEG_N])));
    }
}

MEG_KERNELS(mean) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {
    {"6x5", NULL},          {"3x7x9", "norm=1"},     {"4x5x3x5", "norm=2"}, {"5x3x4x3", "norm=2"},
    {"3x16x3x3", "norm=8"}, {"3x5x2x3x4", "norm=2"}, {NULL, NULL}};

const meg_op meg_op_mean = {
    .name = "mean",
    .doc = "mean of every channel over pixels and groups of samples (a phase of batchnorm, gap)",
    .params = meg_mean_params,
    .attr_bytes = sizeof(meg_norm_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .sum = meg_mean_sum,
    .need = meg_mean_need,
    .flops = meg_mean_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    MEG_KERNELS_OF(mean),
    .samples = samples,
};
#endif
