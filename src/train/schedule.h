/* Learning-rate schedules: the rate as a function of the progress of training. */
#ifndef MEG_TRAIN_SCHEDULE_H
#define MEG_TRAIN_SCHEDULE_H

typedef enum meg_schedule_kind {
    MEG_LR_CONSTANT,
    MEG_LR_STEP,
    MEG_LR_COSINE
} meg_schedule_kind;

typedef struct meg_schedule {
    int kind;
    double lr;               /* the largest */
    double warmup;           /* epochs in which the rate rises linearly from 0 */
    double epochs;           /* in all */
    double drop, drop_every; /* step: every so many epochs the rate is multiplied by drop */
} meg_schedule;

/* The rate of the step that begins after `epoch` epochs (with fraction) and ends `each` later. */
double meg_schedule_rate(const meg_schedule *s, double epoch, double each);

#endif
