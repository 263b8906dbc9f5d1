/* The table of kernels: see kernel.h. The worker adds up times per prepared kernel (it looks them
 * up in a hash table of pointers); for the table those that do the same work are one row.
 */
#include "base/pool.h"
#include "cli/report/kernel.h"
#include "cli/report/record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct seen {
    const meg_prepared *kernel; /* NULL: a free place */
    int64_t count;
    double seconds;
} seen;

struct meg_kernels_seen {
    meg_device *device;
    seen *place;         /* (places), at most half of them taken */
    size_t places, used; /* places: a power of two */
};

typedef struct row {
    const meg_prepared *kernel; /* one of those that do this work */
    char shape[96];
    double count, seconds, flops, bytes; /* of all steps */
} row;

/* ---- collecting ---- */

static seen *find(seen *place, size_t places, const meg_prepared *k)
{
    size_t at = (size_t)((uintptr_t)k >> 4) * (size_t)0x9E3779B97F4A7C15u >> 20;
    while (place[at % places].kernel && place[at % places].kernel != k)
        at++;
    return &place[at % places];
}

static void widen(meg_kernels_seen *s)
{
    size_t places = s->places ? 2 * s->places : 1024;
    seen *wider = calloc(places, sizeof *wider);
    if (!wider) abort();
    for (size_t i = 0; i < s->places; i++)
        if (s->place[i].kernel) *find(wider, places, s->place[i].kernel) = s->place[i];
    free(s->place);
    s->place = wider;
    s->places = places;
}

static void observe(void *context, const meg_prepared *k, double start, double seconds)
{
    (void)start;
    meg_kernels_seen *s = context;
    if (2 * s->used >= s->places) widen(s);
    seen *at = find(s->place, s->places, k);
    s->used += !at->kernel;
    *at = (seen){k, at->count + 1, at->seconds + seconds};
}

meg_kernels_seen *meg_kernels_begin(meg_device *d)
{
    meg_kernels_seen *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->device = d;
    meg_device_observe(d, observe, s);
    return s;
}

/* ---- rows ---- */

static bool same_work(const row *a, const meg_prepared *k, const char *shape)
{
    const meg_request *x = &a->kernel->request, *y = &k->request;
    return strcmp(meg_kernel_name(x), meg_kernel_name(y)) == 0 &&
           strcmp(meg_kernel_pass(x), meg_kernel_pass(y)) == 0 && strcmp(a->shape, shape) == 0 &&
           strcmp(a->kernel->spec.impl, k->spec.impl) == 0;
}

static int slower(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static size_t make_rows(const meg_kernels_seen *s, row **out)
{
    size_t room = 0, count = 0;
    row *list = meg_grow(NULL, &room, s->used + 1, sizeof *list);
    for (size_t i = 0; i < s->places; i++) {
        const seen *one = &s->place[i];
        char shape[sizeof list->shape];
        size_t at = 0;
        if (!one->kernel) continue;
        meg_kernel_shape(&one->kernel->request, shape, sizeof shape);
        while (at < count && !same_work(&list[at], one->kernel, shape))
            at++;
        if (at == count) {
            list[count] = (row){.kernel = one->kernel};
            memcpy(list[count++].shape, shape, sizeof shape);
        }
        list[at].count += (double)one->count;
        list[at].seconds += one->seconds;
        list[at].flops += (double)one->count * meg_request_flops(&one->kernel->request);
        list[at].bytes += (double)one->count * one->kernel->spec.traffic;
    }
    qsort(list, count, sizeof *list, slower);
    *out = list;
    return count;
}

/* ---- printing ---- */

static double rate(const row *r, double amount)
{
    return r->seconds > 0 ? 1e-9 * amount / r->seconds : 0;
}

static void print_row(const row *r, double steps, double all)
{
    const meg_request *q = &r->kernel->request;
    printf("  %-12s %-6s %-46s %6.4g %-24s %9.3f %6.2f %8.1f %7.1f\n", meg_kernel_name(q),
           meg_kernel_pass(q), r->shape, r->count / steps, r->kernel->spec.impl,
           1e3 * r->seconds / steps, 100 * r->seconds / all, rate(r, r->flops), rate(r, r->bytes));
}

static void print_json(const row *r, double steps, double all)
{
    const meg_request *q = &r->kernel->request;
    meg_record j = {0};
    meg_record_text(&j, "kernel", meg_kernel_name(q));
    meg_record_text(&j, "pass", meg_kernel_pass(q));
    meg_record_text(&j, "shape", r->shape);
    meg_record_real(&j, "count", r->count / steps);
    meg_record_text(&j, "implementation", r->kernel->spec.impl);
    meg_record_real(&j, "milliseconds", 1e3 * r->seconds / steps);
    meg_record_real(&j, "share", r->seconds / all);
    meg_record_real(&j, "gflops_per_second", rate(r, r->flops));
    meg_record_real(&j, "gbytes_per_second", rate(r, r->bytes));
    meg_record_end(&j);
}

void meg_kernels_end(meg_kernels_seen *s, int64_t steps, double seconds_per_step, bool json)
{
    row *list;
    double all = 0, each = steps > 0 ? (double)steps : 1;
    meg_device_observe(s->device, NULL, NULL);
    size_t count = make_rows(s, &list);
    for (size_t i = 0; i < count; i++)
        all += list[i].seconds;
    if (!json)
        printf("kernels of a step:\n  %-12s %-6s %-46s %6s %-24s %9s %6s %8s %7s\n", "op", "pass",
               "shape", "count", "implementation", "ms", "%", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < count; i++)
        (json ? print_json : print_row)(&list[i], each, all > 0 ? all : 1);
    if (!json)
        printf("  all kernels %.3f ms of a step of %.3f ms\n", 1e3 * all / each,
               1e3 * seconds_per_step);
    free(list);
    free(s->place);
    free(s);
}
