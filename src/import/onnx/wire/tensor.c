/* Tensors of ONNX files: see tensor.h. Their numbers lie in one of three places:
 *
 *     raw_data                 bytes, used where they are
 *     float_data, int64_data   lists of the wire format; packed fixed numbers are used where they
 *                              are, others are decoded into the pool
 *     another file             `location` beside the model, with offset and length
 */
#include "import/onnx/wire/tensor.h"
#include "base/half.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct meg_onnx_map {
    char *path;
    meg_bytes all;
} map;

typedef struct type_row {
    int id;
    const char *name;
    int64_t bytes;           /* 0: not fixed, or less than one */
    uint32_t list;           /* field with the list of its numbers */
    meg_wire_type list_wire; /* as they lie there */
} type_row;

static const type_row TYPES[] = {
    {MEG_ONNX_FLOAT, "float", 4, 4, MEG_WIRE_4},
    {2, "uint8", 1, 5, MEG_WIRE_VARINT},
    {3, "int8", 1, 5, MEG_WIRE_VARINT},
    {4, "uint16", 2, 5, MEG_WIRE_VARINT},
    {5, "int16", 2, 5, MEG_WIRE_VARINT},
    {MEG_ONNX_INT32, "int32", 4, 5, MEG_WIRE_VARINT},
    {MEG_ONNX_INT64, "int64", 8, 7, MEG_WIRE_VARINT},
    {8, "string", 0, 6, MEG_WIRE_BYTES},
    {MEG_ONNX_BOOL, "bool", 1, 5, MEG_WIRE_VARINT},
    {MEG_ONNX_FLOAT16, "float16", 2, 5, MEG_WIRE_VARINT},
    {MEG_ONNX_DOUBLE, "double", 8, 10, MEG_WIRE_8},
    {12, "uint32", 4, 11, MEG_WIRE_VARINT},
    {13, "uint64", 8, 11, MEG_WIRE_VARINT},
    {MEG_ONNX_BFLOAT16, "bfloat16", 2, 5, MEG_WIRE_VARINT},
};

static const type_row *type_of(int id)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (TYPES[i].id == id) return &TYPES[i];
    return NULL;
}

const char *meg_onnx_type_name(int type)
{
    const type_row *row = type_of(type);
    return row ? row->name : "of an unknown type";
}

/* ---- files ---- */

