/* Rules for the words of context and trainer: see rules.h. */
#include "train/rules.h"

#include <string.h>

/* ---- context ---- */

static bool has_team(const void *state)
{
    const meg_context *ctx = state;
    return ctx->options.threads == 1 || strcmp(ctx->options.device, "cpu") == 0;
}

static bool has_neighbours(const void *state)
{
    const meg_context *ctx = state;
    return meg_comm_size(ctx->comm) > 1;
}

static const meg_rule CONTEXT[] = {
    {"threads", "0", has_team, MEG_WARNS,
     "has no effect: this device computes with one thread; device=cpu has more"},
    {"pin", "yes", has_neighbours, MEG_WARNS,
     "has no effect: there is one rank, and cores are shared out among several"},
    {0},
};

meg_status meg_context_judge(const meg_context *ctx, meg_error *e, const char *text)
{
    const meg_ruled ruled = {"context", meg_context_params, CONTEXT, text, ctx};
    return meg_rules_check(e, &ctx->log, &ruled);
}

/* ---- trainer ---- */

typedef struct training {
    const meg_trainer_options *options;
    const meg_dataset *set; /* NULL: not known yet */
} training;

static const meg_lr_schedule *schedule_of(const void *state)
{
    return &((const training *)state)->options->schedule;
}

static bool has_folder(const void *state)
{
    return ((const training *)state)->options->checkpoint[0];
}

static bool drops(const void *state)
{
    return schedule_of(state)->kind == MEG_LR_STEP;
}

/* Does the rate drop before training ends? Nothing ends where nothing is trained. */
static bool drops_in_time(const void *state)
{
    const meg_lr_schedule *s = schedule_of(state);
    return s->kind != MEG_LR_STEP || s->epochs == 0 || s->drop_every < s->epochs;
}

static bool warms_up_in_time(const void *state)
{
    const meg_lr_schedule *s = schedule_of(state);
    return s->epochs == 0 || s->warmup <= s->epochs * (1 + 1e-9);
}

static bool has_pixels(const void *state)
{
    const meg_dataset *set = ((const training *)state)->set;
    return !set || set->fields || set->sample.hi[MEG_H] * set->sample.hi[MEG_W] > 1;
}

static const meg_rule TRAINER[] = {
    {"checkpoint_every", "0", has_folder, MEG_REFUSES,
     "has no effect: nothing is kept without checkpoint=FOLDER; give it, or leave this out"},
    {"keep", NULL, has_folder, MEG_REFUSES,
     "has no effect: nothing is kept without checkpoint=FOLDER; give it, or leave this out"},
    {"resume", "auto", has_folder, MEG_REFUSES,
     "has no effect: training goes on from checkpoint=FOLDER; give it, or leave this out"},
    {"drop", NULL, drops, MEG_REFUSES,
     "has no effect: it is for lr_schedule=step; give that, or leave this out"},
    {"drop_every", NULL, drops, MEG_REFUSES,
     "has no effect: it is for lr_schedule=step; give that, or leave this out"},
    {"lr_schedule", "constant", drops_in_time, MEG_WARNS,
     "has no effect: training ends before drop_every= epochs are over; give more epochs, or a "
     "smaller drop_every="},
    {"warmup", "0", warms_up_in_time, MEG_WARNS,
     "is longer than the training: the rate never reaches lr=; give more epochs, or a shorter "
     "warmup="},
    {"shift", "0", has_pixels, MEG_WARNS,
     "has no effect: the samples have one pixel each, which cannot move"},
    {"flip", "no", has_pixels, MEG_WARNS,
     "has no effect: the samples have one pixel each, which cannot move"},
    {0},
};

meg_status meg_trainer_read(const meg_trainer_words *w, meg_error *e, const char *text,
                            meg_trainer_options *out)
{
    MEG_TRY(e, meg_options_fill(e, &(meg_form){meg_trainer_params, "trainer", w->pool}, text, out));
    const training state = {out, w->set};
    const meg_ruled ruled = {"trainer", meg_trainer_params, TRAINER, text, &state};
    return meg_rules_check(e, w->log, &ruled);
}
