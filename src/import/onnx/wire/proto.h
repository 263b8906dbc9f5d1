/* The wire format of protobuf, as far as model files need it, read and written without copies.
 *
 *     message = field*       field = key (number << 3 | wire type), then
 *         0  a varint               5  four bytes
 *         1  eight bytes            2  a length and so many bytes: text, numbers, a message
 *
 * Reading walks spans of a mapped file and never looks beyond their end. Writing keeps everything
 * but the weights in memory: a message is built from its innermost parts outwards, so that lengths
 * are known before the first byte is out; weights are only holes of known size, and are streamed
 * when the file is written. Lengths are 64-bit throughout: a file may be larger than 2 GB.
 */
#ifndef MEG_IMPORT_ONNX_WIRE_PROTO_H
#define MEG_IMPORT_ONNX_WIRE_PROTO_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* ---- reading ---- */

typedef struct meg_bytes { /* bytes of a file: a text, numbers, a message */
    const uint8_t *at, *end;
} meg_bytes;

typedef enum meg_wire_type {
    MEG_WIRE_VARINT = 0,
    MEG_WIRE_8 = 1,
    MEG_WIRE_BYTES = 2,
    MEG_WIRE_4 = 5
} meg_wire_type;

typedef struct meg_proto_field {
    uint32_t number;
    meg_wire_type wire;
    uint64_t value; /* of varints and fixed numbers */
    meg_bytes body; /* of MEG_WIRE_BYTES */
} meg_proto_field;

/* For printf's "%.*s": names of a file may be any bytes and of any length. */
#define MEG_SPAN_TEXT(s)                                                                           \
    (int)((s).end - (s).at > 200 ? 200 : (s).end - (s).at), (const char *)(s).at

/* Takes the next field off the span. 1: there is one, 0: the span has ended, -1: malformed. */
int meg_proto_next(meg_bytes *s, meg_proto_field *f);
bool meg_proto_varint(meg_bytes *s, uint64_t *out);

/* Takes the next number of a repeated field, packed or not, off f->body: 1, 0, -1 as above. Fixed
 * numbers come as their bits. Begin with a field as meg_proto_next gave it. */
int meg_proto_number(meg_proto_field *f, meg_wire_type element, uint64_t *out);

int64_t meg_bytes_bytes(meg_bytes s);
bool meg_bytes_is(meg_bytes s, const char *text);
bool meg_bytes_equal(meg_bytes a, meg_bytes b);

/* ---- writing ---- */

typedef struct meg_hole { /* bytes that are not in memory */
    size_t at;            /* comes before this byte of the buffer */
    int64_t bytes;
    int what; /* the caller's number for it */
} meg_hole;

typedef struct meg_wire { /* a message under construction; begin with zeros */
    uint8_t *data;
    size_t used, room;
    meg_hole *hole;
    size_t holes, hole_room;
} meg_wire;

void meg_wire_free(meg_wire *w);
int64_t meg_wire_bytes(const meg_wire *w); /* holes included */

void meg_wire_int(meg_wire *w, uint32_t number, int64_t value);
void meg_wire_float(meg_wire *w, uint32_t number, float value);
void meg_wire_text(meg_wire *w, uint32_t number, const char *text);
void meg_wire_data(meg_wire *w, uint32_t number, const void *data, int64_t bytes);
void meg_wire_hole(meg_wire *w, uint32_t number, int64_t bytes, int what);

/* Adds `part` as a message and frees it. */
void meg_wire_message(meg_wire *w, uint32_t number, meg_wire *part);
void meg_wire_append(meg_wire *w, const meg_wire *fields); /* as they are */

#endif
