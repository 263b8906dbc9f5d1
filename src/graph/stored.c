/* Numbers of a file: see stored.h. */
#include "graph/stored.h"
#include "base/half.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    WINDOW = 4 << 20, /* bytes that are read before they are let go */
    BAND = 16,        /* rows of a transposed matrix that are read side by side: a line of memory */
    TILE = 16 << 10   /* numbers of each of them */
};

static double number_at(const meg_stored *s, int64_t i)
{
    const char *data = s->data;
    uint16_t narrow;
    float single;
    double value;
    switch (s->type) {
    case MEG_STORED_F64:
        memcpy(&value, data + 8 * i, 8);
        return value;
    case MEG_STORED_F16:
        memcpy(&narrow, data + 2 * i, 2);
        return (double)meg_float_of_half(narrow);
    case MEG_STORED_BF16:
        memcpy(&narrow, data + 2 * i, 2);
        return (double)meg_brain(narrow);
    default:
        memcpy(&single, data + 4 * i, 4);
        return (double)single;
    }
}

/* Pages of bytes [from, to): the kernel may drop them, and reads them again if asked. The one that
 * `to` lies in is dropped only if `ends` says so; none is touched that has no byte of these. */
static void let_go(const meg_stored *s, int64_t from, int64_t to, bool ends)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)s->data;
    uintptr_t first = (base + (uintptr_t)from) & ~(page - 1),
              last = (base + (uintptr_t)to + (ends ? page - 1 : 0)) & ~(page - 1);
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

static int64_t bytes_of(meg_stored_type type)
{
    static const int64_t bytes[] = {
        [MEG_STORED_F32] = 4, [MEG_STORED_F64] = 8, [MEG_STORED_F16] = 2, [MEG_STORED_BF16] = 2};
    return bytes[type];
}

/* Called after a run that ends before element `end`: gives back the windows that it finished. */
static void let_windows_go(const meg_stored *s, int64_t first, int64_t end)
{
    int64_t each = bytes_of(s->type), from = first * each / WINDOW, to = end * each / WINDOW;
    if (s->mapped && !s->columns && from < to) let_go(s, from * WINDOW, to * WINDOW, false);
    if (s->mapped && s->columns && end == s->rows * s->columns) let_go(s, 0, end * each, true);
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

/* ---- transposed ---- */

typedef struct tile { /* columns of the value, which are rows of the file, and rows of the value */
    int64_t column, columns, row, rows;
} tile;

/* out: rows of the value, (rows, all columns), of which a few columns are set. */
static void turn(const meg_stored *s, const tile *t, bool wide, void *out)
{
    double scale = s->scale != 0 ? s->scale : 1;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t k = t->column; k < t->column + t->columns; k++) {
            double value = scale * number_at(s, k * s->rows + t->row + r);
            if (wide) ((double *)out)[r * s->columns + k] = value;
            else ((float *)out)[r * s->columns + k] = (float)value;
        }
    for (int64_t k = t->column; s->mapped && k < t->column + t->columns; k++) {
        int64_t from = k * s->rows + t->row, each = bytes_of(s->type);
        let_go(s, from * each, (from + t->rows) * each, true);
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool meg_stored_fill(const meg_stored *s, int64_t first, int64_t count, bool wide, void *out)
{
    if (!s->data || !s->columns || first % s->columns || count % s->columns) return false;
    int64_t row = first / s->columns, rows = count / s->columns;
    size_t each = wide ? sizeof(double) : sizeof(float);
#pragma omp parallel for schedule(static) if (s->columns > BAND)
    for (int64_t column = 0; column < s->columns; column += BAND)
        for (int64_t r = 0; r < rows; r += TILE) {
            tile t = {column, least(BAND, s->columns - column), row + r, least(TILE, rows - r)};
            turn(s, &t, wide, (char *)out + (size_t)(r * s->columns) * each);
        }
    return true;
}
