/* One number of many: what others on the machine spoil is at the ends. */
#ifndef MEG_EXEC_METERS_MEDIAN_H
#define MEG_EXEC_METERS_MEDIAN_H

#include <stdlib.h>

static inline int meg_ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* They are sorted in place. */
static inline double meg_median(double *number, size_t count)
{
    qsort(number, count, sizeof *number, meg_ascending);
    return count % 2 ? number[count / 2] : (number[count / 2 - 1] + number[count / 2]) / 2;
}

#endif
