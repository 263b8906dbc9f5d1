/* The trainer: epochs of steps over a data set. */
#ifndef MEG_TRAIN_TRAINER_H
#define MEG_TRAIN_TRAINER_H

#include "data/data.h"
#include "exec/engine.h"
#include "train/checkpoint/checkpoint.h"
#include "train/context.h"
#include "train/step/filled.h"
#include "train/step/learning_rate.h"
#include "train/step/wants.h"

typedef struct meg_trainer_options {
    meg_lr_schedule schedule;
    bool shuffle, flip;
    int64_t shift;
    int64_t shard;            /* bytes of a file of saved weights, at most; 0: one file */
    const char *checkpoint;   /* folder; "": none */
    int64_t checkpoint_every; /* steps; 0: an epoch */
    int64_t keep;
    int resume; /* meg_resume */
} meg_trainer_options;

extern const meg_param meg_trainer_params[];

typedef struct meg_progress { /* after each step */
    bool begins;           /* an epoch, and no step yet: of what follows, only step, steps, epoch */
    int64_t step, steps;   /* done, and in all */
    double epoch;          /* done, with fraction */
    double loss, accuracy; /* of this step; the accuracy of real targets is NaN */
    double error;          /* mean absolute error of real targets; of classes NaN */
    double seconds;        /* of this step */
    double lr;
    int64_t samples;
    double begin, end; /* when it ran, by meg_clock; its loss may be known later */
} meg_progress;

/* Returns false to stop training after this step (MEG_EINTERRUPTED). */
typedef bool meg_watcher(void *context, const meg_progress *p);

/* Should training stop? Asked at the end of each step, of training and evaluation, on each rank. */
typedef bool meg_wish(void *context);

/* How many samples of an evaluation are done, of how many: called before each of its steps. */
typedef void meg_counter(void *context, int64_t done, int64_t total);

typedef struct meg_outside meg_outside;
typedef struct meg_watching meg_watching;

typedef struct meg_late_step { /* was run, and its outcome is not known */
    int64_t number;            /* from 1; 0: there is none */
    int64_t samples;
    double lr, seconds;
    double begin;
} meg_late_step;

typedef struct meg_growth { /* is the loss far past its start? */
    double start;           /* of the first step, or that of a guess; 0: no step yet */
    double mean;            /* of about the last ten steps */
    bool told;
} meg_growth;

typedef struct meg_judged { /* what answers are compared with */
    int64_t labels;         /* of a sample: accuracy is the share of right ones */
    int64_t classes;        /* 0: they are real */
    bool real;
} meg_judged;

struct meg_trainer {
    meg_context *ctx;
    meg_plan *plan;
    meg_data *data;
    meg_pool *pool; /* of the options' texts */
    meg_trainer_options options;
    meg_engine *engine;
    meg_loader *loader; /* NULL: the rank needs neither samples nor labels */
    meg_reading reading;
    meg_filled filled;
    struct meg_hand *hand; /* batches that are given by hand (caller/batch.c); NULL: none was */
    void (*drop_hand)(struct meg_hand *hand);
    double rate; /* of learning, in place of the schedule's; below 0: the schedule's */
    meg_judged judged;
    bool wish; /* to stop: all ranks do after one of the next steps */
    meg_wish *asked;
    void *asked_context;
    meg_counter *counter; /* of evaluation; NULL: none */
    void *counter_context;
    meg_late_step late;
    meg_growth growth;
    int64_t step, steps, per_epoch;
    uint64_t seed;                /* of dropout */
    meg_watching *watching;       /* of meg_watch (caller/watch.c); NULL: none yet */
    meg_outside *outside;         /* of a loss outside (caller/outside.c); NULL: none yet */
    meg_checkpoints *checkpoints; /* NULL: none */
    meg_watcher *watcher;
    void *watcher_context;
    bool epochs; /* the watcher is told when they begin, too */
};

void meg_trainer_watch(meg_trainer *t, meg_watcher *watcher, void *context);

/* Stops earlier than a watcher can, who sees a step of many ranks when the next one has run: a wish
 * that comes during step k stops all ranks after k + 1, a rank alone after k. */
void meg_trainer_ask(meg_trainer *t, meg_wish *asked, void *context);

void meg_trainer_count(meg_trainer *t, meg_counter *counter, void *context);

typedef struct meg_one_step {
    const meg_outcome *outcome;
    int64_t samples;
    double seconds, predicted;
} meg_one_step;

/* Collective. What is told of one step. */
meg_status meg_trainer_report(const meg_trainer *t, const meg_one_step *s, meg_report *out);

/* Refuses a network whose loss is outside: nothing here knows it. */
meg_status meg_trainer_judges(const meg_trainer *t);

double meg_trainer_rate(const meg_trainer *t); /* of learning, in the next step */

/* Every parameter's gradient of the last step into a safetensors file (plan with keep_grads),
 * running statistics too. */
meg_status meg_trainer_save_gradients(meg_trainer *t, const char *path);

#endif
