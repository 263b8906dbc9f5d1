/* Descriptions of machines: see description.h. */
#include "machine/description.h"
#include "machine/osu.h"
#include "machine/textfile.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINK_INSIDE                                                                                \
    {                                                                                              \
        2e-6, 1, {{0, 4e9}}, 0, 0, 1                                                               \
    }
#define LINK_BETWEEN                                                                               \
    {                                                                                              \
        2e-6, 1, {{0, 12.5e9}}, 12.5e9, 0, 0                                                       \
    }

const meg_machine meg_machine_default = {.nodes = 1,
                                         .ranks = 1,
                                         .cores = 1,
                                         .launch = 5e-6,
                                         .inside = LINK_INSIDE,
                                         .between = LINK_BETWEEN};

/* ---- numbers with units ---- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* The largest first. */
static const unit SECONDS[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const unit RATES[] = {{"TB/s", 1e12},     {"GB/s", 1e9}, {"Gbit/s", .125e9}, {"MB/s", 1e6},
                             {"Mbit/s", .125e6}, {"KB/s", 1e3}, {"B/s", 1},         {NULL, 0}};
static const unit OPERATIONS[] = {{"P", 1e15}, {"T", 1e12}, {"G", 1e9},
                                  {"M", 1e6},  {"", 1},     {NULL, 0}};

static bool scan(const char *text, const unit units[], double *out)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number) || number < 0) return false;
    for (; units->name; units++)
        if (strcmp(end, units->name) == 0) {
            *out = number * units->factor;
            return true;
        }
    return false;
}

/* With as few digits as read back to the same number. */
static void print(double value, const unit units[], char *out, size_t size)
{
    double back;
    while (units[1].name && value < units->factor)
        units++;
    for (int digits = 3; digits <= 17; digits++) {
        snprintf(out, size, "%.*g%s", digits, value / units->factor, units->name);
        if (scan(out, units, &back) && back == value) return;
    }
}

/* ---- files ---- */

static meg_status load_osu(meg_error *e, const char *folder, const char *name, meg_osu *out)
{
    char *text = NULL;
    size_t size = 0;
    MEG_TRY(e, meg_textfile_read(e, folder, name, &text, &size));
    meg_status status = meg_osu_read(e, name, text, size, out);
    free(text);
    return status;
}

/* ---- links ---- */

enum {
    LINK_TEXT = 96 * (2 * MEG_LINK_POINTS + 4) /* more than a link takes when it is written */
};

typedef struct points {
    meg_link_point *at;
    int *count;
} points;

static meg_status add_point(meg_error *e, const char *what, const char *item, points p)
{
    const char *colon = strchr(item, ':');
    char size[32] = "0";
    int64_t bytes;
    double rate;
    if (colon) snprintf(size, sizeof size, "%.*s", (int)(colon - item), item);
    MEG_TRY(e, meg_parse_bytes(e, what, size, &bytes));
    MEG_CHECK(e, scan(colon ? colon + 1 : item, RATES, &rate) && rate > 0, MEG_EDATA,
              "%s: '%s' is no bandwidth: write it like 8GB/s, 1Gbit/s, or 64KiB:2GB/s for messages "
              "of that size",
              what, item);
    MEG_CHECK(e, *p.count < MEG_LINK_POINTS, MEG_EDATA, "%s: more than %d bandwidths", what,
              MEG_LINK_POINTS);
    MEG_CHECK(e, *p.count == 0 || bytes > p.at[*p.count - 1].bytes, MEG_EDATA,
              "%s: sizes of messages must ascend, but '%s' does not", what, item);
    p.at[(*p.count)++] = (meg_link_point){bytes, rate};
    return MEG_OK;
}

