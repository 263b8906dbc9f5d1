/* Packed events: the list of a rank (events.h) in a fifth of the memory, for who keeps those of many ranks. Notes that
 * differ in their micro-batch alone are of one *kind*, which is kept once. What kernels take, and the members of
 * buckets, are left out.
 */
#ifndef MEG_PLAN_EVENTS_PACKED_H
#define MEG_PLAN_EVENTS_PACKED_H

#include "plan/events/events.h"

typedef struct meg_packed_note {
    int32_t kind, micro;
} meg_packed_note;

typedef struct meg_packed {
    int notes, steps, kinds;
    meg_traffic_note *kind; /* (kinds) of micro-batch 0, and standing behind none */
    meg_packed_note *note;
    int *first; /* (notes + 1) of the list `after` */
    int *after; /* as in events.h */
    int *step;
} meg_packed;

void meg_packed_make(const meg_events *v, meg_packed *out);
void meg_packed_clear(meg_packed *p);
meg_traffic_note meg_packed_at(const meg_packed *p, int note);
meg_code meg_packed_code(const meg_packed *p, int note);

/* As it was, but for what is left out. */
void meg_packed_open(const meg_packed *p, meg_events *out);

#endif
