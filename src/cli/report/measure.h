/* Measured numbers and what is made of them. */
#ifndef MEG_CLI_REPORT_MEASURE_H
#define MEG_CLI_REPORT_MEASURE_H

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

typedef struct meg_measure {
    double *at;
    size_t count, room;
} meg_measure;

void meg_measure_reserve(meg_measure *m, size_t count); /* no allocation up to so many */
void meg_measure_add(meg_measure *m, double value);
void meg_measure_free(meg_measure *m);

double meg_measure_median(const meg_measure *m); /* 0 of nothing, like the others */
double meg_measure_mean(const meg_measure *m);
double meg_measure_least(const meg_measure *m);
double meg_measure_most(const meg_measure *m);
double meg_measure_deviation(const meg_measure *m); /* of a sample: n - 1 */

int64_t meg_peak_rss(void); /* bytes of this process */

typedef char meg_duration[32];
void meg_duration_text(double seconds, meg_duration text); /* "2:05", "1:02:03" */

#endif
