/* Resizing along 1 to 3 spatial axes: the nearest pixel, linear between neighbours (bi-, tri- linear, by the
 * number of axes), or cubic (Keys, Cubic convolution interpolation, 1981; a = -3/4). Where output p lies in an input, one pixel being of length 1:
 *
 *     half_pixel      (p + 1/2) / scale - 1/2     linear, cubic by default; PyTorch's align_corners=False
 *     align_corners   p * (in - 1) / (out - 1)    first and last pixels stay where they are
 *     asymmetric      p / scale                   nearest by default, rounded down, as in PyTorch
 *
 * The scale is what was given, or out / in where a size was: so do PyTorch and ONNX. PyTorch's
 * nearest-exact is "coords=half_pixel round=up"; ONNX's default is "coords=half_pixel round=down".
 */
#include "ops/common/shape.h"
#include "ops/common/spans.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void forward(const meg_call *c)
{
    meg_spans_forward(c);
}

static void backward(const meg_call *c)
{
    meg_spans_backward(c);
}

MEG_KERNELS(resize) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

enum {
    BY_MODE,
    HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC
};

static const meg_param params[] = {
    {"mode", MEG_PARAM_CHOICE, offsetof(meg_resize_attr, mode), "nearest", "what an output takes",
     "nearest|linear|cubic", 0, 0},
    {"size", MEG_PARAM_AXES, offsetof(meg_resize_attr, size), "", "of the output: 32, 32x48", NULL,
     1, 1 << 24},
    {"scale", MEG_PARAM_TEXT, offsetof(meg_resize_attr, scale), "",
     "instead of the size, times the input's, rounded down: 2, 1.5, 1x2.5", NULL, 0, 0},
    {"coords", MEG_PARAM_CHOICE, offsetof(meg_resize_attr, coords), "mode",
     "where outputs lie; mode: asymmetric for nearest, half_pixel for others",
     "mode|half_pixel|align_corners|asymmetric", 0, 0},
    {"round", MEG_PARAM_CHOICE, offsetof(meg_resize_attr, rounding), "floor",
     "which pixel is the nearest; down, up: the true one, and of two this one",
     "floor|ceil|down|up", 0, 0},
    {0}};

/* Reads "2" or "1.5x2" into one number per spatial axis. */
static meg_status read_scale(meg_error *e, const meg_node *v, int space, double scale[MEG_SPACE])
{
    const meg_resize_attr *a = v->attr;
    const char *text = a->scale;
    char *end;
    int count = 0;
    for (;; text = end + 1) {
        double number = strtod(text, &end);
        bool good = end != text && number > 0 && number <= 1 << 16 && count < MEG_SPACE;
        MEG_CHECK(e, good && (*end == 'x' || *end == '\0'), MEG_EARG,
                  "%s: scale=%s, but must be positive numbers, one for all axes or one for each: "
                  "2, 1.5, 1x2.5",
                  v->name, a->scale);
        scale[count++] = number;
        if (*end == '\0') break;
    }
    MEG_CHECK(e, count == 1 || count == space, MEG_EARG,
              "%s: scale lists %d numbers, but the input has %d spatial ax%s: give one for all or "
              "one for each",
              v->name, count, space, space == 1 ? "is" : "es");
    for (int i = 1; count == 1 && i < space; i++)
        scale[i] = scale[0];
    return MEG_OK;
}

static meg_status apply_scale(meg_error *e, const meg_node *v, int space)
{
    meg_resize_attr *a = v->attr;
    double scale[MEG_SPACE];
    MEG_TRY(e, read_scale(e, v, space, scale));
    for (int i = 0; i < space; i++) {
        meg_spans *s = &a->spans[MEG_SPACE - space + i];
        double length = floor((double)s->in * scale[i]);
        MEG_CHECK(e, length >= 1 && length <= 0x1p40, MEG_EARG,
                  "%s: scale %g makes %g of %" PRId64 " pixels: use one that leaves 1 or more",
                  v->name, scale[i], length, s->in);
        s->out = (int64_t)length;
        s->den = scale[i];
    }
    return MEG_OK;
}

