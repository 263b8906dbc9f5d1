/* Transposed convolution on the cpu: convolution's kernels, with the sides exchanged.
 *
 *     conv_transpose                        the convolution that it is the adjoint of
 *     forward    y  = W' x + bias           backward   dx = W' dy
 *     backward   dx = W dy                  forward    y  = W x
 *     weight     dW from x, dy              weight     dW from x, dy, exchanged
 *
 * The weight is the same tensor, since its layout is that convolution's. So a request becomes one
 * for a `conv` node in a graph of its own, and cpu_conv.c does the rest; oneDNN's deconvolution is
 * slower where forward and weights matter (2x2, stride 2). Only the bias belongs to the other side:
 * it is added, and its gradient summed, by a sweep of our own.
 *
 * A part of an image is one of its own: the convolution is between the two boxes, moved to the
 * origin, and what its windows see beyond the box of outputs is padding.
 */
#include "device/cpu/common/layer.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct exchange { /* which of our operands are what to the convolution */
    meg_pass pass;
    int from[MEG_OPERANDS]; /* its operand i is our from[i] - 1; 0: it has none */
} exchange;

static const exchange exchanges[MEG_PASSES] = {
    [MEG_FORWARD] = {MEG_BACKWARD,
                     {[MEG_DX] = MEG_Y + 1, [MEG_DY] = MEG_X + 1, [MEG_X + 1] = MEG_X + 2}},
    [MEG_EVAL] = {MEG_BACKWARD,
                  {[MEG_DX] = MEG_Y + 1, [MEG_DY] = MEG_X + 1, [MEG_X + 1] = MEG_X + 2}},
    [MEG_REPLAY] = {MEG_BACKWARD,
                    {[MEG_DX] = MEG_Y + 1, [MEG_DY] = MEG_X + 1, [MEG_X + 1] = MEG_X + 2}},
    [MEG_BACKWARD] = {MEG_FORWARD,
                      {[MEG_X] = MEG_DY + 1, [MEG_Y] = MEG_DX + 1, [MEG_X + 1] = MEG_X + 2}},
    [MEG_WEIGHT] = {MEG_WEIGHT,
                    {[MEG_X] = MEG_DY + 1,
                     [MEG_DY] = MEG_X + 1,
                     [MEG_X + 1] = MEG_X + 2, /* says the weight's home */
                     [MEG_DX + 1] = MEG_DX + 2}},
};

/* ---- the convolution ---- */

/* The sides of the convolution: its image is our output, its output our input. */
static const meg_box *image_of(const meg_request *r)
{
    return &r->box[meg_cpu_roles[r->pass].y];
}

static const meg_box *made_of(const meg_request *r)
{
    return &r->box[meg_cpu_roles[r->pass].x];
}

/* All channels and taps in float; pixels of x that reach the work, all of them, and no others. */
static bool fits(const meg_request *r)
{
    const meg_cpu_role *role = &meg_cpu_roles[r->pass];
    const meg_value *in = &r->graph->value[r->node->in[0]];
    const meg_value *weight = &r->graph->value[r->node->in[1]];
    if (!role->known || in->dtype != MEG_F32 || meg_box_empty(&r->work.out)) return false;
    meg_work whole = meg_op_whole(r->graph, r->node);
    meg_box need = meg_op_need(r->graph, r->node, 0, &r->work);
    return meg_extent(&r->work.out, MEG_C) == meg_extent(&whole.out, MEG_C) &&
           meg_box_equal(&r->work.sum, &whole.sum) && meg_box_equal(made_of(r), &need) &&
           !meg_box_empty(&need) && meg_box_equal(image_of(r), &r->work.out) &&
           meg_box_equal(&r->box[role->weight], &weight->shape);
}

/* One axis of a window between the two boxes; false: padding that convolution does not have.
 * `after` may be as small as output padding leaves it, and rounding down lets convolution have up to
 * stride - 1 more. Every window must see a pixel of the image. */
