/* Contiguous runs: how kernels walk a box that several tensors share without an index per element.
 *
 *     part    a box inside the boxes of all tensors
 *     run     elements that lie side by side in each of them: whole rows, planes or more, as far
 *             as the inner axes of all tensors are exactly the part's
 *
 *     meg_runs r = meg_runs_of(part, 2, (const meg_array *[]){x, y});
 *     for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p))
 *         row(meg_real_at(y, p), meg_real_at(x, p), r.length);
 */
#ifndef MEG_OPS_COMMON_RUNS_H
#define MEG_OPS_COMMON_RUNS_H

#include "ops/common/real.h"

#include <string.h>

typedef struct meg_runs {
    meg_box starts; /* the first index of each run */
    int64_t length;
} meg_runs;

/* The shortest of the tensors' runs (graph/box.h) are side by side in all of them. */
static inline meg_runs meg_runs_of(meg_box part, int count, const meg_array *const t[])
{
    meg_runs r = {part, 1};
    for (int i = 0; i < count && !meg_box_empty(&part); i++) {
        meg_runs own;
        own.length = meg_box_runs(&t[i]->box, &part, &own.starts);
        if (i == 0 || own.length < r.length) r = own;
    }
    return r;
}

static inline real *meg_real_at(const meg_array *t, const int64_t p[MEG_AXES])
{
    return (real *)t->data + meg_box_at(&t->box, p);
}

/* Of a tensor with one entry per channel, or per group and channel. */
static inline real *meg_channel_at(const meg_array *t, int64_t n, int64_t c)
{
    return meg_real_at(t, (const int64_t[MEG_AXES]){n, c, 0, 0, 0});
}

/* Zeroes a tensor that is larger than the part which the kernel is about to set: the rest of its
 * storage gets no contribution from this work. */
static inline void meg_clear_beyond(const meg_array *t, const meg_box *part)
{
    if (t->data && !meg_box_equal(&t->box, part))
        memset(t->data, 0, (size_t)meg_box_size(&t->box) * sizeof(real));
}

static inline void meg_fill_part(const meg_array *t, meg_box part, real value)
{
    int64_t p[MEG_AXES];
    meg_runs r = meg_runs_of(part, 1, &t);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        real *at = meg_real_at(t, p);
        for (int64_t i = 0; i < r.length; i++)
            at[i] = value;
    }
}

/* The sum of (x - center)^power over a part, power 1 or 2. */
static inline double meg_sum_power(const meg_array *x, meg_box part, double center, int power)
{
    int64_t p[MEG_AXES];
    double sum = 0;
    meg_runs r = meg_runs_of(part, 1, &x);
    for (bool on = meg_box_first(&r.starts, p); on; on = meg_box_next(&r.starts, p)) {
        const real *at = meg_real_at(x, p);
        if (power == 1)
            for (int64_t i = 0; i < r.length; i++)
                sum += (double)at[i] - center;
        else
            for (int64_t i = 0; i < r.length; i++)
                sum += ((double)at[i] - center) * ((double)at[i] - center);
    }
    return sum;
}

#endif
