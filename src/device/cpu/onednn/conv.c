/* Convolution on the cpu: oneDNN's kernels, and our own where it has none.
 *
 *     way       x        y, dy    kernels
 *     thin      plain    blocked  oneDNN's for first layers, else simd/thinconv.c; no backward
 *     blocked   blocked  blocked  oneDNN's, the fastest; weight gradient, too: simd/direct.c
 *     plain     plain    plain    oneDNN's matrix product over gathered columns
 *
 * The first way that has a kernel which is not reference code is taken. In the blocked way oneDNN
 * is told of whole blocks of channels: the padding is zero in x, dy and weights, so it is zero in
 * what is made of them, and kernels exist that oneDNN refuses for odd numbers of channels. Only a
 * bias, which has no padding, goes through scratch memory then.
 *
 * The weight's home format is what forward likes. Backward may wish another; the weight gradient
 * is made in the home format, if need be by a reorder at its end.
 */
#include "device/cpu/common/layer.h"
#include "device/cpu/common/onednn.h"
#include "device/cpu/simd/conv/direct.h"
#include "device/cpu/simd/conv/thin.h"
#include "device/cpu/simd/simd.h"
#include "ops/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum way {
    THIN,
    BLOCKED,
    PLAIN,
    WAYS
} way;

enum {
    ALIGN = 64
};

/* Parts of the scratch memory. */
enum {
    WORK,
    BIAS,
    GRADIENT,
    REORDER,
    PARTS
};

typedef struct conv {
    const meg_cpu *cpu;
    const meg_request *r;
    const meg_conv_attr *attr;
    meg_window win[MEG_SPACE]; /* of this part */
    int64_t filters;           /* likewise */
    const meg_cpu_role *role;
    way way;
    meg_onednn_shape x, weight, y; /* as oneDNN is told */
    meg_onednn_shape true_weight;  /* as it is */
    meg_format x_format, y_format;

    dnnl_primitive_desc_t kernel;  /* NULL: our own */
    meg_format format;             /* of the weight or its gradient, as the kernel has it */
    dnnl_primitive_desc_t reorder; /* of the gradient to the home format; NULL: not needed */
    meg_thin thin;                 /* our own, of the thin way */
    meg_direct direct;             /* of the blocked way */
    int64_t offset[PARTS + 1];     /* into scratch; the last: its bytes */
} conv;

static bool has_bias(const conv *c)
{
    return c->attr->bias && c->role->bias >= 0;
}

/* ---- shapes ---- */

static bool depthwise(const conv *c, int64_t channels)
{
    const meg_conv_attr *a = c->attr;
    return a->groups > 1 && a->groups == channels && a->groups == a->filters;
}

static bool applies(const conv *c, way w)
{
    const meg_conv_attr *a = c->attr;
    int64_t channels = meg_extent(&c->r->box[c->role->x], MEG_C);
    bool whole_blocks = channels / a->groups % c->cpu->block == 0 &&
                        c->filters / a->groups % c->cpu->block == 0;
    switch (w) {
    case THIN:
        return c->r->pass != MEG_BACKWARD && c->r->format[MEG_X] == MEG_FORMAT_PLAIN &&
               channels <= MEG_CPU_THIN && a->groups == 1;
    case BLOCKED:
        return a->groups == 1 || depthwise(c, channels) || whole_blocks;
    default:
        return true;
    }
}

static void set_shapes(conv *c, way w)
{
    const meg_request *r = c->r;
    const meg_conv_attr *a = c->attr;
    const meg_box *x = &r->box[c->role->x], *y = &r->box[c->role->y];
    const meg_box *weight = &r->box[c->role->weight];
    bool deep = meg_extent(x, MEG_D) > 1 || meg_extent(y, MEG_D) > 1 ||
                meg_extent(weight, MEG_D) > 1;
    int64_t block = c->cpu->block, x_block = w == BLOCKED ? block : 1;
    int64_t y_block = w == PLAIN ? 1 : block;
    c->way = w;
    c->x = meg_onednn_shape_of(x, 0, deep);
    c->y = meg_onednn_shape_of(y, 0, deep);
    c->weight = meg_onednn_shape_of(weight, a->groups > 1 ? a->groups : 0, deep);
    c->true_weight = c->weight;
    c->x_format = meg_format_blocked((int)x_block);
    c->y_format = meg_format_blocked((int)y_block);

    c->x.at[1] = meg_round_up(c->x.at[1], x_block);
    c->y.at[1] = meg_round_up(c->y.at[1], y_block);
    if (a->groups == 1) {
        c->weight.at[0] = c->y.at[1];
        c->weight.at[1] = c->x.at[1];
    } else if (depthwise(c, meg_extent(x, MEG_C))) {
        c->weight.at[0] = c->x.at[1];
    }
}