static meg_status add_item(meg_error *e, const char *what, const char *item, meg_link *l)
{
    char *end;
    if (strncmp(item, "all:", 4) == 0) {
        MEG_CHECK(e, scan(item + 4, RATES, &l->all) && l->all > 0, MEG_EDATA,
                  "%s: '%s' is no bandwidth: write it like all:12GB/s", what, item);
        return MEG_OK;
    }
    if (strncmp(item, "both:", 5) == 0) {
        MEG_CHECK(e, strcmp(what, "inside") != 0, MEG_EDATA,
                  "inside: both ways share one memory: all: is of both, so leave %s out", item);
        MEG_CHECK(e, scan(item + 5, RATES, &l->both) && l->both > 0, MEG_EDATA,
                  "%s: '%s' is no bandwidth: write it like both:12GB/s", what, item);
        return MEG_OK;
    }
    if (strncmp(item, "cpu:", 4) == 0) {
        l->cpu = strtod(item + 4, &end);
        MEG_CHECK(e, end > item + 4 && !*end && l->cpu >= 0 && l->cpu <= 1024, MEG_EDATA,
                  "%s: '%s' is no number of cores: write it like cpu:0.5", what, item);
        return MEG_OK;
    }
    if (strncmp(item, "hop:", 4) == 0) {
        MEG_CHECK(e, scan(item + 4, SECONDS, &l->hop) && l->hop > 0, MEG_EDATA,
                  "%s: '%s' is no time: write it like hop:12us", what, item);
        return MEG_OK;
    }
    if (strncmp(item, "sum:", 4) == 0)
        return add_point(e, what, item + 4, (points){l->sum, &l->sums});
    return add_point(e, what, item, (points){l->at, &l->points});
}

typedef struct place { /* where a description stands */
    meg_error *error;
    const char *folder; /* of the files that it names */
    int depth;          /* of files that name files */
} place;

enum {
    DEEPEST = 8,
    ITEM = 256 /* letters */
};

/* The next of a list with commas. */
static meg_status next_item(const place *p, const char *name, const char **text, char item[ITEM])
{
    size_t length = strcspn(*text, ",");
    MEG_CHECK(p->error, length > 0 && length < ITEM, MEG_EDATA, "%s: an item of %zu letters", name,
              length);
    snprintf(item, ITEM, "%.*s", (int)length, *text);
    *text += length + ((*text)[length] == ',');
    return MEG_OK;
}

static bool is_extra(const char *item)
{
    return strncmp(item, "all:", 4) == 0 || strncmp(item, "both:", 5) == 0 ||
           strncmp(item, "cpu:", 4) == 0 || strncmp(item, "hop:", 4) == 0 ||
           strncmp(item, "sum:", 4) == 0;
}

/* "lat.txt,bw.txt,cpu:1": of benchmarks, and what is known besides. */
static meg_status read_benchmarks(const place *p, const char *name, const char *text, meg_link *out)
{
    meg_error *e = p->error;
    meg_osu *osu = calloc(MEG_OSU_FILES, sizeof *osu);
    meg_link l = {0}, extra = {0};
    char item[ITEM];
    int count = 0;
    meg_status status = MEG_OK;
    if (!osu) abort();
    while (*text && status == MEG_OK) {
        status = next_item(p, name, &text, item);
        if (status != MEG_OK) break;
        if (is_extra(item)) status = add_item(e, name, item, &extra);
        else if (count == MEG_OSU_FILES)
            status = meg_fail(e, MEG_EDATA, "%s: more than %d files", name, MEG_OSU_FILES);
        else status = load_osu(e, p->folder, item, &osu[count++]);
    }
    if (status == MEG_OK) status = meg_osu_link(e, name, osu, count, &l);
    free(osu);
    if (status != MEG_OK) return status;
    if (extra.all > 0) l.all = extra.all;
    l.both = extra.both;
    l.cpu = extra.cpu;
    l.hop = extra.hop;
    l.sums = extra.sums;
    memcpy(l.sum, extra.sum, sizeof l.sum);
    *out = l;
    return MEG_OK;
}

static meg_status read_link(const place *p, const char *name, const char *text, meg_link *out)
{
    meg_error *e = p->error;
    char item[ITEM];
    meg_link l = {0};
    if (strncmp(text, "osu:", 4) == 0) return read_benchmarks(p, name, text + 4, out);
    for (int i = 0; *text; i++) {
        MEG_TRY(e, next_item(p, name, &text, item));
        if (i > 0) MEG_TRY(e, add_item(e, name, item, &l));
        else
            MEG_CHECK(e, scan(item, SECONDS, &l.latency), MEG_EDATA,
                      "%s: '%s' is no latency: write it like 2us, before the bandwidth", name,
                      item);
    }
    MEG_CHECK(e, l.points > 0, MEG_EDATA, "%s: no bandwidth: write it like 2us,8GB/s", name);
    *out = l;
    return MEG_OK;
}

