/* Timelines: what a rank did when, predicted or measured, as the lists that a report draws. */
#ifndef MEG_CLI_PAGE_TIMELINE_H
#define MEG_CLI_PAGE_TIMELINE_H

#include "device/device.h"

#include <stdio.h>

typedef enum meg_deed_kind {
    MEG_DEED_FORWARD,
    MEG_DEED_BACKWARD,
    MEG_DEED_AGAIN, /* made again in backward */
    MEG_DEED_UPDATE,
    MEG_DEED_OTHER, /* copies, additions, zeros */
    MEG_DEED_SEND,
    MEG_DEED_RECEIVE,
    MEG_DEED_SUM,
    MEG_DEED_KINDS
} meg_deed_kind;

typedef struct meg_deed {
    meg_deed_kind kind;
    const char *name; /* must stay */
    double begin, end;
    double waited; /* of traffic: for its turn and the other side */
    int64_t bytes; /* of it */
    int micro;     /* -1: not known */
} meg_deed;

typedef struct meg_deeds { /* empty: all zero */
    int count;
    size_t room;
    meg_deed *at;
} meg_deeds;

void meg_deeds_add(meg_deeds *d, const meg_deed *deed);
void meg_deeds_free(meg_deeds *d);

meg_deed_kind meg_deed_of(meg_code code, meg_pass pass);

/* How a list is written: times are seconds since `origin`; kernels, or traffic of one kind, that are shorter than
 * `least` become one with their neighbours, until it is as long as that. */
typedef struct meg_timing {
    double origin, least;
} meg_timing;

/* `"names": [..], "deeds": [[begin us, us, kind, name, micro, bytes, waited us, how many], ..]`.
 * Returns how many deeds there are then. */
int meg_deeds_write(const meg_deeds *d, const meg_timing *t, FILE *out);

#endif
