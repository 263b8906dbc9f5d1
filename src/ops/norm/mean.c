/* Mean of every set of elements (cells.h): the first phase of the normalisations and, over the
 * pixels of one sample and channel, the global average pool. A part of the sum is divided by the
 * whole count, so that partial means simply add up. */
#include "ops/common/runs.h"
#include "ops/common/shape.h"
#include "ops/norm/cells.h"

#ifndef MEG_F64
const meg_param meg_mean_params[] = {
    {"norm", MEG_PARAM_INT, offsetof(meg_mean_attr, norm), "0",
     "samples that are averaged together; 0: all", NULL, 0, 0x1p62},
    {"channels", MEG_PARAM_INT, offsetof(meg_mean_attr, channels), "1",
     "channels that are averaged together; 0: all", NULL, 0, 0x1p62},
    {"pixels", MEG_PARAM_BOOL, offsetof(meg_mean_attr, pixels), "0",
     "each pixel has its own mean; else all are averaged together", NULL, 0, 0},
    {0}};

meg_cells meg_mean_cells(const meg_graph *g, const meg_node *v)
{
    const meg_mean_attr *attr = v->attr;
    const meg_box *x = &g->value[v->in[0]].shape;
    int64_t one = attr->pixels;
    meg_cells s = {*x, {attr->norm, attr->channels, one, one, one}};
    for (int a = 0; a < MEG_AXES; a++)
        if (s.size[a] == 0 || s.size[a] > x->hi[a]) s.size[a] = x->hi[a];
    return s;
}

void meg_mean_shape(const meg_graph *g, const meg_node *v, meg_value *out)
{
    const meg_value *x = &g->value[v->in[0]];
    meg_cells s = meg_mean_cells(g, v);
    meg_box shape = meg_cells_over(&s, s.shape);
    const meg_mean_attr *attr = v->attr;
    bool rows = !attr->pixels || x->rank < 3;
    if (!rows) meg_shape_like(out, x);
    else meg_shape_rows(out, shape.hi[MEG_N], shape.hi[MEG_C]);
    out->shape = shape;
    out->dims[0] = shape.hi[MEG_N];
    out->dims[1] = shape.hi[MEG_C];
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_mean_shape(g, v, &out[0]);
    return MEG_OK;
}

/* Axes along which cells have one element are not summed. */
meg_box meg_mean_sum(const meg_graph *g, const meg_node *v)
{
    meg_cells s = meg_mean_cells(g, v);
    for (int a = 0; a < MEG_AXES; a++)
        if (s.size[a] == 1) s.shape.hi[a] = 1;
    return s.shape;
}

meg_box meg_mean_need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input == 1) return w->out; /* the mean that var centers with */
    meg_cells s = meg_mean_cells(g, v);
    meg_box in = meg_cells_inside(&s, w->out), sum = w->sum;
    for (int a = 0; a < MEG_AXES; a++)
        if (s.size[a] == 1) sum.lo[a] = in.lo[a], sum.hi[a] = in.hi[a];
    return meg_box_meet(in, sum);
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
    meg_cells s = meg_mean_cells(c->graph, c->node);
    meg_box all = meg_mean_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        meg_box part = meg_box_meet(meg_cell(&s, p), all);
        double sum = meg_sum_power(&c->t[MEG_X], part, 0, 1);
        *meg_real_at(&c->t[MEG_Y], p) = (real)(sum / meg_cell_count(&s, p));
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_cells s = meg_mean_cells(c->graph, c->node);
    meg_box all = meg_mean_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(&c->t[MEG_DX], &all);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        double dy = (double)*meg_real_at(&c->t[MEG_DY], p);
        meg_fill_part(&c->t[MEG_DX], meg_box_meet(meg_cell(&s, p), all),
                      (real)(dy / meg_cell_count(&s, p)));
    }
}

MEG_KERNELS(mean) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"6x5", NULL},
                                     {"3x7x9", "norm=1"},
                                     {"4x5x3x5", "norm=2"},
                                     {"5x3x4x3", "norm=2"},
                                     {"3x16x3x3", "norm=8"},
                                     {"3x5x2x3x4", "norm=2"},
                                     {"2x6x3x5", "norm=1 channels=2"},
                                     {"3x5x4", "norm=1 channels=0"},
                                     {"2x5x7", "norm=1 channels=0 pixels=1"},
                                     {"3x7x2x3", "norm=2 channels=3 pixels=1"},
                                     {"3x6", "norm=1 channels=2 pixels=1"},
                                     {NULL, NULL}};

const meg_op meg_op_mean = {
    .name = "mean",
    .doc = "mean over samples, channels and pixels that belong together (a phase of batchnorm, "
           "groupnorm, instancenorm, layernorm, gap)",
    .params = meg_mean_params,
    .attr_bytes = sizeof(meg_mean_attr),
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
