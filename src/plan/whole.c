/* The plan of a whole job: see whole.h. */
#include "plan/whole.h"
#include "plan/classes.h"

#include <stdlib.h>

enum {
    EACH = 16 /* of so many ranks each is its own actor: where its peers sit counts, too */
};

/* Rank r has the plan p. */
static void add_actor(meg_whole *w, const meg_plan *p)
{
    meg_actor_make(p, MEG_ENTRY_TRAIN, &w->actor[w->actors]);
    w->arena[w->actors++] = p->arena;
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
    size_t ranks = (size_t)in->world->ranks;
    meg_world last = {in->world->ranks - 1, in->world->ranks};
    meg_plan_input mine = *in;
    meg_plan *p = NULL;
    *out = (meg_whole){0};
    mine.world = &last;
    MEG_TRY(e, meg_plan_from(g, e, &mine, &p));
    *out = (meg_whole){.ranks = last.ranks,
                       .actor_of = calloc(ranks, sizeof *out->actor_of),
                       .actor = calloc(ranks, sizeof *out->actor),
                       .arena = calloc(ranks, sizeof *out->arena)};
    if (!out->actor_of || !out->actor || !out->arena) abort();
    meg_status status = add_ranks(out, e, p);
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
