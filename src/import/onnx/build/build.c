/* What the operators of ONNX need to become nodes: see onnx_build.h. */
#include "import/onnx/fold/fold.h"
#include "import/onnx/build/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

meg_status meg_onnx_refuse(const meg_onnx_build *b, const meg_onnx_node *n, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    meg_span name = n->name;
    if (name.at == name.end && n->outputs) name = n->out[0];
    return meg_fail(b->error, MEG_EUNSUPPORTED, "%s: %.*s%s%.*s '%.*s': %s", b->file->path,
                    MEG_SPAN_TEXT(n->domain),
                    n->domain.at == n->domain.end ? "" : "::", MEG_SPAN_TEXT(n->op),
                    MEG_SPAN_TEXT(name), why);
}

void meg_onnx_warn(const meg_onnx_build *b, const char *format, ...)
{
    char text[512];
    va_list args;
    if (!b->listener) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *message = meg_pool_text(b->file->pool, "%s: %s", b->file->path, text);
    b->listener->warn(b->listener->context, message);
}

/* ---- names ---- */

/* torch's name_scopes: "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']": the module is the
 * last but one. */
const char *meg_onnx_torch_scope(const meg_onnx_build *b, const meg_onnx_node *n)
{
    meg_span s = meg_onnx_note(n, "pkg.torch.onnx.name_scopes"), last = {NULL, NULL}, found = last;
    while (s.at < s.end) {
        if (*s.at++ != '\'') continue;
        meg_span word = {s.at, s.at};
        while (s.at < s.end && *s.at != '\'')
            s.at++;
        word.end = s.at++;
        found = last;
        last = word;
    }
    if (found.at == found.end) return NULL;
    return meg_pool_text(b->graph->pool, "%.*s", MEG_SPAN_TEXT(found));
}

static meg_span name_of_weight(const meg_onnx_symbol *s)
{
    return s->label.at ? s->label : s->name;
}

static const char *weight_scope(const meg_onnx_build *b, const meg_onnx_layer *l)
{
    if (!l->weights) return NULL;
    meg_span s = name_of_weight(l->weight[0].symbol);
    int length = (int)(s.end - s.at), tail = (int)strlen(".weight");
    if (length <= tail || length > 200 || memcmp(s.end - tail, ".weight", (size_t)tail) != 0)
        return NULL;
    return meg_pool_text(b->graph->pool, "%.*s", length - tail, (const char *)s.at);
}

/* Names that the loss will want for itself, and those of weights yet to come. */
static bool taken(const meg_onnx_build *b, const char *name)
{
    static const char *const reserved[] = {"label", "label_count", "loss", "correct",
                                           "absolute_error"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0) return true;
    meg_span s = {(const uint8_t *)name, (const uint8_t *)name + strlen(name)};
    const meg_onnx_symbol *other = meg_onnx_symbol_of(b, s);
    return (other && other->constant) || meg_graph_find_value(b->graph, name) >= 0;
}

/* The module's path: what this framework or PyTorch noted, else what the weight is called, else the
 * node, else its output. */
static const char *name_of(const meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l)
{
    meg_pool *pool = b->graph->pool;
    meg_span own = meg_onnx_note(n, "megalith.scope");
    const char *name = own.at < own.end ? meg_pool_text(pool, "%.*s", MEG_SPAN_TEXT(own)) : NULL;
    if (!name) name = weight_scope(b, l);
    if (!name) name = meg_onnx_torch_scope(b, n);
    meg_span rest = n->name.at < n->name.end ? n->name : n->out[0];
    if (!name) name = meg_pool_text(pool, "%.*s", MEG_SPAN_TEXT(rest));
    const char *unique = name;
    for (int i = 2; taken(b, unique); i++)
        unique = meg_pool_text(pool, "%s_%d", name, i);
    return unique;
}

const char *meg_onnx_fresh(const meg_onnx_build *b, const char *op)
{
    for (int i = b->graph->nodes;; i++) {
        const char *name = meg_pool_text(b->graph->pool, "%s%d", op, i);
        if (!taken(b, name)) return name;
    }
}

/* ---- inputs ---- */

meg_onnx_symbol *meg_onnx_in(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    if (i >= n->inputs || n->in[i].at == n->in[i].end) return NULL;
    return meg_onnx_symbol_of(b, n->in[i]);
}

