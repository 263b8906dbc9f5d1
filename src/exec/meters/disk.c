/* Disks measured: see disk.h. Pieces of 4 MiB, as checkpoints and data sets are read and written; of what was written
 * in time, all is read again, until its time is over, too.
 */
#define _GNU_SOURCE /* O_DIRECT */
#include "exec/meters/disk.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 4 << 20,
    ALIGNED = 4096 /* O_DIRECT wants addresses and offsets like this */
};

const meg_disk_limits meg_disk_usual = {0.5, (int64_t)256 << 20};

typedef struct probing {
    meg_error *error;
    const char *folder;
    const meg_disk_limits *limits;
    int fd;
    char *piece;     /* (PIECE) */
    int64_t written; /* bytes */
    meg_disk found;
} probing;

/* Without a name from the beginning: a process that dies leaves nothing. */
static meg_status open_file(probing *p, bool direct)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/megalith-disk-XXXXXX", p->folder);
    MEG_CHECK(p->error, length < (int)sizeof path, MEG_EARG, "a folder of %d letters", length);
    p->fd = mkostemp(path, O_CLOEXEC | (direct ? O_DIRECT : 0));
    int why = errno;
    if (p->fd >= 0 || (direct && why == EINVAL)) unlink(path); /* it may be there all the same */
    p->found.direct = direct;
    MEG_CHECK(p->error, p->fd >= 0, why == EINVAL ? MEG_EARG : MEG_EIO,
              "the disk cannot be measured in %s: %s", p->folder, strerror(why));
    return MEG_OK;
}

/* Numbers without a pattern: some disks compress. */
static void fill(char *piece)
{
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < PIECE; i += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(piece + i, &state, sizeof state);
    }
}

static meg_status write_file(probing *p)
{
    double begin = meg_clock();
    bool first = true;
    while (first || (p->written < p->limits->bytes && meg_clock() - begin < p->limits->seconds)) {
        ssize_t got = pwrite(p->fd, p->piece, PIECE, p->written);
        if (got != PIECE && !first && (got >= 0 || errno == ENOSPC)) break; /* the disk is full */
        MEG_CHECK(p->error, got == PIECE, got < 0 && errno == EINVAL ? MEG_EARG : MEG_EIO,
                  "the disk cannot be measured in %s: %s", p->folder,
                  got < 0 ? strerror(errno) : "no room");
        p->written += PIECE;
        first = false;
    }
    bool there = p->found.direct || fsync(p->fd) == 0; /* direct: it is on the disk already */
    MEG_CHECK(p->error, there, MEG_EIO, "the disk cannot be measured in %s: %s", p->folder,
              strerror(errno));
    p->found.write = (double)p->written / (meg_clock() - begin);
    return MEG_OK;
}

static meg_status read_file(probing *p)
{
    if (!p->found.direct) posix_fadvise(p->fd, 0, 0, POSIX_FADV_DONTNEED);
    double begin = meg_clock();
    int64_t at = 0;
    while (at < p->written && (at == 0 || meg_clock() - begin < p->limits->seconds)) {
        ssize_t got = pread(p->fd, p->piece, PIECE, at);
        MEG_CHECK(p->error, got == PIECE, MEG_EIO, "the disk cannot be measured in %s: %s",
                  p->folder, got < 0 ? strerror(errno) : "the file ends too early");
        at += PIECE;
    }
    p->found.read = (double)at / (meg_clock() - begin);
    return MEG_OK;
}

static meg_status probe(probing *p, bool direct)
{
    p->fd = -1;
    p->written = 0;
    meg_status status = open_file(p, direct);
    if (status == MEG_OK) status = write_file(p);
    if (status == MEG_OK) status = read_file(p);
    if (p->fd >= 0) close(p->fd);
    return status;
}

meg_status meg_disk_probe(meg_error *e, const char *folder, const meg_disk_limits *limits,
                          meg_disk *out)
{
    probing p = {.error = e, .folder = folder, .limits = limits};
    p.piece = aligned_alloc(ALIGNED, PIECE);
    MEG_CHECK(e, p.piece, MEG_ENOMEM, "no memory for a piece of a file");
    fill(p.piece);
    meg_status status = probe(&p, true);
    if (status == MEG_EARG) { /* EINVAL: no O_DIRECT here */
        meg_error_clear(e);
        status = probe(&p, false);
    }
    free(p.piece);
    if (status == MEG_OK) *out = p.found;
    return status;
}

void meg_disk_line(const meg_disk *d, char *out, size_t size)
{
    snprintf(out, size, "disk read=%.3g write=%.3g how=%s", d->read, d->write,
             d->direct ? "direct" : "cached");
}

bool meg_disk_scan(const char *line, meg_disk *out)
{
    meg_disk d = {0};
    char how[8] = "";
    int count = sscanf(line, "disk read=%lf write=%lf how=%7s", &d.read, &d.write, how);
    if (count < 2 || !(d.read > 0 && d.read < 1e15 && d.write > 0 && d.write < 1e15)) return false;
    d.direct = strcmp(how, "direct") == 0;
    *out = d;
    return true;
}
