/* The shelf: see shelf.h. */
#include "train/checkpoint/shelf.h"
#include "base/files/outfile.h"
#include "base/pool.h"
#include "train/checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    DIGITS = 8,       /* of a step, at least */
    LOCK_TRIES = 100, /* of a tenth of a second each */
};

static const char TEMPORARY[] = ".tmp", REPLACED[] = ".old.tmp";

/* ---- names ---- */

static void name(const meg_shelf *s, int64_t step, const char *tail, char path[MEG_SHELF_PATH])
{
    snprintf(path, MEG_SHELF_PATH, "%s/step-%0*" PRId64 "%s", s->path, DIGITS, step, tail);
}

void meg_shelf_name(const meg_shelf *s, int64_t step, char path[MEG_SHELF_PATH])
{
    name(s, step, "", path);
}

/* "step-00001000" and what may follow it; -1: another name. */
static int64_t step_of(const char *text, const char **tail)
{
    static const char head[] = "step-";
    if (strncmp(text, head, sizeof head - 1) != 0) return -1;
    text += sizeof head - 1;
    size_t digits = strspn(text, "0123456789");
    if (digits < DIGITS || digits > 18) return -1;
    *tail = text + digits;
    return strtoll(text, NULL, 10);
}

static bool stale(const char *tail)
{
    return strcmp(tail, TEMPORARY) == 0 || strcmp(tail, REPLACED) == 0;
}

/* ---- removing, syncing ---- */

/* A checkpoint has files only. What cannot be removed stays: it is in nobody's way. */
static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *at = readdir(d); at; at = readdir(d))
        if (strcmp(at->d_name, ".") != 0 && strcmp(at->d_name, "..") != 0)
            unlinkat(dirfd(d), at->d_name, 0);
    closedir(d);
    rmdir(path);
}

static meg_status sync_folder(meg_error *e, const char *path)
{
    MEG_CHECK(e, meg_folder_sync(path), MEG_EIO, "cannot sync %s: %s", path, strerror(errno));
    return MEG_OK;
}

/* ---- opening ---- */

/* File systems without locks do without. */
static meg_status lock(meg_shelf *s, meg_error *e)
{
    char path[MEG_SHELF_PATH];
    snprintf(path, sizeof path, "%s/lock", s->path);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    MEG_CHECK(e, s->lock >= 0, MEG_EIO, "cannot write checkpoints to %s: %s", s->path,
              strerror(errno));
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(s->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return MEG_OK;
        nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    }
    return meg_fail(e, MEG_EIO,
                    "another job writes its checkpoints to %s: name another folder, or end it",
                    s->path);
}

static meg_status each(const meg_shelf *s, meg_error *e,
                       void (*visit)(void *context, const char *entry), void *context)
{
    DIR *d = opendir(s->path);
    MEG_CHECK(e, d, MEG_EIO, "cannot read %s: %s", s->path, strerror(errno));
    for (struct dirent *at = readdir(d); at; at = readdir(d))
        visit(context, at->d_name);
    closedir(d);
    return MEG_OK;
}

static void remove_stale(void *context, const char *entry)
{
    const meg_shelf *s = context;
    const char *tail;
    char path[MEG_SHELF_PATH];
    int64_t step = step_of(entry, &tail);
    if (step < 0 || !stale(tail)) return;
    name(s, step, tail, path);
    remove_folder(path);
}

meg_status meg_shelf_open(meg_shelf *s, meg_error *e, const char *path)
{
    char inside[MEG_SHELF_PATH];
    *s = (meg_shelf){.lock = -1};
    snprintf(s->path, sizeof s->path, "%s", path);
    snprintf(inside, sizeof inside, "%s/" MEG_MANIFEST, path);
    MEG_CHECK(e, access(inside, F_OK) != 0, MEG_EARG,
              "%s is itself a checkpoint: name the folder that it is in", path);
    MEG_CHECK(e, mkdir(path, 0777) == 0 || errno == EEXIST, MEG_EIO,
              "cannot make the folder %s for checkpoints: %s", path, strerror(errno));
    MEG_TRY(e, lock(s, e));
    return each(s, e, remove_stale, s);
}

void meg_shelf_close(meg_shelf *s)
{
    if (s->lock >= 0) close(s->lock);
    s->lock = -1;
}

/* ---- listing ---- */

typedef struct listing {
    int64_t *step;
    size_t room;
    int count;
} listing;

static void list(void *context, const char *entry)
{
    listing *l = context;
    const char *tail;
    int64_t step = step_of(entry, &tail);
    if (step < 0 || *tail) return;
    l->step = meg_grow(l->step, &l->room, (size_t)l->count + 1, sizeof *l->step);
    l->step[l->count++] = step;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

meg_status meg_shelf_list(const meg_shelf *s, meg_error *e, int64_t **step, int *count)
{
    listing l = {0};
    MEG_TRY(e, each(s, e, list, &l));
    if (l.count) qsort(l.step, (size_t)l.count, sizeof *l.step, newest_first);
    *step = l.step;
    *count = l.count;
    return MEG_OK;
}

/* ---- changing ---- */

meg_status meg_shelf_begin(meg_shelf *s, meg_error *e, int64_t step, char path[MEG_SHELF_PATH])
{
    name(s, step, TEMPORARY, path);
    remove_folder(path);
    MEG_CHECK(e, mkdir(path, 0777) == 0, MEG_EIO, "cannot make the folder %s: %s", path,
              strerror(errno));
    return MEG_OK;
}

meg_status meg_shelf_publish(meg_shelf *s, meg_error *e, int64_t step)
{
    char from[MEG_SHELF_PATH], to[MEG_SHELF_PATH], old[MEG_SHELF_PATH];
    name(s, step, TEMPORARY, from);
    name(s, step, "", to);
    name(s, step, REPLACED, old);
    MEG_TRY(e, sync_folder(e, from));
    remove_folder(old);
    MEG_CHECK(e, rename(to, old) == 0 || errno == ENOENT, MEG_EIO, "cannot replace %s: %s", to,
              strerror(errno));
    MEG_CHECK(e, rename(from, to) == 0, MEG_EIO, "cannot rename %s: %s", from, strerror(errno));
    MEG_TRY(e, sync_folder(e, s->path));
    remove_folder(old);
    return MEG_OK;
}

void meg_shelf_drop(meg_shelf *s, int64_t step)
{
    char path[MEG_SHELF_PATH];
    name(s, step, TEMPORARY, path);
    remove_folder(path);
}

meg_status meg_shelf_prune(meg_shelf *s, meg_error *e, int64_t step, int64_t keep)
{
    int64_t *steps = NULL, kept = 0;
    int count = 0;
    MEG_TRY(e, meg_shelf_list(s, e, &steps, &count));
    for (int i = 0; i < count; i++) {
        char path[MEG_SHELF_PATH], old[MEG_SHELF_PATH];
        if (steps[i] > step || kept++ < keep) continue;
        name(s, steps[i], "", path);
        name(s, steps[i], REPLACED, old);
        if (rename(path, old) == 0) remove_folder(old); /* never seen half empty */
    }
    free(steps);
    return MEG_OK;
}
