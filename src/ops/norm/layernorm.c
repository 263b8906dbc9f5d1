/* Layer normalisation: over the channels of each pixel (tokens lie on w and features on c: the
 * transformer), or over a whole sample, with a weight and a bias for each of its elements. */
#include "ops/norm/setnorm.h"

static const meg_param params[] = {{"axes", MEG_PARAM_CHOICE, offsetof(meg_setnorm_attr, axes), "c",
                                    "what is normalised over: channels, or channels and pixels",
                                    "c|all", 0, 0},
                                   {"epsilon", MEG_PARAM_REAL, offsetof(meg_setnorm_attr, epsilon),
                                    "1e-5", "added to the variance", NULL, 0, 100},
                                   {"affine", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, affine),
                                    "1", "weight and bias", NULL, 0, 0},
                                   {"lone", MEG_PARAM_BOOL, offsetof(meg_setnorm_attr, lone), "0",
                                    "the weight alone, without a bias", NULL, 0, 0},
                                   {0}};

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_setnorm_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    MEG_CHECK(e, x->rank >= 2, MEG_EARG,
              "%s: layernorm averages over channels, but its input has rank %d: use 2 to 5 axes",
              v->name, x->rank);
    a->width = x->shape.hi[MEG_C];
    a->pixels = a->axes == 0;
    a->elements = a->axes == 1;
    return meg_setnorm_infer(g, v, e, &out[0]);
}

static const meg_sample samples[] = {{"3x7", NULL},
                                     {"2x5x9", NULL},
                                     {"2x6x4x3", "epsilon=1e-3"},
                                     {"1x5x2x3x4", "affine=0"},
                                     {"1x4x150", NULL},
                                     {"2x16x7", NULL},
                                     {"2x48x5", NULL},
                                     {"1x32x3x5", "affine=0"},
                                     {"2x17x6", NULL},
                                     {"2x6", "axes=all"},
                                     {"2x5x9", "axes=all"},
                                     {"3x4x3x5", "axes=all"},
                                     {"2x3x4x3", "axes=all affine=0"},
                                     {"2x2x3x2x4", "axes=all"},
                                     {"1x2x1x140", "axes=all"},
                                     {"2x16x3x3", "axes=all"},
                                     {"2x17x6", "lone=1"},
                                     {"3x7", "lone=1"},
                                     {"2x5x9", "axes=all lone=1"},
                                     {NULL, NULL}};

const meg_op meg_op_layernorm = {
    .name = "layernorm",
    .onnx = "LayerNormalization",
    .doc = "normalises the channels of every pixel, or every sample",
    .paper = "Ba, Kiros, Hinton, Layer normalization, 2016",
    .params = params,
    .infer = infer,
    MEG_SETNORM_FUSED,
    .samples = samples,
};
