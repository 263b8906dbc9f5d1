/* Group normalisation: the channels of a sample in groups of equal size, each normalised over its
 * channels and all pixels. No statistics pass from sample to sample: training and evaluation are
 * the same, and micro-batches change nothing. */
#include "ops/norm/setnorm.h"

static const meg_param params[] = {{"groups", MEG_PARAM_INT, offsetof(meg_setnorm_attr, groups),
                                    NULL, "parts that the channels are cut into", NULL, 1, 1 << 24},
                                   {"epsilon", MEG_PARAM_REAL, offsetof(meg_setnorm_attr, epsilon),
                                    "1e-5", "added to the variance", NULL, 0, 100},
                                   {"affine", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, affine),
                                    "1", "weight and bias per channel", NULL, 0, 0},
                                   {"relu", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, relu), "0",
                                    "rectify the output", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_setnorm_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    long long channels = x->shape.hi[MEG_C], groups = a->groups;
    MEG_CHECK(
        e, channels % groups == 0, MEG_EARG,
        "%s: groups=%lld does not divide the %lld channels of the input: use a divisor of %lld",
        v->name, groups, channels, channels);
    a->width = channels / groups;
    return meg_setnorm_infer(g, v, e, &out[0]);
}

static const meg_sample samples[] = {{"2x6", "groups=2"},
                                     {"2x6x5x3", "groups=3"},
                                     {"3x4x7", "groups=4 relu=1 epsilon=1e-3"},
                                     {"2x5x3x5", "groups=1"},
                                     {"2x8x4x3", "groups=2 affine=0"},
                                     {"1x6x2x3x4", "groups=2 relu=1"},
                                     {"1x4x2x140", "groups=2"},
                                     {"2x32x3x5", "groups=8"},
                                     {"2x48x4x4", "groups=3 relu=1"},
                                     {"1x64x5x3", "groups=2"},
                                     {"2x20x5x5", "groups=4 affine=0 relu=1"},
                                     {NULL, NULL}};

const meg_op meg_op_groupnorm = {
    .name = "groupnorm",
    .relu_at = 1 + offsetof(meg_setnorm_attr, relu),
    .onnx = "GroupNormalization",
    .doc = "normalises groups of channels of every sample",
    .paper = "Wu, He, Group normalization, ECCV 2018",
    .params = params,
    .infer = infer,
    MEG_SETNORM_FUSED,
    .samples = samples,
};
