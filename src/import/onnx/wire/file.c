/* Opening ONNX files: see file.h. Nothing in the file is believed. All checks happen at
 * opening, so that access cannot fail. Memory stays within a small multiple of the file's size:
 * every entry of every list has bytes of its own in the file, and there are limits beyond that.
 */
#include "import/onnx/wire/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 1 << 18 /* nodes, tensors, ports: far beyond any network */
};

#define NEXT(s, f) (state = meg_proto_next(&(s), &(f))) > 0

static meg_status malformed(const meg_onnx_file *f, meg_error *e, const char *where)
{
    return meg_fail(e, MEG_EDATA, "%s: %s is malformed: this is no ONNX file, or it was cut short",
                    f->path, where);
}

static meg_status too_many(const meg_onnx_file *f, meg_error *e, const char *what)
{
    return meg_fail(e, MEG_EDATA, "%s: more than %d %s", f->path, MOST, what);
}

/* ---- nodes ---- */

static bool check_numbers(meg_proto_field f, meg_wire_type element)
{
    uint64_t value;
    int state;
    while ((state = meg_proto_number(&f, element, &value)) > 0)
        continue;
    return state == 0;
}

/* Walks an attribute once, so that later walks cannot fail. */
static bool check_attribute(meg_bytes body, bool *subgraph)
{
    meg_proto_field a;
    int state;
    while (NEXT(body, a)) {
        bool bytes = a.wire == MEG_WIRE_BYTES, good = true;
        if (a.number == 1 || (a.number >= 4 && a.number <= 6) || (a.number >= 9 && a.number <= 11))
            good = bytes;
        if (a.number == 2) good = a.wire == MEG_WIRE_4;
        if (a.number == 3 || a.number == 20) good = a.wire == MEG_WIRE_VARINT;
        if (a.number == 7) good = check_numbers(a, MEG_WIRE_4);
        if (a.number == 8) good = check_numbers(a, MEG_WIRE_VARINT);
        if (!good) return false;
        *subgraph = *subgraph || a.number == 6 || a.number == 11;
    }
    return state == 0;
}

static bool check_entry(meg_bytes body) /* StringStringEntryProto */
{
    meg_proto_field a;
    int state;
    while (NEXT(body, a))
        if ((a.number == 1 || a.number == 2) && a.wire != MEG_WIRE_BYTES) return false;
    return state == 0;
}

/* First walk: texts, counts, checks. */
static bool scan_node(meg_onnx_node *n)
{
    meg_bytes s = n->body;
    meg_proto_field a;
    int state;
    while (NEXT(s, a)) {
        if (a.number > 9 || a.number == 6 || a.number == 8) continue;
        if (a.wire != MEG_WIRE_BYTES) return false;
        if (a.number == 1) n->inputs++;
        if (a.number == 2) n->outputs++;
        if (a.number == 3) n->name = a.body;
        if (a.number == 4) n->op = a.body;
        if (a.number == 7) n->domain = a.body;
        if (a.number == 5 && !check_attribute(a.body, &n->subgraph)) return false;
        if (a.number == 9 && !check_entry(a.body)) return false;
    }
    return state == 0;
}

static meg_status read_node(meg_onnx_file *f, meg_error *e, meg_bytes body)
{
    meg_onnx_node n = {.body = body};
    meg_proto_field a;
    if (f->nodes == MOST) return too_many(f, e, "nodes");
    if (!scan_node(&n)) return malformed(f, e, "a node");
    n.in = meg_pool_alloc(f->pool, (size_t)n.inputs * sizeof *n.in);
    n.out = meg_pool_alloc(f->pool, (size_t)n.outputs * sizeof *n.out);
    n.inputs = n.outputs = 0;
    while (meg_proto_next(&body, &a) > 0) {
        if (a.number == 1) n.in[n.inputs++] = a.body;
        if (a.number == 2) n.out[n.outputs++] = a.body;
    }
    f->node = meg_grow(f->node, &f->node_room, f->nodes + 1, sizeof n);
    f->node[f->nodes++] = n;
    return MEG_OK;
}

/* ---- inputs and outputs ---- */

static bool read_dim(meg_bytes body, meg_onnx_port *p)
{
    meg_proto_field a;
    int state;
    int64_t extent = -1;
    while (NEXT(body, a)) {
        if (a.number == 1 && a.wire != MEG_WIRE_VARINT) return false;
        if (a.number == 1) extent = (int64_t)a.value;
    }
    if (p->rank < MEG_ONNX_RANK) p->dims[p->rank] = extent;
    p->rank++;
    return state == 0;
}