const meg_onnx_node *meg_onnx_after(const meg_onnx_build *b, const meg_onnx_node *n)
{
    const meg_onnx_symbol *s = meg_onnx_symbol_of(b, n->out[0]);
    return s && s->uses == 1 && s->user >= 0 ? &b->file->node[s->user] : NULL;
}

static meg_status missing(const meg_onnx_build *b, const meg_onnx_node *n, int i)
{
    if (i >= n->inputs || n->in[i].at == n->in[i].end)
        return meg_onnx_refuse(b, n, "input %d is missing", i);
    return meg_fail(b->error, MEG_EDATA,
                    "%s: %.*s '%.*s' reads '%.*s', which nothing before it makes: the name is "
                    "wrong, or the nodes run in a circle",
                    b->file->path, MEG_SPAN_TEXT(n->op), MEG_SPAN_TEXT(n->name),
                    MEG_SPAN_TEXT(n->in[i]));
}

static bool is_made(const meg_onnx_symbol *s)
{
    return s && (s->value >= 0 || s->front >= 0 || s->view);
}

bool meg_onnx_is_front(const meg_onnx_symbol *s)
{
    return s && s->value < 0 && s->front >= 0;
}

static int add_transpose(meg_onnx_build *b, int x, bool to_front)
{
    char axes[32] = "axes=0";
    int rank = b->graph->value[x].rank;
    if (to_front) snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "x%d", rank - 1);
    for (int i = 1; i < rank - 1; i++)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "x%d", to_front ? i : i + 1);
    if (!to_front) strcat(axes, "x1");
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), axes, 1, &x);
}

int meg_onnx_swap(meg_onnx_build *b, int x, int axis)
{
    char words[32] = "axes=0";
    for (int i = 1; i < b->graph->value[x].rank; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "x%d",
                 i == 1      ? axis
                 : i == axis ? 1
                             : i);
    return meg_graph_add(b->graph, "transpose", meg_onnx_fresh(b, "transpose"), words, 1, &x);
}

int meg_onnx_shaped(meg_onnx_build *b, int x, int rank, const int64_t dims[])
{
    char words[128] = "dims=0";
    const meg_value *v = &b->graph->value[x];
    bool same = v->rank == rank;
    for (int i = 1; same && i < rank; i++)
        same = v->dims[i] == dims[i];
    if (same) return x;
    for (int i = 1; i < rank; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "x%" PRId64, dims[i]);
    bool flat = rank == 2;
    return meg_graph_add(b->graph, flat ? "flatten" : "reshape",
                         meg_onnx_fresh(b, flat ? "flatten" : "reshape"), flat ? "" : words, 1, &x);
}

meg_status meg_onnx_straighten(meg_onnx_build *b, meg_onnx_symbol *s, int *out)
{
    if (s->value < 0) s->value = add_transpose(b, s->front, false);
    *out = s->value;
    return b->graph->error.status;
}

/* In files of this framework operators may read weights as data: rows that are the same for all
 * samples. */
static meg_status lift(meg_onnx_build *b, const meg_onnx_node *n, meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s->constant;
    meg_weight_spec spec = {
        .kind = MEG_PARAMETER, .rank = t->rank, .shape = meg_box_of(1, 1, 1, 1, 1)};
    for (int i = 0; i < t->rank; i++) {
        spec.dims[i] = t->dims[i];
        spec.shape.hi[i < 2 ? i : MEG_AXES - t->rank + i] = t->dims[i];
    }
    return meg_onnx_leaf(b, n, &(meg_onnx_weight){.symbol = s}, &spec, &s->value);
}

static bool lifts(const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    const meg_onnx_tensor *t = s ? s->constant : NULL;
    return t && meg_span_bytes(meg_onnx_note(n, "megalith.scope")) > 0 && meg_onnx_is_weight(s) &&
           t->rank >= 2 && t->rank <= MEG_AXES && t->dims[0] == 1 && t->type == MEG_ONNX_FLOAT &&
           !s->turned && !s->of;
}

