/* The plan of a whole job: see whole.h. */
#include "plan/whole.h"
#include "base/random.h"
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

/* Which ranks are one actor: those of one class, or (apart) those at one place of replicas all of whose places have the
 * same classes. */
static void name_ranks(const meg_classes *c, int each, bool apart, uint64_t name[])
{
    for (int r = 0; r < c->ranks; r += each) {
        uint64_t replica = meg_hash("replica");
        for (int i = 0; i < each; i++)
            replica = meg_hash_word(replica, (uint64_t)c->of[r + i]);
        for (int i = 0; i < each; i++)
            name[r + i] = apart ? meg_hash_word(replica, (uint64_t)i) : (uint64_t)c->of[r + i];
    }
}

static int find_actor(const meg_whole *w, const uint64_t name[], int rank)
{
    for (int i = 0; i < w->actors; i++)
        if (name[w->actor[i].rank] == name[rank]) return i;
    return -1;
}

static meg_status add_ranks(meg_whole *w, meg_error *e, meg_plan *p, bool apart)
{
    meg_classes *c = w->ranks > EACH ? meg_classes_new(p) : NULL;
    uint64_t *name = calloc((size_t)w->ranks, sizeof *name);
    meg_status status = MEG_OK;
    if (!name) abort();
    if (c) name_ranks(c, p->each, apart, name);
    for (int r = w->ranks - 1; r >= 0 && status == MEG_OK; r--) {
        int known = c ? find_actor(w, name, r) : -1;
        w->actor_of[r] = known < 0 ? w->actors : known;
        if (known >= 0) continue;
        if (r != p->world.rank) status = meg_plan_turn(p, e, r);
        if (status == MEG_OK) add_actor(w, p);
    }
    free(name);
    if (c) meg_classes_free(c);
    return status;
}

/* Is each message that an actor sends to another expected there? It is not where neighbours of one class have neighbours
 * of several: the inner ones of four ranks in a row, or a first rank that differs from those of other replicas. */
static bool fit_together(const meg_whole *w)
{
    uint64_t rest = 0;
    for (int i = 0; i < w->actors; i++)
        for (int k = 0; k < w->actor[i].events.notes; k++) {
            const meg_traffic_note *n = &w->actor[i].events.note[k];
            if (n->code == MEG_REDUCE) continue;
            bool sends = n->code == MEG_SEND;
            uint64_t peer = (uint64_t)w->actor_of[n->peer], me = (uint64_t)i;
            uint64_t key = meg_hash_word(meg_hash("message"), (uint64_t)n->tag);
            key = meg_hash_word(meg_hash_word(key, sends ? me : peer), sends ? peer : me);
            rest += sends ? key : -key;
        }
    return rest == 0;
}

static void clear_actors(meg_whole *w)
{
    for (int i = 0; i < w->actors; i++)
        meg_actor_clear(&w->actor[i]);
    w->actors = 0;
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
    meg_status status = add_ranks(out, e, p, false);
    if (status == MEG_OK && !fit_together(out)) {
        clear_actors(out);
        status = add_ranks(out, e, p, true);
    }
    meg_plan_destroy(p);
    if (status != MEG_OK) meg_whole_free(out);
    return status;
}

void meg_whole_free(meg_whole *w)
{
    clear_actors(w);
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
