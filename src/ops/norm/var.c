/* Biased variance of every set of elements (cells.h) around the mean that is its second input: the
 * second phase of the normalisations. The gradient of the mean is zero in total, but that of a part
 * of the sum is not. */
#include "ops/common/runs.h"
#include "ops/common/shape.h"
#include "ops/norm/cells.h"

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    meg_mean_shape(g, v, &out[0]);
    return meg_want_shape(g, v, e, 1, out[0].shape);
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
        double mean = (double)*meg_real_at(&c->t[MEG_X + 1], p);
        double sum = meg_sum_power(&c->t[MEG_X], part, mean, 2);
        *meg_real_at(&c->t[MEG_Y], p) = (real)(sum / meg_cell_count(&s, p));
    }
}

/* dx = slope (x - mean) over the part */
static void pull(const meg_array *dx, const meg_array *x, meg_box part, real mean, real slope)
{
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(part, 2, (const meg_array *[]){dx, x});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *to = meg_real_at(dx, p);
        const real *from = meg_real_at(x, p);
        for (int64_t i = 0; i < r.length; i++)
            to[i] = slope * (from[i] - mean);
    }
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_array *x = &c->t[MEG_X], *dx = &c->t[MEG_DX], *dmean = &c->t[MEG_DX + 1];
    meg_cells s = meg_mean_cells(c->graph, c->node);
    meg_box all = meg_mean_need(c->graph, c->node, 0, &c->work);
    meg_clear_beyond(dx, &all);
    meg_clear_beyond(dmean, &c->work.out);
    for (bool on = meg_box_first(&c->work.out, p); on; on = meg_box_next(&c->work.out, p)) {
        meg_box part = meg_box_meet(meg_cell(&s, p), all);
        real mean = *meg_real_at(&c->t[MEG_X + 1], p);
        double slope = 2 * (double)*meg_real_at(&c->t[MEG_DY], p) / meg_cell_count(&s, p);
        if (dx->data) pull(dx, x, part, mean, (real)slope);
        if (dmean->data)
            *meg_real_at(dmean, p) = (real)(-slope * meg_sum_power(x, part, (double)mean, 1));
    }
}

MEG_KERNELS(var) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_sample samples[] = {{"6x5 1x5", NULL},
                                     {"3x7x9 3x7", "norm=1"},
                                     {"4x5x3x5 2x5", "norm=2"},
                                     {"5x3x4x3 3x3", "norm=2"},
                                     {"3x16x3x3 1x16", "norm=8"},
                                     {"3x5x2x3x4 2x5", "norm=2"},
                                     {"2x6x3x5 2x3", "norm=1 channels=2"},
                                     {"3x5x4 3x1", "norm=1 channels=0"},
                                     {"2x5x7 2x1x7", "norm=1 channels=0 pixels=1"},
                                     {"3x7x2x3 2x3x2x3", "norm=2 channels=3 pixels=1"},
                                     {"3x6 3x3", "norm=1 channels=2 pixels=1"},
                                     {NULL, NULL}};

const meg_op meg_op_var = {
    .name = "var",
    .doc = "variance over samples, channels and pixels that belong together (a phase of batchnorm, "
           "groupnorm, instancenorm, layernorm)",
    .params = meg_mean_params,
    .attr_bytes = sizeof(meg_mean_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .sum = meg_mean_sum,
    .need = meg_mean_need,
    .flops = meg_mean_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes =
        {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1)},
    MEG_KERNELS_OF(var),
    .samples = samples,
};
#endif
