/* The header of a safetensors file: see safetensors.h. Nothing in it is believed: it may come from
 * anywhere. All checks happen here, when the file is opened, so that access cannot fail but for types
 * that we do not have.
 */
#include "import/safetensors/file.h"

#include "base/files/json.h"
#include "base/half.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are used as they are");

static const int64_t HEADER_MAX = 100 * 1000 * 1000; /* as the reference implementation has it */

/* ---- types ---- */

static double real_of(const char *at, int64_t bytes)
{
    float narrow;
    double wide; /* the file may not be aligned */
    if (bytes == sizeof wide) return memcpy(&wide, at, sizeof wide), wide;
    memcpy(&narrow, at, sizeof narrow);
    return (double)narrow;
}

static uint64_t bits_of(const char *at, int64_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, at, (size_t)bytes);
    return bits;
}

static double half_of(const char *at, int64_t bytes)
{
    return (double)meg_float_of_half((uint16_t)bits_of(at, bytes));
}

static double brain_of(const char *at, int64_t bytes)
{
    return (double)meg_brain((uint16_t)bits_of(at, bytes));
}

static double natural_of(const char *at, int64_t bytes)
{
    return (double)bits_of(at, bytes);
}

static double whole_of(const char *at, int64_t bytes)
{
    int unused = (int)(64 - 8 * bytes); /* the sign's bit becomes the first */
    return (double)((int64_t)(bits_of(at, bytes) << unused) >> unused);
}

static double truth_of(const char *at, int64_t bytes)
{
    return bits_of(at, bytes) != 0;
}

static const meg_saved_type TYPES[] = {
    {"F32", 4, MEG_F32, real_of, false}, {"F64", 8, MEG_F64, real_of, false},
    {"F16", 2, -1, half_of, false},      {"BF16", 2, -1, brain_of, false},
    {"I32", 4, MEG_I32, whole_of, true}, {"U8", 1, MEG_U8, natural_of, true},
    {"BOOL", 1, -1, truth_of, true},     {"I8", 1, -1, whole_of, true},
    {"I16", 2, -1, whole_of, true},      {"U16", 2, -1, natural_of, true},
    {"I64", 8, -1, whole_of, true},      {"U32", 4, -1, natural_of, true},
    {"U64", 8, -1, natural_of, true},    {"F8_E5M2", 1, -1, NULL, false},
    {"F8_E4M3", 1, -1, NULL, false},     {NULL, 0, -1, NULL, false},
};

/* ---- the header ---- */

static meg_status malformed(const meg_safetensors *f, meg_error *e, const meg_json *j,
                            const char *expected)
{
    return meg_fail(e, MEG_EDATA, "%s: the header is malformed at byte %td: expected %s", f->path,
                    j->at - f->map, expected);
}

#define EXPECT(condition, what)                                                                    \
    do {                                                                                           \
        if (!(condition)) return malformed(f, e, j, what);                                         \
    } while (0)

static meg_status parse_notes(meg_safetensors *f, meg_error *e, meg_json *j)
{
    EXPECT(!f->has_notes, "__metadata__ only once");
    f->has_notes = true;
    EXPECT(meg_json_accept(j, '{'), "an object of strings");
    if (meg_json_accept(j, '}')) return MEG_OK;
    do {
        char *key, *value;
        EXPECT(meg_json_string(j, f->pool, &key), "a string");
        EXPECT(meg_json_accept(j, ':'), "':'");
        EXPECT(meg_json_string(j, f->pool, &value), "a string");
        f->notes = meg_grow(f->notes, &f->notes_room, f->note_count + 1, sizeof *f->notes);
        f->notes[f->note_count++] = (meg_saved_note){key, value};
    } while (meg_json_accept(j, ','));
    EXPECT(meg_json_accept(j, '}'), "',' or '}'");
    return MEG_OK;
}

static meg_status parse_dtype(meg_safetensors *f, meg_error *e, meg_json *j, meg_saved_entry *t)
{
    EXPECT(meg_json_string(j, f->pool, &t->dtype), "the name of a type");
    for (t->type = TYPES; t->type->name; t->type++)
        if (strcmp(t->type->name, t->dtype) == 0) break;
    return MEG_OK;
}

static meg_status parse_shape(meg_safetensors *f, meg_error *e, meg_json *j, meg_saved_entry *t)
{
    EXPECT(meg_json_accept(j, '['), "'['");
    t->size = 1;
    if (meg_json_accept(j, ']')) return MEG_OK;
    bool fits = true;
    do {
        int64_t extent;
        EXPECT(meg_json_count(j, &extent), "an extent, 0 or more");
        if (t->rank < MEG_SAVED_RANK) t->dims[t->rank] = extent;
        t->rank++;
        fits = fits && !__builtin_mul_overflow(t->size, extent, &t->size);
    } while (meg_json_accept(j, ','));
    EXPECT(meg_json_accept(j, ']'), "',' or ']'");
    EXPECT(fits, "a shape of less than 2^63 elements before here");
    return MEG_OK;
}

static meg_status parse_offsets(meg_safetensors *f, meg_error *e, meg_json *j, meg_saved_entry *t)
{
    EXPECT(meg_json_accept(j, '[') && meg_json_count(j, &t->begin), "'[' and an offset");
    EXPECT(meg_json_accept(j, ',') && meg_json_count(j, &t->end), "',' and an offset");
    EXPECT(meg_json_accept(j, ']'), "']'");
    return MEG_OK;
}

typedef struct field {
    const char *key;
    meg_status (*parse)(meg_safetensors *f, meg_error *e, meg_json *j, meg_saved_entry *t);
} field;

