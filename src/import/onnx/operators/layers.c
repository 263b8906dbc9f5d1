/* Operators of ONNX with weights or windows, as layers. Weights must be constants of the file; they
 * become parameters, and running statistics become states.
 *
 *     GlobalAveragePool keeps extents of 1 that the global pool here does not have: where a flatten
 *     follows they do not matter, elsewhere it is an average pool over all.
 */
#include "import/onnx/operators/operators.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- windows ---- */

typedef struct windows {
    int count;
    int64_t kernel[MEG_ONNX_RANK], stride[MEG_ONNX_RANK], dilation[MEG_ONNX_RANK];
    int64_t before[MEG_ONNX_RANK], after[MEG_ONNX_RANK];
} windows;

static meg_status list_or(const meg_onnx_build *b, const meg_onnx_node *n, const char *name,
                          int count, int64_t absent, int64_t out[])
{
    int given = meg_onnx_ints(n, name, out, count);
    if (given >= 0 && given != count)
        return meg_onnx_refuse(b, n, "%s has %d numbers, but the input asks for %d", name, given,
                               count);
    for (int i = 0; given < 0 && i < count; i++)
        out[i] = absent;
    for (int i = 0; i < count; i++)
        if (out[i] < 0 || out[i] > 1 << 16)
            return meg_onnx_refuse(b, n, "%s has %" PRId64 ": 0 to %d are supported", name, out[i],
                                   1 << 16);
    return MEG_OK;
}

/* Outputs = inputs / stride, rounded up; an odd pixel goes to the end (UPPER) or the beginning. */
static void pad_same(windows *w, const meg_value *x, bool lower)
{
    for (int i = 0; i < w->count; i++) {
        int64_t length = x->dims[2 + i], outputs = (length + w->stride[i] - 1) / w->stride[i];
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t all = (outputs - 1) * w->stride[i] + reach - length;
        if (all < 0) all = 0;
        w->before[i] = (all + lower) / 2;
        w->after[i] = all - w->before[i];
    }
}

/* Kernel from the attribute; `taps` (of the weight) where that is absent. */
static meg_status read_windows(const meg_onnx_build *b, const meg_onnx_node *n, int x,
                               const int64_t *taps, windows *w)
{
    const meg_value *v = &b->graph->value[x];
    int64_t pads[2 * MEG_ONNX_RANK];
    meg_bytes automatic = meg_onnx_text(n, "auto_pad");
    w->count = v->rank - 2;
    if (w->count < 1) return meg_onnx_refuse(b, n, "its input has no spatial axis");
    MEG_TRY(b->error, list_or(b, n, "kernel_shape", w->count, 0, w->kernel));
    for (int i = 0; i < w->count; i++) {
        if (taps && w->kernel[i] == 0) w->kernel[i] = taps[i];
        if (w->kernel[i] < 1 || (taps && w->kernel[i] != taps[i]))
            return meg_onnx_refuse(b, n, "kernel_shape is absent, or not that of the weight");
    }
    MEG_TRY(b->error, list_or(b, n, "strides", w->count, 1, w->stride));
    MEG_TRY(b->error, list_or(b, n, "dilations", w->count, 1, w->dilation));
    MEG_TRY(b->error, list_or(b, n, "pads", 2 * w->count, 0, pads));
    for (int i = 0; i < w->count; i++) {
        if (w->stride[i] < 1 || w->dilation[i] < 1)
            return meg_onnx_refuse(b, n, "a stride or dilation is 0");
        w->before[i] = pads[i], w->after[i] = pads[w->count + i];
    }
    bool lower = meg_bytes_is(automatic, "SAME_LOWER");
    if (lower || meg_bytes_is(automatic, "SAME_UPPER")) pad_same(w, v, lower);
    return MEG_OK;
}

static void print_list(meg_onnx_layer *l, const char *word, const int64_t at[], int count)
{
    meg_onnx_attr(l, " %s=", word);
    for (int i = 0; i < count; i++)
        meg_onnx_attr(l, "%s%" PRId64, i ? "x" : "", at[i]);
}

static void print_windows(meg_onnx_layer *l, const windows *w)
{
    print_list(l, "kernel", w->kernel, w->count);
    print_list(l, "stride", w->stride, w->count);
    print_list(l, "dilation", w->dilation, w->count);
    meg_onnx_attr(l, " pad=");
    for (int i = 0; i < w->count; i++)
        meg_onnx_attr(l, "%s%" PRId64 ":%" PRId64, i ? "x" : "", w->before[i], w->after[i]);
}

/* ---- convolutions ---- */

static bool ends_with(meg_bytes s, const char *tail)
{
    size_t length = strlen(tail);
    return (size_t)(s.end - s.at) >= length && memcmp(s.end - length, tail, length) == 0;
}

/* The optimizer of PyTorch's newer exporter notes what it did; its older one calls what a folding made
 * by other names than modules. */
static bool looks_folded(const meg_onnx_build *b, const meg_onnx_weight w[2])
{
    return meg_bytes_is(b->file->producer, "pytorch") &&
           !(ends_with(w[0].symbol->name, ".weight") && ends_with(w[1].symbol->name, ".bias"));
}