static meg_status want_data(meg_onnx_build *b, const meg_onnx_node *n, int i, meg_onnx_symbol **out)
{
    meg_onnx_symbol *s = *out = meg_onnx_in(b, n, i);
    if (lifts(n, s)) return lift(b, n, s);
    if (s && s->constant)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is a constant, but must depend on the data",
                               i, MEG_SPAN_TEXT(s->name));
    if (s && s->view) MEG_TRY(b->error, meg_onnx_settle(b, n, s));
    if (s && s->view)
        return meg_onnx_refuse(b, n, "the batch must be the first axis of '%.*s'",
                               MEG_SPAN_TEXT(s->name));
    if (s && s->draw)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is random", i, MEG_SPAN_TEXT(s->name));
    if (s && s->parts)
        return meg_onnx_refuse(b, n, "input %d, '%.*s', is a sequence", i, MEG_SPAN_TEXT(s->name));
    return is_made(s) ? MEG_OK : missing(b, n, i);
}

meg_status meg_onnx_data(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    return meg_onnx_straighten(b, s, out);
}

meg_status meg_onnx_data_any(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    *out = s->value >= 0 ? s->value : s->front;
    return MEG_OK;
}

meg_status meg_onnx_data_front(meg_onnx_build *b, const meg_onnx_node *n, int i, int *out)
{
    meg_onnx_symbol *s;
    MEG_TRY(b->error, want_data(b, n, i, &s));
    if (s->front < 0 && b->graph->value[s->value].rank <= 2) *out = s->value;
    else {
        if (s->front < 0) s->front = add_transpose(b, s->value, true);
        *out = s->front;
    }
    return b->graph->error.status;
}

meg_status meg_onnx_constant(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                             const meg_onnx_tensor **out)
{
    const meg_onnx_symbol *s = meg_onnx_in(b, n, i);
    *out = s ? s->constant : NULL;
    if (*out || i >= n->inputs || n->in[i].at == n->in[i].end) return MEG_OK;
    if (!is_made(s)) return missing(b, n, i);
    return meg_onnx_refuse(b, n, "input %d, '%.*s', must be a constant", i, MEG_SPAN_TEXT(s->name));
}

meg_onnx_symbol *meg_onnx_owner(const meg_onnx_build *b, meg_onnx_symbol *s)
{
    return s->of ? meg_onnx_symbol_of(b, s->of->name) : s;
}

meg_status meg_onnx_want_weight(const meg_onnx_build *b, const meg_onnx_node *n, int i,
                                meg_onnx_symbol **out)
{
    const meg_onnx_tensor *t;
    MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
    if (!t) return meg_onnx_refuse(b, n, "input %d, a weight, is missing", i);
    *out = meg_onnx_in(b, n, i);
    if ((*out)->turned) return meg_onnx_refuse(b, n, "input %d, a weight, is transposed", i);
    *out = meg_onnx_owner(b, *out);
    return MEG_OK;
}

meg_status meg_onnx_list_of(const meg_onnx_build *b, const meg_onnx_node *n, const char *attribute,
                            int i, meg_onnx_list *out)
{
    const meg_onnx_tensor *t;
    *out = (meg_onnx_list){.count = -1};
    if (attribute) out->count = meg_onnx_ints(n, attribute, out->at, MEG_ONNX_RANK);
    if (out->count < 0 && i >= 0) {
        MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
        if (t) out->count = t->size > MEG_ONNX_RANK ? MEG_ONNX_RANK + 1 : (int)t->size;
        for (int k = 0; t && k < t->size && k < MEG_ONNX_RANK; k++)
            if (!meg_onnx_whole(t, k, &out->at[k]))
                return meg_onnx_refuse(b, n, "input %d is %s, but must be whole numbers", i,
                                       meg_onnx_type_name(t->type));
    }
    if (out->count > MEG_ONNX_RANK)
        return meg_onnx_refuse(b, n, "a list of more than %d numbers", MEG_ONNX_RANK);
    return MEG_OK;
}

meg_status meg_onnx_scalar(const meg_onnx_build *b, const meg_onnx_node *n, int i, double absent,
                           double *out)
{
    const meg_onnx_tensor *t;
    int64_t whole;
    *out = absent;
    MEG_TRY(b->error, meg_onnx_constant(b, n, i, &t));
    if (!t) return MEG_OK;
    *out = meg_onnx_whole(t, 0, &whole) ? (double)whole : meg_onnx_meant(t, 0);
    if (t->size != 1 || isnan(*out)) return meg_onnx_refuse(b, n, "input %d must be one number", i);
    return MEG_OK;
}

