/* Files that are there whole or not at all: see outfile.h. */
#include "import/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

/* A name of its own for each process; one that is left over from a crash is stepped over. */
meg_status meg_outfile_open(meg_outfile *f, meg_error *e, const char *path)
{
    size_t room = strlen(path) + 64;
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

/* A power cut could undo the renaming; some file systems cannot sync folders. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 1;
    char *folder = malloc(length + 1);
    if (!folder) return;
    memcpy(folder, slash ? path : ".", length);
    folder[length] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

meg_status meg_outfile_commit(meg_outfile *f, meg_error *e)
{
    int fd = f->fd;
    if (fsync(fd) != 0) return failed(f, e);
    f->fd = -1;
    if (close(fd) != 0 || rename(f->temporary, f->path) != 0) return failed(f, e);
    free(f->temporary);
    f->temporary = NULL;
    sync_folder(f->path);
    return MEG_OK;
}

void meg_outfile_close(meg_outfile *f)
{
    if (f->fd >= 0) close(f->fd);
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    *f = (meg_outfile){.fd = -1};
}
