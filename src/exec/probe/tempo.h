/* At which pace the machine was while steps ran, by looks at the reference loop between them (exec/meters/drift.h).
 * A machine that others use has several paces, for seconds each: where two processors are one core for a while, the
 * loop takes 1.8 times as long and kernels 1.2 to 1.6 times, each another. No factor mends that. So steps at the
 * pace of the book count; all of them, scaled by the loop, only where too few are. */
#ifndef MEG_EXEC_PROBE_TEMPO_H
#define MEG_EXEC_PROBE_TEMPO_H

#include <stdbool.h>

typedef struct meg_tempo {
    const double
        *look; /* seconds of a turn: one before each `every` steps, and one behind the last */
    int looks, every;
    double turn; /* the book's; 0: any pace is right */
} meg_tempo;

/* Of so many steps those that ran between two looks at the book's pace: keep[i], which may be NULL. */
int meg_tempo_keep(const meg_tempo *p, int steps, bool *keep);

/* How much quicker the machine was when the book's loop was measured: by the median of the looks around steps that
 * are kept. A single look is of some milliseconds, in which anything can happen. */
double meg_tempo_quicker(const meg_tempo *p, int steps, const bool *keep);

#endif
