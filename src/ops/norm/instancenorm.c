/* Instance normalisation: every channel of every sample over its pixels; group normalisation with
 * as many groups as channels. Weight and bias only on request, as PyTorch has it. */
#include "ops/norm/setnorm.h"

static const meg_param params[] = {{"epsilon", MEG_PARAM_REAL, offsetof(meg_setnorm_attr, epsilon),
                                    "1e-5", "added to the variance", NULL, 0, 100},
                                   {"affine", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, affine),
                                    "0", "weight and bias per channel", NULL, 0, 0},
                                   {"relu", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, relu), "0",
                                    "rectify the output", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_setnorm_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_CHECK(e, x->rank >= 3, MEG_EARG,
              "%s: instancenorm averages over pixels, but its input has rank %d: use 3 to 5 axes",
              v->name, x->rank);
    a->width = 1;
    return meg_setnorm_infer(g, v, e, &out[0]);
}

static const meg_sample samples[] = {{"2x3x5x4", NULL},
                                     {"2x3x9", "affine=1"},
                                     {"2x5x3x5", "affine=1 relu=1"},
                                     {"1x3x2x3x4", "epsilon=1e-3"},
                                     {"1x2x3x140", "affine=1"},
                                     {"2x16x5x3", "affine=1"},
                                     {"1x32x4x4", "relu=1"},
                                     {"2x17x3x4", "affine=1"},
                                     {NULL, NULL}};

const meg_op meg_op_instancenorm = {
    .name = "instancenorm",
    .relu_at = 1 + offsetof(meg_setnorm_attr, relu),
    .onnx = "InstanceNormalization",
    .doc = "normalises every channel of every sample",
    .paper = "Ulyanov, Vedaldi, Lempitsky, Instance normalization: the missing ingredient for fast "
             "stylization, 2016",
    .params = params,
    .infer = infer,
    MEG_SETNORM_FUSED,
    .samples = samples,
};
