/* The clocks: see clock.h. */
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double meg_clock(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double meg_clock_thread(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double meg_clock_process(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}
