/* Crews: see crews.h. */
#include "plan/replay/crews.h"
#include "base/random.h"

#include <stdlib.h>

/* Known by its actors, and by how many ranks it has, since one of a replica has the same actors as one of all
 * replicas. seen: (actors of the job) the last team of which each was found to be, counted from 1. */
static meg_crew crew_of(const meg_replay_job *job, const meg_actor *a, int team, int *seen)
{
    const meg_team *t = &a->team[team];
    int most = t->count < job->actors ? t->count : job->actors;
    meg_crew c = {.key = (uint64_t)t->count, .who = calloc((size_t)most + 1, sizeof(int))};
    if (!c.who) abort();
    for (int i = 0; i < t->count; i++) {
        int who = job->actor_of ? job->actor_of[t->rank[i]] : t->rank[i];
        if (seen[who] == team + 1) continue;
        seen[who] = team + 1;
        c.who[c.actors++] = who;
        c.key += meg_hash_word(meg_hash("team"), (uint64_t)who);
    }
    return c;
}

meg_crew *meg_crews_new(const meg_replay_job *job, const meg_actor *a)
{
    meg_crew *crew = calloc((size_t)a->teams + 1, sizeof *crew);
    int *seen = calloc((size_t)job->actors, sizeof *seen);
    if (!crew || !seen) abort();
    for (int i = 0; i < a->teams; i++)
        crew[i] = crew_of(job, a, i, seen);
    free(seen);
    return crew;
}

void meg_crews_free(meg_crew *c, int teams)
{
    for (int i = 0; i < teams; i++)
        free(c[i].who);
    free(c);
}
