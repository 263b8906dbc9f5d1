/* Building graphs: see graph.h. */
#include "graph/graph.h"
#include "base/nearest.h"
#include "base/random.h"
#include "graph/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_NUMBERS = INT64_C(1) << 48; /* of one value */

meg_graph *meg_graph_create(const char *name)
{
    meg_pool *pool = meg_pool_new();
    meg_graph *g = meg_pool_alloc(pool, sizeof *g);
    *g = (meg_graph){.pool = pool, .name = meg_pool_text(pool, "%s", name), .batch = 1};
    g->correct = -1;
    return g;
}

void meg_graph_destroy(meg_graph *g)
{
    if (!g) return;
    if (g->file) g->close_file(g->file);
    free(g->node);
    free(g->value);
    free(g->by_name);
    meg_pool_free(g->pool);
}

/* ---- names ---- */

/* Where the name is in the table, or would be. */
static int *place_of(const meg_graph *g, const char *name)
{
    size_t i = (size_t)(meg_hash(name) % g->name_room);
    while (g->by_name[i] && strcmp(g->value[g->by_name[i] - 1].name, name) != 0)
        i = (i + 1) % g->name_room;
    return &g->by_name[i];
}

/* Makes the table anew, with room for `room` names. */
static void index_names(meg_graph *g, size_t room)
{
    free(g->by_name);
    g->by_name = calloc(room, sizeof *g->by_name);
    if (!g->by_name) abort();
    g->name_room = room;
    for (int i = 0; i < g->values; i++)
        *place_of(g, g->value[i].name) = i + 1;
}

meg_graph *meg_graph_copy(const meg_graph *g)
{
    meg_graph *copy = meg_graph_create(g->name);
    meg_pool *pool = copy->pool;
    *copy = *g;
    copy->pool = pool;
    copy->file = NULL;
    copy->name = meg_pool_text(pool, "%s", g->name);
    copy->node = NULL, copy->node_room = 0;
    copy->value = NULL, copy->value_room = 0;
    copy->by_name = NULL, copy->name_room = 0;
    copy->node = meg_grow(NULL, &copy->node_room, (size_t)g->nodes + 1, sizeof *g->node);
    copy->value = meg_grow(NULL, &copy->value_room, (size_t)g->values + 1, sizeof *g->value);
    for (int i = 0; i < g->values; i++) {
        copy->value[i] = g->value[i];
        copy->value[i].name = meg_pool_text(pool, "%s", g->value[i].name);
    }
    index_names(copy, 2 * (size_t)g->values + 1);
    for (int i = 0; i < g->nodes; i++) {
        meg_node *v = &copy->node[i];
        *v = g->node[i];
        v->name = meg_pool_text(pool, "%s", v->name);
        v->attr = meg_pool_alloc(pool, v->op->attr_bytes);
        if (v->op->attr_bytes) memcpy(v->attr, g->node[i].attr, v->op->attr_bytes);
    }
    return copy;
}

int meg_graph_find_value(const meg_graph *g, const char *name)
{
    const int *place = g->name_room ? place_of(g, name) : NULL;
    return place ? *place - 1 : -1;
}

/* n and c first; the spatial axes are the last ones: rank 4 is n c h w, rank 3 n c w. */
static meg_box box_of_dims(int rank, const int64_t dims[])
{
    meg_box b = meg_box_of(1, 1, 1, 1, 1);
    for (int i = 0; i < rank; i++)
        b.hi[i < 2 ? i : MEG_AXES - rank + i] = dims[i];
    return b;
}

/* So few that products of extents, and bytes of sums of values, are numbers: no machine has more. */
static bool is_countable(const meg_box *b)
{
    int64_t size = 1;
    for (int a = 0; a < MEG_AXES; a++)
        if (__builtin_mul_overflow(size, meg_extent(b, a), &size) || size > MOST_NUMBERS)
            return false;
    return true;
}

