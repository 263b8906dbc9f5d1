/* What the readers share: the shape of a data set, and walking a box of a sample by runs.
 *
 * A run is a stretch of the box that is contiguous in the whole sample: the axes that the box
 * covers wholly are joined, so a whole sample is one run, and a band of rows is one per channel.
 *
 *     for (meg_run r = meg_run_first(&d->sample, box); r.on; meg_run_next(&r))
 *         copy(out + r.done, sample + r.at, r.length);
 */
#ifndef MEG_DATA_READER_H
#define MEG_DATA_READER_H

#include "data/data.h"

typedef struct meg_run {
    bool on;
    int64_t at;     /* elements from the start of the sample */
    int64_t length; /* elements */
    int64_t done;   /* elements of the runs before */
    meg_box sample, heads;
    int64_t p[MEG_AXES]; /* where the run begins */
} meg_run;

meg_run meg_run_first(const meg_box *sample, const meg_box *box);
void meg_run_next(meg_run *r);

/* Sets count, rank, dims and sample. `dims` begins with the count; rank 2 is n c, 3 n c w,
 * 4 n c h w, 5 n c d h w. Labels become one class per sample. */
void meg_dataset_shape(meg_dataset *d, int rank, const int64_t dims[]);

/* Samples of rank 2 are rows of tokens. */
void meg_dataset_tokens(meg_dataset *d);

/* Sets the labels' shape. Classes: rank 1 is n, 2 n w, 3 n h w, 4 n d h w; real targets as samples,
 * rank 1 is one each. */
void meg_dataset_label(meg_dataset *d, bool real, int rank, const int64_t dims[]);

#endif
