/* How much of each ONNX operator is read. What is refused beyond these words and beyond what holds for
 * all of them (the batch is the first axis and stays whole, ranks of 1 to 5, real numbers, nothing
 * empty) is a mistake: tools/onnx_conformance.py says so.
 */
#include "import/onnx/onnx.h"

#include <string.h>

#define FOLDED "of constants and shapes only"

typedef struct claim {
    const char *op, *words;
} claim;

static const claim CLAIMS[] = {
    {"Conv", "weights are constants"},
    {"ConvTranspose", "weights are constants"},
    {"Gemm", "the matrix is a constant; no transA"},
    {"MatMul",
     "both data, of equal extents but for the last two axes; or one a constant of 1 or 2 axes"},
    {"BatchNormalization", "weights are constants"},
    {"LayerNormalization", "weights are constants; the first output"},
    {"InstanceNormalization", "weights are constants"},
    {"GroupNormalization", "weights are constants"},
    {"Dropout", "the first output; its own random numbers"},
    {"RandomUniformLike", "as a mask that data is multiplied with; its own random numbers"},
    {"RandomUniform", "as a mask that data is multiplied with; its own random numbers"},
    {"Bernoulli",
     "of one constant, as a mask that data is multiplied with; its own random numbers"},
    {"MaxPool", "the first output"},
    {"Clip", "limits are constants"},
    {"Pad", "pads are constants; mode wrap only adds"},
    {"Slice", "limits are constants; steps above 0"},
    {"Resize", "modes nearest, linear, cubic (of -0.75); half_pixel, pytorch_half_pixel, "
               "align_corners, asymmetric; of "
               "spatial axes; no antialias, no keep_aspect_ratio_policy"},
    {"Gather", "entries of data named by constants; rows of a constant matrix named by data"},
    {"Attention",
     "q, k, v are data; the first output; no past keys, no softcap; a mask is a constant, or "
     "data of four axes, the batch first"},
    {"Einsum", "a letter for each axis; the batch is in both operands and the output, or one is a "
               "weight with the summed letters last"},
    {"Expand", "the shape is known when the file is read"},
    {"Reshape", "the shape is known when the file is read"},
    {"Cast", "real to real, whole to whole"},
    {"CastLike", "real to real, whole to whole"},
    {"Pow", "the exponent is one constant"},
    {"Swish", "alpha 1"},
    {"Where", "the mask is computed, or a constant; data is as large as the output"},
    {"ConstantOfShape", FOLDED},
    {"Range", FOLDED},
    {"Trilu", FOLDED},
    {"Mod", FOLDED},
    {"Floor", FOLDED},
    {"Ceil", FOLDED},
    {"Round", FOLDED},
    {"Sin", FOLDED},
    {"Cos", FOLDED},
};

const char *meg_onnx_claim(const char *op)
{
    for (size_t i = 0; i < sizeof CLAIMS / sizeof *CLAIMS; i++)
        if (strcmp(CLAIMS[i].op, op) == 0) return CLAIMS[i].words;
    return "";
}
