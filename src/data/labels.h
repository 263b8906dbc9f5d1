/* Class labels as files have them: which numbers are which classes, and what looks wrong about them.
 *
 * map=0:0,255:1 says what numbers mean, map=1..10:0 counts on (1 is class 0, 2 is 1, ..), and -1
 * behind the colon: does not count. Numbers that a map does not have are refused when they are met.
 */
#ifndef MEG_DATA_LABELS_H
#define MEG_DATA_LABELS_H

#include "base/option.h"
#include "data/data.h"

enum {
    MEG_LABEL_NONE = -1,        /* does not count */
    MEG_LABEL_WRONG = -2,       /* is no class */
    MEG_LABEL_RANGES = 64,      /* of a map */
    MEG_LABEL_SMALL = 256,      /* numbers that are looked up in a table */
    MEG_LABEL_TALLIED = 1 << 16 /* classes of which is known whether they occur */
};

typedef struct meg_label_rule {
    int64_t classes; /* 0..classes-1; 0: as many as occur */
    int64_t ignore;  /* a number that does not count */
    int ranges;      /* 0: numbers are classes */
    struct {
        int64_t first, last, to; /* to: -1, or the class of the first */
    } range[MEG_LABEL_RANGES];
    int32_t small[MEG_LABEL_SMALL]; /* classes of 0..255 */
} meg_label_rule;

/* Reads a map ("": none). `classes` 0 becomes one more than a map's largest class. */
meg_status meg_label_rule_make(meg_error *e, const char *map, int64_t classes, int64_t ignore,
                               meg_label_rule *out);

/* The class of a number, MEG_LABEL_NONE or MEG_LABEL_WRONG. */
int32_t meg_label_of(const meg_label_rule *r, int64_t number);

typedef struct meg_label_tally { /* what there is */
    int64_t seen, none;          /* labels; those that do not count */
    int64_t most, next;          /* the largest class; the next smaller one that occurs; -1: none */
    int64_t most_count, most_at; /* how often it occurs, and where first */
    int64_t wrong, wrong_at;     /* the first number that is no class, and its place; -1: none */
    bool occurs[MEG_LABEL_TALLIED];
} meg_label_tally;

void meg_label_tally_begin(meg_label_tally *t);

/* Labels from place `at` on. */
void meg_label_tally_add(meg_label_tally *t, const meg_label_rule *r, int64_t at, int64_t count,
                         const int64_t number[]);

/* What is worth saying of class labels: to d->findings. `name` is that of the file. */
void meg_label_judge(const meg_label_tally *t, const meg_label_rule *r, const char *name,
                     meg_dataset *d);

#endif
