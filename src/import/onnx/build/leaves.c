/* Constants of the file become leaves of the graph: parameters where they are trained, else fixed
 * values. Each is made once and shared by all that read it, unless they see it in different ways.
 */
#include "import/onnx/build/kinds.h"

#include <math.h>
#include <string.h>

static bool same_extents(const meg_onnx_tensor *t, const meg_weight_spec *s, bool transposed)
{
    int64_t a[MEG_ONNX_RANK], c[MEG_AXES];
    int as = 0, cs = 0;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] != 1) a[as++] = t->dims[i];
    for (int i = 0; i < s->rank; i++)
        if (s->dims[i] != 1) c[cs++] = s->dims[i];
    bool same = as == cs;
    for (int i = 0; same && i < as; i++)
        same = a[i] == c[transposed ? cs - 1 - i : i];
    return same && (!transposed || as <= 2);
}

/* Whole numbers, and masks as 0 and 1. NULL: they are something else. */
static const float *floats_of(const meg_onnx_build *b, const meg_onnx_tensor *t)
{
    int64_t whole;
    float *out = meg_pool_alloc(b->file->pool, ((size_t)t->size + 1) * sizeof *out);
    for (int64_t i = 0; i < t->size; i++) {
        if (!meg_onnx_whole(t, i, &whole)) return NULL;
        out[i] = (float)whole;
    }
    return out;
}

static meg_stored stored_of(const meg_onnx_build *b, const meg_onnx_weight *w,
                            const meg_weight_spec *s)
{
    const meg_onnx_tensor *t = w->symbol->constant;
    static const struct {
        int type;
        meg_stored_type stored;
    } types[] = {{MEG_ONNX_FLOAT, MEG_STORED_F32},
                 {MEG_ONNX_DOUBLE, MEG_STORED_F64},
                 {MEG_ONNX_FLOAT16, MEG_STORED_F16},
                 {MEG_ONNX_BFLOAT16, MEG_STORED_BF16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (t->type == types[i].type)
            return (meg_stored){t->data,
                                types[i].stored,
                                w->transposed ? s->dims[0] : 0,
                                w->transposed ? s->dims[1] : 0,
                                w->scale,
                                t->mapped};
    if (!w->flat) return (meg_stored){0};
    return (meg_stored){.data = floats_of(b, t), .type = MEG_STORED_F32};
}

static bool same_stored(const meg_stored *a, const meg_stored *c)
{
    return a->columns == c->columns && fabs(a->scale - c->scale) <= 0;
}

/* The extents that files of weights have: PyTorch's own. A dense layer's matrix that its optimizer
 * moved was (out, in); other weights were without the axes of extent 1. */
static void set_axes(const meg_onnx_build *b, const meg_onnx_weight *w, meg_value *v)
{
    const meg_onnx_symbol *s = w->symbol;
    const meg_onnx_tensor *t = s->constant;
    bool torch = meg_bytes_is(b->file->producer, "pytorch"), swap = s->folded && t->rank == 2;
    torch = torch ||
            meg_bytes_is(b->file->producer, "megalith"); /* which has what it does not say */
    meg_onnx_said axes = {0};
    if (!s->said && (!torch || (s->maker >= 0 && !s->trained) || t->rank > MEG_AXES)) return;
    if (s->said) axes = *s->said;
    for (int i = 0; i < t->rank && !s->said; i++)
        if (!s->folded || t->dims[i] != 1 || swap)
            axes.dims[axes.rank++] = t->dims[swap ? 1 - i : i];
    int large = 0;
    for (int i = 0; i < axes.rank; i++)
        large += axes.dims[i] > 1;
    if (!s->said) axes.turned = swap != w->transposed && large == 2;
    if (s->folded && axes.rank == 0) axes.dims[axes.rank++] = 1;
    v->rank = axes.rank;
    v->turned = axes.turned;
    memcpy(v->dims, axes.dims, sizeof v->dims);
}

static bool same_leaf(const meg_value *v, const meg_stored *stored, const meg_weight_spec *spec)
{
    bool state = spec->kind == MEG_STATE;
    return same_stored(&v->stored, stored) && (v->kind == MEG_STATE) == state &&
           meg_box_equal(&v->shape, &spec->shape);
}

/* One number of the code, 0.7 or 1 / sqrt(8), is what it was before the file made a float of it. */
static void mean_it(const meg_onnx_build *b, const meg_onnx_tensor *t, meg_stored *stored)
{
    if (t->size != 1 || t->type != MEG_ONNX_FLOAT) return;
    double *meant = meg_pool_alloc(b->file->pool, sizeof *meant);
    *meant = meg_onnx_meant(t, 0);
    stored->data = meant;
    stored->type = MEG_STORED_F64;
    stored->mapped = false;
}

static meg_status make_leaf(meg_onnx_build *b, const meg_onnx_weight *w,
                            const meg_weight_spec *spec, const meg_stored *stored)
{
    meg_graph *g = b->graph;
    meg_onnx_symbol *s = w->symbol;
    meg_bytes label = meg_onnx_weight_name(s);
    bool again = s->parameter >= 0; /* a fixed one, for another use */
    const char *name = meg_pool_text(g->pool, "%.*s", MEG_SPAN_TEXT(label));
    if (again) name = meg_onnx_fresh(b, name);
    meg_weight_spec own = *spec;
    if (own.kind == MEG_PARAMETER && !meg_onnx_is_weight(s)) own.kind = MEG_FIXED;
    s->parameter = meg_graph_parameter(g, name, &own);
    if (s->parameter < 0) return g->error.status;
    meg_value *v = &g->value[s->parameter];
    v->stored = *stored;
    v->unsaved = own.kind == MEG_FIXED && (s->unsaved || s->maker >= 0 || again);
    if (v->unsaved && !s->label.at) mean_it(b, s->constant, &v->stored);
    set_axes(b, w, v);
    return MEG_OK;
}

meg_status meg_onnx_leaf(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_weight *w,
                         const meg_weight_spec *spec, int *out)
{
    meg_onnx_symbol *s = w->symbol;
    const meg_onnx_tensor *t = s->constant;
    bool fits = t && (w->flat ? t->size == meg_box_size(&spec->shape)
                              : same_extents(t, spec, w->transposed));
    if (!fits)
        return meg_onnx_refuse(b, n,
                               "weight '%.*s' does not have the shape that its input asks for",
                               MEG_SPAN_TEXT(s->name));
    meg_stored stored = stored_of(b, w, spec);
    if (!stored.data)
        return meg_onnx_refuse(b, n, "weight '%.*s' is %s, but must be real",
                               MEG_SPAN_TEXT(s->name), meg_onnx_type_name(t->type));
    const meg_value *v = s->parameter >= 0 ? &b->graph->value[s->parameter] : NULL;
    bool same = v && same_leaf(v, &stored, spec);
    if (v && !same && (v->kind != MEG_FIXED || spec->kind == MEG_STATE))
        return meg_onnx_refuse(b, n, "weight '%s' is shared with a layer that uses it otherwise",
                               v->name);
    if (!same) MEG_TRY(b->error, make_leaf(b, w, spec, &stored));
    *out = s->parameter;
    return MEG_OK;
}