static bool window_between(meg_window *k, const meg_box *image, const meg_box *made, int axis)
{
    int64_t reach = (k->taps - 1) * k->dilation + 1;
    k->before += image->lo[axis] - made->lo[axis] * k->stride;
    k->after = (meg_extent(made, axis) - 1) * k->stride + reach - k->before -
               meg_extent(image, axis);
    int64_t least = k->after;
    if (k->after < 0) k->after = 0;
    return k->before >= 0 && k->before < reach && k->after < reach &&
           k->after <= least + k->stride - 1;
}

/* Its words, axis by axis. */
static bool write_words(const meg_request *r, int space, char *text, size_t size)
{
    static const char *const words[] = {" kernel=", " stride=", " dilation=", " pad="};
    const meg_conv_attr *a = r->node->attr;
    int used = snprintf(text, size, "bias=0 filters=%" PRId64 " groups=%" PRId64,
                        meg_extent(made_of(r), MEG_C), a->groups);
    for (int word = 0; word < 4; word++)
        for (int i = MEG_SPACE - space; i < MEG_SPACE; i++) {
            meg_window k = a->win[i];
            if (!window_between(&k, image_of(r), made_of(r), MEG_D + i)) return false;
            int64_t number[] = {k.taps, k.stride, k.dilation, k.before};
            used += snprintf(text + used, size - (size_t)used, "%s%" PRId64,
                             i == MEG_SPACE - space ? words[word] : "x", number[word]);
            if (word == 3) used += snprintf(text + used, size - (size_t)used, ":%" PRId64, k.after);
        }
    return true;
}

/* The box with its pixels at the origin. */
static meg_box moved(meg_box b)
{
    for (int axis = MEG_D; axis < MEG_AXES; axis++)
        b.hi[axis] -= b.lo[axis], b.lo[axis] = 0;
    return b;
}

/* A graph of the convolution alone; NULL if there is none. */
static meg_graph *adjoint(const meg_request *r)
{
    char words[MEG_TEXT];
    const meg_value *y = &r->graph->value[r->node->out[0]];
    int64_t dims[MEG_AXES] = {y->dims[0], y->dims[1]};
    int space = y->rank - 2;
    if (!write_words(r, space, words, sizeof words)) return NULL;
    for (int i = 0; i < space; i++)
        dims[2 + i] = meg_extent(image_of(r), MEG_AXES - space + i);
    meg_graph *g = meg_graph_create("adjoint");
    int image = meg_graph_input(g, "y", y->rank, dims);
    int made = meg_graph_add(g, "conv", r->node->name, words, 1, &image);
    meg_box want = moved(*made_of(r));
    want.lo[MEG_N] = 0, want.hi[MEG_N] = y->dims[0];
    if (made >= 0 && meg_box_equal(&g->value[made].shape, &want)) return g;
    meg_graph_destroy(g);
    return NULL;
}

/* Its request. Blocked values go its blocked way; few channels are no reason for another. */
static meg_request exchanged(const meg_cpu *cpu, const meg_request *r, const meg_graph *g)
{
    const exchange *x = &exchanges[r->pass];
    meg_request a = *r;
    a.graph = g;
    a.node = &g->node[0];
    a.pass = x->pass;
    a.work = meg_op_whole(g, a.node);
    a.work.out.lo[MEG_N] = r->work.out.lo[MEG_N];
    a.work.out.hi[MEG_N] = r->work.out.hi[MEG_N];
    for (int i = 0; i < MEG_OPERANDS; i++) {
        int from = x->from[i] - 1;
        a.box[i] = from < 0 ? meg_box_of(0, 0, 0, 0, 0) : r->box[from];
        if (i == MEG_X || i == MEG_Y || i == MEG_DX || i == MEG_DY) a.box[i] = moved(a.box[i]);
        a.dtype[i] = from < 0 ? MEG_F32 : r->dtype[from];
        a.format[i] = from < 0 ? MEG_FORMAT_PLAIN : r->format[from];
    }
    a.format[MEG_X] = meg_format_blocked(cpu->block);
    return a;
}

