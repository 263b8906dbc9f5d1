/* Numbers of a file that a parameter or state starts with. They are borrowed: the graph keeps the
 * file open. Types and order may be the file's own; they are converted as they are read, so that a
 * model larger than memory can be opened.
 */
#ifndef MEG_GRAPH_STORED_H
#define MEG_GRAPH_STORED_H

#include <stdbool.h>
#include <stdint.h>

typedef enum meg_stored_type {
    MEG_STORED_F32,
    MEG_STORED_F64,
    MEG_STORED_F16,
    MEG_STORED_BF16
} meg_stored_type;

typedef struct meg_stored {
    const void *data; /* little-endian, perhaps not aligned; NULL: nothing is stored */
    meg_stored_type type;
    int64_t rows,
        columns;  /* columns > 0: the value is a matrix (rows, columns), stored transposed */
    double scale; /* 0: as they are */
    bool mapped;  /* lies in a mapped file, whose pages may be let go */
} meg_stored;

/* Elements first .. first + count - 1 of the value, in its own row-major order. Of a mapped file,
 * pages that were read in order are given back, so that weights are not in memory twice. */
void meg_stored_read(const meg_stored *s, int64_t first, int64_t count, double *out);

/* Whole rows of a matrix that is stored transposed, as floats or doubles, in the file's order: what
 * meg_stored_read would do of them touches every page for each row. False: they are no such rows. */
bool meg_stored_fill(const meg_stored *s, int64_t first, int64_t count, bool wide, void *out);

#endif
