/* Learning-rate schedules: the rate as a function of the progress of training. */
#ifndef MEG_TRAIN_STEP_LEARNING_RATE_H
#define MEG_TRAIN_STEP_LEARNING_RATE_H

typedef enum meg_lr_kind {
    MEG_LR_CONSTANT,
    MEG_LR_STEP,
    MEG_LR_COSINE
} meg_lr_kind;

typedef struct meg_lr_schedule {
    int kind;
    double lr;               /* the largest */
    double warmup;           /* epochs in which the rate rises linearly from 0 */
    double epochs;           /* in all */
    double drop, drop_every; /* step: every so many epochs the rate is multiplied by drop */
} meg_lr_schedule;

/* The rate of the step that begins after `epoch` epochs (with fraction) and ends `each` later. */
double meg_lr_rate(const meg_lr_schedule *s, double epoch, double each);

#endif
