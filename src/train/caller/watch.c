/* Events of training for the caller: what the trainer tells of steps, and sums of it over epochs. */
#include "train/caller/caller.h"

struct meg_watching { /* of the trainer's pool */
    meg_trainer *trainer;
    meg_on_event *observer;
    void *user;
    double loss, accuracy, error, seconds; /* of the epoch so far; sums over samples */
    int64_t samples;
};

static void add(meg_watching *w, const meg_progress *p)
{
    double samples = (double)p->samples;
    w->loss += p->loss * samples;
    w->accuracy += p->accuracy * samples;
    w->error += p->error * samples;
    w->seconds += p->seconds;
    w->samples += p->samples;
}

static void clear(meg_watching *w)
{
    w->loss = w->accuracy = w->error = w->seconds = 0;
    w->samples = 0;
}

static bool end_epoch(meg_watching *w, meg_event e)
{
    double samples = (double)w->samples;
    e.kind = MEG_EPOCH_ENDS;
    e.loss = w->loss / samples;
    e.accuracy = w->accuracy / samples;
    e.absolute_error = w->error / samples;
    e.seconds = w->seconds;
    e.samples = w->samples;
    clear(w);
    return w->observer(w->user, &e) == 0;
}

static bool tell(void *context, const meg_progress *p)
{
    meg_watching *w = context;
    int64_t per_epoch = w->trainer->per_epoch;
    meg_event e = {.kind = MEG_EPOCH_BEGINS, .step = p->step, .steps = p->steps};
    e.epoch = p->begins ? p->step / per_epoch : (p->step - 1) / per_epoch;
    if (p->begins) {
        clear(w);
        return w->observer(w->user, &e) == 0;
    }
    e.kind = MEG_STEP_ENDS;
    e.loss = p->loss;
    e.accuracy = p->accuracy;
    e.absolute_error = p->error;
    e.lr = p->lr;
    e.seconds = p->seconds;
    e.samples = p->samples;
    add(w, p);
    bool on = w->observer(w->user, &e) == 0;
    if (p->step % per_epoch == 0) on = end_epoch(w, e) && on;
    return on;
}

void meg_watch(meg_trainer *t, meg_on_event *observer, void *user)
{
    if (!t->watching) t->watching = meg_pool_alloc(t->pool, sizeof *t->watching);
    *t->watching = (meg_watching){.trainer = t, .observer = observer, .user = user};
    t->epochs = observer != NULL;
    meg_trainer_watch(t, observer ? tell : NULL, t->watching);
}
