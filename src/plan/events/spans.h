/* Open spans: numbered stretches of memory, of which one asks again and again which ones meet another
 * stretch. They may overlap. Kept by size, in powers of two, and within a size by their first byte, so
 * that of each size only those are looked at that begin near enough. Most questions are about memory where
 * nothing is open: a map of cells says so at once. Long spans have a map of their own, with larger cells.
 */
#ifndef MEG_PLAN_EVENTS_SPANS_H
#define MEG_PLAN_EVENTS_SPANS_H

#include "base/pool.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_open_span {
    int64_t lo, hi;
    int number;
} meg_open_span;

enum {
    MEG_SPAN_SIZES = 64,
    MEG_SPAN_CELLS = 1 << 14, /* a byte is in cell (byte >> shift) mod so many */
    MEG_SPAN_LONG = 5         /* log2 of the cells of a long span, and of a larger cell */
};

typedef struct meg_open_map {
    int shift;
    uint64_t *taken; /* bits: cells that any span touches; NULL: there is no map */
    int *touching;   /* how many do */
} meg_open_map;

typedef struct meg_open_spans { /* empty: all zero */
    int count;
    uint64_t sizes; /* bits: those of which there is any */
    struct meg_open_list {
        int count;
        meg_open_span *at; /* by lo, then by number */
        size_t room;
    } size[MEG_SPAN_SIZES]; /* i: of 2^i bytes or more, and less than twice as many; 0: or none */
    meg_open_map map[2];    /* of short spans; of long ones */
} meg_open_spans;

/* Gives an empty one a map, whose cells are so large that they do for so many bytes. */
void meg_open_over(meg_open_spans *s, int64_t bytes);

void meg_open_add(meg_open_spans *s, int64_t lo, int64_t hi, int number);
void meg_open_drop(meg_open_spans *s, int64_t lo, int64_t hi, int number); /* it is there */
/* Writes the numbers of those that share a byte with lo..hi behind the first `count` of *out; returns how
 * many there are then. Those of no bytes share one if they lie inside. */
int meg_open_find(const meg_open_spans *s, int64_t lo, int64_t hi, int count, int **out,
                  size_t *room);
int meg_open_sort(int *number, int count); /* ascending, each once; returns how many */
void meg_open_free(meg_open_spans *s);

#endif
