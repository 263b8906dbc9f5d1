/* The wire format of protobuf: see proto.h. */
#include "import/onnx/wire/proto.h"

#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are taken as they lie");

/* ---- reading ---- */

bool meg_proto_varint(meg_bytes *s, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t byte = *s->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte & 128) continue;
        *out = value;
        return shift < 63 || byte < 2; /* the tenth byte has room for one bit */
    }
    return false;
}

static bool fixed(meg_bytes *s, size_t bytes, uint64_t *out)
{
    *out = 0;
    if ((size_t)(s->end - s->at) < bytes) return false;
    memcpy(out, s->at, bytes);
    s->at += bytes;
    return true;
}

static bool bytes_of(meg_bytes *s, meg_bytes *out)
{
    uint64_t length;
    if (!meg_proto_varint(s, &length) || length > (uint64_t)(s->end - s->at)) return false;
    *out = (meg_bytes){s->at, s->at + length};
    s->at += length;
    return true;
}

int meg_proto_next(meg_bytes *s, meg_proto_field *f)
{
    uint64_t key;
    bool good = false;
    if (s->at == s->end) return 0;
    if (!meg_proto_varint(s, &key) || key >> 3 == 0 || key >> 32) return -1;
    *f = (meg_proto_field){.number = (uint32_t)(key >> 3), .wire = (meg_wire_type)(key & 7)};
    if (f->wire == MEG_WIRE_VARINT) good = meg_proto_varint(s, &f->value);
    if (f->wire == MEG_WIRE_8) good = fixed(s, 8, &f->value);
    if (f->wire == MEG_WIRE_4) good = fixed(s, 4, &f->value);
    if (f->wire == MEG_WIRE_BYTES) good = bytes_of(s, &f->body);
    return good ? 1 : -1; /* groups, the other wire types, are long gone */
}

int meg_proto_number(meg_proto_field *f, meg_wire_type element, uint64_t *out)
{
    if (f->wire == element) { /* one number: gone after it was taken */
        *out = f->value;
        f->wire = MEG_WIRE_BYTES;
        return 1;
    }
    if (f->wire != MEG_WIRE_BYTES) return -1;
    if (f->body.at == f->body.end) return 0;
    bool good = element == MEG_WIRE_VARINT ? meg_proto_varint(&f->body, out)
                                           : fixed(&f->body, element == MEG_WIRE_8 ? 8 : 4, out);
    return good ? 1 : -1;
}

int64_t meg_bytes_bytes(meg_bytes s)
{
    return s.end - s.at;
}

bool meg_bytes_is(meg_bytes s, const char *text)
{
    return meg_bytes_equal(
        s, (meg_bytes){(const uint8_t *)text, (const uint8_t *)text + strlen(text)});
}

bool meg_bytes_equal(meg_bytes a, meg_bytes b)
{
    size_t bytes = (size_t)(a.end - a.at);
    return bytes == (size_t)(b.end - b.at) && (bytes == 0 || memcmp(a.at, b.at, bytes) == 0);
}

/* ---- writing ---- */

void meg_wire_free(meg_wire *w)
{
    free(w->data);
    free(w->hole);
    *w = (meg_wire){0};
}

int64_t meg_wire_bytes(const meg_wire *w)
{
    int64_t bytes = (int64_t)w->used;
    for (size_t i = 0; i < w->holes; i++)
        bytes += w->hole[i].bytes;
    return bytes;
}

static void append(meg_wire *w, const void *data, size_t bytes)
{
    w->data = meg_grow(w->data, &w->room, w->used + bytes + 1, 1);
    if (bytes) memcpy(w->data + w->used, data, bytes);
    w->used += bytes;
}

static void append_varint(meg_wire *w, uint64_t value)
{
    uint8_t byte[10];
    size_t count = 0;
    do {
        byte[count] = (uint8_t)(value & 127);
        value >>= 7;
        if (value) byte[count] |= 128;
        count++;
    } while (value);
    append(w, byte, count);
}

static void append_key(meg_wire *w, uint32_t number, meg_wire_type type)
{
    append_varint(w, (uint64_t)number << 3 | (uint64_t)type);
}

static void append_hole(meg_wire *w, size_t at, int64_t bytes, int what)
{
    w->hole = meg_grow(w->hole, &w->hole_room, w->holes + 1, sizeof *w->hole);
    w->hole[w->holes++] = (meg_hole){at, bytes, what};
}

void meg_wire_int(meg_wire *w, uint32_t number, int64_t value)
{
    append_key(w, number, MEG_WIRE_VARINT);
    append_varint(w, (uint64_t)value);
}

void meg_wire_float(meg_wire *w, uint32_t number, float value)
{
    append_key(w, number, MEG_WIRE_4);
    append(w, &value, sizeof value);
}

void meg_wire_text(meg_wire *w, uint32_t number, const char *text)
{
    meg_wire_data(w, number, text, (int64_t)strlen(text));
}

void meg_wire_data(meg_wire *w, uint32_t number, const void *data, int64_t bytes)
{
    append_key(w, number, MEG_WIRE_BYTES);
    append_varint(w, (uint64_t)bytes);
    append(w, data, (size_t)bytes);
}

void meg_wire_hole(meg_wire *w, uint32_t number, int64_t bytes, int what)
{
    append_key(w, number, MEG_WIRE_BYTES);
    append_varint(w, (uint64_t)bytes);
    append_hole(w, w->used, bytes, what);
}

void meg_wire_message(meg_wire *w, uint32_t number, meg_wire *part)
{
    append_key(w, number, MEG_WIRE_BYTES);
    append_varint(w, (uint64_t)meg_wire_bytes(part));
    meg_wire_append(w, part);
    meg_wire_free(part);
}

void meg_wire_append(meg_wire *w, const meg_wire *fields)
{
    size_t begin = w->used;
    append(w, fields->data, fields->used);
    for (size_t i = 0; i < fields->holes; i++)
        append_hole(w, begin + fields->hole[i].at, fields->hole[i].bytes, fields->hole[i].what);
}
