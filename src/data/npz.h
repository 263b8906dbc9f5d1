/* .npz files: zip archives whose members are .npy files, stored (numpy.savez) or deflated
 * (numpy.savez_compressed). The directory is read without trust; sizes beyond 4 GiB (zip64) are known.
 */
#ifndef MEG_DATA_NPZ_H
#define MEG_DATA_NPZ_H

#include "base/status.h"

typedef struct meg_npz { /* an open file, borrowed */
    const char *path;
    int fd;
    int64_t bytes;
} meg_npz;

typedef struct meg_npz_member {
    char key[256];        /* without .npy */
    int64_t start, bytes; /* in the file */
    int64_t size;         /* unpacked */
    bool deflated;
    uint32_t crc;
} meg_npz_member;

/* Is this the start of a zip archive? */
bool meg_npz_is(const unsigned char head[4]);

/* The member `key`, or, if that is NULL, the first of `keys` (NULL ends them) that is there, or the
 * only one. An error lists those that there are. */
meg_status meg_npz_find(const meg_npz *z, meg_error *e, const char *key, const char *const keys[],
                        meg_npz_member *out);

/* All bytes of a deflated member, checked; to be freed. */
meg_status meg_npz_unpack(const meg_npz *z, meg_error *e, const meg_npz_member *m, char **out);

#endif