void meg_link_print(const meg_link *l, char *out, size_t size)
{
    char number[48];
    print(l->latency, SECONDS, out, size);
    for (int i = 0; i < l->points; i++) {
        print(l->at[i].bandwidth, RATES, number, sizeof number);
        size_t used = strlen(out);
        if (l->at[i].bytes == 0) snprintf(out + used, size - used, ",%s", number);
        else snprintf(out + used, size - used, ",%" PRId64 ":%s", l->at[i].bytes, number);
    }
    if (l->all > 0) {
        print(l->all, RATES, number, sizeof number);
        snprintf(out + strlen(out), size - strlen(out), ",all:%s", number);
    }
    if (l->both > 0) {
        print(l->both, RATES, number, sizeof number);
        snprintf(out + strlen(out), size - strlen(out), ",both:%s", number);
    }
    if (l->cpu > 0) snprintf(out + strlen(out), size - strlen(out), ",cpu:%.6g", l->cpu);
    if (l->hop > 0) {
        print(l->hop, SECONDS, number, sizeof number);
        snprintf(out + strlen(out), size - strlen(out), ",hop:%s", number);
    }
    for (int i = 0; i < l->sums; i++) {
        print(l->sum[i].bandwidth, RATES, number, sizeof number);
        snprintf(out + strlen(out), size - strlen(out), ",sum:%" PRId64 ":%s", l->sum[i].bytes,
                 number);
    }
}

/* Between two sizes the seconds, not the rates, are on a line. */
static double rate_at(const meg_link_point *at, int count, int64_t bytes)
{
    int i = 0;
    while (i + 1 < count && at[i + 1].bytes <= bytes)
        i++;
    if (bytes <= at[0].bytes || i + 1 == count) return at[i].bandwidth;
    double lo = (double)at[i].bytes, hi = (double)at[i + 1].bytes;
    double begin = lo / at[i].bandwidth, end = hi / at[i + 1].bandwidth;
    double share = ((double)bytes - lo) / (hi - lo);
    return (double)bytes / (begin + share * (end - begin));
}

double meg_link_bandwidth(const meg_link *l, int64_t bytes)
{
    return rate_at(l->at, l->points, bytes);
}

double meg_link_sum(const meg_link *l, int64_t bytes)
{
    return l->sums ? rate_at(l->sum, l->sums, bytes) : 0;
}

double meg_link_seconds(const meg_link *l, int64_t bytes)
{
    return l->latency + (bytes > 0 ? (double)bytes / meg_link_bandwidth(l, bytes) : 0);
}

/* ---- words ---- */

typedef struct words { /* as they are written; links may be longer than other texts */
    char name[MEG_TEXT], device[MEG_TEXT], file[MEG_TEXT];
    char flops[MEG_TEXT], bandwidth[MEG_TEXT], launch[MEG_TEXT], disk[MEG_TEXT];
    const char *inside, *between, *memory;
    int64_t nodes, ranks, cores, all_cores;
} words;

#define AT(field) offsetof(words, field)

static const meg_param PARAMS[] = {
    {"file", MEG_PARAM_TEXT, AT(file), "", "takes the words of a file, but for those given here",
     NULL, 0, 0},
    {"name", MEG_PARAM_TEXT, AT(name), "", "for people", NULL, 0, 0},
    {"nodes", MEG_PARAM_INT, AT(nodes), "1", "nodes", NULL, 1, 1 << 20},
    {"ranks", MEG_PARAM_INT, AT(ranks), "1", "ranks of a node", NULL, 1, 1 << 16},
    {"cores", MEG_PARAM_INT, AT(cores), "0", "cores of a node (0: one for each rank)", NULL, 0,
     1 << 16},
    {"all_cores", MEG_PARAM_INT, AT(all_cores), "0",
     "cores that all nodes share, where they are containers of one machine (0: each has its own)",
     NULL, 0, 1 << 16},
    {"memory", MEG_PARAM_STRING, AT(memory), "0",
     "memory of a rank (0: not said); of those on node 0, 1, ...: 16GiB,64GiB", NULL, 0, 0},
    {"device", MEG_PARAM_TEXT, AT(device), "",
     "what a rank computes with: avx2, avx512, v100 .. (as this machine)", NULL, 0, 0},
    {"flops", MEG_PARAM_TEXT, AT(flops), "0",
     "operations a second of a rank, 15.7T (0: prices of this machine)", NULL, 0, 0},
    {"bandwidth", MEG_PARAM_TEXT, AT(bandwidth), "", "of its memory, 900GB/s", NULL, 0, 0},
    {"launch", MEG_PARAM_TEXT, AT(launch), "5us", "of a kernel", NULL, 0, 0},
    {"inside", MEG_PARAM_STRING, AT(inside), "",
     "messages within a node: 1us,8GB/s, or osu:FILE,FILE of the OSU Micro-Benchmarks", NULL, 0, 0},
    {"between", MEG_PARAM_STRING, AT(between), "",
     "messages between nodes: 2us,12GB/s,all:12GB/s, or osu:FILE,FILE", NULL, 0, 0},
    {"disk", MEG_PARAM_TEXT, AT(disk), "", "reading, writing: 1GB/s,500MB/s", NULL, 0, 0},
    {0},
};

