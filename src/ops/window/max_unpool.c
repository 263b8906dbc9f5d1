/* Max-unpooling: puts each pixel where its index says, and zeros elsewhere. The indices are those
 * of max-pooling (maxpool indices=1): flat in the plane (d, h, w) of the output. One that lies
 * outside the plane puts nothing. Where two pixels share an index the later one, in row-major
 * order, stays, but the gradient goes to both: so does PyTorch.
 *
 * Any pixel may go anywhere: a part of an output plane needs the whole of the input's.
 */
#include "ops/common/runs.h"
#include "ops/common/shape.h"
#include "ops/common/window.h"

#include <inttypes.h>

static meg_box need(const meg_graph *g, const meg_node *v, int input, const meg_work *w)
{
    meg_box in = g->value[v->in[input]].shape;
    for (int a = MEG_N; a <= MEG_C; a++)
        in.lo[a] = w->out.lo[a], in.hi[a] = w->out.hi[a];
    return in;
}

/* Where the pixel at `from` goes; false if that is none of the work's outputs. */
static bool target(const meg_call *c, const int64_t from[MEG_AXES], int64_t to[MEG_AXES])
{
    const meg_array *index = &c->t[MEG_X + 1];
    const meg_box *y = &c->graph->value[c->node->out[0]].shape, *out = &c->work.out;
    int64_t at = ((const int32_t *)index->data)[meg_box_at(&index->box, from)];
    if (at < 0) return false;
    to[MEG_N] = from[MEG_N], to[MEG_C] = from[MEG_C];
    for (int a = MEG_W; a >= MEG_D; a--) {
        to[a] = at % y->hi[a];
        at /= y->hi[a];
        if (to[a] < out->lo[a] || to[a] >= out->hi[a]) return false;
    }
    return at == 0;
}

static void forward(const meg_call *c)
{
    int64_t p[MEG_AXES], q[MEG_AXES];
    meg_box in = need(c->graph, c->node, 0, &c->work);
    meg_fill_part(&c->t[MEG_Y], c->work.out, 0);
    for (bool on = meg_box_first(&in, p); on; on = meg_box_next(&in, p))
        if (target(c, p, q)) *meg_real_at(&c->t[MEG_Y], q) = *meg_real_at(&c->t[MEG_X], p);
}

static void backward(const meg_call *c)
{
    const meg_array *dx = &c->t[MEG_DX];
    int64_t p[MEG_AXES], q[MEG_AXES];
    meg_box in = need(c->graph, c->node, 0, &c->work);
    if (!dx->data) return;
    meg_fill_part(dx, dx->box, 0);
    for (bool on = meg_box_first(&in, p); on; on = meg_box_next(&in, p))
        if (target(c, p, q)) *meg_real_at(dx, p) = *meg_real_at(&c->t[MEG_DY], q);
}

MEG_KERNELS(max_unpool) = {.run = {[MEG_FORWARD] = forward, [MEG_BACKWARD] = backward}};

#ifndef MEG_F64

static const meg_param params[] = {
    {"size", MEG_PARAM_AXES, offsetof(meg_unpool_attr, size), "",
     "of the output: 8, 8x9; without it kernel, stride and pad of the pooling say", NULL, 1,
     1 << 24},
    {"kernel", MEG_PARAM_AXES, offsetof(meg_unpool_attr, kernel), "", "of the pooling", NULL, 1,
     1 << 16},
    {"stride", MEG_PARAM_AXES, offsetof(meg_unpool_attr, stride), "",
     "of the pooling; the kernel if not given", NULL, 1, 1 << 16},
    {"pad", MEG_PARAM_PADS, offsetof(meg_unpool_attr, pad), "0", "of the pooling", NULL, 0,
     1 << 16},
    {0}};

