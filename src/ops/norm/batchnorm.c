/* Batch normalisation, fused: statistics, normalisation and, on request, the rectifier in one node.
 * A plan that cuts samples or pixels replaces it by its phases: mean, var, norm (see norm.h).
 *
 *     aux 0, aux 1   mean and biased variance, (groups, c): replay and backward reduce nothing
 *     state pass     adds the groups to the running statistics
 *
 * The variance is a second sum, of (x - mean)^2: E[x^2] - E[x]^2 cancels. What is stored is what
 * forward normalises with, so that replay gives the same bits.
 */
#include "ops/common/shape.h"
#include "ops/norm/norm.h"

#include <inttypes.h>

enum {
    WEIGHT = MEG_X + 1,
    BIAS,
    RUNNING_MEAN,
    RUNNING_VAR
};

#ifndef MEG_F64
const meg_param meg_norm_params[] = {
    {"epsilon", MEG_PARAM_REAL, offsetof(meg_norm_attr, epsilon), "1e-5", "added to the variance",
     NULL, 0, 100},
    {"momentum", MEG_PARAM_REAL, offsetof(meg_norm_attr, momentum), "0.1",
     "weight of the new batch in the running statistics", NULL, 0, 1},
    {"variance", MEG_PARAM_CHOICE, offsetof(meg_norm_attr, variance), "unbiased",
     "what the running variance averages", "unbiased|population", 0, 0},
    {"norm", MEG_PARAM_INT, offsetof(meg_norm_attr, norm), "0",
     "samples that are normalised together; 0: all", NULL, 0, 0x1p62},
    {"relu", MEG_PARAM_BOOL, offsetof(meg_norm_attr, relu), "0", "rectify the output", NULL, 0, 0},
    {0}};

int meg_norm_weights(const meg_graph *g, const meg_node *v, meg_weight_spec out[MEG_INPUTS])
{
    static const meg_weight_spec spec[MEG_NORM_WEIGHTS] = {
        {.suffix = "weight", .kind = MEG_PARAMETER, .start = MEG_ONES},
        {.suffix = "bias", .kind = MEG_PARAMETER, .start = MEG_ZEROS},
        {.suffix = "running_mean", .kind = MEG_STATE, .start = MEG_ZEROS},
        {.suffix = "running_var", .kind = MEG_STATE, .start = MEG_ONES}};
    int64_t channels = g->value[v->in[0]].shape.hi[MEG_C];
    for (int i = 0; i < MEG_NORM_WEIGHTS; i++) {
        out[i] = spec[i];
        out[i].shape = meg_box_of(1, channels, 1, 1, 1);
        out[i].rank = 1;
        out[i].dims[0] = channels;
    }
    return MEG_NORM_WEIGHTS;
}

meg_status meg_norm_check(const meg_graph *g, const meg_node *v, meg_error *e)
{
    int first = v->op->data_inputs;
    int64_t channels = g->value[v->in[0]].shape.hi[MEG_C];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, v->inputs == first + MEG_NORM_WEIGHTS, MEG_EARG,
              "%s: %s has %d inputs, but takes %d: then weight, bias, running_mean, running_var",
              v->name, v->op->name, v->inputs, first + MEG_NORM_WEIGHTS);
    for (int i = first; i < v->inputs; i++)
        MEG_TRY(e, meg_want_shape(g, v, e, i, meg_box_of(1, channels, 1, 1, 1)));
    return MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    MEG_TRY(e, meg_norm_check(g, v, e));
    meg_shape_like(&out[0], &g->value[v->in[0]]);
    return MEG_OK;
}

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    if (input == 0) return w->out;
    meg_box in = g->value[v->in[input]].shape;
    in.lo[MEG_C] = w->out.lo[MEG_C];
    in.hi[MEG_C] = w->out.hi[MEG_C];
    return in;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    static const double each[MEG_PASSES] = {
        [MEG_FORWARD] = 7, [MEG_EVAL] = 3, [MEG_REPLAY] = 3, [MEG_BACKWARD] = 11};
    (void)g, (void)v;
    return each[p] * (double)meg_box_size(&w->out);
}

static int64_t grain(const meg_graph *g, const meg_node *v, int axis)
{
    (void)g, (void)v;
    return axis == MEG_C ? 1 : 0; /* the other axes are summed inside */
}
#endif

static meg_norm_groups groups_of(const meg_node *v, const meg_work *w)
{
    const meg_norm_attr *attr = v->attr;
    return meg_norm_groups_of(attr->norm, w->out.lo[MEG_N], w->out.hi[MEG_N]);
}

