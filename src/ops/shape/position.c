/* Position: adds a learned number to each channel of each pixel or token, the same in all samples:
 *
 *     y(n, c, d, h, w) = x(n, c, d, h, w) + weight(c, d, h, w)
 *
 * The positional embedding of transformers; the weight's gradient is the sum over the samples.
 */
#include "ops/common/axes.h"
#include "ops/common/lines.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

typedef struct position_attr {
    double deviation;
} position_attr;

/* The weight where sample n is: its box has only sample 0. */
static meg_array weight_of(const meg_array *w, int64_t n)
{
    meg_array moved = *w;
    moved.box.lo[MEG_N] += n, moved.box.hi[MEG_N] += n;
    return moved;
}

static meg_box sample_of(const meg_box *b, int64_t n)
{
    meg_box one = *b;
    one.lo[MEG_N] = n, one.hi[MEG_N] = n + 1;
    return one;
}

static void forward(const meg_call *c)
{
    const meg_array *x = &c->t[MEG_X], *y = &c->t[MEG_Y];
    const meg_box *out = &c->work.out;
    int64_t p[MEG_AXES];
    for (int64_t n = out->lo[MEG_N]; n < out->hi[MEG_N]; n++) {
        meg_array w = weight_of(&c->t[MEG_X + 1], n);
        meg_runs r = meg_runs_of(sample_of(out, n), 3, (const meg_array *[]){x, y, &w});
        for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
            const real *a = meg_real_at(x, p), *b = meg_real_at(&w, p);
            real *to = meg_real_at(y, p); /* may be a: hence no restrict */
            for (int64_t i = 0; i < r.length; i++)
                to[i] = a[i] + b[i];
        }
    }
}

static void backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX], *dy = &c->t[MEG_DY];
    int64_t p[MEG_AXES];
    if (!dx->data) return;
    meg_clear_beyond(dx, &c->work.out);
    meg_runs r = meg_runs_of(c->work.out, 2, (const meg_array *[]){dx, dy});
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
        memmove(meg_real_at(dx, p), meg_real_at(dy, p), (size_t)r.length * sizeof(real));
}

static void weight(const meg_call *c)
{
    const meg_array *dw = &c->t[MEG_DX + 1], *dy = &c->t[MEG_DY];
    const meg_box *out = &c->work.out;
    int64_t p[MEG_AXES], step = meg_stride(dy, MEG_N);
    meg_box lines = meg_lines(out);
    if (!dw->data) return;
    meg_zero(dw);
    lines.hi[MEG_N] = lines.lo[MEG_N] + 1;
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(out, p);
        double sum[MEG_LINE] = {0};
        for (int64_t n = 0; n < meg_extent(out, MEG_N); n++)
            meg_add_line(sum, 1, meg_real_at(dy, line.lo) + n * step, (meg_steps){1, 1},
                         meg_extent(&line, MEG_W));
        line.lo[MEG_N] = 0;
        meg_store_line(dw, &line, sum);
    }
}

MEG_KERNELS(position) = {
    .run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward, [MEG_WEIGHT] = weight}};

#ifndef MEG_F64

static const meg_param params[] = {{"deviation", MEG_PARAM_REAL, offsetof(position_attr, deviation),
                                    "0.02", "of the weight's first, normal numbers", NULL, 0, 1e6},
                                   {0}};

static int weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    const position_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    out[0] = (meg_weight_spec){.suffix = "weight",
                               .kind = MEG_PARAMETER,
                               .shape = sample_of(&x->shape, 0),
                               .rank = x->rank - 1,
                               .start = MEG_NORMAL,
                               .bound = a->deviation};
    for (int i = 1; i < x->rank; i++)
        out[0].dims[i - 1] = x->dims[i];
    return 1;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_want_axes(g, v, e, 0, 2));
    MEG_TRY(e, meg_want_weights(g, v, e));
    meg_shape_like(out, &g->value[v->in[0]]);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    (void)g, (void)v;
    return input == 0 ? w->out : sample_of(&w->out, 0);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return p == MEG_BACKWARD ? 0 : (double)meg_box_size(&w->out);
}

static const meg_sample samples[] = {{"3x7", ""},
                                     {"2x5x9", "deviation=1"},
                                     {"1x16x3", ""},
                                     {"3x3x5x4", ""},
                                     {"2x3x300", ""},
                                     {"2x2x3x2x5", ""},
                                     {0}};

const meg_op meg_op_position = {
    .name = "position",
    .doc = "adds a learned number per channel and position, the same in all samples",
    .params = params,
    .attr_bytes = sizeof(position_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_DY),
              [MEG_WEIGHT] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_BACKWARD] = MEG_BIT(MEG_DX),
               [MEG_WEIGHT] = MEG_BIT(MEG_DX + 1)},
    .cheap = true,
    MEG_KERNELS_OF(position),
    .overwrites = true,
    .samples = samples,
};

#endif