/* PyTorch writes zeros for the bias that a layer does not have: they are not to be trained. A bias that is known to be
 * frozen is one, whatever its numbers: others may be read into it. */
static bool no_bias(const meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    if (!t || meg_onnx_is_weight(s) || meg_onnx_is_buffer(s)) return false;
    for (int64_t i = 0; i < t->size; i++)
        if (!(fabs(meg_onnx_number(t, i)) <= 0)) return false;
    return true;
}

static meg_status add_taps(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_layer *l, windows *w)
{
    const meg_onnx_tensor *t;
    l->inputs = 1;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l->in[0]));
    MEG_TRY(b->error, meg_onnx_want_weight(b, n, 1, &l->weight[0].symbol));
    t = meg_onnx_in(b, n, 1)->constant;
    if (t->rank != b->graph->value[l->in[0]].rank || t->size == 0)
        return meg_onnx_refuse(b, n, "weight of rank %d for an input of rank %d", t->rank,
                               b->graph->value[l->in[0]].rank);
    l->weights = 1;
    const meg_onnx_symbol *bias = meg_onnx_in(b, n, 2);
    if (bias && bias->constant && !meg_onnx_is_weight(bias))
        MEG_TRY(b->error, meg_onnx_work(b, n, bias->constant->size));
    if (bias && !no_bias(bias))
        MEG_TRY(b->error, meg_onnx_want_weight(b, n, 2, &l->weight[l->weights++].symbol));
    meg_onnx_attr(l, "bias=%d groups=%" PRId64, l->weights - 1, meg_onnx_int(n, "group", 1));
    return read_windows(b, n, l->in[0], t->dims + 2, w);
}

static meg_status read_conv(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "conv"};
    windows w;
    MEG_TRY(b->error, add_taps(b, n, &l, &w));
    meg_onnx_attr(&l, " filters=%" PRId64, meg_onnx_in(b, n, 1)->constant->dims[0]);
    print_windows(&l, &w);
    b->folded += meg_onnx_is_fused(n) || (l.weights == 2 && looks_folded(b, l.weight));
    return meg_onnx_add(b, n, &l);
}

/* output_shape decides the padding; a missing pixel goes to the end, or as auto_pad says. */
static meg_status pad_transpose(const meg_onnx_build *b, const meg_onnx_node *n, int x, windows *w,
                                int64_t extra[])
{
    int64_t want[MEG_ONNX_RANK];
    const meg_value *v = &b->graph->value[x];
    meg_bytes automatic = meg_onnx_text(n, "auto_pad");
    bool lower = meg_bytes_is(automatic, "SAME_LOWER"),
         upper = meg_bytes_is(automatic, "SAME_UPPER");
    bool shape = meg_onnx_has(n, "output_shape");
    MEG_TRY(b->error, list_or(b, n, "output_padding", w->count, 0, extra));
    if (!shape && !lower && !upper) return MEG_OK;
    MEG_TRY(b->error, list_or(b, n, "output_shape", w->count, 0, want));
    for (int i = 0; i < w->count; i++) {
        int64_t length = v->dims[2 + i], full = (length - 1) * w->stride[i] + extra[i] +
                                                (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t all = full - (shape ? want[i] : length * w->stride[i]);
        if (all < 0) extra[i] -= all, all = 0; /* more than the windows reach: zeros behind */
        w->before[i] = upper ? all / 2 : all - all / 2;
        w->after[i] = all - w->before[i];
    }
    return MEG_OK;
}

static meg_status read_conv_transpose(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "conv_transpose"};
    windows w;
    int64_t extra[MEG_ONNX_RANK];
    MEG_TRY(b->error, add_taps(b, n, &l, &w));
    MEG_TRY(b->error, pad_transpose(b, n, l.in[0], &w, extra));
    int64_t groups = meg_onnx_int(n, "group", 1), each = meg_onnx_in(b, n, 1)->constant->dims[1];
    if (groups < 1 || groups > 1 << 20 || each > 1 << 24)
        return meg_onnx_refuse(b, n, "group=%" PRId64, groups);
    meg_onnx_attr(&l, " filters=%" PRId64, each * groups);
    print_windows(&l, &w);
    print_list(&l, "output_pad", extra, w.count);
    b->folded += meg_onnx_is_fused(n);
    return meg_onnx_add(b, n, &l);
}

/* ---- pools ---- */

static meg_status read_pool(meg_onnx_build *b, const meg_onnx_node *n, const char *op)
{
    meg_onnx_layer l = {.op = op, .inputs = 1};
    windows w;
    bool max = strcmp(op, "maxpool") == 0;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, read_windows(b, n, l.in[0], NULL, &w));
    print_windows(&l, &w);
    meg_onnx_attr(&l, " ceil=%d", meg_onnx_int(n, "ceil_mode", 0) != 0);
    if (!max) meg_onnx_attr(&l, " count_pad=%d", meg_onnx_int(n, "count_include_pad", 0) != 0);
    return meg_onnx_add(b, n, &l);
}