#ifndef MEG_F64
static void aux(const meg_graph *g, const meg_node *v, const meg_work *w, int i, meg_box *box,
                meg_dtype *type)
{
    (void)g, (void)i;
    *box = meg_box_of(groups_of(v, w).count, w->out.hi[MEG_C], 1, 1, 1);
    box->lo[MEG_C] = w->out.lo[MEG_C];
    *type = MEG_F32;
}

/* in[]: x, weight, bias, running_mean, running_var */
static int expand(meg_graph *g, const meg_node *v, const int in[])
{
    char attrs[256], norm[48];
    const meg_norm_attr *attr = v->attr;
    const char *name = v->name; /* of the pool, unlike v, which moves as nodes are added */
    meg_options_print(meg_norm_params, attr, attrs, sizeof attrs);
    snprintf(norm, sizeof norm, "norm=%" PRId64, attr->norm);
    int mean = meg_graph_add(g, "mean", meg_pool_text(g->pool, "%s.mean", name), norm, 1, in);
    int var = meg_graph_add(g, "var", meg_pool_text(g->pool, "%s.var", name), norm, 2,
                            (int[]){in[0], mean});
    return meg_graph_add(g, "norm", name, attrs, 7,
                         (int[]){in[0], mean, var, in[1], in[2], in[3], in[4]});
}
#endif

static meg_normal normal_at(const meg_call *c, int64_t group, int64_t ch)
{
    real moment[2] = {*meg_channel_at(&c->t[MEG_AUX], group, ch),
                      *meg_channel_at(&c->t[MEG_AUX + 1], group, ch)};
    return meg_normal_of(c->node->attr, moment, *meg_channel_at(&c->t[WEIGHT], 0, ch),
                         *meg_channel_at(&c->t[BIAS], 0, ch));
}

static void replay(const meg_call *c)
{
    const meg_box *out = &c->work.out;
    meg_norm_groups s = groups_of(c->node, &c->work);
    meg_clear_beyond(&c->t[MEG_Y], out);
    for (int64_t i = 0; i < s.count; i++)
        for (int64_t ch = out->lo[MEG_C]; ch < out->hi[MEG_C]; ch++) {
            meg_normal k = normal_at(c, i, ch);
            meg_normal_apply(&k, &c->t[MEG_Y], &c->t[MEG_X], meg_group_part(&s, *out, i, ch));
        }
}

