/* How much memory there is: that of the machine, or less, if a control group limits this process, as
 * batch systems and containers do. Beyond such a limit the kernel kills, whatever the machine has.
 *
 *     /proc/self/cgroup      0::/job/7  (version 2)    4:memory:/job/7  (version 1)
 *     /sys/fs/cgroup         job/7/memory.max          memory/job/7/memory.limit_in_bytes
 *
 * Groups lie within groups: the smallest limit on the way up counts. Inside a container the way may
 * be seen from elsewhere; what is not there limits nothing.
 */
#include "machine/memory.h"
#include "base/option.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH = 4096,
    LINE = 4096,
    KIB = 1024
};

typedef struct version { /* of control groups */
    const char *folder, *limit, *used, *cache;
} version;

static const version OLD = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file"},
                     NEW = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/* The number that a file holds, or, of one with several, that behind a word; -1: none. */
static int64_t number_in(const char *path, const char *word)
{
    char line[LINE];
    int64_t value = -1;
    size_t length = word ? strlen(word) : 0;
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    while (value < 0 && fgets(line, sizeof line, f)) {
        if (word && (strncmp(line, word, length) != 0 || !strchr(": \t", line[length]))) continue;
        const char *digits = line + length + strspn(line + length, ": \t");
        if (*digits >= '0' && *digits <= '9') value = strtoll(digits, NULL, 10);
    }
    fclose(f);
    return value;
}

static int64_t file_number(const char *folder, const char *file, const char *word)
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return number_in(path, word);
}

/* A group and those that it lies in. Files in memory that can be dropped count as free. */
static void look_up(const char *root, const version *v, const char *group, meg_memory *m)
{
    char folder[2 * PATH];
    snprintf(folder, sizeof folder, "%s%s", root, v->folder);
    size_t top = strlen(folder);
    snprintf(folder + top, sizeof folder - top, "%s", group);
    for (;;) {
        int64_t limit = file_number(folder, v->limit, NULL);
        int64_t used = file_number(folder, v->used, NULL);
        int64_t cache = file_number(folder, "memory.stat", v->cache);
        if (used < 0) used = 0;
        if (cache > 0 && cache < used) used -= cache;
        if (limit >= 0 && limit < m->most) {
            m->most = limit, m->limited = true;
            m->owner = meg_hash(folder + top);
        }
        if (limit >= 0 && limit - used < m->free) m->free = limit > used ? limit - used : 0;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash) return;
        folder[(size_t)(slash - folder) > top ? (size_t)(slash - folder) : top] = '\0';
    }
}

static void look_at_groups(const char *root, meg_memory *m)
{
    char path[PATH], line[LINE];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group || group[1] != '/') continue;
        *group++ = '\0';
        char all[LINE];
        snprintf(all, sizeof all, ",%s,", names + 1);
        if (group[1] == '\0') group++; /* the root */
        if (strcmp(all, ",,") == 0) look_up(root, &NEW, group, m);
        else if (strstr(all, ",memory,")) look_up(root, &OLD, group, m);
    }
    if (f) fclose(f);
}

/* For those who plan here for machines with less, and for tests. */
static void look_at_wish(meg_memory *m)
{
    const char *text = getenv("MEGALITH_MEMORY");
    meg_error ignored;
    int64_t bytes;
    if (!text || meg_parse_bytes(&ignored, "MEGALITH_MEMORY", text, &bytes) != MEG_OK) return;
    if (bytes < m->most) m->most = bytes, m->limited = true, m->owner = meg_hash(text);
    if (bytes < m->free) m->free = bytes;
}

int64_t meg_memory_used(const char *root)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    int64_t kib = number_in(path, "VmRSS");
    return kib > 0 ? kib * KIB : 0;
}

meg_memory meg_memory_look(const char *root)
{
    char path[PATH];
    meg_memory m = {INT64_MAX, INT64_MAX, false, 0};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    int64_t total = number_in(path, "MemTotal"), swap = number_in(path, "SwapTotal");
    int64_t available = number_in(path, "MemAvailable"), rest = number_in(path, "SwapFree");
    if (total > 0) m.most = (total + (swap > 0 ? swap : 0)) * KIB;
    if (available >= 0) m.free = (available + (rest > 0 ? rest : 0)) * KIB;
    look_at_groups(root, &m);
    look_at_wish(&m);
    if (m.free > m.most) m.free = m.most;
    return m;
}
