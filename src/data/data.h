/* Data sets: readers, each one file and one line in readers.def, and the loader that turns them
 * into batches ahead of their use.
 *
 * A reader hands out one sample or its labels at a time, or any box of them (so that a rank reads
 * only what it needs), is stateless after opening and may be called from several threads.
 *
 *     sample   an image (c, d, h, w), or a row of tokens (w): ids, which floats hold exactly
 *     label    classes: one, or one per pixel or token (d, h, w), below 0 where none counts;
 *              or real targets (c, d, h, w), NaN where none counts
 *
 * These two are the *fields* of a data set from files. Others have fields with names, each for the
 * input or the labels of that name (data/memory.c); what their numbers mean, the network knows.
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

enum {
    MEG_FIELD_SAMPLE, /* of a data set without names */
    MEG_FIELD_LABEL
};

typedef struct meg_column { /* an array with a name: one box of numbers a sample */
    const char *name;
    int rank;               /* n included */
    int64_t dims[MEG_AXES]; /* file order, dims[0] = count */
    meg_dtype dtype;        /* as it is stored */
} meg_column;

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
    int fields;               /* with names; 0: it has a sample and its labels, as above */
    const meg_column *column; /* (fields) */
} meg_dataset;

typedef struct meg_ask { /* for numbers of a data set */
    int field;
    int64_t index;   /* of the sample */
    meg_dtype dtype; /* as which they are wanted: MEG_F32, MEG_I32, of fields with names MEG_F64 */
    meg_box all;     /* of a sample, n is [0,1): how its elements lie in index space */
    meg_box box;     /* of that, what is wanted */
} meg_ask;

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
    /* Takes the place of both where fields have names. */
    meg_status (*get)(const meg_dataset *d, meg_error *e, const meg_ask *ask, void *out);
} meg_reader;

const meg_reader *meg_reader_find(const char *name);
const meg_reader *meg_reader_at(int i);

/* "reader:options" */
meg_status meg_dataset_open(meg_error *e, const char *source, meg_dataset *out);
void meg_dataset_close(meg_dataset *d);

/* Row-major numbers of a box of one sample's field. */
meg_status meg_dataset_read(const meg_dataset *d, meg_error *e, const meg_ask *ask, void *out);

typedef struct
    meg_wanted {      /* what a rank reads of a batch, for an input or labels of its network */
    const char *name; /* of it */
    int field;        /* of the data set */
    bool label;       /* where none counts, they are below 0, or NaN */
    bool ids;         /* of tokens: have no pixels that could be moved */
    meg_dtype dtype;  /* MEG_F32, MEG_F64, MEG_I32 */
    meg_box all;      /* of each sample: n is [0,1) */
    meg_box box;      /* of that, what is read; empty: nothing */
    const bool *of;   /* (batch) of which samples; NULL: all */
    int64_t below;    /* ids and classes must be below it, or below 0: none; 0: not known */
    int64_t ignore;   /* but this one may be anything; below 0: none */
} meg_wanted;

int64_t meg_wanted_numbers(const meg_wanted *w); /* of each sample */

/* What is wanted of a sample; ids and classes that a network does not know are refused. */
meg_status meg_wanted_read(const meg_dataset *d, meg_error *e, const meg_wanted *w, int64_t sample,
                           void *out);
meg_status meg_wanted_check(const meg_dataset *d, meg_error *e, const meg_wanted *w, int64_t sample,
                            const void *data);

/* The fields of a data set without names, all of them. */
void meg_dataset_wants(const meg_dataset *d, meg_wanted out[2]);

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
    int wants;
    const meg_wanted *want; /* (wants) must stay; 0: everything, of a data set without names */
} meg_loader_options;

typedef struct meg_batch { /* borrowed until the next call of meg_loader_next */
    int64_t count;         /* samples in it */
    int wants;
    const meg_wanted *want;
    void *const
        *data; /* (wants) (count, c, d, h, w) as `box` has it; what is not wanted is not set */
} meg_batch;

meg_status meg_loader_new(meg_error *e, const meg_dataset *d, const meg_loader_options *o,
                          meg_loader **out);
void meg_loader_free(meg_loader *l);

/* Batch `index` of pass `epoch`. Asking in sequence is prefetched; any order is allowed. */
meg_status meg_loader_next(meg_loader *l, meg_error *e, int64_t epoch, int64_t index,
                           meg_batch *out);

#endif
