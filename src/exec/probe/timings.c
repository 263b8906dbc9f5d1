/* Times of kernels: see timings.h. The worker writes a log, one line a launch; all else is done when the
 * watch is over.
 */
#include "exec/probe/timings.h"
#include "base/clock.h"
#include "base/pool.h"
#include "exec/meters/median.h"
#include "machine/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BELIEFS = 8 /* at most, of a family */
};

static const double DISTURBED = 1.2; /* times the median of the steps */
static const double BELIEF = 0.1;    /* what a belief counts, where a measurement counts 1 */
static const double MOST_OFF = 3;    /* times off the machine's rates may large kernels be */

typedef struct launch {
    const meg_prepared *kernel;
    int step;
    double seconds;
} launch;

typedef struct timing { /* of a key */
    const char *key, *family;
    double flops, traffic;
    double seconds; /* the mean of `count` kernels */
    int count;
    double seen; /* seconds of all kernels of the steps */
} timing;

struct meg_timings {
    meg_pool *pool; /* texts */
    timing *list;   /* in the order of keys, but for those of the last watch */
    size_t count, room;
    meg_device *device; /* that is watched */
    launch *log;
    size_t launches, log_room;
    int steps;
    double tick; /* seconds that a reading of the clock takes */
};

meg_timings *meg_timings_new(void)
{
    meg_pool *pool = meg_pool_new();
    meg_timings *t = meg_pool_alloc(pool, sizeof *t);
    t->pool = pool;
    return t;
}

void meg_timings_free(meg_timings *t)
{
    if (!t) return;
    free(t->list);
    free(t->log);
    meg_pool_free(t->pool);
}

/* ---- watching ---- */

static void note(void *context, const meg_prepared *k, double start, double seconds)
{
    (void)start;
    meg_timings *t = context;
    t->log = meg_grow(t->log, &t->log_room, t->launches + 1, sizeof *t->log);
    t->log[t->launches++] = (launch){k, t->steps, seconds};
}

static double tick_of(double (*clock)(void))
{
    double least = INFINITY;
    for (int i = 0; i < 100; i++) {
        double start = clock();
        least = fmin(least, clock() - start);
    }
    return least;
}

void meg_timings_begin(meg_timings *t, meg_device *d)
{
    double (*clock)(void) = meg_device_threads(d) == 1 ? meg_clock_thread : meg_clock;
    t->device = d;
    t->launches = 0;
    t->steps = -1;
    t->tick = tick_of(clock);
    meg_device_clock(d, clock);
    meg_device_observe(d, note, t);
}

void meg_timings_next(meg_timings *t)
{
    meg_device_wait(t->device);
    t->steps++;
}

double meg_timings_now(const meg_timings *t)
{
    double sum = 0;
    for (size_t i = t->launches; i > 0 && t->log[i - 1].step == t->steps; i--)
        sum += t->log[i - 1].seconds;
    return sum;
}

/* ---- one number of many ---- */

static void only(meg_timings *t, const bool *keep)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->launches; i++)
        if (keep[t->log[i].step]) t->log[kept++] = t->log[i];
    t->launches = kept;
}

static double median_above_zero(double *x, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (x[i] > 0) x[kept++] = x[i];
    return kept ? meg_median(x, kept) : 0;
}

/* Steps do the same work: those that took much longer than the median were disturbed. */
static void undisturbed(meg_timings *t)
{
    size_t steps = (size_t)t->steps + 1, room = 0, kept = 0;
    double *total = meg_grow(NULL, &room, 2 * steps, sizeof *total);
    memset(total, 0, steps * sizeof *total);
    for (size_t i = 0; i < t->launches; i++)
        total[t->log[i].step] += t->log[i].seconds;
    memcpy(total + steps, total, steps * sizeof *total);
    double middle = median_above_zero(total + steps, steps);
    for (size_t i = 0; i < t->launches; i++)
        if (total[t->log[i].step] <= DISTURBED * middle) t->log[kept++] = t->log[i];
    t->launches = kept;
    free(total);
}