/* ---- oneDNN's kernels ---- */

/* What oneDNN is asked for. */
static bool ask(const conv *c, const dnnl_memory_desc_t *weight, dnnl_convolution_desc_t *out)
{
    dnnl_memory_desc_t x, y, bias;
    dnnl_dims_t stride, dilation, before, after, filters = {c->y.at[1]};
    int axes = c->x.axes - 2;
    for (int i = 0; i < axes; i++) {
        const meg_window *win = &c->win[MEG_SPACE - axes + i];
        stride[i] = win->stride, dilation[i] = win->dilation - 1;
        before[i] = win->before, after[i] = win->after;
    }
    if (!meg_onednn_desc(&c->x, c->x_format, &x) || !meg_onednn_desc(&c->y, c->y_format, &y))
        return false;
    dnnl_memory_desc_init_by_tag(&bias, 1, filters, dnnl_f32, dnnl_a);
    const dnnl_memory_desc_t *b = has_bias(c) ? &bias : NULL;
    dnnl_status_t status;
    if (c->r->pass == MEG_BACKWARD)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            out, dnnl_convolution_direct, &x, weight, &y, stride, dilation, before, after);
    else if (c->r->pass == MEG_WEIGHT)
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            out, dnnl_convolution_direct, &x, weight, b, &y, stride, dilation, before, after);
    else
        status = dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_training,
                                                            dnnl_convolution_direct, &x, weight, b,
                                                            &y, stride, dilation, before, after);
    return status == dnnl_success;
}

/* Takes a kernel if its weight's format is one of ours, and padded as its box would be. */
static bool accept(const_dnnl_primitive_desc_t pd, void *context)
{
    conv *c = context;
    bool gradient = c->r->pass == MEG_WEIGHT;
    const dnnl_memory_desc_t *weight = dnnl_primitive_desc_query_md(
        pd, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    return weight && meg_onednn_format(&c->weight, weight, &c->format) &&
           meg_onednn_bytes(&c->weight, c->format) == meg_onednn_bytes(&c->true_weight, c->format);
}

static dnnl_primitive_desc_t kernel_of(conv *c, const dnnl_memory_desc_t *weight)
{
    dnnl_convolution_desc_t what;
    if (!ask(c, weight, &what)) return NULL;
    return meg_onednn_find(c->cpu->onednn, &what, accept, c);
}

/* With the home format if there is a kernel for it (no reorder), else with any. */
static bool find_onednn(conv *c)
{
    meg_format home = c->r->format[MEG_X + 1];
    dnnl_memory_desc_t weight;
    if (home != MEG_FORMAT_PLAIN && c->r->pass != MEG_BACKWARD &&
        meg_onednn_desc(&c->weight, home, &weight))
        c->kernel = kernel_of(c, &weight);
    if (c->kernel) return true;
    weight = meg_onednn_any(&c->weight);
    c->kernel = kernel_of(c, &weight);
    return c->kernel != NULL;
}

/* ---- our own ---- */

static void fill_thin(conv *c)
{
    const meg_box *x = &c->r->box[MEG_X], *y = &c->r->box[c->role->y];
    meg_thin *t = &c->thin;
    *t = (meg_thin){.samples = meg_extent(x, MEG_N),
                    .channels = meg_extent(x, MEG_C),
                    .filters = c->filters,
                    .threads = c->cpu->threads};
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *win = &c->win[i];
        t->in[i] = meg_extent(x, MEG_D + i), t->out[i] = meg_extent(y, MEG_D + i);
        t->taps[i] = win->taps, t->stride[i] = win->stride;
        t->dilation[i] = win->dilation, t->before[i] = win->before;
    }
    c->format = c->cpu->block == 16 ? MEG_FORMAT_Oxi16o : MEG_FORMAT_Oxi8o;
}

