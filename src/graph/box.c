/* Boxes: see box.h. */
#include "graph/box.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

meg_box meg_box_of(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w)
{
    return (meg_box){{0, 0, 0, 0, 0}, {n, c, d, h, w}};
}

int64_t meg_box_size(const meg_box *b)
{
    if (meg_box_empty(b)) return 0;
    int64_t size = 1;
    for (int a = 0; a < MEG_AXES; a++)
        size *= meg_extent(b, a);
    return size;
}

bool meg_box_equal(const meg_box *a, const meg_box *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool meg_box_holds(const meg_box *outer, const meg_box *inner)
{
    if (meg_box_empty(inner)) return true;
    for (int a = 0; a < MEG_AXES; a++)
        if (inner->lo[a] < outer->lo[a] || inner->hi[a] > outer->hi[a]) return false;
    return true;
}

void meg_box_text(const meg_box *b, char text[96])
{
    int used = 0;
    for (int a = 0; a < MEG_AXES && used < 96; a++)
        used += snprintf(text + used, (size_t)(96 - used), "%s%" PRId64 ":%" PRId64 "%s",
                         a ? " " : "[", b->lo[a], b->hi[a], a == MEG_AXES - 1 ? "]" : "");
}

bool meg_box_first(const meg_box *b, int64_t p[MEG_AXES])
{
    memcpy(p, b->lo, sizeof b->lo);
    return !meg_box_empty(b);
}

bool meg_box_next(const meg_box *b, int64_t p[MEG_AXES])
{
    for (int a = MEG_AXES - 1; a >= 0; a--) {
        if (++p[a] < b->hi[a]) return true;
        p[a] = b->lo[a];
    }
    return false;
}

void meg_box_strides(const meg_box *b, int64_t stride[MEG_AXES])
{
    stride[MEG_AXES - 1] = 1;
    for (int a = MEG_AXES - 1; a > 0; a--)
        stride[a - 1] = stride[a] * meg_extent(b, a);
}

int64_t meg_box_at(const meg_box *b, const int64_t p[MEG_AXES])
{
    int64_t i = 0;
    for (int a = 0; a < MEG_AXES; a++) {
        assert(p[a] >= b->lo[a] && p[a] < b->hi[a]);
        i = i * meg_extent(b, a) + p[a] - b->lo[a];
    }
    return i;
}

int64_t meg_dtype_bytes(meg_dtype t)
{
    static const int64_t bytes[] = {
        [MEG_F32] = 4, [MEG_F64] = 8, [MEG_I32] = 4, [MEG_I64] = 8, [MEG_U8] = 1, [MEG_BOOL] = 1};
    return bytes[t];
}

const char *meg_dtype_name(meg_dtype t)
{
    static const char *const name[] = {[MEG_F32] = "f32", [MEG_F64] = "f64", [MEG_I32] = "i32",
                                       [MEG_I64] = "i64", [MEG_U8] = "u8",   [MEG_BOOL] = "bool"};
    return name[t];
}

int64_t meg_box_runs(const meg_box *all, const meg_box *box, meg_box *starts)
{
    int64_t run = 1;
    bool whole = true;
    *starts = *box;
    for (int a = MEG_AXES - 1; a >= 0 && whole; a--) {
        run *= meg_extent(box, a);
        starts->hi[a] = starts->lo[a] + 1;
        whole = meg_extent(box, a) == meg_extent(all, a);
    }
    return run;
}
