/* Option strings: `word=value` pairs, separated by blanks, checked against a table of parameters
 * and written into a struct. The same tables serve C, the command line, plan files and help texts.
 */
#ifndef MEG_BASE_OPTION_H
#define MEG_BASE_OPTION_H

#include "base/pairs.h"
#include "base/pool.h"
#include "base/status.h"

#include <stddef.h>

typedef enum meg_param_kind {
    MEG_PARAM_INT,    /* int64_t                                                          */
    MEG_PARAM_REAL,   /* double                                                           */
    MEG_PARAM_BYTES,  /* int64_t: 4096, 64KiB, 1.5GiB, 2GB                                */
    MEG_PARAM_BOOL,   /* bool: 0 1 no yes false true off on; a bare word means yes        */
    MEG_PARAM_CHOICE, /* int: index of the word in `choices` ("auto|none|all")            */
    MEG_PARAM_TEXT,   /* char[MEG_TEXT]: a name, as tables have them                      */
    MEG_PARAM_STRING, /* const char *: of any length; the pool of a meg_form owns it      */
    MEG_PARAM_AXES,   /* meg_axes: "3" or "3x5" or "1x3x3"                                */
    MEG_PARAM_PADS    /* meg_pads: "1", "1x2", and before:after per axis, "0:1x2:2"       */
} meg_param_kind;

enum {
    MEG_AXES_MAX = 5,
    MEG_BRIEF = 96
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

typedef struct meg_form { /* what an option string is read by */
    const meg_param *table;
    const char *what; /* names the thing in messages: "conv: unknown word 'filter'; known: ..." */
    meg_pool *pool;   /* of strings; they live as long as it does */
} meg_form;

/* Fills `out` (a struct that the table describes) from the defaults, then from `text` (NULL: ""). */
meg_status meg_options_fill(meg_error *e, const meg_form *f, const char *text, void *out);

/* Likewise, for tables without strings. */
meg_status meg_options_parse(meg_error *e, const meg_param *table, const char *what,
                             const char *text, void *out);

/* Sets one parameter; the struct must have been filled before. */
meg_status meg_options_set(meg_error *e, const meg_form *f, const char *word, const char *value,
                           void *out);

/* The row of a word; NULL: the table has none. */
const meg_param *meg_param_find(const meg_param *table, const char *word);

/* Do two values of a word mean the same? "4KiB" is "4096". Values that cannot be read do not. */
bool meg_param_same(const meg_param *p, const char *a, const char *b);

/* Writes the pairs that differ from their defaults, in table order: "filters=8 kernel=3". Returns how long they are,
 * as snprintf does. */
size_t meg_options_print(const meg_param *table, const void *in, char *text, size_t size);
char *meg_options_text(meg_pool *pool, const meg_param *table, const void *in);

/* Writes one line of help per parameter, indented by two. */
void meg_options_help(const meg_param *table, FILE *out);

/* A value for messages: its beginning, if it is long. */
const char *meg_brief(const char *value, char out[MEG_BRIEF]);

meg_status meg_parse_bytes(meg_error *e, const char *what, const char *text, int64_t *out);
void meg_print_bytes(int64_t bytes, char text[32]); /* "1.38 GiB", for people */

#endif
