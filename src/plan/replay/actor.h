/* Actors: what a replay must know of ranks, taken from their plans, which may go then. */
#ifndef MEG_PLAN_REPLAY_ACTOR_H
#define MEG_PLAN_REPLAY_ACTOR_H

#include "comm/allreduce/allreduce.h"
#include "plan/events/events.h"
#include "plan/replay/transit.h"

typedef struct meg_actor_row { /* ranks along an axis of a mesh: neighbours exchange halos */
    int first;                 /* of the mesh, within a replica */
    int stride, count;
} meg_actor_row;

typedef struct meg_actor { /* what a replay must know of a rank, or of one of several equal ones */
    int rank;
    meg_events events;
    int *heir, *heirs; /* notes that wait for note i: heir[heirs[i]] .. heir[heirs[i + 1] - 1] */
    int each;          /* ranks of a replica */
    int rows;
    meg_actor_row *row; /* of all meshes that it is part of */
    int teams;
    meg_team *team; /* that sum with it, by number */
    const meg_allreduce_kind *allreduce;
    int64_t number_bytes; /* of what is summed */
    int threads;          /* of its device */
    double issue, post;   /* seconds of the host's thread for a kernel, for a message or sum */
    double wake;   /* seconds until a device that has nothing to do begins with what it is given, */
    double resume; /* and where it stood still for a message or sum */
} meg_actor;

void meg_actor_make(const meg_plan *p, int entry, meg_actor *out);
void meg_actor_clear(meg_actor *a);

/* What the sum of a note costs. */
meg_transit meg_actor_sum(const meg_actor *a, int note, const meg_machine *m, meg_transits *known);

#endif