static const field FIELDS[] = {
    {"dtype", parse_dtype},
    {"shape", parse_shape},
    {"data_offsets", parse_offsets},
    {NULL, NULL},
};

static meg_status parse_entry(meg_safetensors *f, meg_error *e, meg_json *j, meg_saved_entry *t)
{
    unsigned seen = 0;
    EXPECT(meg_json_accept(j, '{'), "'{'");
    do {
        char *key;
        int i = 0;
        EXPECT(meg_json_string(j, f->pool, &key), "dtype, shape or data_offsets");
        while (FIELDS[i].key && strcmp(FIELDS[i].key, key) != 0)
            i++;
        EXPECT(FIELDS[i].key && !(seen >> i & 1), "dtype, shape and data_offsets, once each");
        EXPECT(meg_json_accept(j, ':'), "':'");
        MEG_TRY(e, FIELDS[i].parse(f, e, j, t));
        seen |= 1u << i;
    } while (meg_json_accept(j, ','));
    EXPECT(meg_json_accept(j, '}'), "',' or '}'");
    EXPECT(seen == 7, "dtype, shape and data_offsets before here");
    return MEG_OK;
}

static meg_status parse_header(meg_safetensors *f, meg_error *e, meg_json *j)
{
    EXPECT(meg_json_accept(j, '{'), "'{'");
    bool more = !meg_json_accept(j, '}');
    while (more) {
        char *name;
        EXPECT(meg_json_string(j, f->pool, &name), "the name of a tensor");
        EXPECT(meg_json_accept(j, ':'), "':'");
        if (strcmp(name, "__metadata__") == 0) {
            MEG_TRY(e, parse_notes(f, e, j));
        } else {
            meg_saved_entry t = {.name = name};
            MEG_TRY(e, parse_entry(f, e, j, &t));
            f->entries = meg_grow(f->entries, &f->entries_room, f->count + 1, sizeof t);
            f->entries[f->count++] = t;
        }
        more = meg_json_accept(j, ',');
        if (!more) EXPECT(meg_json_accept(j, '}'), "',' or '}'");
    }
    EXPECT(meg_json_done(j), "nothing after the object");
    return MEG_OK;
}

/* ---- checks ---- */

static int by_place(const void *a, const void *b)
{
    const meg_saved_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static meg_status check_entry(const meg_safetensors *f, meg_error *e, const meg_saved_entry *t)
{
    MEG_CHECK(e, t->begin <= t->end && t->end <= f->data_bytes, MEG_EDATA,
              "%s: tensor '%.100s' lies at %" PRId64 "..%" PRId64 ", but the data has %" PRId64
              " bytes",
              f->path, t->name, t->begin, t->end, f->data_bytes);
    int64_t bytes;
    bool fits = !__builtin_mul_overflow(t->size, t->type->bytes, &bytes);
    MEG_CHECK(e, !t->type->name || (fits && bytes == t->end - t->begin), MEG_EDATA,
              "%s: tensor '%.100s' has %" PRId64 " bytes, but its shape is %" PRId64
              " elements of %s",
              f->path, t->name, t->end - t->begin, t->size, t->dtype);
    return MEG_OK;
}

/* Each tensor begins where the one before ends, and the last ends with the file. */
static meg_status check_entries(meg_safetensors *f, meg_error *e)
{
    int64_t at = 0;
    if (f->count) qsort(f->entries, f->count, sizeof *f->entries, by_place);
    for (size_t i = 0; i < f->count; i++) {
        meg_saved_entry *t = &f->entries[i];
        MEG_TRY(e, check_entry(f, e, t));
        t->data = f->data + t->begin;
        MEG_CHECK(e, t->begin == at, MEG_EDATA,
                  "%s: tensor '%.100s' begins at %" PRId64 ", %s the one before it ends, %" PRId64,
                  f->path, t->name, t->begin, t->begin < at ? "before" : "after", at);
        at = t->end;
    }
    MEG_CHECK(e, at == f->data_bytes, MEG_EDATA,
              "%s: the tensors end at %" PRId64 ", but the data has %" PRId64 " bytes", f->path, at,
              f->data_bytes);
    if (f->count) qsort(f->entries, f->count, sizeof *f->entries, meg_saved_by_name);
    for (size_t i = 1; i < f->count; i++)
        MEG_CHECK(e, meg_saved_by_name(&f->entries[i - 1], &f->entries[i]) != 0, MEG_EDATA,
                  "%s: two tensors are named '%.100s'", f->path, f->entries[i].name);
    return MEG_OK;
}

/* ---- the file ---- */

meg_status meg_saved_read(meg_safetensors *f, meg_error *e)
{
    uint64_t length;
    MEG_TRY(e, meg_saved_map(f, e));
    MEG_CHECK(e, f->bytes >= 8, MEG_EDATA, "%s has %zu bytes, too few for a safetensors file",
              f->path, f->bytes);
    memcpy(&length, f->map, 8);
    MEG_CHECK(e, length <= f->bytes - 8 && length <= (uint64_t)HEADER_MAX, MEG_EDATA,
              "%s: is no safetensors file, or truncated: it announces a header of %" PRIu64
              " bytes, but has %zu in all (at most %" PRId64 " are allowed)",
              f->path, length, f->bytes, HEADER_MAX);
    f->data = f->map + 8 + length;
    f->data_bytes = (int64_t)(f->bytes - 8 - length);
    meg_json j = {f->map + 8, f->data};
    MEG_TRY(e, parse_header(f, e, &j));
    MEG_CHECK(e, f->count <= INT_MAX, MEG_EUNSUPPORTED, "%s has too many tensors", f->path);
    return check_entries(f, e);
}
