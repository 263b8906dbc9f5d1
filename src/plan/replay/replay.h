/* The replay: how long a step takes on a described machine. The programs of all ranks run on a virtual clock,
 * by the walk that the engine uses (events.h): kernels last as long as they are priced, messages as long
 * as the machine's links say, and whoever waits in a real step waits here.
 *
 *     rank      its kernels run one behind the other; what it posts begins when the kernels before it are done;
 *               a kernel whose memory traffic touches waits for the traffic (exec/engine.c)
 *     message   begins when both sides are there; latency, then its bytes at the link's bandwidth
 *     sum       begins when all its ranks are there; as long as the algorithm's formula says (allreduce.h)
 *     shared    whatever moves at one moment shares links, and kernels and copies share a rank's cores: where more
 *               is wanted than there is, all that want it are slowed down alike
 *
 * Several equal ranks may be given as one (an *actor*): then a message to any of them is one to it.
 */
#ifndef MEG_PLAN_REPLAY_REPLAY_H
#define MEG_PLAN_REPLAY_REPLAY_H

#include "machine/description.h"
#include "plan/replay/actor.h"

typedef struct meg_replay_job {
    const meg_machine *machine; /* rank r is on node r / machine->ranks */
    int ranks, actors;
    const meg_actor *actor; /* (actors) */
    const int *actor_of;    /* (ranks); NULL: rank r is actor r */
} meg_replay_job;

typedef enum meg_replay_what {
    MEG_REPLAY_WORK,    /* kernels, between two steps of the rank's events */
    MEG_REPLAY_TRAFFIC, /* a message or sum: told of each of its sides */
} meg_replay_what;

typedef struct meg_replay_span { /* told in the order in which they end */
    meg_replay_what what;
    int actor;
    int number; /* WORK: of the event that it stands before; TRAFFIC: of the note */
    int step;   /* of the job: several follow one another */
    double posted, begin, end;
} meg_replay_span;

typedef void meg_replay_observer(void *context, const meg_replay_span *span);

typedef struct meg_replay_times { /* of an actor, in a step: seconds */
    double compute;               /* kernels, as long as they would take alone */
    double exposed;               /* the device is idle, and what it waits for is on its way */
    double bubble; /* the device is idle, and others have not begun what it waits for */
} meg_replay_times;

typedef struct meg_replay {
    double seconds;          /* of a step, in the long run */
    meg_replay_times *times; /* (actors) */
    int last;                /* the actor that ends last */
} meg_replay;

/* times is to be freed. An error: ranks wait for one another for ever. */
meg_status meg_replay_run(const meg_replay_job *job, meg_error *e, meg_replay_observer *observer,
                          void *context, meg_replay *out);

#endif
