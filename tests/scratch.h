/* A folder of its own for each test program, under $TMPDIR or /tmp, removed at the end. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char dir[200];
    char path[512];
} scratch;

static inline scratch scratch_new(void)
{
    scratch s = {0};
    const char *base = getenv("TMPDIR");
    snprintf(s.dir, sizeof s.dir, "%s/megalith-test.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(s.dir)) {
        perror(s.dir);
        exit(1);
    }
    return s;
}

/* The path of a file in the folder; valid until the next call. */
static inline const char *scratch_path(scratch *s, const char *name)
{
    snprintf(s->path, sizeof s->path, "%s/%s", s->dir, name);
    return s->path;
}

static inline const char *scratch_write(scratch *s, const char *name, const void *data,
                                        size_t bytes)
{
    FILE *f = fopen(scratch_path(s, name), "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) {
        perror(s->path);
        exit(1);
    }
    return s->path;
}

static inline int scratch_count(const scratch *s) /* files in the folder */
{
    int count = 0;
    DIR *d = opendir(s->dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        count += e->d_name[0] != '.';
    if (d) closedir(d);
    return count;
}

/* Removes the checkpoints of a folder, and the folder. */
static inline void scratch_clear(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) {
        fprintf(stderr, "%s failed\n", command);
        exit(1);
    }
}

static inline void scratch_free(scratch *s) /* files only: tests make no folders inside */
{
    DIR *d = opendir(s->dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.') unlink(scratch_path(s, e->d_name));
    if (d) closedir(d);
    rmdir(s->dir);
}

#endif
