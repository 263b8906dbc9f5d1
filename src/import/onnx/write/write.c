/* From a graph and its weights to an ONNX file, operator set 20: see write.h.
 *
 * The loss and all that reads labels stays behind. Everything but the weights is built in memory
 * first (proto.h), then streamed. Readers that use protobuf refuse files of 2 GB and more: from
 * there on weights go to a file of their own beside it, as ONNX has it.
 *
 *     net.onnx         nodes, names, where each weight lies
 *     net.onnx.data    weights, each at a multiple of 64 bytes
 */
#include "import/onnx/write/write.h"
#include "base/files/outfile.h"
#include "import/onnx/write/writers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    IR = 9, /* the version that brought operator set 20 */
    OPSET = 20
};

static const int64_t INSIDE_MAX = 1900000000; /* bytes of weights inside the file */

/* ---- the graph ---- */

/* `last`: axis 1 comes last. */
static void port(meg_onnx_out *o, uint32_t number, int value, bool last)
{
    const meg_value *x = &o->graph->value[value];
    meg_wire shape = {0}, type = {0}, kind = {0}, info = {0};
    for (int i = 0; i < x->rank; i++) {
        meg_wire dim = {0};
        int from = last && i > 0 ? (i == x->rank - 1 ? 1 : i + 1) : i;
        if (i == 0) meg_wire_text(&dim, 2, "N");
        else meg_wire_int(&dim, 1, x->dims[from]);
        meg_wire_message(&shape, 1, &dim);
    }
    meg_wire_int(&type, 1, x->dtype == MEG_I32 ? MEG_ONNX_INT32 : MEG_ONNX_FLOAT);
    meg_wire_message(&type, 2, &shape);
    meg_wire_message(&kind, 1, &type);
    meg_wire_text(&info, 1, o->name[value]);
    meg_wire_message(&info, 2, &kind);
    meg_wire_message(&o->wire, number, &info);
}

static bool *needed_nodes(meg_onnx_out *o, const int out[], int count)
{
    const meg_graph *g = o->graph;
    bool *node = meg_pool_alloc(o->pool, (size_t)g->nodes + 1);
    bool *value = meg_pool_alloc(o->pool, (size_t)g->values + 1);
    for (int i = 0; i < count; i++)
        value[out[i]] = true;
    for (int i = g->nodes - 1; i >= 0; i--) {
        const meg_node *v = &g->node[i];
        for (int k = 0; k < v->outputs; k++)
            node[i] = node[i] || value[v->out[k]];
        for (int k = 0; node[i] && k < v->inputs; k++)
            value[v->in[k]] = true;
    }
    return node;
}

/* Does the node rectify its own output? */
static bool rectifies(const meg_node *v)
{
    for (const meg_param *p = v->op->params; p && p->name; p++)
        if (strcmp(p->name, "relu") == 0) return *(const bool *)((const char *)v->attr + p->offset);
    return false;
}

static void put_relu(meg_onnx_out *o, const meg_node *v, const char *from)
{
    meg_onnx_made m = {.op = "Relu", .inputs = 1, .in = {from}, .out = o->name[v->out[0]]};
    meg_onnx_put(o, &m, meg_pool_text(o->pool, "%s/relu", v->name));
}

/* A weight has the extents that its operator asks for; a matrix of one tap stays one. */
static void put_weights(meg_onnx_out *o, const meg_node *v)
{
    meg_weight_spec spec[MEG_INPUTS];
    int first = v->op->data_inputs, count = v->op->weights ? v->op->weights(o->graph, v, spec) : 0;
    for (int i = 0; i < v->inputs; i++) {
        const meg_value *x = &o->graph->value[v->in[i]];
        const meg_weight_spec *own = i >= first && i - first < count ? &spec[i - first] : NULL;
        if (!meg_kind_lasts(x->kind)) continue;
        if (x->rank == 2 && own && own->rank > 2)
            meg_onnx_put_weight(o, v->in[i], 2, (int64_t[]){x->shape.hi[0], x->shape.hi[1]});
        else meg_onnx_put_weight(o, v->in[i], own ? own->rank : x->rank, own ? own->dims : x->dims);
    }
}