static void place(const meg_resize_attr *a, meg_spans *s, bool scaled)
{
    int coords = a->coords;
    if (coords == BY_MODE) coords = a->mode == MEG_SPAN_NEAREST ? ASYMMETRIC : HALF_PIXEL;
    s->kind = a->mode;
    s->rounding = a->rounding;
    s->half = coords == HALF_PIXEL;
    if (coords == ALIGN_CORNERS) {
        s->num = s->out > 1 ? (double)(s->in - 1) : 0;
        s->den = s->out > 1 ? (double)(s->out - 1) : 1;
    } else if (!scaled) {
        s->num = (double)s->in;
        s->den = (double)s->out;
    }
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    meg_resize_attr *a = v->attr;
    const meg_value *x = &g->value[v->in[0]];
    bool sized = a->size.count > 0, scaled = a->scale[0] != '\0';
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, sized != scaled, MEG_EARG,
              "%s: resize got %s: give one of size= and scale=", v->name,
              sized ? "both a size and a scale" : "neither size nor scale");
    MEG_TRY(e, meg_spans_open(e, v, x));
    if (scaled) MEG_TRY(e, apply_scale(e, v, x->rank - 2));
    for (int i = MEG_SPACE - (x->rank - 2); i < MEG_SPACE; i++)
        place(a, &a->spans[i], scaled);
    meg_spans_output(x, a->spans, &out[0]);
    return MEG_OK;
}

static const meg_sample samples[] = {{"2x3x5x4", "scale=2"},
                                     {"1x5x4x7", "size=9x5"},
                                     {"1x3x6x5", "scale=1.5x2"},
                                     {"1x3x5x6", "scale=2.5 coords=half_pixel round=up"},
                                     {"1x3x7x6", "size=3x13 coords=half_pixel round=down"},
                                     {"1x2x5x5", "size=9 coords=align_corners round=up"},
                                     {"1x2x5x5", "size=3 round=ceil"},
                                     {"2x3x5x4", "mode=linear scale=2"},
                                     {"1x5x4x7", "mode=linear size=9x5"},
                                     {"1x3x5x6", "mode=linear scale=1.7"},
                                     {"1x3x5x4", "mode=linear size=9x11 coords=align_corners"},
                                     {"1x3x5x4", "mode=linear size=1x2 coords=align_corners"},
                                     {"1x3x4x5", "mode=linear scale=3x2 coords=asymmetric"},
                                     {"1x2x1x3", "mode=linear size=4x5"},
                                     {"2x3x5x4", "mode=cubic scale=2"},
                                     {"1x3x7x6", "mode=cubic size=4x9 coords=align_corners"},
                                     {"1x2x3x1", "mode=cubic size=5x3"},
                                     {"2x2x9", "mode=cubic scale=1.7"},
                                     {"3x3x7", "mode=linear scale=2"},
                                     {"2x3x7", "size=17"},
                                     {"1x2x90", "mode=linear size=260"},
                                     {"1x2x3x4x3", "mode=linear scale=2"},
                                     {"1x2x3x4x3", "scale=2x1x3"},
                                     {"1x2x5x4x3", "mode=linear size=3x7x3 coords=align_corners"},
                                     {"2x16x5x4", "scale=2"},
                                     {"1x32x4x5", "mode=linear scale=2"},
                                     {"1x17x4x5", "mode=linear size=7x3"},
                                     {"1x16x3x4x2", "mode=linear scale=2 coords=align_corners"},
                                     {0}};

const meg_op meg_op_resize = {
    .name = "resize",
    .onnx = "Resize",
    .doc = "resizes images: nearest pixel, linear or cubic",
    .params = params,
    .attr_bytes = sizeof(meg_resize_attr),
    .data_inputs = 1,
    .data_inputs_max = 1,
    .infer = infer,
    .need = meg_spans_need,
    .flops = meg_spans_flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X), [MEG_BACKWARD] = MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(resize),
    .samples = samples,
};

#endif
