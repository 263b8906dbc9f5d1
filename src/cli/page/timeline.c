/* Timelines: see timeline.h. */
#include "cli/page/timeline.h"
#include "base/files/json.h"
#include "base/pool.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void meg_deeds_add(meg_deeds *d, const meg_deed *deed)
{
    d->at = meg_grow(d->at, &d->room, (size_t)d->count + 1, sizeof *d->at);
    d->at[d->count++] = *deed;
}

void meg_deeds_free(meg_deeds *d)
{
    free(d->at);
    *d = (meg_deeds){0};
}

meg_deed_kind meg_deed_of(meg_code code, meg_pass pass)
{
    static const meg_deed_kind by_code[MEG_CODES] = {
        [MEG_LOAD] = MEG_DEED_OTHER, [MEG_COPY] = MEG_DEED_OTHER,
        [MEG_ADD] = MEG_DEED_OTHER,  [MEG_ZERO] = MEG_DEED_OTHER,
        [MEG_FREE] = MEG_DEED_OTHER, [MEG_UPDATE] = MEG_DEED_UPDATE,
        [MEG_SEND] = MEG_DEED_SEND,  [MEG_RECV] = MEG_DEED_RECEIVE,
        [MEG_REDUCE] = MEG_DEED_SUM, [MEG_KERNEL] = MEG_DEED_FORWARD,
    };
    static const meg_deed_kind by_pass[MEG_PASSES] = {
        [MEG_BACKWARD] = MEG_DEED_BACKWARD,
        [MEG_WEIGHT] = MEG_DEED_BACKWARD,
        [MEG_REPLAY] = MEG_DEED_AGAIN,
    };
    return code == MEG_KERNEL ? by_pass[pass] : by_code[code];
}

/* ---- names, each once ---- */

typedef struct names {
    int count, slots; /* slots: a power of two */
    int *slot;        /* number + 1 by hash */
    const char **at;
} names;

static names names_new(int most)
{
    names n = {.slots = 16};
    while (n.slots < 2 * most)
        n.slots *= 2;
    n.slot = calloc((size_t)n.slots, sizeof *n.slot);
    n.at = calloc((size_t)most + 1, sizeof *n.at);
    if (!n.slot || !n.at) abort();
    return n;
}

static int number_of(names *n, const char *name)
{
    size_t at = (size_t)(meg_hash(name) % (uint64_t)n->slots);
    while (n->slot[at] && strcmp(n->at[n->slot[at] - 1], name) != 0)
        at = (at + 1) % (size_t)n->slots;
    if (!n->slot[at]) {
        n->at[n->count++] = name;
        n->slot[at] = n->count;
    }
    return n->slot[at] - 1;
}

static void names_free(names *n)
{
    free(n->slot);
    free(n->at);
}

/* ---- lists ---- */

static int earlier(const void *a, const void *b)
{
    const meg_deed *x = a, *y = b;
    if (x->begin < y->begin || x->begin > y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

typedef struct run { /* deeds that are written as one */
    meg_deed deed;
    int count;
    double longest;                 /* its name is that of the longest */
    double seconds[MEG_DEED_KINDS]; /* its kind is that of which there is most */
} run;

/* Too short to be seen, and close behind; what is long enough to be seen ends there. */
static bool joins(const run *r, const meg_deed *d, double least)
{
    bool small = d->end - d->begin < least && r->deed.end - r->deed.begin < least;
    return r->count > 0 && small && d->begin - r->deed.end < least;
}

static void join(run *r, const meg_deed *d)
{
    double seconds = d->end - d->begin;
    r->deed.end = fmax(r->deed.end, d->end);
    r->seconds[d->kind] += seconds;
    if (seconds > r->longest) r->longest = seconds, r->deed.name = d->name;
    if (r->seconds[d->kind] > r->seconds[r->deed.kind]) r->deed.kind = d->kind;
    if (d->micro != r->deed.micro) r->deed.micro = -1;
    r->deed.waited = fmax(r->deed.waited, d->waited);
    r->deed.bytes += d->bytes;
    r->count++;
}

static run run_of(const meg_deed *d)
{
    run r = {.deed = *d, .count = 1, .longest = d->end - d->begin};
    r.seconds[d->kind] = r.longest;
    return r;
}

/* Kernels are on one line, each kind of traffic on another. */
static int line_of(meg_deed_kind kind)
{
    return kind < MEG_DEED_SEND ? 0 : (int)kind;
}

typedef struct writer {
    const meg_timing *timing;
    FILE *out;
    names names;
    int written;
} writer;

static void write_run(writer *w, const run *r)
{
    const meg_deed *d = &r->deed;
    if (r->count == 0) return;
    fprintf(w->out, "%s[%.1f,%.1f,%d,%d,%d,%" PRId64 ",%.1f,%d]", w->written++ ? ",\n" : "",
            1e6 * (d->begin - w->timing->origin), 1e6 * (d->end - d->begin), (int)d->kind,
            number_of(&w->names, d->name), d->micro, d->bytes, 1e6 * d->waited, r->count);
}

static void write_names(const names *n, FILE *out)
{
    fputs("],\n\"names\": [", out);
    for (int i = 0; i < n->count; i++) {
        fputs(i ? "," : "", out);
        meg_json_print(out, n->at[i]);
    }
    fputs("]", out);
}

int meg_deeds_write(const meg_deeds *d, const meg_timing *t, FILE *out)
{
    writer w = {t, out, names_new(d->count), 0};
    run runs[MEG_DEED_KINDS] = {0};
    meg_deed *sorted = calloc((size_t)d->count + 1, sizeof *sorted);
    if (!sorted) abort();
    if (d->count) memcpy(sorted, d->at, (size_t)d->count * sizeof *sorted);
    qsort(sorted, (size_t)d->count, sizeof *sorted, earlier);
    fputs("\"deeds\": [", out);
    for (int i = 0; i < d->count; i++) {
        run *r = &runs[line_of(sorted[i].kind)];
        if (joins(r, &sorted[i], t->least)) {
            join(r, &sorted[i]);
            continue;
        }
        write_run(&w, r);
        *r = run_of(&sorted[i]);
    }
    for (int k = 0; k < MEG_DEED_KINDS; k++)
        write_run(&w, &runs[k]);
    write_names(&w.names, out);
    names_free(&w.names);
    free(sorted);
    return w.written;
}
