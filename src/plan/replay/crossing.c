/* Crossings: see crossing.h. Counted once for each distance of peers. */
#include "plan/replay/crossing.h"
#include "base/pool.h"

#include <stdlib.h>

typedef struct known {
    int distance;
    meg_crossing_ranks seen;
} known;

typedef struct list { /* of an actor */
    known *at;
    size_t count, room;
} list;

struct meg_crossings {
    const meg_replay_job *job;
    list *list; /* (actors) */
};

meg_crossings *meg_crossings_new(const meg_replay_job *job)
{
    meg_crossings *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (meg_crossings){job, calloc((size_t)job->actors, sizeof *c->list)};
    if (!c->list) abort();
    return c;
}

void meg_crossings_free(meg_crossings *c)
{
    if (!c) return;
    for (int i = 0; i < c->job->actors; i++)
        free(c->list[i].at);
    free(c->list);
    free(c);
}

/* At the end of a row there is none. */
static bool has_peer(const meg_actor *a, const meg_actor_row *row, int rank, int distance,
                     int ranks)
{
    int peer = rank + distance;
    if (peer < 0 || peer >= ranks) return false;
    bool within = a->rank / a->each == (a->rank + distance) / a->each; /* a replica */
    if (within && rank / a->each != peer / a->each) return false;
    if (!row) return true;
    int at = (rank % a->each - row->first) / row->stride % row->count + (distance > 0 ? 1 : -1);
    return at >= 0 && at < row->count;
}

/* The row of a mesh along which the peer is the next rank; NULL: it is no neighbour of that kind, though it may be as far
 * away: from the end of a row to the next stage. */
static const meg_actor_row *row_of(const meg_actor *a, int distance, int ranks)
{
    for (int i = 0; i < a->rows; i++)
        if (abs(distance) == a->row[i].stride && has_peer(a, &a->row[i], a->rank, distance, ranks))
            return &a->row[i];
    return NULL;
}

static meg_crossing_ranks count(const meg_replay_job *j, int who, int distance)
{
    const meg_actor *a = &j->actor[who];
    const meg_actor_row *row = row_of(a, distance, j->ranks);
    meg_crossing_ranks most = {0}, here = {0};
    for (int r = 0, node = 0; r < j->ranks; r++) {
        if (meg_machine_node(j->machine, r) != node)
            here = (meg_crossing_ranks){0}, node = meg_machine_node(j->machine, r);
        if (j->actor_of[r] != who || !has_peer(a, row, r, distance, j->ranks)) continue;
        if (meg_machine_node(j->machine, r + distance) == node) here.inside++;
        else here.out++;
        if (here.out > most.out) most.out = here.out;
        if (here.inside > most.inside) most.inside = here.inside;
    }
    return most;
}

meg_crossing_ranks meg_crossings_of(meg_crossings *c, int actor, int peer)
{
    list *l = &c->list[actor];
    int distance = peer - c->job->actor[actor].rank;
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].distance == distance) return l->at[i].seen;
    l->at = meg_grow(l->at, &l->room, l->count + 1, sizeof *l->at);
    l->at[l->count] = (known){distance, count(c->job, actor, distance)};
    return l->at[l->count++].seen;
}