static void fill_direct(conv *c)
{
    const meg_box *x = &c->r->box[MEG_X], *y = &c->r->box[MEG_DY];
    meg_direct *t = &c->direct;
    *t = (meg_direct){.samples = meg_extent(x, MEG_N),
                      .channels = meg_extent(x, MEG_C),
                      .filters = c->filters,
                      .threads = c->cpu->threads};
    for (int i = 0; i < MEG_SPACE; i++) {
        const meg_window *win = &c->win[i];
        t->in[i] = meg_extent(x, MEG_D + i), t->out[i] = meg_extent(y, MEG_D + i);
        t->taps[i] = win->taps, t->stride[i] = win->stride;
        t->dilation[i] = win->dilation, t->before[i] = win->before;
    }
    c->format = c->cpu->block == 16 ? MEG_FORMAT_OIx16i16o : MEG_FORMAT_OIx8i8o;
}

static bool find_own(conv *c)
{
    bool direct = c->way == BLOCKED && c->r->pass == MEG_WEIGHT && c->attr->groups == 1;
    if (c->way == THIN) fill_thin(c);
    else if (direct) fill_direct(c);
    return c->way == THIN || direct;
}

/* Floats of scratch that our own kernel wants. */
static int64_t own_floats(const conv *c)
{
    return c->way == THIN ? meg_thin_floats(&c->thin, c->cpu->block, c->r->pass == MEG_WEIGHT)
                          : meg_direct_floats(&c->direct, c->cpu->block);
}

/* ---- the choice ---- */

static bool find_reorder(conv *c)
{
    meg_format home = c->r->format[MEG_X + 1];
    dnnl_memory_desc_t from, to;
    if (c->r->pass != MEG_WEIGHT || c->format == home) return true;
    if (!meg_onednn_desc(&c->true_weight, c->format, &from) ||
        !meg_onednn_desc(&c->true_weight, home, &to))
        return false;
    c->reorder = meg_onednn_reorder(c->cpu->onednn, &from, &to);
    return c->reorder != NULL;
}

static void lay_out_scratch(conv *c)
{
    int64_t filters = c->filters, padded = c->y.at[1];
    int64_t bytes[PARTS] = {0};
    bytes[WORK] = c->kernel ? meg_onednn_scratch(c->kernel)
                            : own_floats(c) * (int64_t)sizeof(float);
    if (c->kernel && has_bias(c) && (padded > filters || meg_cpu_quiet(c->r)))
        bytes[BIAS] = padded * (int64_t)sizeof(float);
    if (c->reorder) {
        bytes[GRADIENT] = meg_onednn_bytes(&c->true_weight, c->format);
        bytes[REORDER] = meg_onednn_scratch(c->reorder);
    }
    for (int i = 0; i < PARTS; i++)
        c->offset[i + 1] = c->offset[i] + meg_round_up(bytes[i], ALIGN);
}

static bool part_empty(const conv *c, int part)
{
    return c->offset[part] == c->offset[part + 1];
}

static void forget(conv *c)
{
    dnnl_primitive_desc_destroy(c->kernel);
    dnnl_primitive_desc_destroy(c->reorder);
    c->kernel = c->reorder = NULL;
}

/* Our own weight gradient is the faster one of volumes (1.0 to 1.2 times with AVX-512) and where
 * windows do not overlap (1.1 to 2.2 times: the up-convolutions of U-Nets), if it sums two blocks of
 * filters at once. */
static bool prefer_own(const conv *c)
{
    const meg_window *h = &c->attr->win[1], *w = &c->attr->win[2];
    bool volume = c->x.axes == MEG_AXES;
    bool apart = h->taps > 1 && h->stride >= h->taps && w->taps > 1 && w->stride >= w->taps;
    return c->way == BLOCKED && c->r->pass == MEG_WEIGHT && (volume || apart) &&
           c->y.at[1] > c->cpu->block;
}

static bool find_kernel(conv *c)
{
    if (prefer_own(c) && find_own(c)) return true;
    return find_onednn(c) || find_own(c);
}

/* One number per sample: some passes have no kernel for it, and all must agree on the weight's
 * home, so plain C serves them all. */
static bool single(const meg_box *x)
{
    return meg_box_size(x) == meg_extent(x, MEG_N);
}