static int add_value(meg_graph *g, const char *name, meg_value v)
{
    if (g->error.status != MEG_OK) return -1;
    if (!is_countable(&v.shape)) {
        meg_fail(&g->error, MEG_EARG, "%s: more than %" PRId64 " numbers; use smaller extents",
                 name, MOST_NUMBERS);
        return -1;
    }
    if (meg_graph_find_value(g, name) >= 0) {
        meg_fail(&g->error, MEG_EARG, "%s: there is already a value of this name", name);
        return -1;
    }
    g->value = meg_grow(g->value, &g->value_room, (size_t)g->values + 1, sizeof *g->value);
    v.id = g->values;
    v.name = meg_pool_text(g->pool, "%s", name);
    g->value[g->values] = v;
    g->values++;
    if (2 * (size_t)g->values > g->name_room) index_names(g, 4 * (size_t)g->values + 16);
    else *place_of(g, v.name) = g->values;
    return v.id;
}

static int add_leaf(meg_graph *g, const char *name, meg_value v, int rank, const int64_t dims[])
{
    if (g->error.status != MEG_OK) return -1;
    if (rank < 1 || rank > MEG_AXES) {
        meg_fail(&g->error, MEG_EARG, "%s: rank %d, but 1 to %d axes are supported", name, rank,
                 MEG_AXES);
        return -1;
    }
    for (int i = 0; i < rank; i++) {
        if (dims[i] >= 1) continue;
        meg_fail(&g->error, MEG_EARG, "%s: axis %d has extent %" PRId64 ", but must have 1 or more",
                 name, i, dims[i]);
        return -1;
    }
    v.rank = rank;
    v.maker = -1;
    memcpy(v.dims, dims, (size_t)rank * sizeof *dims);
    v.shape = box_of_dims(rank, dims);
    g->batch = v.kind == MEG_INPUT ? dims[0] : g->batch;
    return add_value(g, name, v);
}

int meg_graph_input(meg_graph *g, const char *name, int rank, const int64_t dims[])
{
    return add_leaf(g, name, (meg_value){.kind = MEG_INPUT, .dtype = MEG_F32}, rank, dims);
}

/* A label has no channels: its second axis is already space. */
static int without_channels(meg_graph *g, int id)
{
    if (id < 0) return id;
    meg_value *x = &g->value[id];
    x->shape = meg_box_of(x->dims[0], 1, 1, 1, 1);
    for (int i = 1; i < x->rank; i++)
        x->shape.hi[MEG_AXES - x->rank + i] = x->dims[i];
    return id;
}

int meg_graph_label(meg_graph *g, const char *name, int rank, const int64_t dims[])
{
    meg_value v = {.kind = MEG_LABEL, .dtype = MEG_I32};
    return without_channels(g, add_leaf(g, name, v, rank, dims));
}

int meg_graph_input_typed(meg_graph *g, const char *name, meg_dtype dtype, int rank,
                          const int64_t dims[])
{
    meg_value v = {.kind = MEG_INPUT, .dtype = dtype};
    if (dtype == MEG_F32) return meg_graph_input(g, name, rank, dims);
    if (dtype != MEG_I32 && g->error.status == MEG_OK)
        meg_fail(&g->error, MEG_EARG, "%s: inputs are f32 or i32, not %s", name,
                 meg_dtype_name(dtype));
    return without_channels(g, add_leaf(g, name, v, rank, dims));
}

int meg_graph_parameter(meg_graph *g, const char *name, const meg_weight_spec *spec)
{
    meg_value v = {.kind = spec->kind,
                   .dtype = MEG_F32,
                   .shape = spec->shape,
                   .rank = spec->rank,
                   .maker = -1,
                   .start = spec->start,
                   .bound = spec->bound};
    memcpy(v.dims, spec->dims, sizeof v.dims);
    return add_value(g, name, v);
}

