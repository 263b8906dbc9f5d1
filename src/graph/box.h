/* Boxes: half-open intervals of the index space (n, c, d, h, w), and arrays that cover one box.
 *
 * Every index is global: a tensor knows which box it holds, so a kernel that runs on a shard reads
 * the same indices as one that runs on the whole, and a halo is only a larger box. Missing axes
 * have extent 1. Sequences put tokens on w and features on c.
 */
#ifndef MEG_GRAPH_BOX_H
#define MEG_GRAPH_BOX_H

#include <megalith.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    MEG_N,
    MEG_C,
    MEG_D,
    MEG_H,
    MEG_W,
    MEG_AXES
};

typedef struct meg_box {
    int64_t lo[MEG_AXES], hi[MEG_AXES];
} meg_box;

typedef struct meg_array { /* row-major over its box: the plain format */
    meg_box box;
    void *data; /* NULL: absent */
} meg_array;

meg_box meg_box_of(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w); /* from the origin */
int64_t meg_box_size(const meg_box *b); /* elements */
bool meg_box_equal(const meg_box *a, const meg_box *b);
bool meg_box_holds(const meg_box *outer, const meg_box *inner); /* an empty inner always */
void meg_box_text(const meg_box *b, char text[96]);             /* "[0:2 0:16 0:1 4:9 0:28]" */

static inline int64_t meg_extent(const meg_box *b, int axis)
{
    return b->hi[axis] - b->lo[axis];
}

static inline bool meg_box_empty(const meg_box *b)
{
    for (int a = 0; a < MEG_AXES; a++)
        if (b->hi[a] <= b->lo[a]) return true;
    return false;
}

static inline meg_box meg_box_meet(meg_box a, meg_box b)
{
    for (int i = 0; i < MEG_AXES; i++) {
        if (b.lo[i] > a.lo[i]) a.lo[i] = b.lo[i];
        if (b.hi[i] < a.hi[i]) a.hi[i] = b.hi[i];
    }
    return a;
}

/* An empty box is neutral. */
static inline meg_box meg_box_hull(meg_box a, meg_box b)
{
    if (meg_box_empty(&a)) return b;
    if (meg_box_empty(&b)) return a;
    for (int i = 0; i < MEG_AXES; i++) {
        if (b.lo[i] < a.lo[i]) a.lo[i] = b.lo[i];
        if (b.hi[i] > a.hi[i]) a.hi[i] = b.hi[i];
    }
    return a;
}

/* for (bool on = meg_box_first(&b, p); on; on = meg_box_next(&b, p)): row-major walk */
bool meg_box_first(const meg_box *b, int64_t p[MEG_AXES]);
bool meg_box_next(const meg_box *b, int64_t p[MEG_AXES]);

/* Elements between neighbours along each axis of a row-major tensor over `b`. */
void meg_box_strides(const meg_box *b, int64_t stride[MEG_AXES]);

/* The row-major offset of global index p in a tensor over `b`; p must lie in it. */
int64_t meg_box_at(const meg_box *b, const int64_t p[MEG_AXES]);

/* A box inside a row-major tensor over `all`, as runs of neighbouring elements: where each starts, and
 * how long all are. */
int64_t meg_box_runs(const meg_box *all, const meg_box *box, meg_box *starts);

int64_t meg_dtype_bytes(meg_dtype t);
const char *meg_dtype_name(meg_dtype t);

#endif
