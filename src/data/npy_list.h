/* Lists of NumPy files, read as one array: their samples one behind the other.
 *
 *     a.npy                one file
 *     a.npy,b.npz:x        several
 *     part-*.npy           a pattern (* ? [..]): in the order of their names
 *     @parts.txt           names in a file, one a line, as seen from its folder; # begins a comment
 */
#ifndef MEG_DATA_NPY_LIST_H
#define MEG_DATA_NPY_LIST_H

#include "data/npy_file.h"

typedef struct meg_npy_list {
    int count;
    size_t room;
    meg_npy *file;  /* all of one type and shape, but for the first axis */
    int64_t *first; /* (count + 1) sample of each file's first */
} meg_npy_list;

/* `keys`: as in npy_file.h. Close it in any case. */
meg_status meg_npy_list_open(meg_error *e, const char *text, const char *const keys[],
                             meg_npy_list *out);
void meg_npy_list_close(meg_npy_list *l);

/* The file that has the sample, and which of its own it is. */
const meg_npy *meg_npy_list_at(const meg_npy_list *l, int64_t sample, int64_t *within);

int64_t meg_npy_list_samples(const meg_npy_list *l);

#endif
