/* The plan of a whole job: see whole.h. */
#include "plan/whole.h"

#include <stdlib.h>

meg_status meg_whole_make(const meg_graph *g, meg_error *e, const meg_plan_input *in,
                          meg_whole *out)
{
    int ranks = in->world->ranks;
    *out = (meg_whole){.ranks = ranks, .actors = ranks};
    out->actor_of = calloc((size_t)ranks, sizeof *out->actor_of);
    out->plan = calloc((size_t)ranks, sizeof *out->plan);
    if (!out->actor_of || !out->plan) abort();
    for (int r = 0; r < ranks; r++) {
        meg_world world = {r, ranks};
        meg_plan_input mine = *in;
        mine.world = &world;
        out->actor_of[r] = r;
        meg_status status = meg_plan_from(g, e, &mine, &out->plan[r]);
        if (status == MEG_OK) continue;
        meg_whole_free(out);
        return status;
    }
    return MEG_OK;
}

void meg_whole_free(meg_whole *p)
{
    for (int i = 0; i < p->actors && p->plan; i++)
        meg_plan_destroy(p->plan[i]);
    free(p->plan);
    free(p->actor_of);
    *p = (meg_whole){0};
}

int64_t meg_whole_bytes(const meg_whole *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->actors; i++)
        if (p->plan[i]->arena > most) most = p->plan[i]->arena;
    return most;
}

meg_status meg_whole_replay(const meg_whole *p, meg_error *e, const meg_machine *m, meg_replay *out)
{
    const meg_replay_job job = {.machine = m,
                                .ranks = p->ranks,
                                .actors = p->actors,
                                .plan = (const meg_plan *const *)p->plan,
                                .actor_of = p->actor_of,
                                .entry = MEG_ENTRY_TRAIN};
    return meg_replay_run(&job, e, NULL, NULL, out);
}
