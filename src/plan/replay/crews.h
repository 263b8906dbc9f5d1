/* Who sums with whom, where actors stand for several ranks: a *crew* is the actors of a team. */
#ifndef MEG_PLAN_REPLAY_CREWS_H
#define MEG_PLAN_REPLAY_CREWS_H

#include "plan/replay/replay.h"

typedef struct meg_crew {
    uint64_t key; /* the same for all of them: teams of equal ranks are equal, too */
    int actors;
    int *who; /* (actors) */
} meg_crew;

/* Of each of the actor's teams. */
meg_crew *meg_crews_new(const meg_replay_job *job, const meg_actor *a);
void meg_crews_free(meg_crew *c, int teams);

#endif