static bool read_shape(meg_bytes body, meg_onnx_port *p)
{
    meg_proto_field a;
    int state;
    p->rank = 0;
    while (NEXT(body, a)) {
        if (a.number != 1) continue;
        if (a.wire != MEG_WIRE_BYTES || !read_dim(a.body, p)) return false;
    }
    return state == 0;
}

static bool read_tensor_type(meg_bytes body, meg_onnx_port *p)
{
    meg_proto_field a;
    int state;
    while (NEXT(body, a)) {
        if (a.number == 1 && a.wire != MEG_WIRE_VARINT) return false;
        if (a.number == 1) p->type = a.value > 1000 ? -1 : (int)a.value;
        if (a.number == 2 && (a.wire != MEG_WIRE_BYTES || !read_shape(a.body, p))) return false;
    }
    return state == 0;
}

static bool read_type(meg_bytes body, meg_onnx_port *p)
{
    meg_proto_field a;
    int state;
    while (NEXT(body, a)) {
        if (a.number != 1) continue; /* sequences, maps, optionals: no tensor */
        if (a.wire != MEG_WIRE_BYTES || !read_tensor_type(a.body, p)) return false;
    }
    return state == 0;
}

static bool scan_port(meg_bytes body, meg_onnx_port *p)
{
    meg_proto_field a;
    int state;
    *p = (meg_onnx_port){.rank = -1};
    while (NEXT(body, a)) {
        if (a.number > 2) continue;
        if (a.wire != MEG_WIRE_BYTES) return false;
        if (a.number == 1) p->name = a.body;
        if (a.number == 2 && !read_type(a.body, p)) return false;
    }
    return state == 0;
}

static meg_status read_port(meg_onnx_file *f, meg_error *e, meg_bytes body, bool output)
{
    meg_onnx_port p;
    if (f->inputs + f->outputs == MOST) return too_many(f, e, "inputs and outputs");
    if (!scan_port(body, &p)) return malformed(f, e, "an input or output");
    if (output) {
        f->output = meg_grow(f->output, &f->output_room, f->outputs + 1, sizeof p);
        f->output[f->outputs++] = p;
    } else {
        f->input = meg_grow(f->input, &f->input_room, f->inputs + 1, sizeof p);
        f->input[f->inputs++] = p;
    }
    return MEG_OK;
}

/* ValueInfoProto: of values inside the graph only the notes count. */
static meg_status read_info(meg_onnx_file *f, meg_error *e, meg_bytes body)
{
    meg_onnx_info i = {.body = body};
    meg_proto_field a;
    int state;
    bool notes = false;
    while (NEXT(body, a)) {
        if (a.number != 1 && a.number != 4) continue;
        bool good = a.wire == MEG_WIRE_BYTES && (a.number == 1 || check_entry(a.body));
        if (!good) return malformed(f, e, "the note of a value");
        if (a.number == 1) i.name = a.body;
        else notes = true;
    }
    if (state != 0) return malformed(f, e, "the note of a value");
    if (!notes) return MEG_OK;
    if (f->infos == MOST) return too_many(f, e, "notes of values");
    f->info = meg_grow(f->info, &f->info_room, f->infos + 1, sizeof i);
    f->info[f->infos++] = i;
    return MEG_OK;
}

/* ---- graph and model ---- */

static meg_status read_initializer(meg_onnx_file *f, meg_error *e, meg_bytes body)
{
    meg_onnx_tensor t;
    if (f->tensors == MOST) return too_many(f, e, "initializers");
    MEG_TRY(e, meg_onnx_tensor_read(f, e, body, &t));
    f->tensor = meg_grow(f->tensor, &f->tensor_room, f->tensors + 1, sizeof t);
    f->tensor[f->tensors++] = t;
    return MEG_OK;
}

static meg_status read_graph(meg_onnx_file *f, meg_error *e, meg_bytes body)
{
    meg_proto_field a;
    int state;
    f->graph = body;
    while (NEXT(body, a)) {
        bool used = a.number == 1 || a.number == 5 || a.number == 11 || a.number == 12 ||
                    a.number == 13 || a.number == 16;
        if (used && a.wire != MEG_WIRE_BYTES) return malformed(f, e, "the graph");
        if (a.number == 1) MEG_TRY(e, read_node(f, e, a.body));
        if (a.number == 5) MEG_TRY(e, read_initializer(f, e, a.body));
        if (a.number == 11 || a.number == 12) MEG_TRY(e, read_port(f, e, a.body, a.number == 12));
        if (a.number == 13) MEG_TRY(e, read_info(f, e, a.body));
        if (a.number == 16 && !check_entry(a.body)) return malformed(f, e, "a note of the graph");
        MEG_CHECK(e, a.number != 15, MEG_EUNSUPPORTED, "%s: sparse initializers are not supported",
                  f->path);
    }
    return state == 0 ? MEG_OK : malformed(f, e, "the graph");
}

