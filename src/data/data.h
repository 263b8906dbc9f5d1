/* Data sets: readers, each one file and one line in readers.def, and the loader that turns them
 * into batches ahead of their use.
 *
 * A reader hands out one sample or its labels at a time, or any box of them (so that a rank reads
 * only what it needs), is stateless after opening and may be called from several threads.
 *
 *     sample   an image (c, d, h, w), or a row of tokens (w): ids, which floats hold exactly
 *     label    classes: one, or one per pixel or token (d, h, w), below 0 where none counts;
 *              or real targets (c, d, h, w), NaN where none counts
 */
#ifndef MEG_DATA_DATA_H
#define MEG_DATA_DATA_H

#include "base/rule.h"
#include "graph/box.h"

enum {
    MEG_FINDING = 512
};

/* What a reader found that may not be meant; "": nothing. */
typedef struct meg_findings {
    char shape[MEG_FINDING];   /* why a model should not take its image from these samples */
    char classes[MEG_FINDING]; /* likewise its classes from these labels */
    char said[2][MEG_FINDING]; /* what a user should know in any case */
} meg_findings;

typedef struct meg_dataset {
    const struct meg_reader *reader;
    int64_t count;          /* samples */
    int rank;               /* of a batch, n included: 4 for images */
    int64_t dims[MEG_AXES]; /* file order, dims[0] = count */
    meg_box sample;         /* of one sample in index space: n is [0,1) */
    bool tokens;            /* samples are ids 0..classes-1 */
    meg_box label;          /* of one sample's labels: n is [0,1), c too if they are classes */
    bool real;              /* labels are real targets */
    int classes;            /* labels are 0..classes-1; 0: real */
    void *state;            /* of the reader */
    char source[MEG_TEXT];  /* as opened, for messages */
    meg_findings findings;
} meg_dataset;

typedef struct meg_reader {
    const char *name, *doc;
    const meg_param *params;
    const meg_rule *rules; /* of words that have no effect, by the settings; NULL: none */
    size_t settings_bytes;
    meg_status (*open)(meg_error *e, const void *settings, meg_dataset *out);
    void (*close)(meg_dataset *d);
    /* The box of sample `index` (n of the box is [0,1)) as float, row-major. */
    meg_status (*read)(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                       float *out);
    /* The same of its labels: int32_t, or float where they are real. */
    meg_status (*label)(const meg_dataset *d, meg_error *e, int64_t index, const meg_box *box,
                        void *out);
} meg_reader;

const meg_reader *meg_reader_find(const char *name);
const meg_reader *meg_reader_at(int i);

/* "reader:options" */
meg_status meg_dataset_open(meg_error *e, const char *source, meg_dataset *out);
void meg_dataset_close(meg_dataset *d);

typedef struct meg_wanted {           /* what a rank reads of a batch */
    meg_box sample, label;            /* of each sample; empty: nothing */
    const bool *of_sample, *of_label; /* (batch) which samples; NULL: all */
} meg_wanted;

/* The loader: a background thread that keeps one batch ready. Batch k of a pass holds samples
 * [k*batch, min((k+1)*batch, count)) of the pass's order: shuffled by the counter-based generator
 * (seed, epoch), or as they are. Augmentation is keyed by (seed, epoch, sample). */
typedef struct meg_loader meg_loader;

typedef struct meg_loader_options {
    int64_t batch;
    bool shuffle;
    int64_t shift; /* augmentation: up to so many pixels in h and w, zeros shifted in (labels per
                       pixel move along; what is shifted in does not count) */
    bool flip;     /* mirror w with probability 1/2 */
    uint64_t seed;
    int64_t vocabulary;       /* tokens must be below it, or below 0: none; 0: not known */
    const meg_wanted *wanted; /* NULL: everything; must stay */
} meg_loader_options;

typedef struct meg_batch { /* borrowed until the next call of meg_loader_next */
    int64_t count;         /* samples in it */
    const float *samples;  /* (count, c, d, h, w), as `sample` has it */
    const int32_t *labels; /* (count, d, h, w), as `label` has it; NULL where they are real */
    const float *targets;  /* (count, c, d, h, w), likewise; NULL where they are classes */
    meg_box sample, label; /* what there is of each sample; what is not wanted is not set */
} meg_batch;

meg_status meg_loader_new(meg_error *e, const meg_dataset *d, const meg_loader_options *o,
                          meg_loader **out);
void meg_loader_free(meg_loader *l);

/* Batch `index` of pass `epoch`. Asking in sequence is prefetched; any order is allowed. */
meg_status meg_loader_next(meg_loader *l, meg_error *e, int64_t epoch, int64_t index,
                           meg_batch *out);

#endif