/* Extents along d, h, w. */
static meg_status size_of(const meg_node *v, meg_error *e, const meg_value *x,
                          int64_t size[MEG_SPACE])
{
    const meg_unpool_attr *a = v->attr;
    int space = x->rank - 2, count = a->size.count;
    meg_window_words words = {&a->kernel, &a->stride, NULL, &a->pad, true, false, NULL};
    meg_window win[MEG_SPACE];
    MEG_CHECK(e, count > 0 || a->kernel.count > 0, MEG_EARG,
              "%s: max_unpool got neither size nor kernel: give the size of the output, or what "
              "the pooling had",
              v->name);
    MEG_TRY(e, meg_windows_transpose(e, v, x, &words, win)); /* also checks the rank */
    MEG_CHECK(e, count <= 1 || count == space, MEG_EARG,
              "%s: size lists %d numbers, but the input has %d spatial ax%s: give one for all or "
              "one for each",
              v->name, count, space, space == 1 ? "is" : "es");
    for (int i = 0; i < MEG_SPACE; i++) {
        int at = count == 1 ? 0 : i - (MEG_SPACE - space);
        bool given = count > 0 && i >= MEG_SPACE - space;
        size[i] = given ? a->size.at[at] : meg_window_spread(&win[i], x->shape.hi[MEG_D + i]);
    }
    return MEG_OK;
}

static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    const meg_value *x = &g->value[v->in[0]], *index = &g->value[v->in[1]];
    int64_t size[MEG_SPACE];
    char wanted[96], got[96];
    MEG_TRY(e, meg_want_real(g, v, e, 0));
    MEG_CHECK(e, index->dtype == MEG_I32, MEG_EARG,
              "%s: indices '%s' are %s, but must be i32: the second output of maxpool indices=1",
              v->name, index->name, meg_dtype_name(index->dtype));
    meg_box_text(&x->shape, wanted);
    meg_box_text(&index->shape, got);
    MEG_CHECK(e, meg_box_equal(&x->shape, &index->shape), MEG_EARG,
              "%s: indices '%s' are %s (n c d h w), but for this input must be %s", v->name,
              index->name, got, wanted);
    MEG_TRY(e, size_of(v, e, x, size));
    MEG_CHECK(e, size[0] * size[1] * size[2] <= INT32_MAX, MEG_EARG,
              "%s: a plane of %" PRId64 " pixels, but indices count to %d", v->name,
              size[0] * size[1] * size[2], INT32_MAX);
    meg_shape_like(&out[0], x);
    for (int i = 2; i < x->rank; i++) {
        int axis = MEG_AXES - x->rank + i;
        out[0].dims[i] = out[0].shape.hi[axis] = size[axis - MEG_D];
    }
    return MEG_OK;
}

static double flops(const meg_graph *g, const meg_node *v, const meg_work *w, meg_pass p)
{
    (void)g, (void)v, (void)p; /* moves, no arithmetic */
    return (double)meg_box_size(&w->out);
}

/* Labels serve as indices: with five axes they have channels. They are drawn at random, so the
 * planes are large enough for all to differ. */
static const meg_sample samples[] = {
    {"1x2x2x3 1x2x1x2x3@900", "size=30x30"},      {"2x3x3 2x3x1x1x3@500", "size=500"},
    {"1x2x2x2x2 1x2x2x2x2@999", "size=10x10x10"}, {"1x1x2x2 1x1x1x2x2@400", "kernel=10 stride=10"},
    {"1x16x2x2 1x16x1x2x2@2000", "size=45x45"},   {0}};

const meg_op meg_op_max_unpool = {
    .name = "max_unpool",
    .onnx = "MaxUnpool",
    .doc = "puts pixels where max-pooling found them, zeros elsewhere",
    .paper = "Zeiler, Fergus, Visualizing and understanding convolutional networks, ECCV 2014",
    .params = params,
    .attr_bytes = sizeof(meg_unpool_attr),
    .data_inputs = 2,
    .data_inputs_max = 2,
    .infer = infer,
    .need = need,
    .flops = flops,
    .reads = {[MEG_FORWARD] = MEG_BIT(MEG_X) | MEG_BIT(MEG_X + 1),
              [MEG_BACKWARD] = MEG_BIT(MEG_X + 1) | MEG_BIT(MEG_DY)},
    .writes = {[MEG_FORWARD] = MEG_BIT(MEG_Y), [MEG_BACKWARD] = MEG_BIT(MEG_DX)},
    .cheap = true,
    MEG_KERNELS_OF(max_unpool),
    .samples = samples,
};

#endif
