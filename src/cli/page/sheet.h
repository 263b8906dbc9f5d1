/* The sheet of a rank: its program of a train step in words, as a report or a trace shows it: which kernel runs after how
 * many seconds of kernels, what its messages are called, how much of its memory is in use, and what is
 * alive where most is. Taken from a plan, which may go then.
 */
#ifndef MEG_CLI_PAGE_SHEET_H
#define MEG_CLI_PAGE_SHEET_H

#include "cli/page/timeline.h"
#include "plan/replay/critical.h"

typedef struct meg_sheet_kernel {
    double from, to; /* seconds of kernels since the step began */
    const char *name, *node;
    meg_deed_kind kind;
    int micro;
} meg_sheet_kernel;

typedef struct meg_sheet_traffic { /* in the order of the notes */
    const char *name, *other;      /* "send conv1 to rank 3"; "peer" or "ranks" */
    int who;                       /* the peer, or how many */
} meg_sheet_traffic;

typedef struct meg_sheet_memory { /* in use from here on */
    double from;                  /* seconds of kernels */
    int64_t bytes;
} meg_sheet_memory;

typedef struct meg_sheet_alive { /* of the largest moment */
    const char *name, *what;     /* what: "weights", "gradient", "working memory" */
    int64_t bytes;
    int micro; /* -1: of the whole step, or always there */
} meg_sheet_alive;

typedef struct meg_sheet {
    meg_pool *pool;
    int rank;
    int64_t arena;
    int kernels, traffics, memories, alives;
    meg_sheet_kernel *kernel;
    meg_sheet_traffic *traffic;
    meg_sheet_memory *memory;
    meg_sheet_alive *alive; /* the largest first */
    int peak;               /* the memory's largest */
    size_t kernel_room, traffic_room, memory_room, alive_room;
} meg_sheet;

meg_sheet *meg_sheet_new(const meg_plan *p);
void meg_sheet_free(meg_sheet *s);

/* ---- on a replay's clock ---- */

typedef struct meg_sheet_clock { /* of an actor, in the last step of a replay */
    int spans;
    const meg_replay_span **span; /* of work */
    double *from;                 /* (spans + 1) seconds of kernels before each */
} meg_sheet_clock;

void meg_sheet_clock_begin(meg_sheet_clock *c, const meg_actor *a,
                           const struct meg_replay_told *told);
void meg_sheet_clock_free(meg_sheet_clock *c);
/* When is so much work done, of kernels around `middle`? */
double meg_sheet_clock_at(const meg_sheet_clock *c, double work, double middle);

int meg_replay_last_step(const struct meg_replay_told *told);

/* All that the actor does in the last step. Names are the sheet's. */
void meg_sheet_deeds(const meg_sheet *s, const meg_actor *a, const struct meg_replay_told *told,
                     meg_deeds *out);

#endif