static meg_status map_file(meg_error *e, const char *path, int fd, meg_bytes *out)
{
    struct stat s;
    MEG_CHECK(e, fstat(fd, &s) == 0, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
    MEG_CHECK(e, S_ISREG(s.st_mode), MEG_EIO, "cannot read %s: it is no file", path);
    MEG_CHECK(e, s.st_size > 0, MEG_EDATA, "%s is empty", path);
    void *at = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    MEG_CHECK(e, at != MAP_FAILED, MEG_EIO, "cannot map %s: %s", path, strerror(errno));
    *out = (meg_bytes){at, (const uint8_t *)at + s.st_size};
    return MEG_OK;
}

meg_status meg_onnx_map(meg_onnx_file *f, meg_error *e, const char *path, meg_bytes *out)
{
    for (size_t i = 0; i < f->maps; i++) {
        if (strcmp(f->map[i].path, path) != 0) continue;
        *out = f->map[i].all;
        return MEG_OK;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MEG_CHECK(e, fd >= 0, MEG_EIO, "cannot read %s: %s", path, strerror(errno));
    meg_status status = map_file(e, path, fd, out);
    close(fd);
    MEG_TRY(e, status);
    f->map = meg_grow(f->map, &f->map_room, f->maps + 1, sizeof *f->map);
    f->map[f->maps++] = (map){meg_pool_text(f->pool, "%s", path), *out};
    return MEG_OK;
}

void meg_onnx_unmap(meg_onnx_file *f)
{
    for (size_t i = 0; i < f->maps; i++)
        munmap((void *)(uintptr_t)f->map[i].all.at, (size_t)meg_bytes_bytes(f->map[i].all));
    free(f->map);
    f->map = NULL;
    f->maps = 0;
}

/* ---- reading ---- */

typedef struct parts {             /* of a TensorProto, as met */
    meg_bytes raw, list, location; /* list: the only packed one, if there is no other */
    int lists;
    uint64_t offset, length;
    bool has_raw, external, has_length;
} parts;

static meg_status malformed(const meg_onnx_file *f, meg_error *e, const meg_onnx_tensor *t)
{
    return meg_fail(e, MEG_EDATA, "%s: tensor '%.*s' is malformed", f->path,
                    MEG_SPAN_TEXT(t->name));
}

static bool decimal(meg_bytes s, uint64_t *out)
{
    *out = 0;
    if (s.at == s.end) return false;
    for (; s.at < s.end; s.at++) {
        if (*s.at < '0' || *s.at > '9' || *out > UINT64_MAX / 10 - 1) return false;
        *out = 10 * *out + (uint64_t)(*s.at - '0');
    }
    return true;
}

static bool read_external(meg_bytes body, parts *p)
{
    meg_bytes key = {NULL, NULL}, value = {NULL, NULL};
    meg_proto_field a;
    int state;
    while ((state = meg_proto_next(&body, &a)) > 0) {
        if (a.wire != MEG_WIRE_BYTES) return false;
        if (a.number == 1) key = a.body;
        if (a.number == 2) value = a.body;
    }
    if (state < 0) return false;
    if (meg_bytes_is(key, "location")) p->location = value;
    if (meg_bytes_is(key, "offset")) return decimal(value, &p->offset);
    if (meg_bytes_is(key, "length")) return p->has_length = decimal(value, &p->length);
    return true;
}

static bool read_dims(meg_proto_field a, meg_onnx_tensor *t)
{
    uint64_t value;
    int state;
    while ((state = meg_proto_number(&a, MEG_WIRE_VARINT, &value)) > 0) {
        if (t->rank < MEG_ONNX_RANK) t->dims[t->rank] = (int64_t)value;
        t->rank++;
    }
    return state == 0;
}

static bool read_field(const meg_proto_field *a, meg_onnx_tensor *t, parts *p)
{
    bool bytes = a->wire == MEG_WIRE_BYTES, whole = a->wire == MEG_WIRE_VARINT;
    bool list = (a->number >= 4 && a->number <= 7) || a->number == 10 || a->number == 11;
    if (a->number == 1) return read_dims(*a, t);
    if (a->number == 2) t->type = a->value > 1000 ? -1 : (int)a->value;
    if (a->number == 8) t->name = a->body;
    if (a->number == 9) p->raw = a->body, p->has_raw = true;
    if (list) p->list = a->body, p->lists++;
    if (a->number == 13) return bytes && read_external(a->body, p);
    if (a->number == 14) p->external = a->value == 1;
    if (a->number == 2 || a->number == 14) return whole;
    return (a->number != 8 && a->number != 9) || bytes;
}

static bool read_fields(meg_bytes body, meg_onnx_tensor *t, parts *p)
{
    meg_proto_field a;
    int state;
    while ((state = meg_proto_next(&body, &a)) > 0)
        if (!read_field(&a, t, p)) return false;
    return state == 0;
}

/* A path that leaves the model's folder is refused: a model is not to read what it likes. */
static meg_status open_external(meg_onnx_file *f, meg_error *e, const meg_onnx_tensor *t,
                                const parts *p, meg_bytes *out)
{
    meg_bytes s = p->location;
    char *name = meg_pool_text(f->pool, "%.*s", (int)(meg_bytes_bytes(s) < 4096 ? s.end - s.at : 0),
                               (const char *)s.at);
    bool inside = *name && *name != '/' && strcmp(name, "..") != 0 && !strstr(name, "../");
    MEG_CHECK(e, inside, MEG_EDATA,
              "%s: the numbers of '%.*s' are in '%s': want a file in the model's folder", f->path,
              MEG_SPAN_TEXT(t->name), name);
    const char *slash = strrchr(f->path, '/');
    int folder = slash ? (int)(slash - f->path) + 1 : 0;
    meg_bytes all;
    MEG_TRY(e, meg_onnx_map(f, e, meg_pool_text(f->pool, "%.*s%s", folder, f->path, name), &all));
    uint64_t bytes = (uint64_t)meg_bytes_bytes(all);
    bool fits = p->offset <= bytes && (!p->has_length || p->length <= bytes - p->offset);
    MEG_CHECK(e, fits, MEG_EDATA,
              "%s: the numbers of '%.*s' lie beyond the end of %s: was it cut short?", f->path,
              MEG_SPAN_TEXT(t->name), name);
    *out = (meg_bytes){all.at + p->offset,
                       p->has_length ? all.at + p->offset + p->length : all.end};
    return MEG_OK;
}

/* Decodes lists that do not lie as numbers do in memory. `bytes` is what there must be. */
static bool decode(meg_onnx_file *f, meg_bytes body, const type_row *row, int64_t bytes,
                   meg_bytes *out)
{
    uint8_t *to = meg_pool_alloc(f->pool, (size_t)bytes + 1);
    int64_t done = 0;
    meg_proto_field a;
    uint64_t value;
    while (meg_proto_next(&body, &a) > 0) {
        if (a.number != row->list) continue;
        int state;
        while ((state = meg_proto_number(&a, row->list_wire, &value)) > 0) {
            if (done == bytes) return false;
            memcpy(to + done, &value, (size_t)row->bytes);
            done += row->bytes;
        }
        if (state < 0) return false;
    }
    *out = (meg_bytes){to, to + done};
    return done == bytes;
}

static meg_status find_data(meg_onnx_file *f, meg_error *e, meg_bytes body, const parts *p,
                            meg_onnx_tensor *t)
{
    const type_row *row = type_of(t->type);
    int64_t bytes = row->bytes * t->size;
    meg_bytes data = p->raw;
    bool packed = p->lists == 1 && row->list_wire != MEG_WIRE_VARINT &&
                  meg_bytes_bytes(p->list) == bytes;
    bool plausible = meg_bytes_bytes(body) >= t->size; /* each number takes a byte at least */
    if (p->external) MEG_TRY(e, open_external(f, e, t, p, &data));
    else if (!p->has_raw && packed) data = p->list;
    else if (!p->has_raw && (!plausible || !decode(f, body, row, bytes, &data)))
        data = (meg_bytes){NULL, NULL};
    if (p->external && !p->has_length && meg_bytes_bytes(data) > bytes) data.end = data.at + bytes;
    MEG_CHECK(e, meg_bytes_bytes(data) == bytes, MEG_EDATA,
              "%s: tensor '%.*s' has %" PRId64 " bytes of numbers, but its shape asks for %" PRId64,
              f->path, MEG_SPAN_TEXT(t->name), meg_bytes_bytes(data), bytes);
    t->data = data.at;
    t->mapped = p->external || p->has_raw || packed;
    return MEG_OK;
}

meg_status meg_onnx_tensor_read(meg_onnx_file *f, meg_error *e, meg_bytes body,
                                meg_onnx_tensor *out)
{
    meg_onnx_tensor t = {.size = 1};
    parts p = {0};
    if (!read_fields(body, &t, &p)) return malformed(f, e, &t);
    const type_row *row = type_of(t.type);
    MEG_CHECK(e, row && row->bytes, MEG_EUNSUPPORTED,
              "%s: tensor '%.*s' is %s, which is not supported", f->path, MEG_SPAN_TEXT(t.name),
              meg_onnx_type_name(t.type));
    MEG_CHECK(e, t.rank <= MEG_ONNX_RANK, MEG_EUNSUPPORTED,
              "%s: tensor '%.*s' has rank %d, but at most %d is supported", f->path,
              MEG_SPAN_TEXT(t.name), t.rank, MEG_ONNX_RANK);
    int64_t bytes = row->bytes;
    for (int i = 0; i < t.rank; i++) {
        bool fits = t.dims[i] >= 0 && !__builtin_mul_overflow(t.size, t.dims[i], &t.size) &&
                    !__builtin_mul_overflow(bytes, t.dims[i] ? t.dims[i] : 1, &bytes);
        MEG_CHECK(e, fits, MEG_EDATA,
                  "%s: tensor '%.*s' has extent %" PRId64 " on axis %d: negative or too large",
                  f->path, MEG_SPAN_TEXT(t.name), t.dims[i], i);
    }
    MEG_TRY(e, find_data(f, e, body, &p, &t));
    *out = t;
    return MEG_OK;
}

/* ---- elements ---- */

bool meg_onnx_whole(const meg_onnx_tensor *t, int64_t i, int64_t *out)
{
    int32_t narrow;
    const char *data = t->data;
    if (i < 0 || i >= t->size) return false;
    if (t->type == MEG_ONNX_INT64) memcpy(out, data + 8 * i, 8);
    if (t->type == MEG_ONNX_INT32) memcpy(&narrow, data + 4 * i, 4), *out = narrow;
    if (t->type == MEG_ONNX_BOOL) *out = data[i] != 0;
    return t->type == MEG_ONNX_INT64 || t->type == MEG_ONNX_INT32 || t->type == MEG_ONNX_BOOL;
}

double meg_onnx_number(const meg_onnx_tensor *t, int64_t i)
{
    float single = 0;
    double number = NAN;
    uint16_t narrow;
    const char *data = t->data;
    if (i < 0 || i >= t->size) return NAN;
    if (t->type == MEG_ONNX_FLOAT) memcpy(&single, data + 4 * i, 4), number = (double)single;
    if (t->type == MEG_ONNX_DOUBLE) memcpy(&number, data + 8 * i, 8);
    if (t->type == MEG_ONNX_FLOAT16 || t->type == MEG_ONNX_BFLOAT16) {
        memcpy(&narrow, data + 2 * i, 2);
        number = (double)(t->type == MEG_ONNX_FLOAT16 ? meg_float_of_half(narrow)
                                                      : meg_brain(narrow));
    }
    return number;
}