static meg_status check_inputs(meg_graph *g, const meg_op *op, const char *name, int inputs)
{
    bool variadic = op->data_inputs_max > op->data_inputs;
    int most = variadic ? op->data_inputs_max : MEG_INPUTS;
    MEG_CHECK(&g->error, inputs >= op->data_inputs && inputs <= most, MEG_EARG,
              "%s: %s takes %s%d input%s, but got %d", name, op->name, variadic ? "at least " : "",
              op->data_inputs, op->data_inputs == 1 ? "" : "s", inputs);
    return MEG_OK;
}

/* Makes the weights that were not given. */
static meg_status add_weights(meg_graph *g, meg_node *v)
{
    meg_weight_spec spec[MEG_INPUTS];
    if (!v->op->weights) return MEG_OK;
    int count = v->op->weights(g, v, spec);
    for (int i = v->inputs - v->op->data_inputs; i < count; i++) {
        char *name = meg_pool_text(g->pool, "%s.%s", v->name, spec[i].suffix);
        int id = meg_graph_parameter(g, name, &spec[i]);
        if (id < 0) return g->error.status;
        v->in[v->inputs++] = id;
    }
    return MEG_OK;
}

/* Infers a node's outputs into `out`; on success they are complete but for id and name. */
static meg_status infer(meg_graph *g, meg_node *v, meg_error *e, meg_value out[MEG_OUTPUTS])
{
    for (int i = 0; i < MEG_OUTPUTS; i++)
        out[i] = (meg_value){.kind = MEG_MADE, .dtype = MEG_F32, .maker = v->id};
    v->outputs = 1;
    return v->op->infer(g, v, e, out);
}

static meg_status parse_attrs(meg_graph *g, meg_node *v, const char *attrs)
{
    const meg_param *params = v->op->params;
    v->attr = meg_pool_alloc(g->pool, v->op->attr_bytes);
    if (params) return meg_options_parse(&g->error, params, v->name, attrs, v->attr);
    MEG_CHECK(&g->error, !attrs || strspn(attrs, " ") == strlen(attrs), MEG_EARG,
              "%s: %s takes no options, but got '%s'", v->name, v->op->name, attrs);
    return MEG_OK;
}

/* Adds a node whose operator, name, attributes and data inputs are set. */
static meg_status add_node(meg_graph *g, meg_node v)
{
    meg_value out[MEG_OUTPUTS];
    v.id = g->nodes;
    MEG_TRY(&g->error, add_weights(g, &v));
    MEG_TRY(&g->error, infer(g, &v, &g->error, out));
    for (int i = 0; i < v.outputs; i++) {
        const char *name = i ? meg_pool_text(g->pool, "%s:%d", v.name, i) : v.name;
        v.out[i] = add_value(g, name, out[i]);
        if (v.out[i] < 0) return g->error.status;
    }
    g->node = meg_grow(g->node, &g->node_room, (size_t)g->nodes + 1, sizeof *g->node);
    g->node[g->nodes++] = v;
    return MEG_OK;
}

int meg_graph_add(meg_graph *g, const char *op, const char *name, const char *attrs, int inputs,
                  const int in[])
{
    if (g->error.status != MEG_OK) return -1;
    const meg_op *known = meg_op_find(op);
    if (!known) {
        const char *what = meg_pool_text(g->pool, "%s: unknown operator",
                                         name && *name ? name : g->name);
        meg_unknown(&g->error, what, op, meg_op_name);
        return -1;
    }
    meg_node v = {.op = known, .inputs = inputs};
    v.name = name && *name ? meg_pool_text(g->pool, "%s", name)
                           : meg_pool_text(g->pool, "%s%d", op, g->nodes);
    if (check_inputs(g, known, v.name, inputs) != MEG_OK) return -1;
    for (int i = 0; i < inputs; i++) {
        v.in[i] = in[i];
        if (in[i] >= 0 && in[i] < g->values) continue;
        meg_fail(&g->error, MEG_EARG, "%s: input %d is not a value of this graph", v.name, i);
        return -1;
    }
    if (parse_attrs(g, &v, attrs) != MEG_OK || add_node(g, v) != MEG_OK) return -1;
    return g->node[g->nodes - 1].out[0];
}

