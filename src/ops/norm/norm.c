/* The last phase of batch norm: normalises with a mean and a variance that are values of their own,
 * whoever summed them. It reduces nothing itself, so every axis may be cut; what backward sends to
 * mean and variance goes on through these nodes. Evaluation reads the running statistics instead.
 */
#include "ops/norm/norm.h"
#include "ops/common/shape.h"

enum {
    MEAN = MEG_X + 1,
    VAR,
    WEIGHT,
    BIAS,
    RUNNING_MEAN,
    RUNNING_VAR
};

#ifndef MEG_F64
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_box moments = meg_box_of(meg_norm_groups_whole(g, v).count,
                                 g->value[v->in[0]].shape.hi[MEG_C], 1, 1, 1);
    MEG_TRY(e, meg_norm_check(g, v, e));
    MEG_TRY(e, meg_want_shape(g, v, e, MEAN, moments));
    MEG_TRY(e, meg_want_shape(g, v, e, VAR, moments));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 8 : p == MEG_STATE_PASS ? 0 : 3) * (double)meg_box_size(&w->out);
}
#endif

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input == 0) return w->out;
    meg_box in = g->value[v->in[input]].shape;
    in.lo[MEG_C] = w->out.lo[MEG_C];
    in.hi[MEG_C] = w->out.hi[MEG_C];
    if (input > VAR) return in;
    meg_norm_groups s = meg_norm_groups_whole(g, v);
    in.lo[MEG_N] = w->out.lo[MEG_N] / s.size;
    in.hi[MEG_N] = (w->out.hi[MEG_N] - 1) / s.size + 1;
    return in;
}

static meg_normal normal_at(const meg_call *c, int64_t group, int64_t ch)
{
    real moment[2] = {*meg_channel_at(&c->t[MEAN], group, ch),
                      *meg_channel_at(&c->t[VAR], group, ch)};
    return meg_normal_of(c->node->attr, moment, *meg_channel_at(&c->t[WEIGHT], 0, ch),
                         *meg_channel_at(&c->t[BIAS], 0, ch));
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_norm_groups s = meg_norm_groups_whole(c->graph, c->node);
    meg_box moments = need(c->graph, c->node, MEAN, &c->work);
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (bool on = meg_box_first(&moments, p); on; on = meg_box_next(&moments, p)) {
        meg_normal k = normal_at(c, p[MEG_N], p[MEG_C]);
        meg_normal_apply(&k, &c->t[MEG_Y], &c->t[MEG_X],
                         meg_group_part(&s, c->work.out, p[MEG_N], p[MEG_C]));
    }
}

static void evaluate(const meg_call *c)
{
    meg_box part = c->work.out;
    meg_clear_beyond(&c->t[MEG_Y], &c->work.out);
    for (int64_t ch = c->work.out.lo[MEG_C]; ch < c->work.out.hi[MEG_C]; ch++) {
        real moment[2] = {*meg_channel_at(&c->t[RUNNING_MEAN], 0, ch),
                          *meg_channel_at(&c->t[RUNNING_VAR], 0, ch)};
        meg_normal k = meg_normal_of(c->node->attr, moment, *meg_channel_at(&c->t[WEIGHT], 0, ch),
                                     *meg_channel_at(&c->t[BIAS], 0, ch));
        part.lo[MEG_C] = ch;
        part.hi[MEG_C] = ch + 1;
        meg_normal_apply(&k, &c->t[MEG_Y], &c->t[MEG_X], part);
    }
}

/* A group that several ranks share is added by the one with its first sample. */
static void state(const meg_call *c)
{
    int64_t p[MEG_AXES];
    const meg_box *shape = &c->graph->value[c->node->in[0]].shape;
    meg_norm_groups s = meg_norm_groups_whole(c->graph, c->node);
    meg_box moments = need(c->graph, c->node, MEAN, &c->work);
    for (bool on = meg_box_first(&moments, p); on; on = meg_box_next(&moments, p)) {
        if (p[MEG_N] * s.size < c->work.out.lo[MEG_N]) continue;
        real moment[2] = {*meg_real_at(&c->t[MEAN], p), *meg_real_at(&c->t[VAR], p)};
        real *const running[2] = {meg_channel_at(&c->t[RUNNING_MEAN], 0, p[MEG_C]),
                                  meg_channel_at(&c->t[RUNNING_VAR], 0, p[MEG_C])};
        meg_running_update(c->node->attr, meg_running_of(c, p[MEG_N]), moment,
                           meg_group_count(&s, shape, p[MEG_N]), running);
    }
}

