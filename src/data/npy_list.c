/* Lists of NumPy files: see npy_list.h. */
#include "data/npy_list.h"
#include "base/pool.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPEN_MOST = 64, /* files that stay open; more are opened for each reading */
    LINE = 4096
};

typedef struct names {
    char **at;
    size_t count, room;
} names;

static void names_add(names *n, const char *text)
{
    n->at = meg_grow(n->at, &n->room, n->count + 1, sizeof *n->at);
    n->at[n->count] = strdup(text);
    if (!n->at[n->count++]) abort(); /* as meg_grow does */
}

static void names_free(names *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->at[i]);
    free(n->at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- which files ---- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Sorted here: glob's own order is that of the language of the user. `key`: ":x" or "". */
static meg_status add_pattern(meg_error *e, names *n, const char *pattern, const char *key)
{
    char name[LINE];
    size_t before = n->count;
    glob_t g = {0};
    int code = glob(pattern, GLOB_NOSORT, NULL, &g);
    for (size_t i = 0; code == 0 && i < g.gl_pathc; i++) {
        snprintf(name, sizeof name, "%s%s", g.gl_pathv[i], key);
        names_add(n, name);
    }
    globfree(&g);
    MEG_CHECK(e, n->count > before, MEG_EIO, "npy: no file is named like %s", pattern);
    qsort(n->at + before, n->count - before, sizeof *n->at, by_name);
    return MEG_OK;
}

/* One name or pattern, perhaps with the name of an array behind .npz: */
static meg_status add_one(meg_error *e, names *n, const char *text)
{
    char pattern[LINE];
    const char *tail = strstr(text, ".npz:");
    size_t length = tail ? (size_t)(tail - text) + 4 : strlen(text);
    snprintf(pattern, sizeof pattern, "%.*s", (int)length, text);
    if (strpbrk(pattern, "*?[") && !exists(pattern))
        return add_pattern(e, n, pattern, text + length);
    names_add(n, text);
    return MEG_OK;
}

/* The names of a list; relative ones are seen from its folder. */
static meg_status add_lines(meg_error *e, names *n, const char *path)
{
    char line[LINE], name[2 * LINE];
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    FILE *f = fopen(path, "r");
    MEG_CHECK(e, f, MEG_EIO, "npy: cannot open the list %s: %s", path, strerror(errno));
    meg_status status = MEG_OK;
    while (status == MEG_OK && fgets(line, sizeof line, f)) {
        char *text = line + strspn(line, " \t");
        text[strcspn(text, "#\r\n")] = '\0';
        for (size_t end = strlen(text); end > 0 && strchr(" \t", text[end - 1]); end--)
            text[end - 1] = '\0';
        if (!*text) continue;
        snprintf(name, sizeof name, "%.*s%s", *text == '/' ? 0 : folder, path, text);
        status = add_one(e, n, name);
    }
    fclose(f);
    return status;
}

/* A list, or a name or pattern. */
static meg_status add_entry(meg_error *e, names *n, const char *text, size_t length)
{
    char *one = strndup(text, length);
    if (!one) abort();
    meg_status status = MEG_OK;
    if (*one == '@') status = add_lines(e, n, one + 1);
    else if (*one) status = add_one(e, n, one);
    free(one);
    return status;
}

static meg_status add_all(meg_error *e, names *n, const char *text)
{
    if (exists(text)) return names_add(n, text), MEG_OK; /* a name may hold a comma */
    while (*text) {
        size_t length = strcspn(text, ",");
        MEG_TRY(e, add_entry(e, n, text, length));
        text += length + (text[length] == ',');
    }
    return MEG_OK;
}

/* ---- as one array ---- */

static meg_status fits(meg_error *e, const meg_npy *first, const meg_npy *a)
{
    char want[128], has[128];
    bool same = a->rank == first->rank;
    for (int i = 1; same && i < a->rank; i++)
        same = a->dims[i] == first->dims[i];
    meg_npy_shape(first, want);
    meg_npy_shape(a, has);
    MEG_CHECK(e, same && a->rank > 0, MEG_EDATA,
              "npy: %s has shape %s, but %s has %s: files of a list may differ in the first axis "
              "only",
              a->name, has, first->name, want);
    MEG_CHECK(e, a->type == first->type, MEG_EDATA,
              "npy: %s has type %s, but %s has %s: files of a list have one type", a->name,
              a->type->name, first->name, first->type->name);
    return MEG_OK;
}

static meg_status add_file(meg_error *e, meg_npy_list *l, const char *path,
                           const char *const keys[])
{
    l->file = meg_grow(l->file, &l->room, (size_t)l->count + 1, sizeof *l->file);
    meg_npy *a = &l->file[l->count++];
    MEG_TRY(e, meg_npy_open(e, path, keys, a));
    if (l->count > OPEN_MOST) meg_npy_rest(a);
    return l->count > 1 ? fits(e, l->file, a) : MEG_OK;
}

meg_status meg_npy_list_open(meg_error *e, const char *text, const char *const keys[],
                             meg_npy_list *out)
{
    names n = {0};
    *out = (meg_npy_list){0};
    meg_status status = add_all(e, &n, text);
    if (status == MEG_OK && n.count == 0)
        status = meg_fail(e, MEG_EARG, "npy: '%s' names no file", text);
    for (size_t i = 0; i < n.count && status == MEG_OK; i++)
        status = add_file(e, out, n.at[i], keys);
    names_free(&n);
    MEG_TRY(e, status);
    out->first = calloc((size_t)out->count + 1, sizeof *out->first);
    MEG_CHECK(e, out->first, MEG_ENOMEM, "npy: no memory");
    for (int i = 0; i < out->count; i++)
        out->first[i + 1] = out->first[i] + out->file[i].dims[0];
    return MEG_OK;
}

void meg_npy_list_close(meg_npy_list *l)
{
    for (int i = 0; i < l->count; i++)
        meg_npy_close(&l->file[i]);
    free(l->file);
    free(l->first);
    *l = (meg_npy_list){0};
}

int64_t meg_npy_list_samples(const meg_npy_list *l)
{
    return l->first[l->count];
}

const meg_npy *meg_npy_list_at(const meg_npy_list *l, int64_t sample, int64_t *within)
{
    int low = 0, high = l->count; /* first[low] <= sample < first[high] */
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (l->first[middle] <= sample) low = middle;
        else high = middle;
    }
    *within = sample - l->first[low];
    return &l->file[low];
}
