/* The plan of a whole job: see whole.h. */
#include "plan/whole.h"
#include "plan/classes/classes.h"
#include "plan/distribute/distribute.h"
#include "plan/partition/placement.h"

#include <stdlib.h>

enum {
    EACH = 16 /* of so many ranks each is its own actor: where its peers sit counts, too */
};

/* Instructions that something is worth, in work: they were measured. */
static const double NODE = 10;   /* while what ranks have in common is made */
static const double NOTE = 4;    /* of a replay */
static const double TERM = 0.02; /* a rank of a sum */
static const double PLACE =
    0.06; /* a node on a rank of the replica, while one of them is lowered */
static const double ATTEMPTS = 6; /* lowerings of a rank whose blocks are run again, about */

/* Rank r has the plan p. */
static double work_of(const meg_plan *p)
{
    double work = 0;
    for (int i = 0; i < MEG_ENTRIES; i++)
        for (int k = 0; k < p->entry[i].stations; k++)
            work += p->entry[i].station[k].instrs;
    if (p->options.recompute == MEG_RECOMPUTE_BLOCKS) work *= ATTEMPTS;
    return work + PLACE * p->each * p->source->nodes;
}

static double replay_of(const meg_events *v)
{
    double sums = 0;
    for (int i = 0; i < v->notes; i++)
        if (v->note[i].code == MEG_REDUCE) sums += v->note[i].peer;
    return NOTE * v->notes + TERM * sums;
}

static void add_actor(meg_whole *w, const meg_plan *p)
{
    meg_actor *a = &w->actor[w->actors];
    meg_actor_make(p, MEG_ENTRY_TRAIN, a);
    w->work += work_of(p);
    w->replay += replay_of(&a->events);
    w->arena[w->actors++] = p->arena;
}

static meg_whole whole_new(int ranks, const meg_graph *g)
{
    size_t count = (size_t)ranks;
    meg_whole w = {.ranks = ranks,
                   .actor_of = calloc(count, sizeof *w.actor_of),
                   .actor = calloc(count, sizeof *w.actor),
                   .arena = calloc(count, sizeof *w.arena),
                   .work = NODE * g->nodes};
    if (!w.actor_of || !w.actor || !w.arena) abort();
    return w;
}

/* Ranks whose class has an actor already get it; others become one. */
static meg_status add_ranks(meg_whole *w, meg_error *e, meg_plan *p)
{
    meg_classes *c = w->ranks > EACH ? meg_classes_new(p) : NULL;
    meg_status status = MEG_OK;
    for (int r = w->ranks - 1; r >= 0 && status == MEG_OK; r--) {
        bool own = !c || c->last[c->of[r]] == r;
        if (!own) w->actor_of[r] = w->actor_of[c->last[c->of[r]]];
        if (!own) continue;
        if (r < w->ranks - 1) status = meg_plan_turn(p, e, r);
        w->actor_of[r] = w->actors;
        if (status == MEG_OK) add_actor(w, p);
    }
    if (c) meg_classes_free(c);
    return status;
}

meg_status meg_whole_make(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          meg_whole *out)
{
    meg_world last = {in->world->ranks - 1, in->world->ranks};
    meg_plan_input mine = *in;
    meg_plan *p = NULL;
    *out = (meg_whole){0};
    mine.world = &last;
    MEG_TRY(e, meg_plan_from(g, e, &mine, &p));
    *out = whole_new(last.ranks, g);
    meg_status status = add_ranks(out, e, p);
    meg_plan_destroy(p);
    if (status != MEG_OK) meg_whole_free(out);
    return status;
}

/* ---- one rank for those with the same stages ---- */

/* The replica with the most samples; of several, the last: the first may have more to count. */
static int usual_replica(const meg_plan *p)
{
    const meg_entry *e = &p->entry[MEG_ENTRY_TRAIN];
    const int64_t *at = meg_plan_samples(p, e->batch / e->micro, p->replicas);
    int most = 0;
    for (int r = 1; r < p->replicas; r++)
        if (at[r + 1] - at[r] >= at[most + 1] - at[most]) most = r;
    return most;
}

/* Within a replica: the middle of the first mesh whose ranks are those of the track, if there is one. */
static int middle_of(const meg_plan *p, int track)
{
    int first = p->track_first[track], count = p->track_first[track + 1] - first;
    for (int i = 0; i < p->segments; i++) {
        const meg_segment *s = &p->segment[i];
        int at = 0;
        if (p->place[s->stage] != first || s->size != count) continue;
        for (int a = 0; a < MEG_AXES; a++)
            at = at * s->dim[a] + s->dim[a] / 2;
        return first + at;
    }
    return first + count / 2;
}

static meg_status add_tracks(meg_whole *w, meg_error *e, meg_plan *p, int64_t limit)
{
    int replica = usual_replica(p);
    for (int t = 0; t < p->tracks; t++) {
        MEG_TRY(e, meg_plan_turn(p, e, replica * p->each + middle_of(p, t)));
        for (int r = 0; r < w->ranks; r++)
            if (r % p->each >= p->track_first[t] && r % p->each < p->track_first[t + 1])
                w->actor_of[r] = w->actors;
        add_actor(w, p);
        if (limit && p->arena > limit) break;
    }
    return MEG_OK;
}

meg_status meg_whole_sketch(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                            int64_t limit, meg_whole *out)
{
    meg_plan *p = NULL;
    if (in->world->ranks <= EACH) return meg_whole_make(g, e, in, out);
    *out = (meg_whole){0};
    MEG_TRY(e, meg_plan_begin(g, e, in, true, &p));
    *out = whole_new(in->world->ranks, g);
    meg_status status = add_tracks(out, e, p, limit);
    meg_plan_destroy(p);
    if (status != MEG_OK) meg_whole_free(out);
    return status;
}

void meg_whole_free(meg_whole *w)
{
    for (int i = 0; i < w->actors; i++)
        meg_actor_clear(&w->actor[i]);
    free(w->actor);
    free(w->arena);
    free(w->actor_of);
    *w = (meg_whole){0};
}

int64_t meg_whole_bytes(const meg_whole *w)
{
    int64_t most = 0;
    for (int i = 0; i < w->actors; i++)
        if (w->arena[i] > most) most = w->arena[i];
    return most;
}

int64_t meg_whole_missing(const meg_whole *w, const int64_t limit[], int *rank)
{
    int64_t most = INT64_MIN;
    for (int r = 0; r < w->ranks; r++) {
        int64_t missing = w->arena[w->actor_of[r]] - limit[r];
        if (missing > most) most = missing, *rank = r;
    }
    return most;
}

meg_status meg_whole_replay(const meg_whole *w, meg_error *e, const meg_machine *m, meg_replay *out)
{
    const meg_replay_job job = {m, w->ranks, w->actors, w->actor, w->actor_of};
    return meg_replay_run(&job, e, NULL, NULL, out);
}