/* ---- describe ---- */

static bool has_bias(const meg_request *r)
{
    const meg_conv_attr *a = r->node->attr;
    return a->bias && meg_cpu_roles[r->pass].bias >= 0;
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    meg_spec of = {0};
    meg_graph *g = fits(r) ? adjoint(r) : NULL;
    if (!g) return false;
    meg_request a = exchanged(meg_device_state(d), r, g);
    bool served = meg_cpu_conv.describe(d, &a, &of);
    meg_graph_destroy(g);
    if (!served) return false;
    *s = of;
    for (int i = 0; i < MEG_SCRATCH; i++)
        s->format[i] = MEG_FORMAT_PLAIN, s->bytes[i] = 0;
    for (int i = 0; i < MEG_SCRATCH; i++) {
        int from = exchanges[r->pass].from[i] - 1;
        if (from < 0) continue;
        s->format[from] = of.format[i];
        s->bytes[from] = of.bytes[i];
    }
    if (has_bias(r)) s->traffic += (double)(2 * meg_box_size(image_of(r))) * (double)sizeof(float);
    return true;
}

/* ---- run ---- */

typedef struct own {
    meg_graph *graph;
    meg_prepared convolve;
    meg_simd_bias bias;
    void (*finish)(const meg_simd_bias *j); /* NULL: no bias */
} own;

static void run(const meg_prepared *k, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    const own *o = k->own;
    void *there[MEG_OPERANDS] = {[MEG_SCRATCH] = at[MEG_SCRATCH]};
    for (int i = 0; i < MEG_SCRATCH; i++) {
        int from = exchanges[k->request.pass].from[i] - 1;
        if (from >= 0) there[i] = at[from];
    }
    o->convolve.run(&o->convolve, there, m);
    if (!o->finish) return;
    meg_simd_bias job = o->bias;
    job.bias = at[MEG_X + 2];
    job.y = at[MEG_Y];
    job.dy = at[MEG_DY];
    job.dbias = at[MEG_DX + 2];
    o->finish(&job);
}

static void free_own(void *memory)
{
    own *o = memory;
    if (!o) return;
    if (o->convolve.free_own) o->convolve.free_own(o->convolve.own);
    meg_graph_destroy(o->graph);
    free(o);
}

static void set_bias(own *o, const meg_cpu *cpu, const meg_request *r, const meg_spec *s)
{
    int y = meg_cpu_roles[r->pass].y, block = meg_format_block(s->format[y]);
    const meg_box *box = image_of(r);
    int64_t channels = meg_extent(box, MEG_C);
    if (!has_bias(r)) return;
    o->finish = r->pass == MEG_WEIGHT ? cpu->simd->bias_back : cpu->simd->bias;
    o->bias = (meg_simd_bias){
        .samples = meg_extent(box, MEG_N),
        .channels = channels,
        .blocks = (channels + block - 1) / block,
        .pixels = meg_extent(box, MEG_D) * meg_extent(box, MEG_H) * meg_extent(box, MEG_W),
        .block = block,
        .threads = cpu->threads,
    };
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    const meg_cpu *cpu = meg_device_state(d);
    own *o = meg_cpu_own(sizeof *o);
    o->graph = adjoint(r);
    if (o->graph) {
        o->convolve.request = exchanged(cpu, r, o->graph);
        meg_cpu_conv.describe(d, &o->convolve.request, &o->convolve.spec);
    }
    if (!o->graph ||
        !meg_cpu_conv.prepare(d, &o->convolve.request, &o->convolve.spec, &o->convolve)) {
        free_own(o);
        return false;
    }
    set_bias(o, cpu, r, s);
    out->own = o;
    out->free_own = free_own;
    out->run = run;
    return true;
}

const meg_cpu_op meg_cpu_conv_transpose = {MEG_KERNEL, &meg_op_conv_transpose, describe, prepare};