static void put_kind(const meg_value *x, FILE *out)
{
    static const char *const kinds[] = {
        [MEG_PARAMETER] = "parameter", [MEG_STATE] = "state", [MEG_FIXED] = "fixed"};
    fprintf(out, "%s ", x->unsaved ? "constant" : kinds[x->kind]);
    for (int k = 0; k < x->rank; k++)
        fprintf(out, "%s%" PRId64, k ? "x" : "", x->dims[k]);
    fprintf(out, "%s %s %s\n", x->rank ? "" : "-", x->turned ? "turned" : "same", x->name);
}

/* Of what cannot be told from the tensors: kind, extents, order and name, a line each. */
static meg_status put_kinds(meg_onnx_out *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    MEG_CHECK(o->error, out, MEG_ENOMEM, "%s: no memory", o->path);
    for (int i = 0; i < o->graph->values; i++) {
        const meg_value *x = &o->graph->value[i];
        bool plain = x->kind != MEG_FIXED && !o->reshaped[i] && meg_box_size(&x->shape) > 1;
        if (o->written[i] && !plain) put_kind(x, out);
    }
    fclose(out);
    if (size) meg_onnx_put_entry(&o->wire, 16, "megalith.kinds", text);
    free(text);
    return MEG_OK;
}

static meg_status put_node(meg_onnx_out *o, const meg_node *v)
{
    const meg_onnx_writer *row = meg_onnx_writer_of(v->op->name);
    MEG_CHECK(o->error, row, MEG_EUNSUPPORTED, "%s: %s '%s' cannot be written as ONNX", o->path,
              v->op->name, v->name);
    meg_onnx_made m = {.op = row->onnx, .inputs = v->inputs, .out = o->name[v->out[0]]};
    for (int i = 0; i < v->inputs; i++)
        m.in[i] = o->name[v->in[i]];
    if (rectifies(v)) m.out = meg_pool_text(o->pool, "%s/plain", v->name);
    meg_made_note(&m, "megalith.scope", v->name);
    meg_status status = row->write ? row->write(o, v, &m) : MEG_OK;
    if (status == MEG_OK) {
        const char *out = m.out;
        if (m.back) m.out = meg_pool_text(o->pool, "%s/last", v->name);
        meg_onnx_put(o, &m, v->name);
        if (m.back) meg_onnx_put_turned(o, v, m.out, out, true);
        put_weights(o, v);
        if (rectifies(v)) put_relu(o, v, out);
    }
    meg_wire_free(&m.attributes);
    return status;
}

/* Is it an output that the file it came from has with axis 1 as the last one? */
static bool comes_last(const meg_graph *g, int value)
{
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i] == value) return g->last[i];
    return false;
}

static void turn_back(meg_onnx_out *o, int value)
{
    const meg_node *v = &o->graph->node[o->graph->value[value].maker];
    const char *name = meg_pool_text(o->pool, "%s/output", v->name);
    o->name[value] = meg_onnx_put_turned(o, v, o->name[value], name, false);
}

static meg_status put_graph(meg_onnx_out *o)
{
    const meg_graph *g = o->graph;
    int out[MEG_OUTPUTS], count = meg_graph_results(g, out);
    bool *needed = needed_nodes(o, out, count);
    for (int i = 0; i < g->values; i++)
        o->name[i] = g->value[i].name;
    for (int i = 0; i < g->nodes; i++)
        if (needed[i]) MEG_TRY(o->error, put_node(o, &g->node[i]));
    MEG_TRY(o->error, put_kinds(o));
    meg_wire_text(&o->wire, 2, g->name);
    for (int i = 0; i < g->values; i++)
        if (g->value[i].kind == MEG_INPUT) port(o, 11, i, false);
    for (int i = 0; i < count; i++) {
        bool last = comes_last(g, out[i]);
        if (last) turn_back(o, out[i]);
        port(o, 12, out[i], last);
    }
    return MEG_OK;
}

static void put_model(meg_onnx_out *o)
{
    meg_wire model = {0}, set = {0};
    meg_wire_text(&set, 1, "");
    meg_wire_int(&set, 2, o->opset);
    meg_wire_int(&model, 1, IR + (o->opset > OPSET));
    meg_wire_text(&model, 2, "megalith");
    meg_wire_text(&model, 3, MEG_VERSION);
    meg_wire_message(&model, 8, &set);
    meg_wire_message(&model, 7, &o->wire);
    o->wire = model;
}

/* ---- streaming ---- */