static bool read_opset(meg_onnx_file *f, meg_bytes body)
{
    meg_proto_field a;
    int state;
    meg_bytes domain = {NULL, NULL};
    uint64_t version = 0;
    while (NEXT(body, a)) {
        if (a.number == 1 && a.wire == MEG_WIRE_BYTES) domain = a.body;
        if (a.number == 2 && a.wire == MEG_WIRE_VARINT) version = a.value;
    }
    bool own = meg_bytes_is(domain, "") || meg_bytes_is(domain, "ai.onnx");
    if (own) f->opset = version > INT32_MAX ? INT32_MAX : (int64_t)version;
    return state == 0;
}

static meg_status read_model(meg_onnx_file *f, meg_error *e, meg_bytes s)
{
    meg_proto_field a;
    int state, graphs = 0;
    while (NEXT(s, a)) {
        bool bytes = a.wire == MEG_WIRE_BYTES;
        if (a.number == 1 && a.wire == MEG_WIRE_VARINT) f->ir = (int64_t)a.value;
        if (a.number == 2 && bytes) f->producer = a.body;
        if (a.number == 8 && (!bytes || !read_opset(f, a.body)))
            return malformed(f, e, "the list of operator sets");
        if (a.number != 7) continue;
        if (!bytes || graphs++) return malformed(f, e, "the model");
        MEG_TRY(e, read_graph(f, e, a.body));
    }
    if (state < 0 || !graphs) return malformed(f, e, "the model");
    return MEG_OK;
}

meg_status meg_onnx_open(meg_error *e, const char *path, meg_onnx_file **out)
{
    meg_onnx_file *f = calloc(1, sizeof *f);
    if (!f) return meg_fail(e, MEG_ENOMEM, "%s: no memory", path);
    f->pool = meg_pool_new();
    f->path = meg_pool_text(f->pool, "%s", path);
    meg_bytes all;
    meg_status status = meg_onnx_map(f, e, path, &all);
    if (status == MEG_OK) status = read_model(f, e, all);
    if (status == MEG_OK) *out = f;
    else meg_onnx_close(f);
    return status;
}

void meg_onnx_close(meg_onnx_file *f)
{
    if (!f) return;
    meg_onnx_unmap(f);
    free(f->node);
    free(f->tensor);
    free(f->input);
    free(f->output);
    free(f->info);
    meg_pool_free(f->pool);
    free(f);
}

/* ---- attributes ---- */

/* The attribute's fields. */
static bool find(const meg_onnx_node *n, const char *name, meg_bytes *out)
{
    meg_bytes s = n->body;
    meg_proto_field a, b;
    while (meg_proto_next(&s, &a) > 0) {
        if (a.number != 5) continue;
        for (meg_bytes t = a.body; meg_proto_next(&t, &b) > 0;)
            if (b.number == 1 && meg_bytes_is(b.body, name)) {
                *out = a.body;
                return true;
            }
    }
    return false;
}

/* The last field of this number, as protobuf has it. */
static bool find_field(const meg_onnx_node *n, const char *name, uint32_t number, meg_proto_field *out)
{
    meg_bytes s;
    meg_proto_field a;
    bool found = false;
    if (!find(n, name, &s)) return false;
    while (meg_proto_next(&s, &a) > 0)
        if (a.number == number) *out = a, found = true;
    return found;
}

bool meg_onnx_has(const meg_onnx_node *n, const char *name)
{
    meg_bytes unused;
    return find(n, name, &unused);
}

int64_t meg_onnx_int(const meg_onnx_node *n, const char *name, int64_t absent)
{
    meg_proto_field a;
    return find_field(n, name, 3, &a) ? (int64_t)a.value : absent;
}

/* The decimal of so few digits that a float was made of: 1e-5 was meant, not 9.99999974e-6. */
static double decimal(float value, int most)
{
    double number = (double)value;
    for (int digits = 6; digits <= most; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        double shorter = strtod(text, NULL);
        if (fabsf((float)shorter - value) <= 0) return shorter;
    }
    return number;
}