static void forward(const meg_call *c)
{
    const meg_box *out = &c->work.out;
    meg_norm_groups s = groups_of(c->node, &c->work);
    for (int64_t i = 0; i < s.count; i++)
        for (int64_t ch = out->lo[MEG_C]; ch < out->hi[MEG_C]; ch++) {
            meg_box part = meg_group_part(&s, *out, i, ch);
            double count = (double)meg_box_size(&part);
            double mean = meg_sum_power(&c->t[MEG_X], part, 0, 1) / count;
            double var = meg_sum_power(&c->t[MEG_X], part, mean, 2) / count;
            *meg_channel_at(&c->t[MEG_AUX], i, ch) = (real)mean;
            *meg_channel_at(&c->t[MEG_AUX + 1], i, ch) = (real)var;
        }
    replay(c);
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

static void state(const meg_call *c)
{
    const meg_box *out = &c->work.out;
    meg_norm_groups s = groups_of(c->node, &c->work);
    meg_norm_groups all = meg_norm_groups_whole(c->graph, c->node);
    for (int64_t i = 0; i < s.count; i++) {
        meg_running share = meg_running_of(c, out->lo[MEG_N] / all.size + i);
        for (int64_t ch = out->lo[MEG_C]; ch < out->hi[MEG_C]; ch++) {
            real moment[2] = {*meg_channel_at(&c->t[MEG_AUX], i, ch),
                              *meg_channel_at(&c->t[MEG_AUX + 1], i, ch)};
            real *const running[2] = {meg_channel_at(&c->t[RUNNING_MEAN], 0, ch),
                                      meg_channel_at(&c->t[RUNNING_VAR], 0, ch)};
            meg_running_update(c->node->attr, share, moment, meg_group_count(&s, out, i), running);
        }
    }
}

/* dx of one channel; returns the sums over all its groups */
static meg_normal_sums backward_channel(const meg_call *c, const meg_norm_groups *s, int64_t ch)
{
    const meg_array *x = &c->t[MEG_X], *dy = &c->t[MEG_DY], *dx = &c->t[MEG_DX];
    meg_normal_sums total = {0, 0};
    for (int64_t i = 0; i < s->count; i++) {
        meg_box part = meg_group_part(s, c->work.out, i, ch);
        double count = (double)meg_box_size(&part);
        meg_normal k = normal_at(c, i, ch);
        meg_normal_sums sums = meg_normal_reduce(&k, dy, x, part);
        total.dy += sums.dy;
        total.dot += sums.dot;
        if (dx->data)
            meg_normal_pull(&k, (meg_normal_sums){sums.dy / count, sums.dot / count},
                            (const meg_array *[]){dx, dy, x}, part);
    }
    return total;
}

static void backward(const meg_call *c)
{
    const meg_box *out = &c->work.out;
    const meg_array *weight = &c->t[MEG_DX + 1], *bias = &c->t[MEG_DX + 2];
    meg_norm_groups s = groups_of(c->node, &c->work);
    meg_box channels = meg_box_of(1, out->hi[MEG_C], 1, 1, 1);
    channels.lo[MEG_C] = out->lo[MEG_C];
    meg_clear_beyond(&c->t[MEG_DX], out);
    meg_clear_beyond(weight, &channels);
    meg_clear_beyond(bias, &channels);
    for (int64_t ch = out->lo[MEG_C]; ch < out->hi[MEG_C]; ch++) {
        meg_normal_sums total = backward_channel(c, &s, ch);
        if (weight->data) *meg_channel_at(weight, 0, ch) = (real)total.dot;
        if (bias->data) *meg_channel_at(bias, 0, ch) = (real)total.dy;
    }
}

MEG_KERNELS(batchnorm) = {.run = {[MEG_FORWARD] = forward,
                                  [MEG_EVAL] = evaluate,
                                  [MEG_REPLAY] = replay,
                                  [MEG_STATE_PASS] = state,
                                  [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
enum {
    AFFINE = MEG_BIT(MEG_X) | MEG_BIT(WEIGHT) | MEG_BIT(BIAS),
    RUNNING = MEG_BIT(RUNNING_MEAN) | MEG_BIT(RUNNING_VAR),
    MOMENTS = MEG_BIT(MEG_AUX) | MEG_BIT(MEG_AUX + 1)
};

static const meg_sample samples[] = {{"6x5", NULL},
                                     {"4x16", "relu=1"},
                                     {"3x7x9", "epsilon=1e-3"},
                                     {"2x3x5x7", NULL},
                                     {"4x5x3x5", "norm=2"},
                                     {"5x3x4x3", "norm=2 relu=1"},
                                     {"4x16x5x3", "norm=1 relu=1"},
                                     {"3x32x3x3", "norm=8 variance=population"},
                                     {"3x5x2x3x4", "norm=2 momentum=0.3"},
                                     {"1x1x3x3", "relu=1 variance=population"},
                                     {NULL, NULL}};

const meg_op meg_op_batchnorm = {
    .name = "batchnorm",
    .relu_at = 1 + offsetof(meg_norm_attr, relu),
    .norm_at = 1 + offsetof(meg_norm_attr, norm),
    .onnx = "BatchNormalization",
    .doc = "normalises every channel over samples and pixels",
    .paper = "Ioffe, Szegedy, Batch normalization: accelerating deep network training by reducing "
             "internal covariate shift, ICML 2015",
    .params = meg_norm_params,
    .attr_bytes = sizeof(meg_norm_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .weights = meg_norm_weights,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = AFFINE,
              [MEG_EVAL] = AFFINE | RUNNING,
              [MEG_REPLAY] = AFFINE | MOMENTS,
              [MEG_STATE_PASS] = MOMENTS | RUNNING,
              [MEG_BACKWARD] = AFFINE | MOMENTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y) | MOMENTS,
               [MEG_EVAL] = MEG_BIT(MEG_Y),
               [MEG_REPLAY] = MEG_BIT(MEG_Y),
               [MEG_STATE_PASS] = RUNNING,
               [MEG_BACKWARD] = MEG_BIT(MEG_DX) | MEG_BIT(MEG_DX + 1) | MEG_BIT(MEG_DX + 2)},
    .auxes = 2,
    .aux = aux,
    .cheap = true,
    .grain = grain,
    .expand = expand,
    MEG_KERNELS_OF(batchnorm),
    .overwrites = true,
    .samples = samples,
};
#endif