static bool find(meg_device *d, const meg_request *r, conv *c)
{
    *c = (conv){
        .cpu = meg_device_state(d), .r = r, .attr = r->node->attr, .role = &meg_cpu_roles[r->pass]};
    if (!meg_cpu_windows(r, c->win) || single(&r->box[c->role->x])) return false;
    c->filters = meg_extent(&r->box[c->role->y], MEG_C);
    for (way w = 0; w < WAYS; w++) {
        if (!applies(c, w)) continue;
        set_shapes(c, w);
        if (find_kernel(c) && find_reorder(c)) {
            lay_out_scratch(c);
            return true;
        }
        forget(c);
    }
    return false;
}

/* ---- describe ---- */

static double volume(const meg_onednn_shape *s)
{
    double v = 1;
    for (int i = 0; i < s->axes; i++)
        v *= (double)s->at[i];
    return v;
}

static void set_work(const conv *c, meg_spec *s)
{
    double taps = volume(&c->weight) / (double)c->y.at[1]; /* products per output, told */
    s->flops = 2 * taps * volume(&c->y);
    s->traffic = (volume(&c->x) + volume(&c->y) + volume(&c->weight)) * (double)sizeof(float);
}

static bool describe(meg_device *d, const meg_request *r, meg_spec *s)
{
    conv c;
    int team = meg_onednn_enter(((const meg_cpu *)meg_device_state(d))->onednn);
    bool found = find(d, r, &c);
    if (found) {
        int weight = c.role->weight;
        meg_format held = r->pass == MEG_WEIGHT ? r->format[MEG_X + 1] : c.format;
        *s = (meg_spec){0};
        s->format[c.role->x] = c.x_format;
        s->format[c.role->y] = c.y_format;
        s->format[weight] = held;
        s->bytes[weight] = meg_onednn_bytes(&c.true_weight, held);
        s->bytes[MEG_SCRATCH] = c.offset[PARTS];
        if (c.kernel) snprintf(s->impl, sizeof s->impl, "%s", meg_onednn_impl(c.kernel));
        else
            snprintf(s->impl, sizeof s->impl, "%s:%s", c.way == THIN ? "own" : "direct",
                     c.cpu->simd->name);
    }
    forget(&c);
    meg_onednn_leave(team);
    if (found) set_work(&c, s);
    return found;
}

/* ---- run ---- */

typedef struct kernel {
    meg_onednn *onednn;
    meg_onednn_step convolve, reorder;
    void (*own_thin)(const meg_thin *j); /* instead of `convolve` */
    void (*own_direct)(const meg_direct *j);
    meg_thin thin;
    meg_direct direct;
    int64_t offset[PARTS + 1];
    int64_t filters;
    int64_t padded; /* of a bias that goes through scratch; else 0 */
    int64_t quiet;  /* numbers of a bias that is another share's; else 0 */
} kernel;

static float *gradient_of(const kernel *k, void *const at[MEG_OPERANDS])
{
    if (!k->reorder.primitive) return at[MEG_DX + 1];
    return (float *)((char *)at[MEG_SCRATCH] + k->offset[GRADIENT]);
}

static void run_thin(const kernel *k, void *const at[MEG_OPERANDS])
{
    meg_thin t = k->thin;
    t.x = at[MEG_X], t.weight = at[MEG_X + 1], t.bias = k->quiet ? NULL : at[MEG_X + 2];
    t.y = at[MEG_Y], t.dy = at[MEG_DY], t.dbias = k->quiet ? NULL : at[MEG_DX + 2];
    t.scratch = (float *)((char *)at[MEG_SCRATCH] + k->offset[WORK]);
    t.dweight = gradient_of(k, at);
    k->own_thin(&t);
}

static void run_direct(const kernel *k, void *const at[MEG_OPERANDS])
{
    meg_direct t = k->direct;
    t.x = at[MEG_X], t.dy = at[MEG_DY], t.dbias = k->quiet ? NULL : at[MEG_DX + 2];
    t.scratch = (float *)((char *)at[MEG_SCRATCH] + k->offset[WORK]);
    t.dweight = gradient_of(k, at);
    k->own_direct(&t);
}