static meg_status read_maxpool(meg_onnx_build *b, const meg_onnx_node *n)
{
    return read_pool(b, n, "maxpool");
}

static meg_status read_avgpool(meg_onnx_build *b, const meg_onnx_node *n)
{
    return read_pool(b, n, "avgpool");
}

static meg_status pool_all(meg_onnx_build *b, const meg_onnx_node *n, const char *op)
{
    meg_onnx_layer l = {.op = op, .inputs = 1};
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    const meg_value *x = &b->graph->value[l.in[0]];
    if (x->rank < 3) return meg_onnx_refuse(b, n, "its input has no spatial axis");
    print_list(&l, "kernel", x->dims + 2, x->rank - 2);
    return meg_onnx_add(b, n, &l);
}

static bool flattens(const meg_onnx_node *n)
{
    static const char *const ops[] = {"Flatten", "Reshape", "Squeeze"};
    for (size_t i = 0; n && i < sizeof ops / sizeof *ops; i++)
        if (meg_bytes_is(n->op, ops[i])) return true;
    return false;
}

static meg_status read_global(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "gap", .inputs = 1};
    if (!flattens(meg_onnx_after(b, n))) return pool_all(b, n, "avgpool");
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    int rank = b->graph->value[l.in[0]].rank;
    MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_symbol_of(b, n->out[0])->rank = rank;
    return MEG_OK;
}

static meg_status read_global_max(meg_onnx_build *b, const meg_onnx_node *n)
{
    return pool_all(b, n, "maxpool");
}

/* The mean over some axes: they go to the end and are pooled. */
static meg_status mean_over(meg_onnx_build *b, const meg_onnx_node *n, int x, unsigned seen)
{
    meg_onnx_layer l = {.op = "gap", .inputs = 1};
    const meg_value v = b->graph->value[x]; /* the array moves */
    bool keep = meg_onnx_int(n, "keepdims", 1) != 0;
    int64_t flat[3] = {v.dims[0], 1, 1}, dims[MEG_AXES] = {v.dims[0]};
    int rank = 1, kept[MEG_AXES], keeps = 0;
    for (int i = 1; i < v.rank; i++) {
        bool gone = seen >> i & 1;
        flat[gone ? 2 : 1] *= v.dims[i];
        if (!gone) kept[keeps++] = i;
        if (!gone || keep) dims[rank++] = gone ? 1 : v.dims[i];
    }
    meg_onnx_attr(&l, "axes=0");
    for (int i = 0; i < keeps; i++)
        meg_onnx_attr(&l, "x%d", kept[i]);
    for (int i = 1; i < v.rank; i++)
        if (seen >> i & 1) meg_onnx_attr(&l, "x%d", i);
    if (rank < 2) return meg_onnx_refuse(b, n, "nothing would be left but the batch");
    x = meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), l.attrs, 1, &x);
    if (x >= 0) l.in[0] = meg_onnx_shaped(b, x, 3, flat);
    l.attrs[0] = '\0';
    if (b->graph->error.status == MEG_OK) MEG_TRY(b->error, meg_onnx_add(b, n, &l));
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (b->graph->error.status == MEG_OK) y->value = meg_onnx_shaped(b, y->value, rank, dims);
    return b->graph->error.status;
}

/* The mean over all pixels is what Keras writes for its global pool; of features that lie last the
 * pixels are those before them. */
static meg_status read_reduce_mean(meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_onnx_layer l = {.op = "gap", .inputs = 1};
    meg_onnx_list axes;
    MEG_TRY(b->error, meg_onnx_data(b, n, 0, &l.in[0]));
    MEG_TRY(b->error, meg_onnx_list_of(b, n, "axes", 1, &axes));
    int rank = b->graph->value[l.in[0]].rank;
    unsigned seen = axes.count > 0 ? 0 : 1;
    for (int i = 0; i < axes.count; i++) {
        int axis = meg_onnx_axis(axes.at[i], rank);
        seen |= axis < 0 ? 1u : 1u << axis;
    }
    if (seen & 1)
        return meg_onnx_refuse(b, n, "the mean over the batch, or over axes that do not exist");
    if (rank < 3 || seen != (1u << rank) - 4) return mean_over(b, n, l.in[0], seen);
    if (meg_onnx_int(n, "keepdims", 1)) return read_global(b, n);
    return meg_onnx_add(b, n, &l);
}

#define WINDOWS "auto_pad dilations kernel_shape pads strides"

const meg_onnx_row meg_onnx_layers[] = {
    {"Conv", WINDOWS " group", 2, 3, read_conv},
    {"ConvTranspose", WINDOWS " group output_padding output_shape", 2, 3, read_conv_transpose},
    {"MaxPool", WINDOWS " ceil_mode storage_order", 1, 1, read_maxpool},
    {"AveragePool", WINDOWS " ceil_mode count_include_pad", 1, 1, read_avgpool},
    {"GlobalAveragePool", "", 1, 1, read_global},
    {"GlobalMaxPool", "", 1, 1, read_global_max},
    {"ReduceMean", "axes keepdims noop_with_empty_axes", 1, 2, read_reduce_mean},
    {0}};
