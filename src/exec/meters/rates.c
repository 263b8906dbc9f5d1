/* What this machine does per second: see rates.h. About 0.1 s, on the worker of the device and its
 * OpenMP team, so that the figures are those which kernels will see.
 *
 *     flops      panels of a matrix product that stay in the first cache: what well-blocked kernels
 *                come near to
 *     plain      a dot product in double, as the plain-C kernels compute theirs; one thread
 *     bandwidth  scaling one 24 MB array into another, beyond most caches
 *     launch     an empty item of a queue that has many: what lies between two kernels. Threads that
 *                kernels wake are part of the kernels' own time
 *     step       an item for itself: the worker wakes, works, and wakes who waits for it
 *
 * Each is the best of a few, by the threads' own clocks where that can be: what the machine can do
 * when nobody else takes it, since the load of others comes and goes within a run. Kinds that have
 * no kernels but plain C get small arrays: their plans are not made for speed, and tests open many.
 */
#define _GNU_SOURCE
#include "exec/meters/rates.h"
#include "base/clock.h"
#include "exec/meters/panel.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEAST = 4,       /* trials, however busy the machine */
    TRIALS = 12,     /* at most */
    LAUNCHES = 200,  /* items of a burst, */
    TURNS = 400,     /* of an item for itself */
    BURSTS = 40,     /* of which there are many: some fall between the turns of others */
    SMALL = 1 << 18, /* elements of the arrays copied: 1 MB */
    LARGE = 6 << 20, /* 24 MB */
};

static const double spell = 3e-3; /* seconds per trial and thread of a computing loop */
static const double budget = 0.2; /* seconds for all trials but the first of each */

/* Seconds that this thread has run: those in which others had its core do not count. */
static double mine(void)
{
    return meg_clock_thread();
}

/* ---- multiply-adds ---- */

/* One thread's floating-point operations per second, over a spell. */
static double panel_rate(const meg_panel *kernel)
{
    meg_panel_memory p;
    meg_panel_fill(&p);
    double start = mine(), seconds;
    int64_t calls = 0;
    do {
        for (int i = 0; i < 32; i++, calls++)
            kernel->run(&p);
        seconds = mine() - start;
    } while (seconds < spell);
    return (double)calls * kernel->flops / seconds;
}

static double team_rate(int threads)
{
    meg_panel kernel = meg_panel_best();
    double rate = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : rate)
    for (int t = 0; t < threads; t++)
        rate += panel_rate(&kernel);
    return rate;
}

/* ---- plain C ---- */

static double plain_rate(void)
{
    enum {
        COUNT = 4096
    };
    float x[COUNT], w[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = w[i] = (float)i;
    double start = mine(), seconds, sum = 0;
    int64_t calls = 0;
    do {
        for (int i = 0; i < COUNT; i++)
            sum += (double)x[i] * (double)w[i];
        calls++;
        seconds = mine() - start;
    } while (seconds < spell);
    __asm__ volatile("" : : "g"(sum)); /* so that the sum is wanted */
    return 2.0 * COUNT * (double)calls / seconds;
}

/* ---- memory ---- */

/* The seconds of the slowest thread. */
static double scale(float *restrict y, const float *restrict x, int64_t count, int threads)
{
    double slowest = 0;
    (void)threads;
#pragma omp parallel num_threads(threads) reduction(max : slowest)
    {
        double start = mine();
#pragma omp for simd schedule(static) nowait
        for (int64_t i = 0; i < count; i++)
            y[i] = 0.5f * x[i];
        __asm__ volatile("" : : "g"(y) : "memory"); /* so that y is wanted */
        slowest = mine() - start;
    }
    return slowest;
}

/* Bytes read and written per second. */
static double copy_rate(float *y, const float *x, int64_t count, int threads)
{
    return 2.0 * (double)count * sizeof *x / fmax(scale(y, x, count, threads), 1e-9);
}

/* ---- all of it ---- */

typedef struct probe {
    meg_device *device;
    double deadline; /* on a busy machine, fewer trials must do */
    bool small;      /* plain C only */
    int threads;
    meg_rates *out;
} probe;

static bool more(const probe *p, int trials)
{
    return trials < LEAST || (trials < TRIALS && meg_clock() < p->deadline);
}

static double bandwidth(const probe *p)
{
    double best = 4 * p->out->plain; /* no memory to try with: a guess */
    int64_t count = p->small ? SMALL : LARGE;
    float *x = aligned_alloc(64, (size_t)count * sizeof *x);
    float *y = aligned_alloc(64, (size_t)count * sizeof *y);
    if (x && y) {
        for (int64_t i = 0; i < count; i++)
            x[i] = 1;
        copy_rate(y, x, count, p->threads); /* brings the pages of y */
        best = 0;
        for (int n = 0; more(p, n); n++)
            best = fmax(best, copy_rate(y, x, count, p->threads));
    }
    free(x);
    free(y);
    return best;
}

static void measure(void *argument) /* on the worker */
{
    const probe *p = argument;
    double best = 0;
    for (int n = 0; more(p, n); n++)
        best = fmax(best, plain_rate());
    p->out->plain = p->out->flops = best;
    p->out->bandwidth = bandwidth(p);
    if (p->small) return;
    best = team_rate(p->threads); /* wakes the team and the wide units */
    for (int n = 0; more(p, n); n++)
        best = fmax(best, team_rate(p->threads));
    p->out->flops = best;
}

static void nothing(void *argument)
{
    (void)argument;
    __asm__ volatile("");
}

static void look(void *argument)
{
    *(double *)argument = mine();
}

/* By the worker's clock, in which it does not sleep, from the first item to the last. */
static double launch_seconds(const probe *p)
{
    double least = INFINITY;
    for (int n = 0; n < BURSTS; n++) {
        double first = 0, last = 0;
        meg_device_call(p->device, look, &first);
        for (int i = 0; i < LAUNCHES; i++)
            meg_device_call(p->device, nothing, NULL);
        meg_device_call(p->device, look, &last);
        meg_device_wait(p->device);
        least = fmin(least, (last - first) / (LAUNCHES + 1));
    }
    return least;
}

/* One item that wakes the worker, and the wait for it: a step begins and ends so. */
static double step_seconds(const probe *p)
{
    double least = INFINITY;
    for (int n = 0; n < TURNS; n++) {
        double start = meg_clock();
        meg_device_call(p->device, nothing, NULL);
        meg_device_wait(p->device);
        least = fmin(least, meg_clock() - start);
    }
    return least;
}

void meg_rates_probe(meg_device *d, meg_rates *out)
{
    meg_device_wait(d);
    bool small = !meg_device_kind_of(d)->describe;
    probe p = {.device = d,
               .deadline = meg_clock() + budget,
               .small = small,
               .threads = small ? 1 : meg_device_threads(d),
               .out = out};
    meg_device_call(d, measure, &p);
    meg_device_wait(d);
    out->launch = launch_seconds(&p);
    out->step = step_seconds(&p);
}
