/* Numbers of a file: see stored.h. */
#include "graph/stored.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    WINDOW = 4 << 20 /* bytes that are read before they are let go */
};

/* IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction. */
static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) value = fraction ? NAN : INFINITY;
    return bits >> 15 ? -value : value;
}

static double number_at(const meg_stored *s, int64_t i)
{
    const char *data = s->data;
    uint16_t narrow;
    uint32_t bits;
    float single;
    double value;
    switch (s->type) {
    case MEG_STORED_F64:
        memcpy(&value, data + 8 * i, 8);
        return value;
    case MEG_STORED_F16:
        memcpy(&narrow, data + 2 * i, 2);
        return half(narrow);
    case MEG_STORED_BF16:
        memcpy(&narrow, data + 2 * i, 2);
        bits = (uint32_t)narrow << 16;
        memcpy(&single, &bits, 4);
        return (double)single;
    default:
        memcpy(&single, data + 4 * i, 4);
        return (double)single;
    }
}

/* Whole pages of bytes [from, to): the kernel may drop them, and reads them again if asked. */
static void let_go(const meg_stored *s, int64_t from, int64_t to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)s->data;
    uintptr_t first = (base + (uintptr_t)from) & ~(page - 1),
              last = (base + (uintptr_t)to) & ~(page - 1);
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

/* Called after a run that ends before element `end`: gives back the windows that it finished. */
static void let_windows_go(const meg_stored *s, int64_t first, int64_t end)
{
    static const int64_t bytes[] = {
        [MEG_STORED_F32] = 4, [MEG_STORED_F64] = 8, [MEG_STORED_F16] = 2, [MEG_STORED_BF16] = 2};
    int64_t from = first * bytes[s->type] / WINDOW, to = end * bytes[s->type] / WINDOW;
    if (s->mapped && !s->columns && from < to) let_go(s, from * WINDOW, to * WINDOW);
    if (s->mapped && s->columns && end == s->rows * s->columns) let_go(s, 0, end * bytes[s->type]);
}

void meg_stored_read(const meg_stored *s, int64_t first, int64_t count, double *out)
{
    double scale = s->scale != 0 ? s->scale : 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i;
        if (s->columns) at = at % s->columns * s->rows + at / s->columns;
        out[i] = scale * number_at(s, at);
    }
    let_windows_go(s, first, first + count);
}
