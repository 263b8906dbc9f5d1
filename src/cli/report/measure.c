/* Measures: see measure.h. */
#define _GNU_SOURCE
#include "cli/report/measure.h"
#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

void meg_measure_reserve(meg_measure *m, size_t count)
{
    m->at = meg_grow(m->at, &m->room, count, sizeof *m->at);
}

void meg_measure_add(meg_measure *m, double value)
{
    meg_measure_reserve(m, m->count + 1);
    m->at[m->count++] = value;
}

void meg_measure_free(meg_measure *m)
{
    free(m->at);
    *m = (meg_measure){0};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double meg_measure_median(const meg_measure *m)
{
    if (m->count == 0) return 0;
    meg_measure sorted = {0};
    meg_measure_reserve(&sorted, m->count);
    memcpy(sorted.at, m->at, m->count * sizeof *m->at);
    qsort(sorted.at, m->count, sizeof *m->at, ascending);
    double median = (sorted.at[m->count / 2] + sorted.at[(m->count - 1) / 2]) / 2;
    meg_measure_free(&sorted);
    return median;
}

double meg_measure_mean(const meg_measure *m)
{
    double sum = 0;
    for (size_t i = 0; i < m->count; i++)
        sum += m->at[i];
    return m->count ? sum / (double)m->count : 0;
}

double meg_measure_least(const meg_measure *m)
{
    double least = m->count ? m->at[0] : 0;
    for (size_t i = 1; i < m->count; i++)
        least = fmin(least, m->at[i]);
    return least;
}

double meg_measure_most(const meg_measure *m)
{
    double most = m->count ? m->at[0] : 0;
    for (size_t i = 1; i < m->count; i++)
        most = fmax(most, m->at[i]);
    return most;
}

double meg_measure_deviation(const meg_measure *m)
{
    double mean = meg_measure_mean(m), sum = 0;
    for (size_t i = 0; i < m->count; i++)
        sum += (m->at[i] - mean) * (m->at[i] - mean);
    return m->count > 1 ? sqrt(sum / (double)(m->count - 1)) : 0;
}

int64_t meg_peak_rss(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss * 1024;
}

void meg_duration_text(double seconds, meg_duration text)
{
    long long s = seconds < 0 ? 0 : seconds > 1e12 ? (long long)1e12 : (long long)(seconds + 0.5);
    if (s < 3600) snprintf(text, sizeof(meg_duration), "%lld:%02lld", s / 60, s % 60);
    else snprintf(text, sizeof(meg_duration), "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}