static int by_kernel(const void *a, const void *b)
{
    const launch *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static int by_key(const void *a, const void *b)
{
    const timing *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static void add(meg_timings *t, timing one)
{
    t->list = meg_grow(t->list, &t->room, t->count + 1, sizeof *t->list);
    one.key = meg_pool_text(t->pool, "%s", one.key);
    one.family = meg_pool_text(t->pool, "%s", one.family);
    t->list[t->count++] = one;
}

static void add_kernel(meg_timings *t, const meg_prepared *k, double seconds, double scale,
                       double seen)
{
    char key[MEG_KEY], family[MEG_KEY];
    meg_request_key(&k->request, k->spec.impl, key);
    meg_request_family(&k->request, k->spec.impl, family);
    double traffic = meg_request_moved(&k->request, k->spec.traffic);
    seconds = scale * fmax(seconds - t->tick, 1e-9);
    add(t, (timing){key, family, k->spec.flops, traffic, seconds, 1, seen});
}

/* Timings of one key become one: their mean, or the median, which is the middle one. */
static void join(meg_timings *t, bool by_median)
{
    size_t kept = 0;
    qsort(t->list, t->count, sizeof *t->list, by_key);
    for (size_t i = 0, end; i < t->count; i = end) {
        double sum = 0, seen = 0;
        int count = 0;
        for (end = i; end < t->count && strcmp(t->list[end].key, t->list[i].key) == 0; end++) {
            sum += t->list[end].count * t->list[end].seconds;
            count += t->list[end].count;
            seen = fmax(seen, t->list[end].seen);
        }
        timing one = t->list[by_median ? i + (end - i) / 2 : i];
        if (!by_median) one.seconds = sum / count, one.count = count;
        one.seen = seen;
        t->list[kept++] = one;
    }
    t->count = kept;
}

/* A kernel that runs several times in a step (micro-batches) counts as often in the mean of its key:
 * the price of a step is then what its kernels took. */
void meg_timings_end(meg_timings *t, const bool *keep, double scale, int *kernels)
{
    size_t all = t->launches, steps = (size_t)t->steps + 1, room = 0;
    meg_device_observe(t->device, NULL, NULL);
    meg_device_clock(t->device, NULL);
    if (kernels) *kernels = steps ? (int)(all / steps) : 0;
    if (all == 0) return;
    if (keep) only(t, keep);
    undisturbed(t);
    double seen = 0;
    for (size_t i = 0; i < t->launches; i++)
        seen += t->log[i].seconds;
    qsort(t->log, t->launches, sizeof *t->log, by_kernel);
    double *seconds = meg_grow(NULL, &room, t->launches, sizeof *seconds);
    for (size_t i = 0, end; i < t->launches; i = end) {
        for (end = i; end < t->launches && t->log[end].kernel == t->log[i].kernel; end++)
            seconds[end - i] = t->log[end].seconds;
        add_kernel(t, t->log[i].kernel, meg_median(seconds, end - i), scale, seen);
    }
    free(seconds);
    join(t, false);
}

void meg_timings_scale(meg_timings *t, double factor)
{
    for (size_t i = 0; i < t->count; i++)
        t->list[i].seconds *= factor;
}

/* ---- ranks ---- */

static char *write_all(const meg_timings *t, int64_t *size)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    for (size_t i = 0; i < t->count; i++) {
        const timing *one = &t->list[i];
        fprintf(out, "%.9g %.17g %.17g %d %.9g\t%s\t%s\n", one->seconds, one->flops, one->traffic,
                one->count, one->seen, one->family, one->key);
    }
    fclose(out);
    *size = (int64_t)bytes;
    return text;
}

static void read_all(meg_timings *t, char *text)
{
    char *line, *rest = text;
    while ((line = strsep(&rest, "\n")) && *line) {
        timing one = {0};
        char *numbers = strsep(&line, "\t");
        one.family = strsep(&line, "\t");
        one.key = line;
        sscanf(numbers, "%lf %lf %lf %d %lf", &one.seconds, &one.flops, &one.traffic, &one.count,
               &one.seen);
        if (one.family && one.key) add(t, one);
    }
}

/* The text of one rank, to all. */
static meg_status share_one(meg_timings *t, meg_comm *c, meg_error *e, int rank)
{
    int64_t size = 0;
    bool mine = rank == meg_comm_rank(c);
    char *text = mine ? write_all(t, &size) : NULL;
    meg_status status = meg_comm_share(c, e, rank, &size, sizeof size);
    if (status == MEG_OK && !mine) text = calloc((size_t)size + 1, 1);
    if (status == MEG_OK && !text) status = meg_fail(e, MEG_ENOMEM, "no memory for timings");
    if (status == MEG_OK && size) status = meg_comm_share(c, e, rank, text, size);
    if (status == MEG_OK && !mine) read_all(t, text);
    free(text);
    return status;
}

meg_status meg_timings_share(meg_timings *t, meg_comm *c, meg_error *e)
{
    int ranks = c ? meg_comm_size(c) : 1;
    if (ranks == 1) return MEG_OK;
    meg_timings *all = meg_timings_new();
    meg_status status = MEG_OK;
    for (int r = 0; r < ranks && status == MEG_OK; r++) {
        meg_timings *from = r == meg_comm_rank(c) ? t : all;
        status = share_one(from, c, e, r);
    }
    for (size_t i = 0; i < all->count; i++)
        add(t, all->list[i]);
    meg_timings_free(all);
    join(t, true);
    return status;
}

/* ---- prices ---- */

int meg_timings_count(const meg_timings *t)
{
    return (int)t->count;
}

void meg_timings_prices(const meg_timings *t, meg_prices *book)
{
    for (size_t i = 0; i < t->count; i++)
        meg_prices_again(book, &(meg_price){t->list[i].key, t->list[i].seconds, t->list[i].flops,
                                            t->list[i].traffic, t->list[i].seen});
}

static int by_family(const void *a, const void *b)
{
    const timing *x = a, *y = b;
    int order = strcmp(x->family, y->family);
    return order ? order : strcmp(x->key, y->key);
}

static meg_fit_sample sample_of(double flops, double traffic, double seconds, double weight)
{
    meg_fit_sample s = {.seconds = seconds, .weight = weight};
    meg_price_figures(&(meg_price_query){.flops = flops, .traffic = traffic}, s.figure);
    return s;
}

static const char *impl_of(const char *family)
{
    const char *last = strrchr(family, ' ');
    return last ? last + 1 : family;
}

/* What is believed of kernels far larger than the largest that was measured: that they are as much slower than
 * the machine's rates say as that one, within limits. It keeps few or small samples from being drawn out to
 * nonsense. What no cache holds comes at the memory's pace at best, however quick the small ones were. */
static int believe(const timing *list, size_t count, const meg_rates *rates, meg_fit_sample *out)
{
    static const double LARGER[] = {16, 256, 4096};
    const timing *most = list;
    int beliefs = sizeof LARGER / sizeof *LARGER;
    for (size_t i = 1; i < count; i++)
        if (list[i].traffic > most->traffic) most = &list[i];
    meg_price_query q = {
        .impl = impl_of(most->family), .flops = most->flops, .traffic = most->traffic};
    double guess = fmax(meg_rates_guess(rates, &q), 1e-9);
    double off = fmin(fmax(most->seconds / guess, 1 / MOST_OFF), MOST_OFF);
    double fixed = fmax(most->seconds - off * guess, 0); /* what a small kernel takes besides */
    for (int i = 0; i < beliefs; i++) {
        double flops = LARGER[i] * q.flops, traffic = LARGER[i] * q.traffic;
        out[i] = sample_of(flops, traffic, fixed + LARGER[i] * off * guess, BELIEF);
        if (out[i].figure[MEG_TERM_FAR] > 0)
            out[i].seconds = fmax(out[i].seconds, traffic / rates->bandwidth);
    }
    return beliefs;
}

void meg_timings_models(const meg_timings *t, meg_prices *book, bool all)
{
    size_t room = 0, samples_room = 0;
    timing *list = meg_grow(NULL, &room, t->count + 1, sizeof *list);
    meg_fit_sample *sample = meg_grow(NULL, &samples_room, t->count + BELIEFS, sizeof *sample);
    const meg_rates *rates = &meg_prices_head_of(book)->rates;
    memcpy(list, t->list, t->count * sizeof *list);
    qsort(list, t->count, sizeof *list, by_family);
    for (size_t i = 0, end; i < t->count; i = end) {
        for (end = i; end < t->count && strcmp(list[end].family, list[i].family) == 0; end++)
            sample[end - i] = sample_of(list[end].flops, list[end].traffic, list[end].seconds, 1);
        meg_price_model m = {.family = list[i].family};
        if (!all && meg_prices_model(book, m.family)) continue;
        int count = (int)(end - i);
        count += believe(list + i, end - i, rates, sample + count);
        meg_fit(sample, count, &m);
        meg_prices_add_model(book, &m);
    }
    free(list);
    free(sample);
}
