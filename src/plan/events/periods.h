/* Periods: lines of an entry that come again, for later micro-batches. What a rank does in one period it does in the next,
 * in the same memory or so many frames on, so that it need not be looked at again.
 *
 *     forward 0   backward 0   forward 1   backward 1   forward 2   backward 2      period 2, micro-batches + 1
 *     ... b0/0 f2/0  b1/1 f3/1   b2/0 f4/0  b3/1 f5/1 ...    (/frame)               period 4, micro-batches + 2
 *     f0/0  f1/1  f2/2  f3/3 ...                                                    period 1, both + 1
 */
#ifndef MEG_PLAN_EVENTS_PERIODS_H
#define MEG_PLAN_EVENTS_PERIODS_H

#include "plan/program/program.h"

enum {
    MEG_PERIOD = 128 /* lines, at most */
};

typedef struct meg_shift { /* by how much all lines of a period are later each time */
    int micro, frame;
} meg_shift;

/* How often the `period` lines that end before `line` come again from there on: same blocks and followers. */
int meg_period_repeats(const meg_entry *e, int line, int period, meg_shift *by);

#endif