void meg_graph_split(meg_graph *g, int x, int axis, int parts, int out[])
{
    for (int i = 0; i < parts; i++)
        out[i] = -1;
    if (g->error.status != MEG_OK || x < 0) return;
    const char *name = g->value[x].name; /* of the pool, unlike the value, which moves */
    bool known = axis >= 0 && axis < g->value[x].rank && parts > 0;
    int64_t extent = known ? g->value[x].dims[axis] : 0;
    if (!known || extent % parts != 0) {
        meg_fail(&g->error, MEG_EARG,
                 "%s: axis %d, of extent %" PRId64 ", has no %d equal parts: use a divisor", name,
                 axis, extent, parts);
        return;
    }
    for (int i = 0; i < parts; i++) {
        char attrs[96];
        snprintf(attrs, sizeof attrs, "axes=%d begin=%" PRId64 " end=%" PRId64, axis,
                 i * (extent / parts), (i + 1) * (extent / parts));
        out[i] = meg_graph_add(g, "slice", meg_pool_text(g->pool, "%s.part%d", name, i), attrs, 1,
                               &x);
    }
}

int meg_graph_add_like(meg_graph *g, const meg_node *like, const int in[])
{
    if (g->error.status != MEG_OK) return -1;
    meg_node v = {.op = like->op, .inputs = like->inputs};
    v.name = meg_pool_text(g->pool, "%s", like->name);
    v.attr = meg_pool_alloc(g->pool, v.op->attr_bytes);
    if (v.op->attr_bytes) memcpy(v.attr, like->attr, v.op->attr_bytes);
    memcpy(v.in, in, (size_t)v.inputs * sizeof *in);
    if (add_node(g, v) != MEG_OK) return -1;
    return g->node[g->nodes - 1].out[0];
}

int meg_graph_add_leaf_like(meg_graph *g, const meg_value *like)
{
    return add_value(g, like->name, *like);
}

meg_status meg_graph_rebatch(meg_graph *g, meg_error *e, int64_t batch)
{
    MEG_CHECK(e, batch >= 1, MEG_EARG, "batch=%" PRId64 ", but must be 1 or more", batch);
    g->batch = batch;
    for (int i = 0; i < g->values; i++) {
        meg_value *x = &g->value[i];
        if (x->kind != MEG_INPUT && x->kind != MEG_LABEL) continue;
        x->dims[0] = x->shape.hi[MEG_N] = batch;
    }
    for (int i = 0; i < g->nodes; i++) {
        meg_value out[MEG_OUTPUTS];
        MEG_TRY(e, infer(g, &g->node[i], e, out));
        for (int k = 0; k < g->node[i].outputs; k++) {
            out[k].id = g->node[i].out[k];
            out[k].name = g->value[out[k].id].name;
            g->value[out[k].id] = out[k];
        }
    }
    return MEG_OK;
}

int64_t meg_graph_trainable(const meg_graph *g)
{
    int64_t count = 0;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_PARAMETER) count += meg_box_size(&g->value[i].shape);
    return count;
}

int64_t meg_graph_kinds(const meg_graph *g, int value)
{
    const meg_value *x = &g->value[value];
    int64_t least = 0;
    for (int i = 0; i < g->nodes && x->dtype == MEG_I32; i++) {
        const meg_node *v = &g->node[i];
        bool ids = v->op->looks_up && v->in[0] == value;
        bool classes = x->kind == MEG_LABEL && v->inputs > 1 && v->in[1] == value;
        int64_t has = ids       ? g->value[v->in[1]].shape.hi[MEG_N]
                      : classes ? g->value[v->in[0]].shape.hi[MEG_C]
                                : 0;
        if (classes && has == 1) has = 2; /* a mask: there, or not */
        if (has && (least == 0 || has < least)) least = has;
    }
    return least;
}

int meg_graph_consumers(const meg_graph *g, int value)
{
    int count = 0;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].inputs; k++)
            count += g->node[i].in[k] == value;
    return count;
}