static void run(const meg_prepared *p, void *const at[MEG_OPERANDS], const meg_moment *m)
{
    (void)m;
    kernel *k = p->own;
    int team = meg_onednn_enter(k->onednn);
    float *padded = k->padded ? (float *)((char *)at[MEG_SCRATCH] + k->offset[BIAS]) : NULL;
    size_t filters = sizeof(float) * (size_t)k->filters;
    bool gradient = p->request.pass == MEG_WEIGHT;
    if (padded && !gradient) {
        memset(padded, 0, sizeof(float) * (size_t)k->padded);
        if (!k->quiet) memcpy(padded, at[MEG_X + 2], filters);
    }
    if (k->own_thin) run_thin(k, at);
    else if (k->own_direct) run_direct(k, at);
    else meg_onednn_step_run(k->onednn, &k->convolve, at);
    meg_onednn_step_run(k->onednn, &k->reorder, at);
    if (padded && gradient && !k->quiet) memcpy(at[MEG_DX + 2], padded, filters);
    if (k->quiet && gradient) memset(at[MEG_DX + 2], 0, sizeof(float) * (size_t)k->quiet);
    meg_onednn_leave(team);
}

static void free_own(void *own)
{
    kernel *k = own;
    if (!k) return;
    meg_onednn_step_clear(&k->convolve);
    meg_onednn_step_clear(&k->reorder);
    free(k);
}

static void place(meg_onednn_step *s, int arg, int operand, int64_t offset)
{
    s->place[s->count++] = (meg_onednn_place){arg, operand, offset};
}

static bool make_convolve(const conv *c, kernel *k)
{
    meg_onednn_step *s = &k->convolve;
    meg_pass pass = c->r->pass;
    bool backward = pass == MEG_BACKWARD, gradient = pass == MEG_WEIGHT;
    bool forward = !backward && !gradient;
    place(s, backward ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, c->role->x, 0);
    place(s, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, c->role->y, 0);
    if (c->reorder) place(s, DNNL_ARG_DIFF_WEIGHTS, MEG_SCRATCH, c->offset[GRADIENT]);
    else place(s, gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, c->role->weight, 0);
    int bias = gradient ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS;
    if (!part_empty(c, BIAS)) place(s, bias, MEG_SCRATCH, c->offset[BIAS]);
    else if (has_bias(c)) place(s, bias, c->role->bias, 0);
    if (!part_empty(c, WORK)) place(s, DNNL_ARG_SCRATCHPAD, MEG_SCRATCH, c->offset[WORK]);
    return meg_onednn_step_make(k->onednn, c->kernel, s);
}

static bool make_reorder(const conv *c, kernel *k)
{
    meg_onednn_step *s = &k->reorder;
    if (!c->reorder) return true;
    place(s, DNNL_ARG_FROM, MEG_SCRATCH, c->offset[GRADIENT]);
    place(s, DNNL_ARG_TO, MEG_DX + 1, 0);
    if (!part_empty(c, REORDER)) place(s, DNNL_ARG_SCRATCHPAD, MEG_SCRATCH, c->offset[REORDER]);
    return meg_onednn_step_make(k->onednn, c->reorder, s);
}

static kernel *make(const conv *c)
{
    kernel *k = meg_cpu_own(sizeof *k);
    k->onednn = c->cpu->onednn;
    memcpy(k->offset, c->offset, sizeof k->offset);
    if (has_bias(c) && meg_cpu_quiet(c->r)) k->quiet = meg_box_size(&c->r->box[c->role->bias]);
    k->filters = c->filters;
    if (!part_empty(c, BIAS)) k->padded = c->y.at[1];
    bool made = make_reorder(c, k);
    if (c->kernel) {
        made = made && make_convolve(c, k);
    } else if (c->way == BLOCKED) {
        k->direct = c->direct;
        k->own_direct = c->cpu->simd->direct_weight;
    } else {
        k->thin = c->thin;
        k->own_thin = c->r->pass == MEG_WEIGHT ? c->cpu->simd->thin_weight
                                               : c->cpu->simd->thin_forward;
    }
    if (made) return k;
    free_own(k);
    return NULL;
}

static bool prepare(meg_device *d, const meg_request *r, const meg_spec *s, meg_prepared *out)
{
    (void)s;
    conv c;
    int team = meg_onednn_enter(((const meg_cpu *)meg_device_state(d))->onednn);
    kernel *k = find(d, r, &c) ? make(&c) : NULL;
    forget(&c);
    meg_onednn_leave(team);
    if (!k) return false;
    out->run = run;
    out->own = k;
    out->free_own = free_own;
    return true;
}

const meg_cpu_op meg_cpu_conv = {MEG_KERNEL, &meg_op_conv, describe, prepare};
