/* Foresight: see foresight.h. */
#include "train/outlook/foresight.h"

#include <stdlib.h>
#include <string.h>

meg_replay_job meg_foresight_job(const meg_foresight *f)
{
    const meg_whole *w = &f->whole;
    return (meg_replay_job){&f->machine, w->ranks, w->actors, w->actor, w->actor_of};
}

static meg_status replay(meg_foresight *f, meg_error *e)
{
    meg_replay_job job = meg_foresight_job(f);
    meg_replay_log_begin(&f->log, f->whole.actors);
    MEG_TRY(e, meg_replay_run(&job, e, meg_replay_log_add, &f->log, &f->replay));
    meg_critical_find(&job, &f->replay, &f->log, &f->critical);
    return MEG_OK;
}

meg_status meg_foresight_make(const meg_search_ask *ask, meg_error *e, const char *options,
                              meg_foresight **out)
{
    meg_foresight *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->machine = *ask->machine;
    f->profile = *ask->profile;
    f->samples = ask->samples;
    f->memory = ask->memory;
    f->options = strdup(options);
    if (!f->options) abort();
    meg_world world = {0, ask->ranks};
    meg_plan_input in = {ask->profile, &world, options, ask->samples, NULL};
    meg_status status = meg_whole_sketch(ask->graph, e, &in, 0, &f->whole);
    if (status == MEG_OK) status = replay(f, e);
    if (status == MEG_OK) *out = f;
    else meg_foresight_free(f);
    return status;
}

void meg_foresight_free(meg_foresight *f)
{
    if (!f) return;
    if (f->searched) meg_search_free(&f->search);
    meg_critical_free(&f->critical);
    meg_replay_log_free(&f->log);
    free(f->replay.times);
    meg_whole_free(&f->whole);
    meg_prices_free(f->described);
    free(f->options);
    free(f);
}
