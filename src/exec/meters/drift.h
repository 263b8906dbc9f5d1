/* A reference loop: a fixed piece of work, in which nothing of this program is to be measured but the machine.
 * How long it takes now against how long it took when the prices were made is how much the machine has
 * drifted since: others have its cores, its memory, its caches.
 *
 *     each turn     multiply-adds in the first cache, a triad through memory
 *     each bunch    a message to a neighbour and back, too
 *
 * All ranks do it at once and in step, as they do in training: a rank that is held up holds up the others.
 */
#ifndef MEG_EXEC_METERS_DRIFT_H
#define MEG_EXEC_METERS_DRIFT_H

#include "comm/comm.h"
#include "device/device.h"

typedef struct meg_drift meg_drift;

enum {
    MEG_DRIFT_BUNCH =
        10 /* turns that are computed at once: waking the worker is no part of the pace */
};

meg_status meg_drift_new(meg_device *d, meg_comm *c, meg_error *e, meg_drift **out);
void meg_drift_free(meg_drift *x);

/* Of the ranks that go round together; NULL: one alone. */
meg_comm *meg_drift_comm(const meg_drift *x);

typedef struct meg_drift_time { /* seconds of a turn, somewhat less than a millisecond */
    double wall;                /* from turn to turn: others have the cores, neighbours are late */
    double work; /* of the worker's own time: others have caches, memory, half of a core */
} meg_drift_time;

/* Collective. The mean of the turns of so many bunches, the same on all ranks. */
meg_status meg_drift_look(meg_drift *x, meg_error *e, int bunches, meg_drift_time *out);

/* A machine that others use has several paces: where two processors are one core for a while, all takes half as long
 * again. Whether two figures of `work` are of one pace. */
bool meg_drift_same(double turn, double other);

/* Of all looks so far, of which there is one at least: the pace that a quarter of them had, or a quicker one. */
double meg_drift_calm(const meg_drift *x);

/* The medians of the looks at this pace; where there was none, of all. */
meg_drift_time meg_drift_usual(const meg_drift *x, double turn);

#endif
