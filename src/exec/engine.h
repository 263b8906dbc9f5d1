/* The engine: interprets programs. It dispatches and sees to messages, and never computes (but for
 * the sums of reductions); kernels run on the device's queue. It owns the arena of one plan on one
 * device.
 */
#ifndef MEG_EXEC_ENGINE_H
#define MEG_EXEC_ENGINE_H

#include "comm/comm.h"
#include "exec/traffic.h"
#include "plan/plan.h"

typedef struct meg_engine meg_engine;

typedef struct meg_fed { /* an input, labels or targets of a step */
    const char *name;    /* the graph's */
    const void *data;    /* (batch, c, d, h, w), of all ranks; NULL: this rank has none of it */
    meg_dtype dtype;     /* MEG_F32, MEG_F64 or MEG_I32; ids may be floats, whole ones below 2^24 */
    meg_box box;         /* what the array has of each sample; empty: all of it */
} meg_fed;

typedef struct meg_feed { /* of one step */
    int count;
    const meg_fed *fed; /* (count) */
    meg_scalars scalars;
    uint64_t seed, step;
    bool (*wish)(
        void *context); /* of this rank, asked for at the end of the step and told to all with
                                    the losses: to stop; NULL: never */
    void *context;
} meg_feed;

typedef struct meg_outcome {
    double loss;    /* weighted sum of the losses */
    double correct; /* right answers; 0 where targets are real */
    double error;   /* mean absolute error of real targets, else 0 */
    bool wish;      /* some rank had it */
} meg_outcome;

/* Collective over the ranks of `comm` (NULL: there is only one); it stays the caller's. */
meg_status meg_engine_new(meg_plan *p, meg_device *d, meg_comm *comm, meg_error *e, int fill,
                          meg_engine **out);
void meg_engine_free(meg_engine *x);

/* Runs one step of an entry (MEG_ENTRY_TRAIN, ...) as soon as other ranks' messages allow, and waits
 * for no more than them. After an error messages may still be under way: end the job. */
meg_status meg_engine_run(meg_engine *x, meg_error *e, int entry, const meg_feed *feed);

/* Steps that were run, at most 2, and whose outcome was not asked for yet. */
int meg_engine_waiting(const meg_engine *x);

/* The outcome of the oldest of these, when all ranks have run it. MEG_ENAN: the loss is no number,
 * on all ranks. */
meg_status meg_engine_outcome(meg_engine *x, meg_error *e, meg_outcome *out);

/* Collective: both. */
meg_status meg_engine_step(meg_engine *x, meg_error *e, int entry, const meg_feed *feed,
                           meg_outcome *out);

/* The same in two halves, of an entry whose losses are outside (meg_graph_late): forward returns when what others
 * need has gone, with the outputs there; backward goes on from there, when the feed, which must stay, has the targets.
 * Another step in between gives the first one up, which then leaves no trace. */
meg_status meg_engine_forward(meg_engine *x, meg_error *e, int entry, const meg_feed *feed);
bool meg_engine_paused(const meg_engine *x);
meg_status meg_engine_backward(meg_engine *x, meg_error *e);
void meg_engine_give_up(meg_engine *x);

/* A step fails when nothing has moved for so long; 300 s unless told. */
void meg_engine_watchdog(meg_engine *x, double seconds);

/* Held memory in plain format, in pieces: `visit` is given boxes that tile the value and their
 * elements (float, or double where the device's real is). */
typedef void meg_visit(void *context, const meg_box *box, void *data);

/* Values, gradients (keep_grads) and optimizer states by (value of the fused graph, role, index);
 * false: there is no such memory. `put` is called to fill, `get` to read. */
bool meg_engine_put(meg_engine *x, int value, meg_role role, int index, meg_visit *put,
                    void *context);
bool meg_engine_get(meg_engine *x, int value, meg_role role, int index, meg_visit *get,
                    void *context);

typedef struct meg_kept { /* what a step leaves of all its samples */
    int entry;
    meg_role role; /* MEG_ROLE_OUTPUT, MEG_ROLE_INPUT_GRADIENT */
    int index;
} meg_kept;

/* Boxes of it, with samples counted over the whole batch. Of an output those of all ranks tile the whole; gradients
 * by inputs are shares, to be added up. Nothing where the entry keeps none. */
void meg_engine_kept(meg_engine *x, const meg_kept *what, meg_visit *get, void *context);

int meg_engine_last(const meg_engine *x); /* the entry of the last step that was begun; -1: none */

/* Draws parameters and states anew: the same for every plan, since numbers are keyed by name and
 * element. Optimizer states become zero. */
void meg_engine_start(meg_engine *x, uint64_t seed);

/* Tells of messages and waiting, for traces. */
void meg_engine_observe(meg_engine *x, meg_traffic_observer *observer, void *context);

/* A parameter or state that holds numbers which are not finite; NULL: there is none. */
const char *meg_engine_unsound(const meg_engine *x);

/* Seconds so far, of all steps, in which the device had nothing to do because of messages. */
double meg_engine_exposed(const meg_engine *x);

/* The highest arena byte that differs from `fill`, plus 1. */
int64_t meg_engine_touched(meg_engine *x);

const meg_graph *meg_engine_graph(const meg_engine *x); /* the fused graph of `train` */
meg_dtype meg_engine_real(const meg_engine *x);
meg_device *meg_engine_device(const meg_engine *x);
meg_plan *meg_engine_plan(const meg_engine *x);
meg_arena *meg_engine_arena(const meg_engine *x);

#endif
