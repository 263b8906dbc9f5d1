/* Times of kernels as they ran in real steps, with the caches and neighbours that they have there. They
 * become prices, one for each key, and models, one for each family (machine/prices.h).
 */
#ifndef MEG_EXEC_PROBE_TIMINGS_H
#define MEG_EXEC_PROBE_TIMINGS_H

#include "comm/comm.h"
#include "device/device.h"
#include "machine/prices.h"

typedef struct meg_timings meg_timings;

meg_timings *meg_timings_new(void);
void meg_timings_free(meg_timings *t);

/* Watches the device from begin to end; `next` before each step. Kernels of one thread are timed by
 * the worker's own clock, so that others on the machine do not count. `end` adds what was seen in the steps to keep
 * (NULL: all), times `scale` (how the machine was at the book's time against now, tempo.h): of each kernel the median
 * over the steps that were not disturbed, of kernels with one key their mean. *kernels (may be NULL): how many a step
 * has. */
void meg_timings_begin(meg_timings *t, meg_device *d);
void meg_timings_next(meg_timings *t);
double meg_timings_now(const meg_timings *t); /* seconds of the step's kernels, when it is done */
void meg_timings_end(meg_timings *t, const bool *keep, double scale, int *kernels);

/* As if all had been measured at another pace. */
void meg_timings_scale(meg_timings *t, double factor);

/* Collective. All ranks then have the timings of all: of each key the median over the ranks. */
meg_status meg_timings_share(meg_timings *t, meg_comm *c, meg_error *e);

int meg_timings_count(const meg_timings *t); /* keys */
void meg_timings_prices(const meg_timings *t, meg_prices *book);
/* `all`: also of families that the book has a model of. */
void meg_timings_models(const meg_timings *t, meg_prices *book, bool all);

#endif
