/* The types of NumPy arrays. A number is itself times the scale: bytes are 0..255, truth is 0 or 1. */
#include "base/half.h"
#include "data/npy_file.h"

#define FLOATS(name, ctype, number)                                                                \
    static void floats_of_##name(float *out, const void *in, int64_t count, float scale)           \
    {                                                                                              \
        const ctype *x = in;                                                                       \
        for (int64_t i = 0; i < count; i++)                                                        \
            out[i] = scale * number(x[i]);                                                         \
    }
#define WHOLES(name, ctype)                                                                        \
    FLOATS(name, ctype, (float))                                                                   \
    static void wholes_of_##name(int64_t *out, const void *in, int64_t count)                      \
    {                                                                                              \
        const ctype *x = in;                                                                       \
        for (int64_t i = 0; i < count; i++)                                                        \
            out[i] = (int64_t)x[i];                                                                \
    }

WHOLES(u1, uint8_t)
WHOLES(i1, int8_t)
WHOLES(u2, uint16_t)
WHOLES(i2, int16_t)
WHOLES(u4, uint32_t)
WHOLES(i4, int32_t)
WHOLES(u8, uint64_t)
WHOLES(i8, int64_t)
FLOATS(f2, uint16_t, meg_float_of_half)
FLOATS(f4, float, (float))
FLOATS(f8, double, (float))

static const meg_npy_type TYPES[] = {
    {"b1", 1, false, floats_of_u1, wholes_of_u1},
    {"u1", 1, false, floats_of_u1, wholes_of_u1},
    {"i1", 1, false, floats_of_i1, wholes_of_i1},
    {"u2", 2, false, floats_of_u2, wholes_of_u2},
    {"i2", 2, false, floats_of_i2, wholes_of_i2},
    {"u4", 4, false, floats_of_u4, wholes_of_u4},
    {"i4", 4, false, floats_of_i4, wholes_of_i4},
    {"u8", 8, false, floats_of_u8, wholes_of_u8},
    {"i8", 8, false, floats_of_i8, wholes_of_i8},
    {"f2", 2, true, floats_of_f2, NULL},
    {"f4", 4, true, floats_of_f4, NULL},
    {"f8", 8, true, floats_of_f8, NULL},
    {NULL, 0, false, NULL, NULL},
};

const meg_npy_type *meg_npy_type_find(const char *name)
{
    for (const meg_npy_type *t = TYPES; t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

const char *meg_npy_type_names(void)
{
    return "bool (b1), whole numbers (u1 i1 u2 i2 u4 i4 u8 i8), floats (f2 f4 f8)";
}