typedef struct stream {
    meg_outfile file;
    meg_error *error;
    meg_status status;
    int64_t bytes; /* written of the tensor */
} stream;

static meg_status put_piece(void *context, const float *piece, int64_t count)
{
    stream *s = context;
    if (s->status == MEG_OK) s->status = meg_outfile_write(&s->file, s->error, piece, 4 * count);
    s->bytes += 4 * count;
    return s->status;
}

static meg_status put_numbers(stream *s, const meg_value *v, const meg_onnx_source *weights)
{
    s->bytes = 0;
    s->status = MEG_OK;
    bool there = weights->get(weights->context, v, put_piece, s);
    MEG_TRY(s->error, s->status);
    MEG_CHECK(s->error, there && s->bytes == 4 * meg_box_size(&v->shape), MEG_EARG,
              "%s: the numbers of %s are not at hand", s->file.path, v->name);
    return MEG_OK;
}

static meg_status stream_model(stream *s, const meg_onnx_out *o, const meg_onnx_source *weights)
{
    const meg_wire *w = &o->wire;
    size_t at = 0;
    MEG_TRY(s->error, meg_outfile_open(&s->file, s->error, o->path));
    for (size_t i = 0; i < w->holes; i++) {
        const meg_hole *h = &w->hole[i];
        MEG_TRY(s->error,
                meg_outfile_write(&s->file, s->error, w->data + at, (int64_t)(h->at - at)));
        MEG_TRY(s->error, put_numbers(s, &o->graph->value[h->what], weights));
        at = h->at;
    }
    MEG_TRY(s->error, meg_outfile_write(&s->file, s->error, w->data + at, (int64_t)(w->used - at)));
    return meg_outfile_commit(&s->file, s->error);
}

/* Weights in the order in which their places were given out. */
static meg_status stream_data(stream *s, const meg_onnx_out *o, const char *path,
                              const meg_onnx_source *weights)
{
    static const char zeros[64] = {0};
    MEG_TRY(s->error, meg_outfile_open(&s->file, s->error, path));
    for (int i = 0; i < o->weights; i++) {
        const meg_value *v = &o->graph->value[o->order[i]];
        MEG_TRY(s->error, put_numbers(s, v, weights));
        MEG_TRY(s->error, meg_outfile_write(&s->file, s->error, zeros, -s->bytes & 63));
    }
    return meg_outfile_commit(&s->file, s->error);
}

static int64_t weight_bytes(const meg_graph *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < g->values; i++)
        if (meg_kind_lasts(g->value[i].kind)) bytes += 4 * meg_box_size(&g->value[i].shape);
    return bytes;
}

static meg_status save(meg_onnx_out *o, const meg_onnx_source *weights)
{
    stream s = {.file = {.fd = -1}, .error = o->error};
    meg_status status = put_graph(o);
    const char *slash = strrchr(o->path, '/');
    if (status == MEG_OK && o->data) {
        int folder = slash ? (int)(slash - o->path) + 1 : 0;
        char *path = meg_pool_text(o->pool, "%.*s%s", folder, o->path, o->data);
        status = stream_data(&s, o, path, weights);
        meg_outfile_close(&s.file);
    }
    put_model(o);
    if (status == MEG_OK) status = stream_model(&s, o, weights);
    meg_outfile_close(&s.file);
    return status;
}

meg_status meg_onnx_save(meg_error *e, const char *path, const meg_graph *g,
                         const meg_onnx_source *weights, int64_t inside)
{
    meg_onnx_out o = {.error = e, .pool = meg_pool_new(), .path = path, .graph = g, .opset = OPSET};
    const char *slash = strrchr(path, '/');
    if (weight_bytes(g) > (inside ? inside : INSIDE_MAX))
        o.data = meg_pool_text(o.pool, "%s.data", slash ? slash + 1 : path);
    o.name = meg_pool_alloc(o.pool, ((size_t)g->values + 1) * sizeof *o.name);
    o.written = meg_pool_alloc(o.pool, (size_t)g->values + 1);
    o.reshaped = meg_pool_alloc(o.pool, (size_t)g->values + 1);
    o.order = meg_pool_alloc(o.pool, ((size_t)g->values + 1) * sizeof *o.order);
    meg_status status = save(&o, weights);
    meg_wire_free(&o.wire);
    meg_pool_free(o.pool);
    return status;
}