double meg_onnx_real(const meg_onnx_node *n, const char *name, double absent)
{
    meg_proto_field a;
    float value;
    if (!find_field(n, name, 2, &a)) return absent;
    memcpy(&value, &a.value, sizeof value);
    return decimal(value, 9);
}

double meg_onnx_meant(const meg_onnx_tensor *t, int64_t i)
{
    static const double powers[] = {0.5, -0.5, 0.25, -0.25};
    double number = meg_onnx_number(t, i);
    float value = (float)number;
    if (t->type != MEG_ONNX_FLOAT || !isfinite(number)) return number;
    double short_one = decimal(value, 6);
    if (fabs(short_one - number) > 0 || !(number > 0)) return short_one;
    for (size_t k = 0; k < sizeof powers / sizeof *powers; k++) {
        double whole = round(pow(number, 1 / powers[k]));
        if (!(whole >= 2 && whole <= 1 << 16)) continue;
        double root = fabs(powers[k]) < 0.4 ? sqrt(sqrt(whole)) : sqrt(whole);
        if (powers[k] < 0) root = 1 / root;
        if (fabsf((float)root - value) <= 0) return root;
    }
    return number;
}

meg_bytes meg_onnx_text(const meg_onnx_node *n, const char *name)
{
    meg_proto_field a = {0};
    find_field(n, name, 4, &a);
    return a.body;
}

int meg_onnx_ints(const meg_onnx_node *n, const char *name, int64_t out[], int room)
{
    meg_bytes s;
    meg_proto_field a;
    uint64_t value;
    int count = 0;
    if (!find(n, name, &s)) return -1;
    while (meg_proto_next(&s, &a) > 0)
        while (a.number == 8 && meg_proto_number(&a, MEG_WIRE_VARINT, &value) > 0) {
            if (count < room) out[count] = (int64_t)value;
            count++;
        }
    return count;
}

int meg_onnx_floats(const meg_onnx_node *n, const char *name, float out[], int room)
{
    meg_bytes s;
    meg_proto_field a;
    uint64_t bits;
    int count = 0;
    if (!find(n, name, &s)) return -1;
    while (meg_proto_next(&s, &a) > 0)
        while (a.number == 7 && meg_proto_number(&a, MEG_WIRE_4, &bits) > 0) {
            uint32_t low = (uint32_t)bits;
            if (count < room) memcpy(&out[count], &low, sizeof low);
            count++;
        }
    return count;
}

bool meg_onnx_attribute(const meg_onnx_node *n, int i, meg_bytes *name)
{
    meg_bytes s = n->body;
    meg_proto_field a, b;
    while (meg_proto_next(&s, &a) > 0) {
        if (a.number != 5 || i-- > 0) continue;
        *name = (meg_bytes){NULL, NULL};
        for (meg_bytes t = a.body; meg_proto_next(&t, &b) > 0;)
            if (b.number == 1) *name = b.body;
        return true;
    }
    return false;
}

meg_status meg_onnx_value(meg_onnx_file *f, meg_error *e, const meg_onnx_node *n,
                          meg_onnx_tensor *out)
{
    meg_proto_field a;
    MEG_CHECK(e, find_field(n, "value", 5, &a), MEG_EUNSUPPORTED,
              "%s: Constant '%.*s' has no tensor in 'value'; other forms are not supported",
              f->path, MEG_SPAN_TEXT(n->name));
    return meg_onnx_tensor_read(f, e, a.body, out);
}

static meg_bytes note_of(meg_bytes s, uint32_t number, const char *key)
{
    meg_bytes found = {NULL, NULL};
    meg_proto_field a, b;
    while (meg_proto_next(&s, &a) > 0) {
        if (a.number != number) continue;
        meg_bytes word = {NULL, NULL}, value = {NULL, NULL};
        while (meg_proto_next(&a.body, &b) > 0) {
            if (b.number == 1) word = b.body;
            if (b.number == 2) value = b.body;
        }
        if (meg_bytes_is(word, key)) found = value;
    }
    return found;
}

meg_bytes meg_onnx_note(const meg_onnx_node *n, const char *key)
{
    return note_of(n->body, 9, key);
}

meg_bytes meg_onnx_info_note(const meg_onnx_info *i, const char *key)
{
    return note_of(i->body, 4, key);
}

meg_bytes meg_onnx_graph_note(const meg_onnx_file *f, const char *key)
{
    return note_of(f->graph, 16, key);
}
