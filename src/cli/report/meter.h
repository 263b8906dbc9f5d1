/* The progress of training on stderr: on a terminal one line that is redrawn, elsewhere a line
 * every so many steps. Loss and accuracy are means over the epoch so far. */
#ifndef MEG_CLI_REPORT_METER_H
#define MEG_CLI_REPORT_METER_H

#include "cli/report/measure.h"
#include "train/trainer.h"

typedef struct meg_meter {
    int64_t every;                                 /* steps from line to line */
    int64_t total;                                 /* steps in all */
    bool live;                                     /* redrawn */
    bool drawn;                                    /* a live line stands on the terminal */
    double last;                                   /* when it was drawn */
    double loss, correct, error, samples, seconds; /* sums over the epoch so far */
    meg_measure time;                              /* of all steps */
} meg_meter;

typedef char meg_score[32];

/* "accuracy 92.64 %"; where that is NaN, since targets are real, "MAE 0.0123". */
void meg_score_text(double accuracy, double error, meg_score out);

/* `every` 0: about 20 lines per epoch, or redrawn on a terminal. */
void meg_meter_begin(meg_meter *m, int64_t every, int64_t total, int64_t per_epoch);
void meg_meter_step(meg_meter *m, const meg_progress *p);
void meg_meter_epoch(meg_meter *m); /* takes a live line away; sums begin anew */
void meg_meter_end(meg_meter *m);

#endif
