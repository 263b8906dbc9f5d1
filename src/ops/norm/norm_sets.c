/* The last phase of the normalisations inside a sample: with a mean and a variance of every set
 * that are values of their own, whoever summed them. It reduces nothing itself, so every axis may
 * be cut; what backward sends to mean and variance goes on through these nodes. */
#include "ops/common/shape.h"
#include "ops/norm/setnorm.h"

enum {
    MEAN = MEG_X + 1,
    VAR
};

/* dx, and the gradients of a line of sets: of the mean -rate sum(g), of the variance
 * -rate^2 sum(g x^) / 2 */
static void pull(const meg_call *c, const meg_box *sets)
{
    static const meg_set_sums none;
    meg_set_sums sums = {{0}, {0}};
    meg_box part = meg_sets_part(c, sets);
    meg_normed k;
    meg_sets_reduce(c, &part, &sums);
    meg_normed_open(c, &part, &k);
    meg_normed_load(c, &part, &k);
    for (int64_t i = 0; i < meg_extent(sets, MEG_W); i++) {
        sums.g[i] *= -k.rate[i];
        sums.dot[i] *= -k.rate[i] * k.rate[i] / 2;
    }
    if (c->t[MEG_DX + MEAN].data) meg_store_line(&c->t[MEG_DX + MEAN], sets, sums.g);
    if (c->t[MEG_DX + VAR].data) meg_store_line(&c->t[MEG_DX + VAR], sets, sums.dot);
    if (c->t[MEG_DX].data) meg_sets_pull(c, &part, &none);
}

static void backward(const meg_call *c)
{
    int64_t p[MEG_AXES];
    meg_box sets = meg_setnorm_sets(c->node, c->work.out), lines = meg_lines(&sets);
    meg_clear_beyond(&c->t[MEG_DX], &c->work.out);
    meg_clear_beyond(&c->t[MEG_DX + MEAN], &sets);
    meg_clear_beyond(&c->t[MEG_DX + VAR], &sets);
    meg_setnorm_affine(c);
    for (bool on = meg_box_first(&lines, p); on; on = meg_box_next(&lines, p)) {
        meg_box line = meg_line(&sets, p);
        pull(c, &line);
    }
}

MEG_KERNELS(norm_sets) = {.run = {[MEG_FORWARD] = meg_setnorm_apply, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64
static const meg_param params[] = {{"channels", MEG_PARAM_INT, offsetof(meg_setnorm_attr, width),
                                    "1", "of a set; 0: all", NULL, 0, 0x1p62},
                                   {"pixels", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, pixels),
                                    "0", "a set has one pixel; else all", NULL, 0, 0},
                                   {"elements", MEG_PARAM_BOOL,
                                    offsetof(meg_setnorm_attr, elements), "0",
                                    "weight and bias per element; else per channel", NULL, 0, 0},
                                   {"epsilon", MEG_PARAM_REAL, offsetof(meg_setnorm_attr, epsilon),
                                    "1e-5", "added to the variance", NULL, 0, 100},
                                   {"affine", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, affine),
                                    "1", "weight and bias", NULL, 0, 0},
                                   {"lone", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, lone), "0",
                                    "the weight alone, without a bias", NULL, 0, 0},
                                   {"relu", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, relu), "0",
                                    "rectify the output", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_setnorm_attr *a = v->attr;
    const meg_box *x = &g->value[v->in[0]].shape;
    if (a->width == 0 || a->width > x->hi[MEG_C]) a->width = x->hi[MEG_C];
    MEG_TRY(e, meg_want_shape(g, v, e, MEAN, meg_setnorm_sets(v, *x)));
    MEG_TRY(e, meg_want_shape(g, v, e, VAR, meg_setnorm_sets(v, *x)));
    return meg_setnorm_infer(g, v, e, &out[0]);
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v;
    return (p == MEG_BACKWARD ? 10 : 4) * (double)meg_box_size(&w->out);
}

enum {
    INPUTS = 0x1f << MEG_X, /* x, mean, var, weight, bias */
    GRADIENTS = 0x1f << MEG_DX
};

/* The variance is an input here: epsilon keeps a random one, of either sign, away from the pole. */
static const meg_sample samples[] = {
    {"3x6 3x3 3x3", "channels=2 epsilon=8"},
    {"2x6x3x5 2x3 2x3", "channels=2 relu=1 epsilon=8"},
    {"2x3x7 2x3 2x3", "affine=0 epsilon=8"},
    {"2x5x7 2x1x7 2x1x7", "channels=0 pixels=1 epsilon=8"},
    {"2x4x2x3 2x1x2x3 2x1x2x3", "channels=0 pixels=1 affine=0 epsilon=8"},
    {"2x3x2x3x4 2x1 2x1", "channels=0 elements=1 epsilon=8"},
    {"2x5x7 2x1x7 2x1x7", "channels=0 pixels=1 lone=1 epsilon=8"},
    {"1x4x140 1x1x140 1x1x140", "channels=0 pixels=1 epsilon=8"},
    {"1x2x1x140 1x1 1x1", "channels=0 elements=1 epsilon=8"},
    {NULL, NULL}};

const meg_op meg_op_norm_sets = {
    .name = "norm_sets",
    .doc =
        "normalises with given mean and variance (a phase of groupnorm, instancenorm, layernorm)",
    .params = params,
    .attr_bytes = sizeof(meg_setnorm_attr),
    .data_inputs = 3,
    .data_inputs_max = 3,
    .weights = meg_setnorm_weights,
    .infer = infer,
    .need = meg_setnorm_need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = INPUTS, [MEG_BACKWARD] = INPUTS | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = GRADIENTS},
    .cheap = true,
    MEG_KERNELS_OF(norm_sets),
    .overwrites = true,
    .samples = samples,
};
#endif