static meg_status read_rate(meg_error *e, const char *word, const char *text, const unit units[],
                            double *out)
{
    MEG_CHECK(e, scan(text, units, out), MEG_EDATA, "%s=%s: no such number", word, text);
    return MEG_OK;
}

static meg_status read_disk(meg_error *e, const char *text, meg_machine *m)
{
    char first[MEG_TEXT];
    const char *comma = strchr(text, ',');
    snprintf(first, sizeof first, "%.*s", (int)strcspn(text, ","), text);
    MEG_TRY(e, read_rate(e, "disk", first, RATES, &m->read));
    return read_rate(e, "disk", comma ? comma + 1 : first, RATES, &m->write);
}

/* "16GiB", or of each node: "16GiB,64GiB"; the last of them stands for all further ones. */
static meg_status read_memory(meg_error *e, const char *text, meg_machine *m)
{
    m->memory = m->memories = 0;
    for (int i = 0; *text; i++) {
        char item[64];
        size_t length = strcspn(text, ",");
        MEG_CHECK(e, i < MEG_MACHINE_MEMORIES && length < sizeof item, MEG_EDATA,
                  "memory=: more than %d nodes, or no sizes", MEG_MACHINE_MEMORIES);
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        MEG_TRY(e, meg_parse_bytes(e, "memory", item, &m->memory_of[i]));
        MEG_CHECK(e, m->memory_of[i] > 0 || (i == 0 && !text[length]), MEG_EDATA,
                  "memory=: a node without any: give each its size, or none");
        if (m->memory_of[i] > m->memory) m->memory = m->memory_of[i];
        m->memories = i + 1;
        text += length + (text[length] == ',');
    }
    if (m->memories == 1) m->memories = 0;
    return MEG_OK;
}

static void print_memory(const meg_machine *m, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%" PRId64, meg_machine_memory(m, 0));
    for (int i = 1; i < m->memories; i++)
        used += (size_t)snprintf(out + used, size - used, ",%" PRId64, m->memory_of[i]);
}

int64_t meg_machine_memory(const meg_machine *m, int64_t node)
{
    if (m->memories == 0) return m->memory;
    return m->memory_of[node < m->memories ? node : m->memories - 1];
}

/* Numbers and names that were given replace those of `m`. */
static void take_plain(const char *given, const words *w, meg_machine *m)
{
    if (meg_options_has(given, "name")) memcpy(m->name, w->name, sizeof m->name);
    if (meg_options_has(given, "device")) memcpy(m->device, w->device, sizeof m->device);
    if (meg_options_has(given, "nodes")) m->nodes = w->nodes;
    if (meg_options_has(given, "ranks")) m->ranks = m->cores = w->ranks;
    if (meg_options_has(given, "all_cores")) m->all_cores = w->all_cores;
    if (meg_options_has(given, "cores")) m->cores = w->cores ? w->cores : m->ranks;
}

/* So do memory, rates and links. */
static meg_status take_rates(const place *p, const char *given, const words *w, meg_machine *m)
{
    meg_error *e = p->error;
    if (meg_options_has(given, "memory")) MEG_TRY(e, read_memory(e, w->memory, m));
    if (meg_options_has(given, "flops"))
        MEG_TRY(e, read_rate(e, "flops", w->flops, OPERATIONS, &m->flops));
    if (meg_options_has(given, "launch"))
        MEG_TRY(e, read_rate(e, "launch", w->launch, SECONDS, &m->launch));
    if (*w->bandwidth) MEG_TRY(e, read_rate(e, "bandwidth", w->bandwidth, RATES, &m->bandwidth));
    MEG_CHECK(e, (m->flops > 0) == (m->bandwidth > 0), MEG_EDATA,
              "flops= and bandwidth= describe a rank together: give both or none");
    if (*w->inside) MEG_TRY(e, read_link(p, "inside", w->inside, &m->inside));
    if (*w->between) MEG_TRY(e, read_link(p, "between", w->between, &m->between));
    return *w->disk ? read_disk(e, w->disk, m) : MEG_OK;
}

