/* Parts of an ONNX file: nodes with their attributes and notes, constants, weights: see put.h. The
 * numbers of fields are those of onnx.proto.
 */
#include "import/onnx/write/put.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- nodes ---- */

void meg_onnx_put_entry(meg_wire *w, uint32_t number, const char *key, const char *value)
{
    meg_wire part = {0};
    meg_wire_text(&part, 1, key);
    meg_wire_text(&part, 2, value);
    meg_wire_message(w, number, &part);
}

static meg_wire attribute(const char *name, int type)
{
    meg_wire a = {0};
    meg_wire_text(&a, 1, name);
    meg_wire_int(&a, 20, type);
    return a;
}

void meg_made_int(meg_onnx_made *m, const char *name, int64_t value)
{
    meg_wire a = attribute(name, 2);
    meg_wire_int(&a, 3, value);
    meg_wire_message(&m->attributes, 5, &a);
}

void meg_made_real(meg_onnx_made *m, const char *name, double value)
{
    meg_wire a = attribute(name, 1);
    meg_wire_float(&a, 2, (float)value);
    meg_wire_message(&m->attributes, 5, &a);
}

void meg_made_text(meg_onnx_made *m, const char *name, const char *value)
{
    meg_wire a = attribute(name, 3);
    meg_wire_text(&a, 4, value);
    meg_wire_message(&m->attributes, 5, &a);
}

void meg_made_ints(meg_onnx_made *m, const char *name, int count, const int64_t at[])
{
    meg_wire a = attribute(name, 7);
    for (int i = 0; i < count; i++)
        meg_wire_int(&a, 8, at[i]);
    meg_wire_message(&m->attributes, 5, &a);
}

void meg_made_note(meg_onnx_made *m, const char *key, const char *value)
{
    meg_onnx_put_entry(&m->attributes, 9, key, value);
}

void meg_onnx_put(meg_onnx_out *o, meg_onnx_made *m, const char *name)
{
    meg_wire n = {0};
    for (int i = 0; i < m->inputs; i++)
        meg_wire_text(&n, 1, m->in[i]);
    meg_wire_text(&n, 2, m->out);
    if (m->second) meg_wire_text(&n, 2, m->second);
    meg_wire_text(&n, 3, name);
    meg_wire_text(&n, 4, m->op);
    meg_wire_append(&n, &m->attributes);
    meg_wire_message(&o->wire, 1, &n);
}

const char *meg_onnx_put_turned(meg_onnx_out *o, const meg_node *v, const char *x, const char *out,
                                bool to_front)
{
    int rank = o->graph->value[v->out[0]].rank;
    int64_t perm[MEG_AXES] = {0};
    for (int i = 1; i < rank; i++)
        perm[i] = to_front ? (i == 1 ? rank - 1 : i - 1) : (i == rank - 1 ? 1 : i + 1);
    if (!out) out = meg_pool_text(o->pool, "%s/turned", v->name);
    meg_onnx_made m = {.op = "Transpose", .inputs = 1, .in = {x}, .out = out};
    meg_made_ints(&m, "perm", rank, perm);
    meg_onnx_put(o, &m, meg_pool_text(o->pool, "%s/%s", v->name, to_front ? "back" : "turn"));
    meg_wire_free(&m.attributes);
    return out;
}

void meg_onnx_note_own(meg_onnx_out *o, const meg_node *v, meg_onnx_made *m)
{
    char attrs[1024] = "", names[4096] = "";
    if (v->op->params) meg_options_print(v->op->params, v->attr, attrs, sizeof attrs);
    for (int i = 0; i < v->inputs; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? "\n" : "", o->name[v->in[i]]);
    }
    meg_made_note(m, "megalith.op", v->op->name);
    meg_made_note(m, "megalith.words", attrs);
    meg_made_note(m, "megalith.inputs", names);
}

/* ---- constants and weights ---- */

static meg_wire tensor(const char *name, int type, int rank, const int64_t dims[])
{
    meg_wire t = {0};
    for (int i = 0; i < rank; i++)
        meg_wire_int(&t, 1, dims[i]);
    meg_wire_int(&t, 2, type);
    meg_wire_text(&t, 8, name);
    return t;
}

static const char *extra_name(meg_onnx_out *o, const meg_node *v)
{
    return meg_pool_text(o->pool, "%s/constant%d", v->name, o->extras++);
}

const char *meg_onnx_put_wholes(meg_onnx_out *o, const meg_node *v, int count, const int64_t at[])
{
    const char *name = extra_name(o, v);
    meg_wire t = tensor(name, MEG_ONNX_INT64, count > 0, (int64_t[]){count});
    meg_wire_data(&t, 9, at, (count ? count : 1) * (int64_t)sizeof *at);
    meg_wire_message(&o->wire, 5, &t);
    return name;
}

const char *meg_onnx_put_reals(meg_onnx_out *o, const meg_node *v, int count, const float at[])
{
    const char *name = extra_name(o, v);
    meg_wire t = tensor(name, MEG_ONNX_FLOAT, 1, (int64_t[]){count});
    meg_wire_data(&t, 9, at, count * (int64_t)sizeof *at);
    meg_wire_message(&o->wire, 5, &t);
    return name;
}

const char *meg_onnx_put_real(meg_onnx_out *o, const meg_node *v, double value)
{
    const char *name = extra_name(o, v);
    float number = (float)value;
    meg_wire t = tensor(name, MEG_ONNX_FLOAT, 0, NULL);
    meg_wire_data(&t, 9, &number, sizeof number);
    meg_wire_message(&o->wire, 5, &t);
    return name;
}

void meg_onnx_put_weight(meg_onnx_out *o, int value, int rank, const int64_t dims[])
{
    const meg_value *x = &o->graph->value[value];
    int64_t bytes = 4 * meg_box_size(&x->shape);
    if (o->written[value]) return;
    o->written[value] = true;
    o->reshaped[value] = x->turned || rank != x->rank ||
                         memcmp(dims, x->dims, (size_t)rank * sizeof *dims) != 0;
    o->order[o->weights++] = value;
    meg_wire t = tensor(x->name, MEG_ONNX_FLOAT, rank, dims);
    if (o->data) {
        char number[32];
        meg_onnx_put_entry(&t, 13, "location", o->data);
        snprintf(number, sizeof number, "%" PRId64, o->offset);
        meg_onnx_put_entry(&t, 13, "offset", number);
        snprintf(number, sizeof number, "%" PRId64, bytes);
        meg_onnx_put_entry(&t, 13, "length", number);
        meg_wire_int(&t, 14, 1);
        o->offset = (o->offset + bytes + 63) / 64 * 64;
    } else meg_wire_hole(&t, 9, bytes, value);
    meg_wire_message(&o->wire, 5, &t);
}
