/* The communication of one rank's program, without its kernels: what it posts and what it waits
 * for, in order, over one step. Pure data, small, and the same in every run. Before the first step rank
 * 0 collects the lists of all ranks (exec/prove.c) and checks them together (meg_job_check, job.c).
 *
 * The walk is the engine's own (walk.h): receives are posted as soon as their frame is free, sends and
 * reductions when their turn comes; traffic starts when none that was posted before has
 * its memory or its reduction, and a kernel waits for traffic whose memory it touches (a FREE waits
 * for nothing). Traffic is taken to end only when somebody waits for it, which is the worst case.
 */
#ifndef MEG_PLAN_EVENTS_EVENTS_H
#define MEG_PLAN_EVENTS_EVENTS_H

#include "plan/program/plan.h"

/* Seconds between two looks of the engine at its messages while its device works. */
#define MEG_EVENTS_LOOK 2e-3

typedef struct meg_traffic_note { /* one message or reduction of a step */
    int32_t code;                 /* MEG_SEND, MEG_RECV, MEG_REDUCE */
    int32_t peer;                 /* a rank; REDUCE: how many take part */
    int32_t tag;                  /* with the micro-batch */
    int32_t value;                /* of the graph, for messages; -1: several */
    int32_t micro;                /* 0 also of what is summed up once, with the last one */
    int32_t after,
        afters;    /* of the list `after`: earlier ones that must be done before it starts */
    int32_t how;   /* REDUCE: how it is made: half, largest or sum */
    int32_t party; /* REDUCE: the number of its team in the rank's entry */
    int32_t format;
    int32_t member, members; /* of a bucket, in the list `member`; else none */
    int64_t bytes;
    uint64_t team; /* REDUCE: a hash of its ranks */
    uint64_t what; /* a hash of the elements and their order: the same on all sides */
    int32_t crew;  /* REDUCE: its team, by number in the entry; else -1 */
    uint64_t like; /* the same but for where boxes lie: the same in all ranks of a class */
} meg_traffic_note;

typedef struct meg_member_note { /* of a bucket: by this a message names what differs */
    int32_t value, format;
    uint64_t what;
} meg_member_note;

typedef struct meg_events {
    int rank;
    int notes, steps, afters, members;
    meg_traffic_note *note;
    int *step;               /* i: post note i; -1 - i: wait until it is done */
    double *before;          /* (steps + 1) seconds of the kernels issued since the step before; the
                                 last: behind all steps. Of this rank alone: prove.c does not send it */
    int *issued;             /* (steps + 1) how many kernels these are */
    int *after;              /* notes, of all notes one after the other */
    meg_member_note *member; /* likewise */
    size_t note_room, step_room, before_room, issued_room, after_room, member_room;
} meg_events;

/* Of elements and their order in memory. */
uint64_t meg_elements_hash(const meg_box *box, meg_dtype dtype, meg_format format, int64_t bytes);

void meg_events_of(const meg_plan *p, int entry, meg_events *out);
/* The same, but micro-batches that are alike are walked through one by one: for tests. */
void meg_events_walk(const meg_plan *p, int entry, meg_events *out);
void meg_events_clear(meg_events *v);

/* ---- all ranks ---- */

/* The error of a rank that waits for ever. */
meg_status meg_stuck(meg_error *e, const char *name, int rank, const meg_traffic_note *n);

/* Proves, with messages that end only when both sides are there: every message has its other side,
 * with the same elements in the same order; every reduction has all its ranks, and sums like with
 * like; nobody waits for ever. A rank ends its step
 * with nothing under way, so what holds for one step holds for all. The error names ranks, values,
 * micro-batches, and formats of what does not lie alike. list[r] is rank r's. */
meg_status meg_job_check(meg_error *e, const meg_graph *g, int ranks, const meg_events list[]);

#endif
