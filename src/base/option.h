/* Option strings: `word=value` pairs, separated by blanks, checked against a table of parameters
 * and written into a struct. The same tables serve C, the command line, plan files and help texts.
 */
#ifndef MEG_BASE_OPTION_H
#define MEG_BASE_OPTION_H

#include "base/status.h"

#include <stddef.h>

typedef enum meg_param_kind {
    MEG_PARAM_INT,    /* int64_t                                                          */
    MEG_PARAM_REAL,   /* double                                                           */
    MEG_PARAM_BYTES,  /* int64_t: 4096, 64KiB, 1.5GiB, 2GB                                */
    MEG_PARAM_BOOL,   /* bool: 0 1 no yes false true off on; a bare word means yes        */
    MEG_PARAM_CHOICE, /* int: index of the word in `choices` ("auto|none|all")            */
    MEG_PARAM_TEXT,   /* char[MEG_TEXT]                                                   */
    MEG_PARAM_AXES,   /* meg_axes: "3" or "3x5" or "1x3x3"                                */
    MEG_PARAM_PADS    /* meg_pads: "1", "1x2", and before:after per axis, "0:1x2:2"       */
} meg_param_kind;

enum {
    MEG_TEXT = 256,
    MEG_AXES_MAX = 5
};

typedef struct meg_axes { /* one number for all axes, or one each */
    int count;
    int64_t at[MEG_AXES_MAX];
} meg_axes;

typedef struct meg_pads {
    int count;
    int64_t before[MEG_AXES_MAX], after[MEG_AXES_MAX];
} meg_pads;

typedef struct meg_param {
    const char *name; /* NULL ends the table */
    meg_param_kind kind;
    size_t offset;       /* into the struct */
    const char *initial; /* in the syntax of the value; NULL: must be given */
    const char *doc;
    const char *choices; /* of MEG_PARAM_CHOICE; of MEG_PARAM_REAL "inf": it may be infinite */
    double lo, hi;       /* allowed range of numbers (each of an axes list); both 0: any */
} meg_param;

/* Fills `out` (a struct that the table describes) from the defaults, then from `text` (NULL: "").
 * `what` names the thing in messages: "conv: unknown word 'filter'; known: filters kernel ...". */
meg_status meg_options_parse(meg_error *e, const meg_param *table, const char *what,
                             const char *text, void *out);

/* Sets one parameter; the struct must have been filled before. */
meg_status meg_options_set(meg_error *e, const meg_param *table, const char *what, const char *word,
                           const char *value, void *out);

/* Cuts the pair `word=value` out of `text` into `value`, if it is there; what remains stays valid.
 * For words that are not the table's own ("name=" of a layer). */
bool meg_options_take(char *text, const char *word, char *value, size_t size);

/* Walks an option string: copies the next word and its value ("yes" of a bare word) and moves `at`
 * past them. 1: there was one; 0: the end; -1: a quote without its end, or one of them too long. */
int meg_options_next(const char **at, char word[MEG_TEXT], char value[MEG_TEXT]);

/* Has an option string this word? */
bool meg_options_has(const char *text, const char *word);

/* The row of a word; NULL: the table has none. */
const meg_param *meg_param_find(const meg_param *table, const char *word);

/* Do two values of a word mean the same? "4KiB" is "4096". Values that cannot be read do not. */
bool meg_param_same(const meg_param *p, const char *a, const char *b);

/* Writes the pairs that differ from their defaults, in table order: "filters=8 kernel=3". */
void meg_options_print(const meg_param *table, const void *in, char *text, size_t size);

/* Writes one line of help per parameter, indented by two. */
void meg_options_help(const meg_param *table, FILE *out);

meg_status meg_parse_bytes(meg_error *e, const char *what, const char *text, int64_t *out);
void meg_print_bytes(int64_t bytes, char text[32]); /* "1.38 GiB", for people */

#endif
