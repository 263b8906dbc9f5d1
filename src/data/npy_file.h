/* Arrays of NumPy: a .npy file, or one array of a .npz file.
 *
 * Everything is read where and when it is asked for, so files larger than memory work. pread instead
 * of mmap: an error of the disk, or a file that shrinks meanwhile, becomes a message and not a
 * signal, and calls of several threads do not disturb each other. Only what a .npz has compressed is
 * unpacked into memory, when it is opened.
 */
#ifndef MEG_DATA_NPY_FILE_H
#define MEG_DATA_NPY_FILE_H

#include "base/option.h"
#include "graph/box.h"

enum {
    MEG_NPY_PIECE = 8192 /* elements that readers take at a time */
};

typedef struct meg_npy_type { /* one row per dtype */
    const char *name;         /* as files have it, without the order of bytes: "u2" */
    int bytes;
    bool real; /* may be nan or inf */
    void (*to_float)(float *out, const void *in, int64_t count, float scale);
    void (*to_whole)(int64_t *out, const void *in, int64_t count); /* NULL: they are real */
} meg_npy_type;

typedef struct meg_npy {
    char *path;     /* of the file */
    char *name;     /* for messages; of a part of a .npz "data.npz:x" */
    int fd;         /* -1: opened for each reading */
    char *unpacked; /* the array's bytes; NULL: they are in the file */
    const meg_npy_type *type;
    bool swapped; /* most significant byte first */
    int rank;
    int64_t dims[MEG_AXES];
    int64_t start, count; /* of the data in the file: byte, elements */
} meg_npy;

/* `path` is that of a .npy or .npz file; "data.npz:x" is its array x. Without a name it is the first
 * of `keys` (NULL ends them) that is there, or the only one. Close it in any case. */
meg_status meg_npy_open(meg_error *e, const char *path, const char *const keys[], meg_npy *out);
void meg_npy_close(meg_npy *a);

/* Gives the file descriptor back; reading opens the file for itself. For lists of many files. */
void meg_npy_rest(meg_npy *a);

/* Elements first .. first + count - 1 in the machine's order of bytes. */
meg_status meg_npy_read(const meg_npy *a, meg_error *e, int64_t first, int64_t count, void *out);

/* Element `i` as Python has it: "x.npy[3, 0, 17]". */
void meg_npy_place(const meg_npy *a, int64_t i, char *out, size_t size);

/* The shape: "(300, 96, 96, 3)". */
void meg_npy_shape(const meg_npy *a, char out[128]);

const meg_npy_type *meg_npy_type_find(const char *name); /* NULL: unknown */
const char *meg_npy_type_names(void);                    /* all of them */

#endif