static void set_channel(const meg_array *t, int64_t n, int64_t ch, double value)
{
    if (t->data) *meg_channel_at(t, n, ch) = (real)value;
}

/* dx and the gradients of the moments of one channel; returns the sums over all its groups */
static meg_normal_sums backward_channel(const meg_call *c, const meg_box *moments, int64_t ch)
{
    const meg_array *x = &c->t[MEG_X], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_norm_groups s = meg_norm_groups_whole(c->graph, c->node);
    meg_normal_sums total = {0, 0};
    for (int64_t i = moments->lo[MEG_N]; i < moments->hi[MEG_N]; i++) {
        meg_box part = meg_group_part(&s, c->work.out, i, ch);
        meg_normal k = normal_at(c, i, ch);
        meg_normal_sums sums = meg_normal_reduce(&k, dy, x, part);
        double scale = (double)*meg_channel_at(&c->t[WEIGHT], 0, ch) * k.rate;
        total.dy += sums.dy;
        total.dot += sums.dot;
        set_channel(&c->t[MEG_DX + MEAN], i, ch, -scale * sums.dy);
        set_channel(&c->t[MEG_DX + VAR], i, ch, -scale * k.rate * sums.dot / 2);
        if (dx->data)
            meg_normal_pull(&k, (meg_normal_sums){0, 0}, (const meg_array *[]){dx, dy, x}, part);
    }
    return total;
}

static void backward(const meg_call *c)
{
    meg_box moments = need(c->graph, c->node, MEAN, &c->work);
    for (int i = 0; i <= BIAS; i++) {
        meg_box part = need(c->graph, c->node, i, &c->work);
        meg_clear_beyond(&c->t[MEG_DX + i], &part);
    }
    for (int64_t ch = moments.lo[MEG_C]; ch < moments.hi[MEG_C]; ch++) {
        meg_normal_sums total = backward_channel(c, &moments, ch);
        set_channel(&c->t[MEG_DX + WEIGHT], 0, ch, total.dot);
        set_channel(&c->t[MEG_DX + BIAS], 0, ch, total.dy);
    }
}

MEG_KERNELS(norm) = {.run = {[MEG_FORWARD] = forward,
                             [MEG_EVAL] = evaluate,
                             [MEG_STATE_PASS] = state,
                             [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    AFFINE = MEG_BIT(MEG_X) | MEG_BIT(WEIGHT) | MEG_BIT(BIAS),
    RUNNING = MEG_BIT(RUNNING_MEAN) | MEG_BIT(RUNNING_VAR),
    MOMENTS = MEG_BIT(MEAN) | MEG_BIT(VAR),
    GRADIENTS = 0x1f << MEG_DX /* of x, mean, var, weight, bias */
};

/* The variance is an input here: epsilon keeps a random one, of either sign, away from the pole. */
static const meg_sample samples[] = {{"6x5 1x5 1x5", "epsilon=8"},
                                     {"3x7x9 3x7 3x7", "norm=1 relu=1 epsilon=8"},
                                     {"4x5x3x5 2x5 2x5", "norm=2 epsilon=8"},
                                     {"5x3x4x3 3x3 3x3", "norm=2 relu=1 epsilon=8"},
                                     {"3x16x3x3 1x16 1x16", "norm=8 variance=population epsilon=8"},
                                     {"3x5x2x3x4 2x5 2x5", "norm=2 momentum=0.3 epsilon=8"},
                                     {NULL, NULL}};

const meg_op meg_op_norm = {
    .name = "norm",
    .relu_at = 1 + offsetof(meg_norm_attr, relu),
    .doc = "normalises with given mean and variance (a phase of batchnorm)",
    .params = meg_norm_params,
    .attr_bytes = sizeof(meg_norm_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .weights = meg_norm_weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = AFFINE | MOMENTS,
              [MEG_EVAL] = AFFINE | RUNNING,
              [MEG_STATE_PASS] = MOMENTS | RUNNING,
              [MEG_BACKWARD] = AFFINE | MOMENTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y),
               [MEG_EVAL] = MEG_BIT(MEG_Y),
               [MEG_STATE_PASS] = RUNNING,
               [MEG_BACKWARD] = GRADIENTS},
    .cheap = true,
    MEG_KERNELS_OF(norm),
    .overwrites = true,
    .samples = samples,
};
#endif