int meg_onnx_rank(const meg_onnx_build *b, const meg_onnx_symbol *s)
{
    if (!is_made(s)) return 0;
    if (s->view) return s->view->axes;
    return s->rank ? s->rank : b->graph->value[s->value >= 0 ? s->value : s->front].rank;
}

int meg_onnx_dims(const meg_onnx_build *b, const meg_onnx_symbol *s, int64_t out[MEG_ONNX_RANK])
{
    if (!is_made(s)) return 0;
    if (s->view) return meg_onnx_view_dims(s->view, out);
    const meg_value *v = &b->graph->value[s->value >= 0 ? s->value : s->front];
    int rank = meg_onnx_rank(b, s);
    for (int i = 0; i < rank; i++) {
        int from = i;
        if (meg_onnx_is_front(s) && i > 0) from = i == rank - 1 ? 1 : i + 1;
        out[i] = from < v->rank ? v->dims[from] : 1;
    }
    return rank;
}

int meg_onnx_axis(int64_t axis, int rank)
{
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

/* ---- layers ---- */

void meg_onnx_attr(meg_onnx_layer *l, const char *format, ...)
{
    size_t used = strlen(l->attrs);
    va_list args;
    va_start(args, format);
    vsnprintf(l->attrs + used, sizeof l->attrs - used, format, args);
    va_end(args);
}

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
    bool torch = meg_span_is(b->file->producer, "pytorch"), swap = s->folded && t->rank == 2;
    torch = torch ||
            meg_span_is(b->file->producer, "megalith"); /* which has what it does not say */
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
    meg_span label = name_of_weight(s);
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

/* The operator itself knows what its weights look like. */
static meg_status add_weights(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l,
                              int in[MEG_INPUTS])
{
    meg_weight_spec spec[MEG_INPUTS] = {0};
    meg_node v = {.op = meg_op_find(l->op), .name = l->op, .inputs = l->inputs};
    v.attr = meg_pool_alloc(b->graph->pool, v.op->attr_bytes + 1);
    memcpy(v.in, l->in, sizeof v.in);
    if (v.op->params)
        MEG_TRY(b->error, meg_options_parse(b->error, v.op->params, l->op, l->attrs, v.attr));
    int count = v.op->weights ? v.op->weights(b->graph, &v, spec) : 0;
    if (count != l->weights)
        return meg_onnx_refuse(b, n, "%d weights, but %s takes %d", l->weights, l->op, count);
    for (int i = 0; i < count; i++)
        MEG_TRY(b->error, meg_onnx_leaf(b, n, &l->weight[i], &spec[i], &in[l->inputs + i]));
    return MEG_OK;
}

meg_status meg_onnx_add(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_layer *l)
{
    int in[MEG_INPUTS];
    if (!meg_op_find(l->op)) return meg_onnx_refuse(b, n, "there is no operator %s yet", l->op);
    memcpy(in, l->in, sizeof in);
    MEG_TRY(b->error, add_weights(b, n, l, in));
    const char *name = name_of(b, n, l);
    int value = meg_graph_add(b->graph, l->op, name, l->attrs, l->inputs + l->weights, in);
    if (value < 0) return b->graph->error.status;
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (y && l->front && b->graph->value[value].rank > 2) y->front = value;
    else if (y) y->value = value;
    return MEG_OK;
}

void meg_onnx_bind(meg_onnx_build *b, const meg_onnx_node *n, int i, int value)
{
    meg_onnx_symbol *s = i < n->outputs ? meg_onnx_symbol_of(b, n->out[i]) : NULL;
    if (s) s->value = value;
}

void meg_onnx_bind_same(meg_onnx_build *b, const meg_onnx_node *n, const meg_onnx_symbol *s)
{
    meg_onnx_symbol *y = meg_onnx_symbol_of(b, n->out[0]);
    if (!y) return;
    y->constant = s->constant;
    y->trained = s->constant && meg_onnx_is_weight(s); /* before it has numbers of its own */
    y->kind = y->trained ? MEG_ONNX_UNSAID : s->kind;
    y->turned = s->turned;
    y->of = s->of;
    y->value = s->value;
    y->front = s->front;
    y->view = s->view;
    y->rank = s->rank;
}
