/* Walking option strings: `word=value` pairs, separated by blanks. Values have any length, so they are seen where
 * they stand, and not copied.
 */
#ifndef MEG_BASE_PAIRS_H
#define MEG_BASE_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MEG_TEXT = 256 /* room of a word, and of a name that some table has */
};

typedef struct meg_excerpt { /* some bytes of a text; printed by "%.*s", length, at */
    const char *at;
    int length;
} meg_excerpt;

typedef struct meg_given {
    meg_excerpt word, value; /* value.at: NULL of a bare word */
    const char *end;         /* where scanning goes on */
    bool open;               /* a quote without its end */
} meg_given;

/* The pair that begins at or behind `at`; false: there is none. */
bool meg_given_next(const char *at, meg_given *out);
bool meg_given_find(const char *text, const char *word, meg_given *out);
bool meg_excerpt_is(meg_excerpt s, const char *text);

/* Copies the next word, shows its value ("yes" of a bare word) and moves `at` past them. 1: there was one; 0: the end;
 * -1: a quote without its end, or a word longer than any. */
int meg_options_next(const char **at, char word[MEG_TEXT], meg_excerpt *value);

/* Has an option string this word? */
bool meg_options_has(const char *text, const char *word);

/* Cuts the pair `word=value` out of `text` into `value`, if it is there and has room; what remains stays valid. */
bool meg_options_take(char *text, const char *word, char *value, size_t size);

/* Cuts the word out, whatever its value. False: it is not there. */
bool meg_options_drop(char *text, const char *word);

#endif
