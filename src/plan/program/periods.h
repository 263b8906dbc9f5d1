/* Periods: lines of an entry that come again, for later micro-batches. What a rank does in one period it does in the next,
 * in the same memory, so that it need not be looked at again.
 *
 *     forward 0   backward 0   forward 1   backward 1   forward 2   backward 2      period 2, micro-batches + 1
 *     ... b0 f2/0  b1 f3/1   b2 f4/0  b3 f5/1 ...    (/frame)                       period 4, micro-batches + 2
 */
#ifndef MEG_PLAN_PROGRAM_PERIODS_H
#define MEG_PLAN_PROGRAM_PERIODS_H

#include "plan/program/program.h"

enum {
    MEG_PERIOD = 128 /* lines, at most */
};

/* How often the `period` lines that end before `line` come again from there on: same blocks, frames and followers,
 * and by how many micro-batches all of them are later each time, in *later. */
int meg_period_repeats(const meg_entry *e, int line, int period, int *later);

#endif
