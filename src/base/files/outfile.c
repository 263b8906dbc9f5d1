/* Files that are there whole or not at all: see outfile.h. */
#include "base/files/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ATTEMPTS = 100,
    CHUNK = 1 << 30 /* Linux writes at most 2 GB in one call */
};

static meg_status failed(const meg_outfile *f, meg_error *e)
{
    return meg_fail(e, MEG_EIO,
                    "cannot write %s: %s; it is unchanged (a new one is first written beside it)",
                    f->path, strerror(errno));
}

meg_status meg_outfile_check(meg_error *e, const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0 || S_ISREG(found.st_mode)) return MEG_OK; /* new, or a file */
    return meg_fail(e, MEG_EIO, "cannot write %s: it is %s: name a file", path,
                    S_ISDIR(found.st_mode) ? "a folder" : "a device or a pipe, not a file");
}

/* A name of its own for each process; one that is left over from a crash is stepped over. */
meg_status meg_outfile_open(meg_outfile *f, meg_error *e, const char *path)
{
    size_t room = strlen(path) + 64;
    *f = (meg_outfile){.fd = -1};
    MEG_TRY(e, meg_outfile_check(e, path));
    *f = (meg_outfile){path, malloc(room), -1};
    MEG_CHECK(e, f->temporary, MEG_ENOMEM, "%s: no memory", path);
    for (int i = 0; i < ATTEMPTS && f->fd < 0; i++) {
        snprintf(f->temporary, room, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EEXIST) break;
    }
    if (f->fd >= 0) return MEG_OK;
    int why = errno;
    free(f->temporary);
    f->temporary = NULL;
    MEG_CHECK(e, why != EEXIST, MEG_EIO, "cannot write %s: remove the left-over %s.*.tmp", path,
              path);
    return meg_fail(e, MEG_EIO, "cannot write %s: %s", path, strerror(why));
}

meg_status meg_outfile_write(meg_outfile *f, meg_error *e, const void *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        int64_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        ssize_t got = write(f->fd, (const char *)data + done, (size_t)part);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(f, e);
        done += got;
    }
    return MEG_OK;
}

bool meg_folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES;
    bool synced = fsync(fd) == 0 || errno == EINVAL;
    int why = errno;
    close(fd);
    errno = why;
    return synced;
}

/* A power cut could undo the renaming. */
static bool sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 1;
    char *folder = malloc(length + 1);
    if (!folder) abort();
    memcpy(folder, slash ? path : ".", length);
    folder[length] = '\0';
    bool synced = meg_folder_sync(folder);
    int why = errno;
    free(folder);
    errno = why;
    return synced;
}

meg_status meg_outfile_sync(meg_outfile *f, meg_error *e)
{
    int fd = f->fd;
    if (fsync(fd) != 0) return failed(f, e);
    f->fd = -1;
    return close(fd) == 0 ? MEG_OK : failed(f, e);
}

meg_status meg_outfile_commit(meg_outfile *f, meg_error *e)
{
    if (f->fd >= 0) MEG_TRY(e, meg_outfile_sync(f, e));
    MEG_CHECK(e, rename(f->temporary, f->path) == 0, MEG_EIO, "cannot replace %s: %s", f->path,
              strerror(errno));
    free(f->temporary);
    f->temporary = NULL;
    MEG_CHECK(e, sync_folder_of(f->path), MEG_EIO,
              "%s is written, but its folder could not be synced: %s", f->path, strerror(errno));
    return MEG_OK;
}

void meg_outfile_close(meg_outfile *f)
{
    if (f->fd >= 0) close(f->fd);
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    *f = (meg_outfile){.fd = -1};
}

meg_status meg_outfile_save(meg_error *e, const char *path, const void *data, int64_t bytes)
{
    meg_outfile file = {.fd = -1};
    meg_status status = meg_outfile_open(&file, e, path);
    if (status == MEG_OK) status = meg_outfile_write(&file, e, data, bytes);
    if (status == MEG_OK) status = meg_outfile_commit(&file, e);
    meg_outfile_close(&file);
    return status;
}
