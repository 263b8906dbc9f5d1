/* How fast the disk is, one large piece behind the other: a line of a book of prices.
 *
 *     disk read=1.2e+09 write=5e+08 how=direct         bytes a second
 *
 * how=direct: past the page cache (O_DIRECT); how=cached: the file system does not do that (tmpfs, some network file
 * systems), so that the file was written with fsync and read after the kernel was asked to forget it.
 */
#ifndef MEG_EXEC_METERS_DISK_H
#define MEG_EXEC_METERS_DISK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct meg_disk {
    double read, write; /* bytes a second */
    bool direct;
} meg_disk;

typedef struct meg_disk_limits {
    double seconds; /* of writing, and of reading */
    int64_t bytes;  /* of the file */
} meg_disk_limits;

extern const meg_disk_limits meg_disk_usual; /* 256 MiB, half a second each */

/* Writes a file without a name in `folder` and reads it again. An error (no permission, no room) is no disaster: then
 * nothing is known of the disk. Nothing is left behind. */
meg_status meg_disk_probe(meg_error *e, const char *folder, const meg_disk_limits *limits,
                          meg_disk *out);

void meg_disk_line(const meg_disk *d, char *out, size_t size);
/* False: the line is no such. */
bool meg_disk_scan(const char *line, meg_disk *out);

#endif