/* Lines to blanks, comments away. */
static void flatten(char *text)
{
    for (char *at = text; *at; at++) {
        if (*at == '#' && (at == text || strchr(" \t\n", at[-1])))
            while (*at && *at != '\n')
                *at++ = ' ';
        if (*at == '\n' || *at == '\r') *at = ' ';
        if (!*at) return;
    }
}

static meg_status load(const place *from, const char *name, meg_machine *out);

static meg_status read_flat(const place *p, const char *flat, meg_machine *out)
{
    words w;
    meg_machine m = meg_machine_default;
    meg_pool *pool = meg_pool_new();
    meg_form form = {PARAMS, "machine", pool};
    meg_status status = meg_options_fill(p->error, &form, flat, &w);
    if (status == MEG_OK && *w.file) status = load(p, w.file, &m);
    if (status == MEG_OK) {
        take_plain(flat, &w, &m);
        status = take_rates(p, flat, &w, &m);
    }
    meg_pool_free(pool);
    if (status == MEG_OK) *out = m;
    return status;
}

static meg_status read_text(const place *p, const char *what, const char *text, meg_machine *out)
{
    meg_error why = {0};
    place inner = {&why, p->folder, p->depth};
    size_t size = strlen(text) + 1;
    MEG_CHECK(p->error, size <= MEG_MACHINE_TEXT_MAX, MEG_EDATA, "%s: more than %d bytes", what,
              MEG_MACHINE_TEXT_MAX);
    char *flat = malloc(size);
    if (!flat) abort();
    memcpy(flat, text, size);
    flatten(flat);
    meg_status status = read_flat(&inner, flat, out);
    free(flat);
    MEG_CHECK(p->error, status == MEG_OK, status, "%s: %s", what, why.message);
    return MEG_OK;
}

/* A file, seen from where it is named. */
static meg_status load(const place *from, const char *name, meg_machine *out)
{
    char folder[4096], *text = NULL;
    size_t size = 0;
    MEG_CHECK(from->error, from->depth < DEEPEST, MEG_EDATA,
              "file=%s: files that name one another, more than %d deep", name, DEEPEST);
    MEG_TRY(from->error, meg_textfile_read(from->error, from->folder, name, &text, &size));
    const char *slash = strrchr(name, '/');
    int used = snprintf(folder, sizeof folder, "%s%.*s", *name == '/' ? "" : from->folder,
                        slash ? (int)(slash + 1 - name) : 0, name);
    place p = {from->error, folder, from->depth + 1};
    meg_status status = used < (int)sizeof folder
                            ? read_text(&p, name, text, out)
                            : meg_fail(from->error, MEG_EARG, "a path of %d letters", used);
    free(text);
    return status;
}

meg_status meg_machine_read(meg_error *e, const char *what, const char *text, meg_machine *out)
{
    return read_text(&(place){e, "", 0}, what, text, out);
}

meg_status meg_machine_load(meg_error *e, const char *path, meg_machine *out)
{
    return load(&(place){e, "", 0}, path, out);
}

void meg_machine_print(const meg_machine *m, char *out, size_t size)
{
    char inside[LINK_TEXT], between[LINK_TEXT];
    char memory[24 * MEG_MACHINE_MEMORIES];
    words w = {.nodes = m->nodes, .ranks = m->ranks, .cores = m->cores, .memory = memory};
    w.all_cores = m->all_cores;
    print_memory(m, memory, sizeof memory);
    w.inside = inside, w.between = between;
    memcpy(w.name, m->name, sizeof w.name);
    memcpy(w.device, m->device, sizeof w.device);
    print(m->flops, OPERATIONS, w.flops, sizeof w.flops);
    print(m->launch, SECONDS, w.launch, sizeof w.launch);
    if (m->bandwidth > 0) print(m->bandwidth, RATES, w.bandwidth, sizeof w.bandwidth);
    meg_link_print(&m->inside, inside, sizeof inside);
    meg_link_print(&m->between, between, sizeof between);
    if (m->read > 0) {
        print(m->read, RATES, w.disk, sizeof w.disk);
        strcat(w.disk, ",");
        print(m->write, RATES, w.disk + strlen(w.disk), sizeof w.disk - strlen(w.disk));
    }
    meg_options_print(PARAMS, &w, out, size);
}
