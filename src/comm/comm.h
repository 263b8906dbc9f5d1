/* Ranks that talk: messages between them, and the few collective calls that are built on messages.
 *
 *     kind      ranks are                        made by
 *     alone     one process                      meg_comm_open, without a launcher
 *     threads   threads of one process           meg_comm_threads: for tests of many plans
 *     mpi       processes, one plug-in per MPI   meg_comm_open, under mpirun or srun
 *
 * One thread of a rank uses its communicator at a time; only meg_comm_wake may come from another.
 * No call blocks on a peer except the collective ones and meg_comm_wait; those sleep.
 */
#ifndef MEG_COMM_COMM_H
#define MEG_COMM_COMM_H

#include "base/status.h"
#include "comm/number.h"

typedef struct meg_comm meg_comm;
typedef struct meg_letter meg_letter; /* under way */

/* The communicator of the job: MPI's if a launcher started this process (or MEGALITH_MPI names a
 * library: openmpi, mpich; none: no MPI), else one rank alone. Collective. Freeing it also ends MPI
 * if this call began it, and MPI begins only once in a process: open one, free it last. */
meg_status meg_comm_open(meg_error *e, meg_comm **out);
/* On a copy of one that others have, by its Fortran handle: they have begun MPI, and end it after this one is freed.
 * Collective over its ranks. */
meg_status meg_comm_open_on(meg_error *e, int fortran, meg_comm **out);
meg_status meg_comm_alone(meg_error *e, meg_comm **out);

/* What the environment says, before anything is opened: did a launcher start this process, and as
 * which rank? */
bool meg_comm_launched(int *rank);
bool meg_comm_has(const char *library); /* Can meg_comm_open use it? */
const char *
meg_comm_mpi(int i); /* those it may be able to: "openmpi", "mpich"; NULL past the end */

typedef struct meg_threads_options {
    int ranks;
    int per_node;    /* ranks on each imaginary node; 0: all on one */
    bool rendezvous; /* a send is done only when it was received: shows who relies on buffers */
    int tags;        /* as few as some MPI may have; 0: as many as there are numbers */
} meg_threads_options;

/* One communicator for each rank, each for a thread of its own. All are freed by their threads, or
 * by anybody when these have ended. */
meg_status meg_comm_threads(meg_error *e, const meg_threads_options *o, meg_comm *out[]);

/* Collective, also for the ranks that leave: colour below 0 gives *out = NULL. Ranks keep their
 * order. */
meg_status meg_comm_split(meg_comm *c, meg_error *e, int colour, meg_comm **out);

/* Collective; nothing may be under way. */
void meg_comm_free(meg_comm *c);

/* Ends the whole job: says why on stderr, does not return. */
_Noreturn void meg_comm_abort(meg_comm *c, int code, const char *why);

int meg_comm_rank(const meg_comm *c);
int meg_comm_size(const meg_comm *c);
int meg_comm_nodes(const meg_comm *c);
const int *meg_comm_node(const meg_comm *c);     /* (size): which node a rank is on, from 0 up */
const char *meg_comm_library(const meg_comm *c); /* "Open MPI v4.1.4", "threads", "alone" */
int meg_comm_tags(const meg_comm *c);            /* tags are 0 .. this - 1 */

/* ---- messages ---- */

/* Messages of the same (sender, receiver, tag) arrive in order; others in any order. `data` belongs
 * to the message until it is done. The sizes of both sides must be equal: a receiver finds another
 * size an error. A rank may not send to itself. */
meg_status meg_comm_send(meg_comm *c, meg_error *e, int peer, int tag, const void *data,
                         int64_t bytes, meg_letter **out);
meg_status meg_comm_recv(meg_comm *c, meg_error *e, int peer, int tag, void *data, int64_t bytes,
                         meg_letter **out);

/* Never blocks. When done, or failed, the message is freed and *m is NULL; NULL is done. */
meg_status meg_comm_test(meg_comm *c, meg_error *e, meg_letter **m, bool *done);

/* Gives a message up, for a rank that ends after an error: its memory is no longer written to, the
 * other side may wait for ever. *m becomes NULL, which may also be passed. */
void meg_comm_drop(meg_comm *c, meg_letter **m);

/* Sleeps until it is done. */
meg_status meg_comm_wait(meg_comm *c, meg_error *e, meg_letter **m);

/* Returns when something may have happened, meg_comm_wake was called since the last sleep, or the
 * time is up; the rank's processor is free meanwhile. */
meg_status meg_comm_sleep(meg_comm *c, meg_error *e, double seconds);
/* The same where nobody waits for messages: it looks for them once, at the end, so that those who
 * compute on this core are not disturbed. */
meg_status meg_comm_doze(meg_comm *c, meg_error *e, double seconds);
void meg_comm_crowd(meg_comm *c); /* ranks outnumber the processors that they share: who waits
                                      sleeps soon, and leaves them to those that work */
void meg_comm_wake(meg_comm *c); /* from any thread of the rank */

/* The library's own allreduce over all ranks, in place, as one message: calls match in their order.
 */
meg_status meg_comm_allreduce_native(meg_comm *c, meg_error *e, const meg_numbers *data,
                                     meg_combine combine, meg_letter **out);

/* ---- collective calls ---- */

/* If e->status is not MEG_OK on some rank, all get the status and message of the lowest of these,
 * the message with "rank 3: " in front unless all ranks say the same. */
meg_status meg_comm_agree(meg_comm *c, meg_error *e);

/* `data` of rank `root` goes to all. */
meg_status meg_comm_share(meg_comm *c, meg_error *e, int root, void *data, int64_t bytes);

/* all[r] (bytes each) becomes `mine` of rank r, on all ranks. */
meg_status meg_comm_gather(meg_comm *c, meg_error *e, const void *mine, int64_t bytes, void *all);

/* Returns when all ranks have called it. */
meg_status meg_comm_barrier(meg_comm *c, meg_error *e);

#endif
